//! Single items of conversations. Deleting an item rewrites its document. A response is its own object and keeps its
//! document; responses that continue it get the rewritten document ([`super::deletions`]).

use dray_agent::failure::RequestFailure;
use dray_agent::state;
use serde_json::{Value, json};

use super::conversations::ConversationRecord;
use super::{HistoryEntry, MAX_ATTEMPTS, ResponseDocument, ResponseStore, missing_failure};
use crate::records::{RecordError, RecordKind, wait_after_conflict};

/// Types of items that a following response needs together: a call without its result is refused, and so is a result
/// without its call.
const PAIRED_TYPES: [&str; 4] = [
    "function_call",
    "function_call_output",
    "mcp_approval_request",
    "mcp_approval_response",
];

impl ResponseStore {
    /// Removes an item from a conversation: the model does not see it in the following responses.
    ///
    /// # Errors
    ///
    /// Those of [`ResponseStore::conversation_items`]; 404 for an item that is not there, 400 for one that belongs to
    /// another item or is a part of an answer.
    pub(crate) async fn delete_item(
        &self,
        principal: &str,
        id: &str,
        item_id: &str,
    ) -> Result<ConversationRecord, RequestFailure> {
        for attempt in 0..MAX_ATTEMPTS {
            let mut record = self.conversation(principal, id).await?;
            let history = record.value.history.clone();
            let history = self.read_history("conversation_id", history).await?;
            let (mut entries, documents) = (history.entries, history.documents);
            let mut changed = Vec::new();
            // A reference puts a copy with the same id into a later document.
            for (entry, mut document) in entries.iter_mut().zip(documents) {
                if document.remove_item(item_id)? {
                    changed.push((entry, document));
                }
            }
            if changed.is_empty() {
                return Err(missing_failure("item", item_id));
            }
            for (entry, document) in changed {
                let content = self.store(&document).await?;
                // The replacement is noted for responses that name the former document.
                let now_ms = self.records.now_ms();
                record
                    .value
                    .note_replaced(entry.content.clone(), &content, now_ms);
                *entry = HistoryEntry {
                    content,
                    stored_ms: self.records.now_ms(),
                    conversation: None,
                };
            }
            self.compact_replaced(&mut record.value).await?;
            record.value.history = entries;
            record.value.expires_ms = self.expires_ms();
            let updated = self
                .records
                .update(RecordKind::Conversation, principal, id, &record);
            match updated.await {
                Ok(_) => return Ok(record.value),
                // A response was added meanwhile, or another item was removed.
                Err(RecordError::Stale) => wait_after_conflict(attempt).await,
                Err(error) => return Err(error.into()),
            }
        }
        Err(RecordError::Stale.into())
    }
}

impl ResponseDocument {
    /// Removes an item; `false` when the document does not hold it.
    fn remove_item(&mut self, id: &str) -> Result<bool, RequestFailure> {
        let is_paired = |item: &&Value| {
            let kind = item.get("type").and_then(Value::as_str);
            kind.is_some_and(|kind| PAIRED_TYPES.contains(&kind))
        };
        let mut named = self.input.iter().filter(|item| has_id(item, id));
        if named.any(|item| is_paired(&item)) {
            return Err(inseparable_failure());
        }
        let count = self.input.len();
        self.input.retain(|item| !has_id(item, id));
        let is_in_input = self.input.len() != count;
        let response = self.response.as_mut();
        let output = response.and_then(|response| response.get_mut("output")?.as_array_mut());
        let Some(output) = output else {
            return Ok(is_in_input);
        };
        let Some(position) = output.iter().position(|item| has_id(item, id)) else {
            return Ok(is_in_input);
        };
        let is_message = |item: &Value| item["type"] == "message";
        let messages = output.iter().filter(|item| is_message(item)).count();
        // The model sees one text for all messages of an answer, and calls only together with their results.
        if messages != 1 || !output.get(position).is_some_and(is_message) {
            return Err(inseparable_failure());
        }
        output.remove(position);
        if let Some(answer) = &mut self.answer {
            remove_texts(answer);
        }
        Ok(true)
    }
}

fn inseparable_failure() -> RequestFailure {
    let message = "The item belongs to other items and cannot be deleted alone.";
    RequestFailure::of_parameter("item_id", "unsupported_parameter", message)
}

fn has_id(item: &Value, id: &str) -> bool {
    item.get("id").and_then(Value::as_str) == Some(id)
}

