//! The errors of the directory, and their codes in S3.

use std::io::ErrorKind;

use s3s::{S3Error, S3ErrorCode, StdError};

/// Failure of an operation on the directory.
#[derive(Debug, thiserror::Error)]
pub(super) enum DirectoryError {
    #[error("no such bucket")]
    NoSuchBucket,
    #[error("the bucket already exists")]
    BucketExists,
    #[error("no such key")]
    NoSuchKey,
    #[error("no such upload")]
    NoSuchUpload,
    #[error("the condition of the request does not hold")]
    Precondition,
    #[error("the checksum does not match")]
    BadDigest,
    #[error("the body ended early")]
    Incomplete,
    #[error("a part is missing or has another tag")]
    InvalidPart,
    #[error("parts are not in order")]
    InvalidPartOrder,
    #[error("a part other than the last is smaller than 5 MiB")]
    TooSmall,
    #[error("the key is too long")]
    KeyTooLong,
    #[error("the range cannot be served")]
    Range,
    #[error("{0}")]
    Invalid(&'static str),
    #[error("{0} is not supported")]
    NotOffered(&'static str),
    #[error("the request body was interrupted")]
    Body(#[source] StdError),
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Returns whether the disk, a quota or the capacity is exhausted.
fn is_full(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge
    )
}

impl From<DirectoryError> for S3Error {
    fn from(failure: DirectoryError) -> Self {
        let code = match &failure {
            DirectoryError::NoSuchBucket => S3ErrorCode::NoSuchBucket,
            DirectoryError::BucketExists => S3ErrorCode::BucketAlreadyOwnedByYou,
            DirectoryError::NoSuchKey => S3ErrorCode::NoSuchKey,
            DirectoryError::NoSuchUpload => S3ErrorCode::NoSuchUpload,
            DirectoryError::Precondition => S3ErrorCode::PreconditionFailed,
            DirectoryError::BadDigest => S3ErrorCode::BadDigest,
            DirectoryError::Incomplete | DirectoryError::Body(_) => S3ErrorCode::IncompleteBody,
            DirectoryError::InvalidPart => S3ErrorCode::InvalidPart,
            DirectoryError::InvalidPartOrder => S3ErrorCode::InvalidPartOrder,
            DirectoryError::TooSmall => S3ErrorCode::EntityTooSmall,
            DirectoryError::KeyTooLong => S3ErrorCode::KeyTooLongError,
            DirectoryError::Range => S3ErrorCode::InvalidRange,
            DirectoryError::Invalid(_) => S3ErrorCode::InvalidArgument,
            DirectoryError::NotOffered(_) => S3ErrorCode::NotImplemented,
            // This is the code of MinIO for a full disk; S3 itself has none.
            DirectoryError::Io(error) if is_full(error.kind()) => {
                let mut full = S3Error::new(S3ErrorCode::Custom("XMinioStorageFull".into()));
                full.set_message("The store's disk is full.");
                full.set_status_code(http::StatusCode::INSUFFICIENT_STORAGE);
                return full;
            }
            DirectoryError::Io(error) => {
                // The detail is for the log: it has paths of this machine.
                tracing::error!(%error, "could not use the directory of the embedded store");
                return S3Error::new(S3ErrorCode::InternalError);
            }
        };
        S3Error::with_message(code, failure.to_string())
    }
}
