//! Requests that are refused, and why.

use dray_agent::message::Role;
use serde_json::{Value, json};

use crate::http::request::read_request;

fn with(more: &Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "hi"}]});
    body.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    body
}

fn refusal_of(body: Value) -> (u16, String) {
    let failure = read_request("quick_apps2", body).unwrap_err();
    (failure.status, failure.message)
}

/// The path that a refusal names.
fn check(more: &Value, path: &str) {
    let (status, message) = refusal_of(with(more));
    let begin = format!("Your request contained invalid structure on path {path}. ");
    assert_eq!(status, 400);
    assert!(message.starts_with(&begin), "{more}: {message}");
}

#[test]
fn invalid_fields_are_reported_by_path() {
    for (more, path) in [
        (json!({"messages": null}), "messages"),
        (json!({"messages": [7]}), "messages.0"),
        (json!({"messages": [{"content": "x"}]}), "messages.0.role"),
        (json!({"messages": [{"role": "robot"}]}), "messages.0.role"),
        (
            json!({"messages": [{"role": "user", "content": 7}]}),
            "messages.0.content",
        ),
        (
            json!({"messages": [{"role": "user", "content": ["x"]}]}),
            "messages.0.content.0",
        ),
        (
            json!({"messages": [{"role": "user", "name": 7}]}),
            "messages.0",
        ),
        (
            json!({"messages": [{"role": "assistant", "tool_calls": [{"id": "1", "function": {}}]}]}),
            "messages.0.tool_calls.0.function.name",
        ),
        (
            json!({"messages": [{"role": "user", "custom_content": {"attachments": [{}, {"url": 7}]}}]}),
            "messages.0.custom_content.attachments.1.url",
        ),
        (
            json!({"messages": [{"role": "user", "custom_content": []}]}),
            "messages.0.custom_content",
        ),
        (json!({"stream": "yes"}), "stream"),
        (json!({"n": 0}), "n"),
        (json!({"n": 129}), "n"),
        (json!({"temperature": 2.1}), "temperature"),
        (json!({"top_p": -0.1}), "top_p"),
        (json!({"presence_penalty": "x"}), "presence_penalty"),
        (json!({"frequency_penalty": 3}), "frequency_penalty"),
        (json!({"max_tokens": 0}), "max_tokens"),
        (json!({"stop": ["a", "b", "c", "d", "e"]}), "stop"),
        (json!({"seed": 1.5}), "seed"),
        (
            json!({"response_format": {"type": "xml"}}),
            "response_format.type",
        ),
        (json!({"tools": {}}), "tools"),
        (json!({"tools": [7]}), "tools.0"),
        (json!({"tool_choice": 7}), "tool_choice"),
        (json!({"custom_fields": 7}), "custom_fields"),
        (
            json!({"stream_options": {"include_usage": 1}}),
            "stream_options.include_usage",
        ),
        (json!({"model": 7}), "model"),
    ] {
        check(&more, path);
    }
    assert!(refusal_of(json!([])).1.contains("on path __root__. "));
}

#[test]
fn all_that_is_read_is_read_and_the_rest_may_be_there() {
    let request = read_request(
        "d",
        with(&json!({
            "model": "m", "stream": true, "n": 1, "temperature": 0, "stop": "x", "max_tokens": null, "new_field": {},
            "tools": [{"type": "function"}], "tool_choice": "auto", "response_format": {"type": "json_schema"},
            "custom_fields": {"configuration": {"starter": 1}}, "stream_options": {"include_usage": true},
        })),
    )
    .unwrap();
    assert_eq!(request.model.as_deref(), Some("m"));
    assert_eq!(
        (request.stream, request.include_usage, request.tools.len()),
        (true, true, 1)
    );
    assert_eq!(request.tool_choice, Some(json!("auto")));
    assert_eq!(
        request.response_format,
        Some(json!({"type": "json_schema"}))
    );
    assert_eq!(request.configuration, Some(json!({"starter": 1})));
}

#[test]
fn more_than_one_answer_is_not_offered() {
    assert_eq!(
        refusal_of(with(&json!({"n": 2}))),
        (
            422,
            "quick_apps2 deployment doesn't support n > 1".to_owned()
        )
    );
}

#[test]
fn all_messages_out_of_order_are_reported_together() {
    let body = json!({"messages": [{"role": "assistant"}, {"role": "assistant"}]});
    let failure = read_request("d", body).unwrap_err();
    assert_eq!(
        (failure.status, failure.message.as_str()),
        (400, "Invalid messages array")
    );
    let shown = failure.display_message.unwrap();
    assert!(shown.starts_with("Invalid messages array:\n- "), "{shown}");
    assert_eq!(
        refusal_of(json!({"messages": []})).1,
        "Invalid messages array"
    );
}

#[test]
fn a_developer_speaks_as_the_system() {
    let body = json!({"messages": [{"role": "developer", "content": "a"}, {"role": "user", "content": "b"}]});
    assert_eq!(
        read_request("d", body).unwrap().messages[0].role,
        Role::System
    );
}
