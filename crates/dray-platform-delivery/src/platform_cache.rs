//! Knowledge about platforms, in the bucket `dray_platform`: limits that a refusal lowered, ids of files that
//! they have, status updates of messages (7.5), times of users' messages, failures that were reported (9). All of
//! it may be lost: the data only save work.

mod chat_moves;

use std::time::Duration;

use bytes::Bytes;
use dray_bus::{Bus, KeyError, KeyValue};
use dray_platform::Route;
use dray_types::{Clock, Sha256Digest, TenantId, whole_millis};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Bucket of this cache, and of leases and notes of this service.
pub const PLATFORM_BUCKET: &str = "dray_platform";

/// Most attempts to write one key that others change at the same time.
const MAX_WRITE_ATTEMPTS: u32 = 5;

/// Lifetime of file ids and similar values, which equals the bucket's own limit.
const FILE_ID_LIFETIME: Duration = Duration::from_hours(24 * 30);

/// Lifetime of the time of a user's message: longer than the time from a request to its record.
const MESSAGE_TIME_LIFETIME: Duration = Duration::from_hours(24);

/// Reads and writes the cache. Failures of the bus are logged and count as a missing value.
#[derive(Clone, Debug)]
pub struct PlatformCache {
    keys: KeyValue,
    clock: Clock,
}

/// A value with the time at which it expires.
#[derive(Debug, Serialize, Deserialize)]
struct ExpiringValue<T> {
    until_ms: u64,
    value: T,
}

/// The delivery to which a platform's message belongs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageOrigin {
    /// Key of the delivery's record.
    pub record: String,
    /// Name of the delivery's tenant.
    pub tenant: String,
    /// Id of the delivery, as its caller knows it.
    pub delivery: String,
}

/// One token of a key for any text: 32 hexadecimal digits of its SHA-256.
fn key_token(text: &str) -> String {
    let hex = Sha256Digest::of(text.as_bytes()).to_hex();
    hex.chars().take(32).collect()
}

impl PlatformCache {
    /// Opens the cache on this bus. No record is read yet.
    pub fn new(bus: &Bus, clock: Clock) -> Self {
        Self {
            keys: bus.key_value(PLATFORM_BUCKET),
            clock,
        }
    }

    /// The bucket itself, for leases and notes.
    pub(crate) fn keys(&self) -> &KeyValue {
        &self.keys
    }

    /// The largest file in bytes that this chat is known to accept.
    pub async fn limit(&self, account: &str, chat: &str) -> Option<u64> {
        self.get(&limit_key(account, chat)).await
    }

    /// Records for `lifetime` that this chat refused a file above `bytes`.
    pub async fn learn_limit(&self, account: &str, chat: &str, bytes: u64, lifetime: Duration) {
        // A known limit is only lowered: the refusal of a larger file must not raise it.
        let known_limit = self.limit(account, chat).await.unwrap_or(u64::MAX);
        self.set(&limit_key(account, chat), &bytes.min(known_limit), lifetime)
            .await;
    }

    /// The platform's id of this content on this route, from an earlier delivery of this account.
    pub async fn file_id(
        &self,
        tenant: &TenantId,
        account: &str,
        sha256: Sha256Digest,
        route: Route,
    ) -> Option<String> {
        self.get(&file_key(tenant, account, sha256, route)).await
    }

    /// Records the platform's id of this content on this route.
    pub async fn learn_file_id(
        &self,
        tenant: &TenantId,
        account: &str,
        sha256: Sha256Digest,
        route: Route,
        id: &str,
    ) {
        let key = file_key(tenant, account, sha256, route);
        self.set(&key, &id, FILE_ID_LIFETIME).await;
    }

    /// Removes the id, after the platform refused it.
    pub async fn forget_file_id(
        &self,
        tenant: &TenantId,
        account: &str,
        sha256: Sha256Digest,
        route: Route,
    ) {
        let key = file_key(tenant, account, sha256, route);
        self.remove(&key).await;
    }

    /// The delivery of a message whose success may still be corrected.
    pub async fn origin(&self, account: &str, message: &str) -> Option<MessageOrigin> {
        self.get(&message_key("message", account, message)).await
    }

    /// Records the delivery of a message.
    pub async fn learn_origin(&self, account: &str, message: &str, origin: &MessageOrigin) {
        let key = message_key("message", account, message);
        self.set(&key, origin, FILE_ID_LIFETIME).await;
    }

    /// When the last message of a user of this chat arrived, in Unix milliseconds.
    pub async fn last_message_ms(&self, account: &str, chat: &str) -> Option<u64> {
        self.get(&message_key("heard", account, chat)).await
    }

    /// Records that a user of this chat wrote at this time.
    pub async fn learn_message_time(&self, account: &str, chat: &str, at_ms: u64) {
        let key = message_key("heard", account, chat);
        self.set(&key, &at_ms, MESSAGE_TIME_LIFETIME).await;
    }

