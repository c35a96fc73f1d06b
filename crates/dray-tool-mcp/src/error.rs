//! Failures of the connection to a server.

use std::sync::{Arc, Mutex, PoisonError};

use dray_http::{Cause, FailureKind, RequestProgress};
use dray_tool::stage::value::shorten_text;
use dray_types::terminal::printable_text;
use rmcp::model::ErrorData;
use rmcp::service::{ClientInitializeError, ServiceError};
use rmcp::transport::streamable_http_client::StreamableHttpError;
use thiserror::Error;

use crate::oauth::{Challenge, SignInError};
use crate::wire::ServerAddress;

/// A message that was not sent, or whose response did not arrive. The texts are suitable for an agent: no address, no
/// path.
#[derive(Debug, Error)]
pub(crate) enum WireError {
    /// An HTTP status that is not a success. The server did not accept the message.
    #[error("the server answered with HTTP status {0}")]
    Status(u16),
    /// Like [`Self::Status`], 401 or 403, with the challenge of the server.
    #[error("the server answered with HTTP status {}", .0.status)]
    Challenged(Box<Challenge>),
    /// The server certainly did not get the whole message.
    #[error("the server cannot be reached")]
    NotSent(#[source] Cause),
    /// The connection ended before the response; the server may have received the message.
    #[error("the connection ended before the answer came")]
    Broken(#[source] Option<Cause>),
    /// No bytes arrived for too long.
    #[error("the server did not answer in time")]
    Idle,
    /// The response is longer than this many bytes.
    #[error("the answer is longer than {0} bytes")]
    TooLong(usize),
    /// The response violates MCP.
    #[error("the server does not respond as an MCP server: {0}")]
    Malformed(&'static str),
}

impl WireError {
    /// Whether the server certainly did nothing, so that the message may be sent again.
    pub(crate) const fn is_unsent(&self) -> bool {
        // 404 means that the server does not know the session (MCP, streamable HTTP).
        matches!(self, Self::NotSent(_) | Self::Status(404))
    }

    /// Whether the same message may succeed a moment later.
    pub(crate) const fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::NotSent(_) | Self::Broken(_) | Self::Idle | Self::Status(429 | 500..=599)
        )
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

/// The reason why a connection that carries all responses ended; returned to callers that find it closed.
#[derive(Clone, Debug, Default)]
pub(crate) struct CloseReason(Arc<Mutex<Option<WireError>>>);

impl CloseReason {
    /// Sets the cause, unless one is set already.
    pub(crate) fn set(&self, cause: WireError) {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        current.get_or_insert(cause);
    }

    /// The cause; later callers get only the information that the connection ended.
    pub(crate) fn cause(&self) -> WireError {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Errors cannot be cloned, so the first caller gets the details.
        current.take().unwrap_or(WireError::Broken(None))
    }
}

/// Code of a server's error that means a timeout (quickapps 21).
pub(crate) const REQUEST_TIMEOUT: i32 = 408;

/// Most characters of a server's error message that are kept.
const MAX_MESSAGE_CHARACTERS: usize = 2000;

/// An error message of a server for the model, the user and the log. The server chooses its text.
pub(crate) fn bounded_message(message: &str) -> String {
    // The text is cut first, so that the rest is not searched for characters to remove. The note about the cut has only
    // printable characters.
    printable_text(&shorten_text(message, MAX_MESSAGE_CHARACTERS)).into_owned()
}

/// Most characters of a version that are shown.
const MAX_VERSION_CHARACTERS: usize = 40;

/// A version of MCP that a server named, for a message.
pub(crate) fn bounded_version(version: &str) -> String {
    printable_text(&shorten_text(version, MAX_VERSION_CHARACTERS)).into_owned()
}

/// Code of a server's error that names pages for the user (MCP 2025-11-25, `URLElicitationRequiredError`).
const PAGES_REQUIRED: i32 = -32042;

/// A failure of a session or of one of its calls.
#[derive(Debug, Error)]
pub(crate) enum SessionError {
    /// The message or its response was lost.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The server answered with an error of JSON-RPC.
    #[error("{message}")]
    Refused {
        /// Code of JSON-RPC, or of the server's own.
        code: i32,
        /// Text of the server, for the caller.
        message: String,
    },
    /// The user has to visit pages before the call can succeed; with the data of the error.
    #[error("the server wants the user to visit a page first")]
    PagesRequired(serde_json::Value),
    /// The server named its versions of MCP, and none of them is known here.
    #[error("the server speaks no version of MCP that is known here")]
    NoCommonVersion,
    /// The server answered `initialize` with a version that is not known here.
    #[error("the server begins a session in version `{0}` of MCP, which is not known here")]
    UnknownVersion(String),
    /// The response of the server violates MCP.
    #[error("the server does not respond as an MCP server: {0}")]
    Malformed(&'static str),
    /// The operator's limit of running programs is reached, and none of them is idle.
    #[error("too many programs are running; another attempt later may work")]
    TooManyPrograms,
    /// The sign-in that the server requires failed.
    #[error(transparent)]
    SignIn(#[from] SignInError),
    /// The set-up took too long.
    #[error("the server did not answer in time")]
    TimedOut,
    /// The call became a task, whose outcome cannot be read. The tool has begun, so the call is not repeated.
    #[error("the call became a task at the server, whose outcome is not known: {0}")]
    TaskLost(WireError),
}

impl SessionError {
    /// The HTTP status behind it.
    pub(crate) const fn status(&self) -> Option<u16> {
        match self {
            Self::Wire(WireError::Status(status)) => Some(*status),
            Self::Wire(WireError::Challenged(challenge)) => Some(challenge.status),
            _ => None,
        }
    }

    /// The server's requirement before it continues.
    pub(crate) const fn challenge(&self) -> Option<&Challenge> {
        match self {
            Self::Wire(WireError::Challenged(challenge)) => Some(challenge),
            _ => None,
        }
    }

    /// Whether the error is a timeout.
    pub(crate) const fn is_timeout(&self) -> bool {
        matches!(
            self,
            Self::TimedOut
                | Self::Wire(WireError::Idle | WireError::Status(408))
                | Self::Refused {
                    code: REQUEST_TIMEOUT,
                    ..
                }
        )
    }

    /// Whether a server that did not name its versions may still work when a session begins with `initialize`.
    pub(crate) const fn permits_initialize(&self, target: &ServerAddress) -> bool {
        match self {
            Self::NoCommonVersion => true,
            // Some programs exit when the first message is not `initialize`.
            Self::Wire(WireError::Broken(_)) => matches!(target, ServerAddress::Stdio { .. }),
            _ => false,
        }
    }

    /// Whether the server certainly did nothing.
    pub(crate) const fn is_unsent(&self) -> bool {
        matches!(self, Self::Wire(error) if error.is_unsent())
    }

    /// The failure of a request about a task.
    pub(crate) fn into_task_failure(self) -> Self {
        match self {
            Self::Wire(error) => Self::TaskLost(error),
            other => other,
        }
    }

    fn refused(error: &ErrorData) -> Self {
        Self::Refused {
            code: error.code.0,
            message: bounded_message(&error.message),
        }
    }

    pub(crate) fn of_service(error: ServiceError, close_reason: &CloseReason) -> Self {
        match error {
            ServiceError::McpError(error) if error.code.0 == PAGES_REQUIRED => {
                Self::PagesRequired(error.data.unwrap_or_default())
            }
            ServiceError::McpError(error) => Self::refused(&error),
            ServiceError::TransportSend(error) => of_wire(error.error),
            ServiceError::Timeout { .. } => Self::TimedOut,
            ServiceError::TransportClosed => close_reason.cause().into(),
            _ => Self::Malformed("its response is not one to this request"),
        }
    }

    pub(crate) fn of_start(error: ClientInitializeError, close_reason: &CloseReason) -> Self {
        match error {
            ClientInitializeError::TransportError { error, .. } => of_wire(error.error),
            ClientInitializeError::ConnectionClosed(_) => close_reason.cause().into(),
            // The first failure only means that the server does not know `server/discover`.
            ClientInitializeError::LegacyFallbackFailed { fallback, .. } => {
                Self::of_start(*fallback, close_reason)
            }
            ClientInitializeError::JsonRpcError(error) => Self::refused(&error),
            ClientInitializeError::NoCompatibleProtocolVersion { .. } => Self::NoCommonVersion,
            _ => Self::Malformed("the handshake failed"),
        }
    }
}

/// The failure of a transport: one of this crate, or that of `rmcp` over the HTTP client of this crate.
fn of_wire(error: Box<dyn std::error::Error + Send + Sync>) -> SessionError {
    let error = match error.downcast::<WireError>() {
        Ok(error) => return SessionError::Wire(*error),
        Err(other) => other,
    };
    match error.downcast::<StreamableHttpError<WireError>>() {
        Ok(error) => match *error {
            StreamableHttpError::Client(error) => SessionError::Wire(error),
            other => SessionError::Wire(WireError::Broken(Some(other.into()))),
        },
        Err(other) => SessionError::Wire(WireError::Broken(Some(other))),
    }
}
