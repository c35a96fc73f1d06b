//! Reasons for refusing a request, with their statuses, names and advice. The module `document` writes them as problem
//! documents (RFC 9457).

mod convert;
mod document;

use dray_types::Fault;
use http::StatusCode;

use crate::record::StoredContent;

/// The reason why a request was refused. The request stored nothing unless the documentation of the variant says so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TicketProblem {
    /// No ticket has this URL, or the secret in the URL is wrong. The caller cannot distinguish the two.
    #[error("the ticket does not exist")]
    Unknown,
    /// The lifetime of the ticket has ended.
    #[error("the ticket has expired")]
    Expired,
    /// The transfer is complete.
    #[error("the ticket was used")]
    Used,
    /// An upload was received completely and then refused. The ticket cannot be used again.
    #[error("an upload with this ticket was refused")]
    Spent,
    /// The ticket was revoked.
    #[error("the ticket was revoked")]
    Revoked,
    /// Another request uses the ticket.
    #[error("another request uses the ticket")]
    InUse,
    /// Another request continued the upload while this one ran.
    #[error("another request continued the upload")]
    Superseded,
    /// The offset of the request is not the number of stored bytes.
    #[error("the next offset of the upload is {expected}, not {provided}")]
    OffsetMismatch {
        /// Bytes that are stored.
        expected: u64,
        /// Offset of the request.
        provided: u64,
    },
    /// Two announced lengths differ, or the body is longer than the announced length.
    #[error("the announced lengths differ from each other or from the content")]
    InconsistentLength,
    /// The body is a part of the file, by its `Content-Range`, and would be stored as the whole file.
    #[error("the body is a part of the file, and this request sends whole files")]
    PartialBody,
    /// A request for a whole file announces neither a length nor chunks, so by RFC 9112 section 6.3 it has no body,
    /// even where its sender sent one.
    #[error("the request announces no body")]
    LengthRequired,
    /// The body has a coding (`Content-Encoding`), which would be stored as the file itself.
    #[error("the body has a content coding, and files are stored as they are sent")]
    CodedBody,
    /// More bytes than the ticket allows.
    #[error("the content is larger than {limit} bytes")]
    TooLarge {
        /// Most bytes that the ticket allows.
        limit: u64,
    },
    /// The content does not have the size that the ticket requires.
    #[error("the content has {actual} bytes, and the ticket is for {expected}")]
    WrongSize {
        /// Size that the ticket requires, in bytes.
        expected: u64,
        /// Size of the content, in bytes.
        actual: u64,
    },
    /// The content has another digest than announced.
    #[error("the content has another digest than announced")]
    WrongDigest,
    /// The body of this request has another checksum than announced (tus 1.0, checksum). Its bytes are dropped.
    #[error("the bytes of this request have another checksum than announced")]
    WrongChecksum,
    /// The content has another type than the ticket requires.
    #[error("the content is `{found}`, and the ticket is for `{expected}`")]
    WrongType {
        /// Media type or pattern that the ticket requires.
        expected: String,
        /// Media type in the header, or detected from the bytes.
        found: String,
    },
    /// A part has another `Content-Type` than the protocol of the upload requires.
    #[error("a part of this upload has the `Content-Type` `{expected}`")]
    WrongPartType {
        /// Media type of parts in the protocol.
        expected: &'static str,
    },
    /// The request uses a version of tus that this endpoint does not support.
    #[error("this version of tus is not available")]
    TusVersion,
    /// The upload has too many parts.
    #[error("the upload came in too many parts")]
    TooManyParts,
    /// The parts that the sender lists are not the parts that the store has. The store keeps its parts.
    #[error("the listed parts differ from the parts that the store has")]
    WrongParts,
    /// The store has no address for clients, so uploads must go through this endpoint.
    #[error("uploading parts directly to the store is not available")]
    NoDirectUpload,
    /// The principal has too many open tickets.
    #[error("{limit} tickets are open already")]
    TooManyOpen {
        /// Most open tickets that a principal may have.
        limit: usize,
    },
    /// The daily quota of the principal is too small for this ticket.
    #[error("{free} bytes are left of the daily quota of {quota} bytes")]
    QuotaExceeded {
        /// Remaining bytes of the quota.
        free: u64,
        /// Bytes that the principal may transfer in a day.
        quota: u64,
    },
    /// The ticket is for the other direction, or the method is unknown.
    #[error("this URL does not take the method")]
    MethodNotAllowed {
        /// Methods that the URL takes, as `Allow` has them.
        allowed: &'static str,
    },
    /// The request is invalid; the text is the reason.
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
    /// A condition of the request, such as `If-Match`, names other content.
    #[error("the content does not match the condition of the request")]
    PreconditionFailed,
    /// The content of a download is missing or damaged.
    #[error("the content is not available any more")]
    ContentGone,
    /// The content is stored but has not reached its destination yet, so no other body is accepted.
    #[error("the content is stored already and waits for its destination")]
    AlreadyStored,
    /// The content is stored, but its destination refused it.
    #[error("the file is stored, but the {} did not take it: {}", .0.kind, .0.message.trim_end_matches('.'))]
    DestinationFailed(Box<DestinationFailure>),
    /// Policy does not permit files in the directory of the destination, so no ticket was made.
    #[error("the sandbox takes no file in this directory: {}", .0.message.trim_end_matches('.'))]
    DirectoryDenied(Box<Fault>),
    /// The rule `tickets.web_files` keeps this file from downloads.
    #[error("policy keeps files from the web out of downloads, and this one came from {origin}")]
    FileFromWeb {
        /// The host, or a text that says what is unknown.
        origin: String,
    },
    /// The file in the sandbox changed after the ticket was made.
    #[error("the file in the sandbox changed after the ticket was made")]
    SourceChanged,
    /// The file of the sandbox could not be copied into the store, so no ticket was made.
    #[error("the file cannot be copied out of the sandbox: {}", .0.message.trim_end_matches('.'))]
    SourceFailed(Box<Fault>),
    /// The sandbox is not available, so the file cannot be checked for changes.
    #[error("the sandbox of the file is not available")]
    SourceUnavailable,
    /// The connection broke or sent no bytes for too long. The received bytes are kept, so the upload can continue.
    #[error("the connection broke before the content was complete")]
    Interrupted,
    /// The store has no space left. The bytes that were stored are kept, so the upload can continue.
    #[error("the store is full")]
    StorageFull,
    /// The store or the records cannot be reached. The bytes that were stored are kept, so the upload can continue.
    #[error("the storage is not available")]
    Unavailable,
}

