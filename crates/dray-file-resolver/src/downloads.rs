//! Files that were loaded a moment ago, and loads that are under way: callers that ask for the same file under the
//! same conditions share one load (single-flight; quickapps 31, agent-file-context R-8).
//!
//! An entry holds the place of the bytes: a claim, or the bytes themselves while they fit a message. Entries end
//! after a fixed time, the least recently used ones earlier when there are too many. Failures are not kept. An entry
//! belongs to one [`DownloadKey`]: another tenant, conversation, policy, credential or limit is checked and loaded by
//! itself.
//!
//! The index is in memory: replicas do not share it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prost::Message as _;
use tokio::sync::OnceCell;

use dray_bus::Meta;
use dray_proto::convert::ContentSource;
use dray_proto::v1;
use dray_types::{AppId, ByteSize, Clock, Period, SessionId, Sha256Digest, TenantId};

use crate::dial::CallerCredentials;
use crate::loader::LoadedFile;
use dray_dial::origin::LoadTarget;

/// Most bytes of small files that one index holds.
const MAX_INLINE_BYTES: usize = 32 << 20;

/// The calls that share a load.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DownloadScope {
    /// One call alone, which shares nothing.
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
    /// Digest of what decides whether the caller may have the file: DIAL credentials, or the policy of the app.
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
            // Hashed, so that no credential stays in memory as part of an index.
            authority: *Sha256Digest::of(&material).as_bytes(),
        }
    }
}

/// Bounds on what is kept, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct DownloadLimits {
    /// Time from the end of a load; zero keeps nothing.
    pub lifetime: Period,
    /// Most entries; beyond, the least recently used ones go.
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
}

#[derive(Debug, Default)]
struct DownloadMap {
    entries: HashMap<DownloadKey, DownloadEntry>,
    /// Counts lookups, so that the least recently used entry is known.
    lookups: u64,
}

#[derive(Debug)]
struct DownloadEntry {
    cell: Arc<OnceCell<KeptDownload>>,
    used: u64,
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

impl DownloadIndex {
    /// Starts with an empty index.
    pub fn new(clock: Clock, limits: DownloadLimits) -> Self {
        Self(Arc::new(DownloadIndexInner {
            clock,
            limits,
            index: Mutex::default(),
        }))
    }

    /// Returns whether anything is kept.
    pub fn is_on(&self) -> bool {
        self.0.limits.lifetime > Period::default()
    }

    /// Returns what was loaded under this key, or the result of `load`. Callers with the same key wait for one load;
    /// when it fails or its caller goes away, the next one loads.
    ///
    /// # Errors
    ///
    /// Those of `load`.
    pub async fn get_or_load<E>(
        &self,
        key: DownloadKey,
        load: impl Future<Output = Result<LoadedFile, E>>,
    ) -> Result<LoadedFile, E> {
        let cell = self.cell(key);
        let kept = cell
            // A failed or dropped initialiser leaves the cell empty, and wakes the next waiter to try.
            .get_or_try_init(async || {
                let loaded = load.await?;
                let lifetime = self.0.limits.lifetime.as_millis();
                let ends_at_ms = self.0.clock.now_ms().saturating_add(lifetime);
                Ok(KeptDownload { loaded, ends_at_ms })
            })
            .await?;
        let loaded = kept.loaded.clone();
        self.evict();
        Ok(loaded)
    }

    /// Removes a load whose bytes are gone.
    pub fn forget(&self, key: &DownloadKey) {
        self.lock().entries.remove(key);
    }

    fn cell(&self, key: DownloadKey) -> Arc<OnceCell<KeptDownload>> {
        let now = self.0.clock.now_ms();
        let mut index = self.lock();
        index.lookups += 1;
        let used = index.lookups;
        let entry = index.entries.entry(key).or_insert_with(|| DownloadEntry {
            cell: Arc::default(),
            used,
        });
        entry.used = used;
        // A new cell: callers that hold the old one still get the file that they waited for.
        if entry.cell.get().is_some_and(|kept| kept.ends_at_ms <= now) {
            entry.cell = Arc::default();
        }
        Arc::clone(&entry.cell)
    }

