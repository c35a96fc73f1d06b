//! Downloads that the replicas of a service share. The key-value store of the bus has the claim of each downloaded
//! file, under a digest of the conditions of the download.
//!
//! It is a cache: every failure is a miss, and the file is downloaded again. Two replicas may concurrently download the
//! same file; only later downloads use the entry.

use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;

use dray_bus::{Bus, KeyError, KeyValue};
use dray_proto::convert::ContentSource;
use dray_proto::v1;
use dray_store::{ArtifactLabel, Store};
use dray_types::{AppId, Claim, OperationId, SessionId, Sha256Digest};

use super::{DownloadKey, DownloadScope};
use crate::loader::LoadedFile;
use crate::reading::CONVERSION_BUCKET;
use dray_dial::origin::LoadTarget;

/// Longest time that a load waits for the entry of another replica, or to record its own.
const SHARE_TIMEOUT: Duration = Duration::from_secs(2);

/// The entries of all replicas. They are in the bucket of conversions, which drops the oldest when it is full.
#[derive(Clone, Debug)]
pub struct SharedDownloads {
    entries: KeyValue,
    store: Store,
}

/// A download that another replica recorded.
#[derive(Debug)]
pub(super) struct FoundDownload {
    pub(super) loaded: LoadedFile,
    pub(super) recorded_at_ms: u64,
}

impl SharedDownloads {
    /// Shares through this bus and this store.
    pub fn new(bus: &Bus, store: &Store) -> Self {
        Self {
            entries: bus.key_value(CONVERSION_BUCKET),
            store: store.clone(),
        }
    }

    /// Like [`Self::new`], or `None` for a bus inside this process, for which the index in memory is enough.
    pub fn between_processes(bus: &Bus, store: &Store) -> Option<Self> {
        (!bus.is_in_process()).then(|| Self::new(bus, store))
    }

    pub(super) async fn find(&self, key: &DownloadKey) -> Option<FoundDownload> {
        let key_name = entry_key(key);
        let entry = tokio::time::timeout(SHARE_TIMEOUT, self.entries.get(&key_name));
        let entry = entry.await.ok()?.ok()??;
        let claim = Claim::try_from(v1::Claim::decode(entry.value).ok()?).ok()?;
        let artifact = &claim.artifact;
        Some(FoundDownload {
            loaded: LoadedFile {
                size: artifact.size,
                sha256: artifact.sha256,
                media_type: artifact.media_type.clone(),
                content: ContentSource::Claim(claim),
            },
            recorded_at_ms: entry.time_ms,
        })
    }

    pub(super) async fn record(&self, key: &DownloadKey, loaded: &LoadedFile) {
        let recorded = tokio::time::timeout(SHARE_TIMEOUT, self.try_record(key, loaded)).await;
        if let Ok(Err(error)) = recorded {
            tracing::debug!(%error, "could not share a download");
        }
    }

    async fn try_record(&self, key: &DownloadKey, loaded: &LoadedFile) -> Result<(), KeyError> {
        let claim = match &loaded.content {
            ContentSource::Claim(claim) => claim.clone(),
            // A value is smaller than the inline content of a message, so the bytes are stored in the object store.
            ContentSource::Inline(bytes) => {
                let label = ArtifactLabel::new(loaded.media_type.as_str(), "");
                let operation = OperationId::mint();
                let stored = self
                    .store
                    .put(&key.tenant, &operation, bytes.clone(), label)
                    .await;
                match stored {
                    Ok(claim) => claim,
                    Err(error) => {
                        tracing::debug!(%error, "could not share a download");
                        return Ok(());
                    }
                }
            }
        };
        let value = Bytes::from(v1::Claim::from(claim).encode_to_vec());
        // An existing entry is replaced, because it has expired, or its object was deleted.
        let written = self.entries.create_or_update(&entry_key(key), value).await;
        written.map(drop)
    }

