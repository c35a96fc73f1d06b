//! Messages, parts and files of a chat, as they are stored and as they are passed on.
//!
//! Stored messages are kept as their original JSON. Only needed fields are read, and leniently, so that a message
//! without changes is returned exactly as it was received.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MessageRole {
    /// Instructions to the model.
    System,
    /// The user.
    Human,
    /// The model, or the agent around it.
    #[serde(rename = "AI")]
    Ai,
}

/// The type of a file for models. `file` is any document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileType {
    /// Any document, and a file with an unknown extension.
    #[default]
    File,
    /// An image, for models with image input.
    Image,
    /// Audio, for models with audio input.
    Audio,
    /// Video, with or without sound.
    Video,
}

impl FileType {
    /// `file`, `image`, `audio` or `video`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Image => "image",
            Self::Audio => "audio",
            Self::Video => "video",
        }
    }

    /// Parses a name of [`Self::as_str`].
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "file" => Some(Self::File),
            "image" => Some(Self::Image),
            "audio" => Some(Self::Audio),
            "video" => Some(Self::Video),
            _ => None,
        }
    }

    /// Whether text can be read from it.
    pub fn is_document(self) -> bool {
        self == Self::File
    }
}

/// One stored message, with every field that it was stored with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChatItem {
    /// Author of the message.
    pub obj: MessageRole,
    /// The id that it is stored under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_id: Option<String>,
    /// The item's parts: `{"text": {"content"}}` and `{"file": {"type", "name", "url", "key"?}}`, or a plain string.
    #[serde(default)]
    pub value: Value,
    /// Whether all older messages were compressed into this message (6.1).
    #[serde(default, skip_serializing_if = "crate::is_false")]
    pub checkpoint: bool,
    /// Whether the answer stopped with a question to the user and has to be resumed (6.1).
    #[serde(default, skip_serializing_if = "crate::is_false")]
    pub awaiting_input: bool,
    /// Ids, names and URLs of this message's files, persisted when it was the current one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<MessageAttachment>,
    /// All other stored fields.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl ChatItem {
    /// A message of these parts.
    pub fn new(obj: MessageRole, data_id: Option<&str>, parts: Vec<MessagePart>) -> Self {
        Self {
            obj,
            data_id: data_id.map(str::to_owned),
            value: Value::Array(parts.into_iter().map(MessagePart::into_json).collect()),
            checkpoint: false,
            awaiting_input: false,
            attachments: Vec::new(),
            extra: Map::new(),
        }
    }

    /// The item's id, unless that is empty.
    pub fn id(&self) -> Option<&str> {
        self.data_id.as_deref().filter(|id| !id.is_empty())
    }

    /// The item's parts, as far as they are text or files.
    pub fn parts(&self) -> Vec<MessagePart> {
        match &self.value {
            Value::String(text) => vec![MessagePart::Text(text.clone())],
            // Parts of other kinds are skipped here; the stored JSON keeps them.
            Value::Array(parts) => parts.iter().filter_map(MessagePart::read).collect(),
            _ => Vec::new(),
        }
    }

    /// All text parts of the item, joined without a separator.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for part in self.parts() {
            if let MessagePart::Text(content) = part {
                text.push_str(&content);
            }
        }
        text
    }

    /// The item's file parts in order.
    pub fn files(&self) -> Vec<FilePart> {
        let parts = self.parts().into_iter();
        parts
            .filter_map(|part| match part {
                MessagePart::File(file) => Some(file),
                MessagePart::Text(_) => None,
            })
            .collect()
    }

    /// The same message with other parts, for a model.
    pub(crate) fn with_parts(&self, parts: Vec<MessagePart>) -> Self {
        Self {
            value: Value::Array(parts.into_iter().map(MessagePart::into_json).collect()),
            // Persisted attachments are left out for the model, because their links may have expired.
            attachments: Vec::new(),
            ..self.clone()
        }
    }
}

