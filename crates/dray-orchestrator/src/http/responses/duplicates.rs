//! Items that a request has twice. `OpenAI`'s API refuses them ("Duplicate item found with id …"). Here equal ones count once,
//! since some versions of clients repeat them (vercel/ai issue 18605); those that contradict each other are refused.

use dray_agent::failure::RequestFailure;
use serde_json::{Map, Value};

use super::items::InputItems;
use crate::responses::History;

/// Members of a question on approval that a client sends back.
const QUESTION_MEMBERS: [&str; 3] = ["server_label", "name", "arguments"];
/// Members of an answer to such a question.
const ANSWER_MEMBERS: [&str; 2] = ["approve", "reason"];

/// Whether an item repeats one of these: a reference to one, an equal question on approval, or an equal answer to one.
///
/// # Errors
///
/// 400 for a question or an answer that differs from the first one.
pub(super) fn is_repeated(
    field: &str,
    item: &Map<String, Value>,
    earlier: &[Value],
) -> Result<bool, RequestFailure> {
    let kind = item.get("type").and_then(Value::as_str);
    let (key, members) = match kind {
        // The first reference to an item became the item itself.
        Some("item_reference") => {
            return Ok(earlier
                .iter()
                .any(|other| other.get("id") == item.get("id")));
        }
        Some("mcp_approval_request") => ("id", QUESTION_MEMBERS.as_slice()),
        Some("mcp_approval_response") => ("approval_request_id", ANSWER_MEMBERS.as_slice()),
        _ => return Ok(false),
    };
    let is_same = |other: &&Value| {
        other.get("type").and_then(Value::as_str) == kind && other.get(key) == item.get(key)
    };
    match earlier.iter().find(is_same) {
        None => Ok(false),
        Some(first) if has_equal_members(first, item, members) => Ok(true),
        Some(_) => Err(duplicate_failure(field, item.get(key))),
    }
}

fn has_equal_members(first: &Value, item: &Map<String, Value>, members: &[&str]) -> bool {
    members
        .iter()
        .all(|name| first.get(name) == item.get(*name))
}

fn duplicate_failure(field: &str, id: Option<&Value>) -> RequestFailure {
    let id = id.and_then(Value::as_str).unwrap_or_default();
    let message = format!(
        "Duplicate item found with id {id}, and the two differ. Remove one of them from your input and try again."
    );
    RequestFailure::of_parameter(field, "invalid_value", message)
}

impl InputItems {
    /// Leaves out the questions on approval that the continued response asked itself.
    ///
    /// # Errors
    ///
    /// 400 for a question with another call.
    pub(super) fn leave_out_known_questions(
        &mut self,
        history: &History,
    ) -> Result<(), RequestFailure> {
        let last = history.documents.last();
        let output = last.and_then(|document| document.response.as_ref()?.get("output"));
        let Some(output) = output.and_then(Value::as_array) else {
            return Ok(());
        };
        let mut known = Vec::new();
        for (index, item) in self.items.iter().enumerate() {
            let Value::Object(item) = item else { continue };
            let is_question = item
                .get("type")
                .is_some_and(|kind| kind == "mcp_approval_request");
            if is_question && is_repeated(&format!("input.{index}"), item, output)? {
                known.extend(item.get("id").cloned());
            }
        }
        self.remove_questions(&known);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::items::read_input;
    use super::*;
    use crate::responses::ResponseDocument;

    fn question(arguments: &str) -> Value {
        json!({
            "type": "mcp_approval_request", "id": "mcpr_a", "server_label": "shop", "name": "order",
            "arguments": arguments,
        })
    }

    fn answer(approve: bool) -> Value {
        json!({"type": "mcp_approval_response", "approval_request_id": "mcpr_a", "approve": approve})
    }

    #[test]
    fn an_equal_question_and_an_equal_answer_count_once() {
        let reference = json!({"type": "item_reference", "id": "mcpr_a"});
        let items = json!([
            question("{}"),
            reference,
            question("{}"),
            answer(true),
            answer(true)
        ]);
        let read = read_input(items).unwrap();
        assert_eq!(read.items.len(), 2, "{:?}", read.items);
        assert_eq!(read.messages.len(), 2, "{:?}", read.messages);
    }

    #[test]
    fn questions_and_answers_that_contradict_each_other_are_refused_with_the_place_of_the_second() {
        for (items, param) in [
            (json!([question("{}"), question("{\"a\":1}")]), "input.1"),
            (
                json!([question("{}"), answer(true), answer(false)]),
                "input.2",
            ),
        ] {
            let failure = read_input(items).unwrap_err();
            assert_eq!(failure.param.as_deref(), Some(param));
            assert!(failure.message.contains("mcpr_a"), "{}", failure.message);
        }
    }

    #[test]
    fn a_question_of_the_continued_response_is_not_asked_twice() {
        let document = ResponseDocument {
            response: Some(json!({"output": [question("{}")]})),
            ..ResponseDocument::default()
        };
        let mut history = History::default();
        history.documents.push(document);
        let mut read = read_input(json!([question("{}"), answer(true)])).unwrap();
        read.leave_out_known_questions(&history).unwrap();
        let roles: Vec<_> = read
            .messages
            .iter()
            .map(|other| &other.message["role"])
            .collect();
        assert_eq!((json!(roles), read.items.len()), (json!(["tool"]), 1));
        let mut other = read_input(json!([question("{\"a\":1}"), answer(true)])).unwrap();
        let failure = other.leave_out_known_questions(&history).unwrap_err();
        assert_eq!(failure.param.as_deref(), Some("input.0"));
    }
}