    pub(super) async fn forget(&self, key: &DownloadKey) {
        let key_name = entry_key(key);
        let deleted = tokio::time::timeout(SHARE_TIMEOUT, async {
            match self.entries.get(&key_name).await? {
                Some(entry) => self.entries.delete(&key_name, entry.revision).await,
                None => Ok(()),
            }
        });
        if let Ok(Err(error)) = deleted.await {
            tracing::debug!(%error, "could not remove the record of a download whose bytes were deleted");
        }
    }
}

/// The key of a download: the tenant, and a digest of everything that has to be equal.
fn entry_key(key: &DownloadKey) -> String {
    let mut material = Vec::new();
    // Each part is prefixed with its length, so that different lists of parts always result in different bytes.
    let mut add = |part: &[u8]| {
        material.extend_from_slice(&(part.len() as u64).to_be_bytes());
        material.extend_from_slice(part);
    };
    match &key.scope {
        DownloadScope::Call => add(b"call"),
        DownloadScope::Request(name) => {
            add(b"request");
            add(name.as_bytes());
        }
        DownloadScope::Conversation(session, app) => {
            add(b"conversation");
            for part in [
                session.as_ref().map(SessionId::as_str),
                app.as_ref().map(AppId::as_str),
            ] {
                add(&[u8::from(part.is_some())]);
                add(part.unwrap_or_default().as_bytes());
            }
        }
    }
    match &key.target {
        LoadTarget::Dial(path) => {
            add(b"dial");
            add(path.as_str().as_bytes());
        }
        LoadTarget::External(url) => {
            add(b"external");
            add(url.as_bytes());
        }
    }
    add(&key.limit.as_u64().to_be_bytes());
    add(&key.authority);
    let digest = Sha256Digest::of(&material).to_hex();
    format!("{}.download.{digest}", key.tenant.token())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use dray_bus::test_bus;
    use dray_store::embedded::EmbeddedS3;
    use dray_types::{ByteSize, Clock, Deadline, Period, Secret, TenantId};

    use super::*;
    use crate::dial::CallerCredentials;
    use crate::downloads::{DownloadIndex, DownloadLimits};

    const LINK_LIFETIME: Period = Period::secs(60);

    /// The indexes of two replicas, and what they share.
    struct Replicas {
        one: DownloadIndex,
        two: DownloadIndex,
        clock: Clock,
        store: Store,
        downloads: AtomicU32,
        _directory: tempfile::TempDir,
        _s3: EmbeddedS3,
    }

    impl Replicas {
        async fn start() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let clock = Clock::manual(1_700_000_000_000);
            let (s3, options) = EmbeddedS3::with_capacity(directory.path(), u64::MAX)
                .await
                .unwrap();
            let store = Store::open(&options, clock.clone()).await.unwrap();
            let bus = test_bus::in_process(&clock).await;
            let limits = DownloadLimits {
                lifetime: LINK_LIFETIME,
                max_entries: 9,
            };
            let index = || {
                let shared = SharedDownloads::new(&bus, &store);
                DownloadIndex::shared_with(clock.clone(), limits, Some(shared))
            };
            Self {
                one: index(),
                two: index(),
                clock: clock.clone(),
                downloads: AtomicU32::new(0),
                store,
                _directory: directory,
                _s3: s3,
            }
        }

        async fn load(&self, index: &DownloadIndex, key: DownloadKey) -> LoadedFile {
            let load = async {
                self.downloads.fetch_add(1, Ordering::SeqCst);
                Ok::<_, ()>(LoadedFile {
                    content: ContentSource::Inline(Bytes::from_static(b"page")),
                    size: 4,
                    sha256: Sha256Digest::of(b"page"),
                    media_type: "text/html".to_owned(),
                })
            };
            index.get_or_load(key, load).await.unwrap()
        }

        fn downloads(&self) -> u32 {
            self.downloads.load(Ordering::SeqCst)
        }
    }

    fn key(target: LoadTarget, scope: DownloadScope) -> DownloadKey {
        let credentials = CallerCredentials {
            api_key: Secret::new("key"),
            ..CallerCredentials::default()
        };
        DownloadKey::new(
            TenantId::new("a").unwrap(),
            scope,
            target,
            ByteSize::mib(1),
            (&credentials, None),
        )
    }

    fn external_key(url: &str, session: &str) -> DownloadKey {
        let session = SessionId::new(session).unwrap();
        let scope = DownloadScope::Conversation(Some(session), None);
        key(LoadTarget::External(url.to_owned()), scope)
    }

    #[tokio::test]
    async fn a_replica_finds_the_download_of_another_replica() {
        let replicas = Replicas::start().await;
        let key = external_key("https://a.example/", "s");
        let first = replicas.load(&replicas.one, key.clone()).await;
        let second = replicas.load(&replicas.two, key.clone()).await;
        assert_eq!(replicas.downloads(), 1);
        assert_eq!(
            (second.size, second.sha256, &second.media_type),
            (first.size, first.sha256, &first.media_type)
        );
        let ContentSource::Claim(claim) = &second.content else {
            panic!("{second:?}");
        };
        let deadline = Deadline::after(replicas.clock.now_ms(), SHARE_TIMEOUT);
        let reader = replicas.store.read(&key.tenant, claim, deadline).await;
        let bytes = reader.unwrap().read_all(ByteSize::mib(1)).await.unwrap();
        assert_eq!(bytes, b"page"[..]);
    }

    #[tokio::test]
    async fn another_conversation_and_an_ended_entry_are_downloaded() {
        let replicas = Replicas::start().await;
        let key = external_key("https://a.example/", "s");
        replicas.load(&replicas.one, key.clone()).await;
        let other = external_key("https://a.example/", "t");
        replicas.load(&replicas.two, other).await;
        assert_eq!(replicas.downloads(), 2);
        replicas.clock.advance(std::time::Duration::from_secs(61));
        replicas.load(&replicas.two, key.clone()).await;
        assert_eq!(replicas.downloads(), 3);
        replicas.load(&replicas.one, key).await;
        assert_eq!(replicas.downloads(), 3, "the entry was replaced");
    }

    #[tokio::test]
    async fn replicas_do_not_find_a_download_whose_bytes_were_deleted() {
        let replicas = Replicas::start().await;
        let key = external_key("https://a.example/", "s");
        replicas.load(&replicas.one, key.clone()).await;
        replicas.one.forget(&key).await;
        replicas.load(&replicas.two, key).await;
        assert_eq!(replicas.downloads(), 2);
    }

    #[tokio::test]
    async fn files_of_dial_and_of_one_call_stay_in_their_process() {
        let replicas = Replicas::start().await;
        let path = dray_dial::FileUrl::parse("files/b/a").unwrap();
        let conversation = DownloadScope::Conversation(None, None);
        for key in [
            key(LoadTarget::Dial(path), conversation),
            key(
                LoadTarget::External("https://a.example/".to_owned()),
                DownloadScope::Call,
            ),
        ] {
            let before = replicas.downloads();
            replicas.load(&replicas.one, key.clone()).await;
            replicas.load(&replicas.two, key).await;
            assert_eq!(replicas.downloads(), before + 2);
        }
    }

    #[test]
    fn every_condition_of_a_download_is_part_of_its_key() {
        let url = "https://a.example/";
        let one = external_key(url, "s");
        let others = [
            external_key("https://a.example/b", "s"),
            external_key(url, "t"),
            DownloadKey {
                limit: ByteSize::mib(2),
                ..one.clone()
            },
            DownloadKey {
                authority: [7; 32],
                ..one.clone()
            },
            DownloadKey {
                tenant: TenantId::new("b").unwrap(),
                ..one.clone()
            },
            DownloadKey {
                scope: DownloadScope::Request("s".to_owned()),
                ..one.clone()
            },
            DownloadKey {
                scope: DownloadScope::Conversation(None, Some(AppId::new("s").unwrap())),
                ..one.clone()
            },
        ];
        for other in others {
            assert_ne!(entry_key(&one), entry_key(&other), "{other:?}");
        }
        assert_eq!(entry_key(&one), entry_key(&external_key(url, "s")));
    }
}
