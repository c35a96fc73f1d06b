//! Stores bytes that arrive in chunks and whose digest is known only at the end.
//!
//! Content that fits one part is sent as one conditional create of the finished key. Anything larger goes to a staging
//! key in parts, each with its checksum, while the complete content is hashed. It is copied to its finished key only
//! when it is complete and verified (messaging-reliability K-4). At most [`MAX_TRANSFER_BYTES`] are in memory at any
//! time.

use std::sync::Arc;

use bytes::Bytes;
use dray_types::{Artifact, Claim, Deadline, OperationId, Sha256Digest, TenantId};
use futures_util::future::BoxFuture;
use sha2::{Digest as _, Sha256};

use crate::cache::{ArtifactLocation, ObjectArea};
use crate::chunks::ChunkBuffer;
use crate::commit::{self, StagedArtifact};
use crate::error::PutError;
use crate::store::{ArtifactLabel, StoreInner};
use crate::upload::parts::MultipartUpload;
use crate::{MAX_OBJECT, MAX_TRANSFER_BYTES, PART_BYTES};

/// Bytes that are hashed before other tasks of the thread get their turn.
const HASH_YIELD_BYTES: usize = 256 << 10;

/// The upload of one artifact. Dropping it cancels the upload; uploaded parts are removed in the background.
#[derive(Debug)]
pub struct ArtifactWriter {
    inner: Arc<StoreInner>,
    tenant: TenantId,
    /// Prefix of the staging key: `stage/<operation>/<epoch>`.
    stage: String,
    deadline: Option<Deadline>,
    cached: bool,
    hasher: Sha256,
    size: u64,
    part: ChunkBuffer,
    upload: Option<MultipartUpload>,
    failed: bool,
}

impl ArtifactWriter {
    pub(crate) fn new(
        inner: Arc<StoreInner>,
        tenant: &TenantId,
        operation: &OperationId,
        epoch: u64,
    ) -> Self {
        Self {
            inner,
            tenant: tenant.clone(),
            stage: format!("stage/{}/{epoch}", operation.ledger_token()),
            deadline: None,
            cached: false,
            hasher: Sha256::new(),
            size: 0,
            part: ChunkBuffer::default(),
            upload: None,
            failed: false,
        }
    }

    /// Gives up with a timeout when the deadline passes.
    #[must_use]
    pub fn deadline(mut self, deadline: Deadline) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Stores the content in the cache: for about an hour, and longer only while it is in use.
    #[must_use]
    pub fn cached(mut self) -> Self {
        self.cached = true;
        self
    }

    /// Number of bytes written so far.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Digest of the bytes written so far.
    pub fn sha256(&self) -> Sha256Digest {
        finish_digest(self.hasher.clone())
    }

    /// Appends bytes. Waits while the store is slower than the source, so that at most [`MAX_TRANSFER_BYTES`] are in
    /// memory; a large `bytes` stays in memory until its last part is sent.
    ///
    /// After an error the upload cannot continue and can only be dropped.
    ///
    /// # Errors
    ///
    /// [`PutError::TooLarge`], [`PutError::Corrupted`] and [`PutError::Request`]; [`PutError::EarlierWriteFailed`]
    /// after any of them.
    pub async fn write(&mut self, bytes: Bytes) -> Result<(), PutError> {
        if self.failed {
            return Err(PutError::EarlierWriteFailed);
        }
        let written = self.append(bytes).await;
        // Bytes may be missing from the hash or from a part, so no later call can complete the content.
        self.failed = written.is_err();
        written
    }

