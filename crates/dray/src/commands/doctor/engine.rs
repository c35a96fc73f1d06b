//! Check of the socket of the container engine, where sandboxes are containers of this machine.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::Path;

use dray_types::UnreachableCause;

use super::finding::Finding;

/// Connects to the engine's socket. `None` if sandboxes of this kind are turned off, or if the engine is not on this
/// machine: `--accounts` has the service connect to such an engine.
pub(super) fn check_engine(transfer: &dray_sandbox_transfer::Config) -> Option<Finding> {
    let is_used = transfer.kinds.iter().any(|kind| kind == "docker");
    let endpoint = &transfer.docker.endpoint;
    let path = Path::new(endpoint.strip_prefix("unix://").filter(|_| is_used)?);
    let is_default = *endpoint == dray_sandbox_transfer::Config::default().docker.endpoint;
    Some(judge_socket(path, is_default))
}

fn judge_socket(path: &Path, is_default: bool) -> Finding {
    const ENGINE_SUBJECT: &str = "container engine";
    let shown = path.display();
    // The local socket accepts or refuses without waiting for the engine.
    let Err(error) = UnixStream::connect(path) else {
        return Finding::good(ENGINE_SUBJECT, format!("{shown} accepts connections"));
    };
    match error.kind() {
        // Nothing names an engine, so no sandbox is expected to be a container.
        ErrorKind::NotFound if is_default => {
            Finding::skipped(ENGINE_SUBJECT, format!("no socket {shown} on this machine"))
        }
        ErrorKind::NotFound => Finding::problem(
            ENGINE_SUBJECT,
            format!("{shown} in `sandbox-transfer.docker.endpoint` does not exist"),
            UnreachableCause::NoEngine.advice(),
        ),
        ErrorKind::ConnectionRefused => Finding::problem(
            ENGINE_SUBJECT,
            format!("{shown} is left over: no engine listens on it"),
            "Start the engine, which replaces the socket; or remove the socket, if this machine has no engine.",
        ),
        ErrorKind::PermissionDenied => Finding::warning(
            ENGINE_SUBJECT,
            format!("This user may not connect to {shown}"),
            UnreachableCause::NotPermitted.advice(),
        ),
        _ => Finding::problem(
            ENGINE_SUBJECT,
            format!("{shown} does not accept a connection: {error}"),
            UnreachableCause::NoEngine.advice(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::commands::doctor::finding::FindingLevel;

    #[test]
    fn a_socket_without_a_listener_is_a_problem_and_not_an_engine() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("engine.sock");
        let missing = judge_socket(&path, false);
        assert_eq!(missing.level, FindingLevel::Problem, "{missing:?}");
        assert_eq!(judge_socket(&path, true).level, FindingLevel::Skipped);
        let listener = UnixListener::bind(&path).unwrap();
        assert_eq!(judge_socket(&path, true).level, FindingLevel::Good);
        drop(listener);
        // The file of the socket remains after its process has ended.
        let stale = judge_socket(&path, true);
        assert_eq!(stale.level, FindingLevel::Problem, "{stale:?}");
        assert!(stale.text.contains("left over"), "{stale:?}");
    }

    #[test]
    fn an_engine_elsewhere_and_one_that_is_not_used_are_not_examined() {
        let mut transfer = dray_sandbox_transfer::Config::default();
        assert!(check_engine(&transfer).is_some());
        transfer.docker.endpoint = "https://engine:2376".to_owned();
        assert_eq!(check_engine(&transfer), None);
        let mut transfer = dray_sandbox_transfer::Config::default();
        transfer.kinds.retain(|kind| kind != "docker");
        assert_eq!(check_engine(&transfer), None);
    }
}
