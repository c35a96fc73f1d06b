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
    /// The store responds that it cannot handle the request now (5xx, 408, 425, 429, an error in a successful response,
    /// or a code of a temporary failure).
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

/// Error codes of failures that pass, with whatever status the store sends them (S3 error responses).
const TEMPORARY_CODES: [&str; 13] = [
    "InternalError",
    "SlowDown",
    "ServiceUnavailable",
    "RequestTimeout",
    "RequestTimeTooSkewed",
    "OperationAborted",
    "ExpiredToken",
    "Throttling",
    "ThrottlingException",
    "RequestThrottled",
    "RequestThrottledException",
    "RequestLimitExceeded",
    "TooManyRequests",
];

/// Error code of a bucket that does not exist, which says nothing about the object.
const MISSING_BUCKET_CODE: &str = "NoSuchBucket";

/// Error codes for bytes that do not match their checksum.
const CORRUPTED_BODY_CODES: [&str; 4] = [
    "BadDigest",
    "XAmzContentSHA256Mismatch",
    "XAmzContentChecksumMismatch",
    "InvalidDigest",
];

impl RequestError {
    /// Whether the store has no such bucket.
    pub(crate) fn is_missing_bucket(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == MISSING_BUCKET_CODE)
    }

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
            _ if TEMPORARY_CODES.contains(&code) => Self::ServerError {
                status,
                code: owned(),
            },
            _ if code == MISSING_BUCKET_CODE => Self::Refused {
                status,
                code: owned(),
            },
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
            // S3 reports the failure of a long request in the body of a response that began as a success.
            200..=299 | 408 | 425 | 429 | 500..=599 => Self::ServerError {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_failures_are_known_by_their_codes() {
        for (status, code) in [
            (200, "InternalError"),
            (200, "SomethingNew"),
            (400, "RequestTimeout"),
            (400, "ExpiredToken"),
            (403, "RequestTimeTooSkewed"),
            (409, "OperationAborted"),
            (503, "SlowDown"),
            (500, ""),
        ] {
            let error = RequestError::from_response(status, code);
            assert!(error.is_unavailable(), "{status} {code}: {error:?}");
        }
        for (status, code) in [(400, "InvalidRequest"), (403, "AccessDenied"), (404, "")] {
            let error = RequestError::from_response(status, code);
            assert!(!error.is_unavailable(), "{status} {code}: {error:?}");
        }
    }

    #[test]
    fn a_missing_bucket_is_not_a_missing_object() {
        let error = RequestError::from_response(404, "NoSuchBucket");
        assert!(matches!(error, RequestError::Refused { .. }), "{error:?}");
        assert!(crate::OpenError::Request(error).is_temporary());
        for code in ["", "NoSuchKey", "NoSuchUpload"] {
            let error = RequestError::from_response(404, code);
            assert!(matches!(error, RequestError::Missing), "{error:?}");
        }
    }
}
