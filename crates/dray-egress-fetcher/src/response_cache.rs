//! The records of stored responses. Their bodies are artifacts of the store.
//!
//! A tenant has a fixed number of slots in the bucket [`CACHE_BUCKET`], and the digest of a URL selects its slot. So
//! the number of records is bounded without counting, and a new response replaces the one in its slot. Records contain
//! the digest of a URL, never the URL, which may contain a secret. A record that cannot be read or written is a miss.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use dray_bus::{Bus, KeyError, KeyValue};
use dray_guard::CanonicalUrl;
use dray_types::{Clock, Sha256Digest, TenantId, whole_millis};
use futures_util::future::BoxFuture;
use http::HeaderValue;
use serde::{Deserialize, Serialize};

use crate::config::CacheSettings;
use crate::fetch::{CacheLookup, CachedFile, CachedResponse, ResponseCache};
use crate::freshness::ReuseTerms;
use crate::label::ResponseLabels;
use crate::sink::StoredFile;

/// The bucket of records.
pub const CACHE_BUCKET: &str = "dray_egress_cache";
/// Timeout for reading or writing one record. A fetch continues without it.
const RECORD_TIMEOUT: Duration = Duration::from_secs(1);

/// Most attempts of a purge while fetches change the slot.
const MAX_PURGE_ATTEMPTS: usize = 8;
/// The value of a slot whose record was purged.
const EMPTY_SLOT: &[u8] = b"{}";

/// One stored response, in the form of the bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct CacheRecord {
    /// SHA-256 (hex) of the URL.
    url: String,
    sha256: String,
    size: u64,
    media_type: String,
    name: String,
    last_modified: String,
    etag: String,
    sniffed: String,
    /// Value of `If-None-Match` for its server.
    if_none_match: Option<String>,
    /// Value of `If-Modified-Since` for its server.
    if_modified_since: Option<String>,
    vary: Vec<String>,
    vary_digest: String,
    stored_ms: u64,
    /// Unix milliseconds until which the response is used without revalidation.
    fresh_until_ms: u64,
}

impl CacheRecord {
    fn of_response(
        url: &CanonicalUrl,
        response: &CachedResponse,
        now_ms: u64,
        max_age: Duration,
    ) -> Self {
        let text = |value: &Option<HeaderValue>| {
            let text = value.as_ref()?.to_str().ok()?;
            Some(text.to_owned())
        };
        let CachedResponse {
            file,
            terms,
            vary_digest,
        } = response;
        // The operator's limit is applied here, so a higher limit later does not make expired records fresh again.
        let fresh_ms = whole_millis(terms.fresh_for.min(max_age));
        Self {
            url: url_digest(url).to_hex(),
            sha256: file.stored.sha256.to_hex(),
            size: file.stored.size,
            media_type: file.labels.media_type.clone(),
            name: file.labels.name.clone(),
            last_modified: file.labels.last_modified.clone(),
            etag: file.labels.etag.clone(),
            sniffed: file.sniffed.clone().into_owned(),
            if_none_match: text(&terms.etag),
            if_modified_since: text(&terms.last_modified),
            vary: terms.vary.clone(),
            vary_digest: vary_digest.clone(),
            stored_ms: now_ms,
            fresh_until_ms: now_ms.saturating_add(fresh_ms),
        }
    }

    /// The response as it may be used at `now_ms`.
    fn into_response(self, now_ms: u64) -> Option<CachedResponse> {
        let value = |text: Option<String>| text.and_then(|text| HeaderValue::from_str(&text).ok());
        // A clock that was set back does not make a response fresh for longer.
        let fresh_ms = if now_ms >= self.stored_ms {
            self.fresh_until_ms.saturating_sub(now_ms)
        } else {
            0
        };
        Some(CachedResponse {
            file: CachedFile {
                stored: StoredFile {
                    sha256: self.sha256.parse().ok()?,
                    size: self.size,
                },
                labels: ResponseLabels {
                    media_type: self.media_type,
                    name: self.name,
                    last_modified: self.last_modified,
                    etag: self.etag,
                },
                sniffed: Cow::Owned(self.sniffed),
            },
            terms: ReuseTerms {
                fresh_for: Duration::from_millis(fresh_ms),
                etag: value(self.if_none_match),
                last_modified: value(self.if_modified_since),
                vary: self.vary,
            },
            vary_digest: self.vary_digest,
        })
    }
}

