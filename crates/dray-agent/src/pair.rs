//! Pairs of a call and its result that the model never made (quickapps 11.4): information that it did not request.

use std::collections::HashSet;

use dray_types::Sha256Digest;
use serde_json::{Map, Value};

use crate::message::{Content, FunctionCall, Message, Role, ToolCall};

/// A call and its result. The tool need not be among those that are offered.
#[derive(Clone, Debug, PartialEq)]
pub struct CallPair {
    /// Name of the tool.
    pub tool: String,
    /// The arguments of the invented call: an object.
    pub arguments: Value,
    /// The result of the invented call.
    pub content: String,
}

/// The place of a pair in the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairPosition {
    /// Directly after the first user message; at the end if there is none.
    AfterFirstUser,
    /// Directly before the last user message; at the end if there is none.
    BeforeLastUser,
    /// At the end of the conversation.
    End,
}

/// When a pair is inserted although an earlier turn has inserted one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairFrequency {
    /// Not while the conversation has the same pair.
    Once,
    /// In each turn; earlier pairs stay.
    Always,
    /// In each turn; earlier pairs of the same tool are removed.
    Refresh,
}

impl CallPair {
    /// The id of the call: equal pairs have equal ids, so that prompt caches hit. The order of the arguments makes no
    /// difference.
    pub fn id(&self) -> String {
        // JSON objects keep the order of insertion here, which must not affect the id.
        let arguments = sort_members(&self.arguments).to_string();
        format!(
            "s_{}_{}_{}",
            self.tool,
            six_hex_digits(&arguments),
            six_hex_digits(&self.content)
        )
    }

    /// The id in a conversation that may already contain the same pair: later ones end with `_2`, `_3` and so on.
    pub fn id_in(&self, messages: &[Message]) -> String {
        unused_id(self.id(), messages)
    }

    /// The two messages of a pair that occurs once.
    pub fn messages(&self) -> [Message; 2] {
        self.messages_as(self.id())
    }

    /// The two messages under an id.
    pub fn messages_as(&self, id: String) -> [Message; 2] {
        let mut call = Message::new(Role::Assistant, "");
        call.tool_calls = Some(vec![ToolCall {
            id: id.clone(),
            kind: "function".to_owned(),
            function: FunctionCall {
                name: self.tool.clone(),
                // The members are sorted as for the id, so that equal pairs give equal bytes (quickapps 44.4 R16).
                arguments: sort_members(&self.arguments).to_string(),
                rest: Map::new(),
            },
            rest: Map::new(),
        }]);
        let mut result = Message::new(Role::Tool, self.content.clone());
        result.tool_call_id = Some(id);
        [call, result]
    }
}

/// The id, or the first one with a number that no call has.
fn unused_id(id: String, messages: &[Message]) -> String {
    let calls = messages.iter().flat_map(Message::calls);
    let used_ids: HashSet<_> = calls.map(|call| call.id.as_str()).collect();
    if !used_ids.contains(id.as_str()) {
        return id;
    }
    let mut later = (2_u32..).map(|count| format!("{id}_{count}"));
    let unused = later.find(|id| !used_ids.contains(id.as_str()));
    // Only the compiler requires the default: there are more candidates than messages.
    unused.unwrap_or(id)
}

/// Whether an id is of a pair of this tool.
pub fn is_synthetic(id: &str, tool: &str) -> bool {
    let parts = id
        .strip_prefix("s_")
        // The id is compared with the complete name, because names of tools may contain underscores.
        .and_then(|id| id.strip_prefix(tool))
        .and_then(|id| id.strip_prefix('_'));
    let mut parts = parts.into_iter().flat_map(|parts| parts.split('_'));
    let mut is_hex = || parts.next().is_some_and(|part| is_hex(part, 6));
    is_hex()
        && is_hex()
        && parts
            .next()
            .is_none_or(|count| count.parse::<u32>().is_ok())
        && parts.next().is_none()
}

/// Whether an id is of a pair of any tool. The name of a tool may end like an id, so this says less than
/// [`is_synthetic`].
pub fn has_pair_form(id: &str) -> bool {
    let parts = id.strip_prefix("s_").into_iter();
    let last: Vec<_> = parts.flat_map(|id| id.rsplit('_')).take(3).collect();
    match last[..] {
        [content, arguments, _] if is_hex(content, 6) && is_hex(arguments, 6) => true,
        [count, content, arguments] => {
            count.parse::<u32>().is_ok() && is_hex(content, 6) && is_hex(arguments, 6)
        }
        _ => false,
    }
}

