//! Detects which of the three upload protocols a request uses, and parses its header fields.

use dray_types::Sha256Digest;
use http::{HeaderMap, Method, header};

use crate::checksum::UploadChecksum;
use crate::fields;
use crate::problem::TicketProblem;

/// Version of tus that this endpoint supports.
pub(crate) const TUS_VERSION: &str = "1.0.0";
/// Media type of a part (draft-ietf-httpbis-resumable-upload).
const PARTIAL_UPLOAD: &str = "application/partial-upload";
/// Media type of a part in tus.
const TUS_PART: &str = "application/offset+octet-stream";

/// How a client sends and continues an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UploadProtocol {
    /// One request with the complete content.
    Plain,
    /// Resumable uploads of the IETF.
    Resumable,
    /// tus 1.0.
    Tus,
}

/// The position of the bytes of a request in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UploadStart {
    /// The bytes belong to the beginning of the file. Bytes of earlier requests are dropped.
    Whole,
    /// The bytes follow those of earlier requests, which must be this many.
    Offset(u64),
}

/// A request that brings bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UploadRequest {
    pub(crate) protocol: UploadProtocol,
    pub(crate) start: UploadStart,
    /// Whether the content is complete when the body ends; `None` if the length determines this.
    pub(crate) completes: Option<bool>,
    /// Length of the complete content.
    pub(crate) length: Option<u64>,
    /// Whether the sender announces the length later (tus 1.0, creation-defer-length).
    pub(crate) defers_length: bool,
    /// Digest of this body (`Content-Digest`).
    pub(crate) body_sha256: Option<Sha256Digest>,
    /// Checksum of this body (`Upload-Checksum` of tus).
    pub(crate) checksum: Option<UploadChecksum>,
    /// Digest of the complete content (`Repr-Digest`).
    pub(crate) whole_sha256: Option<Sha256Digest>,
    /// Whether fields may follow the body, such as its digest. A sender need not name them in `Trailer`.
    pub(crate) has_trailers: bool,
    /// Media type that the sender announces for the complete content.
    pub(crate) media_type: Option<String>,
    /// File name from the sender; may be empty.
    pub(crate) sender_name: String,
}

impl UploadProtocol {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        if headers.contains_key("tus-resumable") {
            Self::Tus
        } else if headers.contains_key("upload-complete") || headers.contains_key("upload-offset") {
            Self::Resumable
        } else {
            Self::Plain
        }
    }
}

impl UploadRequest {
    /// Reads `PUT`, `POST` and `PATCH`.
    pub(crate) fn read(method: &Method, headers: &HeaderMap) -> Result<Self, TicketProblem> {
        fields::check_codings(headers)?;
        let protocol = UploadProtocol::of(headers);
        let is_part = method == Method::PATCH;
        let content_type = fields::field(headers, header::CONTENT_TYPE.as_str());
        let content_type = content_type.map(dray_media_type::essence);
        let mut request = Self {
            protocol,
            start: UploadStart::Whole,
            completes: Some(true),
            length: None,
            defers_length: false,
            body_sha256: fields::digest_field(headers, "content-digest")?,
            checksum: UploadChecksum::read(headers)?,
            whole_sha256: fields::digest_field(headers, "repr-digest")?,
            has_trailers: headers.contains_key(header::TRAILER)
                || !headers.contains_key(header::CONTENT_LENGTH),
            media_type: None,
            sender_name: String::new(),
        };
        let upload_length = fields::number_field(headers, "upload-length")?;
        let content_length = fields::number_field(headers, header::CONTENT_LENGTH.as_str())?;
        if is_part {
            request.start = part_start(headers)?;
        }
        match protocol {
            UploadProtocol::Tus => {
                check_part_type(content_type.as_deref(), TUS_PART)?;
                request.completes = None;
                request.length = upload_length;
                request.sender_name = fields::tus_file_name(headers);
            }
            UploadProtocol::Resumable => {
                if is_part {
                    check_part_type(content_type.as_deref(), PARTIAL_UPLOAD)?;
                } else {
                    request.media_type = content_type;
                }
                let complete = fields::upload_complete(headers)?;
                let missing = TicketProblem::Invalid("`Upload-Complete` is missing");
                let complete = complete.ok_or(missing)?;
                request.completes = Some(complete);
                request.length = upload_length;
                // The last part determines the total length.
                if let (true, None, UploadStart::Whole) = (complete, upload_length, request.start) {
                    request.length = content_length;
                }
            }
            UploadProtocol::Plain => {
                if is_part {
                    return Err(TicketProblem::Invalid("`Upload-Offset` is missing"));
                }
                // `POST` without a body has another meaning, so only `PUT` can be an empty file by mistake.
                if method == Method::PUT && !fields::announces_body(headers) {
                    return Err(TicketProblem::LengthRequired);
                }
                request.media_type = content_type;
                request.length = plain_length(headers, content_length)?;
            }
        }
        request.media_type = announced_type(request.media_type);
        Ok(request)
    }
}

/// Where a part begins in the file.
fn part_start(headers: &HeaderMap) -> Result<UploadStart, TicketProblem> {
    let offset = fields::number_field(headers, "upload-offset")?;
    let missing = TicketProblem::Invalid("`Upload-Offset` is missing");
    Ok(UploadStart::Offset(offset.ok_or(missing)?))
}

/// Length of a body that is the whole file.
fn plain_length(
    headers: &HeaderMap,
    content_length: Option<u64>,
) -> Result<Option<u64>, TicketProblem> {
    let range_length = fields::whole_range(headers)?;
    match (content_length, range_length) {
        (Some(length), Some(whole)) if length != whole => Err(TicketProblem::InconsistentLength),
        _ => Ok(content_length.or(range_length)),
    }
}

/// The announced type, without those that clients send when no type was set: these have no information about the
/// content.
pub(crate) fn announced_type(media_type: Option<String>) -> Option<String> {
    let default_types = [
        "application/octet-stream",
        "application/x-www-form-urlencoded",
    ];
    media_type.filter(|media_type| !default_types.contains(&media_type.as_str()))
}

fn check_part_type(found: Option<&str>, expected: &'static str) -> Result<(), TicketProblem> {
    if found == Some(expected) {
        return Ok(());
    }
    Err(TicketProblem::WrongPartType { expected })
}
