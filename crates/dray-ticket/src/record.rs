//! What is kept about one ticket, and its states.

use dray_store::StagedSegment;
use dray_types::{OperationId, Sha256Digest, TenantId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::destination::TicketDestination;
use crate::sandbox_source::PinnedFile;

/// Most segments of one upload: a record stays below the largest message of a bucket, 256 KiB.
pub(crate) const MAX_SEGMENTS: usize = 2_000;

/// Which way the content goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TicketDirection {
    /// From the holder of the URL into the store.
    Upload,
    /// From the store to the holder of the URL.
    Download,
}

/// The life of a ticket. Expiry is no state: it follows from the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TicketState {
    /// Nobody used it yet.
    Open,
    /// Bytes are on their way, or were until a connection broke.
    Active,
    /// The content is stored and checked, and has not reached its destination.
    Stored,
    /// The transfer is whole; the ticket is used.
    Complete,
    /// All bytes came and were not what the ticket asks for; they are removed.
    Failed,
    /// Its maker or its holder gave it up.
    Revoked,
}

/// Finished content that a ticket led to or leads to.
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
    /// Unix milliseconds at which the request counts as dead.
    pub(crate) until_ms: u64,
}

/// One stored segment, short, since a record may have many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SegmentRecord(pub(crate) String, pub(crate) u64, pub(crate) String);

/// Everything about one ticket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TicketRecord {
    pub(crate) tenant: String,
    pub(crate) session: String,
    pub(crate) direction: TicketDirection,
    /// Most bytes of an upload.
    pub(crate) max_bytes: u64,
    /// Exact size, where the maker of the ticket knows it.
    pub(crate) size: Option<u64>,
    /// Media type or pattern such as `image/*`; nothing allows any.
    pub(crate) media_type: Option<String>,
    /// Digest that the content must have, where the maker of the ticket knows it.
    pub(crate) sha256: Option<String>,
    pub(crate) name: String,
    pub(crate) created_at_ms: u64,
    pub(crate) expires_at_ms: u64,
    pub(crate) state: TicketState,
    /// Operation under which segments are staged.
    pub(crate) operation: String,
    /// Length that the sender announced.
    pub(crate) announced: Option<u64>,
    /// Digest that the sender announced (`Repr-Digest`).
    pub(crate) announced_sha256: Option<String>,
    pub(crate) segments: Vec<SegmentRecord>,
    /// Bytes that came in, or that went out without a gap from the start.
    pub(crate) moved: u64,
    pub(crate) lease: Option<TicketLease>,
    /// The finished content; of a download from the start.
    pub(crate) content: Option<StoredContent>,
    /// Where an upload goes after the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) destination: Option<TicketDestination>,
    /// What the destination confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) receipt: Option<Value>,
    /// The file of a sandbox that a download stands for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pinned: Option<PinnedFile>,
}

impl SegmentRecord {
    pub(crate) fn new(segment: &StagedSegment) -> Self {
        Self(
            segment.name.clone(),
            segment.size,
            segment.sha256.to_string(),
        )
    }

    /// The segment; `None` when the record was damaged.
    pub(crate) fn to_staged(&self) -> Option<StagedSegment> {
        Some(StagedSegment {
            name: self.0.clone(),
            size: self.1,
            sha256: self.2.parse().ok()?,
        })
    }
}

impl TicketRecord {
    /// The whole length where it is known: from the maker, or from the sender.
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
