//! A request that failed, as the client gets it (quickapps 4).

use serde_json::{Map, Value, json};
use thiserror::Error;

/// A failed request. `message` and `display_message` are for the client and contain no secret, path or internal
/// address; the cause is only logged.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct RequestFailure {
    /// HTTP status; used if no part of the answer was sent yet.
    pub status: u16,
    /// Description of the failure for developers of clients.
    pub message: String,
    /// Kind, such as `invalid_request_error` and `runtime_error`.
    pub kind: String,
    /// The parameter at fault.
    pub param: Option<Box<str>>,
    /// Code of the cause; the status as text by default.
    pub code: Option<String>,
    /// Message for the user.
    pub display_message: Option<String>,
    /// Seconds after which another attempt may succeed, for the header `Retry-After`.
    pub retry_after_seconds: Option<u16>,
    /// Whether the client must not repeat the request automatically: the repetition would make calls of tools a second
    /// time, or certainly fail in the same way.
    pub is_final: bool,
}

impl RequestFailure {
    /// A failure whose kind follows from the status: `invalid_request_error` for 4xx, otherwise `runtime_error`.
    pub fn new(status: u16, message: impl Into<String>) -> Self {
        let kind = if (400..500).contains(&status) {
            "invalid_request_error"
        } else {
            "runtime_error"
        };
        Self {
            status,
            message: message.into(),
            kind: kind.to_owned(),
            param: None,
            code: None,
            display_message: None,
            retry_after_seconds: None,
            is_final: false,
        }
    }

    /// A failure of status 400 at a parameter of the request, with a code for programs.
    pub fn of_parameter(
        param: impl Into<Box<str>>,
        code: &str,
        message: impl Into<String>,
    ) -> Self {
        let mut failure = Self::new(400, message);
        failure.param = Some(param.into());
        failure.code = Some(code.to_owned());
        failure
    }

    /// A failure of status 500 without its cause.
    pub fn unexpected() -> Self {
        Self::new(500, "Error during processing the request")
    }

    /// Replaces the kind that follows from the status.
    #[must_use]
    pub fn kind(mut self, kind: &str) -> Self {
        kind.clone_into(&mut self.kind);
        self
    }

    /// Adds a message for the user.
    #[must_use]
    pub fn display(mut self, text: impl Into<String>) -> Self {
        self.display_message = Some(text.into());
        self
    }

    /// Forbids automatic repetitions, see [`RequestFailure::is_final`].
    #[must_use]
    pub const fn without_retry(mut self) -> Self {
        self.is_final = true;
        self.retry_after_seconds = None;
        self
    }

    /// The body on the wire: absent values are left out.
    pub fn body(&self) -> Value {
        let mut error = Map::new();
        error.insert("message".to_owned(), json!(self.message));
        error.insert("type".to_owned(), json!(self.kind));
        if let Some(param) = &self.param {
            error.insert("param".to_owned(), json!(param));
        }
        let code = self.code.clone();
        error.insert(
            "code".to_owned(),
            // The code is always text, even if it is the status (quickapps 4).
            json!(code.unwrap_or_else(|| self.status.to_string())),
        );
        if let Some(display) = &self.display_message {
            error.insert("display_message".to_owned(), json!(display));
        }
        json!({ "error": error })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_values_are_left_out_and_the_code_is_the_status() {
        assert_eq!(
            RequestFailure::new(400, "Api-Key header is required").body(),
            json!({"error": {
                "message": "Api-Key header is required",
                "type": "invalid_request_error",
                "code": "400",
            }})
        );
        assert_eq!(
            RequestFailure::unexpected().body()["error"]["type"],
            "runtime_error"
        );
    }

    #[test]
    fn a_failure_with_all_fields_is_written_with_all_of_them() {
        let mut failure = RequestFailure::new(429, "slow down")
            .display("Later.")
            .kind("rate");
        failure.param = Some("messages".into());
        failure.code = Some("rate_limit".to_owned());
        assert_eq!(
            failure.body(),
            json!({"error": {
                "message": "slow down", "type": "rate", "param": "messages", "code": "rate_limit",
                "display_message": "Later.",
            }})
        );
    }
}
