//! Calls of earlier rounds in a request to the model. A model may write anything as a call, and endpoints refuse a
//! request whose history has a call that they cannot read: the conversation could not continue.
//!
//! `OpenAI` refuses empty names, and names with other characters than `[a-zA-Z0-9_-]`. `vLLM`, `SGLang` and `llama.cpp`
//! refuse arguments that are not a JSON object, because chat templates read them.

use std::fmt;

use dray_agent::message::{FunctionCall, Message};
use dray_agent::pair::has_pair_form;
use dray_tool::naming::sanitise_name;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::json;

use crate::records::digest_prefix;

/// Most bytes of an id of a call that every endpoint accepts: some refuse more than 40, and `OpenAI` more than 64.
const MAX_ID_BYTES: usize = 40;
/// Name of a call without one.
const NAMELESS_CALL: &str = "unnamed";
/// Member that holds arguments that are not an object.
const INVALID_ARGUMENTS: &str = "invalid_arguments";

/// Makes the calls of the messages readable for every endpoint. Calls that are readable keep their bytes, and the same
/// call always becomes the same, so that the prompt stays cacheable.
pub(super) fn repair_calls(messages: &mut [Message]) {
    for message in messages {
        for call in message.tool_calls.iter_mut().flatten() {
            repair(&mut call.function);
        }
    }
}

/// Shortens the ids of calls that this service added to the conversation, which contain the names of their tools. Ids of
/// models stay as they are: some of them contain what their services need again.
pub(super) fn shorten_pair_ids(messages: &mut [Message]) {
    for message in messages {
        let calls = message.tool_calls.iter_mut().flatten();
        let ids = calls.map(|call| &mut call.id);
        for id in ids.chain(message.tool_call_id.as_mut()) {
            if id.len() > MAX_ID_BYTES && has_pair_form(id) {
                *id = format!("s_{}", digest_prefix(id, 24));
            }
        }
    }
}

fn repair(function: &mut FunctionCall) {
    // All declared names have this form, so only a name without a tool is changed.
    let name = sanitise_name(&function.name);
    if name.is_empty() {
        NAMELESS_CALL.clone_into(&mut function.name);
    } else if name != function.name {
        function.name = name;
    }
    if function.arguments.trim().is_empty() {
        "{}".clone_into(&mut function.arguments);
    } else if serde_json::from_str::<AnyObject>(&function.arguments).is_err() {
        function.arguments = json!({ INVALID_ARGUMENTS: function.arguments }).to_string();
    }
}

/// A JSON object, whose members are not kept.
struct AnyObject;

impl<'de> Deserialize<'de> for AnyObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor)
    }
}

struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = AnyObject;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<AnyObject, A::Error> {
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(AnyObject)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn repaired(name: &str, arguments: &str) -> (String, String) {
        let call = json!({"id": "1", "function": {"name": name, "arguments": arguments}});
        let message = json!({"role": "assistant", "content": null, "tool_calls": [call]});
        let mut messages: Vec<Message> = serde_json::from_value(json!([message])).unwrap();
        repair_calls(&mut messages);
        let call = &messages[0].calls()[0].function;
        (call.name.clone(), call.arguments.clone())
    }

    #[test]
    fn calls_that_every_endpoint_reads_keep_their_bytes() {
        for arguments in [
            "{}",
            " { \"a\" : [1, {\"b\": null}] }\n",
            r#"{"a":"\u00e9"}"#,
        ] {
            let call = ("search_web-2".to_owned(), arguments.to_owned());
            assert_eq!(repaired("search_web-2", arguments), call);
        }
    }

    #[test]
    fn arguments_that_are_not_an_object_become_one_with_their_text() {
        for arguments in [
            "{\"a\": ",
            "{\"a\": 1} {\"a\": 2}",
            "[1]",
            "\"Berlin\"",
            "null",
            "5",
            "Berlin",
        ] {
            let (_, repaired) = repaired("search", arguments);
            let read: Value = serde_json::from_str(&repaired).unwrap();
            assert_eq!(read, json!({"invalid_arguments": arguments}));
        }
        for arguments in ["", " \n"] {
            assert_eq!(repaired("search", arguments).1, "{}");
        }
    }

    #[test]
    fn names_that_no_tool_can_have_become_names() {
        for (name, expected) in [
            ("", "unnamed"),
            ("functions.search", "functions_search"),
            ("suche öffnen", "suche_ffnen"),
        ] {
            assert_eq!(repaired(name, "{}").0, expected, "{name}");
        }
        assert_eq!(repaired(&"x".repeat(300), "{}").0.len(), 64);
    }
}
