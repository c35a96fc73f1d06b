//! Why a request is refused: the problems, their statuses, names and advice. `document` writes them as RFC 9457 has it.

mod convert;
mod document;

use dray_types::Fault;
use http::StatusCode;

use crate::record::StoredContent;

/// A refused request. Nothing is stored because of it unless its documentation says so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TicketProblem {
    /// No ticket has this URL, or its secret is wrong: both look the same.
    #[error("the ticket does not exist")]
    Unknown,
    /// The time of the ticket is over.
    #[error("the ticket has expired")]
    Expired,
    /// The transfer is complete.
    #[error("the ticket was used")]
    Used,
    /// An upload came whole and was refused, so the ticket is spent.
    #[error("an upload with this ticket was refused")]
    Spent,
    /// The ticket was given up.
    #[error("the ticket was revoked")]
    Revoked,
    /// Another request uses the ticket.
    #[error("another request uses the ticket")]
    InUse,
    /// Another request continued the upload while this one ran.
    #[error("another request continued the upload")]
    Superseded,
    /// The offset is not where the upload stands.
    #[error("the upload stands at offset {expected}, not {provided}")]
    OffsetMismatch {
        /// Bytes that are stored.
        expected: u64,
        /// Offset of the request.
        provided: u64,
    },
    /// Two announced lengths differ, or bytes came beyond the announced length.
    #[error("the announced lengths do not fit together")]
    InconsistentLength,
    /// More bytes than the ticket allows.
    #[error("the content is larger than {limit} bytes")]
    TooLarge {
        /// Most bytes.
        limit: u64,
    },
    /// Not the size that the ticket names.
    #[error("the content has {actual} bytes, and the ticket is for {expected}")]
    WrongSize {
        /// Bytes of the ticket.
        expected: u64,
        /// Bytes of the content.
        actual: u64,
    },
    /// The bytes have another digest.
    #[error("the content has another digest than announced")]
    WrongDigest,
    /// The content has another type.
    #[error("the content is `{found}`, and the ticket is for `{expected}`")]
    WrongType {
        /// Type or pattern of the ticket.
        expected: String,
        /// What the header says or the bytes are.
        found: String,
    },
    /// The upload came in too many parts.
    #[error("the upload came in too many parts")]
    TooManyParts,
    /// The parts that the sender names are not those that the store has. They are kept.
    #[error("the parts are not all there, or are not those that the store has")]
    WrongParts,
    /// The store has no address for clients, so bytes go through this endpoint.
    #[error("this endpoint offers no upload in parts to the store")]
    NoDirectUpload,
    /// The principal has too many open tickets.
    #[error("{limit} tickets are open already")]
    TooManyOpen {
        /// Most open tickets of a principal.
        limit: usize,
    },
    /// The principal has no room for this ticket.
    #[error("the quota of {quota} bytes has {free} left")]
    QuotaExceeded {
        /// Bytes that are left.
        free: u64,
        /// Bytes of a day.
        quota: u64,
    },
    /// The ticket is for the other direction or the method is unknown.
    #[error("the ticket does not take this method")]
    MethodNotAllowed,
    /// The request is not valid; the text says what is wrong.
    #[error("{0}")]
    Invalid(&'static str),
    /// The request needs the key of the endpoint.
    #[error("the key of the endpoint is missing or wrong")]
    Unauthorized,
    /// The range is outside the content.
    #[error("the range is outside the content of {size} bytes")]
    RangeNotSatisfiable {
        /// Size of the content in bytes.
        size: u64,
    },
    /// `If-Match` or `If-Range` style conditions name other content.
    #[error("the content is not what the request expects")]
    PreconditionFailed,
    /// The content of a download is gone or damaged.
    #[error("the content is not available any more")]
    ContentGone,
    /// The content is stored and has not reached its destination, so another body is not taken.
    #[error("the content is stored already and waits for its destination")]
    AlreadyStored,
    /// The content is stored, and its destination did not take it.
    #[error("the file is stored, but the {} did not take it: {}", .0.kind, .0.message.trim_end_matches('.'))]
    DestinationFailed(Box<DestinationFailure>),
    /// The file in the sandbox is not what it was when the ticket was made.
    #[error("the file in the sandbox changed after the ticket was made")]
    SourceChanged,
    /// The file of the sandbox cannot be copied into the store, so there is no ticket for it.
    #[error("the file cannot be copied out of the sandbox: {}", .0.message.trim_end_matches('.'))]
    SourceFailed(Box<Fault>),
    /// The sandbox cannot be asked whether the file changed.
    #[error("the sandbox of the file is not available")]
    SourceUnavailable,
    /// The connection broke or stood still. What came is kept for a continuation.
    #[error("the connection broke before the content was whole")]
    Interrupted,
    /// The store has no room. What came before is kept for a continuation.
    #[error("the store is full")]
    StorageFull,
    /// The store or the records cannot be reached. What came before is kept for a continuation.
    #[error("the storage is not available")]
    Unavailable,
}

/// Why a destination did not take stored content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DestinationFailure {
    /// `sandbox` or `chat`.
    pub kind: &'static str,
    /// Code of the fault, as `not_found`.
    pub code: String,
    /// Its stable detail.
    pub detail: String,
    /// Its sentence.
    pub message: String,
    /// Its advice.
    pub advice: String,
    /// Whether the same attempt may succeed later without a change.
    pub is_retryable: bool,
    /// The operation, which every further attempt has too.
    pub operation_id: String,
    /// What is stored.
    pub content: Option<StoredContent>,
}

