//! The failures of a DIAL file, and the message for the agent.

use std::time::Duration;

use dray_dial::ErrorKind;
use dray_http::HttpError;
use dray_types::{ByteSize, Fault, FaultCode};

use crate::reply;
use crate::shown::DisplayName;

/// Longest wait that a response may request (messaging-reliability 8).
const MAX_RETRY_DELAY: Duration = Duration::from_mins(10);

/// Wait before another attempt if the response has none.
const DEFAULT_RETRY_DELAY: Duration = Duration::from_secs(1);

/// A file of DIAL Core could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// A credential is not a valid header value.
    #[error("a DIAL credential is not a valid header value")]
    InvalidCredential,
    /// Status 401: DIAL does not accept the credentials.
    #[error("DIAL does not accept the credentials")]
    Unauthorized,
    /// Status 403: the user may not read the file.
    #[error("DIAL refuses access to the file")]
    Forbidden,
    /// Status 404 or 410: the file does not exist.
    #[error("the file is not in DIAL")]
    NotFound,
    /// Status 408, 425 or 429, with the time to wait.
    #[error("DIAL is busy")]
    Busy(Duration),
    /// Status 5xx: DIAL itself failed.
    #[error("DIAL answered HTTP status {status}")]
    Failing {
        /// Status of the response.
        status: u16,
        /// Time to wait before another attempt.
        wait: Duration,
    },
    /// Any other status that is not success, redirects included.
    #[error("DIAL answered HTTP status {0}")]
    Refused(u16),
    /// The metadata name a folder.
    #[error("a folder, not a file")]
    Folder,
    /// More bytes than allowed, stated or read.
    #[error("{size} bytes are over the limit of {limit}")]
    TooLarge {
        /// Stated size, or the first byte too many.
        size: u64,
        /// Most bytes allowed.
        limit: ByteSize,
    },
    /// The number of bytes matches the response head but not the metadata.
    #[error("{read} bytes arrived, the metadata stated {stated}")]
    LengthMismatch {
        /// Bytes that the metadata stated.
        stated: u64,
        /// Bytes that were read.
        read: u64,
    },
    /// A response that breaks the contract of the API.
    #[error("DIAL sent a response that cannot be used: {0}")]
    Malformed(String),
    /// No data arrived within a time limit.
    #[error("DIAL did not respond in time")]
    TimedOut(#[source] Option<Box<HttpError>>),
    /// No connection could be made.
    #[error("DIAL cannot be reached")]
    Unreachable(#[source] Option<Box<HttpError>>),
    /// The connection broke before the file was complete.
    #[error("the connection to DIAL broke")]
    Interrupted(#[source] Option<Box<HttpError>>),
}

impl DialError {
    /// Converts a failure of the client. Texts of DIAL are dropped: neither the agent nor the log may contain them.
    pub(super) fn from_client(error: dray_dial::Error, limit: ByteSize) -> Self {
        let wait = error.retry_after.unwrap_or(DEFAULT_RETRY_DELAY);
        if let Some(status) = error.status {
            return Self::from_status(status, wait.min(MAX_RETRY_DELAY));
        }
        let timed_out = error
            .source
            .as_ref()
            .is_some_and(|cause| cause.is_timeout());
        match (error.kind, error.size) {
            (ErrorKind::TooLarge, Some(size)) => Self::TooLarge { size, limit },
            (ErrorKind::TooLarge, None) => Self::Malformed("the metadata are too long".to_owned()),
            (ErrorKind::Timeout, _) => Self::TimedOut(error.source),
            (ErrorKind::Connect, _) if timed_out => Self::TimedOut(error.source),
            (ErrorKind::Connect, _) => Self::Unreachable(error.source),
            (ErrorKind::Broken, _) => Self::Interrupted(error.source),
            // The path is canonical, so only a credential can make a request impossible.
            (ErrorKind::Request, _) => Self::InvalidCredential,
            (ErrorKind::Malformed | ErrorKind::Status | ErrorKind::Conflict, _) => {
                Self::Malformed(error.message)
            }
        }
    }

    fn from_status(status: u16, wait: Duration) -> Self {
        match status {
            401 => Self::Unauthorized,
            403 => Self::Forbidden,
            404 | 410 => Self::NotFound,
            408 | 425 | 429 => Self::Busy(wait),
            500..=599 => Self::Failing { status, wait },
            _ => Self::Refused(status),
        }
    }

    /// Returns whether the model can correct the call by naming another file, or a smaller one.
    pub const fn is_correctable(&self) -> bool {
        match self {
            Self::Forbidden
            | Self::NotFound
            | Self::Refused(_)
            | Self::Folder
            | Self::TooLarge { .. } => true,
            Self::InvalidCredential
            | Self::Unauthorized
            | Self::Busy(_)
            | Self::Failing { .. }
            | Self::LengthMismatch { .. }
            | Self::Malformed(_)
            | Self::TimedOut(_)
            | Self::Unreachable(_)
            | Self::Interrupted(_) => false,
        }
    }

    /// The message for the agent about `file`, without words of DIAL.
    pub fn fault(&self, file: &DisplayName) -> Fault {
        let failed = |code, detail: &str, description: &str| {
            let text = format!("File {file} could not be loaded: {description}.");
            Fault::new(code, text).detail(detail)
        };
        let transient = |detail: &str, description: &str, delay| {
            failed(FaultCode::Unavailable, detail, description)
                .advice("Try again in a moment.")
                .retry_after(delay)
        };
        let second = Duration::from_secs(1);
        match self {
            Self::InvalidCredential | Self::Unauthorized => failed(
                FaultCode::Denied,
                "dial_unauthorized",
                "DIAL does not accept the credentials",
            )
            .advice("Sign in again, or tell the operator."),
            Self::Forbidden => failed(FaultCode::Denied, "dial_forbidden", "access is denied")
                .advice("Use a file that the user may read."),
            Self::NotFound => failed(FaultCode::NotFound, "dial_not_found", "it does not exist")
                .advice("Check the path of the file."),
            Self::Busy(delay) => failed(FaultCode::RateLimited, "dial_busy", "DIAL is busy")
                .advice("Try again later.")
                .retry_after(*delay),
            Self::Failing { wait, .. } => transient("dial_failing", "DIAL failed to answer", *wait),
            Self::Refused(status) => failed(
                FaultCode::Unavailable,
                "dial_refused",
                &format!("DIAL answered HTTP status {status}"),
            ),
            Self::Folder => failed(FaultCode::InvalidArgument, "folder", "it is a folder")
                .advice("Pass the path of a file."),
            Self::TooLarge { size, limit } => {
                Fault::new(FaultCode::TooLarge, reply::file_size(*size, *limit))
                    .detail("file_too_large")
                    .advice("Use a smaller file.")
            }
            Self::LengthMismatch { .. } => {
                transient("dial_length", "its length is not the stated one", second)
            }
            Self::Malformed(_) => transient(
                "dial_malformed",
                "DIAL sent a response that cannot be used",
                second,
            ),
            Self::TimedOut(_) => failed(
                FaultCode::Timeout,
                "dial_timeout",
                "DIAL did not respond in time",
            )
            .advice("Try again in a moment.")
            .retry_after(second),
            Self::Unreachable(_) => transient("dial_unreachable", "DIAL cannot be reached", second),
            Self::Interrupted(_) => transient(
                "dial_interrupted",
                "the transfer ended before the file was complete",
                second,
            ),
        }
    }
}
