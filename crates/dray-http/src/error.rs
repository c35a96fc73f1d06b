//! What can go wrong with a request, and whether it may have had its effect all the same.

use std::time::Duration;

use crate::Cause;

/// Whether the peer may have got the whole request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestProgress {
    /// It cannot: no connection, or the body did not leave completely.
    Incomplete,
    /// It may: everything was handed to the connection and no answer came.
    Complete,
}

/// What failed.
#[derive(Debug, thiserror::Error)]
pub enum FailureKind {
    /// The client cannot be made from its options.
    #[error("the HTTP client cannot be made")]
    Options(#[source] Cause),
    /// The URL or a header is not one.
    #[error("the request is malformed: {0}")]
    Request(String),
    /// No connection: refused, unreachable, unknown name, TLS.
    #[error("no connection")]
    Connect(#[source] Cause),
    /// The connection broke.
    #[error("the connection broke")]
    Broken(#[source] Cause),
    /// No byte moved for this long.
    #[error("nothing moved for {0:?}")]
    Idle(Duration),
    /// The body to send failed, or was not as long as announced.
    #[error("the body to send failed")]
    Body(#[source] Cause),
    /// The answer is longer than its limit, in bytes.
    #[error("the answer is longer than {0} bytes")]
    TooLong(usize),
    /// The answer is not what it should be.
    #[error("the answer is malformed: {0}")]
    Malformed(String),
}

/// A failed request. Holds no URL: those of some platforms carry tokens.
#[derive(Debug, thiserror::Error)]
#[error("{failure}")]
pub struct HttpError {
    /// What failed.
    #[source]
    pub failure: FailureKind,
    /// Whether the peer may have got all of it.
    pub sent: RequestProgress,
}

impl HttpError {
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
