//! The failures of one request to the store: maps the SDK's errors to a few kinds that callers can act on.

use std::error::Error as StdError;

use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_types::error::display::DisplayErrorContext;

/// A cause that is shown only in the operator's log.
pub(crate) type ErrorSource = Box<dyn StdError + Send + Sync>;

/// A failed request.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The store could not be connected, or the connection broke before the response was complete.
    #[error("the object store cannot be reached")]
    Unreachable(#[source] ErrorSource),
    /// A limit of connect, request or idle time passed, or the caller's deadline.
    #[error("the object store did not respond in time")]
    TimedOut,
    /// No permit became free in time.
    #[error("too many concurrent requests to the object store")]
    Busy,
    /// The store responds that it cannot handle the request now (5xx, 408, 425, 429).
    #[error("the object store failed with status {status} ({code})")]
    ServerError {
        /// HTTP status of the response.
        status: u16,
        /// The store's error code.
        code: String,
    },
    /// The store is full; the code is the store's own.
    #[error("the object store is full ({code})")]
    Full {
        /// The store's error code.
        code: String,
    },
    /// The key has no object.
    #[error("no such object")]
    Missing,
    /// A condition of the request failed: the key already has an object.
    #[error("the object exists already")]
    Exists,
    /// The store found bytes that do not match their checksum.
    #[error("the store refused the bytes: checksum mismatch ({code})")]
    Corrupted {
        /// The store's error code.
        code: String,
    },
    /// The store refused: credentials, permissions, or a request that it does not understand.
    #[error("the object store refused the request (status {status}, {code})")]
    Refused {
        /// HTTP status of the response.
        status: u16,
        /// The store's error code.
        code: String,
    },
    /// The request could not be built or the response not parsed.
    #[error("the object store sent an invalid response: {0}")]
    InvalidResponse(String),
}

impl RequestError {
    /// Whether the store was away, over its capacity or full, so that the request says nothing about its object. The
    /// same request may succeed later.
    pub const fn is_unavailable(&self) -> bool {
        match self {
            Self::Unreachable(_)
            | Self::TimedOut
            | Self::Busy
            | Self::ServerError { .. }
            | Self::Full { .. } => true,
            Self::Missing
            | Self::Exists
            | Self::Corrupted { .. }
            | Self::Refused { .. }
            | Self::InvalidResponse(_) => false,
        }
    }
}

/// Error codes of S3-compatible stores that mean "no room".
const STORAGE_FULL_CODES: [&str; 5] = [
    "XMinioStorageFull",
    "XMinioAdminBucketQuotaExceeded",
    "QuotaExceeded",
    "InsufficientStorage",
    "StorageFull",
];

/// Error codes for bytes that do not match their checksum.
const CORRUPTED_BODY_CODES: [&str; 4] = [
    "BadDigest",
    "XAmzContentSHA256Mismatch",
    "XAmzContentChecksumMismatch",
    "InvalidDigest",
];

impl RequestError {
    /// Reads the SDK's error of a failed request.
    pub(crate) fn from_sdk<E>(error: SdkError<E>) -> Self
    where
        E: ProvideErrorMetadata + StdError + Send + Sync + 'static,
    {
        match error {
            SdkError::TimeoutError(_) => Self::TimedOut,
            // A connection that timed out is reported as a failed dispatch.
            SdkError::DispatchFailure(failure) if failure.is_timeout() => Self::TimedOut,
            SdkError::ServiceError(response) => {
                let status = response.raw().status().as_u16();
                Self::from_response(status, response.err().code().unwrap_or_default())
            }
            SdkError::ResponseError(response) if response.raw().status().as_u16() >= 400 => {
                Self::from_response(response.raw().status().as_u16(), "")
            }
            // There was no connection, or the body of a success broke off.
            error @ (SdkError::DispatchFailure(_) | SdkError::ResponseError(_)) => {
                Self::Unreachable(ErrorSource::from(error))
            }
            error => Self::InvalidResponse(DisplayErrorContext(&error).to_string()),
        }
    }

    fn from_response(status: u16, code: &str) -> Self {
        let owned = || code.to_owned();
        match status {
            // Codes before statuses: stores report a full disk with different statuses.
            _ if STORAGE_FULL_CODES.contains(&code) => Self::Full { code: owned() },
            507 => Self::Full { code: owned() },
            _ if CORRUPTED_BODY_CODES.contains(&code) => Self::Corrupted { code: owned() },
            404 => Self::Missing,
            // AWS responds 409 to concurrent conditional writes.
            412 | 409
                if matches!(
                    code,
                    "" | "PreconditionFailed" | "ConditionalRequestConflict"
                ) =>
            {
                Self::Exists
            }
            408 | 425 | 429 | 500..=599 => Self::ServerError {
                status,
                code: owned(),
            },
            _ => Self::Refused {
                status,
                code: owned(),
            },
        }
    }
}
