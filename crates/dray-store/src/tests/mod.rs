//! Tests of the store with the embedded endpoint over real HTTP.

mod cache;
mod damage;
mod faults;
mod full;
mod in_process;
mod large_copy;
mod lifetime;
mod listing;
mod multipart;
mod options;
mod origin;
mod outages;
mod permissions;
mod presigned;
mod race;
mod restart;
mod segments;
mod stored;

use std::time::Duration;

use bytes::Bytes;
use dray_testkit::s3::FaultyS3;
use dray_types::{Claim, Clock, Deadline, OperationId, Secret, Sha256Digest, TenantId};
use tempfile::TempDir;

use crate::embedded::EmbeddedS3;
use crate::{ArtifactLabel, ReadError, Store, StoreOptions};

/// A store over a temporary directory.
pub(crate) struct TestStore {
    pub(crate) store: Store,
    pub(crate) options: StoreOptions,
    pub(crate) clock: Clock,
    pub(crate) endpoint: EmbeddedS3,
    pub(crate) directory: TempDir,
}

impl TestStore {
    pub(crate) async fn new() -> Self {
        Self::with_capacity(u64::MAX).await
    }

    pub(crate) async fn with_capacity(capacity: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (endpoint, options) = EmbeddedS3::with_capacity(directory.path(), capacity)
            .await
            .unwrap();
        let clock = Clock::system();
        let store = Store::open(&options, clock.clone()).await.unwrap();
        Self {
            store,
            options,
            clock,
            endpoint,
            directory,
        }
    }

    /// The same store with a clock that the test sets.
    pub(crate) async fn at(&self, unix_ms: u64) -> (Store, Clock) {
        let clock = Clock::manual(unix_ms);
        let store = Store::open(&self.options, clock.clone()).await.unwrap();
        (store, clock)
    }

    /// The same store behind a proxy that can inject faults.
    pub(crate) async fn behind(&self) -> (Store, FaultyS3) {
        let proxy = FaultyS3::start(self.endpoint.address()).await.unwrap();
        let options = StoreOptions {
            endpoint: proxy.endpoint(),
            ..self.options.clone()
        };
        let store = Store::open(&options, self.clock.clone()).await.unwrap();
        (store, proxy)
    }

    pub(crate) fn deadline(&self) -> Deadline {
        Deadline::after(self.clock.now_ms(), Duration::from_secs(30))
    }

    pub(crate) async fn put(&self, tenant: &TenantId, bytes: impl Into<Bytes>) -> Claim {
        self.store
            .put(
                tenant,
                &OperationId::mint(),
                bytes.into(),
                ArtifactLabel::default(),
            )
            .await
            .unwrap()
    }

    pub(crate) async fn read(&self, tenant: &TenantId, claim: &Claim) -> Result<Bytes, ReadError> {
        let reader = self.store.read(tenant, claim, self.deadline()).await?;
        reader.read_all(dray_types::ByteSize::mib(256)).await
    }

    /// Every file below the directory that is an object, a part or a draft.
    pub(crate) fn files(&self) -> Vec<String> {
        let mut files = Vec::new();
        let mut directories = vec![self.directory.path().to_owned()];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    directories.push(path);
                } else if !["lock", "endpoint.json"]
                    .iter()
                    .any(|suffix| path.ends_with(suffix))
                {
                    let relative = path.strip_prefix(self.directory.path()).unwrap();
                    files.push(relative.to_str().unwrap().to_owned());
                }
            }
        }
        files.sort();
        files
    }

    /// Puts bytes under a key directly, without the checks of the store.
    pub(crate) async fn overwrite(&self, key: &str, bytes: impl Into<Bytes>) {
        let bytes: Bytes = bytes.into();
        let inner = &self.store.inner;
        inner
            .clients
            .inside
            .put_object()
            .bucket(&self.options.bucket)
            .key(key)
            .body(bytes.into())
            .send()
            .await
            .unwrap();
    }
}

pub(crate) fn tenant(name: &str) -> TenantId {
    TenantId::new(name).unwrap()
}

/// Bytes without a pattern, so that a chunk in the wrong place is noticed.
pub(crate) fn noise(length: usize, seed: u64) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes.into()
}

#[tokio::test]
async fn a_store_with_wrong_options_is_not_opened() {
    let wrong = StoreOptions {
        access_key: Secret::default(),
        endpoint: "ftp://nowhere/path".to_owned(),
        ..StoreOptions::default()
    };
    let error = Store::open(&wrong, Clock::system()).await.unwrap_err();
    let text = error.to_string();
    for part in ["access_key", "secret_key", "endpoint"] {
        assert!(text.contains(part), "{text}");
    }
}

#[tokio::test]
async fn the_probe_fails_when_the_store_is_stopped() {
    let fixture = TestStore::new().await;
    fixture.store.probe().await.unwrap();
    fixture.endpoint.stop().await;
    let error = fixture.store.probe().await.unwrap_err();
    assert!(
        matches!(error, crate::RequestError::Unreachable(_)),
        "{error:?}"
    );
}

#[test]
fn noise_differs_by_seed() {
    assert_ne!(
        Sha256Digest::of(&noise(64, 1)),
        Sha256Digest::of(&noise(64, 2))
    );
    assert_eq!(noise(1001, 3).len(), 1001);
}