    /// Drops what has ended or failed, then the least recently used loads above the limits. Loads under way stay.
    fn evict(&self) {
        let now = self.0.clock.now_ms();
        let mut index = self.lock();
        index.entries.retain(|_, entry| match entry.cell.get() {
            Some(kept) => kept.ends_at_ms > now,
            // A second owner is a caller that loads or waits.
            None => Arc::strong_count(&entry.cell) > 1,
        });
        let mut kept: Vec<_> = index
            .entries
            .iter()
            .filter_map(|(key, entry)| Some((entry.used, entry.cell.get()?.inline_bytes(), key)))
            .collect();
        kept.sort_unstable_by_key(|(used, ..)| *used);
        let mut bytes: usize = kept.iter().map(|(_, bytes, _)| bytes).sum();
        let mut count = kept.len();
        let mut dropped = Vec::new();
        for (_, size, key) in kept {
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use bytes::Bytes;
    use dray_types::Secret;

    use super::*;

    fn downloads(max_entries: usize) -> DownloadIndex {
        let limits = DownloadLimits {
            lifetime: Period::secs(60),
            max_entries,
        };
        DownloadIndex::new(Clock::system(), limits)
    }

    fn key(tenant: &str, url: &str, policy: Option<&v1::AppPolicy>) -> DownloadKey {
        DownloadKey::new(
            TenantId::new(tenant).unwrap(),
            DownloadScope::Request("r".to_owned()),
            LoadTarget::External(url.to_owned()),
            ByteSize::mib(1),
            (&CallerCredentials::default(), policy),
        )
    }

    fn loaded(bytes: &'static [u8]) -> LoadedFile {
        LoadedFile {
            content: ContentSource::Inline(Bytes::from_static(bytes)),
            size: bytes.len() as u64,
            sha256: Sha256Digest::of(bytes),
            media_type: String::new(),
        }
    }

    /// Loads under a key and returns the number of loads so far.
    async fn load(downloads: &DownloadIndex, key: DownloadKey, count: &AtomicU32) {
        let load = async {
            tokio::task::yield_now().await;
            count.fetch_add(1, Ordering::SeqCst);
            Ok::<_, ()>(loaded(b""))
        };
        downloads.get_or_load(key, load).await.unwrap();
    }

    #[tokio::test]
    async fn concurrent_and_later_callers_share_one_load_of_an_empty_file() {
        let (downloads, count) = (downloads(9), AtomicU32::new(0));
        let same = || load(&downloads, key("a", "u", None), &count);
        tokio::join!(same(), same(), same());
        same().await;
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn another_tenant_url_policy_limit_or_credential_loads_by_itself() {
        let (downloads, count) = (downloads(99), AtomicU32::new(0));
        let denied = v1::AppPolicy {
            enabled: Some(false),
            ..v1::AppPolicy::default()
        };
        let dial = |secret: &str| {
            let credentials = CallerCredentials {
                api_key: Secret::new(secret),
                ..CallerCredentials::default()
            };
            let path = dray_dial::FileUrl::parse("files/b/a").unwrap();
            DownloadKey {
                limit: ByteSize::mib(2),
                ..DownloadKey::new(
                    TenantId::new("a").unwrap(),
                    DownloadScope::Request("r".to_owned()),
                    LoadTarget::Dial(path),
                    ByteSize::mib(1),
                    (&credentials, None),
                )
            }
        };
        let keys = [
            key("a", "u", None),
            key("b", "u", None),
            key("a", "v", None),
            key("a", "u", Some(&denied)),
            DownloadKey {
                limit: ByteSize::mib(2),
                ..key("a", "u", None)
            },
            dial("one"),
            dial("two"),
        ];
        let expected = u32::try_from(keys.len()).unwrap();
        for _ in 0..2 {
            for key in keys.clone() {
                load(&downloads, key, &count).await;
            }
        }
        assert_eq!(count.load(Ordering::SeqCst), expected);
    }

    #[tokio::test]
    async fn a_failure_is_not_kept_and_the_next_caller_loads() {
        let (downloads, count) = (downloads(9), AtomicU32::new(0));
        let failed = downloads
            .get_or_load(key("a", "u", None), async { Err::<LoadedFile, _>("no") })
            .await;
        assert_eq!(failed, Err("no"));
        load(&downloads, key("a", "u", None), &count).await;
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn the_least_recently_used_load_goes_first_and_the_index_stays_bounded() {
        let (downloads, count) = (downloads(2), AtomicU32::new(0));
        for url in ["1", "2", "1", "3", "1"] {
            load(&downloads, key("a", url, None), &count).await;
        }
        assert_eq!(
            count.load(Ordering::SeqCst),
            3,
            "1 was used last and stayed"
        );
        load(&downloads, key("a", "2", None), &count).await;
        assert_eq!(count.load(Ordering::SeqCst), 4);
        assert_eq!(downloads.lock().entries.len(), 2);
    }

    #[tokio::test]
    async fn a_load_ends_with_its_lifetime_or_when_it_is_forgotten() {
        let clock = Clock::manual(1_000);
        let limits = DownloadLimits {
            lifetime: Period::secs(60),
            max_entries: 9,
        };
        let (downloads, count) = (DownloadIndex::new(clock.clone(), limits), AtomicU32::new(0));
        load(&downloads, key("a", "u", None), &count).await;
        clock.advance(std::time::Duration::from_secs(59));
        load(&downloads, key("a", "u", None), &count).await;
        assert_eq!(count.load(Ordering::SeqCst), 1);
        clock.advance(std::time::Duration::from_secs(1));
        load(&downloads, key("a", "u", None), &count).await;
        assert_eq!(count.load(Ordering::SeqCst), 2);
        downloads.forget(&key("a", "u", None));
        load(&downloads, key("a", "u", None), &count).await;
        assert_eq!(count.load(Ordering::SeqCst), 3);
    }
}
