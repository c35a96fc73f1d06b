//! Makes content visible under its finished key, exactly once and only when it is checked (messaging-reliability
//! K-4). The bytes are in memory with their digest, or at a staging key.
//!
//! Futures of requests are boxed where they are made, here and in the modules beside this one: the body of an async
//! function is compiled in each crate that polls it, and ten crates use the store.

use bytes::Bytes;
use dray_types::{Artifact, Claim, Deadline, Period, Sha256Digest, TenantId};
use futures_util::future::BoxFuture;

use crate::cache::{ArtifactLocation, ObjectArea};
use crate::checksum::{Crc64, ObjectChecksum};
use crate::error::PutError;
use crate::object::{self, ObjectCopy, ObjectHead};
use crate::pieces;
use crate::request::RequestError;
use crate::store::{ArtifactLabel, StoreInner};
use crate::upload::copy::copy_any_size;

/// Age from which an object that is claimed again gets a new lifetime, so that what is left of it outlives every
/// dead letter: 15 days less one are the 14 days of `DRAY_DEAD`.
const REFRESH_AGE: Period = Period::secs(24 * 60 * 60);

/// Stores bytes whose digest is computed here, without a staging key.
pub(crate) async fn put_known(
    inner: &StoreInner,
    tenant: &TenantId,
    bytes: Bytes,
    label: ArtifactLabel,
) -> Result<Claim, PutError> {
    let (digest, bytes) = pieces::digest_one(bytes).await;
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

/// Puts a body whose digest is known beforehand, if nothing is there; an object that is there already is adopted.
pub(crate) fn create_object(
    inner: &StoreInner,
    home: ArtifactLocation,
    body: Vec<Bytes>,
    deadline: Option<Deadline>,
) -> BoxFuture<'_, Result<Claim, PutError>> {
    Box::pin(async move {
        let key = home.key();
        let sum = ObjectChecksum::Sha256(home.artifact.sha256);
        // Shares the bytes. They are needed again only if the object exists.
        let pieces = body.clone();
        match object::put_object(inner, &key, body, sum, deadline).await {
            Ok(version) => Ok(fresh_claim(inner, home, version)),
            Err(RequestError::Exists) => {
                adopt_existing(inner, home, Some(Crc64::of(&pieces)), deadline).await
            }
            Err(error) => Err(error.into()),
        }
    })
}

/// Bytes at a staging key that are known to be those of an artifact.
#[derive(Clone, Debug)]
pub(crate) struct StagedArtifact<'a> {
    pub(crate) key: &'a str,
    /// Entity tag that the staged object must still have.
    pub(crate) tag: Option<String>,
    /// CRC-64/NVME of the bytes, where it was computed.
    pub(crate) crc64: Option<Crc64>,
}

/// Copies from a staging key inside the store. An object that is there already is adopted.
pub(crate) fn publish_staged<'a>(
    inner: &'a StoreInner,
    staged: StagedArtifact<'a>,
    home: ArtifactLocation,
    deadline: Option<Deadline>,
) -> BoxFuture<'a, Result<Claim, PutError>> {
    Box::pin(async move {
        let key = home.key();
        // Without conditional copies two writers may both copy, which leaves the same bytes.
        let create = inner.abilities().conditional_copy;
        if !create && object::head_object(inner, &key, deadline).await?.is_some() {
            return adopt_existing(inner, home, staged.crc64, deadline).await;
        }
        let copy = ObjectCopy {
            from: staged.key,
            to: &key,
            tag: staged.tag,
            create,
        };
        let size = home.artifact.size;
        match copy_any_size(inner, copy, size, staged.crc64, deadline).await {
            Ok(copied)
                if copied
                    // AWS computes it itself while it copies; a difference means that the staged bytes are wrong.
                    .sha256
                    .is_some_and(|sha256| sha256 != home.artifact.sha256) =>
            {
                Err(PutError::Corrupted)
            }
            Ok(copied) => Ok(fresh_claim(inner, home, copied.version)),
            Err(RequestError::Exists) => adopt_existing(inner, home, staged.crc64, deadline).await,
            Err(error) => Err(error.into()),
        }
    })
}

/// Adopts the object that was under the artifact's key before: makes sure that it is the artifact and that it lives
/// long enough (messaging-reliability K-4).
fn adopt_existing(
    inner: &StoreInner,
    home: ArtifactLocation,
    crc64: Option<Crc64>,
    deadline: Option<Deadline>,
) -> BoxFuture<'_, Result<Claim, PutError>> {
    Box::pin(async move {
        let key = home.key();
        // The other writer of two may have won without being visible yet; the caller can repeat.
        let head =
            object::head_object(inner, &key, deadline)
                .await?
                .ok_or(RequestError::Unwell {
                    status: 409,
                    code: "ConditionalRequestConflict".to_owned(),
                })?;
        if !is_same(inner, &key, &head, &home.artifact, crc64, deadline).await? {
            tracing::error!(key, size = head.size, "object is not what its key says");
            return Err(PutError::Conflict);
        }
        let now = inner.clock.now_ms();
        let is_young = now.saturating_sub(head.modified_ms) < REFRESH_AGE.as_millis();
        // An object of the cache never gets another lifetime.
        if is_young || home.area != ObjectArea::Kept {
            return Ok(object_claim(inner, home, head.modified_ms, head.version));
        }
        // The copy onto itself renews the lifetime, which counts from the last write. It is the one write without
        // `If-None-Match`, so the tag has to be the one that was looked at.
        let copy = ObjectCopy {
            from: &key,
            to: &key,
            tag: head.tag,
            create: false,
        };
        let copied = copy_any_size(inner, copy, head.size, head.crc64, deadline).await?;
        Ok(fresh_claim(inner, home, copied.version))
    })
}

/// Returns the claim of what is stored under the digest, or `None` when nothing is.
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
            // The key does not depend on the size, which the store then reports.
            size: 0,
            media_type: label.media_type,
            name: label.name,
        };
        let Some(head) = object::head_object(inner, &artifact.key(), None).await? else {
            return Ok(None);
        };
        artifact.size = head.size;
        let home = ArtifactLocation::finished_content(artifact);
        Ok(Some(object_claim(
            inner,
            home,
            head.modified_ms,
            head.version,
        )))
    })
}

/// Compares by what is known without reading, else by reading the object.
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
    // Objects that came in parts have no SHA-256 of the whole.
    if let Some(stored) = head.sha256 {
        return Ok(stored == artifact.sha256);
    }
    if let (Some(stored), Some(ours)) = (head.crc64, crc64) {
        return Ok(stored == ours);
    }
    let stored = object::read_digest(inner, key, head, deadline).await?;
    Ok(stored == artifact.sha256)
}

/// The claim of an object that was made just now.
fn fresh_claim(inner: &StoreInner, home: ArtifactLocation, version: Option<String>) -> Claim {
    object_claim(inner, home, inner.clock.now_ms(), version)
}

fn object_claim(
    inner: &StoreInner,
    home: ArtifactLocation,
    modified_ms: u64,
    version_id: Option<String>,
) -> Claim {
    let ArtifactLocation { artifact, area } = home;
    Claim {
        artifact,
        store: area.store(inner),
        // Stores without versions report the text "null".
        version_id: version_id.filter(|version| version != "null"),
        created_at_ms: inner.clock.now_ms(),
        expires_at_ms: area.ends(inner, modified_ms),
    }
}
