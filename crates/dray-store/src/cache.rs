//! The cache: copies that are needed for a while, such as files on their way from a sandbox to a chat.
//!
//! Like finished content, cached objects are named by tenant and digest (platform-delivery 12, R-16). Their keys also
//! have the slot, the five minutes in which they were stored: `cache/<slot>/<tenant>/<2 hex>/<64 hex>`. Equal content
//! of one slot is one object; in a later slot it is another object. So the lifetime of an object is never extended, and
//! a sweeper cannot remove an object to which a caller has just received a claim.
//!
//! The store only lists and removes. The service that tracks the users of an object decides whether it may be removed.

use std::fmt;

use dray_types::{Artifact, ByteSize, Claim, Deadline, Period, TenantId};

use crate::commit::{self, StagedArtifact};
use crate::error::{PutError, ReadError};
use crate::object;
use crate::reader;
use crate::request::RequestError;
use crate::store::{ArtifactLabel, Store, StoreInner};

/// First part of every key in the cache.
const CACHE_PREFIX: &str = "cache/";
/// Separates alias and slot in the store name of a claim. An alias contains no dot.
const ALIAS_SEPARATOR: &str = ".cache-";
/// Length of a slot; a claim for a cached object is given within this time.
const SLOT_LENGTH: Period = Period::secs(5 * 60);

/// The area of the bucket that contains an artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectArea {
    /// The object is under `cas/`, for as long as a dead letter may wait (K-6).
    Finished,
    /// The object is in the cache, under the slot in which it was stored.
    Cached(u64),
}

/// An artifact and its area of the bucket.
#[derive(Clone, Debug)]
pub(crate) struct ArtifactLocation {
    pub(crate) artifact: Artifact,
    pub(crate) area: ObjectArea,
}

/// An object under the prefix of the cache, as its key describes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CachedObject {
    /// Key of the object in the bucket.
    pub key: String,
    /// Size of the object in bytes.
    pub bytes: u64,
    /// Unix milliseconds from which no new claims for the object are given.
    pub closed_at_ms: u64,
}

impl ObjectArea {
    /// The cache in its present slot.
    pub(crate) fn cached(inner: &StoreInner) -> Self {
        Self::Cached(inner.clock.now_ms() / SLOT_LENGTH.as_millis())
    }

    /// Reads the area from a claim of this store; `None` for another store.
    pub(crate) fn of(inner: &StoreInner, claim: &Claim) -> Option<Self> {
        let rest = claim.store.strip_prefix(&inner.options.alias)?;
        if rest.is_empty() {
            return Some(Self::Finished);
        }
        parse_slot(rest.strip_prefix(ALIAS_SEPARATOR)?).map(Self::Cached)
    }

    /// The name of the store in claims for objects of this area.
    pub(crate) fn store_name(self, inner: &StoreInner) -> String {
        let alias = &inner.options.alias;
        match self {
            Self::Finished => alias.clone(),
            Self::Cached(slot) => format!("{alias}{ALIAS_SEPARATOR}{slot}"),
        }
    }

    /// The key of an artifact in this area.
    pub(crate) fn key(self, artifact: &Artifact) -> String {
        let object_key = artifact.key();
        match (self, object_key.strip_prefix("cas/")) {
            (Self::Cached(slot), Some(rest)) => format!("{CACHE_PREFIX}{slot}/{rest}"),
            _ => object_key,
        }
    }

    /// Unix milliseconds at which an object expires that was last written at `touched_ms`.
    pub(crate) fn expires_at_ms(self, inner: &StoreInner, touched_ms: u64) -> u64 {
        let (from, lifetime) = match self {
            Self::Finished => (touched_ms, inner.options.cas_lifetime),
            // The lifetime counts from the end of the slot: all objects of a slot expire together, however often they
            // are claimed.
            Self::Cached(slot) => (closed_at_ms(slot), inner.options.cache_lifetime),
        };
        from.saturating_add(lifetime.as_millis())
    }
}

