//! Earlier conversions. The store has the Markdown; the bus's key-value store has its claim, under a digest of the
//! document, the converter's version and the options of the request.
//!
//! It is a cache: every failure here is a miss, and the document is converted again.

use async_trait::async_trait;
use bytes::Bytes;
use prost::Message as _;

use dray_bus::{Bus, KeyError, KeyValue};
use dray_documents::formats::Converted;
use dray_proto::v1;
use dray_reading::cache::{Cache, CacheKey};
use dray_store::{ArtifactLabel, Store};
use dray_types::{ByteSize, Claim, Clock, Deadline, OperationId, TenantId};

/// Name of the bucket in the key-value store.
pub(crate) const CONVERSION_BUCKET: &str = "dray_conversions";
/// Largest conversion that is read back, in bytes; the text itself is bounded by the reading policy.
const MAX_CONVERSION_BYTES: ByteSize = ByteSize::mib(64);
/// Longest time that reading waits for the cache.
const CACHE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);

/// The cache of one tenant: tenants do not share conversions, not even of the same document.
#[derive(Debug)]
pub(super) struct ConversionCache {
    entries: KeyValue,
    store: Store,
    clock: Clock,
    tenant: TenantId,
}

impl ConversionCache {
    pub(super) fn new(bus: &Bus, store: &Store, clock: &Clock, tenant: &TenantId) -> Self {
        Self {
            entries: bus.key_value(CONVERSION_BUCKET),
            store: store.clone(),
            clock: clock.clone(),
            tenant: tenant.clone(),
        }
    }

    fn entry_key(&self, key: &CacheKey) -> String {
        format!("{}.{}", self.tenant.token(), key.to_hex())
    }

    async fn load(&self, key: &str) -> Option<Converted> {
        let entry = self.entries.get(key).await.ok()??;
        let claim = v1::Claim::decode(entry.value).ok()?;
        let claim = Claim::try_from(claim).ok()?;
        let deadline = Deadline::after(self.clock.now_ms(), CACHE_TIMEOUT);
        let reader = self.store.read(&self.tenant, &claim, deadline).await.ok()?;
        let bytes = reader.read_all(MAX_CONVERSION_BYTES).await.ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    async fn save(&self, key: &str, value: &Converted) -> Result<(), KeyError> {
        let Ok(bytes) = serde_json::to_vec(value) else {
            return Ok(());
        };
        let label = ArtifactLabel::new("application/json", "conversion.json");
        let operation = OperationId::mint();
        let stored = self
            .store
            .put(&self.tenant, &operation, Bytes::from(bytes), label)
            .await;
        let claim = match stored {
            Ok(claim) => claim,
            Err(error) => {
                tracing::debug!(%error, "could not store a conversion");
                return Ok(());
            }
        };
        let claim_bytes = Bytes::from(v1::Claim::from(claim).encode_to_vec());
        // An existing entry is replaced, because it may refer to a deleted object.
        let written = self.entries.create_or_update(key, claim_bytes).await;
        written.map(drop)
    }
}

#[async_trait]
impl Cache for ConversionCache {
    async fn get(&self, key: &CacheKey) -> Option<Converted> {
        self.load(&self.entry_key(key)).await
    }

    async fn put(&self, key: &CacheKey, value: &Converted) {
        if let Err(error) = self.save(&self.entry_key(key), value).await {
            tracing::debug!(%error, "could not record a conversion");
        }
    }
}
