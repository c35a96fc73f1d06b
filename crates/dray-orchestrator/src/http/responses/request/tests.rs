//! Names and places of parameters, and what is refused.

use super::*;

fn read(more: &Value) -> Result<ResponseRequest, String> {
    let mut body = json!({"model": "m", "input": "hi"});
    let members = body.as_object_mut().unwrap();
    members.extend(more.as_object().unwrap().clone());
    read_response_request(body).map_err(|failure| {
        assert_eq!(failure.status, 400, "{failure:?}");
        failure.param.unwrap().into_string()
    })
}

#[test]
fn parameters_have_their_names_of_chat_completions() {
    let schema = json!({"type": "object"});
    let request = read(&json!({
        "max_output_tokens": 5, "temperature": 0.5, "top_p": null, "user": "u", "top_k": 3,
        "text": {"format": {"type": "json_schema", "name": "x", "schema": schema, "strict": true}, "verbosity": "low"},
        "reasoning": {"effort": "low", "summary": "auto"},
        "tools": [{"type": "function", "name": "f", "parameters": schema, "strict": null}],
        "tool_choice": {"type": "function", "name": "f"},
        "include": ["message.output_text.logprobs", "reasoning.encrypted_content"], "truncation": "disabled", "metadata": {"a": "b"},
        "stream_options": {"include_obfuscation": false},
    }));
    let request = request.unwrap();
    assert_eq!(
        Value::Object(request.chat),
        json!({
            "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": true}},
            "verbosity": "low", "reasoning_effort": "low",
            "tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}],
            "tool_choice": {"type": "function", "function": {"name": "f"}},
            "logprobs": true, "max_completion_tokens": 5, "temperature": 0.5, "user": "u", "top_k": 3,
        })
    );
    assert_eq!(request.echo["metadata"], json!({"a": "b"}));
    assert_eq!(request.echo["max_output_tokens"], 5);
    assert!(request.is_stored && !request.streams && !request.runs_in_background);
}

#[test]
fn the_number_of_probabilities_has_no_effect_without_their_include() {
    for (include, sent) in [
        (json!([]), json!({})),
        (
            json!(["message.output_text.logprobs"]),
            json!({"logprobs": true, "top_logprobs": 2}),
        ),
    ] {
        let request = read(&json!({"top_logprobs": 2, "include": include})).unwrap();
        assert_eq!(Value::Object(request.chat), sent);
        assert_eq!(request.echo["top_logprobs"], 2);
    }
}

#[test]
fn unsupported_parameters_are_refused_by_name() {
    for (more, param) in [
        (json!({"truncation": "auto"}), "truncation"),
        (json!({"truncation": 1}), "truncation"),
        (json!({"max_tool_calls": 3}), "max_tool_calls"),
        (json!({"prompt": {"id": "p"}}), "prompt"),
        (json!({"tools": [{"type": "web_search"}]}), "tools.0.type"),
        (json!({"tools": {}}), "tools"),
        (json!({"include": ["message.unknown"]}), "include.0"),
        (json!({"reasoning": {"mode": "x"}}), "reasoning.mode"),
        (
            json!({"reasoning": {"summary": "all"}}),
            "reasoning.summary",
        ),
        (
            json!({"text": {"format": {"type": "xml"}}}),
            "text.format.type",
        ),
        (
            json!({"text": {"format": {"type": "json_schema"}}}),
            "text.format.name",
        ),
        (json!({"background": true, "store": false}), "background"),
        (json!({"conversation": "c", "store": false}), "store"),
        (json!({"conversation": {}}), "conversation.id"),
        (
            json!({"conversation": "c", "previous_response_id": "r"}),
            "previous_response_id",
        ),
        (json!({"metadata": {"a": 1}}), "metadata"),
        (json!({"metadata": {"a": "x".repeat(513)}}), "metadata"),
        (json!({"stream": "yes"}), "stream"),
        (json!({"instructions": []}), "instructions"),
        (json!({"input": null}), "input"),
        (
            json!({"stream_options": {"include_obfuscation": true}}),
            "stream_options.include_obfuscation",
        ),
    ] {
        assert_eq!(read(&more).unwrap_err(), param, "{more}");
    }
}

