//! The sink of the service: small files are returned inline, larger ones go into the artifact store.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use dray_bus::Meta;
use dray_proto::MAX_INLINE_BYTES;
use dray_proto::convert::ContentSource;
use dray_store::{ArtifactLabel, ArtifactWriter, ReadError, Store, WebOrigin};
use dray_types::{ByteSize, Clock, Deadline, OperationId, Sha256Digest, TenantId};

use crate::fetch::CachedFile;
use crate::label::ResponseLabels;
use crate::sink::{ByteSink, ContentOrigin, SinkError, StoredFile};

/// Chunks below this size in bytes are collected, so that a peer that sends single bytes cannot make the store hold a
/// buffer for each.
const MIN_CHUNK_BYTES: usize = 48 * 1024;

/// Longest time for storing a small file for the cache.
const KEEP_TIMEOUT: Duration = Duration::from_secs(1);

/// Longest time for recording the origin of a file that is returned and not stored.
const ORIGIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Makes sinks for fetched files: the store, and the rule about their origins.
#[derive(Clone, Debug)]
pub struct StagingArea {
    /// The store of files and of the records of their origins.
    pub store: Store,
    /// Stamps the records of origins.
    pub clock: Clock,
    /// Whether a file that is only returned fails too when its origin cannot be recorded.
    pub origin_required: bool,
}

impl StagingArea {
    /// The staging area of a service with this store.
    pub fn new(store: &Store, clock: &Clock, origin_required: bool) -> Self {
        Self {
            store: store.clone(),
            clock: clock.clone(),
            origin_required,
        }
    }

    /// A sink for a fetch of this caller; with `claim_only` even small files go to the store.
    pub fn file(&self, meta: &Meta, deadline: Deadline, claim_only: bool) -> StagedFile {
        StagedFile {
            area: self.clone(),
            tenant: meta.tenant.clone(),
            operation: meta.operation.clone(),
            deadline,
            claim_only,
            buffered: BytesMut::new(),
            writer: None,
            content: None,
        }
    }
}

/// Whether an origin must be recorded, and for how long that is tried.
struct OriginTerms {
    is_required: bool,
    limit: Duration,
}

/// The sink of one fetched file, inline or in the store. Dropping it removes what was stored so far.
#[derive(Debug)]
pub struct StagedFile {
    area: StagingArea,
    tenant: TenantId,
    operation: OperationId,
    deadline: Deadline,
    claim_only: bool,
    /// Bytes that are not in the store yet.
    buffered: BytesMut,
    writer: Option<ArtifactWriter>,
    content: Option<ContentSource>,
}

impl StagedFile {
    /// Returns the finished file, or `None` before it is finished.
    pub fn into_content(self) -> Option<ContentSource> {
        self.content
    }

    /// Sends the buffered bytes to the store. The first call opens the writer.
    async fn flush(&mut self) -> Result<&mut ArtifactWriter, SinkError> {
        let writer = self.writer.get_or_insert_with(|| {
            // A fetch is a call and has no lease; two attempts of one operation differ by the writer's own key.
            self.area
                .store
                .writer(&self.tenant, &self.operation, 0)
                .deadline(self.deadline)
        });
        if !self.buffered.is_empty() {
            let chunk = self.buffered.split().freeze();
            writer.write(chunk).await.map_err(SinkError::new)?;
        }
        Ok(writer)
    }

    /// The digest of the whole file: of an adopted one, or of all bytes that were written.
    async fn digest(&mut self) -> Result<Sha256Digest, SinkError> {
        match &self.content {
            Some(ContentSource::Inline(bytes)) => Ok(Sha256Digest::of(bytes)),
            Some(ContentSource::Claim(claim)) => Ok(claim.artifact.sha256),
            // The origin of returned bytes is recorded too: their reader can store them later.
            None if self.writer.is_none() && !self.claim_only => {
                Ok(Sha256Digest::of(&self.buffered))
            }
            None => Ok(self.flush().await?.sha256()),
        }
    }

    /// Stored content never lacks its origin. Returned bytes must not depend on the store, unless the operator requires
    /// their origin too.
    fn origin_terms(&self) -> OriginTerms {
        let is_returned = match &self.content {
            Some(content) => matches!(content, ContentSource::Inline(_)),
            None => self.writer.is_none() && !self.claim_only,
        };
        let is_required = self.area.origin_required || !is_returned;
        OriginTerms {
            is_required,
            // A required record may take as long as the fetch allows.
            limit: if is_required {
                Duration::MAX
            } else {
                ORIGIN_TIMEOUT
            },
        }
    }

