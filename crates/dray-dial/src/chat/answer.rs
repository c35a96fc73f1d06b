//! A response, assembled from its chunks.

use dray_agent::event::TokenUsage;
use dray_agent::message::{Attachment, CustomContent, Message, Role};
use serde_json::Value;

use super::delta::ChunkDelta;

/// A response, assembled from its chunks.
#[derive(Debug, Default)]
pub struct ChatAnswer {
    content: String,
    attachments: Vec<Attachment>,
    ending: AnswerEnding,
    size: usize,
}

/// The parts of a response besides its text and files.
#[derive(Clone, Debug, Default)]
pub struct AnswerEnding {
    /// State that the service wants back with the next question.
    pub state: Option<Value>,
    /// `finish_reason` of the last chunk; `None` without one.
    pub finish_reason: Option<String>,
    /// Numbers of tokens, where the service reports them.
    pub usage: Option<TokenUsage>,
    /// Whether the response requests tool calls from this client.
    pub calls_tools: bool,
}

impl ChatAnswer {
    /// Adds a chunk.
    pub fn add(&mut self, delta: ChunkDelta) {
        let ending = &mut self.ending;
        if let Some(text) = delta.content {
            self.size += text.len();
            self.content.push_str(&text);
        }
        for attachment in delta.attachments {
            let texts = [&attachment.data, &attachment.url];
            let texts = texts.into_iter().flatten();
            // The size of the structure counts, too: many empty attachments take memory.
            self.size += texts.map(String::len).sum::<usize>() + size_of::<Attachment>();
            self.attachments.push(attachment);
        }
        if let Some(state) = delta.state {
            self.size += value_bytes(&state);
            merge_state(ending.state.get_or_insert(Value::Null), state);
        }
        // The last chunk with one counts, because some servers send usage in a separate chunk.
        ending.finish_reason = delta.finish_reason.or(ending.finish_reason.take());
        ending.usage = delta.usage.or(ending.usage.take());
        ending.calls_tools |= !delta.tool_calls.is_empty();
    }

    /// The answer's text so far.
    pub fn content(&self) -> &str {
        &self.content
    }

    /// Approximate memory of its text, attachments and state so far, in bytes.
    pub const fn size(&self) -> usize {
        self.size
    }

    /// The answer's files, in the order of arrival.
    pub fn attachments(&self) -> &[Attachment] {
        &self.attachments
    }

    /// The parts besides its text and files.
    pub const fn ending(&self) -> &AnswerEnding {
        &self.ending
    }

    /// The response as a message of the conversation, with the state for the next question.
    pub fn into_message(self) -> Message {
        let mut message = Message::new(Role::Assistant, self.content);
        let custom = CustomContent {
            attachments: (!self.attachments.is_empty()).then_some(self.attachments),
            state: self.ending.state,
            ..CustomContent::default()
        };
        // Otherwise an empty object would be sent to servers that do not support the member.
        if custom != CustomContent::default() {
            message.custom_content = Some(custom);
        }
        message
    }
}

/// Merges a chunk of state: objects key by key, other values are replaced (DIAL's rule for chunks).
fn merge_state(old: &mut Value, new: Value) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            for (key, value) in new {
                merge_state(old.entry(key).or_insert(Value::Null), value);
            }
        }
        (old, new) => *old = new,
    }
}

/// The approximate memory of a value in bytes.
fn value_bytes(value: &Value) -> usize {
    size_of::<Value>()
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(value_bytes).sum(),
            Value::Object(fields) => fields
                .iter()
                .map(|(key, value)| key.len() + value_bytes(value))
                .sum(),
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pieces_become_one_message() {
        let mut answer = ChatAnswer::default();
        let chunk = |text: &str, state| ChunkDelta {
            content: Some(text.to_owned()),
            state,
            ..ChunkDelta::default()
        };
        answer.add(chunk("one ", Some(json!({"a": {"b": 1}, "c": [1]}))));
        answer.add(chunk("two", Some(json!({"a": {"d": null}, "c": [2]}))));
        answer.add(ChunkDelta {
            finish_reason: Some("stop".to_owned()),
            ..ChunkDelta::default()
        });
        answer.add(ChunkDelta::default());
        assert_eq!(answer.ending().finish_reason.as_deref(), Some("stop"));
        assert_eq!(
            serde_json::to_value(answer.into_message()).unwrap(),
            json!({
                "role": "assistant",
                "content": "one two",
                "custom_content": {"state": {"a": {"b": 1, "d": null}, "c": [2]}},
            })
        );
    }

    #[test]
    fn an_answer_of_text_alone_is_a_plain_message() {
        let message = ChatAnswer::default().into_message();
        let plain = json!({"role": "assistant", "content": ""});
        assert_eq!(serde_json::to_value(message).unwrap(), plain);
    }
}
