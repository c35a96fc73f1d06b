//! What can go wrong with a DIAL file, and the message for the agent.

use std::time::Duration;

use http::header::{HeaderMap, RETRY_AFTER};
use reqwest::StatusCode;
use rustls::pki_types::pem;

use dray_types::{ByteSize, Fault, FaultCode};

use crate::reply;
use crate::shown::DisplayName;

/// Longest wait that an answer may ask for (messaging-reliability 8).
const LONGEST_WAIT: Duration = Duration::from_mins(10);

/// The client could not be made.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file with the authorities cannot be read.
    #[error("dial_ca_file cannot be read as PEM certificates")]
    Authorities(#[source] pem::Error),
    /// An authority or the TLS set-up is not usable.
    #[error("TLS towards DIAL cannot be set up")]
    Tls(#[source] rustls::Error),
    /// The HTTP client could not be made.
    #[error("the HTTP client towards DIAL cannot be set up")]
    Client(#[source] reqwest::Error),
}

/// A file of DIAL Core could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// A credential cannot stand in a header.
    #[error("a DIAL credential cannot stand in a header")]
    InvalidCredential,
    /// 401.
    #[error("DIAL does not accept the credentials")]
    Unauthorized,
    /// 403.
    #[error("DIAL refuses access to the file")]
    Forbidden,
    /// 404 or 410.
    #[error("the file is not in DIAL")]
    NotFound,
    /// 408, 425 or 429.
    #[error("DIAL is busy")]
    Busy(Duration),
    /// 5xx.
    #[error("DIAL answered HTTP status {status}")]
    Failing {
        /// The status.
        status: StatusCode,
        /// When to try again.
        wait: Duration,
    },
    /// Any other status that is not success, redirects included.
    #[error("DIAL answered HTTP status {0}")]
    Refused(StatusCode),
    /// It is a folder.
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
    /// As many bytes came as the answer promised, but not as many as the metadata stated.
    #[error("{read} bytes came, the metadata stated {stated}")]
    LengthMismatch {
        /// What the metadata stated.
        stated: u64,
        /// What was read.
        read: u64,
    },
    /// An answer that breaks the API's contract.
    #[error("DIAL sent an answer that cannot be used: {0}")]
    Malformed(&'static str),
    /// Nothing came for too long.
    #[error("DIAL did not answer in time")]
    TimedOut(#[source] reqwest::Error),
    /// No connection could be made.
    #[error("DIAL cannot be reached")]
    Unreachable(#[source] reqwest::Error),
    /// The connection broke.
    #[error("the connection to DIAL broke")]
    Interrupted(#[source] reqwest::Error),
}

impl DialError {
    /// Sorts a failure of the HTTP client; its text loses the URL.
    pub(super) fn from_http(error: reqwest::Error) -> Self {
        let error = error.without_url();
        if error.is_timeout() {
            Self::TimedOut(error)
        } else if error.is_connect() {
            Self::Unreachable(error)
        } else {
            Self::Interrupted(error)
        }
    }

    /// The failure that a status means; `None` for success.
    pub(super) fn from_status(status: StatusCode, headers: &HeaderMap) -> Option<Self> {
        Some(match status.as_u16() {
            200 => return None,
            401 => Self::Unauthorized,
            403 => Self::Forbidden,
            404 | 410 => Self::NotFound,
            408 | 425 | 429 => Self::Busy(retry_after(headers)),
            500..=599 => Self::Failing {
                status,
                wait: retry_after(headers),
            },
            _ => Self::Refused(status),
        })
    }

    /// Whether the model can correct the call: by naming another file, or a smaller one.
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

    /// The message for the agent about `file`.
    pub fn fault(&self, file: &DisplayName) -> Fault {
        let failed = |code, detail: &str, what: &str| {
            Fault::new(code, format!("File {file} could not be loaded: {what}.")).detail(detail)
        };
        let passing = |detail: &str, what: &str, delay| {
            failed(FaultCode::Unavailable, detail, what)
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
            Self::Failing { wait, .. } => passing("dial_failing", "DIAL failed to answer", *wait),
            Self::Refused(status) => failed(
                FaultCode::Unavailable,
                "dial_refused",
                &format!("DIAL answered HTTP status {}", status.as_u16()),
            ),
            Self::Folder => failed(FaultCode::InvalidArgument, "folder", "it is a folder")
                .advice("Pass the path of a file."),
            Self::TooLarge { size, limit } => {
                Fault::new(FaultCode::TooLarge, reply::file_size(*size, *limit))
                    .detail("file_too_large")
                    .advice("Use a smaller file.")
            }
            Self::LengthMismatch { .. } => {
                passing("dial_length", "its length is not the stated one", second)
            }
            Self::Malformed(_) => passing(
                "dial_malformed",
                "DIAL sent an answer that cannot be used",
                second,
            ),
            Self::TimedOut(_) => failed(
                FaultCode::Timeout,
                "dial_timeout",
                "DIAL did not answer in time",
            )
            .advice("Try again in a moment.")
            .retry_after(second),
            Self::Unreachable(_) => passing("dial_unreachable", "DIAL cannot be reached", second),
            Self::Interrupted(_) => passing(
                "dial_interrupted",
                "the transfer ended before the file was complete",
                second,
            ),
        }
    }
}

/// `Retry-After` in seconds, at most ten minutes; a second when there is none.
fn retry_after(headers: &HeaderMap) -> Duration {
    headers
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.trim().parse().ok())
        .map_or(Duration::from_secs(1), Duration::from_secs)
        .min(LONGEST_WAIT)
}
