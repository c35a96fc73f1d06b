//! The conversation as the model gets it (quickapps 11 to 17).

use dray_agent::message::{Attachment, Content, Message, Role};
use dray_agent::{clock, filter, lazy, lift};
use dray_dial::chat::{ChatError, ChatKind};
use dray_types::Clock;
use serde_json::{Map, Value, json};

use super::provider_quirks::PromptAdapter;
use super::replayed_calls::repair_calls;
use super::result_pictures::is_result_picture;
use super::tool_search::DeferredTools;
use crate::http::{DETAIL_FIELD, PART_FIELD, RESULT_FIELD};
use dray_tool_files::inline::INLINE_KEY;

/// Fields of attachments that only this service understands.
const PRIVATE_FIELDS: [&str; 4] = [INLINE_KEY, PART_FIELD, DETAIL_FIELD, RESULT_FIELD];

/// How messages are sent to the model.
#[derive(Debug)]
pub(super) struct OutgoingMessages {
    pub(super) clock: Clock,
    /// Whether results of tools carry the time.
    pub(super) stamps: bool,
    /// Types of files that the model accepts, if it requests files itself.
    pub(super) lazy: Option<Vec<String>>,
    /// Whether the model does not know DIAL: DIAL's extensions of messages are left out, and images become parts of
    /// messages.
    pub(super) plain: bool,
    /// The text on the files of each message of the user, in their order. It follows the list of attachments.
    pub(super) reminders: Vec<Option<String>>,
    /// Whether refused files were removed already.
    pub(super) recovered: bool,
    /// Tools that the model calls through another one.
    pub(super) deferred: DeferredTools,
    /// Adds what the service of the model wants.
    pub(super) adapter: PromptAdapter,
}

impl OutgoingMessages {
    /// Copies of the messages for one call. Files that no policy keeps are only named in the text, and results contain
    /// their time. Only the model's own part of the state is left.
    pub(super) fn view(&self, messages: &[Message]) -> Vec<Message> {
        let asked_for = |message: &Message, attachment: &Attachment| {
            let types = self.lazy.as_deref().unwrap_or_default();
            lazy::keeps_attachment(message, attachment, types)
        };
        // A file that is already a part of its message is not sent a second time.
        let shown_once = |message: &Message, attachment: &Attachment| {
            !attachment.rest.contains_key(PART_FIELD)
                && filter::legacy_user_image(message, attachment)
        };
        let policies: &[filter::InlinePolicy<'_>] = match self.lazy {
            Some(_) => &[&asked_for],
            None => &[&shown_once, &is_result_picture],
        };
        // Links become names before the filter, whose list of attachments must not show links.
        let named: Vec<_> = messages.iter().map(with_model_fields).collect();
        let mut copies = filter::for_model(named, policies);
        // Copies of each call start from the canonical messages, so no change accumulates over the rounds.
        append_reminders(&mut copies, &self.reminders);
        self.deferred.show(&mut copies);
        repair_calls(&mut copies);
        if self.stamps {
            clock::annotate_times(&mut copies);
        }
        if self.plain {
            // This removes `custom_content` as a whole, so no part has to be stripped or lifted.
            copies.iter_mut().for_each(to_plain_message);
        } else {
            copies.iter_mut().for_each(strip_private_fields);
            lift::lift_orchestrator_state(&mut copies);
        }
        copies
    }

    /// Notes the time in the result of a tool.
    pub(super) fn stamp(&self, message: &mut Message) {
        if self.stamps && message.role == Role::Tool {
            clock::note_time(message, &iso_now(&self.clock), "default", "UTC");
        }
    }

    /// After a refusal, removes the files that the model opened, once per turn. Returns whether there were any, so
    /// that another call may succeed.
    pub(super) fn remove_refused_files(
        &mut self,
        error: &ChatError,
        messages: &mut [Message],
    ) -> bool {
        // Other statuses are about the service or the key, not about the files (quickapps 16).
        let is_refusal = error.kind == ChatKind::Status(400);
        let Some(types) = self.lazy.as_ref().filter(|_| is_refusal && !self.recovered) else {
            return false;
        };
        self.recovered = lazy::remove_refused_files(messages, types);
        self.recovered
    }
}

