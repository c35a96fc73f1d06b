//! Pictures in the results of a client's functions. Models take pictures in messages of the user only (`OpenAI`, "Chat
//! completions": messages with the role `tool` are text), so they follow the results in such a message.

use dray_agent::message::{Attachment, Content, CustomContent, Message, Role};
use serde_json::{Map, Value, json};

use crate::http::RESULT_FIELD;

/// Whether an attachment is a picture in the result of a function that the client called.
pub(super) fn is_result_picture(message: &Message, attachment: &Attachment) -> bool {
    let kind = attachment.kind.as_deref().unwrap_or_default();
    message.role == Role::Tool
        && attachment.rest.contains_key(RESULT_FIELD)
        && kind.starts_with("image/")
}

/// Moves the pictures of results into a message of the user after the last result of each round, in their order. The
/// same conversation always becomes the same, so that the prompt stays cacheable.
pub(super) fn move_result_pictures(messages: Vec<Message>) -> Vec<Message> {
    let mut moved = Vec::with_capacity(messages.len());
    let mut pictures = RoundPictures::default();
    for mut message in messages {
        if message.role == Role::Tool {
            pictures.take_from(&mut message);
        } else {
            moved.extend(pictures.take_message());
        }
        moved.push(message);
    }
    moved.extend(pictures.take_message());
    moved
}

/// The pictures in the results of one round.
#[derive(Debug, Default)]
struct RoundPictures {
    /// Parts of messages, for models that do not know DIAL.
    parts: Vec<Map<String, Value>>,
    /// Files, for models of DIAL.
    attachments: Vec<Attachment>,
    /// The call of each picture.
    calls: Vec<String>,
}

impl RoundPictures {
    fn take_from(&mut self, result: &mut Message) {
        let before = self.len();
        if let Some(Content::Parts(parts)) = &mut result.content {
            let is_picture = |part: &mut Map<String, Value>| {
                part.get("type").is_some_and(|kind| kind == "image_url")
            };
            self.parts.extend(parts.extract_if(.., is_picture));
            if self.parts.len() > before {
                result.content = Some(Content::Text(joined_text(parts)));
            }
        }
        let custom = result.custom_content.as_mut();
        if let Some(attachments) = custom.and_then(|custom| custom.attachments.as_mut()) {
            self.attachments.append(attachments);
        }
        let call = result.tool_call_id.clone().unwrap_or_default();
        self.calls.resize(self.len(), call);
    }

    fn len(&self) -> usize {
        self.parts.len() + self.attachments.len()
    }

    /// The message with the pictures; `None` without any.
    fn take_message(&mut self) -> Option<Message> {
        let taken = std::mem::take(self);
        if taken.len() == 0 {
            return None;
        }
        let text = format!(
            "The pictures in the results above, in their order, are of the calls: {}.",
            taken.calls.join(", ")
        );
        let mut message = Message::new(Role::User, text.as_str());
        if !taken.parts.is_empty() {
            let text = Map::from_iter([
                ("type".to_owned(), json!("text")),
                ("text".to_owned(), Value::from(text)),
            ]);
            let parts = std::iter::once(text).chain(taken.parts);
            message.content = Some(Content::Parts(parts.collect()));
        }
        if !taken.attachments.is_empty() {
            message.custom_content = Some(CustomContent {
                attachments: Some(taken.attachments),
                ..CustomContent::default()
            });
        }
        Some(message)
    }
}

fn joined_text(parts: &[Map<String, Value>]) -> String {
    let texts = parts.iter().filter_map(|part| part.get("text")?.as_str());
    texts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(messages: Value) -> Value {
        let messages = serde_json::from_value(messages).unwrap();
        serde_json::to_value(move_result_pictures(messages)).unwrap()
    }

    fn picture(url: &str) -> Value {
        json!({"type": "image_url", "image_url": {"url": url}})
    }

    #[test]
    fn pictures_follow_the_last_result_of_their_round() {
        let text = |text: &str| json!({"type": "text", "text": text});
        let result = |id: &str, content: Value| json!({"role": "tool", "tool_call_id": id, "content": content});
        let pictures = "The pictures in the results above, in their order, are of the calls: ";
        assert_eq!(
            moved(json!([
                {"role": "user", "content": "q"},
                result("a", json!([text("one"), picture("https://x.example/1"), picture("https://x.example/2")])),
                result("b", json!("two")),
                result("c", json!([text("three"), picture("https://x.example/3")])),
                {"role": "assistant", "content": "hm"},
                result("d", json!([picture("https://x.example/4")])),
            ])),
            json!([
                {"role": "user", "content": "q"},
                result("a", json!("one")),
                result("b", json!("two")),
                result("c", json!("three")),
                {"role": "user", "content": [
                    text(&format!("{pictures}a, a, c.")),
                    picture("https://x.example/1"), picture("https://x.example/2"), picture("https://x.example/3"),
                ]},
                {"role": "assistant", "content": "hm"},
                result("d", json!("")),
                {"role": "user", "content": [text(&format!("{pictures}d.")), picture("https://x.example/4")]},
            ])
        );
    }

    #[test]
    fn models_of_dial_get_files_of_a_message_of_the_user() {
        let file = json!({"type": "image/png", "title": "a.png", "url": "files/B/a.png"});
        let result = json!({"role": "tool", "tool_call_id": "a", "content": "one",
            "custom_content": {"attachments": [file]}});
        let moved = moved(json!([result]));
        assert_eq!(moved[0]["custom_content"]["attachments"], json!([]));
        assert_eq!(moved[1]["role"], "user");
        assert_eq!(moved[1]["custom_content"]["attachments"], json!([file]));
    }

    #[test]
    fn conversations_without_pictures_in_results_stay_as_they_are() {
        let messages = json!([
            {"role": "user", "content": [picture("https://x.example/1")]},
            {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "one"}]},
            {"role": "tool", "tool_call_id": "b", "content": "two", "custom_content": {"attachments": []}},
        ]);
        assert_eq!(moved(messages.clone()), messages);
    }
}
