//! Files that were recently loaded, and running loads: callers that request the same file under the same conditions
//! share one load (single-flight; quickapps 31, agent-file-context R-8).
//!
//! An entry has a reference to the bytes: a claim, or the bytes themselves if they fit a message. Entries expire after
//! a fixed time; if there are too many, the least recently used ones are removed earlier. Failures are not stored. An
//! entry belongs to one [`DownloadKey`]: another tenant, conversation, policy, credential or limit is checked and
//! loaded by itself.
//!
//! The index is in memory. Replicas share downloads from outside through [`SharedDownloads`].

mod shared;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prost::Message as _;
use tokio::sync::OnceCell;

use dray_bus::Meta;
use dray_proto::convert::ContentSource;
use dray_proto::v1;
use dray_types::{AppId, ByteSize, Clock, Period, SessionId, Sha256Digest, TenantId};

pub use self::shared::SharedDownloads;
use crate::dial::CallerCredentials;
use crate::loader::LoadedFile;
use dray_dial::origin::LoadTarget;

/// Most bytes of small files in one index.
const MAX_INLINE_BYTES: usize = 32 << 20;

/// The calls that share a load.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DownloadScope {
    /// One call alone, without sharing.
    Call,
    /// All calls of one request of an agent, by its name.
    Request(String),
    /// All calls of one conversation with one app.
    Conversation(Option<SessionId>, Option<AppId>),
}

impl DownloadScope {
    /// The conversation and app of a call.
    pub fn of_conversation(meta: &Meta) -> Self {
        Self::Conversation(meta.session.clone(), meta.app.clone())
    }
}

/// The conditions that have to be equal so that one load serves two callers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DownloadKey {
    tenant: TenantId,
    scope: DownloadScope,
    target: LoadTarget,
    limit: ByteSize,
    /// Digest of the data that determines whether the caller may get the file: DIAL credentials, or the policy of the
    /// app.
    authority: [u8; 32],
}

impl DownloadKey {
    /// The key of a file for one caller.
    pub fn new(
        tenant: TenantId,
        scope: DownloadScope,
        target: LoadTarget,
        limit: ByteSize,
        (credentials, policy): (&CallerCredentials, Option<&v1::AppPolicy>),
    ) -> Self {
        let material = match &target {
            LoadTarget::Dial(_) => v1::DialCredentials {
                api_key: credentials.api_key.expose().to_owned(),
                authorization: credentials.authorization.expose().to_owned(),
            }
            .encode_to_vec(),
            // An absent policy and an empty one encode to the same bytes, and mean the same.
            LoadTarget::External(_) => policy.map(v1::AppPolicy::encode_to_vec).unwrap_or_default(),
        };
        Self {
            tenant,
            scope,
            target,
            limit,
            // The material is hashed, so that no credential stays in memory as part of an index.
            authority: *Sha256Digest::of(&material).as_bytes(),
        }
    }

    /// Returns whether replicas may share the download. DIAL checks permissions per caller, so files of DIAL stay in
    /// the process that loaded them. Files that a call loads for itself are not shared.
    fn is_shared(&self) -> bool {
        matches!(self.target, LoadTarget::External(_)) && self.scope != DownloadScope::Call
    }
}

/// The limits on the index.
#[derive(Clone, Copy, Debug)]
pub struct DownloadLimits {
    /// Time from the end of a load; zero disables the index.
    pub lifetime: Period,
    /// Most entries; beyond that the least recently used ones are removed.
    pub max_entries: usize,
}

/// An index of loads in this process. Clones share it.
#[derive(Clone, Debug)]
pub struct DownloadIndex(Arc<DownloadIndexInner>);

#[derive(Debug)]
struct DownloadIndexInner {
    clock: Clock,
    limits: DownloadLimits,
    index: Mutex<DownloadMap>,
    shared: Option<SharedDownloads>,
}

#[derive(Debug, Default)]
struct DownloadMap {
    entries: HashMap<DownloadKey, DownloadEntry>,
    /// Counts lookups, to find the least recently used entry.
    lookups: u64,
}

#[derive(Debug)]
struct DownloadEntry {
    cell: Arc<OnceCell<KeptDownload>>,
    /// Number of the last lookup that found it.
    last_used: u64,
}

#[derive(Clone, Debug)]
struct KeptDownload {
    loaded: LoadedFile,
    ends_at_ms: u64,
}

impl KeptDownload {
    fn inline_bytes(&self) -> usize {
        match &self.loaded.content {
            ContentSource::Inline(bytes) => bytes.len(),
            ContentSource::Claim(_) => 0,
        }
    }
}

/// The entry of a running call. Dropping it removes the entry if the load failed or was dropped and no other caller
/// waits for it.
struct UsedEntry<'a> {
    index: &'a DownloadIndex,
    key: &'a DownloadKey,
    cell: Arc<OnceCell<KeptDownload>>,
}