/// Adds the reminders after the lists of attachments, whose text is fixed (quickapps 14).
fn append_reminders(messages: &mut [Message], reminders: &[Option<String>]) {
    let users = messages
        .iter_mut()
        .filter(|message| message.role == Role::User);
    // There is one entry for each message of the user, so the position is enough to pair them.
    for (message, reminder) in users.zip(reminders) {
        let Some(reminder) = reminder else {
            continue;
        };
        let text = format!("\n{reminder}");
        match &mut message.content {
            Some(Content::Text(before)) => before.push_str(&text),
            // The text is a new part, since the last one may be an image (quickapps 14).
            Some(Content::Parts(parts)) => parts.push(message_part("text", Value::from(text))),
            None => message.content = Some(Content::Text(text)),
        }
    }
}

/// The message with stored files under their stable names. A link opens the file for everyone who sees it, expires, and
/// differs each time, so only the client gets links, in the attachments of an answer.
pub(super) fn with_stable_names(message: &Message) -> Message {
    let mut copy = message.clone();
    for attachment in take_attachments(&mut copy) {
        if let Some(key) = attachment.rest.get("key").and_then(Value::as_str) {
            attachment.url = Some(key.to_owned());
        }
    }
    copy
}

/// The message with stable names, without fields of attachments that models do not know.
fn with_model_fields(message: &Message) -> Message {
    let mut copy = with_stable_names(message);
    for attachment in take_attachments(&mut copy) {
        attachment
            .rest
            .retain(|name, _| PRIVATE_FIELDS.contains(&name.as_str()));
    }
    copy
}

fn take_attachments(message: &mut Message) -> impl Iterator<Item = &mut Attachment> {
    let custom = message.custom_content.as_mut();
    let attachments = custom.and_then(|custom| custom.attachments.as_mut());
    attachments.into_iter().flatten()
}

/// Converts the message to a form that any model of chat completions accepts: images that were kept become parts of it.
fn to_plain_message(message: &mut Message) {
    let custom = message.custom_content.take().unwrap_or_default();
    let images = custom.attachments.unwrap_or_default();
    let images: Vec<_> = images.iter().filter_map(image_url).collect();
    if images.is_empty() {
        // Clients send calls back without a content, and some services refuse a message that lacks the member.
        let empty = || Content::Text(String::new());
        message.content.get_or_insert_with(empty);
        return;
    }
    let mut parts = match message.content.take() {
        Some(Content::Parts(parts)) => parts,
        Some(Content::Text(text)) => vec![message_part("text", Value::from(text))],
        None => Vec::new(),
    };
    parts.extend(
        images
            .into_iter()
            .map(|picture| message_part("image_url", picture)),
    );
    message.content = Some(Content::Parts(parts));
}

/// Removes the fields that only this service understands.
fn strip_private_fields(message: &mut Message) {
    let custom = message.custom_content.as_mut();
    let attachments = custom.and_then(|custom| custom.attachments.as_mut());
    for attachment in attachments.into_iter().flatten() {
        for name in PRIVATE_FIELDS {
            attachment.rest.shift_remove(name);
        }
    }
}

/// An image for a model: a `data:` URL, or an address of the web, and how closely the model looks at it.
fn image_url(attachment: &Attachment) -> Option<Value> {
    let inline = attachment.rest.get(INLINE_KEY).and_then(Value::as_str);
    let url = inline.or_else(|| {
        attachment
            .url
            .as_deref()
            .filter(|url| url.starts_with("http"))
    });
    let mut picture = json!({ "url": url? });
    if let (Some(detail), Some(members)) =
        (attachment.rest.get(DETAIL_FIELD), picture.as_object_mut())
    {
        members.insert(DETAIL_FIELD.to_owned(), detail.clone());
    }
    Some(picture)
}

