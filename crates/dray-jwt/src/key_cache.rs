//! The public keys of an issuer, cached across key rotation.
//!
//! Keys are loaded again when they are ten minutes old, and when a token has an unknown key id: at most once in thirty
//! seconds, so that invented ids cause no load. While the issuer cannot be reached, known keys are valid
//! for an hour.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dray_types::{Clock, TimeMark};
use futures_util::future::BoxFuture;
use jsonwebtoken::{Algorithm, DecodingKey};
use tokio::task::JoinSet;

use crate::key_set::{KeySet, KeySetError};

/// Age at which keys are fetched again.
const REFRESH_AFTER: Duration = Duration::from_mins(10);
/// Age at which keys are no longer used.
const MAX_AGE: Duration = Duration::from_hours(1);
/// Shortest time between two fetches.
const MIN_FETCH_INTERVAL: Duration = Duration::from_secs(30);
/// The reason why a source could not load the key set, for the log.
pub type LoadCause = Box<dyn std::error::Error + Send + Sync>;

/// The source of the key set of an issuer.
pub trait KeySource: fmt::Debug + Send + Sync + 'static {
    /// Loads the text of the key set. Implementations limit its size and the time that it takes.
    ///
    /// # Errors
    ///
    /// The key set is not available.
    fn load_keys(&self) -> BoxFuture<'_, Result<String, LoadCause>>;
}

/// The reason why a token has no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyError {
    /// The authorization server has no such key, by its newest response.
    Unknown,
    /// The keys are not available, so the token cannot be verified.
    Unavailable,
}

#[derive(Debug, Default)]
struct CachedKeys {
    keys: Arc<KeySet>,
    fetched: Option<TimeMark>,
    attempted: Option<TimeMark>,
    /// Whether the newest fetch that ended failed.
    has_failed: bool,
}

/// The keys, and how they are fetched.
#[derive(Debug)]
struct KeyState {
    source: Arc<dyn KeySource>,
    clock: Clock,
    cached: Mutex<CachedKeys>,
}

/// The keys of one issuer.
#[derive(Debug)]
pub struct KeyCache {
    state: Arc<KeyState>,
    /// The running fetch. The request that waits for it has the lock, so that only one fetch runs at a time. If that
    /// request is dropped, the fetch continues for the next one.
    fetching: tokio::sync::Mutex<JoinSet<()>>,
}

impl KeyCache {
    /// An empty cache. `clock` gives the age of the keys.
    pub fn new(source: Arc<dyn KeySource>, clock: Clock) -> Self {
        Self {
            state: Arc::new(KeyState {
                source,
                clock,
                cached: Mutex::default(),
            }),
            fetching: tokio::sync::Mutex::default(),
        }
    }

    /// The key for a token with this key id and algorithm.
    pub(crate) async fn find_key(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<DecodingKey, KeyError> {
        let state = &self.state;
        if let Some(key) = state.find_cached_key(id, algorithm) {
            // A fetch that stalls must not delay tokens whose key is known.
            if state.is_older_than(REFRESH_AFTER)
                && let Ok(mut fetching) = self.fetching.try_lock()
            {
                while fetching.try_join_next().is_some() {}
                self.begin_fetch(&mut fetching);
            }
            return Ok(key);
        }
        let mut fetching = self.fetching.lock().await;
        while fetching.join_next().await.is_some() {}
        if state.find_cached_key(id, algorithm).is_none() {
            self.begin_fetch(&mut fetching);
            while fetching.join_next().await.is_some() {}
        }
        match state.find_cached_key(id, algorithm) {
            Some(key) => Ok(key),
            None if state.has_failed() || state.is_older_than(REFRESH_AFTER) => {
                Err(KeyError::Unavailable)
            }
            None => Err(KeyError::Unknown),
        }
    }

    /// Begins a fetch, unless one runs or was tried a short time before.
    fn begin_fetch(&self, fetching: &mut JoinSet<()>) {
        if fetching.is_empty() && self.state.record_fetch_if_due() {
            let state = self.state.clone();
            fetching.spawn(async move { state.refresh().await });
        }
    }
}

impl KeyState {
    fn cached(&self) -> MutexGuard<'_, CachedKeys> {
        // No code that can panic runs under the lock.
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_older_than(&self, age: Duration) -> bool {
        let fetched = self.cached().fetched;
        fetched.is_none_or(|mark| self.clock.age(mark) >= age)
    }

    fn has_failed(&self) -> bool {
        self.cached().has_failed
    }

    fn find_cached_key(&self, id: Option<&str>, algorithm: Algorithm) -> Option<DecodingKey> {
        if self.is_older_than(MAX_AGE) {
            return None;
        }
        let keys = Arc::clone(&self.cached().keys);
        keys.find_key(id, algorithm)
    }

    /// Returns whether enough time has passed since the last fetch began. If so, records that a fetch begins now.
    fn record_fetch_if_due(&self) -> bool {
        let mut cached = self.cached();
        let is_due = cached
            .attempted
            .is_none_or(|mark| self.clock.age(mark) >= MIN_FETCH_INTERVAL);
        if is_due {
            cached.attempted = Some(self.clock.mark());
        }
        is_due
    }

    async fn refresh(&self) {
        let started = self.clock.mark();
        let loaded = self.source.load_keys().await;
        let parsed = loaded.map_err(RefreshError::Source);
        match parsed.and_then(|text| Ok(KeySet::parse(&text)?)) {
            Ok(keys) => {
                let mut cached = self.cached();
                cached.keys = Arc::new(keys);
                cached.fetched = Some(started);
                cached.has_failed = false;
            }
            Err(error) => {
                self.cached().has_failed = true;
                tracing::warn!(%error, "the keys of the authorization server are not renewed");
            }
        }
    }
}

/// The reason why keys are not renewed.
#[derive(Debug, thiserror::Error)]
enum RefreshError {
    #[error("{0}")]
    Source(LoadCause),
    #[error(transparent)]
    Content(#[from] KeySetError),
}