fn url_digest(url: &CanonicalUrl) -> Sha256Digest {
    Sha256Digest::of(url.to_string().as_bytes())
}

/// The record of a URL in the value of its slot. An empty slot, and a record of another version, are a miss, and the next
/// response replaces them.
fn record_of(value: &[u8], url: &CanonicalUrl) -> Option<CacheRecord> {
    let record = serde_json::from_slice::<CacheRecord>(value).ok();
    record.filter(|record| record.url == url_digest(url).to_hex())
}

/// The records on the bus.
#[derive(Clone, Debug)]
pub(crate) struct CacheStore {
    keys: KeyValue,
    clock: Clock,
    settings: CacheSettings,
}

impl CacheStore {
    pub(crate) fn new(bus: &Bus, clock: Clock, settings: CacheSettings) -> Self {
        Self {
            keys: bus.key_value(CACHE_BUCKET),
            clock,
            settings,
        }
    }

    /// The key of the slot of a URL.
    fn key(&self, tenant: &TenantId, url: &CanonicalUrl) -> String {
        let digest = url_digest(url);
        // Eight bytes are enough to spread URLs evenly over any number of slots.
        let number = digest.as_bytes().iter().take(8);
        let number = number.fold(0_u64, |number, byte| (number << 8) | u64::from(*byte));
        let slot = number % u64::from(self.settings.max_entries.max(1));
        format!("place.{}.{slot}", tenant.token())
    }

    /// The record of a URL, and the revision of its slot, which may contain the record of another URL.
    async fn read(
        &self,
        tenant: &TenantId,
        url: &CanonicalUrl,
    ) -> Result<(Option<CacheRecord>, Option<u64>), KeyError> {
        let Some(entry) = self.keys.get(&self.key(tenant, url)).await? else {
            return Ok((None, None));
        };
        Ok((record_of(&entry.value, url), Some(entry.revision)))
    }

    /// Removes the record of a URL. Returns whether there was one. A fetch that looked the URL up before does not store
    /// its response afterwards: the slot is written in any case, so its revision is another one.
    ///
    /// # Errors
    ///
    /// The bus, or a slot that others keep changing.
    pub(crate) async fn purge(
        &self,
        tenant: &TenantId,
        url: &CanonicalUrl,
    ) -> Result<bool, KeyError> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.try_purge(tenant, url).await {
                Err(KeyError::Stale | KeyError::Exists) if attempts < MAX_PURGE_ATTEMPTS => {}
                purged => return purged,
            }
        }
    }

    async fn try_purge(&self, tenant: &TenantId, url: &CanonicalUrl) -> Result<bool, KeyError> {
        let key = self.key(tenant, url);
        let Some(entry) = self.keys.get(&key).await? else {
            let written = self.keys.create(&key, Bytes::from_static(EMPTY_SLOT)).await;
            return written.map(|_| false);
        };
        let is_purged = record_of(&entry.value, url).is_some();
        // The record of another URL stays.
        let value = if is_purged {
            Bytes::from_static(EMPTY_SLOT)
        } else {
            entry.value
        };
        let written = self.keys.update(&key, value, entry.revision).await;
        written.map(|_| is_purged)
    }

    /// Replaces what the slot of a URL had at `revision`; `None` as response removes it.
    async fn write(
        &self,
        tenant: &TenantId,
        url: &CanonicalUrl,
        response: Option<&CachedResponse>,
        revision: Option<u64>,
    ) -> Result<(), KeyError> {
        let key = self.key(tenant, url);
        let value = response.map(|response| {
            let now_ms = self.clock.now_ms();
            let record = CacheRecord::of_response(url, response, now_ms, self.settings.max_age);
            // Texts and numbers always have a form in JSON.
            Bytes::from(serde_json::to_vec(&record).unwrap_or_default())
        });
        match (value, revision) {
            (Some(value), Some(revision)) => {
                let updated = self.keys.update(&key, value, revision).await;
                updated.map(drop)
            }
            (Some(value), None) => self.keys.create(&key, value).await.map(drop),
            (None, Some(revision)) => self.keys.delete(&key, revision).await,
            (None, None) => Ok(()),
        }
    }

    /// Waits for work on a record. A failure is logged for the operator and is a miss for the fetch.
    async fn within_timeout<T>(work: impl Future<Output = Result<T, KeyError>>) -> Option<T> {
        match tokio::time::timeout(RECORD_TIMEOUT, work).await {
            Ok(Ok(outcome)) => Some(outcome),
            // Another fetch changed this slot after the lookup, so what it stored is newer.
            Ok(Err(KeyError::Stale | KeyError::Exists)) => None,
            Ok(Err(error)) => {
                tracing::warn!(%error, "a record of the cache could not be used");
                None
            }
            Err(_) => {
                tracing::warn!("a record of the cache could not be read or written in time");
                None
            }
        }
    }
}