/// Whether an id has the older form, which was not derived from the content and does not contain the tool's name.
pub fn is_former(id: &str) -> bool {
    id.strip_prefix("synthetic_")
        .is_some_and(|hex| is_hex(hex, 12))
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Puts a pair into the conversation.
pub fn insert_pair(
    messages: &mut Vec<Message>,
    pair: &CallPair,
    position: PairPosition,
    frequency: PairFrequency,
) {
    // The id is computed only once, because it is a digest of the content.
    let id = pair.id();
    match frequency {
        PairFrequency::Once => {
            let calls = messages.iter().flat_map(Message::calls);
            if calls.into_iter().any(|call| call.id == id) {
                return;
            }
        }
        PairFrequency::Always => {}
        // Both messages are removed: services refuse a result without its call.
        PairFrequency::Refresh => messages.retain(|message| !is_part(message, &pair.tool)),
    }
    let is_user = |message: &Message| message.role == Role::User;
    let index = match position {
        // The first user message is the first in every turn, so the pair keeps its position and prompt caches hit.
        PairPosition::AfterFirstUser => messages.iter().position(is_user).map(|first| first + 1),
        PairPosition::BeforeLastUser => messages.iter().rposition(is_user),
        PairPosition::End => None,
    };
    let index = index.unwrap_or(messages.len());
    let pair = pair.messages_as(unused_id(id, messages));
    messages.splice(index..index, pair);
}

/// The newest result of a tool that was called with these arguments, by the model or in a pair; `None` if that result
/// has no text.
pub fn newest_result<'a>(
    messages: &'a [Message],
    tool: &str,
    arguments: &Value,
) -> Option<&'a str> {
    let is_same = |call: &&ToolCall| {
        let given = serde_json::from_str::<Value>(&call.function.arguments);
        // The arguments are compared as values: models write the same arguments in another order and with other
        // spacing.
        call.function.name == tool && given.is_ok_and(|given| given == *arguments)
    };
    let (index, call) = messages
        .iter()
        .enumerate()
        .rev()
        .find_map(|(index, message)| Some((index, message.calls().iter().rfind(is_same)?)))?;
    let mut after = messages.get(index + 1..)?.iter();
    let result = after.find(|message| {
        message.role == Role::Tool && message.tool_call_id.as_ref() == Some(&call.id)
    });
    match result?.content.as_ref()? {
        Content::Text(text) => Some(text),
        Content::Parts(_) => None,
    }
}

/// Whether a message is half of a pair of this tool.
fn is_part(message: &Message, tool: &str) -> bool {
    match (message.calls(), message.tool_call_id.as_deref()) {
        ([only], _) => is_synthetic(&only.id, tool),
        (_, Some(id)) => message.role == Role::Tool && is_synthetic(id, tool),
        _ => false,
    }
}

fn six_hex_digits(text: &str) -> String {
    Sha256Digest::of(text.as_bytes())
        .to_hex()
        .chars()
        .take(6)
        .collect()
}

