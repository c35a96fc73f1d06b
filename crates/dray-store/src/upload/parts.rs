//! One multipart upload to a staging key: parts go out one at a time, each with its checksum, while the next is
//! filled.

use std::sync::Arc;

use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{ChecksumAlgorithm, ChecksumType, CompletedMultipartUpload, CompletedPart};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use dray_types::Deadline;
use futures_util::future::BoxFuture;
use sha2::{Digest as _, Sha256};
use tokio::task::JoinSet;

use crate::checksum::{Crc64, ObjectChecksum};
use crate::client::{self, SERVER_WORK_TIMEOUT};
use crate::error::PutError;
use crate::request::RequestError;
use crate::store::StoreInner;
use crate::{chunks, object};

/// An upload in parts. Dropping it leaves its parts behind: call [`MultipartUpload::discard`].
#[derive(Debug)]
pub(crate) struct MultipartUpload {
    inner: Arc<StoreInner>,
    key: String,
    id: String,
    deadline: Option<Deadline>,
    sent: Vec<CompletedPart>,
    sums: Vec<ObjectChecksum>,
    /// The part that is being sent, at most one.
    sending: JoinSet<Result<(CompletedPart, ObjectChecksum), RequestError>>,
    in_flight_bytes: usize,
    completed: bool,
}

