//! The errors of each operation, and the fault for its caller.

use std::time::Duration;

use dray_types::{Fault, FaultCode};

use crate::options::OptionProblem;
use crate::request::RequestError;

/// The store cannot be used; no operation was started.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The options are wrong.
    #[error("the store's options are wrong: {}", list_problems(.0))]
    Options(Vec<OptionProblem>),
    /// The file with certificate authorities cannot be used.
    #[error("store.ca_file cannot be used")]
    Authorities(#[source] std::io::Error),
    /// The bucket could not be created.
    #[error("the bucket could not be created")]
    Bucket(#[source] RequestError),
    /// A self-test request failed.
    #[error("the store's self-test could not run")]
    Request(#[from] RequestError),
    /// A second conditional create of one key succeeded: two writers would overwrite each other
    /// (messaging-reliability K-7).
    #[error("the object store ignores `If-None-Match: *`; it cannot be used safely")]
    Unconditional,
}

impl OpenError {
    /// Returns whether a later attempt may succeed: the store is not reachable yet, or has no bucket yet.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Bucket(error) | Self::Request(error) => {
                // A deployment may create the bucket later than the services start.
                error.is_missing_bucket()
                    || matches!(
                        error,
                        RequestError::Unreachable(_)
                            | RequestError::TimedOut
                            | RequestError::Busy
                            | RequestError::ServerError { .. }
                            | RequestError::Missing
                    )
            }
            Self::Options(_) | Self::Authorities(_) | Self::Unconditional => false,
        }
    }
}

