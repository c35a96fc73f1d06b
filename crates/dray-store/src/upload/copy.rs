//! A server-side copy of an object that is too large for one request. Its ranges become the parts of a multipart upload
//! at the destination, which is completed under the same condition as a copy.

use aws_sdk_s3::types::{ChecksumAlgorithm, ChecksumType, CompletedMultipartUpload, CompletedPart};
use dray_types::Deadline;
use futures_util::future::BoxFuture;

use crate::checksum::Crc64;
use crate::client::{self, SERVER_WORK_TIMEOUT};
use crate::object::{self, ANY_ETAG, CopyResult, ObjectCopy};
use crate::request::RequestError;
use crate::store::StoreInner;

/// Largest object that one `CopyObject` moves on AWS.
const MAX_SINGLE_COPY_BYTES: u64 = 5 << 30;
/// Bytes of one range: far below the 5 GiB of S3, so that each request ends within [`SERVER_WORK_TIMEOUT`].
const COPY_PART_BYTES: u64 = 256 << 20;

/// An object that is copied in ranges.
#[derive(Clone, Debug)]
pub(crate) struct LargeCopy<'a> {
    pub(crate) copy: ObjectCopy<'a>,
    /// Size of the source in bytes.
    pub(crate) size: u64,
    /// CRC-64/NVME of the source, if known: the store then verifies the result before it becomes visible.
    pub(crate) crc64: Option<Crc64>,
    /// Bytes of one range.
    pub(crate) part_bytes: u64,
}

/// Copies an object of any size: with one request if the store accepts that, otherwise range by range.
pub(crate) fn copy_any_size<'a>(
    inner: &'a StoreInner,
    copy: ObjectCopy<'a>,
    size: u64,
    crc64: Option<Crc64>,
    deadline: Option<Deadline>,
) -> BoxFuture<'a, Result<CopyResult, RequestError>> {
    Box::pin(async move {
        match object::copy_object(inner, copy.clone(), deadline).await {
            // AWS refuses larger objects. Other stores copy them, some without moving any bytes.
            Err(RequestError::Refused { status: 400, .. }) if size > MAX_SINGLE_COPY_BYTES => {
                let large = LargeCopy {
                    copy,
                    size,
                    crc64: crc64.filter(|_| inner.capabilities().verified_crc64),
                    part_bytes: COPY_PART_BYTES,
                };
                copy_in_parts(inner, &large, deadline).await
            }
            copied => copied,
        }
    })
}

/// Copies an object range by range. When it fails, no object is visible at the destination.
pub(crate) async fn copy_in_parts(
    inner: &StoreInner,
    large: &LargeCopy<'_>,
    deadline: Option<Deadline>,
) -> Result<CopyResult, RequestError> {
    let id = start(inner, large, deadline).await?;
    let completed = match copy_ranges(inner, large, &id, deadline).await {
        Ok(parts) => complete(inner, large, &id, parts, deadline).await,
        Err(error) => Err(error),
    };
    if completed.is_err() {
        let abort = inner
            .clients
            .inside
            .abort_multipart_upload()
            .bucket(&inner.options.bucket)
            .key(large.copy.to)
            .upload_id(&id)
            .send();
        match inner.request(None, Box::pin(abort)).await {
            Ok(_) | Err(RequestError::Missing) => {}
            Err(error) => {
                tracing::warn!(key = large.copy.to, %error, "could not abort a multipart copy; the sweeper removes it");
            }
        }
    }
    completed
}

async fn start(
    inner: &StoreInner,
    large: &LargeCopy<'_>,
    deadline: Option<Deadline>,
) -> Result<String, RequestError> {
    let mut request = inner
        .clients
        .inside
        .create_multipart_upload()
        .bucket(&inner.options.bucket)
        .key(large.copy.to);
    if large.crc64.is_some() {
        request = request
            .checksum_algorithm(ChecksumAlgorithm::Crc64Nvme)
            .checksum_type(ChecksumType::FullObject);
    }
    let response = inner.request(deadline, Box::pin(request.send())).await?;
    response
        .upload_id()
        .map(str::to_owned)
        .ok_or_else(|| RequestError::InvalidResponse("no upload id".to_owned()))
}

async fn copy_ranges(
    inner: &StoreInner,
    large: &LargeCopy<'_>,
    id: &str,
    deadline: Option<Deadline>,
) -> Result<Vec<CompletedPart>, RequestError> {
    let mut parts = Vec::new();
    let mut start = 0;
    while start < large.size {
        let end = large.size.min(start + large.part_bytes);
        let number = i32::try_from(parts.len() + 1).unwrap_or(i32::MAX);
        let request = inner
            .clients
            .inside
            .upload_part_copy()
            .bucket(&inner.options.bucket)
            .key(large.copy.to)
            .upload_id(id)
            .part_number(number)
            .copy_source(format!("{}/{}", inner.options.bucket, large.copy.from))
            // The last byte is part of the range.
            .copy_source_range(format!("bytes={start}-{}", end - 1))
            .set_copy_source_if_match(large.copy.tag.clone())
            .customize()
            .config_override(client::server_work_overrides());
        let response = inner
            .request_within(SERVER_WORK_TIMEOUT, deadline, Box::pin(request.send()))
            .await?;
        let copied = response.copy_part_result().ok_or_else(|| {
            RequestError::InvalidResponse("no result of a copied part".to_owned())
        })?;
        parts.push(
            CompletedPart::builder()
                .part_number(number)
                .set_e_tag(copied.e_tag().map(str::to_owned))
                .set_checksum_crc64_nvme(copied.checksum_crc64_nvme().map(str::to_owned))
                .build(),
        );
        start = end;
    }
    Ok(parts)
}

async fn complete(
    inner: &StoreInner,
    large: &LargeCopy<'_>,
    id: &str,
    parts: Vec<CompletedPart>,
    deadline: Option<Deadline>,
) -> Result<CopyResult, RequestError> {
    let parts = CompletedMultipartUpload::builder()
        .set_parts(Some(parts))
        .build();
    let mut request = inner
        .clients
        .inside
        .complete_multipart_upload()
        .bucket(&inner.options.bucket)
        .key(large.copy.to)
        .upload_id(id)
        .multipart_upload(parts)
        .set_checksum_crc64_nvme(large.crc64.map(Crc64::to_header));
    if large.copy.create {
        request = request.if_none_match(ANY_ETAG);
    }
    let request = request
        .customize()
        .config_override(client::server_work_overrides());
    let request = Box::pin(request.send());
    let version = match inner
        .request_within(SERVER_WORK_TIMEOUT, deadline, request)
        .await
    {
        Ok(response) => response.version_id().map(str::to_owned),
        // The response to a first attempt may have been lost: the object exists in that case.
        Err(RequestError::Missing) => None,
        Err(error) => return Err(error),
    };
    let head = object::head_object(inner, large.copy.to, deadline).await?;
    let head = head.ok_or(RequestError::Missing)?;
    let differs = head.size != large.size
        || head
            .crc64
            .zip(large.crc64)
            .is_some_and(|(stored, expected)| stored != expected);
    if differs {
        return Err(RequestError::Corrupted {
            code: "CopiedPartsDiffer".to_owned(),
        });
    }
    Ok(CopyResult {
        sha256: head.sha256,
        version: version.or(head.version),
    })
}
