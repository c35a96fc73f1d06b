//! What the provider says when something fails, as kinds of failure.

use dray_http::{FailureKind, HttpResponse};
use dray_sandbox::exec::kind_of_text;
use dray_sandbox::{Error, ErrorKind};
use serde::Deserialize;

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

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Refusal {
    message: String,
}

/// An answer that is none of success.
pub(crate) async fn refused(answer: HttpResponse) -> Error {
    let status = answer.status();
    let wait = answer.retry_after();
    let said = answer.bytes(MAX_REFUSAL_BYTES).await.unwrap_or_default();
    let refusal: Refusal = serde_json::from_slice(&said).unwrap_or_default();
    let kind = kind(status, &refusal.message);
    let error = Error::new(kind, format!("status {status}: {}", refusal.message));
    match wait {
        Some(wait) if kind == ErrorKind::RateLimited => error.with_retry_after(wait),
        _ => error,
    }
}

/// By the words of the toolbox, or of the system that it passes on, and by the status.
fn kind(status: u16, message: &str) -> ErrorKind {
    let lower = message.to_ascii_lowercase();
    let known = if lower.contains("is a directory") {
        Some(ErrorKind::IsDirectory)
    } else {
        kind_of_text(message)
    };
    match status {
        401 => ErrorKind::Auth,
        403 => known.unwrap_or(ErrorKind::Auth),
        404 | 410 => ErrorKind::NotFound,
        409 => ErrorKind::Exists,
        429 => ErrorKind::RateLimited,
        507 => ErrorKind::NoSpace,
        400 => known.unwrap_or(ErrorKind::Protocol),
        500 => known.unwrap_or(ErrorKind::Unavailable),
        408 | 501..=599 => ErrorKind::Unavailable,
        _ => ErrorKind::Protocol,
    }
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
            (400, "path is required", ErrorKind::Protocol),
            (401, "unauthorized", ErrorKind::Auth),
            (403, "forbidden", ErrorKind::Auth),
            (
                403,
                "open /a: permission denied",
                ErrorKind::PermissionDenied,
            ),
            (404, "file not found", ErrorKind::NotFound),
            (409, "exists", ErrorKind::Exists),
            (429, "", ErrorKind::RateLimited),
            (500, "write /a: no space left on device", ErrorKind::NoSpace),
            (500, "", ErrorKind::Unavailable),
            (502, "", ErrorKind::Unavailable),
            (507, "", ErrorKind::NoSpace),
            (302, "", ErrorKind::Protocol),
        ] {
            assert_eq!(kind(status, message), expected, "{status} {message}");
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
