//! Errors, one type per operation, and the fault that each becomes for an agent.

use std::time::Duration;

use dray_types::{Fault, FaultCode};

/// A failure of the transport under the bus. Operators see it; callers get it as a source.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The subject has no listener.
    #[error("the subject has no responder")]
    NoResponders,
    /// No response in time; whether the message arrived is unknown.
    #[error("no response in time")]
    TimedOut,
    /// The connection is closed or lost.
    #[error("not connected to the bus")]
    Disconnected,
    /// The server's permissions refuse the subject.
    #[error("the server refuses `{0}` to this identity")]
    Denied(String),
    /// The message is over a limit; sizes in bytes with headers.
    #[error("a message of {size} bytes is over the limit{}", limit_text(*limit))]
    TooLarge {
        /// Bytes of payload and headers.
        size: usize,
        /// Limit of the server, of the stream or of this crate (E-3), in bytes; `None` where the server refused the
        /// message without naming the limit of its stream.
        limit: Option<usize>,
    },
    /// A limit of the stream is reached (error 10077 and similar ones, F-4).
    #[error("the stream is full")]
    Full,
    /// No stream captures the subject, or the stream or consumer does not exist.
    #[error("`{0}` does not exist on the bus")]
    NotProvisioned(String),
    /// A compare-and-set met another revision.
    #[error("the entry has another revision")]
    WrongRevision,
    /// A header that cannot be sent.
    #[error("header `{0}` cannot be sent")]
    Header(String),
    /// Any other failure, with its cause.
    #[error("the bus failed")]
    Other(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl TransportError {
    pub(crate) fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Other(error.into())
    }

    /// Whether the outcome is unknown, or the cause may end without an operator.
    pub const fn is_temporary(&self) -> bool {
        match self {
            // The client has no separate kind for most failures of a connection, so `Other` counts as temporary.
            Self::TimedOut | Self::Disconnected | Self::Other(_) => true,
            Self::NoResponders
            | Self::Denied(_)
            | Self::TooLarge { .. }
            | Self::Full
            | Self::NotProvisioned(_)
            | Self::WrongRevision
            | Self::Header(_) => false,
        }
    }
}

/// The end of a sentence about a limit.
fn limit_text(limit: Option<usize>) -> String {
    limit.map_or_else(String::new, |bytes| format!(" of {bytes}"))
}

fn unavailable_fault(retry: Duration) -> Fault {
    Fault::new(
        FaultCode::Unavailable,
        "A part of the file service did not answer.",
    )
    .advice("Try again in a moment.")
    .retry_after(retry)
}

/// Delay before a retry where the cause may end soon.
const RETRY_SOON: Duration = Duration::from_secs(1);

impl From<TransportError> for Fault {
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::NoResponders => unavailable_fault(RETRY_SOON).detail("no_responder"),
            TransportError::TimedOut | TransportError::Disconnected | TransportError::Other(_) => {
                unavailable_fault(RETRY_SOON).detail("bus_unavailable")
            }
            TransportError::Full => busy_fault(),
            TransportError::TooLarge { .. } => too_large(),
            // Only an operator can solve these, and an agent must not see subjects and causes.
            TransportError::Denied(_)
            | TransportError::NotProvisioned(_)
            | TransportError::WrongRevision
            | TransportError::Header(_) => Self::internal(),
        }
    }
}

fn busy_fault() -> Fault {
    Fault::new(FaultCode::RateLimited, "The file service is busy.")
        .detail("stream_full")
        .advice("Try again later.")
        .retry_after(Duration::from_secs(10))
}

fn too_large() -> Fault {
    Fault::new(FaultCode::TooLarge, "The message is too large for the bus.")
        .detail("message_too_large")
        .advice("Send large content by reference instead of inside the message.")
}

