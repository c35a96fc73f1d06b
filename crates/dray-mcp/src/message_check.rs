//! Checks every message before the MCP library reads it, over every transport. The library drops some invalid messages
//! silently, answers some without their id, and takes an `initialize` with invalid parameters for a request without a
//! session.

use std::borrow::Cow;

use dray_types::json_values::JsonValueCounter;
use rmcp::model::{
    ClientNotification, ClientRequest, ErrorCode, ErrorData, InitializeRequestParams,
    JsonRpcMessage, RequestId,
};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::error::Category;
use serde_json::{Value, json};

use crate::arguments::invalid_reason;

/// Most values in one message. A parsed value takes up to 40 times the memory of its text, and several copies are made.
const MAX_MESSAGE_VALUES: usize = 100_000;

/// The request that begins a session.
pub(crate) const INITIALIZE_METHOD: &str = "initialize";

/// The response to a message that the library does not get.
#[derive(Debug)]
pub(crate) struct RejectedMessage {
    error: ErrorData,
    /// `None` where the message has no id that can be read.
    id: Option<RequestId>,
    /// Whether the message has a method and no id, so that its sender expects no response.
    is_notification: bool,
}

impl RejectedMessage {
    pub(crate) const fn new(error: ErrorData, id: Option<RequestId>) -> Self {
        Self {
            error,
            id,
            is_notification: false,
        }
    }

    pub(crate) const fn is_notification(&self) -> bool {
        self.is_notification
    }

    pub(crate) fn into_response(self) -> TxJsonRpcMessage<RoleServer> {
        TxJsonRpcMessage::<RoleServer>::error(self.error, self.id)
    }
}

/// The fields of a message that make it a request; its other fields are not read.
#[derive(Deserialize)]
struct RequestEnvelope {
    id: RequestId,
    #[serde(rename = "method")]
    _method: IgnoredAny,
}

/// A list request, with the parameter that the library ignores if it has another type.
#[derive(Deserialize)]
struct ListRequest<'a> {
    id: RequestId,
    #[serde(borrow)]
    method: Cow<'a, str>,
    params: ListParams,
}

#[derive(Deserialize)]
struct ListParams {
    cursor: Option<Value>,
}

/// The response to bytes that are not a message of the protocol. `None` for a message, and for a notification that the
/// library does not know, because it ignores these.
pub(crate) fn check_message(bytes: &[u8]) -> Option<RejectedMessage> {
    if has_too_many_values(bytes) {
        return Some(too_many_values());
    }
    check_counted_message(bytes)
}

/// Like [`check_message`], for bytes whose values were counted before.
pub(crate) fn check_counted_message(bytes: &[u8]) -> Option<RejectedMessage> {
    let problem = match serde_json::from_slice::<RxJsonRpcMessage<RoleServer>>(bytes) {
        Ok(message) => return check_cursor(bytes).or_else(|| check_initialize(message)),
        Err(problem) => problem,
    };
    let is_json =
        str::from_utf8(bytes).is_ok() && serde_json::from_slice::<IgnoredAny>(bytes).is_ok();
    if !is_json {
        let error = ErrorData::parse_error("The message is not JSON.", None);
        return Some(RejectedMessage::new(error, None));
    }
    let envelope = serde_json::from_slice::<RequestEnvelope>(bytes).ok();
    let id = envelope.map(|envelope| envelope.id);
    Some(match problem.classify() {
        Category::Syntax | Category::Eof => {
            // JSON permits these, and the library drops such a message silently (RFC 8259, sections 6, 8.2 and 9).
            let words = "The message has half of a surrogate pair, a number that is too large, or more than 127 levels.";
            RejectedMessage::new(ErrorData::parse_error(words, None), id)
        }
        Category::Data | Category::Io => {
            let value = serde_json::from_slice(bytes).unwrap_or_default();
            let error = ErrorData::invalid_request(invalid_part(&value), None);
            let is_notification = value.get("method").is_some() && value.get("id").is_none();
            RejectedMessage {
                is_notification,
                ..RejectedMessage::new(error, id)
            }
        }
    })
}

/// Whether a message has too many values to be parsed.
pub(crate) fn has_too_many_values(bytes: &[u8]) -> bool {
    JsonValueCounter::default().add(bytes) > MAX_MESSAGE_VALUES
}

