//! The record of one ticket, and its states.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dray_store::{MAX_SEGMENT_BYTES, StagedSegment};
use dray_types::{OperationId, Sha256Digest, TenantId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::destination::TicketDestination;
use crate::direct::DirectUpload;
use crate::sandbox_source::PinnedFile;

/// Most segments of one upload: with 75 bytes each, and escaped text of a destination beside them, a record stays below
/// the largest message of a bucket, 256 KiB. 10 GiB are 2,560 segments that are full.
pub(crate) const MAX_SEGMENTS: usize = 3_100;

/// Characters of a segment's name of 16 bytes in base64.
const SEGMENT_NAME_CHARS: usize = 22;
/// Characters of a digest in base64.
const SEGMENT_DIGEST_CHARS: usize = 43;

/// Direction of the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TicketDirection {
    /// A transfer from the holder of the URL into the store.
    Upload,
    /// A transfer from the store to the holder of the URL.
    Download,
}

/// The states of a ticket. Expiry is not a state: it follows from the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TicketState {
    /// The ticket was not used yet.
    Open,
    /// Bytes are arriving, or were arriving until a connection broke.
    Active,
    /// The content is stored and checked, and has not reached its destination.
    Stored,
    /// The transfer is complete; the ticket is used.
    Complete,
    /// All bytes arrived but did not satisfy the ticket; they were removed.
    Failed,
    /// The maker or the holder of the ticket revoked it.
    Revoked,
}

/// Finished content that an upload stored or that a download sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredContent {
    /// SHA-256 as 64 hexadecimal digits.
    pub sha256: String,
    /// Size in bytes.
    pub size: u64,
    /// Media type: a label, never trusted.
    pub media_type: String,
    /// File name for people; may be empty.
    pub name: String,
}

/// The request that uses a ticket at present.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TicketLease {
    /// Random name of the request.
    pub(crate) holder: String,
    /// Unix milliseconds at which the lease ends unless the request renews it.
    pub(crate) until_ms: u64,
    /// Whether all bytes have arrived and the artifact is being made or brought to its destination, so that no other
    /// request may take over or revoke the ticket.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) finishing: bool,
}

/// One stored segment: name and digest in base64, then the size unless the segment is full. The form is short, because
/// a record may have many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SegmentRecord(String);

/// All stored data of one ticket, as JSON in the records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TicketRecord {
    pub(crate) tenant: String,
    pub(crate) session: String,
    pub(crate) direction: TicketDirection,
    /// Most bytes of an upload.
    pub(crate) max_bytes: u64,
    /// Exact size, if the maker of the ticket has set it.
    pub(crate) size: Option<u64>,
    /// Media type or pattern such as `image/*`; `None` allows any.
    pub(crate) media_type: Option<String>,
    /// Digest that the content must have, if the maker of the ticket has set it.
    pub(crate) sha256: Option<String>,
    pub(crate) name: String,
    /// Whether a sender of the content named the file, and not the maker of the ticket.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) named_by_sender: bool,
    pub(crate) created_at_ms: u64,
    pub(crate) expires_at_ms: u64,
    pub(crate) state: TicketState,
    /// Operation under which segments are staged.
    pub(crate) operation: String,
    /// Length that the sender announced.
    pub(crate) announced: Option<u64>,
    /// Whether the sender created the upload without its length (`Upload-Defer-Length`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) length_deferred: bool,
    /// Digest that the sender announced (`Repr-Digest`).
    pub(crate) announced_sha256: Option<String>,
    pub(crate) segments: Vec<SegmentRecord>,
    /// Bytes that were received, or that were sent without a gap from the start.
    pub(crate) moved: u64,
    /// Bytes that were sent by all responses of a download, so that a part that was sent twice counts twice.
    #[serde(default)]
    pub(crate) sent_bytes: u64,
    pub(crate) lease: Option<TicketLease>,
    /// The finished content; a download has it from the start.
    pub(crate) content: Option<StoredContent>,
    /// Destination of an upload after it is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) destination: Option<TicketDestination>,
    /// The confirmation of the destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) receipt: Option<Value>,
    /// The file of a sandbox that a download represents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pinned: Option<PinnedFile>,
    /// The parts that the client sends directly to the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) direct: Option<DirectUpload>,
}

impl SegmentRecord {
    pub(crate) fn new(segment: &StagedSegment) -> Self {
        let digest = URL_SAFE_NO_PAD.encode(segment.sha256.as_bytes());
        let size = match segment.size {
            size if size == MAX_SEGMENT_BYTES as u64 => String::new(),
            size => size.to_string(),
        };
        Self(format!(
            "{}{digest}{size}",
            URL_SAFE_NO_PAD.encode(segment.name)
        ))
    }

    /// The segment; `None` if the record is damaged.
    pub(crate) fn to_staged(&self) -> Option<StagedSegment> {
        let (name, rest) = self.0.split_at_checked(SEGMENT_NAME_CHARS)?;
        let (digest, size) = rest.split_at_checked(SEGMENT_DIGEST_CHARS)?;
        let name = URL_SAFE_NO_PAD.decode(name).ok()?;
        let digest = URL_SAFE_NO_PAD.decode(digest).ok()?;
        Some(StagedSegment {
            name: name.try_into().ok()?,
            size: match size {
                "" => MAX_SEGMENT_BYTES as u64,
                size => size.parse().ok()?,
            },
            sha256: Sha256Digest::try_from(digest.as_slice()).ok()?,
        })
    }
}

impl TicketRecord {
    /// The total length if known, from the maker or from the sender.
    pub(crate) fn length(&self) -> Option<u64> {
        self.size.or(self.announced)
    }

    /// Whether the record is past its expiry.
    pub(crate) const fn is_expired(&self, now_ms: u64) -> bool {
        now_ms >= self.expires_at_ms
    }

    /// Whether another request uses the ticket.
    pub(crate) fn is_leased(&self, now_ms: u64) -> bool {
        let lease = self.lease.as_ref();
        lease.is_some_and(|lease| now_ms < lease.until_ms)
    }

    /// Name of the request that uses the ticket.
    pub(crate) fn holder(&self) -> Option<&str> {
        self.lease.as_ref().map(|lease| lease.holder.as_str())
    }

    /// Whether another request makes the artifact of the bytes, or brings it to its destination.
    pub(crate) fn is_finishing(&self, now_ms: u64) -> bool {
        self.is_leased(now_ms) && self.lease.as_ref().is_some_and(|lease| lease.finishing)
    }

    /// The operation of the segments.
    pub(crate) fn operation(&self) -> Option<OperationId> {
        OperationId::new(self.operation.as_str()).ok()
    }

    pub(crate) fn tenant(&self) -> Option<TenantId> {
        TenantId::new(self.tenant.as_str()).ok()
    }

    /// Digests that the content must have.
    pub(crate) fn expected_digests(&self) -> impl Iterator<Item = Sha256Digest> {
        [&self.sha256, &self.announced_sha256]
            .into_iter()
            .flatten()
            .filter_map(|text| text.parse().ok())
    }
}
