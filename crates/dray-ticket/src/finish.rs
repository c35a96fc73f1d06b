//! Makes the artifact of an upload after all of its bytes arrived and were checked.

use std::time::Duration;

use bytes::Bytes;
use dray_media_type::{kind, names};
use dray_store::{ArtifactLabel, ArtifactWriter};
use dray_types::{Claim, Deadline, Sha256Digest};

use crate::TicketService;
use crate::problem::TicketProblem;
use crate::receive;
use crate::record::{SegmentRecord, StoredContent, TicketLease, TicketRecord, TicketState};
use crate::service::LoadedTicket;

/// Longest time for putting segments together.
const FINISH_TIMEOUT: Duration = Duration::from_mins(30);

/// Attempts to put the segments together while the store is not available.
const MAX_ATTEMPTS: u32 = 3;

/// `application/…` types that can be recognised by content.
const RECOGNISED_APPLICATIONS: [&str; 5] = [
    names::PDF,
    names::GZIP,
    names::ZIP,
    "application/vnd.openxmlformats-officedocument.",
    "application/vnd.oasis.opendocument.",
];

/// Content that is stored and checked.
#[derive(Debug)]
pub(crate) struct MadeContent {
    pub(crate) claim: Claim,
    pub(crate) size: u64,
}

impl TicketService {
    /// Checks size, digest and type of the staged bytes, stores them as one artifact, transfers the artifact to the
    /// destination of the ticket, and ends the ticket. When a check fails, nothing is stored and the ticket is spent.
    ///
    /// The future must not be dropped before it completes, so it runs in a separate task.
    pub(crate) async fn finish_upload(
        &self,
        mut ticket: LoadedTicket,
    ) -> Result<TicketRecord, TicketProblem> {
        if ticket.record.state == TicketState::Stored {
            return self.deliver(ticket).await;
        }
        let lease = TicketLease {
            finishing: true,
            ..receive::new_lease(self.inner.clock.now_ms())
        };
        let holder = lease.holder.clone();
        // Two requests may find all bytes complete; only one of them gets the lease.
        ticket.record.lease = Some(lease);
        self.save(&mut ticket).await?;
        match self.make_artifact_leased(&mut ticket).await {
            Ok(MadeContent { claim, size }) => {
                let artifact = claim.artifact;
                ticket.record.moved = size;
                ticket.record.content = Some(StoredContent {
                    sha256: artifact.sha256.to_hex(),
                    size: artifact.size,
                    media_type: artifact.media_type,
                    name: artifact.name,
                });
                if ticket.record.destination.is_none() {
                    let state = TicketState::Complete;
                    let ended = self.end_as_holder(ticket, state, Some(&holder)).await?;
                    return Ok(ended.record);
                }
                let ticket = self.mark_stored(ticket, &holder).await?;
                self.deliver(ticket).await
            }
            Err(
                problem @ (TicketProblem::Unavailable
                | TicketProblem::StorageFull
                | TicketProblem::Interrupted
                | TicketProblem::WrongParts),
            ) => {
                // The cause may be temporary, so a later request can finish the upload.
                ticket.record.lease = None;
                self.save_as_holder(&mut ticket, Some(&holder)).await?;
                Err(problem)
            }
            Err(problem) => {
                let state = TicketState::Failed;
                self.end_as_holder(ticket, state, Some(&holder)).await?;
                Err(problem)
            }
        }
    }

    /// Makes the artifact while the lease of the ticket is renewed: a large one takes minutes, and the lease of a
    /// process that was killed must end soon.
    async fn make_artifact_leased(
        &self,
        ticket: &mut LoadedTicket,
    ) -> Result<MadeContent, TicketProblem> {
        let record = ticket.record.clone();
        let deadline = Deadline::after(self.inner.clock.now_ms(), FINISH_TIMEOUT);
        let attempts = async {
            let mut made = self.make_artifact(&record, deadline).await;
            // All segments are in the store, so a failed request to it is retried here and not by the client.
            for _ in 1..MAX_ATTEMPTS {
                if !matches!(made, Err(TicketProblem::Unavailable)) {
                    break;
                }
                made = self.make_artifact(&record, deadline).await;
            }
            made
        };
        self.run_leased(ticket, attempts).await
    }

