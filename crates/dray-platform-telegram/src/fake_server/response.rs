//! Responses with the texts of the real API.

use serde_json::{Value, json};

/// A refusal: the fields of a response with `"ok": false`.
#[derive(Clone, Debug)]
pub(super) struct MethodError {
    pub(super) code: u16,
    pub(super) description: String,
    pub(super) parameters: Option<Value>,
}

/// The result of a method, or its refusal.
pub(super) type ApiResponse = Result<Value, MethodError>;

impl MethodError {
    /// `400 Bad Request: …`.
    pub(super) fn bad(reason: &str) -> Self {
        Self::of(400, reason)
    }

    /// A refusal with any code. The codes 400 and 403 get their prefix.
    pub(super) fn of(code: u16, reason: &str) -> Self {
        let prefix = match code {
            400 => "Bad Request: ",
            403 => "Forbidden: ",
            _ => "",
        };
        Self {
            code,
            description: format!("{prefix}{reason}"),
            parameters: None,
        }
    }

    pub(super) fn rate_limit(seconds: u64) -> Self {
        Self {
            code: 429,
            description: format!("Too Many Requests: retry after {seconds}"),
            parameters: Some(json!({ "retry_after": seconds })),
        }
    }

    pub(super) fn migrated(to: i64) -> Self {
        Self {
            parameters: Some(json!({ "migrate_to_chat_id": to })),
            ..Self::bad("group chat was upgraded to a supergroup chat")
        }
    }

    pub(super) fn body(&self) -> Value {
        let mut body = json!({
            "ok": false,
            "error_code": self.code,
            "description": self.description,
        });
        if let (Some(parameters), Some(body)) = (&self.parameters, body.as_object_mut()) {
            body.insert("parameters".to_owned(), parameters.clone());
        }
        body
    }
}
