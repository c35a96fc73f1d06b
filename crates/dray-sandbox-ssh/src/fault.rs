//! Converts the messages of `ssh` to failures (sandbox-transfer 5.5).

use dray_sandbox::{Error, ErrorKind};
use dray_types::UnreachableCause;

/// The reason why a channel did not open.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// This connection carries as many channels as the host allows; another connection can.
    Full(Error),
    /// No connection is behind the socket, and no command has begun.
    NotConnected(Error),
    /// The connection was lost while the channel opened; its program may have begun.
    Lost(Error),
    /// Another attempt over any connection would fail in the same way.
    Final(Error),
}

/// Messages and their kinds. The first match counts, so the more specific ones come first.
const ERROR_TEXTS: &[(&str, ErrorKind)] = &[
    ("REMOTE HOST IDENTIFICATION HAS CHANGED", ErrorKind::Auth),
    ("Host key verification failed", ErrorKind::Auth),
    ("Permission denied (", ErrorKind::Auth),
    ("Too many authentication failures", ErrorKind::Auth),
    ("No more authentication methods", ErrorKind::Auth),
    ("Unable to negotiate", ErrorKind::Protocol),
    ("Bad configuration option", ErrorKind::Protocol),
    ("Bad owner or permissions", ErrorKind::Protocol),
    ("Received message too long", ErrorKind::Protocol),
    ("subsystem request failed", ErrorKind::ToolMissing),
];

/// Returns the failure that a message of `ssh` describes; an unknown message counts as a lost connection. `action` is
/// what was being done.
pub(crate) fn failure(action: &str, text: &str) -> Error {
    let kind = ERROR_TEXTS
        .iter()
        .find(|(part, _)| text.contains(part))
        .map_or(ErrorKind::Unavailable, |(_, kind)| *kind);
    // The text is escaped, because a banner of the host can hold control characters (sandbox-transfer 1.3).
    let error = Error::new(kind, format!("{action}: {}", text.trim().escape_debug()));
    match kind {
        ErrorKind::Unavailable => error.unreachable_because(UnreachableCause::in_text(text)),
        _ => error,
    }
}

/// The failure of a client program that did not start.
pub(crate) fn not_started(error: std::io::Error) -> Error {
    let is_missing = error.kind() == std::io::ErrorKind::NotFound;
    let cause = is_missing.then_some(UnreachableCause::NoClientProgram);
    Error::new(ErrorKind::Unavailable, "ssh cannot be started")
        .unreachable_because(cause)
        .caused_by(error)
}

/// Classifies why a channel over a shared connection did not open, by the message of its client.
pub(crate) fn refusal(action: &str, text: &str) -> Refusal {
    let error = failure(action, text);
    // `MaxSessions` of the host; another connection has other channels (sandbox-transfer 5.3).
    if text.contains("session request failed") || text.contains("Session open refused") {
        return Refusal::Full(error);
    }
    // The client program may have sent its request. It then connects by itself, which also prints the last of the texts
    // below.
    if text.contains("mux_client_request_session") {
        return Refusal::Lost(error);
    }
    // The last message comes from `ProxyCommand=false`, when the socket has no listener.
    let not_connected = ["Control socket connect", "mux_client", "UNKNOWN port 65535"];
    if not_connected.iter().any(|part| text.contains(part)) {
        return Refusal::NotConnected(Error::new(
            ErrorKind::Unavailable,
            format!("{action}: {}", text.trim().escape_debug()),
        ));
    }
    Refusal::Final(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_ssh_become_kinds() {
        for (text, kind) in [
            (
                "ssh: connect to host h port 22: Connection refused",
                ErrorKind::Unavailable,
            ),
            (
                "ssh: connect to host h port 22: Connection timed out",
                ErrorKind::Unavailable,
            ),
            (
                "ssh: connect to host h port 22: No route to host",
                ErrorKind::Unavailable,
            ),
            ("me@h: Permission denied (publickey).", ErrorKind::Auth),
            (
                "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\r\nHost key verification failed.",
                ErrorKind::Auth,
            ),
            ("Host key verification failed.", ErrorKind::Auth),
            (
                "Received message too long 1214606444\nEnsure the remote shell produces no output",
                ErrorKind::Protocol,
            ),
            (
                "subsystem request failed on channel 0",
                ErrorKind::ToolMissing,
            ),
            (
                "client_loop: send disconnect: Broken pipe",
                ErrorKind::Unavailable,
            ),
            ("", ErrorKind::Unavailable),
        ] {
            assert_eq!(failure("x", text).kind(), kind, "{text}");
        }
    }

    #[test]
    fn a_full_connection_and_a_lost_one_are_distinguished() {
        let full = "mux_client_request_session: session request failed: Session open refused by peer\n\
                    Connection closed by UNKNOWN port 65535";
        assert!(matches!(refusal("x", full), Refusal::Full(_)));
        let gone = "Control socket connect(/c/x.sock): Connection refused\r\n";
        assert!(matches!(refusal("x", gone), Refusal::NotConnected(_)));
        let unclear = "mux_client_request_session: read from master failed: Connection reset by peer\r\n\
                       Connection closed by UNKNOWN port 65535\r\n";
        assert!(matches!(refusal("x", unclear), Refusal::Lost(_)));
        assert!(matches!(refusal("x", ""), Refusal::Final(_)));
    }

    #[test]
    fn control_characters_of_a_host_do_not_reach_the_log() {
        let error = failure("x", "\u{1b}[2Jgone\nPermission denied (publickey)");
        assert_eq!(error.kind(), ErrorKind::Auth);
        assert!(!error.context().contains(['\u{1b}', '\n']), "{error}");
    }
}