fn message_part(kind: &str, value: Value) -> Map<String, Value> {
    Map::from_iter([
        ("type".to_owned(), Value::from(kind)),
        (kind.to_owned(), value),
    ])
}

/// A time in Unix milliseconds as a person reads it: to the minute, in UTC.
pub(super) fn iso_minute(time_ms: u64) -> String {
    let time = i64::try_from(time_ms).unwrap_or_default();
    let time = jiff::Timestamp::from_millisecond(time).unwrap_or_default();
    time.strftime("%Y-%m-%d %H:%M UTC").to_string()
}

/// The current time in ISO 8601, with milliseconds.
pub(super) fn iso_now(clock: &Clock) -> String {
    let now = i64::try_from(clock.now_ms()).unwrap_or_default();
    let now = jiff::Timestamp::from_millisecond(now).unwrap_or_default();
    now.strftime("%Y-%m-%dT%H:%M:%S%.3f+00:00").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outgoing(reminders: Vec<Option<String>>) -> OutgoingMessages {
        OutgoingMessages {
            clock: Clock::system(),
            stamps: false,
            lazy: None,
            plain: true,
            reminders,
            recovered: false,
            deferred: DeferredTools::default(),
            adapter: PromptAdapter::default(),
        }
    }

    fn messages() -> Vec<Message> {
        let files = json!({"attachments": [{"title": "a&b.pdf", "type": "application/pdf", "url": "files/B/a.pdf"}]});
        let user =
            |content: Value| json!({"role": "user", "content": content, "custom_content": files});
        serde_json::from_value(json!([
            {"role": "system", "content": "s"},
            user(json!("question")),
            {"role": "assistant", "content": "answer"},
            {"role": "user", "content": "without files"},
            user(Value::Null),
            user(json!([{"type": "text", "text": "part"}])),
        ]))
        .unwrap()
    }

    #[test]
    fn every_message_for_a_plain_model_has_a_content() {
        let call = json!({"id": "1", "function": {"name": "f", "arguments": "{}"}});
        let messages: Vec<Message> = serde_json::from_value(json!([
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": null},
        ]))
        .unwrap();
        let shown = serde_json::to_value(outgoing(Vec::new()).view(&messages)).unwrap();
        for (index, content) in ["q", "", ""].into_iter().enumerate() {
            assert_eq!(shown[index]["content"], content, "{shown}");
        }
    }

    #[test]
    fn reminders_follow_the_list_of_attachments_which_stays_byte_for_byte() {
        let reminder = |number: u32| Some(format!("<system-reminder>{number}</system-reminder>"));
        let reminders = vec![reminder(1), None, reminder(2), reminder(3)];
        let with = outgoing(reminders).view(&messages());
        let without = outgoing(Vec::new()).view(&messages());
        let text = |message: &Message| match &message.content {
            Some(Content::Text(text)) => text.clone(),
            other => panic!("{other:?}"),
        };
        assert!(text(&without[1]).starts_with("question\n<attachments>\n"));
        assert!(text(&without[4]).starts_with("\n<attachments>\n"));
        for (index, number) in [(1, 1), (4, 2)] {
            let expected = format!("{}\n{}", text(&without[index]), reminder(number).unwrap());
            assert_eq!(text(&with[index]), expected);
        }
        for index in [0, 2, 3] {
            assert_eq!(with[index], without[index]);
        }
        let parts = |message: &Message| match &message.content {
            Some(Content::Parts(parts)) => parts.clone(),
            other => panic!("{other:?}"),
        };
        let (with, without) = (parts(&with[5]), parts(&without[5]));
        assert_eq!(with[..2], without[..]);
        assert_eq!(with[2]["text"], "\n<system-reminder>3</system-reminder>");
        assert_eq!(with.len(), 3);
    }
}
