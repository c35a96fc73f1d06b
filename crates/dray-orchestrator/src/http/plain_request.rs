//! Reads requests of `OpenAI`'s API, by its rules and not by DIAL's: any order of messages, tools of the client, and
//! parameters for the model. A parameter that is not supported is refused by its name and never ignored.

use std::collections::HashSet;

use dray_agent::failure::RequestFailure;
use dray_agent::message::plain_order;
use serde_json::{Map, Value};

use super::contract::{APPROVAL_TOOL, ApprovalForm, ChatRequest, INPUT_TOOL};
use super::parts;
use super::request::{CheckedBody, InvalidStructure, check_request, invalid_structure};

/// Code for a parameter that is not supported.
pub(crate) const UNSUPPORTED_CODE: &str = "unsupported_parameter";
/// Most tools of one request, as in `OpenAI`'s API.
pub(crate) const MAX_TOOLS: usize = 128;
/// Most characters of a tool's name, as in `OpenAI`'s API.
const MAX_TOOL_NAME_CHARS: usize = 64;
/// Members that are read elsewhere and are not parameters of the model.
const OWN_MEMBERS: [&str; 6] = [
    "model",
    "messages",
    "stream",
    "stream_options",
    "n",
    "custom_fields",
];
/// Members of `OpenAI`'s API that this service does not support, with the reason.
const UNSUPPORTED_MEMBERS: [(&str, &str); 4] = [
    ("audio", "answers are text"),
    (
        "functions",
        "name each function in 'tools', as {\"type\": \"function\", \"function\": {…}}",
    ),
    (
        "function_call",
        "use 'tool_choice', as {\"type\": \"function\", \"function\": {\"name\": …}}",
    ),
    ("web_search_options", "the agent's manifest names its tools"),
];

/// Takes a function out of the client's tools. Returns whether it was there.
fn take_tool(tools: &mut Vec<Value>, name: &str) -> bool {
    let before = tools.len();
    tools.retain(|tool| {
        tool.pointer("/function/name")
            .is_none_or(|known| known != name)
    });
    tools.len() < before
}

/// Reads a body. With `has_dial`, pictures may be files of DIAL.
///
/// # Errors
///
/// 400 with the place in `param`.
pub(super) fn read_plain_request(
    body: Value,
    has_dial: bool,
) -> Result<ChatRequest, RequestFailure> {
    let CheckedBody {
        mut request,
        answers,
        rest,
    } = check_request(body).map_err(InvalidStructure::with_param)?;
    if answers > 1 {
        return Err(unsupported_failure(
            "n",
            "an agent returns exactly one answer",
        ));
    }
    check_tools(&request.tools)?;
    check_stream_options(rest.get("stream_options"))?;
    if take_tool(&mut request.tools, APPROVAL_TOOL) {
        request.approval_form = ApprovalForm::ClientTool;
    }
    request.takes_input_calls = take_tool(&mut request.tools, INPUT_TOOL);
    request.knows_custom_content = request
        .messages
        .iter()
        .any(|message| message.custom_content.is_some());
    request.parameters = parameters(rest)?;
    check_parameters(&request.parameters).map_err(InvalidStructure::with_param)?;
    for (index, message) in request.messages.iter_mut().enumerate() {
        // Members of answers that clients send back; other services refuse them.
        message.rest.retain(|_, value| !value.is_null());
        message.rest.shift_remove("annotations");
        parts::attach_parts(index, message, has_dial)?;
    }
    plain_order::check_conversation(&request.messages).map_err(|failure| *failure)?;
    Ok(request)
}

/// The parameters for the model. Unknown names are among them: the manifest decides about those.
fn parameters(mut rest: Map<String, Value>) -> Result<Map<String, Value>, RequestFailure> {
    rest.retain(|name, value| !value.is_null() && !OWN_MEMBERS.contains(&name.as_str()));
    drop_empty_functions(&mut rest);
    for (name, reason) in UNSUPPORTED_MEMBERS {
        if rest.contains_key(name) {
            return Err(unsupported_failure(name, reason));
        }
    }
    // Values that ask for the only behaviour this service has are accepted and dropped.
    for (name, only_value, reason) in [
        ("store", Value::Bool(false), "conversations are not stored"),
        ("modalities", Value::from(vec!["text"]), "answers are text"),
    ] {
        if rest
            .shift_remove(name)
            .is_some_and(|value| value != only_value)
        {
            return Err(unsupported_failure(name, reason));
        }
    }
    Ok(rest)
}

