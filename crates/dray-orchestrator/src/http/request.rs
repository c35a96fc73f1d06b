//! Reads and checks the body of a request (quickapps 3.1, 4).

use dray_agent::failure::RequestFailure;
use dray_agent::message::{Message, shape};
use serde_json::{Map, Value};

use super::contract::ChatRequest;

/// Roles of messages; `developer` is a newer name of `system`.
const MESSAGE_ROLES: [&str; 6] = [
    "system",
    "developer",
    "user",
    "assistant",
    "tool",
    "function",
];
/// Members of an attachment that must be strings.
const ATTACHMENT_TEXTS: [&str; 6] = [
    "type",
    "title",
    "data",
    "url",
    "reference_type",
    "reference_url",
];

/// A place in a body whose structure is invalid, and the reason.
pub(super) struct InvalidStructure {
    path: String,
    reason: String,
}

impl From<InvalidStructure> for RequestFailure {
    fn from(invalid: InvalidStructure) -> Self {
        let InvalidStructure { path, reason } = invalid;
        let message = format!("Your request contained invalid structure on path {path}. {reason}");
        Self::new(400, message)
    }
}

impl InvalidStructure {
    /// The same failure with the path as `param`, where `OpenAI`'s clients look for it.
    pub(super) fn with_param(self) -> RequestFailure {
        let param = self.path.clone().into_boxed_str();
        let mut failure = RequestFailure::from(self);
        failure.param = Some(param);
        failure
    }
}

pub(super) fn invalid_structure<T>(
    path: impl Into<String>,
    reason: impl Into<String>,
) -> Result<T, InvalidStructure> {
    Err(InvalidStructure {
        path: path.into(),
        reason: reason.into(),
    })
}

/// Reads a body; only error messages use `deployment`.
///
/// # Errors
///
/// 400 for a wrong structure or order of roles, 422 for more than one answer.
pub(super) fn read_request(deployment: &str, body: Value) -> Result<ChatRequest, RequestFailure> {
    let CheckedBody {
        request, answers, ..
    } = check_request(body)?;
    // The range of `n` is checked like others; more than one answer has a status of its own (quickapps 4).
    if answers > 1 {
        let message = format!("{deployment} deployment doesn't support n > 1");
        return Err(RequestFailure::new(422, message));
    }
    let roles: Vec<_> = request
        .messages
        .iter()
        .map(|message| message.role)
        .collect();
    shape::check_roles(&roles).map_err(|invalid| {
        RequestFailure::new(400, invalid.to_string()).display(invalid.display_message())
    })?;
    Ok(request)
}

/// A body of the right structure.
pub(super) struct CheckedBody {
    pub(super) request: ChatRequest,
    /// Number of requested answers.
    pub(super) answers: i64,
    /// The members that are not in `request`, or only copied.
    pub(super) rest: Map<String, Value>,
}

/// Reads a body by the rules that DIAL's and `OpenAI`'s requests share.
pub(super) fn check_request(body: Value) -> Result<CheckedBody, InvalidStructure> {
    let Value::Object(mut body) = body else {
        // pydantic's name for the whole body, as in the backend's messages.
        return invalid_structure("__root__", "Input should be an object");
    };
    // On DIAL's paths these are checked only to help the client: there the manifest decides about sampling (quickapps
    // 3.1).
    check_sampling(&body)?;
    let answers = integer_member(&body, "n", 1..=128)?.unwrap_or(1);
    let messages = match body.shift_remove("messages") {
        Some(Value::Array(messages)) => messages,
        Some(_) => return invalid_structure("messages", "Input should be a list"),
        None => return invalid_structure("messages", "Field required"),
    };
    let messages = messages
        .into_iter()
        .enumerate()
        .map(|(index, message)| read_message(&format!("messages.{index}"), message));
    let messages = messages.collect::<Result<_, _>>()?;
    check_format(&body)?;
    let tools = match take_member(&mut body, "tools") {
        Some(Value::Array(tools)) => tools,
        Some(_) => return invalid_structure("tools", "Input should be a list"),
        None => Vec::new(),
    };
    if let Some(index) = tools.iter().position(|tool| !tool.is_object()) {
        return invalid_structure(format!("tools.{index}"), "Input should be an object");
    }
    let tool_choice = take_member(&mut body, "tool_choice");
    if tool_choice
        .as_ref()
        .is_some_and(|choice| !choice.is_string() && !choice.is_object())
    {
        return invalid_structure("tool_choice", "Input should be a string or an object");
    }
    // Unknown members are ignored: some clients send fields of newer APIs (quickapps 3.1).
    let mut fields = object_member(&body, "custom_fields")?
        .cloned()
        .unwrap_or_default();
    let include_usage = match object_member(&body, "stream_options")? {
        Some(options) => bool_member(options, "include_usage", "stream_options.")?,
        None => false,
    };
    let request = ChatRequest {
        model: string_member(&body, "model")?.map(str::to_owned),
        messages,
        stream: bool_member(&body, "stream", "")?,
        tools,
        tool_choice,
        response_format: take_member(&mut body, "response_format"),
        configuration: take_member(&mut fields, "configuration"),
        include_usage,
        ..ChatRequest::default()
    };
    Ok(CheckedBody {
        request,
        answers,
        rest: body,
    })
}

