//! Error kinds for the failures that a provider reports.

use dray_http::{FailureKind, HttpError, HttpResponse};
use dray_sandbox::{Error, ErrorKind};
use dray_sandbox_exec::kind_of_text;
use dray_types::UnreachableCause;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Most bytes of a refusal that are read.
const MAX_REFUSAL_BYTES: usize = 64 << 10;

/// The error for a request that got no response.
pub fn unanswered(error: HttpError) -> Error {
    let kind = match error.failure {
        FailureKind::Connect(_) | FailureKind::Broken(_) => {
            let cause = UnreachableCause::of_connection(&error);
            return Error::new(ErrorKind::Unavailable, "no response")
                .unreachable_because(cause)
                .caused_by(error);
        }
        FailureKind::Idle(_) => ErrorKind::Timeout,
        FailureKind::Body(cause) => {
            // The source of an upload failed: its own error says more than that of the request.
            return match cause.downcast::<Error>() {
                Ok(error) => *error,
                Err(cause) => Error::new(ErrorKind::Truncated, "the body failed").caused_by(cause),
            };
        }
        FailureKind::TooLong(_)
        | FailureKind::Malformed(_)
        | FailureKind::Options(_)
        | FailureKind::Request(_) => ErrorKind::Protocol,
    };
    Error::new(kind, "no response").caused_by(error)
}

/// The JSON body of a refusal. One that is not JSON counts as the default.
pub trait Refusal: DeserializeOwned + Default + Send {
    /// Converts to an error. `status` is the HTTP status of the response.
    fn into_error(self, status: u16) -> Error;
}

/// A refusal with only a message.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct MessageRefusal {
    message: String,
}

impl Refusal for MessageRefusal {
    fn into_error(self, status: u16) -> Error {
        let kind = kind_of_status(status, &self.message);
        Error::new(kind, format!("status {status}: {}", self.message))
    }
}

/// Converts a response with a status other than success to an error.
pub async fn refused<R: Refusal>(response: HttpResponse) -> Error {
    let status = response.status();
    let wait = response.retry_after();
    // A body that breaks still leaves the status, which decides then.
    let body = response.bytes(MAX_REFUSAL_BYTES).await.unwrap_or_default();
    let refusal: R = serde_json::from_slice(&body).unwrap_or_default();
    let error = refusal.into_error(status);
    match wait {
        Some(wait) if error.kind() == ErrorKind::RateLimited => error.with_retry_after(wait),
        _ => error,
    }
}

/// The kind for an HTTP status. `message` decides where a status has several causes.
pub fn kind_of_status(status: u16, message: &str) -> ErrorKind {
    let kind_by_message = || kind_of_words(message);
    match status {
        401 => ErrorKind::Auth,
        403 => kind_by_message().unwrap_or(ErrorKind::Auth),
        404 | 410 => ErrorKind::NotFound,
        409 => ErrorKind::Exists,
        429 => ErrorKind::RateLimited,
        507 => ErrorKind::NoSpace,
        400 => kind_by_message().unwrap_or(ErrorKind::Protocol),
        500 => kind_by_message().unwrap_or(ErrorKind::Unavailable),
        408 | 501..=599 => ErrorKind::Unavailable,
        _ => ErrorKind::Protocol,
    }
}

/// The kind for a message of the provider, or of the operating system that the provider passes on.
pub fn kind_of_words(message: &str) -> Option<ErrorKind> {
    let lower = message.to_ascii_lowercase();
    if lower.contains("is a directory") {
        return Some(ErrorKind::IsDirectory);
    }
    if lower.contains("not a regular file") {
        return Some(ErrorKind::NotRegular);
    }
    kind_of_text(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_a_kind() {
        for (status, message, expected) in [
            (
                400,
                "path must be a file: is a directory",
                ErrorKind::IsDirectory,
            ),
            (400, "'/a' is not a regular file", ErrorKind::NotRegular),
            (400, "path is required", ErrorKind::Protocol),
            (401, "unauthorized", ErrorKind::Auth),
            (403, "forbidden", ErrorKind::Auth),
            (
                403,
                "open /a: permission denied",
                ErrorKind::PermissionDenied,
            ),
            (404, "file not found", ErrorKind::NotFound),
            (406, "no acceptable encoding", ErrorKind::Protocol),
            (409, "exists", ErrorKind::Exists),
            (429, "", ErrorKind::RateLimited),
            (500, "write /a: no space left on device", ErrorKind::NoSpace),
            (500, "", ErrorKind::Unavailable),
            (502, "", ErrorKind::Unavailable),
            (507, "", ErrorKind::NoSpace),
            (302, "", ErrorKind::Protocol),
        ] {
            let message = message.to_owned();
            let error = MessageRefusal { message }.into_error(status);
            assert_eq!(error.kind(), expected, "{error}");
        }
    }

    #[test]
    fn an_error_of_the_body_is_returned_unchanged() {
        let cause = Error::new(ErrorKind::TooLarge, "mine");
        let error = unanswered(HttpError {
            failure: FailureKind::Body(cause.into()),
            sent: dray_http::RequestProgress::Incomplete,
        });
        assert_eq!(
            (error.kind(), error.context()),
            (ErrorKind::TooLarge, "mine")
        );
    }
}