/// Refuses options of streams that are not known and ask for something.
fn check_stream_options(options: Option<&Value>) -> Result<(), RequestFailure> {
    let options = options.and_then(Value::as_object).into_iter().flatten();
    for (name, value) in options {
        let asks_for_nothing = value.is_null() || *value == Value::Bool(false);
        if name != "include_usage" && !asks_for_nothing {
            let reason = if name == "include_obfuscation" {
                "chunks are not obfuscated"
            } else {
                "it is not a known parameter"
            };
            return Err(unsupported_failure(
                format!("stream_options.{name}"),
                reason,
            ));
        }
    }
    Ok(())
}

/// Drops the older form of tools if it is empty, as clients send it that know both forms.
fn drop_empty_functions(rest: &mut Map<String, Value>) {
    let is_empty = |functions: &Value| functions.as_array().is_some_and(Vec::is_empty);
    if !rest.get("functions").is_none_or(is_empty) {
        return;
    }
    rest.shift_remove("functions");
    let choice = rest.get("function_call").and_then(Value::as_str);
    // Without functions, both values have the same effect.
    if matches!(choice, Some("none" | "auto")) {
        rest.shift_remove("function_call");
    }
}

/// Checks the types of parameters; ranges of sampling were checked before.
fn check_parameters(parameters: &Map<String, Value>) -> Result<(), InvalidStructure> {
    for (name, value) in parameters {
        let (fits, expected) = match name.as_str() {
            "logprobs" | "parallel_tool_calls" => (value.is_boolean(), "true or false"),
            "top_logprobs" => (
                value.as_u64().is_some_and(|number| number <= 20),
                "a whole number from 0 to 20",
            ),
            "logit_bias" | "metadata" | "prediction" => (value.is_object(), "an object"),
            "reasoning_effort" | "verbosity" | "user" | "safety_identifier"
            | "prompt_cache_key" | "service_tier" => (value.is_string(), "a string"),
            _ => (true, ""),
        };
        if !fits {
            return invalid_structure(name.as_str(), format!("Input should be {expected}"));
        }
    }
    Ok(())
}

/// The reason why a tool of another type is refused.
pub(crate) const TOOL_TYPE_REASON: &str = "only tools of type 'function' are supported. Declare another tool of the client as a \
     function; tools of the server, such as a web search, are named in the agent's manifest";

fn check_tools(tools: &[Value]) -> Result<(), RequestFailure> {
    if tools.len() > MAX_TOOLS {
        let message = format!("There are more than {MAX_TOOLS} tools.");
        return Err(RequestFailure::of_parameter(
            "tools",
            "invalid_tools",
            message,
        ));
    }
    let mut names = HashSet::new();
    for (index, tool) in tools.iter().enumerate() {
        let path = format!("tools.{index}");
        if tool.get("type").is_none_or(|kind| kind != "function") {
            return Err(unsupported_failure(
                format!("{path}.type"),
                TOOL_TYPE_REASON,
            ));
        }
        let name = tool.pointer("/function/name").and_then(Value::as_str);
        let path = format!("{path}.function.name");
        let refused = |message: String| {
            Err(RequestFailure::of_parameter(
                path.clone(),
                "invalid_tools",
                message,
            ))
        };
        match name {
            Some(name) if !is_tool_name(name) => {
                return refused(format!(
                    "A tool's name has 1 to {MAX_TOOL_NAME_CHARS} letters, digits, '_' and '-'."
                ));
            }
            Some(name) if !names.insert(name) => {
                return refused(format!("Two tools have the name '{name}'."));
            }
            Some(_) => {}
            None => return refused("A tool needs a name.".to_owned()),
        }
    }
    Ok(())
}

