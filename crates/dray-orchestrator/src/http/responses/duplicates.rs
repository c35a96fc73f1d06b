//! Items that a request repeats, or that the continued response contains already. `OpenAI`'s API refuses them
//! ("Duplicate item found with id …"). Here equal ones count once, since some versions of clients repeat them
//! (vercel/ai issue 18605), and Semantic Kernel sends all outputs of a turn with each `previous_response_id`; those
//! that contradict each other are refused.

use dray_agent::failure::RequestFailure;
use serde_json::{Map, Value};

use super::items::InputItems;
use crate::responses::History;

/// Members of a question on approval that a client sends back.
const QUESTION_MEMBERS: [&str; 3] = ["server_label", "name", "arguments"];
/// Members of an answer to such a question.
const ANSWER_MEMBERS: [&str; 2] = ["approve", "reason"];
/// Members of a call of a function.
const CALL_MEMBERS: [&str; 2] = ["name", "arguments"];

/// Whether an item repeats one of `earlier`: it is a reference to one, or a question on approval or an answer that
/// equals one.
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

/// The calls of functions and their outputs in the history that a response continues.
struct KnownCalls<'a> {
    history: &'a History,
}

impl<'a> KnownCalls<'a> {
    fn calls(&self, id: &Value) -> impl Iterator<Item = &'a Value> {
        let documents = self.history.documents.iter();
        let output = documents.filter_map(|document| document.response.as_ref()?.get("output"));
        let items = output.filter_map(Value::as_array).flatten();
        of_call(items, "function_call", id.clone())
    }

    fn outputs(&self, id: &Value) -> impl Iterator<Item = &'a Value> {
        let items = self.history.documents.iter().flat_map(|one| &one.input);
        of_call(items, "function_call_output", id.clone())
    }

    /// Whether an item of a request is in the history that the response continues. An output is not known while a call
    /// with its id waits, because models may give two calls the same id.
    fn has(&self, item: &Map<String, Value>) -> bool {
        let Some(id) = item.get("call_id") else {
            return false;
        };
        match item.get("type").and_then(Value::as_str) {
            Some("function_call") => {
                let mut calls = self.calls(id);
                calls.any(|call| has_equal_members(call, item, &CALL_MEMBERS))
            }
            Some("function_call_output") => {
                let waits = self.calls(id).count() > self.outputs(id).count();
                let last = self.outputs(id).last();
                !waits && last.is_some_and(|output| output.get("output") == item.get("output"))
            }
            _ => false,
        }
    }
}

fn of_call<'a>(
    items: impl Iterator<Item = &'a Value>,
    kind: &'static str,
    id: Value,
) -> impl Iterator<Item = &'a Value> {
    items.filter(move |item| {
        item.get("type").is_some_and(|known| known == kind) && item.get("call_id") == Some(&id)
    })
}

impl InputItems {
    /// Leaves out the items that the continued response contains: questions on approval, calls of functions, and
    /// outputs of calls that do not wait.
    ///
    /// # Errors
    ///
    /// 400 for a question with another call.
    pub(super) fn leave_out_known_items(
        &mut self,
        history: &History,
    ) -> Result<(), RequestFailure> {
        if history.documents.is_empty() {
            return Ok(());
        }
        let last = history.documents.last();
        let output = last.and_then(|document| document.response.as_ref()?.get("output"));
        let output = output.and_then(Value::as_array);
        let known_calls = KnownCalls { history };
        let mut known = Vec::new();
        for (index, item) in self.items.iter().enumerate() {
            let Value::Object(item) = item else { continue };
            let is_question = item
                .get("type")
                .is_some_and(|kind| kind == "mcp_approval_request");
            let is_known = match output {
                Some(output) if is_question => {
                    is_repeated(&format!("input.{index}"), item, output)?
                }
                _ => known_calls.has(item),
            };
            if is_known {
                known.push(Value::Object(item.clone()));
            }
        }
        for item in known {
            self.remove(&item);
        }
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
        read.leave_out_known_items(&history).unwrap();
        let roles: Vec<_> = read
            .messages
            .iter()
            .map(|other| &other.message["role"])
            .collect();
        assert_eq!((json!(roles), read.items.len()), (json!(["tool"]), 1));
        let mut other = read_input(json!([question("{\"a\":1}"), answer(true)])).unwrap();
        let failure = other.leave_out_known_items(&history).unwrap_err();
        assert_eq!(failure.param.as_deref(), Some("input.0"));
    }

    fn call(id: &str, arguments: &str) -> Value {
        json!({"type": "function_call", "call_id": id, "name": "f", "arguments": arguments})
    }

    fn output(id: &str, text: &str) -> Value {
        json!({"type": "function_call_output", "call_id": id, "output": text})
    }

    /// A conversation in which `a` has its output and `b` waits for it.
    fn half_answered() -> History {
        let document = |input: Value, output: Value| ResponseDocument {
            response: Some(json!({ "output": output })),
            input: input.as_array().unwrap().clone(),
            ..ResponseDocument::default()
        };
        let mut history = History::default();
        let user = json!({"role": "user", "content": "x"});
        history
            .documents
            .push(document(json!([user]), json!([call("a", "{}")])));
        history.documents.push(document(
            json!([output("a", "1")]),
            json!([call("b", "{}")]),
        ));
        history
    }

    fn remaining_items(history: &History, items: Value) -> (usize, Vec<Value>) {
        let mut read = read_input(items).unwrap();
        read.leave_out_known_items(history).unwrap();
        let messages = read.messages.into_iter().map(|one| one.message);
        (read.items.len(), messages.collect())
    }

    #[test]
    fn outputs_and_calls_of_the_continued_responses_count_once() {
        let history = half_answered();
        let result = json!({"role": "tool", "tool_call_id": "b", "content": "2"});
        for items in [
            json!([output("a", "1"), output("b", "2")]),
            json!([
                call("a", "{}"),
                output("a", "1"),
                call("b", "{}"),
                output("b", "2")
            ]),
        ] {
            assert_eq!(
                remaining_items(&history, items.clone()),
                (1, vec![result.clone()]),
                "{items}"
            );
        }
        // Another output of a call that has one, and another call of the same id, stay and are refused later.
        assert_eq!(remaining_items(&history, json!([output("a", "3")])).0, 1);
        assert_eq!(
            remaining_items(&history, json!([call("b", "{\"q\":1}")])).0,
            1
        );
    }

    #[test]
    fn an_equal_output_of_a_second_call_with_the_same_id_is_kept() {
        let mut history = half_answered();
        let second = history.documents[1].response.as_mut().unwrap();
        *second = json!({"output": [call("a", "{}")]});
        assert_eq!(remaining_items(&history, json!([output("a", "1")])).0, 1);
    }
}
