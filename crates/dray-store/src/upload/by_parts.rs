//! Multipart uploads that clients send themselves, with a presigned URL for each part: for content that is too large
//! for one request and need not pass through this process.
//!
//! The parts become one object at a staging key, to which no claim refers. It is read once for its digest before it is
//! published, because no store reports the SHA-256 of an object in parts.

use std::time::Duration;

use aws_sdk_s3::types::{CompletedMultipartUpload, CompletedPart};
use dray_types::{Claim, Deadline, OperationId, Secret, Sha256Digest, TenantId};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::cache::ArtifactLocation;
use crate::checksum::Crc64;
use crate::client::{self, SERVER_WORK_TIMEOUT};
use crate::commit::{self, StagedArtifact};
use crate::error::{ConfirmError, PresignError, PutError};
use crate::object;
use crate::request::RequestError;
use crate::store::{ArtifactLabel, Store};
use crate::{MAX_OBJECT, link};

/// Bytes of a part, unless the upload would have more than [`MAX_PARTS`] of them.
const DEFAULT_PART_BYTES: u64 = 16 << 20;
/// Most parts, so that a document with all URLs stays below a megabyte. S3 allows 10,000.
const MAX_PARTS: u64 = 1_000;
/// Error codes for parts that differ from the parts in the store.
const INVALID_PARTS_CODES: [&str; 4] = [
    "InvalidPart",
    "InvalidPartOrder",
    "EntityTooSmall",
    "MalformedXML",
];

/// A multipart upload whose parts clients send. It can be stored in a record, and used by another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartedUpload {
    /// The staging key, with a random part.
    pub key: String,
    /// Id of the upload in the store.
    pub upload_id: String,
    /// Bytes of the complete content.
    pub size: u64,
    /// Bytes of every part but the last.
    pub part_bytes: u64,
}

/// Permission to send one part. Its debug form has no URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresignedPart {
    /// Number of the part, from 1.
    pub number: u32,
    /// Exact number of bytes; signed, so no other number is accepted.
    pub size: u64,
    /// The URL to `PUT` to.
    pub url: Secret,
    /// Headers that the sender must send exactly so; they are signed.
    pub headers: Vec<(String, String)>,
}

/// A part that was sent, as its sender names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentPart {
    /// Number of the part, from 1.
    pub number: u32,
    /// Entity tag in the response to the part.
    pub etag: String,
}

/// An upload whose parts are one object at its staging key.
#[derive(Clone, Debug)]
pub struct AssembledUpload {
    /// SHA-256 of the bytes, computed here.
    pub sha256: Sha256Digest,
    /// The first bytes, as many as were requested.
    pub head: Vec<u8>,
    tag: Option<String>,
    crc64: Option<Crc64>,
}

impl PartedUpload {
    /// Number of parts, at least one.
    pub fn part_count(&self) -> u64 {
        self.size.div_ceil(self.part_bytes).max(1)
    }

    /// Bytes of the part with this number.
    fn part_size(&self, number: u64) -> u64 {
        let start = (number - 1) * self.part_bytes;
        self.part_bytes.min(self.size - start)
    }
}

impl Store {
    /// Whether clients can use presigned URLs: the operator has configured the address under which they reach the
    /// store.
    pub fn has_public_endpoint(&self) -> bool {
        !self.inner.options.public_endpoint.is_empty()
    }

    /// Begins an upload of `size` bytes in parts, below `operation`.
    ///
    /// # Errors
    ///
    /// [`PutError::TooLarge`] above [`MAX_OBJECT`], or the store failed.
    pub async fn begin_parts(
        &self,
        operation: &OperationId,
        size: u64,
    ) -> Result<PartedUpload, PutError> {
        if size > MAX_OBJECT {
            return Err(PutError::TooLarge { limit: MAX_OBJECT });
        }
        let inner = &self.inner;
        let key = format!(
            "stage/{}/parts/{}",
            operation.ledger_token(),
            uuid::Uuid::new_v4()
        );
        let request = inner
            .clients
            .inside
            .create_multipart_upload()
            .bucket(&inner.options.bucket)
            .key(&key)
            .send();
        let response = inner.request(None, Box::pin(request)).await?;
        let upload_id = response
            .upload_id()
            .ok_or_else(|| RequestError::InvalidResponse("no upload id".to_owned()))?
            .to_owned();
        Ok(PartedUpload {
            key,
            upload_id,
            size,
            part_bytes: DEFAULT_PART_BYTES.max(size.div_ceil(MAX_PARTS)),
        })
    }

