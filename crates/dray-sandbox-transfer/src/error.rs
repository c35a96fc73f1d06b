//! Failures of the service, and the faults for callers.

use dray_bus::KeyError;
use dray_presentation::size::human_size;
use dray_proto::convert::InvalidMessage;
use dray_sandbox::{ErrorKind, RetryMode};
use dray_store::ReadError;
use dray_types::{Fault, FaultCode};
use std::time::Duration;

use crate::command_error::CommandError;
use crate::store::store_fault;

/// Delay after a temporary failure for which the provider named none.
const SHORT_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Delay after a request to a sandbox that does not run. It is longer than callers wait for an unavailable dependency,
/// so they return the fault immediately; stored work is delivered again after it.
const STOPPED_RETRY_DELAY: Duration = Duration::from_secs(30);

/// The reason for which a request was not served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request breaks its contract.
    #[error(transparent)]
    Request(#[from] InvalidMessage),
    /// The session is not bound to a sandbox.
    #[error("no sandbox is bound to the session")]
    NoSandbox,
    /// The session is unknown.
    #[error("the session is unknown")]
    NoSession,
    /// The stored bytes do not decode as a session.
    #[error("the record of the session cannot be decoded")]
    InvalidSessionRecord(#[source] prost::DecodeError),
    /// The record of the session's uploads is not a list of uploads.
    #[error("the record of the session's uploads cannot be decoded")]
    InvalidUploadList(#[source] prost::DecodeError),
    /// No session is bound to the chat.
    #[error("no session is bound to the chat")]
    NoChat,
    /// The backend is not configured.
    #[error("the backend `{0}` does not exist")]
    NoBackend(String),
    /// No sandbox of the kind can have this name.
    #[error("no sandbox of the kind `{kind}` can have this name")]
    InvalidAddress {
        /// The kind in the address.
        kind: String,
        /// The reason of the backend, for the log.
        #[source]
        source: dray_sandbox::Error,
    },
    /// This tenant may not name sandboxes.
    #[error("the tenant may not name sandboxes by address")]
    AddressDenied,
    /// A program was not run, or ended without a result.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// Another writer kept changing the same record.
    #[error("other writers changed the record on every attempt")]
    Contended,
    /// The session has too many uploads that no agent has collected.
    #[error("the session has too many waiting uploads")]
    TooManyUploads,
    /// The stored file cannot be read.
    #[error("the stored file cannot be read")]
    Store(#[source] ReadError),
    /// The records cannot be reached.
    #[error("the records cannot be reached")]
    Keys(#[from] KeyError),
    /// A failure of the sandbox, or one about a file in it.
    #[error(transparent)]
    Sandbox(#[from] dray_sandbox::Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error {
            Error::Request(invalid) => invalid.into(),
            Error::NoSandbox => {
                Self::new(FaultCode::NotFound, "No sandbox belongs to this session.")
                    .detail("no_sandbox")
                    .advice("Bind one with `dray session bind SESSION --sandbox BACKEND:NAME`.")
            }
            Error::NoSession => Self::new(FaultCode::NotFound, "This session is not known.")
                .detail("no_session")
                .advice("Bind a sandbox or a chat to it with `dray session bind`."),
            Error::InvalidSessionRecord(_) => Self::new(
                FaultCode::Unavailable,
                "The record of this session cannot be read.",
            )
            .detail("invalid_session_record")
            .advice("Ask an operator to remove it with `dray session unbind SESSION` and to bind the session again."),
            Error::InvalidUploadList(_) => Self::new(
                FaultCode::Unavailable,
                "The record of this session's uploads cannot be read.",
            )
            .detail("invalid_upload_list")
            .advice("Ask an operator to remove the session's key from the bucket `dray_uploads`."),
            Error::NoChat => Self::new(FaultCode::NotFound, "No session belongs to this chat.")
                .detail("no_session")
                .advice("Bind the chat with `dray session bind SESSION --chat TARGET`."),
            Error::NoBackend(_) => Self::new(
                FaultCode::Unsupported,
                "Sandboxes of this kind are not set up here.",
            )
            .detail("no_backend")
            .advice("Ask an operator to set them up in section `sandbox-transfer` of the configuration."),
            Error::InvalidAddress { kind, .. } => invalid_address(&kind),
            Error::AddressDenied => Self::new(
                FaultCode::Denied,
                "Sandboxes may not be named here; only the session's own may be used.",
            )
            .detail("address_denied")
            .advice("Ask an operator to list the tenant in `sandbox-transfer.address_tenants`."),
            Error::Command(error) => error.into(),
            Error::Contended => Self::new(FaultCode::Unavailable, "Too many concurrent changes.")
                .detail("contended")
                .retry_after(Duration::from_millis(200)),
            Error::TooManyUploads => Self::new(
                FaultCode::RateLimited,
                "Too many uploads of this session wait for the agent.",
            )
            .detail("too_many_uploads")
            .retry_after(Duration::from_mins(1)),
            Error::Store(error) => error.into(),
            Error::Keys(error) => error.into(),
            Error::Sandbox(error) => sandbox(&error),
        }
    }
}

/// The fault of an address whose name no sandbox of this kind can have. Its detail is that of a file's name, as the
/// pages of the kinds say.
fn invalid_address(kind: &str) -> Fault {
    let (message, advice) = match kind {
        "local" => (
            "A local sandbox is named by an absolute path.",
            "Write the whole path, as in local:/srv/box.",
        ),
        _ => (
            "No sandbox of this kind can have this name.",
            "Check the name; docs/backends/ says how the sandboxes of each kind are named.",
        ),
    };
    Fault::new(FaultCode::InvalidArgument, message)
        .detail(ErrorKind::InvalidName.as_str())
        .advice(advice)
}

/// The fault code of each kind.
const fn code(kind: ErrorKind) -> FaultCode {
    match kind {
        ErrorKind::NotFound | ErrorKind::SandboxGone => FaultCode::NotFound,
        ErrorKind::IsDirectory
        | ErrorKind::NotDirectory
        | ErrorKind::NotRegular
        | ErrorKind::Exists
        | ErrorKind::Loop
        | ErrorKind::InvalidName => FaultCode::InvalidArgument,
        ErrorKind::PermissionDenied
        | ErrorKind::ReadOnly
        | ErrorKind::OutsideRoot
        | ErrorKind::DeniedPath
        | ErrorKind::Auth => FaultCode::Denied,
        ErrorKind::TooLarge => FaultCode::TooLarge,
        ErrorKind::RateLimited => FaultCode::RateLimited,
        ErrorKind::ToolMissing => FaultCode::Unsupported,
        ErrorKind::Timeout => FaultCode::Timeout,
        ErrorKind::NoSpace
        | ErrorKind::ChangedDuringTransfer
        | ErrorKind::Corrupted
        | ErrorKind::Truncated
        | ErrorKind::SandboxStopped
        | ErrorKind::SandboxPaused
        | ErrorKind::Unavailable
        | ErrorKind::Protocol => FaultCode::Unavailable,
    }
}

/// Advice for each kind; empty where the sentence says enough.
const fn advice(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotFound => "Check the path; relative paths begin in the working directory.",
        ErrorKind::IsDirectory => "Name a file in it, or ask for the directory as an archive.",
        ErrorKind::NotRegular => "Copy its content into a regular file first.",
        ErrorKind::PermissionDenied => {
            "Change the permissions inside the sandbox, or use another path."
        }
        ErrorKind::ReadOnly => "Use a directory that can be written.",
        ErrorKind::OutsideRoot | ErrorKind::DeniedPath => {
            "Copy what is needed to an allowed directory; an operator can allow more in `sandbox-transfer.policy`."
        }
        ErrorKind::TooLarge => "Split or compress the file.",
        ErrorKind::NoSpace => "Free some space and try again.",
        ErrorKind::Exists => "Choose another name, or allow renaming or overwriting.",
        ErrorKind::InvalidName => "Use a shorter or simpler name.",
        ErrorKind::ChangedDuringTransfer => "Try again when nothing writes to the file.",
        ErrorKind::SandboxGone => {
            "Check the name of the sandbox, or bind the session to one that exists."
        }
        ErrorKind::SandboxStopped | ErrorKind::SandboxPaused => "Start the sandbox again.",
        ErrorKind::Auth => "Ask an operator to check the credentials or the host key.",
        ErrorKind::NotDirectory
        | ErrorKind::Loop
        | ErrorKind::Corrupted
        | ErrorKind::Truncated
        | ErrorKind::ToolMissing
        | ErrorKind::RateLimited
        | ErrorKind::Unavailable
        | ErrorKind::Timeout
        | ErrorKind::Protocol => "",
    }
}

/// Makes the fault of a sandbox error, with its kind as detail and without its context. If the store failed, this is
/// the store's own fault: the sandbox is not to blame, and work that needs the store is parked.
pub fn sandbox(error: &dray_sandbox::Error) -> Fault {
    if let Some(fault) = store_fault(error) {
        return fault.clone();
    }
    let kind = error.kind();
    let message = match error.numbers() {
        // A listing stops at its limit, so the number that was found is not the total.
        Some((_, allowed)) if error.counts_entries() => {
            format!("The directory has more entries than the limit of {allowed}.")
        }
        Some((found, allowed)) if kind == ErrorKind::TooLarge => format!(
            "The file has {}, more than the limit of {}.",
            human_size(found),
            human_size(allowed)
        ),
        _ => kind.sentence().to_owned(),
    };
    let (message, advice) = match kind {
        ErrorKind::NoSpace if error.is_of_this_host() && error.retry_after().is_some() => (
            "Other transfers use the space for files in transit on this host.".to_owned(),
            "Try again when they have ended; an operator can raise `sandbox-transfer.spool_limit`.",
        ),
        ErrorKind::NoSpace if error.is_of_this_host() => (
            "The disk of this host has no space left.".to_owned(),
            advice(kind),
        ),
        ErrorKind::Unavailable if error.is_of_this_host() => (
            "A file of this host cannot be used.".to_owned(),
            "Check its disk and the directory; services use `sandbox-transfer.spool_directory`.",
        ),
        ErrorKind::Unavailable if let Some(cause) = error.unreachable_cause() => (
            format!("The sandbox cannot be reached: {}.", cause.reason()),
            cause.advice(),
        ),
        ErrorKind::PermissionDenied if error.is_of_this_host() => (
            "This user may not access the file of this host.".to_owned(),
            "Change its permissions, or use another path.",
        ),
        ErrorKind::ReadOnly if error.is_of_this_host() => (
            "The file system of this host is read-only.".to_owned(),
            advice(kind),
        ),
        ErrorKind::OutsideRoot if error.works_in_root() => (
            "The sandbox works in `/`, and that alone permits no path in it.".to_owned(),
            "Name a directory that is allowed, such as /tmp or the home of the user; or bind the session with another \
             working directory, or list directories in `sandbox-transfer.policy.roots`. For containers, `WORKDIR` in \
             the image sets the directory.",
        ),
        _ if error.counts_entries() => (
            message,
            "Copy its subdirectories one at a time, or pack them into one file first.",
        ),
        _ => (message, advice(kind)),
    };
    let fault = Fault::new(code(kind), message)
        .detail(kind.as_str())
        .advice(advice);
    match retry_delay(error) {
        Some(delay) => fault.retry_after(delay),
        None => fault,
    }
}

/// The delay after which the same request may succeed; `None` if it fails again.
fn retry_delay(error: &dray_sandbox::Error) -> Option<Duration> {
    if let Some(delay) = error.retry_after() {
        return Some(delay);
    }
    if let Some(cause) = error.unreachable_cause() {
        return cause.retry_after();
    }
    match (error.kind(), error.kind().retry_mode()) {
        // A person or a program starts it again, which callers that wait for the response cannot expect.
        (ErrorKind::SandboxStopped | ErrorKind::SandboxPaused, _) => Some(STOPPED_RETRY_DELAY),
        // The provider named no delay, but the failure is temporary; a short delay keeps callers from repeating
        // immediately.
        (_, RetryMode::BackOff(_)) => Some(SHORT_RETRY_DELAY),
        (_, RetryMode::Resolve | RetryMode::Never | RetryMode::OtherTransport) => None,
    }
}

#[cfg(test)]
mod tests {
    use dray_types::{RetryAdvice, UnreachableCause};

    use super::*;

    #[test]
    fn r_15_no_context_of_an_error_reaches_an_agent() {
        for kind in ErrorKind::ALL {
            let error = dray_sandbox::Error::new(kind, "/var/lib/docker/overlay2/abc token=xyz");
            let fault = sandbox(&error);
            let text = format!("{fault:?}");
            assert!(
                !text.contains("overlay2") && !text.contains("xyz"),
                "{text}"
            );
            assert_eq!(fault.detail, kind.as_str());
        }
    }

    #[test]
    fn a_sandbox_that_works_in_its_root_is_named_as_the_reason() {
        let outside = || dray_sandbox::Error::new(ErrorKind::OutsideRoot, "/data.txt");
        let fault = sandbox(&outside().with_root_as_working_directory());
        assert!(fault.message.contains("works in `/`"), "{fault:?}");
        assert!(fault.advice.contains("WORKDIR"), "{fault:?}");
        assert_eq!(fault.detail, "outside_root");
        assert_eq!(
            sandbox(&outside()).message,
            ErrorKind::OutsideRoot.sentence()
        );
    }

    #[test]
    fn the_cause_of_an_unreachable_sandbox_is_said_and_decides_whether_to_repeat() {
        let unavailable = || dray_sandbox::Error::new(ErrorKind::Unavailable, "connecting");
        for (cause, delay_seconds) in [
            (UnreachableCause::NoEngine, Some(30)),
            (UnreachableCause::UnknownName, Some(30)),
            (UnreachableCause::UntrustedCertificate, Some(30)),
            (UnreachableCause::Refused, Some(1)),
            (UnreachableCause::NoResponse, Some(1)),
            (UnreachableCause::NotPermitted, None),
            (UnreachableCause::NoClientProgram, None),
        ] {
            let fault = sandbox(&unavailable().unreachable_because(Some(cause)));
            assert!(fault.message.contains(cause.reason()), "{fault:?}");
            assert_eq!(fault.advice, cause.advice());
            let delay = delay_seconds.map(Duration::from_secs);
            let expected = delay.map_or(RetryAdvice::Never, RetryAdvice::After);
            assert_eq!(fault.retry, expected, "{fault:?}");
            assert_eq!(fault.detail, "unavailable");
        }
        assert_eq!(
            sandbox(&unavailable()).message,
            ErrorKind::Unavailable.sentence()
        );
    }

    #[test]
    fn a_sandbox_that_does_not_run_is_not_worth_a_repetition_within_seconds() {
        for kind in [ErrorKind::SandboxStopped, ErrorKind::SandboxPaused] {
            let stopped = || dray_sandbox::Error::new(kind, "asking");
            let delay = |error| match sandbox(&error).retry {
                RetryAdvice::After(delay) => Some(delay.as_secs()),
                RetryAdvice::Never => None,
            };
            assert_eq!(delay(stopped()), Some(30), "{kind}");
            // A container that is being started.
            let starting = stopped().with_retry_after(Duration::from_secs(5));
            assert_eq!(delay(starting), Some(5), "{kind}");
        }
        let gone = dray_sandbox::Error::new(ErrorKind::SandboxGone, "asking");
        assert!(!sandbox(&gone).is_retryable());
    }

    #[test]
    fn a_full_disk_of_this_host_is_not_that_of_the_sandbox() {
        let full = || dray_sandbox::Error::new(ErrorKind::NoSpace, "full");
        assert_eq!(
            sandbox(&full().of_this_host()).message,
            "The disk of this host has no space left."
        );
        assert_eq!(sandbox(&full()).message, ErrorKind::NoSpace.sentence());
        let shared = full().of_this_host().with_retry_after(SHORT_RETRY_DELAY);
        let fault = sandbox(&shared);
        assert!(fault.message.starts_with("Other transfers"), "{fault:?}");
        assert!(fault.is_retryable(), "{fault:?}");
        let failed = dray_sandbox::Error::new(ErrorKind::Unavailable, "spool").of_this_host();
        assert_eq!(
            sandbox(&failed).message,
            "A file of this host cannot be used."
        );
    }

    #[test]
    fn too_large_carries_both_numbers() {
        let fault = sandbox(&dray_sandbox::Error::too_large(2048, 1024));
        assert_eq!(
            fault.message,
            "The file has 2.0 KB, more than the limit of 1.0 KB."
        );
        assert!(!fault.is_retryable());
    }

    #[test]
    fn the_limit_of_entries_is_not_reported_in_bytes() {
        let fault = sandbox(&dray_sandbox::Error::too_many_entries(3, 2));
        assert_eq!(
            fault.message,
            "The directory has more entries than the limit of 2."
        );
        assert!(fault.advice.starts_with("Copy its subdirectories"));
        assert_eq!(fault.detail, "too_large");
    }
}
