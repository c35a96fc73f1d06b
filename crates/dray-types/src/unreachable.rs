//! Why a sandbox or a platform cannot be reached, where the error of the connection shows it.

use std::error::Error as StdError;
use std::io;
use std::time::Duration;

/// Delay after a cause that can pass by itself within seconds, such as a restart of the engine.
const SHORT_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Delay after a cause that lasts until a person or a program of the host ends it. It is longer than callers wait for
/// an unavailable dependency, so they return the fault immediately; work that is stored is delivered again after it.
const LONG_RETRY_DELAY: Duration = Duration::from_secs(30);

/// A cause that a person can act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreachableCause {
    /// Nothing listens at the socket of the engine: it is not installed, or does not run.
    NoEngine,
    /// The user of this process may not connect to the socket of the engine.
    NotPermitted,
    /// The program that makes the connection, such as `ssh`, is not installed on this host.
    NoClientProgram,
    /// Nothing accepts connections at the address of the host or engine.
    Refused,
    /// The name of the host cannot be resolved.
    UnknownName,
    /// The host does not respond, or no route leads to it.
    NoResponse,
    /// The certificate of the host is not one that this program trusts.
    UntrustedCertificate,
}

/// Beginnings of texts of the resolver and of the network, as `ssh` and the C library write them: glibc, and musl, which
/// has other words for a missing route.
const CAUSE_TEXTS: &[(&str, UnreachableCause)] = &[
    ("Could not resolve hostname", UnreachableCause::UnknownName),
    (
        "failed to lookup address information",
        UnreachableCause::UnknownName,
    ),
    (
        "invalid peer certificate",
        UnreachableCause::UntrustedCertificate,
    ),
    ("Connection refused", UnreachableCause::Refused),
    ("Connection timed out", UnreachableCause::NoResponse),
    ("Operation timed out", UnreachableCause::NoResponse),
    ("No route to host", UnreachableCause::NoResponse),
    ("Host is unreachable", UnreachableCause::NoResponse),
    ("Network is unreachable", UnreachableCause::NoResponse),
    ("Network unreachable", UnreachableCause::NoResponse),
];

impl UnreachableCause {
    /// The cause that a message of `ssh` or of the resolver shows.
    pub fn in_text(text: &str) -> Option<Self> {
        let mut known = CAUSE_TEXTS.iter();
        known
            .find(|(part, _)| text.contains(part))
            .map(|(_, cause)| *cause)
    }

    /// The cause that an error of a connection, or one of its sources, shows.
    pub fn of_connection(error: &(dyn StdError + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            let found = match error.downcast_ref::<io::Error>() {
                Some(error) => Self::of_io(error),
                None => Self::in_text(&error.to_string()),
            };
            if found.is_some() {
                return found;
            }
            next = error.source();
        }
        None
    }

    fn of_io(error: &io::Error) -> Option<Self> {
        match error.kind() {
            // While a connection is made, only a socket of the file system can be missing or closed to a user.
            io::ErrorKind::NotFound => Some(Self::NoEngine),
            io::ErrorKind::PermissionDenied => Some(Self::NotPermitted),
            io::ErrorKind::ConnectionRefused => Some(Self::Refused),
            io::ErrorKind::TimedOut
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable => Some(Self::NoResponse),
            _ => Self::in_text(&error.to_string()),
        }
    }

    /// The part of a sentence that follows "cannot be reached: ". It contains no path and no address.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::NoEngine => "no engine runs at its socket",
            Self::NotPermitted => "this user may not connect to its engine",
            Self::NoClientProgram => "the program that connects to it is not installed",
            Self::Refused => "nothing listens at its address",
            Self::UnknownName => "the name of its host cannot be resolved",
            Self::NoResponse => "its host does not respond",
            Self::UntrustedCertificate => "the certificate of its host is not trusted",
        }
    }

    /// What an operator does about it.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::NoEngine => "Start the engine, or correct its address in the configuration.",
            Self::NotPermitted => {
                "Give this user access to the engine's socket, for Docker by membership in the group `docker`."
            }
            Self::NoClientProgram => "Install it, for SSH hosts `openssh-client`.",
            Self::Refused => "Check that the server or the engine runs, and its port.",
            Self::UnknownName => "Check the name, and that this host reaches a name server.",
            Self::NoResponse => "Check that the host runs and that a network leads to it.",
            Self::UntrustedCertificate => {
                "Check the address, or add the authority of the certificate to the configuration."
            }
        }
    }

    /// The delay after which the same request can succeed; `None` if it needs a change by an operator of this program.
    ///
    /// A long delay says that a repetition within seconds is useless.
    pub const fn retry_after(self) -> Option<Duration> {
        match self {
            Self::NotPermitted | Self::NoClientProgram => None,
            Self::NoEngine | Self::UnknownName | Self::UntrustedCertificate => {
                Some(LONG_RETRY_DELAY)
            }
            Self::Refused | Self::NoResponse => Some(SHORT_RETRY_DELAY),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_found_in_the_sources_of_an_error_and_in_texts() {
        #[derive(Debug, thiserror::Error)]
        #[error("no response")]
        struct WrappedError(#[source] io::Error);
        for (kind, cause) in [
            (io::ErrorKind::NotFound, Some(UnreachableCause::NoEngine)),
            (
                io::ErrorKind::PermissionDenied,
                Some(UnreachableCause::NotPermitted),
            ),
            (
                io::ErrorKind::ConnectionRefused,
                Some(UnreachableCause::Refused),
            ),
            (
                io::ErrorKind::HostUnreachable,
                Some(UnreachableCause::NoResponse),
            ),
            (io::ErrorKind::ConnectionReset, None),
        ] {
            let found = UnreachableCause::of_connection(&WrappedError(kind.into()));
            assert_eq!(found, cause, "{kind:?}");
        }
        for (text, cause) in [
            (
                "ssh: Could not resolve hostname h: Name or service not known",
                Some(UnreachableCause::UnknownName),
            ),
            (
                "ssh: connect to host h port 22: Connection refused",
                Some(UnreachableCause::Refused),
            ),
            (
                "ssh: connect to host h port 22: No route to host",
                Some(UnreachableCause::NoResponse),
            ),
            (
                "ssh: connect to host h port 22: Host is unreachable",
                Some(UnreachableCause::NoResponse),
            ),
            (
                "ssh: connect to host h port 22: Network unreachable",
                Some(UnreachableCause::NoResponse),
            ),
            (
                "invalid peer certificate: UnknownIssuer",
                Some(UnreachableCause::UntrustedCertificate),
            ),
            ("client_loop: send disconnect: Broken pipe", None),
        ] {
            assert_eq!(UnreachableCause::in_text(text), cause, "{text}");
        }
    }
}
