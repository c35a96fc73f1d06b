//! Makes content visible under its final key, exactly once and only after its digest was checked (messaging-reliability
//! K-4). The bytes are in memory with their digest, or at a staging key.
//!
//! This module and its siblings box the futures of requests where they create them. The body of an async function is
//! compiled in each crate that polls it, and ten crates use the store.

use bytes::Bytes;
use dray_types::{Artifact, Claim, Deadline, Period, Sha256Digest, TenantId};
use futures_util::future::BoxFuture;

use crate::cache::{ArtifactLocation, ObjectArea};
use crate::checksum::{Crc64, ObjectChecksum};
use crate::chunks;
use crate::error::PutError;
use crate::object::{self, ObjectCopy, ObjectHead};
use crate::request::RequestError;
use crate::store::{ArtifactLabel, StoreInner};
use crate::upload::copy::copy_any_size;

/// Age from which an object that is claimed again gets a new lifetime. A younger object has at least 14 days of its 15
/// days left, which is how long `DRAY_DEAD` keeps a dead letter that may refer to it.
const REFRESH_AGE: Period = Period::secs(24 * 60 * 60);

/// Stores bytes whose digest is computed here, without a staging key.
pub(crate) async fn put_known(
    inner: &StoreInner,
    tenant: &TenantId,
    bytes: Bytes,
    label: ArtifactLabel,
) -> Result<Claim, PutError> {
    let (digest, bytes) = chunks::digest_one(bytes).await;
    let artifact = new_artifact(tenant, digest, bytes.len() as u64, label);
    create_object(
        inner,
        ArtifactLocation::finished_content(artifact),
        vec![bytes],
        None,
    )
    .await
}

/// Builds an artifact from its parts.
pub(crate) fn new_artifact(
    tenant: &TenantId,
    sha256: Sha256Digest,
    size: u64,
    label: ArtifactLabel,
) -> Artifact {
    Artifact {
        tenant: tenant.clone(),
        sha256,
        size,
        media_type: label.media_type,
        name: label.name,
    }
}

/// Puts a body whose digest is known in advance. An object that already exists under the key is adopted.
pub(crate) fn create_object(
    inner: &StoreInner,
    location: ArtifactLocation,
    body: Vec<Bytes>,
    deadline: Option<Deadline>,
) -> BoxFuture<'_, Result<Claim, PutError>> {
    Box::pin(async move {
        let key = location.key();
        let sum = ObjectChecksum::Sha256(location.artifact.sha256);
        // A cheap clone that shares the bytes; they are needed again only if the object exists.
        let chunks = body.clone();
        match object::put_object(inner, &key, body, sum, deadline).await {
            Ok(version) => Ok(fresh_claim(inner, location, version)),
            Err(RequestError::Exists) => {
                adopt_existing(inner, location, Some(Crc64::of(&chunks)), deadline).await
            }
            Err(error) => Err(error.into()),
        }
    })
}

/// A staged object that was verified to have the bytes of an artifact.
#[derive(Clone, Debug)]
pub(crate) struct StagedArtifact<'a> {
    pub(crate) key: &'a str,
    /// Entity tag that the staged object must still have.
    pub(crate) tag: Option<String>,
    /// CRC-64/NVME of the bytes, if it was computed.
    pub(crate) crc64: Option<Crc64>,
}

/// Copies a staged object to its final key inside the store. If that key already has an object, it is adopted.
pub(crate) fn publish_staged<'a>(
    inner: &'a StoreInner,
    staged: StagedArtifact<'a>,
    location: ArtifactLocation,
    deadline: Option<Deadline>,
) -> BoxFuture<'a, Result<Claim, PutError>> {
    Box::pin(async move {
        let key = location.key();
        // Without conditional copies two writers may both copy. That is harmless, because they copy the same bytes.
        let create = inner.capabilities().conditional_copy;
        if !create && object::head_object(inner, &key, deadline).await?.is_some() {
            return adopt_existing(inner, location, staged.crc64, deadline).await;
        }
        let copy = ObjectCopy {
            from: staged.key,
            to: &key,
            tag: staged.tag,
            create,
        };
        let size = location.artifact.size;
        match copy_any_size(inner, copy, size, staged.crc64, deadline).await {
            Ok(copied)
                if copied
                    // AWS computes the SHA-256 during the copy; a difference means that the staged bytes are wrong.
                    .sha256
                    .is_some_and(|sha256| sha256 != location.artifact.sha256) =>
            {
                Err(PutError::Corrupted)
            }
            Ok(copied) => Ok(fresh_claim(inner, location, copied.version)),
            Err(RequestError::Exists) => {
                adopt_existing(inner, location, staged.crc64, deadline).await
            }
            Err(error) => Err(error.into()),
        }
    })
}

