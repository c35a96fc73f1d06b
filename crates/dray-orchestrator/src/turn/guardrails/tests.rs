//! Tests of verdicts, and of the facts that guardrails get.

use dray_agent::event::Event;
use dray_agent::message::{Content, Message, Role};
use serde_json::json;

use super::facts::turn_start;
use super::*;
use crate::turn::relay::ModelAnswer;

fn completed_call(text: &str, failed: bool) -> CompletedCall {
    CompletedCall {
        message: Message::new(Role::Tool, text),
        propagate: Vec::new(),
        usage: Vec::new(),
        content_type: "application/json".to_owned(),
        failed,
        failure: None,
        milliseconds: 0,
        question: None,
    }
}

fn verdict(result: &Value, replaces: ReplaceTarget) -> Result<GuardrailVerdict, &'static str> {
    read_verdict(&completed_call(&result.to_string(), false), replaces)
}

#[test]
fn complete_verdicts_are_read() {
    let text = ReplaceTarget::Text("text");
    assert_eq!(
        verdict(&json!({"verdict": "allow", "score": 1}), text),
        Ok(GuardrailVerdict::Allow)
    );
    let blocked = |reason: &str| Ok(GuardrailVerdict::Block(reason.to_owned()));
    assert_eq!(
        verdict(&json!({"verdict": "block", "reason": "r"}), text),
        blocked("r")
    );
    for without in [
        json!({"verdict": "block"}),
        json!({"verdict": "block", "reason": " "}),
    ] {
        assert_eq!(verdict(&without, text), blocked(NO_REASON));
    }
    let long = json!({"verdict": "block", "reason": "ä".repeat(MAX_REASON_BYTES)});
    let Ok(GuardrailVerdict::Block(reason)) = verdict(&long, text) else {
        panic!("the verdict must block");
    };
    assert_eq!(reason.len(), MAX_REASON_BYTES);
    let replaced = verdict(&json!({"verdict": "replace", "text": "t"}), text);
    assert_eq!(replaced, Ok(GuardrailVerdict::Replace(json!("t"))));
    let replaced = verdict(
        &json!({"verdict": "replace", "arguments": {"q": 1}}),
        ReplaceTarget::Arguments,
    );
    assert_eq!(replaced, Ok(GuardrailVerdict::Replace(json!({"q": 1}))));
}

#[test]
fn a_result_that_is_not_a_verdict_is_a_failure() {
    for (result, replaces) in [
        (json!("allow"), ReplaceTarget::Nothing),
        (json!({}), ReplaceTarget::Nothing),
        (json!({"verdict": "maybe"}), ReplaceTarget::Nothing),
        (json!({"verdict": "Allow"}), ReplaceTarget::Nothing),
        (
            json!({"verdict": "allow", "reason": 7}),
            ReplaceTarget::Nothing,
        ),
        (json!([{"verdict": "allow"}]), ReplaceTarget::Nothing),
        (json!(["allow", null, null, null]), ReplaceTarget::Nothing),
        (
            json!({"verdict": "replace", "text": "t"}),
            ReplaceTarget::Nothing,
        ),
        (json!({"verdict": "replace"}), ReplaceTarget::Text("text")),
        (
            json!({"verdict": "replace", "text": "t"}),
            ReplaceTarget::Arguments,
        ),
        (
            json!({"verdict": "replace", "arguments": "{}"}),
            ReplaceTarget::Arguments,
        ),
    ] {
        assert!(verdict(&result, replaces).is_err(), "{result} {replaces:?}");
    }
    let failed = completed_call(r#"{"verdict": "allow"}"#, true);
    assert!(read_verdict(&failed, ReplaceTarget::Nothing).is_err());
}

fn conversation() -> Vec<Message> {
    serde_json::from_value(json!([
        {"role": "system", "content": "s"},
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": " ", "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "t", "arguments": "{\"q\":1}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "r"},
        {"role": "assistant", "content": "answer"},
        {"role": "user", "content": "second"},
        {"role": "user", "content": [{"type": "text", "text": "third"}, {"type": "image_url", "image_url": {}}]},
    ]))
    .unwrap()
}

#[test]
fn a_prompt_has_roles_texts_and_calls_and_says_what_is_new() {
    let messages = conversation();
    assert_eq!(turn_start(&messages), 5);
    assert_eq!(turn_start(&messages[..4]), 0);
    let facts = Subject::prompt(&messages, 5).facts;
    assert_eq!(facts["new_from"], 5);
    let shown = facts["messages"].as_array().unwrap();
    assert_eq!(shown.len(), messages.len());
    assert_eq!(shown[1], json!({"role": "user", "text": "first"}));
    assert_eq!(
        shown[2]["tool_calls"],
        json!([{"name": "t", "arguments": {"q": 1}}])
    );
    assert_eq!(shown[6], json!({"role": "user", "text": "third"}));
}

#[test]
fn the_oldest_of_a_long_prompt_is_cut_with_a_remark() {
    let mut messages = conversation();
    messages[1].content = Some(Content::Text("x".repeat(100)));
    messages[5].content = Some(Content::Text("ä".repeat(600 << 10)));
    let facts = Subject::prompt(&messages, 5).facts;
    let text = |index: usize| facts["messages"][index]["text"].as_str().unwrap();
    assert_eq!(text(6), "third");
    let long = text(5);
    assert!(long.starts_with("ää") && long.ends_with(" bytes left out]"));
    assert!(long.len() < (1 << 20) + 100);
    assert_eq!(text(1), "\n[100 bytes left out]");
    let result = Subject::result("t", "{}", "y".repeat((1 << 20) + 7)).facts;
    assert!(
        result["result"]
            .as_str()
            .unwrap()
            .ends_with("\n[7 bytes left out]")
    );
}

#[test]
fn an_answer_has_what_the_client_would_see_and_is_replaced_only_without_calls() {
    let mut answer = ModelAnswer {
        content: "Hi".to_owned(),
        held: vec![
            Event::Reasoning("Let me ".to_owned()),
            Event::Reasoning("think".to_owned()),
            Event::Content("Hi".to_owned()),
        ],
        ..ModelAnswer::default()
    };
    let subject = Subject::answer(&answer);
    assert_eq!(
        Value::Object(subject.facts),
        json!({"event": "after_model", "text": "Hi", "tool_calls": [], "reasoning": "Let me think"})
    );
    assert_eq!(subject.replaces, ReplaceTarget::Text("text"));
    answer.calls = conversation()[2].calls().to_vec();
    assert_eq!(Subject::answer(&answer).replaces, ReplaceTarget::Nothing);
}
