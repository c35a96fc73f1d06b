//! The public keys of the authorization server, cached.
//!
//! Keys are fetched again when they are ten minutes old, and when a token has an unknown key id: at most once in thirty
//! seconds, so that invented ids cause no load. While the authorization server cannot be reached, known keys are valid
//! for an hour.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dray_types::Clock;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::Value;
use tokio::task::JoinSet;

use super::source::{self, SourceError};
use crate::ServiceClient;

/// Age at which keys are fetched again.
const REFRESH_AFTER: Duration = Duration::from_mins(10);
/// Age at which keys no longer count.
const MAX_AGE: Duration = Duration::from_hours(1);
/// Shortest time between two fetches.
const MIN_FETCH_INTERVAL: Duration = Duration::from_secs(30);
/// Most keys of a set; further ones are ignored.
const MAX_KEYS: usize = 100;

/// Where the key set (RFC 7517) of the authorization server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyLocation {
    /// A URL, fetched through egress-fetcher under the operator's policy.
    Url(String),
    /// A file of this machine, for authorization servers that egress-fetcher may not reach.
    File(PathBuf),
}

/// Why a token has no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyError {
    /// The authorization server has no such key.
    Unknown,
    /// The keys are not available, so the token cannot be verified.
    Unavailable,
}

/// A key that can verify tokens.
#[derive(Clone, Debug)]
struct VerifyingKey {
    id: Option<String>,
    /// The algorithms that the key is for.
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

#[derive(Deserialize)]
struct KeySetDocument {
    keys: Vec<Value>,
}

#[derive(Debug, Default)]
struct CachedKeys {
    keys: Arc<Vec<VerifyingKey>>,
    fetched_at_ms: Option<u64>,
    tried_at_ms: Option<u64>,
}

/// The keys, and how they are fetched.
#[derive(Debug)]
struct KeyState {
    location: KeyLocation,
    client: Option<ServiceClient>,
    clock: Clock,
    cached: Mutex<CachedKeys>,
}

/// The keys of the authorization server.
#[derive(Debug)]
pub(super) struct KeyCache {
    state: Arc<KeyState>,
    /// The running fetch. The request that waits for it has the lock, so that only one fetch runs at a time. If that
    /// request is dropped, the fetch continues for the next one.
    fetching: tokio::sync::Mutex<JoinSet<()>>,
}

impl KeyCache {
    pub(super) fn new(location: KeyLocation, client: Option<ServiceClient>, clock: Clock) -> Self {
        Self {
            state: Arc::new(KeyState {
                location,
                client,
                clock,
                cached: Mutex::default(),
            }),
            fetching: tokio::sync::Mutex::default(),
        }
    }

