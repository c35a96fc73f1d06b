//! What the provider says when something fails, as kinds of failure.

use dray_http::{FailureKind, HttpResponse};
use dray_sandbox::exec::kind_of_text;
use dray_sandbox::{Error, ErrorKind};
use serde::Deserialize;
use serde_json::Value;

/// Most bytes of a refusal that are looked at.
const MAX_REFUSAL_BYTES: usize = 64 << 10;

/// A failed request, without an answer.
pub(crate) fn unanswered(error: dray_http::HttpError) -> Error {
    let kind = match error.failure {
        FailureKind::Connect(_) | FailureKind::Broken(_) => ErrorKind::Unavailable,
        FailureKind::Idle(_) => ErrorKind::Timeout,
        FailureKind::Body(cause) => {
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
    Error::new(kind, "no answer").caused_by(error)
}

/// A refusal in an answer or at the end of a stream. The code is a number of HTTP or a word of Connect.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Refusal {
    code: Value,
    message: String,
}

/// An answer that is none of success.
pub(crate) async fn refused(answer: HttpResponse) -> Error {
    let status = answer.status();
    let wait = answer.retry_after();
    let said = answer.bytes(MAX_REFUSAL_BYTES).await.unwrap_or_default();
    let refusal: Refusal = serde_json::from_slice(&said).unwrap_or_default();
    let error = refusal.into_error(status);
    match wait {
        Some(wait) if error.kind() == ErrorKind::RateLimited => error.with_retry_after(wait),
        _ => error,
    }
}

impl Refusal {
    /// With the status that it came with.
    pub(crate) fn into_error(self, status: u16) -> Error {
        let word = self.code.as_str().unwrap_or_default();
        let kind = of_word(word, &self.message).unwrap_or_else(|| of_status(status, &self.message));
        Error::new(
            kind,
            format!("status {status}, {}: {}", self.code, self.message),
        )
    }
}

/// By the code of Connect.
fn of_word(word: &str, message: &str) -> Option<ErrorKind> {
    let known = || of_text(message);
    Some(match word {
        "not_found" => ErrorKind::NotFound,
        "already_exists" => ErrorKind::Exists,
        "unauthenticated" => ErrorKind::Auth,
        "permission_denied" => ErrorKind::PermissionDenied,
        "resource_exhausted" => known().unwrap_or(ErrorKind::RateLimited),
        "deadline_exceeded" => ErrorKind::Timeout,
        "unimplemented" => ErrorKind::ToolMissing,
        "invalid_argument" | "failed_precondition" | "out_of_range" => {
            known().unwrap_or(ErrorKind::Protocol)
        }
        "unavailable" | "internal" | "unknown" | "aborted" | "canceled" | "data_loss" => {
            known().unwrap_or(ErrorKind::Unavailable)
        }
        _ => return None,
    })
}

/// By the status of HTTP.
fn of_status(status: u16, message: &str) -> ErrorKind {
    match status {
        400 => of_text(message).unwrap_or(ErrorKind::Protocol),
        401 | 403 => ErrorKind::Auth,
        404 | 410 => ErrorKind::NotFound,
        409 => ErrorKind::Exists,
        429 => ErrorKind::RateLimited,
        500 => of_text(message).unwrap_or(ErrorKind::Unavailable),
        507 => ErrorKind::NoSpace,
        408 | 501..=599 => ErrorKind::Unavailable,
        _ => ErrorKind::Protocol,
    }
}

/// By the words of the daemon, or of the system that it passes on.
fn of_text(message: &str) -> Option<ErrorKind> {
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
    use serde_json::json;

    use super::*;

    fn kind(status: u16, code: Value, message: &str) -> ErrorKind {
        let message = message.to_owned();
        Refusal { code, message }.into_error(status).kind()
    }

    #[test]
    fn every_status_has_a_kind() {
        for (status, message, expected) in [
            (400, "path '/a' is a directory", ErrorKind::IsDirectory),
            (400, "error looking up user", ErrorKind::Protocol),
            (401, "signature is already expired", ErrorKind::Auth),
            (404, "path '/a' does not exist", ErrorKind::NotFound),
            (406, "no acceptable encoding", ErrorKind::Protocol),
            (429, "slow down", ErrorKind::RateLimited),
            (
                500,
                "open /a: permission denied",
                ErrorKind::PermissionDenied,
            ),
            (500, "something else", ErrorKind::Unavailable),
            (502, "The sandbox was not found", ErrorKind::Unavailable),
            (507, "not enough disk space", ErrorKind::NoSpace),
        ] {
            assert_eq!(kind(status, json!(status), message), expected, "{status}");
        }
    }

    #[test]
    fn every_word_of_connect_has_a_kind() {
        for (word, message, expected) in [
            ("not_found", "", ErrorKind::NotFound),
            ("already_exists", "", ErrorKind::Exists),
            ("unauthenticated", "", ErrorKind::Auth),
            ("permission_denied", "", ErrorKind::PermissionDenied),
            ("resource_exhausted", "", ErrorKind::RateLimited),
            (
                "resource_exhausted",
                "write: no space left on device",
                ErrorKind::NoSpace,
            ),
            ("unavailable", "", ErrorKind::Unavailable),
            (
                "invalid_argument",
                "mkdir /a/b: not a directory",
                ErrorKind::NotDirectory,
            ),
            (
                "internal",
                "rename a b: invalid cross-device link",
                ErrorKind::Unavailable,
            ),
        ] {
            assert_eq!(kind(200, json!(word), message), expected, "{word}");
        }
    }

    #[test]
    fn the_failure_of_a_body_stays_what_it_is() {
        let cause = Error::new(ErrorKind::TooLarge, "mine");
        let error = unanswered(dray_http::HttpError {
            failure: FailureKind::Body(cause.into()),
            sent: dray_http::RequestProgress::Incomplete,
        });
        assert_eq!(
            (error.kind(), error.context()),
            (ErrorKind::TooLarge, "mine")
        );
    }
}
