//! Refusals of the engine as kinds of failure (sandbox-transfer 1.3).
//!
//! The engine distinguishes kinds only by sentences. They are compared at their beginning and end, where no name from
//! the sandbox can occur. The sentence itself goes to the operator's log as the cause; it may hold host paths.

use std::error::Error as StdError;
use std::fmt;

use bollard::errors::Error as BollardError;
use dray_sandbox::{Error, ErrorKind};
use dray_types::UnreachableCause;

/// Longest sentence in bytes that is kept.
const MAX_MESSAGE_BYTES: usize = 1024;

/// A refusal in the engine's own words, for the operator only.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: u16,
    message: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = self.message.escape_debug();
        write!(f, "status {}: {message}", self.status)
    }
}

impl StdError for Refusal {}

/// Ends of sentences, most of them the text of an error number.
const ERROR_TEXTS: &[(&str, ErrorKind)] = &[
    ("no space left on device", ErrorKind::NoSpace),
    ("disk quota exceeded", ErrorKind::NoSpace),
    ("is marked read-only", ErrorKind::ReadOnly),
    ("read-only file system", ErrorKind::ReadOnly),
    ("not a directory", ErrorKind::NotDirectory),
    ("is a directory", ErrorKind::IsDirectory),
    ("no such file or directory", ErrorKind::NotFound),
    ("permission denied", ErrorKind::PermissionDenied),
    ("operation not permitted", ErrorKind::PermissionDenied),
    ("file name too long", ErrorKind::InvalidName),
    ("too many levels of symbolic links", ErrorKind::Loop),
    ("unexpected EOF", ErrorKind::Truncated),
    ("invalid tar header", ErrorKind::Protocol),
    ("path cannot be empty", ErrorKind::InvalidName),
];

/// Makes the error of a refusal, with a status above 399.
pub(crate) fn refused(action: &'static str, status: u16, message: &str) -> Error {
    let end = message.floor_char_boundary(MAX_MESSAGE_BYTES);
    let message = message.get(..end).unwrap_or_default().trim();
    let refusal = Refusal {
        status,
        message: message.to_owned(),
    };
    Error::new(kind(status, message), action).caused_by(refusal)
}

fn kind(status: u16, message: &str) -> ErrorKind {
    let begins = |with: &str| {
        let beginning = message.get(..with.len());
        beginning.is_some_and(|beginning| beginning.eq_ignore_ascii_case(with))
    };
    // This case comes first: a missing container also causes every other message about its files.
    if begins("no such container") || is_missing_in_podman(message) {
        return ErrorKind::SandboxGone;
    }
    // Podman's sentence for a command in a container that has ended, with status 409 or 500.
    if message.ends_with(": container state improper") {
        return ErrorKind::SandboxStopped;
    }
    if status == 409 {
        return conflict(message);
    }
    if message.starts_with("evalSymlinksInScope: too many links")
        || message.contains(": evalSymlinksInScope: too many links")
    {
        return ErrorKind::Loop;
    }
    let ending = ERROR_TEXTS
        .iter()
        .find(|(ending, _)| message.ends_with(ending))
        .map(|(_, kind)| *kind);
    match (status, ending) {
        (401, _) | (403, None) => ErrorKind::Auth,
        (404, _) => ErrorKind::NotFound,
        (429, _) => ErrorKind::RateLimited,
        (_, Some(kind)) => kind,
        (500.., None) => ErrorKind::Unavailable,
        (_, None) => ErrorKind::Protocol,
    }
}

/// Whether the message is Podman's sentence for a container that does not exist.
fn is_missing_in_podman(message: &str) -> bool {
    message.starts_with("no container with name or ID ") && message.ends_with(": no such container")
}

/// The kind of a 409: the container exists, and its state does not allow the call.
fn conflict(message: &str) -> ErrorKind {
    if message.contains("is paused") {
        ErrorKind::SandboxPaused
    } else if message.contains("removal") || message.contains("is dead") {
        ErrorKind::SandboxGone
    } else if message.contains("not running") || message.contains("is restarting") {
        ErrorKind::SandboxStopped
    } else {
        ErrorKind::Unavailable
    }
}

