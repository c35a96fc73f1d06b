//! Single requests on single objects: head, conditional create, copy, delete. They work on keys and checksums, not on
//! artifacts; `commit` combines them and documents the guarantees.

use aws_sdk_s3::operation::list_objects_v2::ListObjectsV2Output;
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{ChecksumAlgorithm, ChecksumMode, MetadataDirective};
use bytes::Bytes;
use dray_types::{Deadline, Sha256Digest};
use futures_util::future::BoxFuture;
use sha2::{Digest as _, Sha256};

use crate::checksum::{Crc64, ObjectChecksum, sha256_from_header};
use crate::chunks;
use crate::client::{self, IDLE_TIMEOUT, SERVER_WORK_TIMEOUT};
use crate::request::{ErrorSource, RequestError};
use crate::store::StoreInner;

/// Largest body in memory that is sent as one request; larger ones are sent in parts (messaging-reliability K-4).
pub(crate) const MAX_SINGLE_REQUEST_BYTES: usize = 16 << 20;

/// The only condition ever used on a write.
pub(crate) const ANY_ETAG: &str = "*";

/// Metadata of an object, as the store reports them.
#[derive(Clone, Debug)]
pub(crate) struct ObjectHead {
    /// Size of the object in bytes.
    pub(crate) size: u64,
    /// SHA-256 of the complete object, if the store has it.
    pub(crate) sha256: Option<Sha256Digest>,
    /// CRC-64/NVME of the complete object, if the store has it.
    pub(crate) crc64: Option<Crc64>,
    /// Unix milliseconds of the last write.
    pub(crate) modified_ms: u64,
    /// Entity tag, for conditional copies.
    pub(crate) tag: Option<String>,
    /// Version, if the bucket has versioning.
    pub(crate) version: Option<String>,
}

/// One page of the objects under `prefix`, at most 1,000. `continuation` is the token of the page before it; `None`
/// asks for the first one.
pub(crate) fn list_page<'a>(
    inner: &'a StoreInner,
    prefix: &'a str,
    continuation: Option<String>,
) -> BoxFuture<'a, Result<ListObjectsV2Output, RequestError>> {
    Box::pin(async move {
        let request = inner
            .clients
            .inside
            .list_objects_v2()
            .bucket(&inner.options.bucket)
            .prefix(prefix)
            .set_continuation_token(continuation)
            .send();
        inner.request(None, Box::pin(request)).await
    })
}

/// Puts an object with `If-None-Match: *` and a checksum that the store verifies. The payload itself is not signed:
/// the signed checksum header covers it.
pub(crate) fn put_object<'a>(
    inner: &'a StoreInner,
    key: &'a str,
    body: Vec<Bytes>,
    sum: ObjectChecksum,
    deadline: Option<Deadline>,
) -> BoxFuture<'a, Result<Option<String>, RequestError>> {
    Box::pin(async move {
        let request = inner
            .clients
            .inside
            .put_object()
            .bucket(&inner.options.bucket)
            .key(key)
            // Only conditional creation is used (K-7): it behaves in the same way in all stores that pass the
            // self-test.
            .if_none_match(ANY_ETAG)
            .content_length(chunks::body_length(&body))
            .set_checksum_sha256(sum.sha256())
            .set_checksum_crc64_nvme(sum.crc64())
            .body(ByteStream::new(chunks::retryable_body(body)))
            .customize()
            .disable_payload_signing();
        let response = inner.request(deadline, Box::pin(request.send())).await?;
        Ok(response.version_id().map(str::to_owned))
    })
}

/// A server-side copy inside the bucket.
#[derive(Clone, Debug)]
pub(crate) struct ObjectCopy<'a> {
    pub(crate) from: &'a str,
    pub(crate) to: &'a str,
    /// Entity tag that the source must still have.
    pub(crate) tag: Option<String>,
    /// Sends `If-None-Match: *`: no object may exist at the destination.
    pub(crate) create: bool,
}

/// Result of a copy, as the store reports it.
#[derive(Clone, Debug)]
pub(crate) struct CopyResult {
    /// SHA-256 of the copy, where the store computed it.
    pub(crate) sha256: Option<Sha256Digest>,
    /// Version, if the bucket has versioning.
    pub(crate) version: Option<String>,
}