impl ArtifactLocation {
    pub(crate) const fn finished_content(artifact: Artifact) -> Self {
        Self {
            artifact,
            area: ObjectArea::Finished,
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

/// Unix milliseconds at which a slot ends.
fn closed_at_ms(slot: u64) -> u64 {
    slot.saturating_add(1)
        .saturating_mul(SLOT_LENGTH.as_millis())
}

/// Reads a slot as it is written: digits alone, without leading zeros.
fn parse_slot(text: &str) -> Option<u64> {
    let slot: u64 = text.parse().ok()?;
    // Each slot has one spelling, so that the key that the sweeper lists is the key that claims refer to.
    (slot.to_string() == text).then_some(slot)
}

/// Returns the key of a claim's object when it is in the cache, in any store; `None` for finished content.
pub fn cache_key(claim: &Claim) -> Option<String> {
    let (_, digits) = claim.store.rsplit_once(ALIAS_SEPARATOR)?;
    Some(ObjectArea::Cached(parse_slot(digits)?).key(&claim.artifact))
}

impl Store {
    /// How long an object of the cache is kept after its last use.
    pub fn cache_lifetime(&self) -> Period {
        self.inner.options.cache_lifetime
    }

    /// Most bytes that the cache should hold.
    pub fn cache_size(&self) -> ByteSize {
        self.inner.options.cache_size
    }

    /// Lists all objects in the cache.
    ///
    /// The list is as long as the cache; it is read page by page.
    ///
    /// # Errors
    /// The store could not be reached, so the content of the cache is unknown.
    pub async fn cached(&self) -> Result<Vec<CachedObject>, RequestError> {
        let mut objects = Vec::new();
        let mut continuation = None;
        loop {
            let page = object::list_page(&self.inner, CACHE_PREFIX, continuation).await?;
            for object in page.contents() {
                let Some(key) = object.key() else { continue };
                let bytes = u64::try_from(object.size().unwrap_or_default()).unwrap_or_default();
                objects.extend(read_key(key, bytes));
            }
            continuation = page.next_continuation_token().map(str::to_owned);
            if continuation.is_none() {
                return Ok(objects);
            }
        }
    }

    /// Removes an object of the cache. A missing object is not an error.
    ///
    /// # Errors
    /// The store could not be reached; the object may or may not be deleted.
    pub async fn evict(&self, object: &CachedObject) -> Result<(), RequestError> {
        // This guards the prefix: a wrong key must never remove finished content.
        if !object.key.starts_with(CACHE_PREFIX) {
            return Ok(());
        }
        object::delete_object(&self.inner, &object.key, None).await
    }

    /// Copies the cached content of a claim to finished content, inside the store, and returns the claim for the copy.
    /// A claim for finished content is returned unchanged.
    ///
    /// # Errors
    /// The claim belongs to another tenant or store, the object is missing or different, or the store failed.
    pub async fn keep(
        &self,
        tenant: &TenantId,
        claim: &Claim,
        deadline: Deadline,
    ) -> Result<Claim, ReadError> {
        let inner = &self.inner;
        let area = reader::check_claim(inner, tenant, claim)?;
        if area == ObjectArea::Finished {
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
            // The copy is made only of the object whose size was just compared.
            tag: head.tag,
            crc64: head.crc64,
        };
        let label = ArtifactLabel::new(artifact.media_type.as_str(), artifact.name.as_str());
        let artifact = commit::new_artifact(tenant, artifact.sha256, artifact.size, label);
        let published = commit::publish_staged(
            inner,
            staged,
            ArtifactLocation::finished_content(artifact),
            Some(deadline),
        )
        .await;
        published.map_err(|error| match error {
            // The sweeper removed it meanwhile.
            PutError::Request(RequestError::Missing) => ReadError::Missing,
            PutError::Request(error) => ReadError::Request(error),
            _ => ReadError::Mismatch("copy"),
        })
    }
}

/// Reads an object by its key; `None` for a key in another form.
fn read_key(key: &str, bytes: u64) -> Option<CachedObject> {
    let (digits, rest) = key.strip_prefix(CACHE_PREFIX)?.split_once('/')?;
    let slot = parse_slot(digits)?;
    // Below the slot a key has the same form as under `cas/`.
    let hex = rest.rsplit('/').next()?;
    (rest.split('/').count() == 3 && hex.len() == 64).then(|| CachedObject {
        key: key.to_owned(),
        bytes,
        closed_at_ms: closed_at_ms(slot),
    })
}