    /// The content of a file in the store: the bytes of a small one, unless the caller wants only claims.
    async fn stored_content(&self, file: &CachedFile) -> Result<Option<ContentSource>, ReadError> {
        let label = artifact_label(&file.labels);
        let found = self
            .area
            .store
            .claim(&self.tenant, file.stored.sha256, label)
            .await?;
        let Some(claim) = found.filter(|claim| claim.artifact.size == file.stored.size) else {
            return Ok(None);
        };
        let is_small = usize::try_from(file.stored.size).is_ok_and(|size| size <= MAX_INLINE_BYTES);
        if self.claim_only || !is_small {
            return Ok(Some(ContentSource::Claim(claim)));
        }
        let reading = self.area.store.read(&self.tenant, &claim, self.deadline);
        let bytes = reading
            .await?
            .read_all(ByteSize::bytes(file.stored.size))
            .await?;
        Ok(Some(ContentSource::Inline(bytes)))
    }
}

impl ByteSink for StagedFile {
    async fn write(&mut self, chunk: Bytes) -> Result<(), SinkError> {
        let is_large = chunk.len() >= MIN_CHUNK_BYTES && self.writer.is_some();
        if is_large {
            // The buffered bytes precede this chunk.
            let writer = self.flush().await?;
            return writer.write(chunk).await.map_err(SinkError::new);
        }
        // Nothing is sent to the store while the file may still fit inline.
        if self.buffered.len() + chunk.len() > MAX_INLINE_BYTES {
            self.flush().await?;
        }
        self.buffered.reserve(
            MAX_INLINE_BYTES
                .saturating_sub(self.buffered.len())
                .min(chunk.len().max(MIN_CHUNK_BYTES)),
        );
        self.buffered.extend_from_slice(&chunk);
        Ok(())
    }

    async fn record_origin(&mut self, origin: ContentOrigin) -> Result<(), SinkError> {
        let sha256 = self.digest().await?;
        let ContentOrigin {
            hosts,
            policy_digest,
            rules_digest,
            media_type,
        } = origin;
        let origin = WebOrigin {
            hosts,
            fetched_at_ms: self.area.clock.now_ms(),
            policy_digest,
            rules_digest,
            media_type,
        };
        let OriginTerms { is_required, limit } = self.origin_terms();
        let recording =
            self.area
                .store
                .record_origin(&self.tenant, sha256, &origin, Some(self.deadline));
        let failure = match tokio::time::timeout(limit, recording).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => SinkError::new(error),
            Err(_) => SinkError::new("the store took too long to record an origin"),
        };
        if is_required {
            return Err(failure);
        }
        tracing::warn!(
            error = &failure as &dyn std::error::Error,
            "where a returned file came from could not be recorded"
        );
        Ok(())
    }

    async fn finish(&mut self, labels: &ResponseLabels) -> Result<StoredFile, SinkError> {
        if self.writer.is_none() && !self.claim_only {
            let bytes = self.buffered.split().freeze();
            let stored = StoredFile {
                sha256: Sha256Digest::of(&bytes),
                size: bytes.len() as u64,
            };
            self.content = Some(ContentSource::Inline(bytes));
            return Ok(stored);
        }
        self.flush().await?;
        let Some(writer) = self.writer.take() else {
            return Err(SinkError::new("the store has no writer"));
        };
        let claim = writer
            .finish(artifact_label(labels))
            .await
            .map_err(SinkError::new)?;
        let stored = StoredFile {
            sha256: claim.artifact.sha256,
            size: claim.artifact.size,
        };
        self.content = Some(ContentSource::Claim(claim));
        Ok(stored)
    }

    async fn adopt(&mut self, file: &CachedFile) -> bool {
        match self.stored_content(file).await {
            Ok(Some(content)) => {
                self.content = Some(content);
                true
            }
            // The artifact has expired.
            Ok(None) => false,
            Err(error) => {
                tracing::warn!(%error, "a stored response could not be read");
                false
            }
        }
    }

    async fn keep(&mut self, file: &CachedFile) -> bool {
        let Some(ContentSource::Inline(bytes)) = &self.content else {
            return self.content.is_some();
        };
        let label = artifact_label(&file.labels);
        let storing = self
            .area
            .store
            .put(&self.tenant, &self.operation, bytes.clone(), label);
        match tokio::time::timeout(KEEP_TIMEOUT, storing).await {
            Ok(Ok(_)) => true,
            Ok(Err(error)) => {
                tracing::warn!(%error, "a response could not be kept");
                false
            }
            Err(_) => false,
        }
    }

    async fn discard(&mut self) {
        self.buffered.clear();
        self.content = None;
        if let Some(writer) = self.writer.take() {
            writer.abort().await;
        }
    }
}

fn artifact_label(labels: &ResponseLabels) -> ArtifactLabel {
    // The store requires a media type; this one says nothing about the content (RFC 2046, section 4.5.1).
    let media_type = match labels.media_type.as_str() {
        "" => "application/octet-stream",
        declared => declared,
    };
    ArtifactLabel::new(media_type, labels.name.clone())
}
