//! Messages of a chat completion (quickapps 3.1), lenient: unknown fields are passed on.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub mod plain_order;
mod read;
pub mod shape;

/// Author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions for the model; only the first message.
    System,
    /// A message of the user.
    User,
    /// The model.
    Assistant,
    /// The result of a tool call.
    Tool,
    /// The result of a function call, which preceded tools in the API.
    Function,
}

impl Role {
    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
            Self::Function => "function",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One message of a conversation, as clients and models exchange it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Message {
    /// Author of the message.
    pub role: Role,
    /// Text of the message; absent and `null` are the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Content>,
    /// Name of the speaker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// For a tool message: the id of its call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// For an assistant message: its calls, in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<Vec<ToolCall>>,
    /// Extension of DIAL: attachments, stages and state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom_content: Option<CustomContent>,
    /// Unknown fields, which are passed on.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl Message {
    /// A message of a role with only text.
    pub fn new(role: Role, text: impl Into<String>) -> Self {
        Self {
            role,
            content: Some(Content::Text(text.into())),
            name: None,
            tool_call_id: None,
            tool_calls: None,
            custom_content: None,
            rest: Map::new(),
        }
    }

    /// The calls of the message; empty unless it is an assistant message.
    pub fn calls(&self) -> &[ToolCall] {
        match self.role {
            Role::Assistant => self.tool_calls.as_deref().unwrap_or_default(),
            // A client can put calls into any message; only those of the assistant count.
            _ => &[],
        }
    }
}

/// Text, or parts of text and images.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Content {
    /// The complete content as text.
    Text(String),
    /// Unmodified parts: `{"type":"text",…}`, `{"type":"image_url",…}`, or of an unknown kind.
    Parts(Vec<Map<String, Value>>),
}

/// A call that the model requests in an assistant message; a later tool message names its id with the result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The id, which the tool message with the result repeats.
    pub id: String,
    /// `function` in all known APIs; another kind is passed on.
    #[serde(rename = "type", default = "function_type")]
    pub kind: String,
    /// Name and arguments of the called function.
    pub function: FunctionCall,
    /// All other fields, including `index`.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// Name and arguments of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// Name of the tool.
    pub name: String,
    /// JSON text, as the model wrote it: it may be malformed.
    #[serde(default)]
    pub arguments: String,
    /// Unknown fields, which are passed on.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// The extension of a message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CustomContent {
    /// Files of the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachments: Option<Vec<Attachment>>,
    /// Stages shown while it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stages: Option<Vec<Value>>,
    /// State of the sender, which can be any JSON. [`crate::state`] describes that of assistant messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Value>,
    /// Unknown fields, which are passed on.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// A file of a message. One without a type matches no filter of types.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Attachment {
    /// MIME type of the content.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Name of the file for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The content itself: text or base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// Address of the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// MIME type of the source of the attachment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference_type: Option<String>,
    /// Address of the source that the content was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference_url: Option<String>,
    /// Unknown fields, which are passed on.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

fn function_type() -> String {
    "function".to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_members_of_a_message_are_kept() {
        let wire = json!({
            "role": "assistant",
            "content": [{"type": "input_audio", "input_audio": {"data": "QQ=="}}],
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "t", "arguments": "{"}, "index": 0}],
            "custom_content": {"attachments": [{"title": "a", "mood": 1}], "stages": [{"name": "s"}], "form": {}},
            "refusal": "no",
        });
        let message: Message = serde_json::from_value(wire.clone()).unwrap();
        assert_eq!(serde_json::to_value(&message).unwrap(), wire);
    }

    #[test]
    fn null_content_is_absent_content() {
        let message: Message =
            serde_json::from_value(json!({"role": "user", "content": null})).unwrap();
        assert_eq!(message.content, None);
        assert_eq!(
            serde_json::to_value(&message).unwrap(),
            json!({"role": "user"})
        );
    }

    #[test]
    fn a_call_without_type_or_arguments_is_read() {
        let call: ToolCall =
            serde_json::from_value(json!({"id": "1", "function": {"name": "t"}})).unwrap();
        assert_eq!(
            (call.kind.as_str(), call.function.arguments.as_str()),
            ("function", "")
        );
    }

    #[test]
    fn only_assistants_make_calls() {
        let wire =
            |role| json!({"role": role, "tool_calls": [{"id": "1", "function": {"name": "t"}}]});
        let calls = |role| {
            serde_json::from_value::<Message>(wire(role))
                .unwrap()
                .calls()
                .len()
        };
        assert_eq!((calls("assistant"), calls("user")), (1, 0));
    }

    #[test]
    fn roles_outside_the_five_are_refused() {
        assert!(serde_json::from_value::<Message>(json!({"role": "robot"})).is_err());
    }
}
