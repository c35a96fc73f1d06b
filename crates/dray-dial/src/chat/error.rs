//! How a chat completion fails (quickapps 41).

use std::time::Duration;

use serde_json::Value;
use thiserror::Error as ThisError;

use crate::error::{Error, ErrorKind, cut_text};

/// What kind of failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChatKind {
    /// No connection.
    Connect,
    /// Nothing came in time.
    Timeout,
    /// The service answered, or said in its stream, this status.
    Status(u16),
    /// The stream broke off, or said that it failed without a status.
    Broken,
    /// The response is not a chat completion.
    Malformed,
}

/// A failed chat completion. `Display` is for the log.
#[derive(Debug, ThisError)]
#[error("chat completion: {message}")]
pub struct ChatError {
    /// What kind.
    pub kind: ChatKind,
    /// Code of the service, `content_filter` for instance.
    pub code: Option<String>,
    /// What the service says, else what happened.
    pub message: String,
    /// What the service wants the user to see; at most 500 characters.
    pub display_message: Option<String>,
    /// When to come back, as the service says.
    pub retry_after: Option<Duration>,
    /// What is behind it.
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

    /// Of an error event or an error in a whole answer.
    pub(super) fn told(error: &Value) -> Self {
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
        let status = code.as_deref().and_then(|code| code.parse().ok());
        let kind = match status {
            Some(status) if (400..600).contains(&status) => ChatKind::Status(status),
            _ => ChatKind::Broken,
        };
        let message = text("message").or_else(|| error.as_str().map(cut_text));
        let mut told = Self::new(
            kind,
            message.unwrap_or_else(|| "an error without a message".to_owned()),
        );
        told.code = code;
        told.display_message = text("display_message");
        told
    }

    /// The HTTP status, when there is one.
    pub const fn status(&self) -> Option<u16> {
        match self.kind {
            ChatKind::Status(status) => Some(status),
            _ => None,
        }
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