    /// Stores a failure of a message that no record may have yet, because the platform reported it before the response
    /// was stored.
    pub async fn keep_early_failure(&self, account: &str, message: &str, code: &str) {
        let key = message_key("news", account, message);
        self.set(&key, &code, Duration::from_hours(1)).await;
    }

    /// The failure that arrived before the message was recorded.
    pub async fn early_failure(&self, account: &str, message: &str) -> Option<String> {
        self.get(&message_key("news", account, message)).await
    }

    /// Returns the failures that were not reported to the user in this turn; from now on they count as reported.
    pub async fn unreported(
        &self,
        session: &str,
        turn: &str,
        failures: Vec<String>,
    ) -> Vec<String> {
        let key = format!("told.{}", key_token(&format!("{session}\0{turn}")));
        for _ in 0..MAX_WRITE_ATTEMPTS {
            let (reported, revision) = match self.keys.get(&key).await {
                Ok(Some(entry)) => (decode_value::<Vec<String>>(&entry.value), entry.revision),
                Ok(None) => (None, 0),
                Err(error) => {
                    log_failure(&error);
                    // A second report is better than none.
                    return failures;
                }
            };
            let mut reported = reported.map(|expiring| expiring.value).unwrap_or_default();
            let new_failures: Vec<String> = failures
                .iter()
                .filter(|failure| !reported.contains(failure))
                .cloned()
                .collect();
            if new_failures.is_empty() {
                return new_failures;
            }
            reported.extend(new_failures.iter().cloned());
            match self
                .write(&key, &reported, FILE_ID_LIFETIME, revision)
                .await
            {
                Ok(()) => return new_failures,
                Err(KeyError::Exists | KeyError::Stale) => {}
                Err(error) => {
                    log_failure(&error);
                    return new_failures;
                }
            }
        }
        failures
    }

    /// Reads a value that has not expired.
    pub(crate) async fn get<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        self.find(key).await.unwrap_or_else(|error| {
            log_failure(&error);
            None
        })
    }

    /// Reads a value, for callers that must distinguish a missing value from a failure of the bus.
    ///
    /// # Errors
    /// The bus failed.
    pub(crate) async fn find<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, KeyError> {
        let entry = self.keys.get(key).await?;
        let found = entry.and_then(|entry| decode_value::<T>(&entry.value));
        Ok(found
            .filter(|expiring| expiring.until_ms > self.clock.now_ms())
            .map(|expiring| expiring.value))
    }

    /// Reads the values of all keys below a prefix that have not expired, at most `limit`.
    pub(crate) async fn list<T: DeserializeOwned>(&self, prefix: &str, limit: usize) -> Vec<T> {
        let listing = match self.keys.list(prefix, limit).await {
            Ok(listing) => listing,
            Err(error) => {
                log_failure(&error);
                return Vec::new();
            }
        };
        let now_ms = self.clock.now_ms();
        let values = listing.entries.into_iter();
        values
            .filter_map(|(_, entry)| decode_value::<T>(&entry.value))
            .filter(|expiring| expiring.until_ms > now_ms)
            .map(|expiring| expiring.value)
            .collect()
    }

    /// Writes a value, and replaces an earlier one. Failures are only logged.
    pub(crate) async fn set<T: Serialize + Sync>(&self, key: &str, value: &T, lifetime: Duration) {
        for _ in 0..MAX_WRITE_ATTEMPTS {
            let revision = match self.keys.get(key).await {
                Ok(entry) => entry.map_or(0, |entry| entry.revision),
                Err(error) => return log_failure(&error),
            };
            match self.write(key, value, lifetime, revision).await {
                Ok(()) => return,
                Err(KeyError::Exists | KeyError::Stale) => {}
                Err(error) => return log_failure(&error),
            }
        }
    }

    /// Writes a value that must not be lost. A concurrent write is an error.
    pub(crate) async fn keep<T: Serialize + Sync>(
        &self,
        key: &str,
        value: &T,
        lifetime: Duration,
    ) -> Result<(), KeyError> {
        let revision = self.keys.get(key).await?.map_or(0, |entry| entry.revision);
        self.write(key, value, lifetime, revision).await
    }

    /// Writes a value unless one is stored that has not expired, and returns the stored one. Of concurrent writers, the
    /// first one wins.
    ///
    /// # Errors
    /// The bus failed.
    pub(crate) async fn keep_first<T>(
        &self,
        key: &str,
        value: T,
        lifetime: Duration,
    ) -> Result<T, KeyError>
    where
        T: Serialize + DeserializeOwned + Sync,
    {
        for _ in 0..MAX_WRITE_ATTEMPTS {
            let mut revision = 0;
            if let Some(entry) = self.keys.get(key).await? {
                let stored = decode_value::<T>(&entry.value)
                    .filter(|expiring| expiring.until_ms > self.clock.now_ms());
                if let Some(stored) = stored {
                    return Ok(stored.value);
                }
                revision = entry.revision;
            }
            match self.write(key, &value, lifetime, revision).await {
                Ok(()) => return Ok(value),
                Err(KeyError::Exists | KeyError::Stale) => {}
                Err(error) => return Err(error),
            }
        }
        Err(KeyError::Stale)
    }

    /// Removes a value. Failures are only logged.
    pub(crate) async fn remove(&self, key: &str) {
        let removed = match self.keys.get(key).await {
            Ok(Some(entry)) => self.keys.delete(key, entry.revision).await,
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        match removed {
            // A later change wins.
            Ok(()) | Err(KeyError::Stale) => {}
            Err(error) => log_failure(&error),
        }
    }

    async fn write<T: Serialize + Sync>(
        &self,
        key: &str,
        value: &T,
        lifetime: Duration,
        revision: u64,
    ) -> Result<(), KeyError> {
        let lifetime = whole_millis(lifetime);
        let expiring = ExpiringValue {
            until_ms: self.clock.now_ms().saturating_add(lifetime),
            value,
        };
        let value = Bytes::from(serde_json::to_vec(&expiring).unwrap_or_default());
        match revision {
            0 => self.keys.create(key, value).await,
            revision => self.keys.update(key, value, revision).await,
        }
        .map(|_| ())
    }
}