/// The response to a message with too many values. The message is not parsed, so the response has no id.
pub(crate) fn too_many_values() -> RejectedMessage {
    let words = format!("The message has more than {MAX_MESSAGE_VALUES} values.");
    RejectedMessage::new(ErrorData::invalid_request(words, None), None)
}

/// The response to a list request whose cursor is not a string. The library ignores such a cursor, and would send the
/// first page again.
pub(crate) fn check_cursor(bytes: &[u8]) -> Option<RejectedMessage> {
    let request: ListRequest<'_> = serde_json::from_slice(bytes).ok()?;
    let is_mistyped = request.params.cursor.is_some_and(|cursor| {
        // An absent cursor and `null` ask for the first page.
        !matches!(cursor, Value::String(_) | Value::Null)
    });
    (request.method.ends_with("/list") && is_mistyped).then(|| {
        let words = "`cursor` is not a string. Omit it for the first page.";
        RejectedMessage::new(ErrorData::invalid_params(words, None), Some(request.id))
    })
}

/// An error of the library as a sentence. For a method that the version of the protocol does not have, the library puts
/// only the name of the method into the message.
pub(crate) fn as_sentence(mut error: ErrorData) -> ErrorData {
    let is_name = !error.message.contains(char::is_whitespace);
    if error.code == ErrorCode::METHOD_NOT_FOUND && is_name {
        error.message = format!("The method `{}` is not offered here.", error.message).into();
    }
    error
}

/// The response to an `initialize` that the library does not recognise as one: the names of the parameters that are
/// missing or mistyped.
fn check_initialize(message: RxJsonRpcMessage<RoleServer>) -> Option<RejectedMessage> {
    match message {
        JsonRpcMessage::Request(request) => {
            let ClientRequest::CustomRequest(custom) = request.request else {
                return None;
            };
            (custom.method == INITIALIZE_METHOD)
                .then(|| RejectedMessage::new(invalid_initialize(custom.params), Some(request.id)))
        }
        JsonRpcMessage::Notification(notification) => {
            let ClientNotification::CustomNotification(custom) = notification.notification else {
                return None;
            };
            (custom.method == INITIALIZE_METHOD).then(|| {
                let words = "`initialize` is a request, and the message has no `id`.";
                RejectedMessage::new(ErrorData::invalid_request(words, None), None)
            })
        }
        _ => None,
    }
}

/// The error of an `initialize` with these parameters.
pub(crate) fn invalid_initialize(params: Option<Value>) -> ErrorData {
    let params = params.filter(|params| !params.is_null());
    let params = params.unwrap_or_else(|| json!({}));
    let read = serde_path_to_error::deserialize::<_, InitializeRequestParams>(params);
    let reason = match read {
        Ok(_) => String::new(),
        Err(error) => format!(": {}", invalid_reason(error)),
    };
    ErrorData::invalid_params(
        format!("The parameters of `initialize` are not valid{reason}."),
        None,
    )
}

