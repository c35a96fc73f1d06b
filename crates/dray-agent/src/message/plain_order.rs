//! The order of messages in a request of `OpenAI`'s API: any order is valid if the results of tool calls follow
//! directly after the message with the calls, and no result is without its call.

use std::collections::HashSet;

use super::{Message, Role};
use crate::failure::RequestFailure;

/// Error code of a conversation that no model accepts.
pub const ORDER_CODE: &str = "invalid_messages";

/// Checks the messages of a request.
///
/// # Errors
///
/// 400 with the path of the invalid field, for: no message, a message of the role `function`, a result without its
/// call, a call without its result, two calls with one id.
///
/// ```
/// use dray_agent::message::{Message, Role, plain_order};
///
/// let user = Message::new(Role::User, "hi");
/// assert!(plain_order::check_conversation(&[user.clone(), user]).is_ok());
/// assert!(plain_order::check_conversation(&[Message::new(Role::Tool, "42")]).is_err());
/// ```
pub fn check_conversation(messages: &[Message]) -> Result<(), Box<RequestFailure>> {
    if messages.is_empty() {
        return refuse_order("messages", "Invalid messages array: it must not be empty.");
    }
    let mut open_calls: HashSet<&str> = HashSet::new();
    let mut call_index = 0;
    for (index, message) in messages.iter().enumerate() {
        if message.role == Role::Tool {
            let id = message.tool_call_id.as_deref().unwrap_or_default();
            if !open_calls.remove(id) {
                return refuse_order(
                    format!("messages.{index}.tool_call_id"),
                    "Messages with role 'tool' must answer a call in 'tool_calls' of the assistant message before them.",
                );
            }
            continue;
        }
        check_answered(&open_calls, call_index)?;
        if message.role == Role::Function {
            return refuse_order(
                format!("messages.{index}.role"),
                "Messages with role 'function' are not supported. Use the role 'tool'.",
            );
        }
        call_index = index;
        for call in message.calls() {
            if !open_calls.insert(&call.id) {
                return refuse_order(
                    format!("messages.{index}.tool_calls"),
                    format!("Two calls have the id '{}'.", call.id),
                );
            }
        }
    }
    check_answered(&open_calls, call_index)
}

fn check_answered(
    open_calls: &HashSet<&str>,
    call_index: usize,
) -> Result<(), Box<RequestFailure>> {
    if open_calls.is_empty() {
        return Ok(());
    }
    let mut missing: Vec<_> = open_calls.iter().copied().collect();
    missing.sort_unstable();
    refuse_order(
        format!("messages.{call_index}.tool_calls"),
        format!(
            "An assistant message with 'tool_calls' must be followed by messages with role 'tool' that answer each \
             'tool_call_id'. These have no answer: {}.",
            missing.join(", ")
        ),
    )
}

fn refuse_order(
    param: impl Into<Box<str>>,
    message: impl Into<String>,
) -> Result<(), Box<RequestFailure>> {
    Err(Box::new(RequestFailure::of_parameter(
        param, ORDER_CODE, message,
    )))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(messages: Value) -> Result<(), (String, String)> {
        let messages: Vec<Message> = serde_json::from_value(messages).unwrap();
        check_conversation(&messages).map_err(|failure| {
            assert_eq!(
                (failure.status, failure.code.as_deref()),
                (400, Some(ORDER_CODE))
            );
            (failure.param.unwrap().into(), failure.message)
        })
    }

    fn message_with_calls(ids: &[&str]) -> Value {
        let calls: Vec<_> = ids
            .iter()
            .map(|id| json!({"id": id, "type": "function", "function": {"name": "t", "arguments": "{}"}}))
            .collect();
        json!({"role": "assistant", "tool_calls": calls})
    }

    fn result(id: &str) -> Value {
        json!({"role": "tool", "tool_call_id": id, "content": "r"})
    }

    #[test]
    fn messages_of_user_system_and_assistant_may_have_any_order() {
        let user = json!({"role": "user", "content": "u"});
        let system = json!({"role": "system", "content": "s"});
        let assistant = json!({"role": "assistant", "content": "a"});
        for messages in [
            json!([user, user]),
            json!([system]),
            json!([assistant, user, system, system, user]),
            json!([user, assistant]),
            json!([
                user,
                message_with_calls(&["a", "b"]),
                result("b"),
                result("a")
            ]),
            json!([
                user,
                message_with_calls(&["a"]),
                result("a"),
                message_with_calls(&["a"]),
                result("a"),
                user
            ]),
        ] {
            assert_eq!(check(messages.clone()), Ok(()), "{messages}");
        }
    }

    #[test]
    fn calls_and_results_that_do_not_match_are_refused_with_the_path_of_their_field() {
        let user = json!({"role": "user", "content": "u"});
        for (messages, param, part) in [
            (json!([]), "messages", "must not be empty"),
            (
                json!([user, result("a")]),
                "messages.1.tool_call_id",
                "must answer a call",
            ),
            (
                json!([user, message_with_calls(&["a"]), result("b")]),
                "messages.2.tool_call_id",
                "must answer a call",
            ),
            (
                json!([user, message_with_calls(&["a"]), result("a"), result("a")]),
                "messages.3.tool_call_id",
                "must answer a call",
            ),
            (
                json!([
                    user,
                    message_with_calls(&["b", "a", "c"]),
                    result("c"),
                    user
                ]),
                "messages.1.tool_calls",
                "no answer: a, b.",
            ),
            (
                json!([message_with_calls(&["x"])]),
                "messages.0.tool_calls",
                "no answer: x.",
            ),
            (
                json!([message_with_calls(&["x", "x"])]),
                "messages.0.tool_calls",
                "the id 'x'",
            ),
            (
                json!([user, {"role": "function", "name": "f", "content": "1"}]),
                "messages.1.role",
                "Use the role 'tool'",
            ),
        ] {
            let (named, message) = check(messages).unwrap_err();
            assert_eq!(named, param);
            assert!(message.contains(part), "{message}");
        }
    }
}
