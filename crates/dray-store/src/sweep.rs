//! Removes expired objects (messaging-reliability K-6), for stores without lifecycle rules: the embedded one. Where the
//! bucket has rules, these remove the objects instead.

use aws_sdk_s3::primitives::DateTime;
use dray_types::Period;

use crate::object;
use crate::options::StoreOptions;
use crate::origin::ORIGIN_PREFIX;
use crate::request::RequestError;
use crate::store::{Store, StoreInner};

/// Numbers of objects that one sweep removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Finished objects past their lifetime.
    pub finished: u64,
    /// Staged objects past their lifetime.
    pub staged: u64,
    /// Records of fetches past their lifetime.
    pub origins: u64,
    /// Multipart uploads that were never completed.
    pub uploads: u64,
    /// Bytes of the removed objects.
    pub bytes: u64,
}

impl Store {
    /// Removes everything past its lifetime. Safe to run at any time and concurrently: an object that was claimed
    /// again meanwhile has a new lifetime and stays.
    ///
    /// # Errors
    ///
    /// [`RequestError`] of the first request that failed; objects removed before stay removed.
    pub async fn sweep(&self) -> Result<SweepReport, RequestError> {
        let inner = &self.inner;
        let (finished, finished_bytes) =
            // The cache is not swept here: the service that tracks the users of an object removes it.
            remove_old(inner, "cas/", inner.options.cas_lifetime).await?;
        let (staged, staged_bytes) =
            remove_old(inner, "stage/", inner.options.stage_lifetime).await?;
        let StoreOptions {
            origin_lifetime,
            cas_lifetime,
            ..
        } = inner.options;
        let (origins, origin_bytes) =
            // Content must not be in the store for longer than its origin is known.
            remove_old(inner, ORIGIN_PREFIX, origin_lifetime.max(cas_lifetime)).await?;
        let uploads = abort_old(inner).await?;
        Ok(SweepReport {
            finished,
            staged,
            origins,
            uploads,
            bytes: finished_bytes + staged_bytes + origin_bytes,
        })
    }
}

/// Removes objects under `prefix` that were last touched longer ago than `lifetime`. Returns their number and bytes.
async fn remove_old(
    inner: &StoreInner,
    prefix: &str,
    lifetime: Period,
) -> Result<(u64, u64), RequestError> {
    let (mut count, mut bytes) = (0, 0);
    let mut continuation = None;
    loop {
        let page = object::list_page(inner, prefix, continuation).await?;
        for object in page.contents() {
            let (Some(key), Some(modified)) = (object.key(), object.last_modified()) else {
                continue;
            };
            if !is_past(inner, modified, lifetime) {
                continue;
            }
            // The listing may be old by now: the object may have been claimed again.
            let Some(head) = object::head_object(inner, key, None).await? else {
                continue;
            };
            if !is_past(
                inner,
                &DateTime::from_millis(head.modified_ms.cast_signed()),
                lifetime,
            ) {
                continue;
            }
            object::delete_object(inner, key, None).await?;
            count += 1;
            bytes += head.size;
        }
        continuation = page.next_continuation_token().map(str::to_owned);
        if continuation.is_none() {
            return Ok((count, bytes));
        }
    }
}

/// Aborts multipart uploads that were started longer ago than staged objects live.
async fn abort_old(inner: &StoreInner) -> Result<u64, RequestError> {
    let mut count = 0;
    let (mut key_marker, mut id_marker) = (None, None);
    loop {
        let request = inner
            .clients
            .inside
            .list_multipart_uploads()
            .bucket(&inner.options.bucket)
            .set_key_marker(key_marker)
            .set_upload_id_marker(id_marker)
            .send();
        let page = inner.request(None, Box::pin(request)).await?;
        for upload in page.uploads() {
            let (Some(key), Some(id), Some(started)) =
                (upload.key(), upload.upload_id(), upload.initiated())
            else {
                continue;
            };
            if !is_past(inner, started, inner.options.stage_lifetime) {
                continue;
            }
            let abort = inner
                .clients
                .inside
                .abort_multipart_upload()
                .bucket(&inner.options.bucket)
                .key(key)
                .upload_id(id)
                .send();
            match inner.request(None, Box::pin(abort)).await {
                Ok(_) => count += 1,
                // The upload was completed or aborted meanwhile.
                Err(RequestError::Missing) => {}
                Err(error) => return Err(error),
            }
        }
        if page.is_truncated() != Some(true) {
            return Ok(count);
        }
        key_marker = page.next_key_marker().map(str::to_owned);
        id_marker = page.next_upload_id_marker().map(str::to_owned);
    }
}

fn is_past(inner: &StoreInner, time: &DateTime, lifetime: Period) -> bool {
    let modified_ms = time
        .to_millis()
        .ok()
        .and_then(|millis| u64::try_from(millis).ok())
        // A time that cannot be read is in the future, so the object stays.
        .unwrap_or(u64::MAX);
    inner.clock.now_ms() >= modified_ms.saturating_add(lifetime.as_millis())
}