/// Values that are checked and not used further.
fn check_sampling(body: &Map<String, Value>) -> Result<(), InvalidStructure> {
    check_range(body, "temperature", 0.0, 2.0)?;
    check_range(body, "top_p", 0.0, 1.0)?;
    check_range(body, "presence_penalty", -2.0, 2.0)?;
    check_range(body, "frequency_penalty", -2.0, 2.0)?;
    integer_member(body, "max_tokens", 1..=i64::MAX)?;
    integer_member(body, "max_completion_tokens", 1..=i64::MAX)?;
    integer_member(body, "seed", i64::MIN..=i64::MAX)?;
    match present_member(body, "stop") {
        None | Some(Value::String(_)) => Ok(()),
        Some(Value::Array(texts)) if texts.len() <= 4 && texts.iter().all(Value::is_string) => {
            Ok(())
        }
        Some(_) => invalid_structure(
            "stop",
            "Input should be a string or a list of at most 4 strings",
        ),
    }
}

fn check_format(body: &Map<String, Value>) -> Result<(), InvalidStructure> {
    let Some(format) = object_member(body, "response_format")? else {
        return Ok(());
    };
    match format.get("type").and_then(Value::as_str) {
        Some("text" | "json_object" | "json_schema") => Ok(()),
        _ => invalid_structure(
            "response_format.type",
            "Input should be 'text', 'json_object' or 'json_schema'",
        ),
    }
}

fn read_message(path: &str, mut message: Value) -> Result<Message, InvalidStructure> {
    let Some(members) = message.as_object_mut() else {
        return invalid_structure(path, "Input should be an object");
    };
    match members.get("role").and_then(Value::as_str) {
        Some("developer") => {
            members.insert("role".to_owned(), Value::from("system"));
        }
        Some(role) if MESSAGE_ROLES.contains(&role) => {}
        Some(_) => {
            let reason = "Input should be 'system', 'user', 'assistant', 'tool' or 'function'";
            return invalid_structure(format!("{path}.role"), reason);
        }
        None => return invalid_structure(format!("{path}.role"), "Field required"),
    }
    check_content(path, members)?;
    check_calls(path, members)?;
    check_custom(path, members)?;
    serde_json::from_value(message)
        .or_else(|_| invalid_structure(path, "Input should be a message"))
}

fn check_content(path: &str, message: &Map<String, Value>) -> Result<(), InvalidStructure> {
    match present_member(message, "content") {
        None | Some(Value::String(_)) => Ok(()),
        Some(Value::Array(parts)) => match parts.iter().position(|part| !part.is_object()) {
            Some(index) => invalid_structure(
                format!("{path}.content.{index}"),
                "Input should be an object",
            ),
            None => Ok(()),
        },
        Some(_) => invalid_structure(
            format!("{path}.content"),
            "Input should be a string or a list of parts",
        ),
    }
}

