//! When a tool answered, as the model reads it (quickapps 15).

use serde_json::{Map, Value, json};

use crate::message::{Content, Message, Role};
use crate::pair;

/// Name of the tool that tells the time.
pub const TOOL: &str = "internal_timeawareness_current_timestamp";

/// Key of what is noted of a tool message in its state.
pub const METADATA: &str = "_message_metadata";

/// Notes in the state of a tool message when it was made, unless that is there. `iso` is ISO 8601 with milliseconds;
/// `source` is `default` or `request`. A state that is no object stays as it is.
pub fn enrich(message: &mut Message, iso: &str, source: &str, zone: &str) {
    if message.role != Role::Tool {
        return;
    }
    let custom = message.custom_content.get_or_insert_default();
    let state = custom
        .state
        .get_or_insert_with(|| Value::Object(Map::new()));
    if let Some(state) = state.as_object_mut() {
        state.entry(METADATA).or_insert_with(|| {
            json!({"timestamp": {
                "response_timestamp": iso, "timestamp_source": source, "timezone_name": zone,
            }})
        });
    }
}

/// Appends the time to tool messages that have it noted; for the copies that go to the model. Messages of the time
/// itself, and content that is not text, stay as they are.
pub fn annotate(messages: &mut [Message]) {
    for message in messages {
        let id = message.tool_call_id.as_deref().unwrap_or_default();
        if message.role != Role::Tool || pair::is_synthetic(id, TOOL) {
            continue;
        }
        if let Some(line) = line(message)
            && let Some(Content::Text(text)) = &mut message.content
        {
            text.push_str(&line);
        }
    }
}

fn line(message: &Message) -> Option<String> {
    let state = message.custom_content.as_ref()?.state.as_ref()?;
    let noted = state.get(METADATA)?.get("timestamp")?;
    let iso = noted.get("response_timestamp")?.as_str()?;
    let zone = noted.get("timezone_name").and_then(Value::as_str);
    let (date, time) = (iso.get(..10)?, iso.get(11..19)?);
    Some(format!(
        "\n[Timestamp: {date} {time} {}]",
        zone.unwrap_or("UTC")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(id: &str) -> Message {
        let mut message = Message::new(Role::Tool, "r");
        message.tool_call_id = Some(id.to_owned());
        enrich(
            &mut message,
            "2026-01-02T03:04:05.678+00:00",
            "default",
            "UTC",
        );
        message
    }

    #[test]
    fn the_time_is_noted_once_and_shown_in_copies() {
        let mut message = result("call_1");
        let noted = message.clone();
        enrich(
            &mut message,
            "2027-01-01T00:00:00.000+00:00",
            "request",
            "UTC",
        );
        assert_eq!(message, noted);
        assert_eq!(
            noted.custom_content.unwrap().state.unwrap(),
            json!({"_message_metadata": {"timestamp": {
                "response_timestamp": "2026-01-02T03:04:05.678+00:00",
                "timestamp_source": "default", "timezone_name": "UTC",
            }}})
        );
        let mut copies = [message, Message::new(Role::Tool, "plain")];
        annotate(&mut copies);
        let text = |text: &str| Some(Content::Text(text.to_owned()));
        assert_eq!(
            copies[0].content,
            text("r\n[Timestamp: 2026-01-02 03:04:05 UTC]")
        );
        assert_eq!(copies[1].content, text("plain"));
    }

    #[test]
    fn the_time_is_not_told_of_the_time() {
        let mut copies = [result(&format!("s_{TOOL}_abcdef_012345"))];
        annotate(&mut copies);
        assert_eq!(copies[0].content, Some(Content::Text("r".to_owned())));
    }
}