fn list_problems(problems: &[OptionProblem]) -> String {
    let texts: Vec<_> = problems.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

/// Bytes could not be stored. This call makes no object visible under the artifact's key.
#[derive(Debug, thiserror::Error)]
pub enum PutError {
    /// The content is larger than one object can be.
    #[error("the content is larger than {limit} bytes, the limit of one object")]
    TooLarge {
        /// Largest size in bytes.
        limit: u64,
    },
    /// The object under the artifact's key has another size or checksum than the artifact.
    #[error("the stored object does not match the digest in its key")]
    Conflict,
    /// The store reports another checksum than the bytes that were sent have.
    #[error("the stored bytes differ from the bytes that were sent")]
    Corrupted,
    /// An earlier call of this writer failed, and the upload was aborted.
    #[error("an earlier write of this upload failed")]
    EarlierWriteFailed,
    /// A request to the store failed.
    #[error(transparent)]
    Request(#[from] RequestError),
}

/// An artifact could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The claim belongs to another tenant.
    #[error("the claim belongs to another tenant")]
    ForeignTenant,
    /// The claim names a store that is not configured here.
    #[error("the claim names the store `{0}`")]
    UnknownStore(String),
    /// No object is stored under the claim's key: it expired, or it was never finished.
    #[error("the claim's object is gone")]
    Missing,
    /// Short, long or different bytes (messaging-reliability K-5).
    #[error("the stored bytes are not what the claim says: {0}")]
    Mismatch(&'static str),
    /// The artifact is larger than the caller accepts in memory.
    #[error("the artifact has {size} bytes, the limit is {limit}")]
    TooLarge {
        /// Bytes of the artifact.
        size: u64,
        /// Most bytes that the caller accepts.
        limit: u64,
    },
    /// A request failed, or the stream broke or stalled.
    #[error(transparent)]
    Request(#[from] RequestError),
}

/// No URL could be minted.
#[derive(Debug, thiserror::Error)]
pub enum PresignError {
    /// The claim belongs to another tenant.
    #[error("the claim belongs to another tenant")]
    ForeignTenant,
    /// The claim names a store that is not configured here.
    #[error("the claim names the store `{0}`")]
    UnknownStore(String),
    /// The object expires before the shortest link would.
    #[error("the object expires too soon for a link")]
    ObjectEnds,
    /// The signing credentials expire before the shortest link would.
    #[error("the credentials expire too soon for a link")]
    CredentialsEnd,
    /// The announced size is larger than one object can be.
    #[error("the content is larger than {limit} bytes, the limit of one object")]
    TooLarge {
        /// Largest size in bytes.
        limit: u64,
    },
    /// The media type has characters that are not allowed in a header.
    #[error("the media type is not valid in a header")]
    MediaType,
    /// The content came from the web, and the options allow no links to it.
    #[error("the content came from {host}, and no links to files from the web are made")]
    FromWeb {
        /// The host of the newest fetch that delivered it.
        host: String,
    },
    /// The store could not say where the content came from.
    #[error("the origin of the content cannot be read")]
    Origin(#[source] RequestError),
    /// The SDK could not sign the URL.
    #[error("signing failed")]
    Signing(#[source] RequestError),
}

/// An upload through a presigned URL could not be turned into a claim.
#[derive(Debug, thiserror::Error)]
pub enum ConfirmError {
    /// No object was uploaded, or it was already confirmed and removed from its staging key.
    #[error("nothing was uploaded")]
    NotUploaded,
    /// The upload has another size or digest than announced.
    #[error("the upload is not what was announced: {0}")]
    Mismatch(&'static str),
    /// The finished object could not be created.
    #[error("the upload could not be finished")]
    Put(#[source] PutError),
    /// A request to the store failed.
    #[error(transparent)]
    Request(#[from] RequestError),
}

impl ReadError {
    /// See [`RequestError::is_unavailable`].
    pub const fn is_unavailable(&self) -> bool {
        matches!(self, Self::Request(error) if error.is_unavailable())
    }
}

impl PutError {
    /// See [`RequestError::is_unavailable`].
    pub const fn is_unavailable(&self) -> bool {
        matches!(self, Self::Request(error) if error.is_unavailable())
    }
}

fn unavailable_fault(detail: &str, message: &str, seconds: u64) -> Fault {
    Fault::new(FaultCode::Unavailable, message)
        .detail(detail)
        .advice("Try again in a moment.")
        .retry_after(Duration::from_secs(seconds))
}

/// The fault for stored bytes that differ from their digest. It is not retried, because they stay wrong (K-5).
fn mismatch_fault() -> Fault {
    Fault::new(
        FaultCode::Unavailable,
        "The stored file is damaged, so it was not handed over.",
    )
    .detail("integrity_mismatch")
    .advice("Provide the file again.")
}

fn foreign_claim_fault() -> Fault {
    Fault::new(FaultCode::Denied, "The file belongs to another tenant.").detail("foreign_tenant")
}

fn unknown_store() -> Fault {
    Fault::new(
        FaultCode::InvalidArgument,
        "The file is kept in a store that is not known here.",
    )
    .detail("unknown_store")
}

fn too_large(limit: u64) -> Fault {
    Fault::new(
        FaultCode::TooLarge,
        format!("The file is larger than {limit} bytes."),
    )
    .detail("too_large")
    .advice("Use a smaller file.")
}

impl From<RequestError> for Fault {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Unreachable(_) => {
                unavailable_fault("store_unreachable", "The file store cannot be reached.", 1)
            }
            RequestError::TimedOut => Fault::new(
                FaultCode::Timeout,
                "The file store did not respond in time.",
            )
            .detail("store_timeout")
            .advice("Try again in a moment.")
            .retry_after(Duration::from_secs(1)),
            RequestError::Busy => Fault::new(
                FaultCode::RateLimited,
                "Too many files are being moved concurrently.",
            )
            .detail("store_busy")
            .advice("Try again in a moment.")
            .retry_after(Duration::from_secs(1)),
            RequestError::ServerError { .. } => {
                unavailable_fault("store_unavailable", "The file store is unavailable.", 2)
            }
            RequestError::Full { .. } => {
                Fault::new(FaultCode::Unavailable, "The file store is full.")
                    .detail("store_full")
                    .advice("Tell the operator; trying again helps only once there is room.")
                    .retry_after(Duration::from_secs(30))
            }
            RequestError::Missing => claim_missing(),
            RequestError::Corrupted { .. } => unavailable_fault(
                "store_corrupted",
                "The file was damaged on its way to the store.",
                1,
            ),
            // None of these is a mistake of the caller.
            RequestError::Exists
            | RequestError::Refused { .. }
            | RequestError::InvalidResponse(_) => Fault::internal().detail("store_refused"),
        }
    }
}

fn claim_missing() -> Fault {
    Fault::new(FaultCode::NotFound, "The stored file no longer exists.")
        .detail("claim_missing")
        .advice("Provide the file again.")
}

impl From<PutError> for Fault {
    fn from(error: PutError) -> Self {
        match error {
            PutError::TooLarge { limit } => too_large(limit),
            PutError::Conflict => mismatch_fault(),
            PutError::Corrupted => unavailable_fault(
                "store_corrupted",
                "The file was damaged on its way to the store.",
                1,
            ),
            PutError::EarlierWriteFailed => Fault::internal().detail("writer_failed_before"),
            PutError::Request(error) => error.into(),
        }
    }
}

impl From<ReadError> for Fault {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::ForeignTenant => foreign_claim_fault(),
            ReadError::UnknownStore(_) => unknown_store(),
            ReadError::Missing => claim_missing(),
            ReadError::Mismatch(_) => mismatch_fault(),
            ReadError::TooLarge { limit, .. } => too_large(limit),
            ReadError::Request(error) => error.into(),
        }
    }
}

impl From<PresignError> for Fault {
    fn from(error: PresignError) -> Self {
        match error {
            PresignError::ForeignTenant => foreign_claim_fault(),
            PresignError::UnknownStore(_) => unknown_store(),
            PresignError::ObjectEnds => claim_missing(),
            PresignError::CredentialsEnd => unavailable_fault(
                "credentials_ending",
                "No link can be made at the moment.",
                60,
            ),
            PresignError::TooLarge { limit } => too_large(limit),
            PresignError::MediaType => {
                Fault::new(FaultCode::InvalidArgument, "The media type is not valid.")
                    .detail("invalid_media_type")
            }
            PresignError::FromWeb { host } => Fault::new(
                FaultCode::Denied,
                format!(
                    "The file came from the web ({host}), and no links to such files are given out."
                ),
            )
            .detail("file_from_web")
            .advice("Deliver the file itself, if the rules of the chat allow it."),
            PresignError::Origin(error) => error.into(),
            PresignError::Signing(_) => Fault::internal().detail("signing_failed"),
        }
    }
}

impl From<ConfirmError> for Fault {
    fn from(error: ConfirmError) -> Self {
        match error {
            ConfirmError::NotUploaded => Fault::new(FaultCode::NotFound, "Nothing was uploaded.")
                .detail("not_uploaded")
                .advice("Upload the file first, exactly as announced."),
            ConfirmError::Mismatch(_) => Fault::new(
                FaultCode::InvalidArgument,
                "The upload has another size or digest than announced.",
            )
            .detail("upload_mismatch")
            .advice("Announce the file again and upload exactly those bytes."),
            ConfirmError::Put(error) => error.into(),
            ConfirmError::Request(error) => error.into(),
        }
    }
}