/// Names the part of a JSON document that is not valid in a message.
fn invalid_part(value: &Value) -> &'static str {
    let message = match value {
        Value::Object(message) => message,
        Value::Array(_) => {
            return "The message is a list, and the protocol has no batches: send each request as one message.";
        }
        _ => return "The message is not an object.",
    };
    let member_fits = |name: &str, fits: fn(&Value) -> bool| message.get(name).is_none_or(fits);
    let meta = message.get("params").and_then(|params| params.get("_meta"));
    if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        "`jsonrpc` is not \"2.0\"."
    } else if !member_fits("id", |id| id.is_string() || id.is_i64()) {
        "`id` is not a string or an integer of 64 bits."
    } else if !member_fits("method", Value::is_string) {
        "`method` is not a string."
    } else if !member_fits("params", Value::is_object) {
        "`params` is not an object."
    } else if !meta.is_none_or(Value::is_object) {
        "`_meta` of the parameters is not an object."
    } else {
        "The message is not a request of the protocol."
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejection(text: &str) -> Value {
        let rejected = check_message(text.as_bytes()).unwrap_or_else(|| panic!("{text}"));
        serde_json::to_value(rejected.into_response()).unwrap()
    }

    #[test]
    fn a_message_with_too_many_values_is_refused_before_it_is_parsed() {
        let request = |path: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"read","arguments":{{"path":{path}}}}}}}"#
            )
        };
        let list = |count: usize| format!("[{}0]", "{},".repeat(count));
        assert!(check_message(request(&list(40_000)).as_bytes()).is_none());
        let rejected = rejection(&request(&list(60_000)));
        assert_eq!(rejected["error"]["code"], -32600, "{rejected}");
        // Commas and brackets inside a string do not count.
        let text = format!("\"{}\"", r#",[{\""#.repeat(200_000));
        assert!(check_message(request(&text).as_bytes()).is_none());
    }

    #[test]
    fn a_cursor_that_is_not_a_string_is_refused() {
        let list = |method: &str, params: &str| {
            format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{params}}}"#)
        };
        for method in [
            "tools/list",
            "resources/list",
            "resources/templates/list",
            "prompts/list",
        ] {
            for cursor in ["5", "{}", "[]", "true"] {
                let text = list(method, &format!(r#"{{"cursor":{cursor}}}"#));
                let response = rejection(&text);
                assert_eq!(response["id"], 7, "{text}: {response}");
                assert_eq!(response["error"]["code"], -32602, "{text}: {response}");
                let message = response["error"]["message"].as_str().unwrap();
                assert!(message.contains("`cursor`"), "{text}: {message}");
            }
        }
        for text in [
            list("tools/list", r#"{"cursor":null}"#),
            list("tools/list", r#"{"cursor":"x"}"#),
            list("tools/list", "{}"),
            list("tools/call", r#"{"name":"x","cursor":5}"#),
        ] {
            assert!(check_message(text.as_bytes()).is_none(), "{text}");
        }
    }

    #[test]
    fn an_invalid_parameter_of_initialize_is_named() {
        let valid = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "a", "version": "1"},
        });
        let request = |params: &Value| {
            json!({"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": params}).to_string()
        };
        assert!(check_message(request(&valid).as_bytes()).is_none());
        for (member, value, words) in [
            ("protocolVersion", None, "missing field `protocolVersion`"),
            ("capabilities", None, "missing field `capabilities`"),
            ("clientInfo", None, "missing field `clientInfo`"),
            (
                "protocolVersion",
                Some(json!(7)),
                "`protocolVersion` has an invalid type: integer `7`, expected a string",
            ),
            (
                "capabilities",
                Some(json!("x")),
                "`capabilities` has an invalid type: string \"x\", expected an object",
            ),
            ("clientInfo", Some(json!({"name": "a"})), "version"),
        ] {
            let mut params = valid.clone();
            match value {
                Some(value) => params[member] = value,
                None => drop(params.as_object_mut().unwrap().remove(member)),
            }
            let response = rejection(&request(&params));
            assert_eq!(response["id"], 7, "{response}");
            assert_eq!(response["error"]["code"], -32602, "{response}");
            let message = response["error"]["message"].as_str().unwrap();
            assert!(message.contains(words), "{message}");
        }
        for params in ["", ",\"params\":null"] {
            let text =
                format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"initialize\"{params}}}");
            assert_eq!(rejection(&text)["error"]["code"], -32602, "{text}");
        }
        let without_id = json!({"jsonrpc": "2.0", "method": "initialize", "params": valid});
        assert_eq!(rejection(&without_id.to_string())["error"]["code"], -32600);
    }

    #[test]
    fn the_invalid_part_of_a_document_is_named() {
        for (text, words) in [
            ("[]", "no batches"),
            ("7", "not an object"),
            (r#"{"id":1,"method":"ping"}"#, "`jsonrpc`"),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, "`id`"),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, "`id`"),
            (
                r#"{"jsonrpc":"2.0","id":99999999999999999999,"method":"ping"}"#,
                "`id`",
            ),
            (r#"{"jsonrpc":"2.0","id":1,"method":5}"#, "`method`"),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#,
                "`params`",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":5}}"#,
                "`_meta`",
            ),
        ] {
            let response = rejection(text);
            assert_eq!(response["error"]["code"], -32600, "{text}: {response}");
            let message = response["error"]["message"].as_str().unwrap();
            assert!(message.contains(words), "{text}: {message}");
        }
    }
}