/// The reason why a destination refused stored content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DestinationFailure {
    /// `sandbox` or `chat`.
    pub kind: &'static str,
    /// Code of the fault, such as `not_found`.
    pub code: String,
    /// Stable detail of the fault, for programs.
    pub detail: String,
    /// Message of the fault: one sentence.
    pub message: String,
    /// Advice of the fault: what the reader can do.
    pub advice: String,
    /// Whether the same attempt may succeed later without a change.
    pub is_retryable: bool,
    /// Id of the operation. All attempts have the same id.
    pub operation_id: String,
    /// The stored content.
    pub content: Option<StoredContent>,
}

impl TicketProblem {
    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
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
            Self::DirectoryDenied(_) | Self::FileFromWeb { .. } => StatusCode::FORBIDDEN,
            Self::NoDirectUpload => StatusCode::NOT_IMPLEMENTED,
            Self::DestinationFailed(failure) if failure.is_retryable => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::DestinationFailed(_) | Self::SourceFailed(_) => StatusCode::BAD_GATEWAY,
            Self::InconsistentLength | Self::PartialBody | Self::Invalid(_) | Self::Interrupted => {
                StatusCode::BAD_REQUEST
            }
            Self::LengthRequired => StatusCode::LENGTH_REQUIRED,
            Self::TooLarge { .. } | Self::TooManyParts => StatusCode::PAYLOAD_TOO_LARGE,
            Self::WrongSize { .. } | Self::WrongDigest => StatusCode::UNPROCESSABLE_ENTITY,
            // The status of tus 1.0, which has no name in the registry of HTTP.
            Self::WrongChecksum => StatusCode::from_u16(460).unwrap_or(StatusCode::BAD_REQUEST),
            Self::WrongType { .. } | Self::WrongPartType { .. } | Self::CodedBody => {
                StatusCode::UNSUPPORTED_MEDIA_TYPE
            }
            Self::TooManyOpen { .. } | Self::QuotaExceeded { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::MethodNotAllowed { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::RangeNotSatisfiable { .. } => StatusCode::RANGE_NOT_SATISFIABLE,
            Self::PreconditionFailed | Self::TusVersion => StatusCode::PRECONDITION_FAILED,
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
            Self::DirectoryDenied(_) => "directory-denied",
            Self::Spent => "ticket-spent",
            Self::Revoked => "ticket-revoked",
            Self::InUse => "ticket-in-use",
            Self::Superseded => "upload-superseded",
            Self::OffsetMismatch { .. } => "mismatching-upload-offset",
            Self::InconsistentLength => "inconsistent-upload-length",
            Self::PartialBody => "partial-body",
            Self::LengthRequired => "length-required",
            Self::CodedBody => "coded-body",
            Self::TooLarge { .. } => "content-too-large",
            Self::WrongSize { .. } => "wrong-size",
            Self::WrongDigest => "wrong-digest",
            Self::WrongChecksum => "wrong-checksum",
            Self::WrongType { .. } => "wrong-type",
            Self::WrongPartType { .. } => "wrong-part-type",
            Self::TusVersion => "tus-version",
            Self::TooManyParts => "too-many-parts",
            Self::WrongParts => "wrong-parts",
            Self::NoDirectUpload => "no-direct-upload",
            Self::TooManyOpen { .. } => "too-many-open-tickets",
            Self::QuotaExceeded { .. } => "quota-exceeded",
            Self::MethodNotAllowed { .. } => "method-not-allowed",
            Self::Invalid(_) => "invalid-request",
            Self::Unauthorized => "key-needed",
            Self::RangeNotSatisfiable { .. } => "range-not-satisfiable",
            Self::PreconditionFailed => "precondition-failed",
            Self::ContentGone => "content-gone",
            Self::AlreadyStored => "content-stored",
            Self::DestinationFailed(_) => "destination-failed",
            Self::FileFromWeb { .. } => "file-from-web",
            Self::SourceChanged => "source-changed",
            Self::SourceFailed(_) => "source-failed",
            Self::SourceUnavailable => "source-unavailable",
            Self::Interrupted => "upload-interrupted",
            Self::StorageFull => "storage-full",
            Self::Unavailable => "storage-unavailable",
        }
    }

