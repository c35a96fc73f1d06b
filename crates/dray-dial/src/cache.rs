//! Metadata that were read recently, per caller (R14).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dray_agent::caller::Caller;
use dray_types::{Secret, Sha256Digest};
use serde_json::Value;
use tokio::time::Instant;

/// Most entries. Beyond it, the oldest entry is removed.
const MAX_ENTRIES: usize = 512;

/// Digest of both credentials of the caller, and the path of the metadata.
type CacheKey = (String, String);

#[derive(Debug)]
pub(crate) struct MetadataCache {
    max_age: Duration,
    entries: Mutex<HashMap<CacheKey, (Instant, Value)>>,
}

impl MetadataCache {
    pub(crate) fn new(max_age: Duration) -> Self {
        Self {
            max_age,
            entries: Mutex::default(),
        }
    }

    pub(crate) fn get(&self, caller: &Caller, path: &str) -> Option<Value> {
        let entries = self.lock();
        let (stored_at, value) = entries.get(&cache_key(caller, path))?;
        (stored_at.elapsed() < self.max_age).then(|| value.clone())
    }

    pub(crate) fn put(&self, caller: &Caller, path: &str, value: &Value) {
        let mut entries = self.lock();
        if entries.len() >= MAX_ENTRIES {
            // Stale entries are removed first; a fresh one only if all are fresh.
            entries.retain(|_, (stored_at, _)| stored_at.elapsed() < self.max_age);
        }
        if entries.len() >= MAX_ENTRIES {
            let oldest = entries.iter().min_by_key(|(_, (stored_at, _))| *stored_at);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                entries.remove(&oldest);
            }
        }
        entries.insert(cache_key(caller, path), (Instant::now(), value.clone()));
    }

    pub(crate) fn forget(&self, caller: &Caller, path: &str) {
        self.lock().remove(&cache_key(caller, path));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CacheKey, (Instant, Value)>> {
        // Entries are inserted and removed in one step, so a panic under the lock leaves no partial entry.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn cache_key(caller: &Caller, path: &str) -> CacheKey {
    let part = |secret: &Option<Secret>| {
        secret
            .as_ref()
            .map_or(String::new(), |secret| secret.expose().to_owned())
    };
    let (key, user) = (part(&caller.api_key), part(&caller.authorization));
    // The length distinguishes `ab` and `c` from `a` and `bc`, because no caller may get the metadata of another (R14).
    let credentials = format!("{}:{key}{user}", key.len());
    (
        Sha256Digest::of(credentials.as_bytes()).to_hex(),
        path.to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn caller(key: &str, user: &str) -> Caller {
        Caller {
            api_key: Some(Secret::new(key)),
            authorization: Some(Secret::new(user)),
            ..Caller::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn r_14_metadata_expire_and_can_be_forgotten() {
        // paused clock
        let cache = MetadataCache::new(Duration::from_mins(1));
        let me = caller("k", "u");
        cache.put(&me, "a", &json!(1));
        assert_eq!(cache.get(&me, "a"), Some(json!(1)));
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(cache.get(&me, "a"), None);
        cache.put(&me, "a", &json!(2));
        cache.forget(&me, "a");
        assert_eq!(cache.get(&me, "a"), None);
    }

    #[test]
    fn r_14_no_caller_sees_what_another_caller_got() {
        let cache = MetadataCache::new(Duration::from_mins(1));
        cache.put(&caller("k", "u"), "a", &json!(1));
        for other in [
            caller("k", "v"),
            caller("ku", ""),
            caller("", "ku"),
            Caller::default(),
        ] {
            assert_eq!(cache.get(&other, "a"), None);
        }
    }

    #[test]
    fn the_cache_is_bounded() {
        let cache = MetadataCache::new(Duration::from_mins(1));
        for number in 0..=MAX_ENTRIES {
            cache.put(&Caller::default(), &number.to_string(), &json!(number));
        }
        assert_eq!(cache.lock().len(), MAX_ENTRIES);
        assert_eq!(
            cache.get(&Caller::default(), &MAX_ENTRIES.to_string()),
            Some(json!(MAX_ENTRIES))
        );
    }
}