    /// The key for a token with this key id and algorithm.
    pub(super) async fn find(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<DecodingKey, KeyError> {
        let state = &self.state;
        if let Some(key) = state.known(id, algorithm) {
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
        if state.known(id, algorithm).is_none() {
            self.begin_fetch(&mut fetching);
            while fetching.join_next().await.is_some() {}
        }
        match state.known(id, algorithm) {
            Some(key) => Ok(key),
            None if state.is_older_than(REFRESH_AFTER) => Err(KeyError::Unavailable),
            None => Err(KeyError::Unknown),
        }
    }

    /// Begins a fetch, unless one runs or was tried a short time before.
    fn begin_fetch(&self, fetching: &mut JoinSet<()>) {
        if fetching.is_empty() && self.state.may_fetch() {
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
        let now = self.clock.now_ms();
        let fetched = self.cached().fetched_at_ms;
        fetched.is_none_or(|at| now.saturating_sub(at) >= millis(age))
    }

    fn known(&self, id: Option<&str>, algorithm: Algorithm) -> Option<DecodingKey> {
        if self.is_older_than(MAX_AGE) {
            return None;
        }
        let keys = self.cached().keys.clone();
        let mut fitting = keys.iter().filter(|key| {
            key.algorithms.contains(&algorithm) && (id.is_none() || key.id.as_deref() == id)
        });
        let first = fitting.next()?;
        // Without an id, only a single fitting key is used.
        (id.is_some() || fitting.next().is_none()).then(|| first.key.clone())
    }

    /// Whether enough time passed since the last fetch began. Then this one counts as begun.
    fn may_fetch(&self) -> bool {
        let now = self.clock.now_ms();
        let mut cached = self.cached();
        let tried = cached.tried_at_ms;
        let may = tried.is_none_or(|at| now.saturating_sub(at) >= millis(MIN_FETCH_INTERVAL));
        if may {
            cached.tried_at_ms = Some(now);
        }
        may
    }

    async fn refresh(&self) {
        let begun = self.clock.now_ms();
        let loaded = source::load(&self.location, self.client.as_ref()).await;
        let parsed = loaded.map_err(RefreshError::Source);
        match parsed.and_then(|text| parse(&text)) {
            Ok(keys) => {
                let mut cached = self.cached();
                cached.keys = Arc::new(keys);
                cached.fetched_at_ms = Some(begun);
            }
            Err(error) => {
                tracing::warn!(%error, "the keys of the authorization server are not renewed");
            }
        }
    }
}

/// Why keys are not renewed.
#[derive(Debug, thiserror::Error)]
enum RefreshError {
    #[error(transparent)]
    Source(SourceError),
    #[error("the text is not a key set: {0}")]
    Syntax(serde_json::Error),
    #[error("the key set holds no key for signatures")]
    Empty,
}

/// The keys of a set that can verify tokens. Others are left out: keys for encryption, shared secrets and unknown
/// kinds.
fn parse(text: &str) -> Result<Vec<VerifyingKey>, RefreshError> {
    let document: KeySetDocument = serde_json::from_str(text).map_err(RefreshError::Syntax)?;
    let keys: Vec<_> = document
        .keys
        .into_iter()
        .filter_map(verifying_key)
        .take(MAX_KEYS)
        .collect();
    // If an authorization server loses its keys, sessions of its users must not end.
    if keys.is_empty() {
        return Err(RefreshError::Empty);
    }
    Ok(keys)
}

fn verifying_key(value: Value) -> Option<VerifyingKey> {
    let key: Jwk = serde_json::from_value(value).ok()?;
    let usage = &key.common.public_key_use;
    if usage
        .as_ref()
        .is_some_and(|usage| *usage != PublicKeyUse::Signature)
    {
        return None;
    }
    let possible: &[Algorithm] = match &key.algorithm {
        AlgorithmParameters::RSA(_) => &[
            Algorithm::RS256,
            Algorithm::RS384,
            Algorithm::RS512,
            Algorithm::PS256,
            Algorithm::PS384,
            Algorithm::PS512,
        ],
        AlgorithmParameters::EllipticCurve(curve) => match curve.curve {
            EllipticCurve::P256 => &[Algorithm::ES256],
            EllipticCurve::P384 => &[Algorithm::ES384],
            _ => return None,
        },
        AlgorithmParameters::OctetKeyPair(pair) if pair.curve == EllipticCurve::Ed25519 => {
            &[Algorithm::EdDSA]
        }
        _ => return None,
    };
    let algorithms = match key.common.key_algorithm {
        Some(named) => {
            let named = named.to_string().parse().ok()?;
            possible.contains(&named).then(|| vec![named])?
        }
        None => possible.to_vec(),
    };
    Some(VerifyingKey {
        id: key.common.key_id.clone(),
        algorithms,
        key: DecodingKey::from_jwk(&key).ok()?,
    })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_for_other_purposes_and_unknown_kinds_are_left_out() {
        let coordinate = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU";
        let curve = |further: Value| {
            let mut key = json!({"kty": "EC", "crv": "P-256", "x": coordinate, "y": coordinate});
            for (name, value) in further.as_object().unwrap() {
                key[name] = value.clone();
            }
            key
        };
        let set = json!({"keys": [
            curve(json!({"kid": "good"})),
            curve(json!({"kid": "encryption", "use": "enc"})),
            curve(json!({"kid": "mismatch", "alg": "RS256"})),
            curve(json!({"kid": "future", "crv": "P-1024"})),
            {"kty": "oct", "kid": "secret", "k": "c2VjcmV0"},
            {"kty": "lattice", "kid": "unknown"},
            "not a key",
        ]});
        let keys = parse(&set.to_string()).unwrap();
        let ids: Vec<_> = keys.iter().map(|key| key.id.as_deref()).collect();
        assert_eq!(ids, [Some("good")]);
        assert_eq!(keys[0].algorithms, [Algorithm::ES256]);
        for text in [
            "",
            "[]",
            "{}",
            r#"{"keys": []}"#,
            r#"{"keys": [{"kty": "oct", "k": "YQ"}]}"#,
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
