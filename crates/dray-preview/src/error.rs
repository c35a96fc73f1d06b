//! Reasons why a preview is not made or shown.

use std::time::Duration;

use dray_bus::KeyError;
use dray_sandbox::ErrorKind;
use dray_service::web::RangeNotSatisfiable;
use dray_types::{Fault, FaultCode};
use http::StatusCode;

/// The reason for which a request about a preview was not served.
#[derive(Debug, thiserror::Error)]
pub enum PreviewError {
    /// The preview never existed, has ended, or was revoked. Callers and viewers do not learn which.
    #[error("the preview does not exist")]
    Unknown,
    /// The address of the preview now means another sandbox.
    #[error("the sandbox of the preview is gone")]
    SandboxGone,
    /// The request does not identify a valid path.
    #[error("{0}")]
    Invalid(&'static str),
    /// The session has as many open previews as it may.
    #[error("the session has {0} open previews, and no more are allowed")]
    TooMany(u32),
    /// No endpoint serves previews here.
    #[error("previews are not set up")]
    NotConfigured,
    /// The method is neither `GET` nor `HEAD`.
    #[error("the method is not allowed")]
    MethodNotAllowed,
    /// The file has no document page; it is shown as it is.
    #[error("files of this type have no page")]
    NotDocument,
    /// The directory has more entries or bytes than an archive may have.
    #[error("the directory is over the limits of archives")]
    DirectoryTooLarge,
    /// The range begins after the end of the content.
    #[error(transparent)]
    Range(#[from] RangeNotSatisfiable),
    /// A condition of the request does not hold.
    #[error("the file is not the one that the request names")]
    PreconditionFailed,
    /// The limit of concurrent responses is reached.
    #[error("too many responses are in progress")]
    Busy,
    /// Other writers changed the record on every attempt.
    #[error("the record keeps changing")]
    Contended,
    /// The stored record cannot be decoded.
    #[error("the record of previews cannot be decoded")]
    InvalidRecord(#[source] prost::DecodeError),
    /// The records cannot be reached.
    #[error("the records of previews cannot be reached")]
    Keys(#[from] KeyError),
    /// The audit event was not stored, so the operation is not executed.
    #[error("the audit event could not be stored")]
    Audit(#[source] Box<Fault>),
    /// The sandbox was not opened.
    #[error("the sandbox was not opened")]
    Opening(Box<Fault>),
    /// A failure of the sandbox, or one about a path in it.
    #[error(transparent)]
    Sandbox(#[from] dray_sandbox::Error),
}

impl PreviewError {
    /// The status of a response.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Unknown | Self::NotDocument => StatusCode::NOT_FOUND,
            Self::SandboxGone => StatusCode::GONE,
            Self::Invalid(_) => StatusCode::BAD_REQUEST,
            Self::TooMany(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::DirectoryTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Range(_) => StatusCode::RANGE_NOT_SATISFIABLE,
            Self::PreconditionFailed => StatusCode::PRECONDITION_FAILED,
            Self::NotConfigured
            | Self::Busy
            | Self::Contended
            | Self::InvalidRecord(_)
            | Self::Keys(_)
            | Self::Audit(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Opening(fault) => match fault.code {
                FaultCode::NotFound => StatusCode::GONE,
                FaultCode::Denied => StatusCode::FORBIDDEN,
                _ => StatusCode::SERVICE_UNAVAILABLE,
            },
            Self::Sandbox(error) => sandbox_status(error.kind()),
        }
    }

    /// A sentence for the viewer. No path, address or secret is part of it.
    pub(crate) fn sentence(&self) -> &'static str {
        match self {
            Self::Unknown => "This preview does not exist, or it has ended. Ask for a new link.",
            Self::SandboxGone => "The sandbox of this preview no longer exists.",
            Self::Invalid(reason) => reason,
            Self::TooMany(_) => "Too many previews are open.",
            Self::NotConfigured => "Previews are not set up here.",
            Self::NotDocument => "Files of this type have no page of their own.",
            Self::MethodNotAllowed => "A preview can only be viewed.",
            Self::DirectoryTooLarge => {
                "The directory has more files or bytes than an archive may have. Open a directory in it."
            }
            Self::Range(_) => "The range begins after the end of the file.",
            Self::PreconditionFailed => "The file has changed.",
            Self::Busy => "Too many files are being shown. Try again in a moment.",
            Self::Contended | Self::InvalidRecord(_) | Self::Keys(_) | Self::Audit(_) => {
                "The preview cannot be checked right now. Try again in a moment."
            }
            Self::Opening(fault) if fault.code == FaultCode::NotFound => {
                "The sandbox of this preview no longer exists."
            }
            Self::Opening(_) => "The sandbox cannot be reached right now.",
            Self::Sandbox(error) => error.kind().sentence(),
        }
    }

    /// Word for metrics and logs, of a closed set.
    pub(crate) fn outcome(&self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::SandboxGone | Self::Opening(_) => "sandbox_unavailable",
            Self::Invalid(_) | Self::MethodNotAllowed | Self::NotDocument => "invalid",
            Self::TooMany(_) | Self::Busy => "busy",
            Self::DirectoryTooLarge => ErrorKind::TooLarge.as_str(),
            Self::Range(_) | Self::PreconditionFailed => "condition",
            Self::NotConfigured
            | Self::Contended
            | Self::InvalidRecord(_)
            | Self::Keys(_)
            | Self::Audit(_) => "unavailable",
            Self::Sandbox(error) => error.kind().as_str(),
        }
    }
}

const fn sandbox_status(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::NotFound
        | ErrorKind::NotDirectory
        | ErrorKind::IsDirectory
        | ErrorKind::InvalidName
        | ErrorKind::Loop => StatusCode::NOT_FOUND,
        ErrorKind::PermissionDenied
        | ErrorKind::OutsideRoot
        | ErrorKind::DeniedPath
        | ErrorKind::NotRegular => StatusCode::FORBIDDEN,
        ErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorKind::SandboxGone => StatusCode::GONE,
        ErrorKind::Timeout => StatusCode::GATEWAY_TIMEOUT,
        ErrorKind::Protocol | ErrorKind::Corrupted | ErrorKind::Truncated => {
            StatusCode::BAD_GATEWAY
        }
        _ => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// The fault for callers of the service; failures of a sandbox keep the faults that other calls have for them.
impl From<PreviewError> for Fault {
    fn from(error: PreviewError) -> Self {
        match error {
            PreviewError::Unknown => Self::new(
                FaultCode::NotFound,
                "The preview does not exist, has ended, or was revoked.",
            )
            .detail("no_preview")
            .advice("List the open ones with `dray preview list`."),
            PreviewError::Invalid(reason) => {
                Self::new(FaultCode::InvalidArgument, reason).detail("invalid")
            }
            PreviewError::TooMany(limit) => Self::new(
                FaultCode::RateLimited,
                format!("The session has {limit} open previews, and no more are allowed."),
            )
            .detail("too_many_previews")
            .advice(
                "Revoke one, wait until one ends, or raise `sandbox-transfer.preview.max_open`, for links in chats \
                 `max_open_delivered`.",
            )
            .retry_after(Duration::from_mins(1)),
            PreviewError::NotConfigured => Self::new(
                FaultCode::Unavailable,
                "This system shows no previews.",
            )
            .detail("no_previews")
            .advice(
                "Ask the operator to set `sandbox-transfer.preview.listen`; `dray up` sets it by itself.",
            ),
            PreviewError::SandboxGone => {
                Self::new(FaultCode::NotFound, "The sandbox no longer exists.")
                    .detail("sandbox_gone")
            }
            PreviewError::Contended => {
                Self::new(FaultCode::Unavailable, "Too many changes at the same time.")
                    .detail("contended")
                    .retry_after(Duration::from_millis(200))
            }
            PreviewError::Keys(error) => error.into(),
            PreviewError::Audit(fault) | PreviewError::Opening(fault) => *fault,
            PreviewError::InvalidRecord(_) => Self::new(
                FaultCode::Unavailable,
                "The record of previews cannot be read.",
            )
            .detail("invalid_preview_record")
            .advice("Ask an operator to remove the key `preview.…` from the bucket `dray_sessions`."),
            PreviewError::Sandbox(error) => {
                Self::new(FaultCode::Unavailable, error.kind().sentence())
                    .detail(error.kind().as_str())
            }
            PreviewError::MethodNotAllowed
            | PreviewError::NotDocument
            | PreviewError::DirectoryTooLarge
            | PreviewError::Range(_)
            | PreviewError::PreconditionFailed
            | PreviewError::Busy => Self::internal(),
        }
    }
}