impl Drop for UsedEntry<'_> {
    fn drop(&mut self) {
        let mut index = self.index.lock();
        // The reference ends while the index is locked, so that the last of several callers is the last owner.
        drop(std::mem::take(&mut self.cell));
        let is_unused = |entry: &DownloadEntry| {
            entry.cell.get().is_none() && Arc::strong_count(&entry.cell) == 1
        };
        if index.entries.get(self.key).is_some_and(is_unused) {
            index.entries.remove(self.key);
        }
    }
}

impl DownloadIndex {
    /// Starts with an empty index of this process alone.
    pub fn new(clock: Clock, limits: DownloadLimits) -> Self {
        Self::shared_with(clock, limits, None)
    }

    /// Creates an empty index that also finds downloads of other replicas.
    pub fn shared_with(
        clock: Clock,
        limits: DownloadLimits,
        shared: Option<SharedDownloads>,
    ) -> Self {
        Self(Arc::new(DownloadIndexInner {
            clock,
            limits,
            index: Mutex::default(),
            shared,
        }))
    }

    /// Returns whether downloads are kept; a lifetime of zero disables that.
    pub fn is_enabled(&self) -> bool {
        self.0.limits.lifetime > Period::default()
    }

    /// Returns the file that was loaded under this key, or the result of `load`. Callers with the same key wait for one
    /// load; if it fails or its caller is dropped, the next caller loads the file.
    ///
    /// # Errors
    ///
    /// The errors of `load`.
    pub async fn get_or_load<E>(
        &self,
        key: DownloadKey,
        load: impl Future<Output = Result<LoadedFile, E>>,
    ) -> Result<LoadedFile, E> {
        let shared = self.0.shared.as_ref().filter(|_| key.is_shared());
        let used = UsedEntry {
            index: self,
            key: &key,
            cell: self.cell(key.clone()),
        };
        let entry = used
            .cell
            // A failed or dropped initialiser leaves the cell empty, and wakes the next waiter to try.
            .get_or_try_init(async || {
                if let Some(found) = self.find_shared(shared, &key).await {
                    return Ok(found);
                }
                let loaded = load.await?;
                if let Some(shared) = shared {
                    shared.record(&key, &loaded).await;
                }
                let lifetime = self.0.limits.lifetime.as_millis();
                let ends_at_ms = self.0.clock.now_ms().saturating_add(lifetime);
                Ok(KeptDownload { loaded, ends_at_ms })
            })
            .await?;
        let loaded = entry.loaded.clone();
        self.evict();
        Ok(loaded)
    }

    /// Returns the download of another replica, for the remainder of its lifetime.
    async fn find_shared(
        &self,
        shared: Option<&SharedDownloads>,
        key: &DownloadKey,
    ) -> Option<KeptDownload> {
        let found = shared?.find(key).await?;
        let ends_at_ms = found
            .recorded_at_ms
            .saturating_add(self.0.limits.lifetime.as_millis());
        (ends_at_ms > self.0.clock.now_ms()).then_some(KeptDownload {
            loaded: found.loaded,
            ends_at_ms,
        })
    }

    /// Removes a load whose bytes were deleted.
    pub async fn forget(&self, key: &DownloadKey) {
        self.lock().entries.remove(key);
        if let Some(shared) = self.0.shared.as_ref().filter(|_| key.is_shared()) {
            shared.forget(key).await;
        }
    }

    fn cell(&self, key: DownloadKey) -> Arc<OnceCell<KeptDownload>> {
        let now = self.0.clock.now_ms();
        let mut index = self.lock();
        index.lookups += 1;
        let last_used = index.lookups;
        let entry = index.entries.entry(key).or_insert_with(|| DownloadEntry {
            cell: Arc::default(),
            last_used,
        });
        entry.last_used = last_used;
        // A new cell replaces an expired one. Callers with the old cell still get the file for which they waited.
        if entry.cell.get().is_some_and(|kept| kept.ends_at_ms <= now) {
            entry.cell = Arc::default();
        }
        Arc::clone(&entry.cell)
    }

    /// Removes expired and failed loads, then the least recently used ones above the limits. Running loads are kept.
    fn evict(&self) {
        let now = self.0.clock.now_ms();
        let mut index = self.lock();
        index.entries.retain(|_, entry| match entry.cell.get() {
            Some(entry) => entry.ends_at_ms > now,
            // A second owner is a caller that loads or waits.
            None => Arc::strong_count(&entry.cell) > 1,
        });
        let mut entries: Vec<_> = index
            .entries
            .iter()
            .filter_map(|(key, entry)| {
                Some((entry.last_used, entry.cell.get()?.inline_bytes(), key))
            })
            .collect();
        entries.sort_unstable_by_key(|(last_used, ..)| *last_used);
        let mut bytes: usize = entries.iter().map(|(_, bytes, _)| bytes).sum();
        let mut count = entries.len();
        let mut dropped = Vec::new();
        for (_, size, key) in entries {
            if count <= self.0.limits.max_entries && bytes <= MAX_INLINE_BYTES {
                break;
            }
            count -= 1;
            bytes -= size;
            dropped.push(key.clone());
        }
        for key in dropped {
            index.entries.remove(&key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, DownloadMap> {
        self.0.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
