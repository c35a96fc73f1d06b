//! Maps failures of the API server to error kinds (sandbox-transfer 6.4).

use std::error::Error as StdError;
use std::time::Duration;

use dray_sandbox::{Error, ErrorKind};
use dray_types::UnreachableCause;
use serde::Deserialize;

/// Characters of the server's message that are kept for the operator.
const MAX_MESSAGE_CHARACTERS: usize = 1024;

/// `StatusBody` of `meta/v1`, with the fields that are used here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct StatusBody {
    /// Either `Success` or `Failure`.
    #[serde(rename = "status")]
    pub(crate) outcome: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) code: u16,
    pub(crate) details: Option<StatusDetails>,
}

/// Details of a `StatusBody`, such as exit codes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct StatusDetails {
    pub(crate) causes: Vec<StatusCause>,
    #[serde(rename = "retryAfterSeconds")]
    pub(crate) retry_after_seconds: u64,
}

/// One cause of a failure. With the reason `ExitCode`, the message is the exit code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct StatusCause {
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// Parts of messages in lower case, with their kinds. The first match counts, so texts about a missing program come
/// before texts about a container.
const ERROR_TEXTS: &[(&str, ErrorKind)] = &[
    // The working directory of the container was removed. The program may exist. runc and crun say it differently.
    ("chdir to ", ErrorKind::Unavailable),
    ("executable file not found", ErrorKind::ToolMissing),
    ("no such file or directory", ErrorKind::ToolMissing),
    ("exec format error", ErrorKind::ToolMissing),
    ("permission denied", ErrorKind::ToolMissing),
    ("argument list too long", ErrorKind::ToolMissing),
    ("error dialing backend", ErrorKind::Unavailable),
    ("container not running", ErrorKind::SandboxStopped),
    ("container is not running", ErrorKind::SandboxStopped),
    ("container not found", ErrorKind::SandboxStopped),
    ("is not running", ErrorKind::SandboxStopped),
    ("in a stopped state", ErrorKind::SandboxStopped),
    ("container not created", ErrorKind::SandboxStopped),
    ("cannot exec in a", ErrorKind::SandboxStopped),
    ("a completed pod", ErrorKind::SandboxStopped),
    ("does not have a host assigned", ErrorKind::SandboxStopped),
    ("process not found", ErrorKind::SandboxStopped),
    ("no running task found", ErrorKind::SandboxStopped),
];

/// The kind that a message of the kubelet or the container runtime means.
fn kind_of(text: &str) -> Option<ErrorKind> {
    let text = text.to_ascii_lowercase();
    let known = ERROR_TEXTS.iter().find(|(part, _)| text.contains(part));
    known.map(|(_, kind)| *kind)
}

/// Makes the error of a refused request from its status code and the server's message.
pub(crate) fn refused(
    action: &str,
    code: u16,
    status: &StatusBody,
    retry_after: Option<Duration>,
) -> Error {
    let text: String = status
        .message
        .chars()
        .take(MAX_MESSAGE_CHARACTERS)
        .collect();
    let known = kind_of(&text);
    let kind = match code {
        401 | 403 => ErrorKind::Auth,
        // A 404 may also come from the kubelet, about a container that no longer exists.
        404 => match known {
            Some(ErrorKind::SandboxStopped) => ErrorKind::SandboxStopped,
            _ => ErrorKind::SandboxGone,
        },
        429 => ErrorKind::RateLimited,
        400 if text.contains("is not valid for pod") => ErrorKind::Protocol,
        408 | 500..=599 => known.unwrap_or(ErrorKind::Unavailable),
        // Mostly 400; only the message for a stopped container is more specific than the code.
        _ => match known {
            Some(ErrorKind::SandboxStopped) => ErrorKind::SandboxStopped,
            _ => ErrorKind::Protocol,
        },
    };
    let missing = missing_right(&text).filter(|_| code == 403);
    let context = match missing {
        Some(right) => format!(
            "{action}: the right to {right} is missing: {}",
            text.escape_debug()
        ),
        None => format!("{action}: status {code}: {}", text.escape_debug()),
    };
    let error = Error::new(kind, context);
    let body_delay = status
        .details
        .as_ref()
        .map(|details| details.retry_after_seconds);
    let body_delay = body_delay
        .filter(|seconds| *seconds > 0)
        .map(Duration::from_secs);
    // The header counts first: it comes from the server that responded, but the body may come from a server behind it.
    match retry_after.or(body_delay) {
        Some(delay) if matches!(kind, ErrorKind::RateLimited | ErrorKind::Unavailable) => {
            error.with_retry_after(delay)
        }
        _ => error,
    }
}

/// Makes the error of a command that failed without an exit status, from the last message of its stream.
pub(crate) fn not_run(status: &StatusBody) -> Error {
    match status.code {
        // The kubelet reports its own failures as 500, or without a code.
        0 | 500 => {
            let text: String = status
                .message
                .chars()
                .take(MAX_MESSAGE_CHARACTERS)
                .collect();
            let kind = kind_of(&text).unwrap_or(ErrorKind::Unavailable);
            Error::new(kind, format!("running a command: {}", text.escape_debug()))
        }
        code => refused("running a command", code, status, None),
    }
}

