//! The time of day for the model (quickapps 15).

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use crate::message::{Content, Message, Role};
use crate::pair::{self, CallPair};

/// Name of the tool that returns the current time.
pub const CLOCK_TOOL: &str = "internal_timeawareness_current_timestamp";

/// Key of the metadata in the state of a tool message.
pub const METADATA_KEY: &str = "_message_metadata";

/// Records the time of a tool message in its state, unless it has one. `iso` is ISO 8601 with milliseconds; `source` is
/// `default` or `request`. A state that is not an object is not changed.
pub fn note_time(message: &mut Message, iso: &str, source: &str, zone: &str) {
    if message.role != Role::Tool {
        return;
    }
    let custom = message.custom_content.get_or_insert_default();
    let state = custom
        .state
        .get_or_insert_with(|| Value::Object(Map::new()));
    if let Some(state) = state.as_object_mut() {
        // A result from an earlier turn keeps the time at which it was made.
        state.entry(METADATA_KEY).or_insert_with(|| {
            json!({"timestamp": {
                "response_timestamp": iso, "timestamp_source": source, "timezone_name": zone,
            }})
        });
    }
}

/// The tool's result: the time in ISO 8601, the zone by its IANA name, and whether the model named it (`request`) or
/// not (`default`).
pub fn clock_result(iso: &str, zone: &str, source: &str) -> String {
    format!("{iso} ({zone}, source={source})")
}

/// The call and result that give the model the time of a request, in UTC.
pub fn clock_pair(iso: &str) -> CallPair {
    CallPair {
        tool: CLOCK_TOOL.to_owned(),
        arguments: json!({}),
        content: clock_result(iso, "UTC", "default"),
    }
}

/// Appends the recorded time to tool messages; for the copies that are sent to the model. Pairs that contain the time
/// themselves, and content that is not text, stay as they are.
pub fn annotate_times(messages: &mut [Message]) {
    let former: HashSet<_> = messages
        .iter()
        .flat_map(Message::calls)
        // Ids of early releases do not contain the name of the tool, so the calls are searched.
        .filter(|call| call.function.name == CLOCK_TOOL && pair::is_former(&call.id))
        .map(|call| call.id.clone())
        .collect();
    for message in messages {
        let id = message.tool_call_id.as_deref().unwrap_or_default();
        // Results of the clock already contain the time (quickapps 15).
        let has_time = pair::is_synthetic(id, CLOCK_TOOL) || former.contains(id);
        if message.role != Role::Tool || has_time {
            continue;
        }
        if let Some(line) = time_line(message)
            && let Some(Content::Text(text)) = &mut message.content
        {
            text.push_str(&line);
        }
    }
}

fn time_line(message: &Message) -> Option<String> {
    let state = message.custom_content.as_ref()?.state.as_ref()?;
    let recorded = state.get(METADATA_KEY)?.get("timestamp")?;
    let iso = recorded.get("response_timestamp")?.as_str()?;
    let zone = recorded.get("timezone_name").and_then(Value::as_str);
    // The state came back through the client, so it may be any text: `get` also refuses text that is too short or cut
    // inside a character.
    let (date, time) = (iso.get(..10)?, iso.get(11..19)?);
    Some(format!(
        "\n[Timestamp: {date} {time} {}]",
        zone.unwrap_or("UTC")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message_with_id(id: &str) -> Message {
        let mut message = Message::new(Role::Tool, "r");
        message.tool_call_id = Some(id.to_owned());
        note_time(
            &mut message,
            "2026-01-02T03:04:05.678+00:00",
            "default",
            "UTC",
        );
        message
    }

    #[test]
    fn the_time_is_noted_once_and_shown_in_copies() {
        let mut message = message_with_id("call_1");
        let noted = message.clone();
        note_time(
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
        annotate_times(&mut copies);
        let text = |text: &str| Some(Content::Text(text.to_owned()));
        assert_eq!(
            copies[0].content,
            text("r\n[Timestamp: 2026-01-02 03:04:05 UTC]")
        );
        assert_eq!(copies[1].content, text("plain"));
    }

    #[test]
    fn the_time_is_not_added_twice() {
        let mut copies = [message_with_id(&format!("s_{CLOCK_TOOL}_abcdef_012345"))];
        annotate_times(&mut copies);
        assert_eq!(copies[0].content, Some(Content::Text("r".to_owned())));
    }

    #[test]
    fn the_time_is_not_added_to_pairs_of_former_times_either() {
        let former = |tool: &str| {
            let pair = CallPair {
                tool: tool.to_owned(),
                ..clock_pair("now")
            };
            let [call, _] = pair.messages_as("synthetic_0123456789ab".to_owned());
            let mut copies = [call, message_with_id("synthetic_0123456789ab")];
            annotate_times(&mut copies);
            copies[1].content.clone()
        };
        assert_eq!(former(CLOCK_TOOL), Some(Content::Text("r".to_owned())));
        assert_ne!(former("other"), Some(Content::Text("r".to_owned())));
    }

    #[test]
    fn the_time_of_a_request_is_reported_in_utc() {
        let pair = clock_pair("2026-01-02T03:04:05.678+00:00");
        assert_eq!(pair.tool, "internal_timeawareness_current_timestamp");
        assert_eq!(
            pair.content,
            "2026-01-02T03:04:05.678+00:00 (UTC, source=default)"
        );
        let [call, _] = pair.messages();
        assert_eq!(call.calls()[0].function.arguments, "{}");
    }

    #[test]
    fn parts_are_not_annotated() {
        let mut message = message_with_id("call_1");
        message.content = Some(Content::Parts(Vec::new()));
        let mut copies = [message.clone()];
        annotate_times(&mut copies);
        assert_eq!(copies, [message]);
    }
}