    /// Signs a URL for every part, and returns the Unix milliseconds at which the URLs expire.
    ///
    /// # Errors
    ///
    /// The credentials expire too soon, or signing failed.
    pub async fn presign_parts(
        &self,
        upload: &PartedUpload,
        requested: Duration,
    ) -> Result<(Vec<PresignedPart>, u64), PresignError> {
        let inner = &self.inner;
        let stage_expires_at_ms = inner.clock.now_ms() + inner.options.stage_lifetime.as_millis();
        let (lifetime, expires_at_ms) =
            link::link_lifetime(inner, requested, Some(stage_expires_at_ms))?;
        let mut parts = Vec::new();
        for number in 1..=upload.part_count() {
            let size = upload.part_size(number);
            let request = inner
                .clients
                .public
                .upload_part()
                .bucket(&inner.options.bucket)
                .key(&upload.key)
                .upload_id(&upload.upload_id)
                .part_number(i32::try_from(number).unwrap_or(i32::MAX))
                // The length is signed: without it a part may have any size.
                .content_length(i64::try_from(size).unwrap_or(i64::MAX))
                .presigned(lifetime.clone());
            let signed = Box::pin(request)
                .await
                .map_err(|error| PresignError::Signing(RequestError::from_sdk(error)))?;
            parts.push(PresignedPart {
                number: u32::try_from(number).unwrap_or(u32::MAX),
                size,
                url: Secret::new(signed.uri()),
                headers: signed
                    .headers()
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .collect(),
            });
        }
        Ok((parts, expires_at_ms))
    }

    /// Puts the parts together at the staging key and reads the result once. It may be repeated.
    ///
    /// # Errors
    ///
    /// [`ConfirmError::Mismatch`] when the parts differ from those in the store or have another total size;
    /// [`ConfirmError::NotUploaded`] when the upload no longer exists.
    pub async fn assemble_parts(
        &self,
        upload: &PartedUpload,
        sent: &[SentPart],
        head_bytes: usize,
        deadline: Deadline,
    ) -> Result<AssembledUpload, ConfirmError> {
        let inner = &self.inner;
        let parts = sent
            .iter()
            .map(|part| {
                CompletedPart::builder()
                    .part_number(i32::try_from(part.number).unwrap_or(i32::MAX))
                    .e_tag(&part.etag)
                    .build()
            })
            .collect();
        let parts = CompletedMultipartUpload::builder()
            .set_parts(Some(parts))
            .build();
        let request = inner
            .clients
            .inside
            .complete_multipart_upload()
            .bucket(&inner.options.bucket)
            .key(&upload.key)
            .upload_id(&upload.upload_id)
            .multipart_upload(parts)
            .customize()
            .config_override(client::server_work_overrides());
        let request = Box::pin(request.send());
        match inner
            .request_within(SERVER_WORK_TIMEOUT, Some(deadline), request)
            .await
        {
            // An earlier attempt has completed the upload.
            Ok(_) | Err(RequestError::Missing) => {}
            Err(RequestError::Refused { code, .. })
                if INVALID_PARTS_CODES.contains(&code.as_str()) =>
            {
                return Err(ConfirmError::Mismatch("parts"));
            }
            Err(error) => return Err(error.into()),
        }
        let head = object::head_object(inner, &upload.key, Some(deadline))
            .await?
            .ok_or(ConfirmError::NotUploaded)?;
        if head.size != upload.size {
            return Err(ConfirmError::Mismatch("size"));
        }
        let (mut hasher, mut first) = (Sha256::new(), Vec::new());
        object::read_object(inner, &upload.key, &head, Some(deadline), |bytes| {
            hasher.update(bytes);
            let room = head_bytes.saturating_sub(first.len());
            first.extend(bytes.iter().take(room));
        })
        .await?;
        Ok(AssembledUpload {
            sha256: Sha256Digest::from_bytes(hasher.finalize().into()),
            head: first,
            tag: head.tag,
            crc64: head.crc64,
        })
    }

    /// Makes the assembled upload an artifact of the tenant.
    ///
    /// # Errors
    ///
    /// The staged object changed since it was read, or the store failed.
    pub async fn publish_parts(
        &self,
        tenant: &TenantId,
        upload: &PartedUpload,
        assembled: AssembledUpload,
        label: ArtifactLabel,
        deadline: Deadline,
    ) -> Result<Claim, PutError> {
        let artifact = commit::new_artifact(tenant, assembled.sha256, upload.size, label);
        let staged = StagedArtifact {
            key: &upload.key,
            // The copy is made only of the object that was read.
            tag: assembled.tag,
            crc64: assembled.crc64,
        };
        let location = ArtifactLocation::finished_content(artifact);
        commit::publish_staged(&self.inner, staged, location, Some(deadline)).await
    }

    /// Removes the uploaded parts. Failures are only logged, because the sweep or the bucket's lifecycle rules remove
    /// what is left.
    pub async fn discard_parts(&self, upload: &PartedUpload) {
        let inner = &self.inner;
        let abort = inner
            .clients
            .inside
            .abort_multipart_upload()
            .bucket(&inner.options.bucket)
            .key(&upload.key)
            .upload_id(&upload.upload_id)
            .send();
        let aborted = inner.request(None, Box::pin(abort)).await.map(drop);
        let removed = match aborted {
            // The parts are one object already.
            Ok(()) | Err(RequestError::Missing) => {
                object::delete_object(inner, &upload.key, None).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            tracing::warn!(key = upload.key, %error, "staged parts stay until they are swept");
        }
    }
}
