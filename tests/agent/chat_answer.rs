//! The answer to a chat as a client receives it.

use dray_http::RequestBuilder;
use serde_json::{Value, json};

/// The status and the chunks of one answer.
#[derive(Debug)]
pub(crate) struct AgentAnswer {
    pub(crate) status: u16,
    /// All chunks, the error event among them; without `[DONE]`.
    pub(crate) chunks: Vec<Value>,
}

impl AgentAnswer {
    /// Sends a request and reads its answer to the end.
    pub(crate) async fn of(request: RequestBuilder) -> Self {
        let mut answer = request.send(&|_| ()).await.unwrap();
        let status = answer.status();
        let mut text = Vec::new();
        while let Some(chunk) = answer.chunk().await.unwrap() {
            text.extend_from_slice(&chunk);
        }
        let text = String::from_utf8(text).unwrap();
        if status != 200 {
            let error = serde_json::from_str(&text).unwrap_or(Value::Null);
            return Self {
                status,
                chunks: vec![error],
            };
        }
        let mut events: Vec<_> = text
            .split("\n\n")
            // A comment keeps a slow stream open.
            .filter(|event| !event.is_empty() && !event.starts_with(':'))
            .map(|event| event.strip_prefix("data: ").unwrap())
            .collect();
        assert_eq!(events.pop(), Some("[DONE]"), "{text}");
        let chunks = events.into_iter();
        Self {
            status,
            chunks: chunks
                .map(|event| serde_json::from_str(event).unwrap())
                .collect(),
        }
    }

    /// The text of all chunks together.
    pub(crate) fn text(&self) -> String {
        let chunks = self.deltas("/content");
        chunks.iter().filter_map(Value::as_str).collect()
    }

    /// The values at this JSON pointer in the deltas of all chunks, without nulls.
    pub(crate) fn deltas(&self, pointer: &str) -> Vec<Value> {
        let deltas = self
            .chunks
            .iter()
            .filter_map(|chunk| chunk.pointer("/choices/0/delta")?.pointer(pointer));
        deltas.filter(|value| !value.is_null()).cloned().collect()
    }

    /// Attachments of the answer.
    pub(crate) fn attachments(&self) -> Vec<Value> {
        let lists = self.deltas("/custom_content/attachments");
        let lists = lists.iter().map(|list| list.as_array().unwrap());
        lists.flatten().cloned().collect()
    }

    /// The state; there is exactly one.
    pub(crate) fn state(&self) -> Value {
        let mut states = self.deltas("/custom_content/state");
        assert_eq!(states.len(), 1, "one state: {:?}", self.chunks);
        states.remove(0)
    }

    /// The error event; null without one.
    pub(crate) fn error(&self) -> Value {
        let error = self.chunks.iter().find_map(|chunk| chunk.get("error"));
        error.cloned().unwrap_or_default()
    }

    /// The message that a client keeps for the next turn.
    pub(crate) fn message(&self) -> Value {
        json!({
            "role": "assistant",
            "content": self.text(),
            "custom_content": {"state": self.state(), "attachments": self.attachments()},
        })
    }
}
