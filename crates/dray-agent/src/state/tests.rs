//! Tests packing and unpacking, and that unpacking reverses packing.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn messages(wire: Value) -> Vec<Message> {
    serde_json::from_value(wire).unwrap()
}

fn unpacks(wire: Value, expected: &Value, notices: &[&str]) {
    let unpacked = unpack_history(messages(wire));
    assert_eq!(&serde_json::to_value(&unpacked.messages).unwrap(), expected);
    let notice_texts: Vec<_> = unpacked.notices.iter().map(ToString::to_string).collect();
    assert_eq!(notice_texts, notices);
}

/// An assistant message that makes calls.
fn round(ids: &[&str]) -> Value {
    let calls: Vec<_> = ids
        .iter()
        .map(|id| json!({"id": id, "type": "function", "function": {"name": "t", "arguments": "{}"}}))
        .collect();
    json!({"role": "assistant", "content": " ", "tool_calls": calls})
}

fn result(id: &str) -> Value {
    json!({"role": "tool", "content": id, "tool_call_id": id})
}

#[test]
fn parallel_calls_are_one_round_on_the_wire() {
    let rich = json!({"role": "tool", "content": "…", "tool_call_id": "call_1",
        "custom_content": {"attachments": [{"type": "text/plain", "url": "files/b/a"}], "state": {"k": null}}});
    let turn = json!([
        {"role": "user", "content": "do"},
        round(&["call_1", "call_2"]),
        rich,
        result("call_2"),
        {"role": "assistant", "content": "done"},
    ]);
    let state = TurnState {
        history: pack_history(&messages(turn)),
        ..TurnState::default()
    };
    assert_eq!(
        serde_json::to_value(state).unwrap(),
        json!({"tool_execution_history": [round(&["call_1", "call_2"]), rich, result("call_2")]})
    );
}

#[test]
fn only_what_follows_the_last_user_message_is_packed() {
    let packed = pack_history(&messages(json!([
        {"role": "user", "content": "first"}, round(&["a"]), result("a"), {"role": "assistant", "content": "x"},
        {"role": "user", "content": "second"}, round(&["b"]), result("b"),
    ])));
    assert_eq!(packed, [round(&["b"]), result("b")]);
}

#[test]
fn nulls_are_not_packed_except_in_states() {
    let packed = pack_history(&messages(json!([
        {"role": "assistant", "content": null, "refusal": null, "audio": [{"id": null}],
         "tool_calls": [{"id": "a", "type": "function", "index": null, "function": {"name": "t", "arguments": "{}"}}]},
        {"role": "tool", "content": "r", "tool_call_id": "a", "custom_content": {"state": {"a": null}, "form": null}},
    ])));
    assert_eq!(
        packed,
        [
            json!({"role": "assistant", "audio": [{}],
                "tool_calls": [{"id": "a", "type": "function", "function": {"name": "t", "arguments": "{}"}}]}),
            json!({"role": "tool", "content": "r", "tool_call_id": "a", "custom_content": {"state": {"a": null}}}),
        ]
    );
}

#[test]
fn a_round_cut_short_is_not_packed() {
    let packed = pack_history(&messages(json!([
        {"role": "user", "content": "do"},
        round(&["a"]), result("a"),
        round(&["b", "c"]), result("b"),
        round(&["d"]),
    ])));
    assert_eq!(packed, [round(&["a"]), result("a")]);
}

#[test]
fn a_turn_without_anything_is_an_empty_object() {
    assert_eq!(
        serde_json::to_value(TurnState::default()).unwrap(),
        json!({})
    );
}

#[test]
fn the_state_names_its_keys_as_clients_know_them() {
    let state = TurnState {
        history: vec![result("a")],
        orchestrator: Some(json!({"x": 1})),
        interpreter: Some(InterpreterState {
            session_id: "s".to_owned(),
        }),
    };
    let expected = json!({HISTORY_KEY: [result("a")], ORCHESTRATOR_KEY: {"x": 1}, INTERPRETER_KEY: {"session_id": "s"}});
    assert_eq!(serde_json::to_value(state).unwrap(), expected);
}

#[test]
fn rounds_go_directly_before_their_message_and_leave_its_state() {
    unpacks(
        json!([
            {"role": "user", "content": "do"},
            {"role": "assistant", "content": "done", "custom_content": {"state": {
                "a": 1, "tool_execution_history": [round(&["1", "2"]), result("1"), result("2")], "b": 2}}},
            {"role": "user", "content": "more"},
        ]),
        &json!([
            {"role": "user", "content": "do"},
            round(&["1", "2"]), result("1"), result("2"),
            {"role": "assistant", "content": "done", "custom_content": {"state": {"a": 1, "b": 2}}},
            {"role": "user", "content": "more"},
        ]),
        &[],
    );
}

#[test]
fn the_legacy_form_becomes_a_pair_for_each_call() {
    let call =
        |id| json!({"id": id, "type": "function", "function": {"name": "t", "arguments": "{}"}});
    let custom_content = json!({"state": {"k": 1}});
    unpacks(
        json!([{"role": "assistant", "content": "done", "custom_content": {"state": {"k": 1,
        "tool_execution_history": [
            {"tool_call": call("1"), "tool_execution_result": {"content": "one", "content_type": "text/plain"}},
            {"tool_call": call("2"), "tool_execution_result": {"tool_call_id": "2", "content": null,
                "attachments": [{"url": "files/b/a"}], "state": {"s": 1}}},
        ]}}}]),
        &json!([
            {"role": "assistant", "content": "", "tool_calls": [call("1")], "custom_content": custom_content},
            {"role": "tool", "content": "one", "tool_call_id": "1"},
            {"role": "assistant", "content": "", "tool_calls": [call("2")], "custom_content": custom_content},
            {"role": "tool", "content": "", "tool_call_id": "2",
             "custom_content": {"attachments": [{"url": "files/b/a"}], "state": {"s": 1}}},
            {"role": "assistant", "content": "done", "custom_content": custom_content},
        ]),
        &["message 0: tool history of the deprecated form"],
    );
}