/// The reason why the bus could not be reached at start.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// An option is not usable.
    #[error("bus option `{option}` is not usable: {reason}")]
    Option {
        /// Name of the option.
        option: &'static str,
        /// The reason why it is invalid.
        reason: String,
    },
    /// No server could be reached, or the server refused the identity.
    #[error("cannot connect to the bus")]
    Connect(#[source] async_nats::ConnectError),
    /// The inbox subscription failed.
    #[error("cannot open the reply inbox")]
    Inbox(#[source] TransportError),
}

impl ConnectError {
    /// Whether the server was reached and refused the user, the password or the key.
    pub fn is_refused_identity(&self) -> bool {
        use async_nats::ConnectErrorKind::{Authentication, AuthorizationViolation};
        matches!(
            self,
            Self::Connect(error) if matches!(error.kind(), Authentication | AuthorizationViolation)
        )
    }

    /// Whether a later attempt may succeed: no server could be reached. A server that refuses the
    /// identity refuses it again.
    pub fn is_temporary(&self) -> bool {
        use async_nats::ConnectErrorKind as Kind;
        match self {
            Self::Connect(error) => matches!(
                error.kind(),
                // A name that does not resolve yet is usual while a cluster starts.
                Kind::Dns | Kind::TimedOut | Kind::Io | Kind::MaxReconnects
            ),
            Self::Option { .. } | Self::Inbox(_) => false,
        }
    }
}

/// The reason why a subscription could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot subscribe to `{subject}`")]
pub struct SubscribeError {
    /// Call subject, or the subject of cancellations of its area.
    pub subject: String,
    /// The cause.
    #[source]
    pub source: TransportError,
}

/// The reason why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The responder returned this fault.
    #[error("the responder returned a fault: {0}")]
    Fault(Fault),
    /// The subject has no responder.
    #[error("`{0}` has no responder")]
    NoResponder(String),
    /// The deadline passed without a response: a dead peer or a bug (C-4).
    #[error("no response from `{0}` before the deadline")]
    Timeout(String),
    /// Twenty calls of the area timed out in a row, and its circuit is open (C-10).
    #[error("area `{0}` does not respond; calls are paused for a moment")]
    CircuitOpen(String),
    /// The request is over the message limit (E-3).
    #[error("a request of {size} bytes is over the limit of {limit}")]
    TooLarge {
        /// Bytes of payload and headers.
        size: usize,
        /// Limit for requests (E-3), in bytes.
        limit: usize,
    },
    /// The reply does not match the contract.
    #[error("the reply cannot be read")]
    Reply(#[source] ReplyError),
    /// The transport failed before the request was sent, or while the reply was awaited.
    #[error("the request could not be sent")]
    Transport(#[source] TransportError),
}

/// A reply that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReplyError {
    /// The outcome header is neither `ok` nor `fault`.
    #[error("the outcome header is missing or unknown")]
    Outcome,
    /// The payload does not decode.
    #[error("the payload does not decode")]
    Decode(#[source] prost::DecodeError),
    /// Replies of a stream are missing.
    #[error("a reply of the stream is missing")]
    Missing,
    /// The receiver of the stream was dropped.
    #[error("the receiver of the stream was dropped")]
    Unread,
    /// A reply of a stream asks for its acknowledgement on a subject that is not an inbox.
    #[error("a reply of the stream names a subject for its acknowledgement that is not an inbox")]
    Acknowledgement,
}

impl From<CallError> for Fault {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Fault(fault) => fault,
            CallError::NoResponder(_) => unavailable_fault(RETRY_SOON).detail("no_responder"),
            CallError::Timeout(_) => {
                Self::new(FaultCode::Timeout, "The operation did not finish in time.")
                    .detail("no_answer")
                    .advice("Try again, with more time if possible.")
                    .retry_after(RETRY_SOON)
            }
            CallError::CircuitOpen(_) => {
                unavailable_fault(Duration::from_secs(2)).detail("circuit_open")
            }
            CallError::TooLarge { .. } => too_large(),
            CallError::Reply(_) => Self::internal(),
            CallError::Transport(transport) => transport.into(),
        }
    }
}