fn check_calls(path: &str, message: &Map<String, Value>) -> Result<(), InvalidStructure> {
    let Some(calls) = present_member(message, "tool_calls") else {
        return Ok(());
    };
    let path = format!("{path}.tool_calls");
    let Some(calls) = calls.as_array() else {
        return invalid_structure(path, "Input should be a list");
    };
    for (index, call) in calls.iter().enumerate() {
        // Arguments stay unchecked: whether they are JSON matters only to the tool that gets them.
        for pointer in ["/id", "/function/name"] {
            if !call.pointer(pointer).is_some_and(Value::is_string) {
                let path = format!("{path}.{index}{}", pointer.replace('/', "."));
                return invalid_structure(path, "Input should be a string");
            }
        }
    }
    Ok(())
}

fn check_custom(path: &str, message: &Map<String, Value>) -> Result<(), InvalidStructure> {
    let path = format!("{path}.custom_content");
    let custom = match present_member(message, "custom_content") {
        None => return Ok(()),
        Some(Value::Object(custom)) => custom,
        Some(_) => return invalid_structure(path, "Input should be an object"),
    };
    let attachments = match present_member(custom, "attachments") {
        None => return Ok(()),
        Some(Value::Array(attachments)) => attachments,
        Some(_) => {
            return invalid_structure(format!("{path}.attachments"), "Input should be a list");
        }
    };
    for (index, attachment) in attachments.iter().enumerate() {
        let path = format!("{path}.attachments.{index}");
        let Some(attachment) = attachment.as_object() else {
            return invalid_structure(path, "Input should be an object");
        };
        for key in ATTACHMENT_TEXTS {
            if present_member(attachment, key).is_some_and(|text| !text.is_string()) {
                return invalid_structure(format!("{path}.{key}"), "Input should be a string");
            }
        }
    }
    Ok(())
}

/// A member that is not `null`.
fn present_member<'a>(members: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    members.get(key).filter(|value| !value.is_null())
}

fn take_member(members: &mut Map<String, Value>, key: &str) -> Option<Value> {
    members.shift_remove(key).filter(|value| !value.is_null())
}

fn object_member<'a>(
    members: &'a Map<String, Value>,
    key: &str,
) -> Result<Option<&'a Map<String, Value>>, InvalidStructure> {
    match present_member(members, key) {
        None => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object)),
        Some(_) => invalid_structure(key, "Input should be an object"),
    }
}

fn string_member<'a>(
    members: &'a Map<String, Value>,
    key: &str,
) -> Result<Option<&'a str>, InvalidStructure> {
    match present_member(members, key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => invalid_structure(key, "Input should be a string"),
    }
}

fn bool_member(
    members: &Map<String, Value>,
    key: &str,
    parent_path: &str,
) -> Result<bool, InvalidStructure> {
    match present_member(members, key) {
        None => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(_) => invalid_structure(
            format!("{parent_path}{key}"),
            "Input should be true or false",
        ),
    }
}

fn integer_member(
    members: &Map<String, Value>,
    key: &str,
    range: std::ops::RangeInclusive<i64>,
) -> Result<Option<i64>, InvalidStructure> {
    let Some(value) = present_member(members, key) else {
        return Ok(None);
    };
    match value.as_i64().filter(|number| range.contains(number)) {
        Some(number) => Ok(Some(number)),
        // The limits of the number type mean nothing to a client.
        None if *range.end() == i64::MAX && *range.start() == i64::MIN => {
            invalid_structure(key, "Input should be a whole number")
        }
        None if *range.end() == i64::MAX => invalid_structure(
            key,
            format!(
                "Input should be a whole number of at least {}",
                range.start()
            ),
        ),
        None => invalid_structure(
            key,
            format!(
                "Input should be a whole number from {} to {}",
                range.start(),
                range.end()
            ),
        ),
    }
}

fn check_range(
    members: &Map<String, Value>,
    key: &str,
    min: f64,
    max: f64,
) -> Result<(), InvalidStructure> {
    let Some(value) = present_member(members, key) else {
        return Ok(());
    };
    match value.as_f64() {
        Some(number) if (min..=max).contains(&number) => Ok(()),
        _ => invalid_structure(key, format!("Input should be a number from {min} to {max}")),
    }
}