#[test]
fn an_empty_or_null_history_only_loses_its_key() {
    for history in [json!([]), Value::Null] {
        unpacks(
            json!([{"role": "assistant", "custom_content": {"state": {HISTORY_KEY: history}}}]),
            &json!([{"role": "assistant", "custom_content": {"state": {}}}]),
            &[],
        );
    }
}

#[test]
fn other_messages_stay_untouched() {
    let untouched = json!([
        {"role": "user", "content": "u", "custom_content": {"state": {HISTORY_KEY: [result("1")]}}},
        {"role": "assistant", "content": "a", "custom_content": {"state": {"k": 1}}},
        {"role": "assistant", "content": "a", "custom_content": {"state": "opaque"}},
        {"role": "assistant", "content": "a"},
    ]);
    unpacks(untouched.clone(), &untouched, &[]);
}

#[test]
fn a_history_that_cannot_be_read_is_left_out_whole() {
    let with = |history: Value| json!([{"role": "assistant", "content": "a", "custom_content": {"state": {HISTORY_KEY: history}}}]);
    let without = json!([{"role": "assistant", "content": "a", "custom_content": {"state": {}}}]);
    let neither = "item 0: neither a message nor a call with its result";
    for (history, reason) in [
        (json!("x"), "not a list"),
        (
            json!([round(&["1"]), {"role": "system", "content": "obey"}]),
            "item 1: only assistant and tool messages have a place in it",
        ),
        (
            json!([round(&["1"]), {"role": "tool", "content": 7}]),
            "item 1: not a message",
        ),
        (
            json!([{"tool_call": {}, "tool_execution_result": {}}]),
            neither,
        ),
        (json!([7]), neither),
    ] {
        unpacks(
            with(history),
            &without,
            &[&format!("message 0: tool history left out: {reason}")],
        );
    }
}

#[test]
fn the_interpreters_session_is_the_newest_in_either_spelling() {
    let session = |states: &[Value]| {
        let wire = states
            .iter()
            .map(|state| json!({"role": "assistant", "custom_content": {"state": state}}))
            .collect();
        interpreter_session(&messages(Value::Array(wire))).map(str::to_owned)
    };
    let (old, new) = (
        json!({OLD_INTERPRETER: "old"}),
        json!({INTERPRETER_KEY: {"session_id": "new"}}),
    );
    assert_eq!(
        session(&[old.clone(), new.clone(), json!({})]).as_deref(),
        Some("new")
    );
    assert_eq!(session(&[new, old]).as_deref(), Some("old"));
    assert_eq!(
        session(&[json!({INTERPRETER_KEY: {"session_id": 7}})]),
        None
    );
}

/// JSON without floating point.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,4}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// A whole round: one to three calls and a result for each.
fn any_round() -> impl Strategy<Value = Vec<Value>> {
    let result = (".{0,9}", prop::option::of(any_json()));
    prop::collection::vec(result, 1..4).prop_map(|results| {
        let calls: Vec<_> = (0..results.len())
            .map(|at| {
                json!({"id": format!("call_{at}"), "type": "function",
                "function": {"name": "t", "arguments": "{\"a\":null}"}})
            })
            .collect();
        let mut round = vec![json!({"role": "assistant", "content": " ", "tool_calls": calls})];
        for (at, (text, state)) in results.into_iter().enumerate() {
            let mut message =
                json!({"role": "tool", "content": text, "tool_call_id": format!("call_{at}")});
            if let Some(state) = state.filter(|state| !state.is_null()) {
                message["custom_content"] = json!({"state": state});
            }
            round.push(message);
        }
        round
    })
}

proptest! {
    #[test]
    fn unpacking_returns_what_was_packed(rounds in prop::collection::vec(any_round(), 0..4), other in any_json()) {
        let rounds = rounds.concat();
        let mut turn = vec![json!({"role": "user", "content": "do"})];
        turn.extend(rounds.clone());
        let packed = pack_history(&messages(Value::Array(turn.clone())));
        prop_assert_eq!(&packed, &rounds);

        let answer = |state| json!({"role": "assistant", "content": "done", "custom_content": {"state": state}});
        let sent = json!([turn[0], answer(json!({HISTORY_KEY: packed, "other": other}))]);
        let unpacked = unpack_history(messages(sent));
        turn.push(answer(json!({"other": other})));
        prop_assert_eq!(serde_json::to_value(&unpacked.messages).unwrap(), Value::Array(turn));
        prop_assert_eq!(unpacked.notices, []);
    }

    #[test]
    fn a_history_with_any_content_is_removed_from_the_state(history in any_json()) {
        let sent = json!([{"role": "assistant", "content": "a", "custom_content": {"state": {HISTORY_KEY: history}}}]);
        let unpacked = unpack_history(messages(sent));
        let last = unpacked.messages.last().and_then(|message| message.custom_content.clone());
        prop_assert_eq!(last.and_then(|custom| custom.state), Some(json!({})));
    }
}
