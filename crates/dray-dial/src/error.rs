//! How a call of DIAL Core fails.

use std::time::Duration;

use dray_http::{FailureKind, HttpResponse};
use serde_json::Value;
use thiserror::Error;

/// Longest error body that is read, in bytes.
const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;

/// Longest text that is kept of one, in characters.
const LONGEST_TEXT: usize = 500;

/// What kind of failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// No connection.
    Connect,
    /// Nothing came in time.
    Timeout,
    /// The connection broke.
    Broken,
    /// The answer is longer than its limit.
    TooLarge,
    /// The answer is not what it should be.
    Malformed,
    /// A status that is not 2xx; 412 excepted.
    Status,
    /// Status 412: something else is there already, or has changed.
    Conflict,
    /// The call cannot be made: an id that is none, a credential that no header can hold.
    Request,
}

/// A failed call. `Display` is for the log.
#[derive(Debug, Error)]
#[error("DIAL Core: {message}")]
pub struct Error {
    /// What kind.
    pub kind: ErrorKind,
    /// HTTP status, when there was one.
    pub status: Option<u16>,
    /// Code of the peer.
    pub code: Option<String>,
    /// What the peer says, else what happened; at most 500 characters.
    pub message: String,
    /// What the peer wants the user to see.
    pub display_message: Option<String>,
    /// When to come back, as the peer says.
    pub retry_after: Option<Duration>,
    /// What is behind it.
    #[source]
    pub source: Option<Box<dray_http::HttpError>>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            status: None,
            code: None,
            message: message.into(),
            display_message: None,
            retry_after: None,
            source: None,
        }
    }

    /// Of an answer whose status is not 2xx; reads a bounded part of its body.
    pub(crate) async fn of(answer: HttpResponse) -> Self {
        let status = answer.status();
        let kind = if status == 412 {
            ErrorKind::Conflict
        } else {
            ErrorKind::Status
        };
        let mut error = Self::new(kind, format!("status {status}"));
        error.status = Some(status);
        error.retry_after = answer.retry_after();
        let Ok(body) = answer.bytes(MAX_ERROR_BODY_BYTES).await else {
            return error;
        };
        match serde_json::from_slice::<Value>(&body) {
            Ok(body) => error.take(body.get("error").unwrap_or(&body)),
            Err(_) => error.say(&String::from_utf8_lossy(&body)),
        }
        error
    }

    fn take(&mut self, body: &Value) {
        if let Some(text) = body.as_str().or_else(|| body.get("message")?.as_str()) {
            self.say(text);
        }
        self.code = body.get("code").and_then(|code| match code {
            Value::String(code) => Some(code.clone()),
            Value::Number(code) => Some(code.to_string()),
            _ => None,
        });
        let display = body.get("display_message").and_then(Value::as_str);
        self.display_message = display.map(cut_text).filter(|text| !text.is_empty());
    }

    fn say(&mut self, text: &str) {
        let text = cut_text(text);
        if !text.is_empty() && !text.starts_with('<') {
            self.message = text;
        }
    }

    /// Whether a read may be tried again.
    pub(crate) fn is_passing(&self) -> bool {
        match self.kind {
            ErrorKind::Connect | ErrorKind::Broken => true,
            ErrorKind::Status => self
                .status
                .is_some_and(|status| status == 429 || status >= 500),
            _ => false,
        }
    }
}

impl From<dray_http::HttpError> for Error {
    fn from(error: dray_http::HttpError) -> Self {
        let kind = match error.failure {
            FailureKind::Connect(_) => ErrorKind::Connect,
            FailureKind::Broken(_) => ErrorKind::Broken,
            FailureKind::Idle(_) => ErrorKind::Timeout,
            FailureKind::TooLong(_) => ErrorKind::TooLarge,
            FailureKind::Malformed(_) => ErrorKind::Malformed,
            FailureKind::Options(_) | FailureKind::Request(_) | FailureKind::Body(_) => {
                ErrorKind::Request
            }
        };
        let mut made = Self::new(kind, error.to_string());
        made.source = Some(Box::new(error));
        made
    }
}

/// Trimmed and cut to 500 characters with `…` (quickapps 41).
pub(crate) fn cut_text(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(LONGEST_TEXT) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}