/// The reason why a message was not published, or not provably.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The message is over the limit (E-3): a programming error.
    #[error("a message of {size} bytes is over the limit{}", limit_text(*limit))]
    TooLarge {
        /// Bytes of payload and headers.
        size: usize,
        /// Limit for messages of the stream (E-3), in bytes; `None` where only the server knows it.
        limit: Option<usize>,
    },
    /// The stream stayed full for 15 s.
    #[error("the stream for `{0}` is full")]
    Busy(String),
    /// No stream captures the subject: the topology is not provisioned.
    #[error("no stream captures `{0}`")]
    NoStream(String),
    /// The stream that acknowledged is not the expected one.
    #[error("stream `{found}` acknowledged instead of `{expected}`")]
    WrongStream {
        /// Stream that the message belongs to.
        expected: &'static str,
        /// Name of the stream that has the message now.
        found: String,
    },
    /// The server's permissions refuse the subject.
    #[error("the server refuses `{0}` to this identity")]
    Denied(String),
    /// The message was not stored, and storing it again would fail in the same way: a programming error.
    #[error("the message for `{subject}` cannot be stored")]
    Refused {
        /// Subject to which it was published.
        subject: String,
        /// The error of the last attempt.
        #[source]
        source: TransportError,
    },
    /// No acknowledgement until the deadline; whether it was stored is unknown.
    #[error("no acknowledgement for `{subject}` in time")]
    Unconfirmed {
        /// Subject of the message, with the tenant.
        subject: String,
        /// The failure of the last attempt.
        #[source]
        source: TransportError,
    },
}

impl From<PublishError> for Fault {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::TooLarge { .. } => too_large(),
            PublishError::Busy(_) => busy_fault(),
            PublishError::Unconfirmed { .. } => {
                unavailable_fault(RETRY_SOON).detail("bus_unavailable")
            }
            PublishError::NoStream(_)
            | PublishError::WrongStream { .. }
            | PublishError::Denied(_)
            | PublishError::Refused { .. } => Self::internal(),
        }
    }
}

/// The reason why the work loop could not begin or had to end.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// The durable consumer cannot be read.
    #[error("cannot read consumer `{durable}`")]
    Consumer {
        /// Name of the durable consumer.
        durable: String,
        /// The cause.
        #[source]
        source: TransportError,
    },
}

/// The reason why the readiness probe failed (messaging-reliability 16).
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// JetStream did not respond.
    #[error("JetStream does not respond")]
    Transport(#[source] TransportError),
    /// JetStream responds, and this stream of the topology is missing.
    #[error("the streams of Drayage are not on the server yet: `{0}` does not exist")]
    NotProvisioned(String),
    /// The server refused something since start.
    #[error("the server refused {count} subjects to this identity, first `{first}`")]
    Denied {
        /// Refusals since the start of the process, repeated ones included.
        count: u64,
        /// The first refused subject, or the message of the server.
        first: String,
    },
    /// The server's `max_payload` is below 256 KiB (E-3).
    #[error("the server allows messages of {limit} bytes only; 262144 are needed")]
    PayloadLimit {
        /// The server's limit in bytes.
        limit: usize,
    },
    /// The local clock is off by more than 2 s (7.1).
    #[error("the clock differs from the server's by {milliseconds} ms")]
    ClockSkew {
        /// Server minus local, in milliseconds.
        milliseconds: i64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_contain_no_subjects_and_no_causes() {
        let secret = || "dray.secret.v1.subject".to_owned();
        let faults: [Fault; 8] = [
            TransportError::Denied(secret()).into(),
            TransportError::other(secret()).into(),
            CallError::NoResponder(secret()).into(),
            CallError::Timeout(secret()).into(),
            CallError::Transport(TransportError::NotProvisioned(secret())).into(),
            PublishError::Busy(secret()).into(),
            PublishError::NoStream(secret()).into(),
            PublishError::Unconfirmed {
                subject: secret(),
                source: TransportError::TimedOut,
            }
            .into(),
        ];
        for fault in faults {
            assert!(!format!("{fault:?}").contains("secret"), "{fault:?}");
        }
    }

    #[test]
    fn each_error_has_the_code_of_the_side_that_must_act() {
        let check = |fault: Fault, code: FaultCode, retryable: bool| {
            assert_eq!(
                (fault.code, fault.is_retryable()),
                (code, retryable),
                "{fault:?}"
            );
        };
        check(
            CallError::NoResponder(String::new()).into(),
            FaultCode::Unavailable,
            true,
        );
        check(
            CallError::Timeout(String::new()).into(),
            FaultCode::Timeout,
            true,
        );
        check(
            CallError::TooLarge { size: 2, limit: 1 }.into(),
            FaultCode::TooLarge,
            false,
        );
        check(
            PublishError::Busy(String::new()).into(),
            FaultCode::RateLimited,
            true,
        );
        check(
            PublishError::Denied(String::new()).into(),
            FaultCode::Internal,
            true,
        );
    }
}