/// Adopts an object that already has the artifact's key: checks that it has the artifact's bytes, and prolongs its
/// lifetime if needed (messaging-reliability K-4).
fn adopt_existing(
    inner: &StoreInner,
    location: ArtifactLocation,
    crc64: Option<Crc64>,
    deadline: Option<Deadline>,
) -> BoxFuture<'_, Result<Claim, PutError>> {
    Box::pin(async move {
        let key = location.key();
        // A concurrent writer may have won before its object became visible; the caller can repeat.
        let head =
            object::head_object(inner, &key, deadline)
                .await?
                .ok_or(RequestError::ServerError {
                    status: 409,
                    code: "ConditionalRequestConflict".to_owned(),
                })?;
        if !is_same(inner, &key, &head, &location.artifact, crc64, deadline).await? {
            tracing::error!(
                key,
                size = head.size,
                "the bytes of an object do not match the digest in its key"
            );
            return Err(PutError::Conflict);
        }
        let now = inner.clock.now_ms();
        let is_young = now.saturating_sub(head.modified_ms) < REFRESH_AGE.as_millis();
        // The lifetime of a cached object is never renewed.
        if is_young || location.area != ObjectArea::Finished {
            return Ok(object_claim(
                inner,
                location,
                head.modified_ms,
                head.version,
            ));
        }
        // The lifetime counts from the last write, so a copy onto itself renews it. Only this write lacks
        // `If-None-Match`; the tag ensures that it copies the object that was checked above.
        let copy = ObjectCopy {
            from: &key,
            to: &key,
            tag: head.tag,
            create: false,
        };
        let copied = copy_any_size(inner, copy, head.size, head.crc64, deadline).await?;
        Ok(fresh_claim(inner, location, copied.version))
    })
}

/// Returns the claim of the object that is stored under the digest, or `None` if no object exists.
pub(crate) fn claim_stored<'a>(
    inner: &'a StoreInner,
    tenant: &'a TenantId,
    sha256: Sha256Digest,
    label: ArtifactLabel,
) -> BoxFuture<'a, Result<Option<Claim>, RequestError>> {
    Box::pin(async move {
        let mut artifact = Artifact {
            tenant: tenant.clone(),
            sha256,
            // The key does not depend on the size; the store reports it below.
            size: 0,
            media_type: label.media_type,
            name: label.name,
        };
        let Some(head) = object::head_object(inner, &artifact.key(), None).await? else {
            return Ok(None);
        };
        artifact.size = head.size;
        let location = ArtifactLocation::finished_content(artifact);
        Ok(Some(object_claim(
            inner,
            location,
            head.modified_ms,
            head.version,
        )))
    })
}

/// Whether the object holds the artifact's bytes: compares the stored checksums if possible, otherwise reads the
/// object.
async fn is_same(
    inner: &StoreInner,
    key: &str,
    head: &ObjectHead,
    artifact: &Artifact,
    crc64: Option<Crc64>,
    deadline: Option<Deadline>,
) -> Result<bool, RequestError> {
    if head.size != artifact.size {
        return Ok(false);
    }
    // Objects from multipart uploads have no SHA-256 of the whole content.
    if let Some(stored) = head.sha256 {
        return Ok(stored == artifact.sha256);
    }
    if let (Some(stored), Some(expected)) = (head.crc64, crc64) {
        return Ok(stored == expected);
    }
    let stored = object::read_digest(inner, key, head, deadline).await?;
    Ok(stored == artifact.sha256)
}

/// The claim of an object that was written just now.
fn fresh_claim(inner: &StoreInner, location: ArtifactLocation, version: Option<String>) -> Claim {
    object_claim(inner, location, inner.clock.now_ms(), version)
}

fn object_claim(
    inner: &StoreInner,
    location: ArtifactLocation,
    modified_ms: u64,
    version_id: Option<String>,
) -> Claim {
    let ArtifactLocation { artifact, area } = location;
    Claim {
        artifact,
        store: area.store_name(inner),
        // Stores without versions report the text "null".
        version_id: version_id.filter(|version| version != "null"),
        created_at_ms: inner.clock.now_ms(),
        expires_at_ms: area.expires_at_ms(inner, modified_ms),
    }
}