/// Text or a file, in the order in which the message has them.
#[derive(Clone, Debug, PartialEq)]
pub enum MessagePart {
    /// Text, as its author wrote it.
    Text(String),
    /// A file, as it was uploaded or named.
    File(FilePart),
}

impl MessagePart {
    fn read(value: &Value) -> Option<Self> {
        if let Some(file) = value.get("file").filter(|file| file.is_object()) {
            return Some(Self::File(FilePart::read(file)));
        }
        let content = value.get("text")?.get("content")?;
        Some(Self::Text(content.as_str()?.to_owned()))
    }

    fn into_json(self) -> Value {
        match self {
            Self::Text(content) => json!({"text": {"content": content}}),
            Self::File(file) => json!({"file": file}),
        }
    }
}

/// A file of a message, before anything was decided about it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FilePart {
    /// Type that the uploader declared.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub file_type: Option<FileType>,
    /// Name that the uploader gave; may be empty.
    pub name: String,
    /// Address of the content. `None` if the stored value is not a string.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Key of the object in this system's storage, if it is stored there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

impl FilePart {
    fn read(value: &Value) -> Self {
        let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        Self {
            file_type: text("type").and_then(|name| FileType::named(&name)),
            name: text("name").unwrap_or_default(),
            // A value that is not text is dropped later without an error (section 3, step 1).
            url: text("url"),
            key: text("key").filter(|key| !key.is_empty()),
        }
    }
}

/// A file as it is described to a model, a tool or a node of a workflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentInputFile {
    /// The name that opens it in this turn and every later one.
    pub id: String,
    /// Name for models and people.
    pub name: String,
    /// The type for the model.
    #[serde(rename = "type")]
    pub file_type: FileType,
    /// Address of the content in this request.
    pub url: String,
    /// Key of the object in this system's storage, if it is stored there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// Data that is stored with a message, so that its files keep their ids and names. A caller stores
/// [`crate::BuiltContext::current_attachments`] with the message and passes it later in [`ChatItem::attachments`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageAttachment {
    /// The id that the model saw.
    pub id: String,
    /// The name that the model saw.
    pub name: String,
    /// The type that the model saw.
    #[serde(rename = "type")]
    pub file_type: FileType,
    /// The URL as the request had it, not as it was signed.
    pub url: String,
    /// Key of the object in this system's storage, if it is stored there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(value: Value) -> ChatItem {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_stored_message_is_read_back_unchanged() {
        let stored = json!({"obj": "Human", "dataId": "h", "value": [
            {"type": "text", "text": {"content": "hi"}},
            {"file": {"type": "file", "name": "a", "url": 7, "other": [1]}},
            {"interactive": {"x": null}}
        ], "time": 5, "memories": {"a": 1}});
        assert_eq!(serde_json::to_value(item(stored.clone())).unwrap(), stored);
    }

    #[test]
    fn texts_are_joined_with_nothing_between_and_files_keep_their_order() {
        let read = item(json!({"obj": "Human", "value": [
            {"text": {"content": "a"}},
            {"file": {"type": "image", "name": "p", "url": "/p.png", "key": ""}},
            {"text": {"content": "b"}},
            {"file": {"type": "hologram", "url": null}}
        ]}));
        assert_eq!(read.text(), "ab");
        let files = read.files();
        assert_eq!(files[0].file_type, Some(FileType::Image));
        assert_eq!((files[0].key.clone(), files[1].url.clone()), (None, None));
        assert_eq!(files[1].file_type, None);
    }

    #[test]
    fn a_message_whose_value_is_a_string_or_nonsense_is_read_too() {
        assert_eq!(item(json!({"obj": "AI", "value": "x"})).text(), "x");
        assert!(
            item(json!({"obj": "System", "value": {"a": 1}}))
                .parts()
                .is_empty()
        );
        assert!(item(json!({"obj": "AI"})).parts().is_empty());
    }
}