impl MultipartUpload {
    /// Opens a multipart upload.
    pub(crate) fn start(
        inner: Arc<StoreInner>,
        key: String,
        deadline: Option<Deadline>,
    ) -> BoxFuture<'static, Result<Self, RequestError>> {
        Box::pin(async move {
            // The CRC-64 values of parts combine to the CRC-64 of the object; SHA-256 digests of parts do not
            // (docs/decisions/store-part-checksums.md).
            let (algorithm, kind) = if inner.capabilities().verified_crc64 {
                (ChecksumAlgorithm::Crc64Nvme, ChecksumType::FullObject)
            } else {
                (ChecksumAlgorithm::Sha256, ChecksumType::Composite)
            };
            let request = inner
                .clients
                .inside
                .create_multipart_upload()
                .bucket(&inner.options.bucket)
                .key(&key)
                .checksum_algorithm(algorithm)
                .checksum_type(kind)
                .send();
            let response = inner.request(deadline, Box::pin(request)).await?;
            let id = response
                .upload_id()
                .ok_or_else(|| RequestError::InvalidResponse("no upload id".to_owned()))?
                .to_owned();
            Ok(Self {
                inner,
                key,
                id,
                deadline,
                sent: Vec::new(),
                sums: Vec::new(),
                sending: JoinSet::new(),
                in_flight_bytes: 0,
                completed: false,
            })
        })
    }

    /// The staging key of the upload.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// Number of bytes that are being sent.
    pub(crate) fn in_flight_bytes(&self) -> usize {
        self.in_flight_bytes
    }

    /// Starts sending the next part once the one before has arrived.
    pub(crate) fn send(&mut self, part: Vec<Bytes>) -> BoxFuture<'_, Result<(), RequestError>> {
        Box::pin(async move {
            // The memory limit allows one part in transfer and one that is being filled.
            self.wait().await?;
            self.in_flight_bytes = part.iter().map(Bytes::len).sum();
            // Numbers begin with 1 (S3).
            let number = i32::try_from(self.sent.len() + 1).unwrap_or(i32::MAX);
            let inner = Arc::clone(&self.inner);
            let (key, id, deadline) = (self.key.clone(), self.id.clone(), self.deadline);
            // A task, so that it continues while the caller fills the next part.
            self.sending.spawn(async move {
                let (sum, part) = if inner.capabilities().verified_crc64 {
                    (ObjectChecksum::Crc64(Crc64::of(&part)), part)
                } else {
                    let (digest, part) = chunks::digest_all(part).await;
                    (ObjectChecksum::Sha256(digest), part)
                };
                let request = inner
                    .clients
                    .inside
                    .upload_part()
                    .bucket(&inner.options.bucket)
                    .key(key)
                    .upload_id(id)
                    .part_number(number)
                    .content_length(chunks::body_length(&part))
                    .set_checksum_sha256(sum.sha256())
                    .set_checksum_crc64_nvme(sum.crc64())
                    .body(ByteStream::new(chunks::retryable_body(part)))
                    .customize()
                    .disable_payload_signing();
                let response = inner.request(deadline, Box::pin(request.send())).await?;
                let part = CompletedPart::builder()
                    .part_number(number)
                    .set_e_tag(response.e_tag().map(str::to_owned))
                    .set_checksum_sha256(sum.sha256())
                    .set_checksum_crc64_nvme(sum.crc64())
                    .build();
                Ok((part, sum))
            });
            Ok(())
        })
    }

    /// Waits until no part is being sent.
    pub(crate) fn wait(&mut self) -> BoxFuture<'_, Result<(), RequestError>> {
        Box::pin(async move {
            while let Some(sent) = self.sending.join_next().await {
                self.in_flight_bytes = 0;
                let (part, sum) =
                    sent.map_err(|error| RequestError::InvalidResponse(error.to_string()))??;
                self.sent.push(part);
                self.sums.push(sum);
            }
            Ok(())
        })
    }

    /// Completes the upload and checks what the store reports about the result.
    pub(crate) fn complete(&mut self, size: u64) -> BoxFuture<'_, Result<(), PutError>> {
        Box::pin(async move {
            self.wait().await?;
            let parts = CompletedMultipartUpload::builder()
                .set_parts(Some(std::mem::take(&mut self.sent)))
                .build();
            let request = self
                .inner
                .clients
                .inside
                .complete_multipart_upload()
                .bucket(&self.inner.options.bucket)
                .key(&self.key)
                .upload_id(&self.id)
                .multipart_upload(parts)
                .customize()
                .config_override(client::server_work_overrides());
            let request = Box::pin(request.send());
            match self
                .inner
                .request_within(SERVER_WORK_TIMEOUT, self.deadline, request)
                .await
            {
                Ok(response) => {
                    let (composite, crc64) = (self.checksum_of_checksums(), self.crc64());
                    let differs = |actual: Option<&str>, expected: Option<String>| {
                        actual
                            .zip(expected)
                            .is_some_and(|(actual, expected)| actual != expected)
                    };
                    if differs(response.checksum_sha256(), composite)
                        || differs(response.checksum_crc64_nvme(), crc64.map(Crc64::to_header))
                    {
                        return Err(PutError::Corrupted);
                    }
                }
                // The response to a first attempt may have been lost; the object exists in that case, and is checked
                // below.
                Err(RequestError::Missing) => {}
                Err(error) => return Err(error.into()),
            }
            self.completed = true;
            // This is checked after a success, too: the size is compared with the bytes that the caller wrote.
            let head = object::head_object(&self.inner, &self.key, self.deadline).await?;
            if head.is_none_or(|head| head.size != size) {
                return Err(PutError::Corrupted);
            }
            Ok(())
        })
    }

    /// CRC-64/NVME of everything that was sent, when the parts were covered by it.
    pub(crate) fn crc64(&self) -> Option<Crc64> {
        self.sums
            .iter()
            .try_fold(Crc64::default(), |before, sum| match sum {
                ObjectChecksum::Crc64(crc) => Some(before.then(*crc)),
                ObjectChecksum::Sha256(_) => None,
            })
    }

    /// The composite checksum of S3: the digest of the parts' digests, and their number.
    fn checksum_of_checksums(&self) -> Option<String> {
        let mut hasher = Sha256::new();
        for sum in &self.sums {
            match sum {
                ObjectChecksum::Sha256(digest) => hasher.update(digest.as_bytes()),
                ObjectChecksum::Crc64(_) => return None,
            }
        }
        let digest = STANDARD.encode(hasher.finalize());
        Some(format!("{digest}-{}", self.sums.len()))
    }

    /// Removes the uploaded parts. Failures are only logged, because the sweep or the bucket's lifecycle rules remove
    /// what is left.
    pub(crate) fn discard(mut self) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            // The pending parts end first: a part that arrives after the abort would stay.
            self.sending.shutdown().await;
            let removed = if self.completed {
                object::delete_object(&self.inner, &self.key, None).await
            } else {
                let request = self
                    .inner
                    .clients
                    .inside
                    .abort_multipart_upload()
                    .bucket(&self.inner.options.bucket)
                    .key(&self.key)
                    .upload_id(&self.id)
                    .send();
                self.inner.request(None, Box::pin(request)).await.map(drop)
            };
            match removed {
                Ok(()) | Err(RequestError::Missing) => {}
                Err(error) => {
                    tracing::warn!(key = self.key, %error, "could not remove a staged upload; the sweeper removes it");
                }
            }
        })
    }
}