    /// Records that the content is stored, so that a restart does not lose it, and drops the segments.
    async fn mark_stored(
        &self,
        mut ticket: LoadedTicket,
        holder: &str,
    ) -> Result<LoadedTicket, TicketProblem> {
        let segments = std::mem::take(&mut ticket.record.segments);
        ticket.record.state = TicketState::Stored;
        ticket.record.lease = None;
        self.save_as_holder(&mut ticket, Some(holder)).await?;
        self.remove_segments(&ticket.record, &segments).await;
        self.discard_direct(&ticket.record).await;
        self.settle_usage(&ticket).await;
        Ok(ticket)
    }

    async fn make_artifact(
        &self,
        record: &TicketRecord,
        deadline: Deadline,
    ) -> Result<MadeContent, TicketProblem> {
        if let Some(direct) = &record.direct {
            return self.make_from_parts(record, direct, deadline).await;
        }
        if let Some(expected) = record.size.filter(|size| *size != record.moved) {
            return Err(TicketProblem::WrongSize {
                expected,
                actual: record.moved,
            });
        }
        let (Some(tenant), Some(operation)) = (record.tenant(), record.operation()) else {
            return Err(TicketProblem::Unavailable);
        };
        let store = &self.inner.store;
        let mut writer = store.writer(&tenant, &operation, 1).deadline(deadline);
        let head = self.copy_segments(record, &mut writer, deadline).await?;
        let label = match record.checked_label(writer.sha256(), record.moved, &head) {
            Ok(label) => label,
            Err(problem) => {
                writer.abort().await;
                return Err(problem);
            }
        };
        let claim = writer.finish(label).await?;
        Ok(MadeContent {
            claim,
            size: record.moved,
        })
    }

    /// Streams the segments into the writer, and returns the first bytes.
    async fn copy_segments(
        &self,
        record: &TicketRecord,
        writer: &mut ArtifactWriter,
        deadline: Deadline,
    ) -> Result<Vec<u8>, TicketProblem> {
        let operation = record.operation().ok_or(TicketProblem::Unavailable)?;
        let store = &self.inner.store;
        let mut head = Vec::new();
        for segment in record.segments.iter().map(SegmentRecord::to_staged) {
            let segment = segment.ok_or(TicketProblem::Unavailable)?;
            let mut reader = store.read_segment(&operation, &segment, deadline).await?;
            while let Some(bytes) = reader.next().await? {
                keep_head(&mut head, &bytes);
                writer.write(bytes).await?;
            }
        }
        Ok(head)
    }
}

fn keep_head(head: &mut Vec<u8>, bytes: &Bytes) {
    let room = kind::HEAD_BYTES.saturating_sub(head.len());
    head.extend(bytes.iter().take(room));
}

impl TicketRecord {
    /// The label of content with this digest, when the ticket allows it.
    pub(crate) fn checked_label(
        &self,
        sha256: Sha256Digest,
        size: u64,
        head: &[u8],
    ) -> Result<ArtifactLabel, TicketProblem> {
        if self.expected_digests().any(|expected| expected != sha256) {
            return Err(TicketProblem::WrongDigest);
        }
        let media_type = check_type(self, size, head)?;
        Ok(ArtifactLabel::new(media_type, self.name.as_str()))
    }
}

/// The type of the content, when the ticket allows it.
fn check_type(record: &TicketRecord, size: u64, head: &[u8]) -> Result<String, TicketProblem> {
    let found = kind::detect_kind(head, &record.name, size).media_type;
    let Some(expected) = &record.media_type else {
        return Ok(found.to_owned());
    };
    if dray_media_type::matches_pattern(Some(found), expected) {
        return Ok(found.to_owned());
    }
    // Content without a signature may have any type whose content has none, such as JSON or an application format.
    let has_no_signature = [names::OCTET_STREAM, "text/plain"].contains(&found);
    if has_no_signature && !has_signature(expected) {
        return Ok(expected.clone());
    }
    Err(TicketProblem::WrongType {
        expected: expected.clone(),
        found: found.to_owned(),
    })
}

/// Whether content of this type begins with a signature.
fn has_signature(media_type: &str) -> bool {
    let media_type = media_type.to_ascii_lowercase();
    ["image/", "audio/", "video/"]
        .iter()
        .chain(&RECOGNISED_APPLICATIONS)
        .any(|start| media_type.starts_with(start))
}
