//! The cache: copies that are needed for a while, such as files on their way from a sandbox to a chat.
//!
//! Like finished content they are named by tenant and digest (platform-delivery 12, R-16), but they stand under the
//! five minutes in which they were stored: `cache/<slot>/<tenant>/<2 hex>/<64 hex>`. Within its slot the same content
//! is one object; later it is another one. So an object is never made young again, and a sweeper that removes an old
//! one cannot meet a caller that has just been given a claim for it.
//!
//! The store only lists and removes. What may be removed is decided where it is known who needs it.

use std::fmt;

use dray_types::{Artifact, ByteSize, Claim, Deadline, Period, TenantId};

use crate::commit::{self, StagedArtifact};
use crate::error::{PutError, ReadError};
use crate::object;
use crate::reader;
use crate::request::RequestError;
use crate::store::{ArtifactLabel, Store, StoreInner};

/// First part of every key.
const CACHE_PREFIX: &str = "cache/";
/// Between the alias and the slot in the store's name of a claim. No alias has a dot.
const ALIAS_SEPARATOR: &str = ".cache-";
/// Length of a slot.
const SLOT_LENGTH: Period = Period::secs(5 * 60);

/// Where an object of finished content stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectArea {
    /// Under `cas/`, for as long as a dead letter may wait.
    Kept,
    /// In the cache, since this slot.
    Cached(u64),
}

/// An artifact and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct ArtifactLocation {
    pub(crate) artifact: Artifact,
    pub(crate) area: ObjectArea,
}

/// An object of the cache.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CachedObject {
    /// Its key in the bucket.
    pub key: String,
    /// Bytes.
    pub bytes: u64,
    /// Unix milliseconds from which no new claims for it are given.
    pub closed_at_ms: u64,
}

impl ObjectArea {
    /// The cache's slot of this moment.
    pub(crate) fn cached(inner: &StoreInner) -> Self {
        Self::Cached(inner.clock.now_ms() / SLOT_LENGTH.as_millis())
    }

    /// Where a claim of this store says that its object is; `None` for another store.
    pub(crate) fn of(inner: &StoreInner, claim: &Claim) -> Option<Self> {
        let rest = claim.store.strip_prefix(&inner.options.alias)?;
        if rest.is_empty() {
            return Some(Self::Kept);
        }
        parse_slot(rest.strip_prefix(ALIAS_SEPARATOR)?).map(Self::Cached)
    }

    /// The store's name in claims.
    pub(crate) fn store(self, inner: &StoreInner) -> String {
        let alias = &inner.options.alias;
        match self {
            Self::Kept => alias.clone(),
            Self::Cached(slot) => format!("{alias}{ALIAS_SEPARATOR}{slot}"),
        }
    }

    /// The key of an artifact.
    pub(crate) fn key(self, artifact: &Artifact) -> String {
        let kept = artifact.key();
        match (self, kept.strip_prefix("cas/")) {
            (Self::Cached(slot), Some(rest)) => format!("{CACHE_PREFIX}{slot}/{rest}"),
            _ => kept,
        }
    }

    /// When an object ends that was last touched then.
    pub(crate) fn ends(self, inner: &StoreInner, touched_ms: u64) -> u64 {
        let (from, lifetime) = match self {
            Self::Kept => (touched_ms, inner.options.cas_lifetime),
            Self::Cached(slot) => (closed_at_ms(slot), inner.options.cache_lifetime),
        };
        from.saturating_add(lifetime.as_millis())
    }
}

impl ArtifactLocation {
    pub(crate) const fn kept(artifact: Artifact) -> Self {
        Self {
            artifact,
            area: ObjectArea::Kept,
        }
    }

    pub(crate) fn key(&self) -> String {
        self.area.key(&self.artifact)
    }
}

impl fmt::Display for CachedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)
    }
}

/// The end of a slot.
fn closed_at_ms(slot: u64) -> u64 {
    slot.saturating_add(1)
        .saturating_mul(SLOT_LENGTH.as_millis())
}

/// A slot as it is written: digits only, no zero before them.
fn parse_slot(text: &str) -> Option<u64> {
    let slot: u64 = text.parse().ok()?;
    (slot.to_string() == text).then_some(slot)
}

