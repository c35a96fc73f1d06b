//! The errors of a chat completion (quickapps 41).

use std::time::Duration;

use serde_json::Value;
use thiserror::Error as ThisError;

use crate::error::{Error, ErrorKind, cut_text};

/// The kind of a failure of a chat completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChatKind {
    /// The connection could not be made.
    Connect,
    /// No data arrived in time.
    Timeout,
    /// The service responded with this status, or reported it in its stream.
    Status(u16),
    /// The stream was interrupted, or reported a failure without a status.
    Broken,
    /// The response is not a chat completion.
    Malformed,
}

/// A failed chat completion. `Display` is for the log.
#[derive(Debug, ThisError)]
#[error("chat completion: {message}")]
pub struct ChatError {
    /// Kind of the failure, for decisions.
    pub kind: ChatKind,
    /// Code of the service, `content_filter` for instance.
    pub code: Option<String>,
    /// Message of the service, otherwise a description of the failure.
    pub message: String,
    /// Message of the service for the user; at most 500 characters.
    pub display_message: Option<String>,
    /// Wait before another attempt, by the service's `Retry-After`.
    pub retry_after: Option<Duration>,
    /// The error of the HTTP call behind it.
    #[source]
    pub source: Option<Box<Error>>,
}

impl ChatError {
    pub(crate) fn new(kind: ChatKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            code: None,
            message: message.into(),
            display_message: None,
            retry_after: None,
            source: None,
        }
    }

    /// An answer that its service broke off, and did not report as an error.
    pub fn broken_off() -> Self {
        Self::new(ChatKind::Broken, "the service broke off the answer")
    }

    /// Makes the error from an error event or from an error in a complete response.
    pub(super) fn from_value(error: &Value) -> Self {
        let text = |name| {
            error
                .get(name)
                .and_then(Value::as_str)
                .map(cut_text)
                .filter(|text| !text.is_empty())
        };
        let code = match error.get("code") {
            Some(Value::String(code)) => Some(code.clone()),
            Some(Value::Number(code)) => Some(code.to_string()),
            _ => None,
        };
        // Some services put the HTTP status into `code` alone (quickapps 41).
        let status = code.as_deref().and_then(|code| code.parse().ok());
        let kind = match status.or_else(|| status_of_kind(error)) {
            // Other numbers are internal codes of the service.
            Some(status) if (400..600).contains(&status) => ChatKind::Status(status),
            _ => ChatKind::Broken,
        };
        let message = text("message").or_else(|| error.as_str().map(cut_text));
        let mut peer_error = Self::new(
            kind,
            message.unwrap_or_else(|| "an error without a message".to_owned()),
        );
        peer_error.code = code;
        peer_error.display_message = text("display_message");
        peer_error
    }

    /// Whether the message is the service's own. A page of HTML, for instance, has none.
    pub fn has_peer_message(&self) -> bool {
        self.source.as_ref().is_none_or(|source| source.from_peer)
    }

    /// The HTTP status, if any.
    pub const fn status(&self) -> Option<u16> {
        match self.kind {
            ChatKind::Status(status) => Some(status),
            _ => None,
        }
    }
}

/// The HTTP status that `OpenAI`'s and Anthropic's APIs have for a `type` of errors. An error in a stream has no other
/// status.
fn status_of_kind(error: &Value) -> Option<u16> {
    match error.get("type")?.as_str()? {
        "invalid_request_error" => Some(400),
        "rate_limit_error" | "insufficient_quota" => Some(429),
        "overloaded_error" => Some(503),
        _ => None,
    }
}

impl From<Error> for ChatError {
    fn from(error: Error) -> Self {
        let kind = match (error.kind, error.status) {
            (_, Some(status)) => ChatKind::Status(status),
            (ErrorKind::Connect, _) => ChatKind::Connect,
            (ErrorKind::Timeout, _) => ChatKind::Timeout,
            (ErrorKind::Broken, _) => ChatKind::Broken,
            _ => ChatKind::Malformed,
        };
        Self {
            kind,
            code: error.code.clone(),
            message: error.message.clone(),
            display_message: error.display_message.clone(),
            retry_after: error.retry_after,
            source: Some(Box::new(error)),
        }
    }
}

impl From<ChatError> for Error {
    fn from(error: ChatError) -> Self {
        let ChatError {
            kind,
            code,
            message,
            display_message,
            source,
            ..
        } = error;
        if let Some(source) = source {
            return *source;
        }
        let mut converted = match kind {
            ChatKind::Status(status) => Self::refused(status).with_messages(Some(&message), None),
            ChatKind::Connect => Self::new(ErrorKind::Connect, message),
            ChatKind::Timeout => Self::new(ErrorKind::Timeout, message),
            ChatKind::Broken => Self::new(ErrorKind::Broken, message),
            ChatKind::Malformed => Self::new(ErrorKind::Malformed, message),
        };
        converted.code = code;
        converted.display_message = display_message;
        converted
    }
}