/// Removes the texts and the files of an answer, also those between its calls of tools. Calls, results and the rest of
/// the state stay.
fn remove_texts(answer: &mut Value) {
    if let Some(custom) = answer.get_mut("custom_content") {
        if let Some(state) = custom.get_mut("state") {
            state::remove_texts(state);
        }
        if let Some(custom) = custom.as_object_mut() {
            custom.shift_remove("attachments");
        }
    }
    if answer.get("tool_calls").is_some() {
        mark_deleted(answer);
    }
    state::remove_text(answer);
}

/// Marks an answer whose calls may name the record of a paused turn: the texts in that record are deleted, too.
fn mark_deleted(answer: &mut Value) {
    let members = answer.as_object_mut();
    let custom = members.map(|members| members.entry("custom_content").or_insert(json!({})));
    let custom = custom.and_then(Value::as_object_mut);
    let state = custom.map(|custom| custom.entry("state").or_insert(json!({})));
    if let Some(state) = state.and_then(Value::as_object_mut) {
        state.insert(state::TEXTS_DELETED_KEY.to_owned(), json!(true));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(output: &Value) -> ResponseDocument {
        ResponseDocument {
            response: Some(json!({ "output": output })),
            input: vec![json!({"id": "msg_1", "type": "message"})],
            answer: Some(json!({
                "role": "assistant", "content": "secret", "refusal": "secret",
                "custom_content": {"attachments": [{"title": "secret"}], "state": {"session": "s", (state::HISTORY_KEY): [
                    {"role": "assistant", "content": "secret", "tool_calls": []},
                    {"role": "tool", "content": "result"},
                ]}},
            })),
            request: None,
        }
    }

    #[test]
    fn the_text_of_a_removed_message_is_not_in_the_answer_any_more() {
        let output =
            json!([{"id": "rs_2", "type": "reasoning"}, {"id": "msg_2", "type": "message"}]);
        let mut one = document(&output);
        assert!(!one.remove_item("msg_3").unwrap());
        assert!(one.remove_item("msg_2").unwrap());
        let answer = one.answer.unwrap();
        assert!(!answer.to_string().contains("secret"), "{answer}");
        assert_eq!(answer["custom_content"]["state"]["session"], "s");
        let rounds = &answer["custom_content"]["state"][state::HISTORY_KEY];
        assert_eq!(rounds[1]["content"], "result");
        let output = one.response.unwrap();
        assert_eq!(
            output["output"],
            json!([{"id": "rs_2", "type": "reasoning"}])
        );
        assert_eq!(one.input.len(), 1);
    }

    #[test]
    fn the_texts_of_a_paused_answer_are_marked_as_deleted() {
        let output =
            json!([{"id": "msg_2", "type": "message"}, {"id": "fc_2", "type": "function_call"}]);
        let mut one = document(&output);
        one.answer = Some(json!({"role": "assistant", "content": "secret", "tool_calls": []}));
        assert!(one.remove_item("msg_2").unwrap());
        let answer = one.answer.unwrap();
        let state = &answer["custom_content"]["state"];
        assert_eq!(state[state::TEXTS_DELETED_KEY], true, "{answer}");
        assert!(!answer.to_string().contains("secret"), "{answer}");
    }

    #[test]
    fn each_copy_of_an_item_is_removed() {
        let mut one = document(&json!([{"id": "msg_1", "type": "message"}]));
        one.input.push(json!({"id": "msg_1", "type": "message"}));
        one.input.push(json!({"id": "msg_4", "type": "message"}));
        assert!(one.remove_item("msg_1").unwrap());
        assert_eq!(one.input, [json!({"id": "msg_4", "type": "message"})]);
        assert_eq!(one.response.unwrap()["output"], json!([]));
    }

    #[test]
    fn calls_results_and_approvals_of_requests_are_not_removed_alone() {
        for kind in PAIRED_TYPES {
            let mut one = document(&json!([]));
            one.input.push(json!({"id": "x_1", "type": kind}));
            let failure = one.remove_item("x_1").unwrap_err();
            assert_eq!(failure.status, 400, "{kind}");
        }
    }

    #[test]
    fn parts_of_an_answer_that_belong_together_are_not_removed_alone() {
        let output =
            json!([{"id": "fc_1", "type": "function_call"}, {"id": "msg_2", "type": "message"}]);
        let failure = document(&output).remove_item("fc_1").unwrap_err();
        assert_eq!(failure.status, 400);
        let output =
            json!([{"id": "msg_2", "type": "message"}, {"id": "msg_3", "type": "message"}]);
        let mut one = document(&output);
        assert_eq!(one.remove_item("msg_3").unwrap_err().status, 400);
        assert!(one.remove_item("msg_1").unwrap());
        assert!(one.input.is_empty());
    }
}
