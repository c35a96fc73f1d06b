//! Single items of conversations. Deleting one rewrites the document that holds it; documents of responses stay as they
//! are, because a response is its own object.

use dray_agent::failure::RequestFailure;
use dray_agent::state;
use serde_json::{Value, json};

use super::conversations::ConversationRecord;
use super::{HistoryEntry, MAX_ATTEMPTS, ResponseDocument, ResponseStore, missing_failure};
use crate::records::{RecordError, RecordKind};

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
    /// As [`ResponseStore::conversation_history`]; 404 for an item that is not there, 400 for one that belongs to another
    /// item or is a part of an answer.
    pub(crate) async fn delete_item(
        &self,
        principal: &str,
        id: &str,
        item_id: &str,
    ) -> Result<ConversationRecord, RequestFailure> {
        for _ in 0..MAX_ATTEMPTS {
            let mut record = self.conversation(principal, id).await?;
            let history = record.value.history.clone();
            let history = self.history("conversation_id", history).await?;
            let (mut entries, documents) = (history.entries, history.documents);
            let mut found = None;
            for (entry, mut document) in entries.iter_mut().zip(documents) {
                if document.remove_item(item_id)? {
                    found = Some((entry, document));
                    break;
                }
            }
            let Some((entry, document)) = found else {
                return Err(missing_failure("item", item_id));
            };
            *entry = HistoryEntry {
                content: self.store(&document).await?,
                stored_ms: self.records.now_ms(),
            };
            record.value.history = entries;
            record.value.expires_ms = self.expires_ms();
            let updated = self
                .records
                .update(RecordKind::Conversation, principal, id, &record);
            match updated.await {
                Ok(_) => return Ok(record.value),
                // A response was added meanwhile, or another item was removed.
                Err(RecordError::Stale) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(RecordError::Stale.into())
    }
}

impl ResponseDocument {
    /// Removes an item; `false` when the document does not hold it.
    fn remove_item(&mut self, id: &str) -> Result<bool, RequestFailure> {
        if let Some(position) = self.input.iter().position(|item| has_id(item, id)) {
            let item = self.input.remove(position);
            let kind = item.get("type").and_then(Value::as_str);
            if kind.is_some_and(|kind| PAIRED_TYPES.contains(&kind)) {
                return Err(inseparable_failure());
            }
            return Ok(true);
        }
        let response = self.response.as_mut();
        let output = response.and_then(|response| response.get_mut("output")?.as_array_mut());
        let Some(output) = output else {
            return Ok(false);
        };
        let Some(position) = output.iter().position(|item| has_id(item, id)) else {
            return Ok(false);
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

/// Removes what an answer says, also between its calls of tools. Calls, results and the rest of the state stay.
fn remove_texts(answer: &mut Value) {
    let rounds = answer.pointer_mut(&format!("/custom_content/state/{}", state::HISTORY_KEY));
    for round in rounds.and_then(Value::as_array_mut).into_iter().flatten() {
        if round["role"] == "assistant" {
            remove_text(round);
        }
    }
    remove_text(answer);
}

fn remove_text(message: &mut Value) {
    if let Some(members) = message.as_object_mut() {
        // Models require text in each message.
        members.insert("content".to_owned(), json!(" "));
        members.shift_remove("refusal");
        members.shift_remove("reasoning_content");
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
                "custom_content": {"state": {"session": "s", (state::HISTORY_KEY): [
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