    async fn append(&mut self, mut bytes: Bytes) -> Result<(), PutError> {
        if self.size.saturating_add(bytes.len() as u64) > MAX_OBJECT {
            return Err(PutError::TooLarge { limit: MAX_OBJECT });
        }
        while !bytes.is_empty() {
            // A full part is sent only when more bytes follow: content of exactly one part needs no staging.
            if self.part.len() == PART_BYTES {
                self.send_part().await?;
            }
            let chunk = bytes.split_to(
                bytes
                    .len()
                    .min(PART_BYTES - self.part.len())
                    .min(HASH_YIELD_BYTES),
            );
            if let Some(upload) = &mut self.upload
                // Waits for the part before, when both together would exceed the bound.
                && upload.in_flight_bytes() + self.part.len() + chunk.len() > MAX_TRANSFER_BYTES
            {
                upload.wait().await?;
            }
            self.hasher.update(&chunk);
            self.size += chunk.len() as u64;
            self.part.push(chunk);
            // Hashing does not await anything, so a large buffer would block the thread.
            if bytes.len() >= HASH_YIELD_BYTES {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// Sends the buffered bytes as the next part of the staged upload, which starts with the first part.
    fn send_part(&mut self) -> BoxFuture<'_, Result<(), PutError>> {
        Box::pin(async move {
            let upload = if let Some(upload) = &mut self.upload {
                upload
            } else {
                // Two attempts with one epoch still have different staging keys (K-3).
                let key = format!("{}/{}", self.stage, uuid::Uuid::new_v4());
                let upload =
                    MultipartUpload::start(Arc::clone(&self.inner), key, self.deadline).await?;
                self.upload.insert(upload)
            };
            upload.send(self.part.take()).await?;
            Ok(())
        })
    }

    /// Stores what was written and returns its claim. Equal bytes of one tenant are one object, independent of which
    /// call stored them first.
    ///
    /// # Errors
    ///
    /// [`PutError`]; [`PutError::EarlierWriteFailed`] after a failed [`Self::write`].
    pub fn finish(mut self, label: ArtifactLabel) -> BoxFuture<'static, Result<Claim, PutError>> {
        Box::pin(async move {
            if self.failed {
                return Err(PutError::EarlierWriteFailed);
            }
            let sha256 = finish_digest(std::mem::take(&mut self.hasher));
            let artifact = commit::new_artifact(&self.tenant, sha256, self.size, label);
            let location = self.location(artifact);
            if self.upload.is_none() {
                return commit::create_object(
                    &self.inner,
                    location,
                    self.part.take(),
                    self.deadline,
                )
                .await;
            }
            if self.part.len() > 0 {
                self.send_part().await?;
            }
            let Some(upload) = &mut self.upload else {
                return Err(PutError::EarlierWriteFailed);
            };
            // The upload is completed before the copy, so that no unchecked content becomes visible (K-4).
            upload.complete(self.size).await?;
            let staged = StagedArtifact {
                key: upload.key(),
                // The key is unique to this writer, so it has no other object.
                tag: None,
                crc64: upload.crc64(),
            };
            let claim =
                commit::publish_staged(&self.inner, staged, location, self.deadline).await?;
            // Removes the staged object; the claim does not depend on it.
            self.abort().await;
            Ok(claim)
        })
    }

    /// Where the artifact becomes visible if the upload ends now.
    fn location(&self, artifact: Artifact) -> ArtifactLocation {
        // The area is read at the end, because the slot is the one in which the object becomes visible.
        let area = if self.cached {
            ObjectArea::cached(&self.inner)
        } else {
            ObjectArea::Finished
        };
        ArtifactLocation { artifact, area }
    }

    /// Cancels the upload and waits until uploaded parts are removed. Best effort: the sweep removes what is left.
    pub async fn abort(mut self) {
        if let Some(upload) = self.upload.take() {
            upload.discard().await;
        }
    }
}

impl Drop for ArtifactWriter {
    fn drop(&mut self) {
        let Some(upload) = self.upload.take() else {
            return;
        };
        // Outside a runtime only the sweep can clean up. Without a runtime no request can be sent.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            self.inner.tasks.spawn_on(upload.discard(), &runtime);
        }
    }
}

fn finish_digest(hasher: Sha256) -> Sha256Digest {
    Sha256Digest::from_bytes(hasher.finalize().into())
}
