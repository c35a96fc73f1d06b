//! The errors of a request, and whether the request may have taken effect.

use std::time::Duration;

use crate::Cause;

/// How much of a request the peer may have received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestProgress {
    /// It has received at most a part: there was no connection, or the body was not sent completely.
    Incomplete,
    /// Possibly all of it: all bytes were passed to the connection, and no response arrived.
    Complete,
}

/// The kind of a failure, with its cause for the log.
#[derive(Debug, thiserror::Error)]
pub enum FailureKind {
    /// The client cannot be made from its options.
    #[error("could not build the HTTP client")]
    Options(#[source] Cause),
    /// The URL or a header is invalid; the request was not sent.
    #[error("the request is malformed: {0}")]
    Request(String),
    /// No connection: refused, unreachable, unknown name, TLS.
    #[error("no connection")]
    Connect(#[source] Cause),
    /// The connection broke, before or inside the response.
    #[error("the connection broke")]
    Broken(#[source] Cause),
    /// No byte moved within this limit.
    #[error("no bytes moved for {0:?}")]
    Idle(Duration),
    /// The body to send failed, or was not as long as announced.
    #[error("could not read the body to send")]
    Body(#[source] Cause),
    /// The response is longer than its limit, in bytes.
    #[error("the response is longer than {0} bytes")]
    TooLong(usize),
    /// The response is not what its reader expects, such as JSON.
    #[error("the response is malformed: {0}")]
    Malformed(String),
}

/// A failed request. Contains no URL, because URLs of some platforms contain tokens.
#[derive(Debug, thiserror::Error)]
#[error("{failure}")]
pub struct HttpError {
    /// The failure, without the URL.
    #[source]
    pub failure: FailureKind,
    /// Whether the peer may have received the complete request. Only then can the request have had an effect.
    pub sent: RequestProgress,
}

impl HttpError {
    /// Whether a time limit passed, including that of connecting.
    pub fn is_timeout(&self) -> bool {
        match &self.failure {
            FailureKind::Idle(_) => true,
            FailureKind::Connect(cause) => cause
                .downcast_ref::<reqwest::Error>()
                .is_some_and(reqwest::Error::is_timeout),
            _ => false,
        }
    }

    pub(crate) const fn before(failure: FailureKind) -> Self {
        Self {
            failure,
            sent: RequestProgress::Incomplete,
        }
    }

    pub(crate) const fn after(failure: FailureKind) -> Self {
        Self {
            failure,
            sent: RequestProgress::Complete,
        }
    }
}
