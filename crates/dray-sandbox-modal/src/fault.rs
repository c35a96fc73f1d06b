//! Refusals of the provider as kinds of failure (sandbox-transfer 7.3).

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use dray_sandbox::{Error, ErrorKind};
use prost::Message as _;
use tonic::{Code, Status};

use crate::wire::{RetryPolicy, RpcStatus};

/// Longest message in bytes that is kept for the operator.
const MAX_MESSAGE_BYTES: usize = 1024;
/// Shortest wait, for smaller values of the provider.
const MIN_WAIT_SECONDS: f32 = 0.1;
/// Longest wait, for larger values of the provider.
const MAX_WAIT_SECONDS: f32 = 3600.0;

/// A refusal in the provider's own words, for the operator only.
#[derive(Debug)]
struct Refusal {
    code: Code,
    message: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.code, self.message.escape_debug())
    }
}

impl StdError for Refusal {}

/// The error for a status. `doing` names the operation and becomes the context of the error.
pub(crate) fn failed(doing: &'static str, status: &Status) -> Error {
    let message = status.message();
    let end = message.floor_char_boundary(MAX_MESSAGE_BYTES);
    let refusal = Refusal {
        code: status.code(),
        message: message.get(..end).unwrap_or_default().to_owned(),
    };
    let wait = retry_delay(status);
    let error = Error::new(kind(status.code(), wait.is_some()), doing).caused_by(refusal);
    match wait {
        Some(wait) => error.with_retry_after(wait),
        None => error,
    }
}

fn kind(code: Code, has_policy: bool) -> ErrorKind {
    match code {
        Code::NotFound => ErrorKind::SandboxGone,
        Code::FailedPrecondition => ErrorKind::SandboxStopped,
        Code::DeadlineExceeded => ErrorKind::Timeout,
        Code::PermissionDenied | Code::Unauthenticated => ErrorKind::Auth,
        Code::ResourceExhausted if has_policy => ErrorKind::RateLimited,
        Code::Unavailable | Code::Cancelled | Code::Internal | Code::Unknown | Code::Aborted => {
            ErrorKind::Unavailable
        }
        // Without a retry policy the resource stays exhausted, so the request is not repeated.
        Code::ResourceExhausted
        | Code::Ok
        | Code::InvalidArgument
        | Code::AlreadyExists
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::DataLoss => ErrorKind::Protocol,
    }
}

/// Whether the same request may succeed a moment later.
pub(crate) fn is_transient(code: Code) -> bool {
    matches!(
        code,
        Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Internal
            | Code::Unknown
            | Code::Cancelled
    )
}

/// The delay that the provider requests: only `RESOURCE_EXHAUSTED` has one, in a retry policy.
pub(crate) fn retry_delay(status: &Status) -> Option<Duration> {
    if status.code() != Code::ResourceExhausted {
        return None;
    }
    let rpc_status = RpcStatus::decode(status.details()).ok()?;
    let policy = rpc_status
        .details
        .iter()
        .find(|detail| detail.type_url.ends_with("/modal.client.RPCRetryPolicy"))?;
    let seconds = RetryPolicy::decode(policy.value.as_slice())
        .ok()?
        .retry_after_secs;
    // `from_secs_f32` panics for values that are not finite.
    let seconds = if seconds.is_finite() {
        seconds
    } else {
        MAX_WAIT_SECONDS
    };
    Some(Duration::from_secs_f32(
        seconds.clamp(MIN_WAIT_SECONDS, MAX_WAIT_SECONDS),
    ))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::wire::StatusDetail;

    pub(crate) fn throttled(seconds: f32) -> Status {
        let policy = RetryPolicy {
            retry_after_secs: seconds,
        };
        let details = RpcStatus {
            code: 8,
            message: "slower".to_owned(),
            details: vec![StatusDetail {
                type_url: "type.googleapis.com/modal.client.RPCRetryPolicy".to_owned(),
                value: policy.encode_to_vec(),
            }],
        };
        let details = Bytes::from(details.encode_to_vec());
        Status::with_details(Code::ResourceExhausted, "slower", details)
    }

    #[test]
    fn every_status_has_its_kind() {
        for (code, expected) in [
            (Code::NotFound, ErrorKind::SandboxGone),
            (Code::FailedPrecondition, ErrorKind::SandboxStopped),
            (Code::DeadlineExceeded, ErrorKind::Timeout),
            (Code::PermissionDenied, ErrorKind::Auth),
            (Code::Unauthenticated, ErrorKind::Auth),
            (Code::Unavailable, ErrorKind::Unavailable),
            (Code::Internal, ErrorKind::Unavailable),
            (Code::Cancelled, ErrorKind::Unavailable),
            (Code::InvalidArgument, ErrorKind::Protocol),
            (Code::Unimplemented, ErrorKind::Protocol),
        ] {
            assert_eq!(failed("testing", &Status::new(code, "x")).kind(), expected);
        }
    }

    #[test]
    fn exhaustion_is_for_a_time_only_when_the_provider_says_so() {
        let error = failed("testing", &throttled(2.5));
        assert_eq!(error.kind(), ErrorKind::RateLimited);
        assert_eq!(error.retry_after(), Some(Duration::from_millis(2500)));
        let bare = failed("testing", &Status::resource_exhausted("full"));
        assert_eq!(
            (bare.kind(), bare.retry_after()),
            (ErrorKind::Protocol, None)
        );
    }

    #[test]
    fn absurd_waits_are_bounded() {
        assert_eq!(
            retry_delay(&throttled(-5.0)),
            Some(Duration::from_secs_f32(0.1))
        );
        assert_eq!(
            retry_delay(&throttled(f32::INFINITY)),
            Some(Duration::from_hours(1))
        );
        assert_eq!(
            retry_delay(&throttled(f32::NAN)),
            Some(Duration::from_hours(1))
        );
        let torn = Status::with_details(Code::ResourceExhausted, "x", Bytes::from_static(b"\xff"));
        assert_eq!(retry_delay(&torn), None);
    }

    #[test]
    fn the_words_of_the_provider_are_cut_and_escaped() {
        let long = format!("a\nb{}", "x".repeat(5000));
        let error = failed("testing", &Status::unknown(long));
        let rpc_status = error.source().unwrap().to_string();
        assert!(
            rpc_status.starts_with("Unknown: a\\nbx") && rpc_status.len() < 1100,
            "{rpc_status}"
        );
        assert_eq!(error.context(), "testing");
    }
}