/// Reads verb and resource from a 403: `cannot create resource "pods/exec" in API group ""`.
fn missing_right(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("cannot ")?;
    let (verb, rest) = rest.split_once(" resource \"")?;
    let (resource, _) = rest.split_once('"')?;
    Some(format!("{verb} {resource}"))
}

/// Makes the error of a request without a response. A server that cannot prove its identity counts as a failed
/// credential, not as an unreachable one.
pub(crate) fn unreached(action: &str, error: kube::Error) -> Error {
    let kind = match &error {
        kube::Error::Auth(_) => ErrorKind::Auth,
        error if is_certificate(error) => ErrorKind::Auth,
        _ => ErrorKind::Unavailable,
    };
    let cause = UnreachableCause::of_connection(&error).filter(|_| kind == ErrorKind::Unavailable);
    Error::new(kind, action)
        .unreachable_because(cause)
        .caused_by(error)
}

/// Whether a refused certificate is the cause. `std::io::Error` does not include the error that it wraps in its chain.
fn is_certificate(error: &(dyn StdError + 'static)) -> bool {
    if let Some(rustls::Error::InvalidCertificate(_)) = error.downcast_ref() {
        return true;
    }
    let inner = error
        .downcast_ref::<std::io::Error>()
        .and_then(std::io::Error::get_ref);
    match (inner, error.source()) {
        (Some(inner), _) => is_certificate(inner),
        (None, Some(source)) => is_certificate(source),
        (None, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(code: u16, message: &str) -> ErrorKind {
        let status = StatusBody {
            message: message.into(),
            ..StatusBody::default()
        };
        refused("asking", code, &status, None).kind()
    }

    #[test]
    fn every_answer_of_the_table_has_its_kind() {
        for (code, message, expected) in [
            (404, "pods \"x\" not found", ErrorKind::SandboxGone),
            (404, "namespaces \"x\" not found", ErrorKind::SandboxGone),
            (
                400,
                "container c is not valid for pod p",
                ErrorKind::Protocol,
            ),
            (
                400,
                "container not running (abc)",
                ErrorKind::SandboxStopped,
            ),
            (
                500,
                "container not running (abc)",
                ErrorKind::SandboxStopped,
            ),
            (
                400,
                "cannot exec into a container in a completed pod; current phase is Succeeded",
                ErrorKind::SandboxStopped,
            ),
            (
                404,
                "unable to upgrade connection: container not found (\"c\")",
                ErrorKind::SandboxStopped,
            ),
            (
                400,
                "pod p does not have a host assigned",
                ErrorKind::SandboxStopped,
            ),
            (401, "Unauthorized", ErrorKind::Auth),
            (403, "pods \"p\" is forbidden", ErrorKind::Auth),
            (
                500,
                "error dialing backend: dial tcp: no route to host",
                ErrorKind::Unavailable,
            ),
            (502, "", ErrorKind::Unavailable),
            (503, "apiserver is shutting down", ErrorKind::Unavailable),
            (504, "", ErrorKind::Unavailable),
            (429, "too many requests", ErrorKind::RateLimited),
            (418, "", ErrorKind::Protocol),
            (200, "", ErrorKind::Protocol),
        ] {
            assert_eq!(kind(code, message), expected, "{code} {message}");
        }
    }

    #[test]
    fn a_refusal_names_the_missing_right() {
        let status = StatusBody {
            message: "pods \"p\" is forbidden: User \"u\" cannot create resource \"pods/exec\" in API group \"\" in the namespace \"n\"".into(),
            ..StatusBody::default()
        };
        let error = refused("starting a command", 403, &status, None);
        assert!(
            error.context().contains("create pods/exec is missing"),
            "{error}"
        );
    }

    #[test]
    fn a_limit_says_when_to_come_back() {
        let status: StatusBody =
            serde_json::from_str(r#"{"details": {"retryAfterSeconds": 7}}"#).unwrap();
        let delay = |status, header| refused("asking", 429, status, header).retry_after();
        assert_eq!(delay(&status, None), Some(Duration::from_secs(7)));
        let header = Some(Duration::from_secs(3));
        assert_eq!(delay(&status, header), header);
        assert_eq!(delay(&StatusBody::default(), None), None);
    }

    #[test]
    fn a_command_that_did_not_start_is_distinguished_from_a_container_that_does_not_run() {
        for (message, expected) in [
            (
                "OCI runtime exec failed: exec failed: unable to start container process: exec: \"sh\": executable file not found in $PATH: unknown",
                ErrorKind::ToolMissing,
            ),
            (
                "exec: \"/bin/sh\": stat /bin/sh: no such file or directory: unknown",
                ErrorKind::ToolMissing,
            ),
            (
                "chdir to cwd (\"/w\") set in config.json failed: no such file or directory: unknown",
                ErrorKind::Unavailable,
            ),
            (
                "chdir to `/w`: No such file or directory",
                ErrorKind::Unavailable,
            ),
            ("cannot exec in a deleted state", ErrorKind::SandboxStopped),
            ("container not found (\"c\")", ErrorKind::SandboxStopped),
            ("error dialing backend: EOF", ErrorKind::Unavailable),
            ("something new", ErrorKind::Unavailable),
        ] {
            let status = StatusBody {
                reason: "InternalError".into(),
                message: message.into(),
                code: 500,
                ..StatusBody::default()
            };
            assert_eq!(not_run(&status).kind(), expected, "{message}");
        }
    }
}