fn decode_value<T: DeserializeOwned>(value: &[u8]) -> Option<ExpiringValue<T>> {
    serde_json::from_slice(value).ok()
}

fn log_failure(error: &KeyError) {
    tracing::warn!(
        error = error as &dyn std::error::Error,
        "the cache of platform data cannot be reached"
    );
}

fn limit_key(account: &str, chat: &str) -> String {
    format!("limit.{}.{}", key_token(account), key_token(chat))
}

fn file_key(tenant: &TenantId, account: &str, sha256: Sha256Digest, route: Route) -> String {
    let account = key_token(account);
    format!(
        "file.{}.{account}.{}.{}",
        tenant.token(),
        sha256.to_hex(),
        key_token(route.as_str())
    )
}

fn message_key(prefix: &str, account: &str, message: &str) -> String {
    format!("{prefix}.{}.{}", key_token(account), key_token(message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fixture::{in_process, tenant};

    #[tokio::test]
    async fn r_6_a_learned_limit_only_falls_and_expires() {
        let (bus, clock) = in_process().await;
        let cache = PlatformCache::new(&bus, clock.clone());
        let day = Duration::from_hours(24);
        assert_eq!(cache.limit("a", "1").await, None);
        cache.learn_limit("a", "1", 20, day).await;
        cache.learn_limit("a", "1", 30, day).await;
        assert_eq!(cache.limit("a", "1").await, Some(20));
        assert_eq!(cache.limit("a", "2").await, None, "another chat");
        assert_eq!(cache.limit("b", "1").await, None, "another account");
        clock.advance(day);
        assert_eq!(cache.limit("a", "1").await, None);
    }

    #[tokio::test]
    async fn r_7_file_ids_belong_to_tenant_account_bytes_and_route() {
        let (bus, clock) = in_process().await;
        let cache = PlatformCache::new(&bus, clock);
        let digest = Sha256Digest::of(b"x");
        let acme = tenant();
        cache
            .learn_file_id(&acme, "bot", digest, Route::Photo, "id-1")
            .await;
        let found = cache.file_id(&acme, "bot", digest, Route::Photo).await;
        assert_eq!(found.as_deref(), Some("id-1"));
        let other = TenantId::new("other").unwrap();
        assert_eq!(
            cache.file_id(&other, "bot", digest, Route::Photo).await,
            None
        );
        assert_eq!(
            cache.file_id(&acme, "bot", digest, Route::Document).await,
            None
        );
        cache
            .forget_file_id(&acme, "bot", digest, Route::Photo)
            .await;
        assert_eq!(
            cache.file_id(&acme, "bot", digest, Route::Photo).await,
            None
        );
    }

    #[tokio::test]
    async fn the_first_value_is_kept_until_it_expires() {
        let (bus, clock) = in_process().await;
        let cache = PlatformCache::new(&bus, clock.clone());
        let hour = Duration::from_hours(1);
        let (one, two) = tokio::join!(
            cache.keep_first("k", 1, hour),
            cache.keep_first("k", 2, hour)
        );
        let first = one.unwrap();
        assert_eq!(two.unwrap(), first);
        assert_eq!(cache.keep_first("k", 3, hour).await.unwrap(), first);
        clock.advance(hour);
        assert_eq!(cache.keep_first("k", 4, hour).await.unwrap(), 4);
        assert_eq!(cache.find("k").await.unwrap(), Some(4));
    }

    #[tokio::test]
    async fn r_21_a_failure_is_reported_once_in_a_turn() {
        let (bus, clock) = in_process().await;
        let cache = PlatformCache::new(&bus, clock);
        let failures = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let reported = cache.unreported("s", "t", failures(&["a", "b"])).await;
        assert_eq!(reported, ["a", "b"]);
        assert_eq!(
            cache.unreported("s", "t", failures(&["b", "c"])).await,
            ["c"]
        );
        assert_eq!(cache.unreported("s", "u", failures(&["b"])).await, ["b"]);
    }
}
