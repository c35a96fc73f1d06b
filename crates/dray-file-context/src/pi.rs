//! The second agent engine, which keeps its own memory (agent-file-context 18.1).
//!
//! It accepts one prompt, so only the text of this turn's message is used. It does not use rewritten history, because
//! it stores its memory with its last answer. Files of history can still be read, because the maps contain them.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::built::BuiltContext;
use crate::model::{ChatItem, MessageRole};

/// How often a running engine checks whether it was stopped.
pub const STOP_POLL: Duration = Duration::from_millis(200);

/// The text of the current message, which an engine gets as its prompt.
pub fn call_prompt(built: &BuiltContext) -> String {
    built.current_user_message.text()
}

/// The key that a node's memory is stored under.
pub fn memory_key(node_id: &str) -> String {
    format!("piMessages-{node_id}")
}

/// The memory of a node. The last message of history carries it, if that is an answer, among its `memories` or beside
/// them. Otherwise the node starts empty.
pub fn node_memory<'a>(histories: &'a [ChatItem], node_id: &str) -> Option<&'a Value> {
    let last = histories
        .last()
        .filter(|item| item.obj == MessageRole::Ai)?;
    let key = memory_key(node_id);
    let memories = last
        .extra
        .get("memories")
        .and_then(|memories| memories.get(&key));
    memories.or_else(|| last.extra.get(&key))
}

/// Stores a node's memory with an answer. All nodes share one field.
pub fn remember_messages(answer: &mut ChatItem, node_id: &str, messages: Value) {
    let memories = answer.extra.entry("memories").or_insert_with(|| json!({}));
    if !memories.is_object() {
        *memories = Value::Object(Map::new());
    }
    if let Some(memories) = memories.as_object_mut() {
        memories.insert(memory_key(node_id), messages);
    }
}

/// The record of a turn, even of one that failed: the partial answer, the error, and the memory, which is always
/// saved.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnRecord {
    /// The part of the answer that was received so far.
    pub answer: String,
    /// Message of the failure, if any.
    pub error: Option<String>,
    /// Memory of the engine after this turn.
    pub memory: Value,
}

impl TurnRecord {
    /// The message to store.
    pub fn into_message(self, data_id: Option<&str>, node_id: &str) -> ChatItem {
        let mut message = ChatItem::new(
            MessageRole::Ai,
            data_id,
            vec![crate::model::MessagePart::Text(self.answer)],
        );
        if let Some(error) = self.error {
            message
                .extra
                .insert("errorText".to_owned(), Value::String(error));
        }
        // This is done after a failure as well (18.1).
        remember_messages(&mut message, node_id, self.memory);
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{build, file, message, text};

    #[test]
    fn the_prompt_names_no_file_of_history_although_it_can_be_read() {
        let history = json!([
            message("Human", "h", &[file("file", "old.pdf", "/old.pdf")]),
            message("AI", "r", &[text("x")])
        ]);
        let built = build(
            json!({"generation": "g1", "history": history, "responseChatItemId": "c", "question": "q",
            "userMessage": message("Human", "q", &[file("file", "new.pdf", "/new.pdf")])}),
        );
        let prompt = call_prompt(&built);
        assert!(prompt.contains("c-0") && !prompt.contains("r-0") && !prompt.contains("old.pdf"));
        assert!(built.files_map.contains_key("r-0"));
    }

    #[test]
    fn memory_is_that_of_the_last_message_if_it_is_an_answer() {
        let turn = TurnRecord {
            answer: "part".into(),
            error: Some("broke".into()),
            memory: json!(["m"]),
        };
        let mut answer = turn.into_message(Some("r"), "n1");
        remember_messages(&mut answer, "n2", json!(["other"]));
        let question = ChatItem::new(MessageRole::Human, None, vec![]);
        let items = [question.clone(), answer.clone()];
        assert_eq!(node_memory(&items, "n1"), Some(&json!(["m"])));
        assert_eq!(node_memory(&items, "n2"), Some(&json!(["other"])));
        assert_eq!(node_memory(&items, "n3"), None);
        assert_eq!(node_memory(&[answer.clone(), question], "n1"), None);
        assert_eq!(answer.extra.get("errorText"), Some(&json!("broke")));
        let flat: ChatItem =
            serde_json::from_value(json!({"obj": "AI", "piMessages-n": [1]})).unwrap();
        assert_eq!(node_memory(&[flat], "n"), Some(&json!([1])));
    }
}