/// The key of a claim's object when it is in the cache, in any store; `None` for kept content.
pub fn cache_key(claim: &Claim) -> Option<String> {
    let (_, digits) = claim.store.rsplit_once(ALIAS_SEPARATOR)?;
    Some(ObjectArea::Cached(parse_slot(digits)?).key(&claim.artifact))
}

impl Store {
    /// How long what is in the cache is kept after its last use.
    pub fn cache_lifetime(&self) -> Period {
        self.inner.options.cache_lifetime
    }

    /// Most bytes that the cache is to hold.
    pub fn cache_size(&self) -> ByteSize {
        self.inner.options.cache_size
    }

    /// Everything in the cache.
    ///
    /// # Errors
    /// The store cannot be asked. Nothing is known then.
    pub async fn cached(&self) -> Result<Vec<CachedObject>, RequestError> {
        let inner = &self.inner;
        let mut found = Vec::new();
        let mut continuation = None;
        loop {
            let request = inner
                .clients
                .inside
                .list_objects_v2()
                .bucket(&inner.options.bucket)
                .prefix(CACHE_PREFIX)
                .set_continuation_token(continuation)
                .send();
            let page = inner.request(None, Box::pin(request)).await?;
            for object in page.contents() {
                let Some(key) = object.key() else { continue };
                let bytes = u64::try_from(object.size().unwrap_or_default()).unwrap_or_default();
                found.extend(read_key(key, bytes));
            }
            continuation = page.next_continuation_token().map(str::to_owned);
            if continuation.is_none() {
                return Ok(found);
            }
        }
    }

    /// Removes an object of the cache. A missing object is not an error.
    ///
    /// # Errors
    /// The store cannot be asked; the object may be gone or not.
    pub async fn evict(&self, object: &CachedObject) -> Result<(), RequestError> {
        // Nothing else is ever removed, even with a wrong key.
        if !object.key.starts_with(CACHE_PREFIX) {
            return Ok(());
        }
        object::delete_object(&self.inner, &object.key, None).await
    }

    /// The claim's content for longer than the cache has it: copied inside the store to where finished content is kept.
    /// A claim for kept content stays as it is.
    ///
    /// # Errors
    /// A claim of another tenant or store, an object that is gone or another one, or the store.
    pub async fn keep(
        &self,
        tenant: &TenantId,
        claim: &Claim,
        deadline: Deadline,
    ) -> Result<Claim, ReadError> {
        let inner = &self.inner;
        let area = reader::check_claim(inner, tenant, claim)?;
        if area == ObjectArea::Kept {
            return Ok(claim.clone());
        }
        let artifact = &claim.artifact;
        let key = area.key(artifact);
        let head = object::head_object(inner, &key, Some(deadline)).await?;
        let head = head.ok_or(ReadError::Missing)?;
        if head.size != artifact.size {
            return Err(ReadError::Mismatch("length"));
        }
        let staged = StagedArtifact {
            key: &key,
            tag: head.tag,
            crc64: head.crc64,
        };
        let label = ArtifactLabel::new(artifact.media_type.as_str(), artifact.name.as_str());
        let artifact = commit::new_artifact(tenant, artifact.sha256, artifact.size, label);
        let kept = commit::publish_staged(
            inner,
            staged,
            ArtifactLocation::kept(artifact),
            Some(deadline),
        )
        .await;
        kept.map_err(|error| match error {
            // It was removed meanwhile.
            PutError::Request(RequestError::Missing) => ReadError::Missing,
            PutError::Request(error) => ReadError::Request(error),
            _ => ReadError::Mismatch("copy"),
        })
    }
}

/// An object by its key; `None` for what this crate did not put there.
fn read_key(key: &str, bytes: u64) -> Option<CachedObject> {
    let (digits, rest) = key.strip_prefix(CACHE_PREFIX)?.split_once('/')?;
    let slot = parse_slot(digits)?;
    let hex = rest.rsplit('/').next()?;
    (rest.split('/').count() == 3 && hex.len() == 64).then(|| CachedObject {
        key: key.to_owned(),
        bytes,
        closed_at_ms: closed_at_ms(slot),
    })
}
