//! Pairs of a call and its result that the model never made (quickapps 11.4): how it is told what it did not ask for.

use dray_types::Sha256Digest;
use serde_json::{Map, Value};

use crate::message::{FunctionCall, Message, Role, ToolCall};

/// A call and its result. The tool need not be among those that are offered.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// Name of the tool.
    pub tool: String,
    /// What it seems to have been called with: an object.
    pub arguments: Value,
    /// What it seems to have answered.
    pub content: String,
}

/// Where a pair stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Directly after the first user message; at the end if there is none.
    AfterFirstUser,
    /// Directly before the last user message; at the end if there is none.
    BeforeLastUser,
    /// After all else.
    End,
}

/// What becomes of a pair that an earlier turn left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frequency {
    /// The same pair is not put in again.
    Once,
    /// It is put in each time.
    Always,
    /// Earlier pairs of the same tool go.
    Refresh,
}

impl Pair {
    /// The id of the call: the same for the same pair, so that prompt caches stay warm. The order of the arguments
    /// makes no difference.
    pub fn id(&self) -> String {
        let arguments = sorted(&self.arguments).to_string();
        format!("s_{}_{}_{}", self.tool, six(&arguments), six(&self.content))
    }

    /// The two messages.
    pub fn messages(&self) -> [Message; 2] {
        let id = self.id();
        let mut call = Message::new(Role::Assistant, "");
        call.tool_calls = Some(vec![ToolCall {
            id: id.clone(),
            kind: "function".to_owned(),
            function: FunctionCall {
                name: self.tool.clone(),
                arguments: sorted(&self.arguments).to_string(),
                rest: Map::new(),
            },
            rest: Map::new(),
        }]);
        let mut result = Message::new(Role::Tool, self.content.clone());
        result.tool_call_id = Some(id);
        [call, result]
    }
}

/// Whether an id is of a pair of this tool.
pub fn is_synthetic(id: &str, tool: &str) -> bool {
    let hex = |part: &str| part.len() == 6 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    id.strip_prefix("s_")
        .and_then(|id| id.strip_prefix(tool))
        .and_then(|id| id.strip_prefix('_'))
        .and_then(|id| id.split_once('_'))
        .is_some_and(|(arguments, content)| hex(arguments) && hex(content))
}

/// Puts a pair into the conversation.
pub fn insert(messages: &mut Vec<Message>, pair: &Pair, place: Place, frequency: Frequency) {
    match frequency {
        Frequency::Once => {
            let id = pair.id();
            let calls = messages.iter().flat_map(Message::calls);
            if calls.into_iter().any(|call| call.id == id) {
                return;
            }
        }
        Frequency::Always => {}
        Frequency::Refresh => messages.retain(|message| !is_part(message, &pair.tool)),
    }
    let user = |message: &Message| message.role == Role::User;
    let at = match place {
        Place::AfterFirstUser => messages.iter().position(user).map(|first| first + 1),
        Place::BeforeLastUser => messages.iter().rposition(user),
        Place::End => None,
    };
    let at = at.unwrap_or(messages.len());
    messages.splice(at..at, pair.messages());
}

/// Whether a message is half of a pair of this tool.
fn is_part(message: &Message, tool: &str) -> bool {
    match (message.calls(), message.tool_call_id.as_deref()) {
        ([only], _) => is_synthetic(&only.id, tool),
        (_, Some(id)) => message.role == Role::Tool && is_synthetic(id, tool),
        _ => false,
    }
}

fn six(text: &str) -> String {
    Sha256Digest::of(text.as_bytes())
        .to_hex()
        .chars()
        .take(6)
        .collect()
}

/// The value with the members of each object in order of their names.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            members
                .into_iter()
                .map(|(name, value)| (name.clone(), sorted(value)))
                .collect()
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn pair(content: &str) -> Pair {
        Pair {
            tool: "t".to_owned(),
            arguments: json!({"b": 1, "a": {"d": 2, "c": 3}}),
            content: content.to_owned(),
        }
    }

    fn talk() -> Vec<Message> {
        [Role::System, Role::User, Role::Assistant, Role::User]
            .map(|role| Message::new(role, "x"))
            .to_vec()
    }

    fn places(place: Place) -> Vec<&'static str> {
        let mut messages = talk();
        insert(&mut messages, &pair("r"), place, Frequency::Always);
        messages.iter().map(|one| one.role.as_str()).collect()
    }

    #[test]
    fn a_pair_is_a_call_and_its_result() {
        let [call, result] = pair("r").messages();
        let id = pair("r").id();
        assert_eq!(
            serde_json::to_value(&call).unwrap(),
            json!({"role": "assistant", "content": "", "tool_calls": [{
                "id": id, "type": "function",
                "function": {"name": "t", "arguments": r#"{"a":{"c":3,"d":2},"b":1}"#},
            }]})
        );
        assert_eq!(
            serde_json::to_value(&result).unwrap(),
            json!({"role": "tool", "content": "r", "tool_call_id": id})
        );
        assert!(is_synthetic(&id, "t") && !is_synthetic(&id, "other"));
        assert!(!is_synthetic("call_1", "t"));
    }

    #[test]
    fn a_pair_goes_where_it_is_told() {
        let (s, u, a, t) = ("system", "user", "assistant", "tool");
        assert_eq!(places(Place::AfterFirstUser), [s, u, a, t, a, u]);
        assert_eq!(places(Place::BeforeLastUser), [s, u, a, a, t, u]);
        assert_eq!(places(Place::End), [s, u, a, u, a, t]);
    }

    #[test]
    fn once_always_and_refresh_differ() {
        let count = |frequency, second: &str| {
            let mut messages = talk();
            insert(&mut messages, &pair("r"), Place::End, frequency);
            insert(&mut messages, &pair(second), Place::End, frequency);
            messages.len() - talk().len()
        };
        assert_eq!(count(Frequency::Once, "r"), 2);
        assert_eq!(count(Frequency::Once, "new"), 4);
        assert_eq!(count(Frequency::Always, "r"), 4);
        assert_eq!(count(Frequency::Refresh, "new"), 2);
    }

    proptest! {
        #[test]
        fn r_16_ids_follow_from_what_is_in_the_pair(a in any::<i32>(), b in ".*", content in ".*") {
            let of = |arguments| Pair { tool: "t".to_owned(), arguments, content: content.clone() };
            let (one, other) = (of(json!({"a": a, "b": b})), of(json!({"b": b, "a": a})));
            prop_assert_eq!(one.messages(), other.messages());
        }
    }
}