    /// How the holder of the ticket can solve the problem.
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
            Self::PartialBody => {
                "Send the whole file without `Content-Range`, or ask for the offset with HEAD and continue there with \
                 PATCH, as tus 1.0 or draft-ietf-httpbis-resumable-upload does."
            }
            Self::LengthRequired => {
                "Send `Content-Length`, even for an empty file, or `Transfer-Encoding: chunked`."
            }
            Self::CodedBody => "Send the file itself, without `Content-Encoding`.",
            Self::TooLarge { .. } => {
                "Send a smaller file, or ask for a ticket with a higher limit."
            }
            Self::WrongSize { .. } | Self::WrongDigest => {
                "Check that the right file was sent, then ask for a new ticket."
            }
            Self::WrongChecksum => "Send the same bytes again, from the same offset.",
            Self::WrongType { .. } => "Send a file of the type that the ticket names.",
            Self::WrongPartType { .. } => "Send the part again with that `Content-Type`.",
            Self::TusVersion => "Use the version of the `Tus-Version` header.",
            Self::TooManyParts => "Send larger parts.",
            Self::WrongParts => {
                "Send every part, and name each with the `ETag` of its response, in order."
            }
            Self::NoDirectUpload => "Send the file to the URL of the ticket.",
            Self::TooManyOpen { .. } => "Use or revoke open tickets, or wait until they expire.",
            Self::QuotaExceeded { .. } => "Ask for a lower size limit, or wait a day.",
            Self::MethodNotAllowed { .. } => "Use a method of the `Allow` header.",
            Self::Invalid(_) => "Correct the request.",
            Self::Unauthorized => "Send the key of the endpoint as `Authorization: Bearer`.",
            Self::RangeNotSatisfiable { .. } => "Ask for a range inside the content.",
            Self::PreconditionFailed => "Start from the beginning.",
            Self::StorageFull => "Ask the operator for more storage, then continue the upload.",
            Self::FileFromWeb { .. } => {
                "Ask the operator to add the host to `tickets.web_files.allowed_hosts`."
            }
            Self::DirectoryDenied(_) => "Name a directory that policy permits.",
            Self::SourceFailed(_) => "Check the path and the sandbox of the session.",
            Self::Unavailable | Self::SourceUnavailable => "Try again in a moment.",
        }
    }
}