fn is_tool_name(name: &str) -> bool {
    (1..=MAX_TOOL_NAME_CHARS).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

/// The error for a member that is not supported.
pub(crate) fn unsupported_failure(param: impl Into<String>, reason: &str) -> RequestFailure {
    let param = param.into();
    let message = format!("Unsupported parameter: '{param}': {reason}.");
    RequestFailure::of_parameter(param, UNSUPPORTED_CODE, message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn body_with(more: &Value) -> Value {
        let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        body
    }

    fn tool(name: &str) -> Value {
        json!({"type": "function", "function": {"name": name, "parameters": {}}})
    }

    #[test]
    fn unsupported_parameters_are_refused_by_their_name() {
        for (more, param) in [
            (json!({"n": 2}), "n"),
            (json!({"store": true}), "store"),
            (json!({"modalities": ["text", "audio"]}), "modalities"),
            (json!({"audio": {"voice": "x"}}), "audio"),
            (json!({"functions": [{"name": "a"}]}), "functions"),
            (json!({"functions": {}}), "functions"),
            (
                json!({"functions": [], "function_call": {"name": "a"}}),
                "function_call",
            ),
            (json!({"web_search_options": {}}), "web_search_options"),
            (json!({"logprobs": 1}), "logprobs"),
            (json!({"top_logprobs": 21}), "top_logprobs"),
            (json!({"metadata": []}), "metadata"),
            (json!({"user": 7}), "user"),
            (json!({"temperature": 3}), "temperature"),
            (
                json!({"tools": [{"type": "custom", "custom": {"name": "x"}}]}),
                "tools.0.type",
            ),
            (
                json!({"tools": [tool("a"), tool("a")]}),
                "tools.1.function.name",
            ),
            (json!({"tools": [tool("a b")]}), "tools.0.function.name"),
            (
                json!({"tools": [{"type": "function"}]}),
                "tools.0.function.name",
            ),
            (json!({"messages": []}), "messages"),
            (
                json!({"stream_options": {"include_obfuscation": true}}),
                "stream_options.include_obfuscation",
            ),
            (
                json!({"stream_options": {"chunk_size": 5}}),
                "stream_options.chunk_size",
            ),
        ] {
            let failure = read_plain_request(body_with(&more), false).unwrap_err();
            assert_eq!(failure.status, 400, "{more}");
            assert_eq!(failure.param.as_deref(), Some(param), "{more}");
        }
    }

    #[test]
    fn parameters_of_the_model_pass_and_redundant_values_are_dropped() {
        let request = read_plain_request(body_with(&json!({
            "n": 1, "store": false, "modalities": ["text"], "functions": [], "function_call": "auto", "stream": true, "stream_options": {"include_usage": true, "include_obfuscation": false, "other": null},
            "temperature": 0.5, "stop": ["x"], "seed": 7, "user": "u", "top_k": 5, "max_tokens": null,
            "tools": [tool("a")], "tool_choice": "auto", "parallel_tool_calls": false,
            "response_format": {"type": "json_object"}, "custom_fields": {"configuration": {}},
        })), false)
        .unwrap();
        assert_eq!(
            Value::Object(request.parameters),
            json!({"temperature": 0.5, "stop": ["x"], "seed": 7, "user": "u", "top_k": 5, "parallel_tool_calls": false})
        );
        assert_eq!(request.tools, [tool("a")]);
        assert!(request.include_usage && !request.knows_custom_content);
    }

    #[test]
    fn members_that_only_answers_have_are_removed_from_messages() {
        let answer = json!({"role": "assistant", "content": "a", "refusal": null, "annotations": [], "audio": null});
        let body =
            json!({"messages": [answer, {"role": "user", "content": "u", "custom_content": {}}]});
        let request = read_plain_request(body, false).unwrap();
        assert_eq!(
            serde_json::to_value(&request.messages[0]).unwrap(),
            json!({"role": "assistant", "content": "a"})
        );
        assert!(request.knows_custom_content);
    }
}