/// The value with the members of each object in order of their names.
fn sort_members(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            members
                .into_iter()
                .map(|(name, value)| (name.clone(), sort_members(value)))
                .collect()
        }
        Value::Array(items) => items.iter().map(sort_members).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn pair(content: &str) -> CallPair {
        CallPair {
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

    fn places(position: PairPosition) -> Vec<&'static str> {
        let mut messages = talk();
        insert_pair(&mut messages, &pair("r"), position, PairFrequency::Always);
        messages
            .iter()
            .map(|message| message.role.as_str())
            .collect()
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
    fn r_16_the_same_pair_twice_has_two_ids_that_follow_from_the_conversation() {
        let twice = || {
            let mut messages = talk();
            for _ in 0..3 {
                insert_pair(
                    &mut messages,
                    &pair("r"),
                    PairPosition::End,
                    PairFrequency::Always,
                );
            }
            messages
        };
        let messages = twice();
        let calls = messages.iter().flat_map(Message::calls);
        let ids: Vec<_> = calls.map(|call| call.id.clone()).collect();
        let id = pair("r").id();
        assert_eq!(ids, [id.clone(), format!("{id}_2"), format!("{id}_3")]);
        let answered: Vec<_> = messages
            .iter()
            .filter_map(|message| message.tool_call_id.clone())
            .collect();
        assert_eq!(answered, ids);
        assert!(ids.iter().all(|id| is_synthetic(id, "t")));
        assert_eq!(twice(), messages);
    }

    #[test]
    fn ids_of_pairs_are_distinguished_from_others() {
        for id in [
            "s_t_abcdef",
            "s_t_abcdef_01234",
            "s_t_abcdef_012345_x",
            "s_t_abcdef_012345_2_2",
            "s_t_abcdeg_012345",
        ] {
            assert!(!is_synthetic(id, "t"), "{id}");
            assert!(!has_pair_form(id), "{id}");
        }
        for id in ["s_t_abcdef_012345", "s_my_tool_abcdef_012345_12"] {
            assert!(has_pair_form(id), "{id}");
        }
        assert!(is_former("synthetic_0123456789ab"));
        for id in [
            "synthetic_0123456789a",
            "synthetic_0123456789ax",
            "s_t_abcdef_012345",
            "call_1",
        ] {
            assert!(!is_former(id), "{id}");
        }
    }

    #[test]
    fn a_pair_is_inserted_at_the_given_position() {
        let (s, u, a, t) = ("system", "user", "assistant", "tool");
        assert_eq!(places(PairPosition::AfterFirstUser), [s, u, a, t, a, u]);
        assert_eq!(places(PairPosition::BeforeLastUser), [s, u, a, a, t, u]);
        assert_eq!(places(PairPosition::End), [s, u, a, u, a, t]);
    }

    #[test]
    fn once_always_and_refresh_differ() {
        let count = |frequency, second: &str| {
            let mut messages = talk();
            insert_pair(&mut messages, &pair("r"), PairPosition::End, frequency);
            insert_pair(&mut messages, &pair(second), PairPosition::End, frequency);
            messages.len() - talk().len()
        };
        assert_eq!(count(PairFrequency::Once, "r"), 2);
        assert_eq!(count(PairFrequency::Once, "new"), 4);
        assert_eq!(count(PairFrequency::Always, "r"), 4);
        assert_eq!(count(PairFrequency::Refresh, "new"), 2);
    }

    #[test]
    fn the_newest_result_is_of_the_same_tool_and_arguments() {
        let asked = json!({"a": {"c": 3, "d": 2}, "b": 1});
        let mut messages = talk();
        assert_eq!(newest_result(&messages, "t", &asked), None);
        for content in ["old", "new"] {
            insert_pair(
                &mut messages,
                &pair(content),
                PairPosition::End,
                PairFrequency::Always,
            );
        }
        let other = CallPair {
            arguments: json!({}),
            ..pair("other")
        };
        insert_pair(
            &mut messages,
            &other,
            PairPosition::End,
            PairFrequency::Always,
        );
        assert_eq!(newest_result(&messages, "t", &asked), Some("new"));
        assert_eq!(newest_result(&messages, "t", &json!({})), Some("other"));
        assert_eq!(newest_result(&messages, "u", &asked), None);
        assert_eq!(newest_result(&messages, "t", &json!({"b": 1})), None);
    }

    #[test]
    fn the_newest_result_is_that_of_the_call_even_when_ids_come_again() {
        let mut messages = talk();
        for content in ["first", "second"] {
            messages.extend(pair(content).messages_as("call_0".to_owned()));
        }
        let asked = pair("").arguments;
        assert_eq!(newest_result(&messages, "t", &asked), Some("second"));
        messages.pop();
        assert_eq!(newest_result(&messages, "t", &asked), None);
    }

    #[test]
    fn arguments_that_are_not_json_match_no_call() {
        let mut messages = talk();
        let mut broken = pair("r").messages();
        broken[0].tool_calls.as_mut().unwrap()[0].function.arguments = "{".to_owned();
        messages.extend(broken);
        assert_eq!(newest_result(&messages, "t", &pair("").arguments), None);
    }

    proptest! {
        #[test]
        fn r_16_ids_depend_only_on_the_content_of_the_pair(a in any::<i32>(), b in ".*", content in ".*") {
            let of = |arguments| CallPair { tool: "t".to_owned(), arguments, content: content.clone() };
            let (one, other) = (of(json!({"a": a, "b": b})), of(json!({"b": b, "a": a})));
            prop_assert_eq!(one.messages(), other.messages());
        }
    }
}
