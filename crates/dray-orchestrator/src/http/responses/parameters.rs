//! Parameters of `/v1/responses` that have another form in chat completions.

use dray_agent::failure::RequestFailure;
use serde_json::{Map, Value, json};

use super::request::invalid;
use crate::http::plain_request::{TOOL_TYPE_REASON, unsupported_failure};

/// Additional data of a response: log probabilities.
const LOGPROBS_INCLUDE: &str = "message.output_text.logprobs";
/// Additional data that a response never has: the reasoning of models is text, and items of these types are not made.
/// `OpenAI`'s API accepts them too for a model or a response without such data, and clients without state always
/// send them.
const ABSENT_INCLUDES: [&str; 7] = [
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
    "file_search_call.results",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
];

/// Takes `text`: the form of the answer.
///
/// # Errors
///
/// 400 with the place in `param`, as all of this module.
pub(super) fn take_text_format(
    body: &mut Map<String, Value>,
    chat: &mut Map<String, Value>,
    echo: &mut Map<String, Value>,
) -> Result<(), RequestFailure> {
    let Some(text) = body.shift_remove("text") else {
        return Ok(());
    };
    let Value::Object(members) = &text else {
        return Err(invalid("text", "It must be an object."));
    };
    for name in members.keys() {
        if !matches!(name.as_str(), "format" | "verbosity") {
            return Err(unsupported_failure(
                format!("text.{name}"),
                "it is not a known parameter",
            ));
        }
    }
    if let Some(format) = members.get("format").filter(|format| !format.is_null()) {
        chat.insert("response_format".to_owned(), chat_format(format)?);
    }
    if let Some(verbosity) = members.get("verbosity").filter(|value| !value.is_null()) {
        chat.insert("verbosity".to_owned(), verbosity.clone());
    }
    let mut shown = members.clone();
    let format = shown
        .entry("format")
        .or_insert_with(|| json!({"type": "text"}));
    if format["type"] == "json_schema" {
        insert_missing(
            format,
            [("description", Value::Null), ("strict", json!(false))],
        );
    }
    echo.insert("text".to_owned(), Value::Object(shown));
    Ok(())
}

/// Adds the members that a response always shows, where its request left them out.
fn insert_missing<const N: usize>(object: &mut Value, usual: [(&str, Value); N]) {
    if let Some(members) = object.as_object_mut() {
        for (name, value) in usual {
            members.entry(name).or_insert(value);
        }
    }
}

fn chat_format(format: &Value) -> Result<Value, RequestFailure> {
    match format.get("type").and_then(Value::as_str) {
        Some("text" | "json_object") => Ok(format.clone()),
        Some("json_schema") => {
            let mut schema = format.as_object().cloned().unwrap_or_default();
            schema.shift_remove("type");
            for name in ["name", "schema"] {
                if !schema.contains_key(name) {
                    return Err(invalid(&format!("text.format.{name}"), "It is required."));
                }
            }
            Ok(json!({"type": "json_schema", "json_schema": schema}))
        }
        _ => Err(invalid(
            "text.format.type",
            "It must be 'text', 'json_object' or 'json_schema'.",
        )),
    }
}

/// Takes `reasoning`.
pub(super) fn take_reasoning(
    body: &mut Map<String, Value>,
    chat: &mut Map<String, Value>,
    echo: &mut Map<String, Value>,
) -> Result<(), RequestFailure> {
    let Some(reasoning) = body.shift_remove("reasoning") else {
        return Ok(());
    };
    let Value::Object(members) = &reasoning else {
        return Err(invalid("reasoning", "It must be an object."));
    };
    for (name, value) in members.iter().filter(|(_, value)| !value.is_null()) {
        match name.as_str() {
            "effort" => {
                chat.insert("reasoning_effort".to_owned(), value.clone());
            }
            // The summary is always the model's own reasoning; the requested length has no effect.
            "summary" | "generate_summary" => {
                let known = matches!(value.as_str(), Some("auto" | "concise" | "detailed"));
                if !known {
                    let message = "It must be 'auto', 'concise' or 'detailed'.";
                    return Err(invalid(&format!("reasoning.{name}"), message));
                }
            }
            _ => {
                let field = format!("reasoning.{name}");
                return Err(unsupported_failure(
                    field,
                    "the model's service does not have it",
                ));
            }
        }
    }
    let mut shown = members.clone();
    for name in ["effort", "summary"] {
        shown.entry(name).or_insert(Value::Null);
    }
    echo.insert("reasoning".to_owned(), Value::Object(shown));
    Ok(())
}

