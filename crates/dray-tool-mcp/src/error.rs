//! Failures on the way to a server and back.

use std::sync::{Arc, Mutex, PoisonError};

use dray_http::{Cause, FailureKind, RequestProgress};
use thiserror::Error;

/// A message that did not make it, or whose answer did not. The texts are fit for an agent: no address, no path.
#[derive(Debug, Error)]
pub(crate) enum WireError {
    /// An HTTP status that is not a success. The server did not take the message.
    #[error("the server answered with HTTP status {0}")]
    Status(u16),
    /// The server surely did not get the whole message.
    #[error("the server cannot be reached")]
    NotSent(#[source] Cause),
    /// The server may have got it; the connection ended before the answer.
    #[error("the connection ended before the answer came")]
    Broken(#[source] Option<Cause>),
    /// Nothing came for too long.
    #[error("the server did not answer in time")]
    Idle,
    /// An answer longer than this many bytes.
    #[error("the answer is longer than {0} bytes")]
    TooLong(usize),
    /// Not what MCP says.
    #[error("the server does not answer as an MCP server: {0}")]
    Malformed(&'static str),
}

impl WireError {
    /// Whether the server surely did nothing, so that the message may be sent again.
    pub(crate) const fn is_unsent(&self) -> bool {
        // 404 means that the server does not know the session (MCP, streamable HTTP).
        matches!(self, Self::NotSent(_) | Self::Status(404))
    }
}

impl From<dray_http::HttpError> for WireError {
    fn from(error: dray_http::HttpError) -> Self {
        match error.failure {
            FailureKind::TooLong(limit) => Self::TooLong(limit),
            FailureKind::Idle(_) => Self::Idle,
            FailureKind::Request(_) | FailureKind::Connect(_) | FailureKind::Options(_) => {
                Self::NotSent(error.into())
            }
            // A server that did not get the whole message cannot have acted on it.
            _ if error.sent == RequestProgress::Incomplete => Self::NotSent(error.into()),
            _ => Self::Broken(Some(error.into())),
        }
    }
}

/// Why a connection that carries all answers ended; returned to callers that find it closed.
#[derive(Clone, Debug, Default)]
pub(crate) struct CloseReason(Arc<Mutex<Option<WireError>>>);

impl CloseReason {
    /// Sets the cause, unless one is set already.
    pub(crate) fn set(&self, cause: WireError) {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        current.get_or_insert(cause);
    }

    /// The cause; later callers learn only that the connection ended.
    pub(crate) fn cause(&self) -> WireError {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Errors cannot be cloned, so the first caller gets the details.
        current.take().unwrap_or(WireError::Broken(None))
    }
}