/// Copies an object inside the bucket; the bytes do not pass through this process.
pub(crate) async fn copy_object(
    inner: &StoreInner,
    copy: ObjectCopy<'_>,
    deadline: Option<Deadline>,
) -> Result<CopyResult, RequestError> {
    let mut request = inner
        .clients
        .inside
        .copy_object()
        .bucket(&inner.options.bucket)
        .copy_source(format!("{}/{}", inner.options.bucket, copy.from))
        .set_copy_source_if_match(copy.tag)
        .key(copy.to)
        // AWS computes it from the bytes of the copy, and it is compared.
        .checksum_algorithm(ChecksumAlgorithm::Sha256);
    if copy.create {
        request = request.if_none_match(ANY_ETAG);
    }
    if copy.from == copy.to {
        // A copy onto itself is refused unless something changes.
        request = request.metadata_directive(MetadataDirective::Replace);
    }
    let request = request
        .customize()
        .config_override(client::server_work_overrides());
    let response = inner
        .request_within(SERVER_WORK_TIMEOUT, deadline, Box::pin(request.send()))
        .await?;
    let result = response.copy_object_result();
    Ok(CopyResult {
        sha256: result
            .and_then(|result| result.checksum_sha256())
            .and_then(sha256_from_header),
        version: response.version_id().map(str::to_owned),
    })
}

/// Returns the metadata of the object under the key, or `None` without an object.
pub(crate) fn head_object<'a>(
    inner: &'a StoreInner,
    key: &'a str,
    deadline: Option<Deadline>,
) -> BoxFuture<'a, Result<Option<ObjectHead>, RequestError>> {
    Box::pin(async move {
        let request = inner
            .clients
            .inside
            .head_object()
            .bucket(&inner.options.bucket)
            .key(key)
            // Checksums are reported only on request.
            .checksum_mode(ChecksumMode::Enabled)
            .send();
        let response = match inner.request(deadline, Box::pin(request)).await {
            Ok(response) => response,
            Err(RequestError::Missing) => return Ok(None),
            Err(error) => return Err(error),
        };
        let modified_ms = response
            .last_modified()
            .and_then(|time| time.to_millis().ok())
            .and_then(|millis| u64::try_from(millis).ok())
            // An unknown time counts as old, so the object is renewed when it is claimed again.
            .unwrap_or_default();
        let size = response
            .content_length()
            .and_then(|length| u64::try_from(length).ok())
            .unwrap_or_default();
        Ok(Some(ObjectHead {
            size,
            sha256: response.checksum_sha256().and_then(sha256_from_header),
            crc64: response
                .checksum_crc64_nvme()
                .and_then(|text| Crc64::from_header(text, size)),
            modified_ms,
            tag: response.e_tag().map(str::to_owned),
            version: response.version_id().map(str::to_owned),
        }))
    })
}

/// Reads an object only to compute its digest. The entity tag makes sure that it is the object of `head`.
pub(crate) async fn read_digest(
    inner: &StoreInner,
    key: &str,
    head: &ObjectHead,
    deadline: Option<Deadline>,
) -> Result<Sha256Digest, RequestError> {
    let mut hasher = Sha256::new();
    read_object(inner, key, head, deadline, |bytes| hasher.update(bytes)).await?;
    Ok(Sha256Digest::from_bytes(hasher.finalize().into()))
}

/// Reads the object of `head` and passes its bytes to `on_chunk`, in order. Only the entity tag is compared.
pub(crate) async fn read_object(
    inner: &StoreInner,
    key: &str,
    head: &ObjectHead,
    deadline: Option<Deadline>,
    mut on_chunk: impl FnMut(&Bytes) + Send,
) -> Result<(), RequestError> {
    // The permit is held until the body ends, apart from the permit of the request (`StoreInner::readers`).
    let _permit = inner.reader_permit(deadline).await?;
    let request = inner
        .clients
        .inside
        .get_object()
        .bucket(&inner.options.bucket)
        .key(key)
        .set_if_match(head.tag.clone())
        .send();
    let mut body = inner.request(deadline, Box::pin(request)).await?.body;
    loop {
        // Each read has its own timeout: the SDK's stalled-stream protection is off.
        let limit = inner.remaining_time(deadline).min(IDLE_TIMEOUT);
        let next = tokio::time::timeout(limit, body.next())
            .await
            .map_err(|_| RequestError::TimedOut)?;
        match next {
            Some(Ok(bytes)) => on_chunk(&bytes),
            Some(Err(error)) => return Err(RequestError::Unreachable(ErrorSource::from(error))),
            None => return Ok(()),
        }
    }
}

/// Deletes the object, if it exists. S3 reports success in either case.
pub(crate) fn delete_object<'a>(
    inner: &'a StoreInner,
    key: &'a str,
    deadline: Option<Deadline>,
) -> BoxFuture<'a, Result<(), RequestError>> {
    Box::pin(async move {
        let request = inner
            .clients
            .inside
            .delete_object()
            .bucket(&inner.options.bucket)
            .key(key)
            .send();
        inner.request(deadline, Box::pin(request)).await?;
        Ok(())
    })
}