/// Takes the client's functions and its choice among them.
pub(super) fn take_tools(
    body: &mut Map<String, Value>,
    chat: &mut Map<String, Value>,
    echo: &mut Map<String, Value>,
) -> Result<(), RequestFailure> {
    if let Some(tools) = body.shift_remove("tools") {
        let Value::Array(list) = &tools else {
            return Err(invalid("tools", "It must be a list."));
        };
        let mut functions = Vec::with_capacity(list.len());
        let mut shown = list.clone();
        for (index, tool) in shown.iter_mut().enumerate() {
            functions.push(chat_tool(index, tool)?);
            insert_missing(
                tool,
                ["description", "parameters", "strict"].map(|name| (name, Value::Null)),
            );
        }
        chat.insert("tools".to_owned(), Value::Array(functions));
        echo.insert("tools".to_owned(), Value::Array(shown));
    }
    if let Some(choice) = body.shift_remove("tool_choice") {
        let kind = choice.get("type").and_then(Value::as_str);
        let chat_choice = match (choice.as_str(), kind) {
            (None, Some("function")) => {
                let name = choice.get("name").and_then(Value::as_str);
                let name =
                    name.ok_or_else(|| invalid("tool_choice.name", "It must be a string."))?;
                json!({"type": "function", "function": {"name": name}})
            }
            (None, Some("allowed_tools")) => allowed_tools(&choice)?,
            _ => choice.clone(),
        };
        chat.insert("tool_choice".to_owned(), chat_choice);
        echo.insert("tool_choice".to_owned(), choice);
    }
    Ok(())
}

/// The choice among some of the functions, which both APIs have.
fn allowed_tools(choice: &Value) -> Result<Value, RequestFailure> {
    let mut allowed = choice.as_object().cloned().unwrap_or_default();
    allowed.shift_remove("type");
    let Some(Value::Array(tools)) = allowed.get_mut("tools") else {
        return Err(invalid("tool_choice.tools", "It must be a list."));
    };
    for (index, tool) in tools.iter_mut().enumerate() {
        let Some(name) = tool.get("name").and_then(Value::as_str) else {
            let field = format!("tool_choice.tools.{index}.name");
            return Err(invalid(&field, "It must be a string."));
        };
        *tool = json!({"type": "function", "function": {"name": name}});
    }
    Ok(json!({"type": "allowed_tools", "allowed_tools": allowed}))
}

fn chat_tool(index: usize, tool: &Value) -> Result<Value, RequestFailure> {
    let mut function = tool.as_object().cloned().unwrap_or_default();
    let kind = function.shift_remove("type");
    if kind.is_none_or(|kind| kind != "function") {
        return Err(unsupported_failure(
            format!("tools.{index}.type"),
            TOOL_TYPE_REASON,
        ));
    }
    // `null` stands for what is left out; services of models refuse it.
    function.retain(|_, value| !value.is_null());
    Ok(json!({"type": "function", "function": function}))
}

/// Takes parameters that have only one possible value here.
pub(super) fn take_options(
    body: &mut Map<String, Value>,
    chat: &mut Map<String, Value>,
) -> Result<(), RequestFailure> {
    match body.shift_remove("truncation").as_ref().map(Value::as_str) {
        None | Some(Some("disabled")) => {}
        Some(Some("auto")) => {
            let reason = "the size of the model's context is not known here";
            return Err(unsupported_failure("truncation", reason));
        }
        Some(_) => return Err(invalid("truncation", "It must be 'auto' or 'disabled'.")),
    }
    match body.shift_remove("include") {
        None => {}
        Some(Value::Array(wanted)) => {
            for (index, wanted) in wanted.iter().enumerate() {
                match wanted.as_str() {
                    Some(LOGPROBS_INCLUDE) => {
                        chat.insert("logprobs".to_owned(), json!(true));
                    }
                    Some(name) if ABSENT_INCLUDES.contains(&name) => {}
                    _ => {
                        return Err(unsupported_failure(
                            format!("include.{index}"),
                            "a response here has no such data",
                        ));
                    }
                }
            }
        }
        Some(_) => return Err(invalid("include", "It must be a list.")),
    }
    match body.shift_remove("stream_options") {
        None => Ok(()),
        Some(Value::Object(options)) => check_stream_options(&options),
        Some(_) => Err(invalid("stream_options", "It must be an object.")),
    }
}

fn check_stream_options(options: &Map<String, Value>) -> Result<(), RequestFailure> {
    for (name, value) in options.iter().filter(|(_, value)| !value.is_null()) {
        let field = format!("stream_options.{name}");
        match (name.as_str(), value) {
            ("include_obfuscation", Value::Bool(false)) => {}
            ("include_obfuscation", Value::Bool(true)) => {
                return Err(unsupported_failure(field, "events are not obfuscated"));
            }
            ("include_obfuscation", _) => return Err(invalid(&field, "It must be true or false.")),
            _ => return Err(unsupported_failure(field, "it is not a known parameter")),
        }
    }
    Ok(())
}
