//! The errors of a call of DIAL Core.

use std::time::Duration;

use dray_http::{FailureKind, HttpResponse};
use serde_json::Value;
use thiserror::Error;

/// Longest error body that is read, in bytes.
const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;

/// Longest time for an error body. The status is known, so a slow body must not delay the caller.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest text of an error that is kept, in characters.
const MAX_TEXT_CHARACTERS: usize = 500;

/// Longest delay that is read from a peer: a week.
const MAX_RETRY_AFTER_SECONDS: f64 = 604_800.0;

/// The kind of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The connection could not be made.
    Connect,
    /// No data arrived in time.
    Timeout,
    /// The connection broke before the response was complete.
    Broken,
    /// The response is longer than its limit.
    TooLarge,
    /// The response is malformed.
    Malformed,
    /// A status that is not 2xx; 412 excepted.
    Status,
    /// Status 412: the file exists already, or its content has changed.
    Conflict,
    /// The request cannot be built: an id is invalid, or a credential is not a header value.
    Request,
}

/// A failed call. `Display` is for the log.
#[derive(Debug, Error)]
#[error("DIAL Core: {message}")]
pub struct Error {
    /// Kind of the failure, for decisions.
    pub kind: ErrorKind,
    /// HTTP status, if any.
    pub status: Option<u16>,
    /// Code of the peer.
    pub code: Option<String>,
    /// Message of the peer, otherwise a description of the failure; at most 500 characters.
    pub message: String,
    /// Message of the peer for the user.
    pub display_message: Option<String>,
    /// Wait before another attempt, by the peer's `Retry-After`.
    pub retry_after: Option<Duration>,
    /// Size of a file above its limit, in bytes: as announced, or up to the first byte beyond the limit.
    pub size: Option<u64>,
    /// Whether `message` is the peer's.
    pub(crate) from_peer: bool,
    /// The failure of the HTTP client behind it.
    #[source]
    pub source: Option<Box<dray_http::HttpError>>,
}

impl Error {
    /// A failure of this kind that is described by `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            status: None,
            code: None,
            message: message.into(),
            display_message: None,
            retry_after: None,
            size: None,
            from_peer: false,
            source: None,
        }
    }

    /// The error for a response with this status and without details.
    pub fn refused(status: u16) -> Self {
        let kind = if status == 412 {
            ErrorKind::Conflict
        } else {
            ErrorKind::Status
        };
        let mut error = Self::new(kind, format!("status {status}"));
        error.status = Some(status);
        error
    }

    /// Adds the peer's own messages: one for programs, one for users.
    #[must_use]
    pub fn with_messages(mut self, message: Option<&str>, display_message: Option<&str>) -> Self {
        if let Some(message) = message {
            self.set_message(message);
        }
        self.display_message = display_message
            .map(cut_text)
            .filter(|text| !text.is_empty());
        self
    }

    /// The peer's message for users, otherwise its other message.
    pub fn peer_message(&self) -> Option<&str> {
        let message = self.from_peer.then_some(self.message.as_str());
        self.display_message.as_deref().or(message)
    }

    /// Makes the error from a response whose status is not 2xx. Reads a bounded part of its body.
    pub(crate) async fn of(response: HttpResponse) -> Self {
        let mut error = Self::refused(response.status());
        error.retry_after = retry_after(&response);
        // The status is enough; a body that cannot be read is ignored.
        let body = response.bytes(MAX_ERROR_BODY_BYTES);
        let Ok(Ok(body)) = tokio::time::timeout(ERROR_BODY_TIMEOUT, body).await else {
            return error;
        };
        match serde_json::from_slice::<Value>(&body) {
            Ok(body) => {
                // Gemini's API has its errors in a list.
                let body = body.get(0_usize).unwrap_or(&body);
                error.read_body(body.get("error").unwrap_or(body));
                // The form of FastAPI, in which many servers of models are written.
                if !error.from_peer
                    && let Some(detail) = body.get("detail").and_then(Value::as_str)
                {
                    error.set_message(detail);
                }
            }
            Err(_) => error.set_message(&String::from_utf8_lossy(&body)),
        }
        error
    }

    fn read_body(&mut self, body: &Value) {
        if let Some(text) = body.as_str().or_else(|| body.get("message")?.as_str()) {
            self.set_message(text);
        }
        self.code = body.get("code").and_then(|code| match code {
            Value::String(code) => Some(code.clone()),
            Value::Number(code) => Some(code.to_string()),
            _ => None,
        });
        let display = body.get("display_message").and_then(Value::as_str);
        self.display_message = display.map(cut_text).filter(|text| !text.is_empty());
    }

    fn set_message(&mut self, text: &str) {
        let text = cut_text(text);
        // An HTML page of a proxy explains nothing to a person.
        if !text.is_empty() && !text.starts_with('<') {
            self.message = text;
            self.from_peer = true;
        }
    }

    /// Whether a read may be repeated.
    pub(crate) fn is_transient(&self) -> bool {
        match self.kind {
            ErrorKind::Connect | ErrorKind::Broken => true,
            ErrorKind::Status => self
                .status
                .is_some_and(|status| status == 429 || status >= 500),
            // A timeout is not retried, because it has used all of the call's time.
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
        let mut converted = Self::new(kind, error.to_string());
        converted.source = Some(Box::new(error));
        converted
    }
}

/// The delay that a response requests. `retry-after-ms`, which services of models send beside or instead of
/// `Retry-After`, has priority, as in the packages of `OpenAI`. Otherwise it is `Retry-After`, in seconds or as a date.
/// A date counts from the `Date` of the response; without that, the result is `None`. For a date in the past, the delay
/// is zero.
fn retry_after(response: &HttpResponse) -> Option<Duration> {
    let in_milliseconds = || {
        let ms: f64 = response.header("retry-after-ms")?.trim().parse().ok()?;
        // `from_secs_f64` panics on other values, and the number comes from the peer.
        let is_delay = ms.is_finite() && ms > 0.0;
        is_delay.then(|| Duration::from_secs_f64((ms / 1000.0).min(MAX_RETRY_AFTER_SECONDS)))
    };
    in_milliseconds()
        .or_else(|| response.retry_after())
        .or_else(|| {
            let until = httpdate::parse_http_date(response.header("retry-after")?.trim()).ok()?;
            // The clocks of both sides may differ, so the peer's own time counts.
            let now = httpdate::parse_http_date(response.header("date")?).ok()?;
            Some(until.duration_since(now).unwrap_or_default())
        })
}

/// Trims a text and cuts it to 500 characters with `…` (quickapps 41).
pub(crate) fn cut_text(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(MAX_TEXT_CHARACTERS) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}
