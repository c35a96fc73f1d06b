//! The errors of the folder, and their codes in S3.

use std::io::ErrorKind;

use s3s::{S3Error, S3ErrorCode, StdError};

/// Failure of an operation on the folder.
#[derive(Debug, thiserror::Error)]
pub(super) enum FolderError {
    #[error("no such bucket")]
    NoSuchBucket,
    #[error("the bucket already exists")]
    BucketExists,
    #[error("no such key")]
    NoSuchKey,
    #[error("no such upload")]
    NoSuchUpload,
    #[error("a condition does not hold")]
    Precondition,
    #[error("the checksum does not match")]
    BadDigest,
    #[error("the body ended early")]
    Incomplete,
    #[error("a part is missing or has another tag")]
    InvalidPart,
    #[error("parts are not in order")]
    InvalidPartOrder,
    #[error("a part but the last is smaller than 5 MiB")]
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

impl From<FolderError> for S3Error {
    fn from(failure: FolderError) -> Self {
        let code = match &failure {
            FolderError::NoSuchBucket => S3ErrorCode::NoSuchBucket,
            FolderError::BucketExists => S3ErrorCode::BucketAlreadyOwnedByYou,
            FolderError::NoSuchKey => S3ErrorCode::NoSuchKey,
            FolderError::NoSuchUpload => S3ErrorCode::NoSuchUpload,
            FolderError::Precondition => S3ErrorCode::PreconditionFailed,
            FolderError::BadDigest => S3ErrorCode::BadDigest,
            FolderError::Incomplete | FolderError::Body(_) => S3ErrorCode::IncompleteBody,
            FolderError::InvalidPart => S3ErrorCode::InvalidPart,
            FolderError::InvalidPartOrder => S3ErrorCode::InvalidPartOrder,
            FolderError::TooSmall => S3ErrorCode::EntityTooSmall,
            FolderError::KeyTooLong => S3ErrorCode::KeyTooLongError,
            FolderError::Range => S3ErrorCode::InvalidRange,
            FolderError::Invalid(_) => S3ErrorCode::InvalidArgument,
            FolderError::NotOffered(_) => S3ErrorCode::NotImplemented,
            // The code of MinIO for a full disk; S3 itself has none.
            FolderError::Io(error) if is_full(error.kind()) => {
                let mut full = S3Error::new(S3ErrorCode::Custom("XMinioStorageFull".into()));
                full.set_message("The store's disk is full.");
                full.set_status_code(http::StatusCode::INSUFFICIENT_STORAGE);
                return full;
            }
            FolderError::Io(error) => {
                // The detail is for the log: it has paths of this machine.
                tracing::error!(%error, "could not use the directory of the embedded store");
                return S3Error::new(S3ErrorCode::InternalError);
            }
        };
        S3Error::with_message(code, failure.to_string())
    }
}