#[test]
fn members_of_other_apis_and_names_that_are_no_strings_are_refused_by_their_name() {
    for (more, param) in [
        (
            json!({"tool_choice": {"type": "function"}}),
            "tool_choice.name",
        ),
        (
            json!({"tool_choice": {"type": "allowed_tools", "tools": "f"}}),
            "tool_choice.tools",
        ),
        (
            json!({"tool_choice": {"type": "allowed_tools", "tools": [{"name": 1}]}}),
            "tool_choice.tools.0.name",
        ),
        (
            json!({"stream_options": {"include_obfuscation": "no"}}),
            "stream_options.include_obfuscation",
        ),
        (
            json!({"stream_options": {"include_usage": true}}),
            "stream_options.include_usage",
        ),
        (
            json!({"messages": [{"role": "user", "content": "x"}]}),
            "messages",
        ),
    ] {
        assert_eq!(read(&more).unwrap_err(), param, "{more}");
    }
}

#[test]
fn failures_of_the_turn_name_the_place_in_the_request() {
    let items = [None, Some(0), Some(3)];
    for (param, place) in [
        ("max_completion_tokens", "max_output_tokens"),
        ("response_format.type", "text.format.type"),
        ("reasoning_effort", "reasoning.effort"),
        ("tools.1.function.name", "tools.1.name"),
        ("messages", "input"),
        ("messages.0.content", "input"),
        (
            "messages.2.content.1.file.file_id",
            "input.3.content.1.file_id",
        ),
        ("temperature", "temperature"),
    ] {
        let failure = RequestFailure::of_parameter(param, "c", format!("'{param}' is wrong"));
        let failure = at_place(failure, &items);
        assert_eq!(failure.param.as_deref(), Some(place));
        assert_eq!(failure.message, format!("'{place}' is wrong"));
    }
}

#[test]
fn an_empty_input_is_a_missing_one() {
    for body in [
        json!({"model": "m"}),
        json!({"model": "m", "input": null}),
        json!({"model": "m", "input": ""}),
        json!({"model": "m", "input": []}),
    ] {
        let failure = read_response_request(body).unwrap_err();
        assert_eq!(
            (
                failure.status,
                failure.param.as_deref(),
                failure.code.as_deref()
            ),
            (400, Some("input"), Some("missing_required_parameter"))
        );
    }
    // Nothing new in a conversation.
    let request = read(&json!({"input": "", "previous_response_id": "resp_1"})).unwrap();
    assert!(request.input.items.is_empty());
    // A message whose text is empty.
    let message = json!({"input": [{"role": "user", "content": ""}]});
    assert_eq!(read(&message).unwrap().input.items.len(), 1);
}

#[test]
fn failures_of_calls_and_outputs_are_described_as_items() {
    let items = [None, Some(0)];
    let failure = |param: &str, message: &str| {
        let failure = RequestFailure::of_parameter(param, ORDER_CODE, message);
        let failure = at_place(failure, &items);
        (failure.param.unwrap().to_string(), failure.message)
    };
    let (param, message) = failure("messages.1.tool_call_id", "Messages with role 'tool' …");
    assert_eq!(param, "input.0");
    assert!(message.starts_with("No call is known"), "{message}");
    let unanswered = "An assistant message … These have no answer: call_1.";
    assert_eq!(
        failure("messages.0.tool_calls", unanswered),
        (
            "input".to_owned(),
            "These calls have no output in the input, or these questions no answer: call_1."
                .to_owned()
        )
    );
    let of_path = RequestFailure::of_parameter(
        "max_completion_tokens",
        "400",
        "invalid structure on path max_completion_tokens. Input should be a number",
    );
    let message = at_place(of_path, &items).message;
    assert!(message.contains("on path max_output_tokens."), "{message}");
}