/// Makes the error of a failure in the client library.
pub(crate) fn failed(action: &'static str, error: BollardError) -> Error {
    let kind = match &error {
        BollardError::DockerResponseServerError {
            status_code,
            message,
        } => return refused(action, *status_code, message),
        BollardError::RequestTimeoutError => ErrorKind::Timeout,
        BollardError::JsonDataError { .. } | BollardError::JsonSerdeError { .. } => {
            ErrorKind::Protocol
        }
        _ => return broken(action, error),
    };
    Error::new(kind, action).caused_by(error)
}

/// Makes the error of a connection that could not be opened, or that broke.
pub(crate) fn broken(
    action: &'static str,
    error: impl Into<Box<dyn StdError + Send + Sync>>,
) -> Error {
    let error = error.into();
    let cause = UnreachableCause::of_connection(&*error);
    Error::new(ErrorKind::Unavailable, action)
        .unreachable_because(cause)
        .caused_by(error)
}

/// Whether the failure means that the container runs no commands now.
pub(crate) fn runs_no_commands(error: &Error) -> bool {
    error.kind() == ErrorKind::ToolMissing || stopped(error)
}

/// The failure of a container whose shell gave no response in time.
pub(crate) fn hung_shell() -> Error {
    Error::new(
        ErrorKind::ToolMissing,
        "the shell of the container does not respond",
    )
}

/// Whether the failure means that the container is stopped or paused.
pub(crate) fn stopped(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::SandboxStopped | ErrorKind::SandboxPaused
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_of_the_engine_have_kinds() {
        for (status, message, expected) in [
            (404, "No such container: web", ErrorKind::SandboxGone),
            (
                404,
                "Could not find the file /x in container 12",
                ErrorKind::NotFound,
            ),
            (
                409,
                "Container 12 is not running",
                ErrorKind::SandboxStopped,
            ),
            (
                409,
                "Container 12 is paused, unpause the container before exec",
                ErrorKind::SandboxPaused,
            ),
            (
                500,
                "container rootfs is marked read-only",
                ErrorKind::ReadOnly,
            ),
            (
                403,
                "mounted volume is marked read-only",
                ErrorKind::ReadOnly,
            ),
            (
                500,
                "Error processing tar file(exit status 1): write /x: no space left on device",
                ErrorKind::NoSpace,
            ),
            (
                400,
                "extraction point is not a directory",
                ErrorKind::NotDirectory,
            ),
            (
                500,
                "evalSymlinksInScope: too many links in /var/lib/docker/overlay2/ab/merged/a",
                ErrorKind::Loop,
            ),
            (403, "authorization denied by plugin", ErrorKind::Auth),
            (
                404,
                "no container with name or ID \"web\" found: no such container",
                ErrorKind::SandboxGone,
            ),
            (
                500,
                "can only create exec sessions on running containers: container state improper",
                ErrorKind::SandboxStopped,
            ),
            (500, "something new", ErrorKind::Unavailable),
            (400, "client version 1.99 is too new", ErrorKind::Protocol),
        ] {
            assert_eq!(kind(status, message), expected, "{message}");
        }
    }

    #[test]
    fn a_name_from_the_sandbox_cannot_choose_the_kind() {
        let message = "Could not find the file /No such container: x is paused in container 12";
        assert_eq!(kind(404, message), ErrorKind::NotFound);
        let message = "lstat /evil: no space left on device/x: input/output error";
        assert_eq!(kind(500, message), ErrorKind::Unavailable);
    }

    #[test]
    fn r_15_host_paths_stay_in_the_cause() {
        let error = refused(
            "looking at a path",
            500,
            "lstat /var/lib/docker/overlay2/ab/merged/file/: not a directory\n\u{1b}[31m",
        );
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(!error.to_string().contains("overlay2"));
        assert!(!error.kind().sentence().contains("overlay2"));
        let cause = StdError::source(&error).unwrap().to_string();
        assert!(
            cause.contains("overlay2") && !cause.contains('\u{1b}'),
            "{cause}"
        );
    }

    #[test]
    fn long_sentences_are_cut() {
        let error = refused("asking", 500, &"ä".repeat(5000));
        assert!(StdError::source(&error).unwrap().to_string().len() < 1100);
    }
}