impl ResponseCache for CacheStore {
    fn find<'a>(&'a self, tenant: &'a str, url: &'a CanonicalUrl) -> BoxFuture<'a, CacheLookup> {
        Box::pin(async move {
            let Ok(tenant) = TenantId::new(tenant) else {
                return CacheLookup::default();
            };
            let reading = Self::within_timeout(self.read(&tenant, url));
            let Some((record, revision)) = reading.await else {
                return CacheLookup::default();
            };
            CacheLookup {
                response: record.and_then(|record| record.into_response(self.clock.now_ms())),
                revision,
            }
        })
    }

    fn keep<'a>(
        &'a self,
        tenant: &'a str,
        url: &'a CanonicalUrl,
        response: Option<&'a CachedResponse>,
        revision: Option<u64>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            // Requests carry a valid tenant; any other text has no key.
            let Ok(tenant) = TenantId::new(tenant) else {
                return;
            };
            let writing = self.write(&tenant, url, response, revision);
            let _ = Self::within_timeout(writing).await;
        })
    }

    fn max_file_bytes(&self) -> u64 {
        self.settings.max_file_bytes
    }

    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(self.clock.now_ms())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(fresh_for: Duration) -> CachedResponse {
        CachedResponse {
            file: CachedFile {
                stored: StoredFile {
                    sha256: Sha256Digest::of(b"1;2"),
                    size: 3,
                },
                labels: ResponseLabels {
                    media_type: "text/csv".to_owned(),
                    ..ResponseLabels::default()
                },
                sniffed: Cow::Borrowed(""),
            },
            terms: ReuseTerms {
                fresh_for,
                etag: Some(HeaderValue::from_static("W/\"a\"")),
                last_modified: None,
                vary: vec!["accept".to_owned()],
            },
            vary_digest: "x".to_owned(),
        }
    }

    #[test]
    fn a_record_is_fresh_until_its_time_and_never_longer_than_the_operator_allows() {
        let url = CanonicalUrl::parse("https://files.example.org/?key=hunter2").unwrap();
        let (minute, hour) = (Duration::from_mins(1), Duration::from_hours(1));
        let now_ms = 1_800_000_000_000;
        for (fresh_for, later_ms, left) in [
            (minute, 0, minute),
            (minute, 59_000, Duration::from_secs(1)),
            (minute, 60_000, Duration::ZERO),
            (minute, 10_000_000, Duration::ZERO),
            (Duration::MAX, 0, hour),
            (Duration::MAX, 3_600_000, Duration::ZERO),
        ] {
            let response = response(fresh_for);
            let record = CacheRecord::of_response(&url, &response, now_ms, hour);
            let text = serde_json::to_string(&record).unwrap();
            assert!(
                !text.contains("hunter2") && !text.contains("example"),
                "{text}"
            );
            let read = record.into_response(now_ms + later_ms).unwrap();
            assert_eq!(read.terms.fresh_for, left);
            assert_eq!(read.file, response.file);
            assert_eq!(read.terms.etag, response.terms.etag);
        }
        let record = CacheRecord::of_response(&url, &response(minute), now_ms, hour);
        let earlier = record.into_response(now_ms - 1).unwrap();
        assert_eq!(earlier.terms.fresh_for, Duration::ZERO);
    }
}