impl TicketProblem {
    /// The HTTP status.
    pub const fn status(&self) -> StatusCode {
        match self {
            Self::Unknown => StatusCode::NOT_FOUND,
            Self::Expired
            | Self::Used
            | Self::Spent
            | Self::Revoked
            | Self::ContentGone
            | Self::SourceChanged => StatusCode::GONE,
            Self::InUse
            | Self::Superseded
            | Self::AlreadyStored
            | Self::WrongParts
            | Self::OffsetMismatch { .. } => StatusCode::CONFLICT,
            Self::NoDirectUpload => StatusCode::NOT_IMPLEMENTED,
            Self::DestinationFailed(failure) if failure.is_retryable => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::DestinationFailed(_) | Self::SourceFailed(_) => StatusCode::BAD_GATEWAY,
            Self::InconsistentLength | Self::Invalid(_) | Self::Interrupted => {
                StatusCode::BAD_REQUEST
            }
            Self::TooLarge { .. } | Self::TooManyParts => StatusCode::PAYLOAD_TOO_LARGE,
            Self::WrongSize { .. } | Self::WrongDigest => StatusCode::UNPROCESSABLE_ENTITY,
            Self::WrongType { .. } => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooManyOpen { .. } | Self::QuotaExceeded { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::RangeNotSatisfiable { .. } => StatusCode::RANGE_NOT_SATISFIABLE,
            Self::PreconditionFailed => StatusCode::PRECONDITION_FAILED,
            Self::StorageFull => StatusCode::INSUFFICIENT_STORAGE,
            Self::Unavailable | Self::SourceUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The last part of the problem type, a stable name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Unknown => "ticket-unknown",
            Self::Expired => "ticket-expired",
            Self::Used => "ticket-used",
            Self::Spent => "ticket-spent",
            Self::Revoked => "ticket-revoked",
            Self::InUse => "ticket-in-use",
            Self::Superseded => "upload-superseded",
            Self::OffsetMismatch { .. } => "mismatching-upload-offset",
            Self::InconsistentLength => "inconsistent-upload-length",
            Self::TooLarge { .. } => "content-too-large",
            Self::WrongSize { .. } => "wrong-size",
            Self::WrongDigest => "wrong-digest",
            Self::WrongType { .. } => "wrong-type",
            Self::TooManyParts => "too-many-parts",
            Self::WrongParts => "wrong-parts",
            Self::NoDirectUpload => "no-direct-upload",
            Self::TooManyOpen { .. } => "too-many-open-tickets",
            Self::QuotaExceeded { .. } => "quota-exceeded",
            Self::MethodNotAllowed => "method-not-allowed",
            Self::Invalid(_) => "invalid-request",
            Self::Unauthorized => "key-needed",
            Self::RangeNotSatisfiable { .. } => "range-not-satisfiable",
            Self::PreconditionFailed => "precondition-failed",
            Self::ContentGone => "content-gone",
            Self::AlreadyStored => "content-stored",
            Self::DestinationFailed(_) => "destination-failed",
            Self::SourceChanged => "source-changed",
            Self::SourceFailed(_) => "source-failed",
            Self::SourceUnavailable => "source-unavailable",
            Self::Interrupted => "upload-interrupted",
            Self::StorageFull => "storage-full",
            Self::Unavailable => "storage-unavailable",
        }
    }

    /// What the holder of the ticket can do.
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Unknown => "Check that the whole URL was copied, or ask for a new ticket.",
            Self::Expired
            | Self::Revoked
            | Self::Spent
            | Self::ContentGone
            | Self::SourceChanged => "Ask for a new ticket.",
            Self::AlreadyStored | Self::DestinationFailed(_) => {
                "Send `POST` without a body to the same URL to try the destination again."
            }
            Self::Used => "A ticket works once. Ask for a new one.",
            Self::InUse => "Wait until the other request ends, or continue the upload with PATCH.",
            Self::Superseded | Self::OffsetMismatch { .. } | Self::Interrupted => {
                "Ask for the offset with HEAD and continue there with PATCH."
            }
            Self::InconsistentLength => "Announce one length, and send exactly as many bytes.",
            Self::TooLarge { .. } => {
                "Send a smaller file, or ask for a ticket with a higher limit."
            }
            Self::WrongSize { .. } | Self::WrongDigest => {
                "Check that the right file was sent, then ask for a new ticket."
            }
            Self::WrongType { .. } => "Send a file of the type that the ticket names.",
            Self::TooManyParts => "Send larger parts.",
            Self::WrongParts => {
                "Send every part, and name each with the `ETag` of its response, in order."
            }
            Self::NoDirectUpload => "Send the file to the URL of the ticket.",
            Self::TooManyOpen { .. } => "Use or revoke open tickets, or wait until they expire.",
            Self::QuotaExceeded { .. } => "Ask for a lower size limit, or wait a day.",
            Self::MethodNotAllowed => "Use a method of the `Allow` header.",
            Self::Invalid(_) => "Correct the request.",
            Self::Unauthorized => "Send the key of the endpoint as `Authorization: Bearer`.",
            Self::RangeNotSatisfiable { .. } => "Ask for a range inside the content.",
            Self::PreconditionFailed => "Start from the beginning.",
            Self::StorageFull => "Ask the operator for room, then continue the upload.",
            Self::SourceFailed(_) => "Check the path and the sandbox of the session.",
            Self::Unavailable | Self::SourceUnavailable => "Try again in a moment.",
        }
    }
}
