//! The state that an assistant message carries to the next turn in `custom_content.state` (quickapps 11). The service
//! stores no conversations, so all data for later turns has to be in the state.

use serde::Serialize;
use serde_json::Value;

use crate::message::{Message, Role};

mod unpack;

#[cfg(test)]
mod tests;

pub use unpack::{HistoryNotice, UnpackedHistory, unpack_history};

/// Key of the tool rounds of a turn.
pub const HISTORY_KEY: &str = "tool_execution_history";

/// Key of the state that the model's deployment returned.
pub const ORCHESTRATOR_KEY: &str = "orchestrator_state";

/// Key of the Python interpreter's session.
pub const INTERPRETER_KEY: &str = "py_interpreter_state";

/// Key of the mark of an answer whose texts were deleted, in its message and in the record of its paused turn.
pub const TEXTS_DELETED_KEY: &str = "texts_deleted";

/// Placeholder for a deleted text: models require text in each message.
pub const DELETED_TEXT: &str = " ";

/// Members of a message of the model with text beside its content.
pub const TEXT_MEMBERS: [&str; 3] = ["refusal", "reasoning_content", "reasoning"];

/// The older spelling of the Python interpreter's session: the id itself.
const OLD_INTERPRETER: &str = "py_interpreter_session_id";

/// The state of one turn. Written exactly once per answer, as `{}` if it is empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TurnState {
    /// Tool rounds, see [`pack_history`].
    #[serde(
        rename = "tool_execution_history",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub history: Vec<Value>,
    /// State that the model's deployment returned.
    #[serde(rename = "orchestrator_state", skip_serializing_if = "Option::is_none")]
    pub orchestrator: Option<Value>,
    /// The Python interpreter's session.
    #[serde(
        rename = "py_interpreter_state",
        skip_serializing_if = "Option::is_none"
    )]
    pub interpreter: Option<InterpreterState>,
}

/// State of the Python interpreter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InterpreterState {
    /// Id of the open session.
    pub session_id: String,
}

/// The tool rounds of the turn that ends with `messages`: all after the last user message that is a tool message, or
/// an assistant message with calls. The final answer is not among them.
///
/// Fields that are `null` are left out, except inside `state`, which other services own. A round without a result for
/// every call is left out completely, because models would refuse every later request of the conversation.
pub fn pack_history(messages: &[Message]) -> Vec<Value> {
    let turn = messages_of_turn(messages);
    let mut packed = Vec::new();
    let mut is_complete = true;
    for (index, message) in turn.iter().enumerate() {
        if !message.calls().is_empty() {
            is_complete = is_answered(message, turn.get(index + 1..).unwrap_or_default());
        } else if message.role != Role::Tool {
            continue;
        }
        // Results of an omitted round are omitted, too.
        if is_complete {
            packed.extend(serde_json::to_value(message).ok().map(without_nulls));
        }
    }
    packed
}

/// The messages after the last one of the user: those that the turn has added.
pub fn messages_of_turn(messages: &[Message]) -> &[Message] {
    let start = messages
        .iter()
        // Pairs before the last user message are inserted again in each turn, so they are not stored (quickapps 11.2).
        .rposition(|message| message.role == Role::User)
        .map_or(0, |last| last + 1);
    messages.get(start..).unwrap_or_default()
}

/// Whether the tool messages directly after a round contain a result for each of its calls.
fn is_answered(round: &Message, after: &[Message]) -> bool {
    let results = after
        .iter()
        // Only results directly after the round count: models would not accept a later one as a result of it.
        .take_while(|message| message.role == Role::Tool);
    let answered: Vec<_> = results
        .filter_map(|result| result.tool_call_id.as_deref())
        .collect();
    round
        .calls()
        .iter()
        .all(|call| answered.contains(&call.id.as_str()))
}

/// Removes what the model said between its calls of tools from a state. Calls, results and the rest of the state stay.
pub fn remove_texts(state: &mut Value) {
    let rounds = state.get_mut(HISTORY_KEY).and_then(Value::as_array_mut);
    for round in rounds.into_iter().flatten() {
        if round.get("role").is_some_and(|role| role == "assistant") {
            remove_text(round);
            if let Some(custom) = round
                .get_mut("custom_content")
                .and_then(Value::as_object_mut)
            {
                custom.shift_remove("attachments");
            }
        }
    }
}

/// Removes the text of one message of the model.
pub fn remove_text(message: &mut Value) {
    if let Some(members) = message.as_object_mut() {
        members.insert("content".to_owned(), DELETED_TEXT.into());
        for name in TEXT_MEMBERS {
            members.shift_remove(name);
        }
    }
}

/// The value without object members that are `null`; values under `state` are not changed.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(members) => Value::Object(
            members
                .into_iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| {
                    // `state` belongs to tools and deployments, for which `null` may have a meaning.
                    let value = if key == "state" {
                        value
                    } else {
                        without_nulls(value)
                    };
                    (key, value)
                })
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

/// The Python interpreter's session of the newest assistant message that has one, in either spelling.
pub fn interpreter_session(messages: &[Message]) -> Option<&str> {
    messages
        .iter()
        .rev()
        .filter(|message| message.role == Role::Assistant)
        .find_map(|message| {
            let state = message.custom_content.as_ref()?.state.as_ref()?;
            let newer = state
                .get(INTERPRETER_KEY)
                .and_then(|inner| inner.get("session_id"));
            newer.or_else(|| state.get(OLD_INTERPRETER))?.as_str()
        })
}
