//! Open login attempts, in memory: the provider has not responded to them yet.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dray_types::{Sha256Digest, whole_millis};
use subtle::ConstantTimeEq as _;

use super::own_path::OwnPath;
use crate::session::random_text;

/// How long a person may take to log in at the provider.
pub(super) const ATTEMPT_LIFETIME: Duration = Duration::from_mins(10);
/// Most open attempts; a new attempt replaces the oldest. Anyone who reaches the console can begin them.
const MAX_ATTEMPTS: usize = 1024;

/// The values that the response of the provider and its token must match.
#[derive(Clone, Debug)]
pub(super) struct LoginAttempt {
    /// Ties the response to the browser (RFC 6749 section 10.12).
    pub(super) state: String,
    /// Ties the token to the attempt.
    pub(super) nonce: String,
    /// Proves to the provider that the code was requested here (RFC 7636 section 4.1).
    pub(super) code_verifier: String,
    /// The page after the login.
    pub(super) next: OwnPath,
}

impl LoginAttempt {
    /// A new attempt and the secret for the cookie of its browser.
    pub(super) fn new(next: OwnPath) -> (String, Self) {
        let attempt = Self {
            state: random_text(),
            nonce: random_text(),
            code_verifier: random_text(),
            next,
        };
        (random_text(), attempt)
    }

    /// `S256` of the verifier (RFC 7636 section 4.2).
    pub(super) fn code_challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(Sha256Digest::of(self.code_verifier.as_bytes()).as_bytes())
    }
}

#[derive(Debug)]
struct AttemptEntry {
    attempt: LoginAttempt,
    begun_ms: u64,
}

impl AttemptEntry {
    fn is_open(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.begun_ms) <= whole_millis(ATTEMPT_LIFETIME)
    }
}

/// All open attempts, by the digest of their secret.
#[derive(Debug, Default)]
pub(super) struct AttemptStore(Mutex<HashMap<Sha256Digest, AttemptEntry>>);

impl AttemptStore {
    pub(super) fn insert(&self, secret: &str, attempt: LoginAttempt, now_ms: u64) {
        let mut attempts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        attempts.retain(|_, entry| entry.is_open(now_ms));
        if attempts.len() >= MAX_ATTEMPTS {
            let oldest = attempts
                .iter()
                .min_by_key(|(_, entry)| entry.begun_ms)
                .map(|(key, _)| *key);
            if let Some(key) = oldest {
                attempts.remove(&key);
            }
        }
        let begun_ms = now_ms;
        let key = Sha256Digest::of(secret.as_bytes());
        attempts.insert(key, AttemptEntry { attempt, begun_ms });
    }

    /// Removes and returns the attempt of this browser if the response has its `state`, so that a response counts once.
    pub(super) fn take(&self, secret: &str, state: &str, now_ms: u64) -> Option<LoginAttempt> {
        let key = Sha256Digest::of(secret.as_bytes());
        let mut attempts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = attempts.get(&key)?;
        let is_same: bool = entry
            .attempt
            .state
            .as_bytes()
            .ct_eq(state.as_bytes())
            .into();
        // A response with another state keeps the attempt; otherwise a link on another site could end a person's login.
        if !is_same {
            return None;
        }
        let entry = attempts.remove(&key)?;
        entry.is_open(now_ms).then_some(entry.attempt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START_MS: u64 = 1_800_000_000_000;

    fn begin(store: &AttemptStore, now_ms: u64) -> (String, String) {
        let (secret, attempt) = LoginAttempt::new(OwnPath::parse("/live"));
        let state = attempt.state.clone();
        store.insert(&secret, attempt, now_ms);
        (secret, state)
    }

    #[test]
    fn an_attempt_works_once_with_its_secret_and_its_state() {
        let store = AttemptStore::default();
        let (secret, state) = begin(&store, START_MS);
        let (other_secret, other_state) = begin(&store, START_MS);
        assert!(store.take(&secret, &other_state, START_MS).is_none());
        assert!(store.take(&other_secret, &state, START_MS).is_none());
        assert!(store.take("", &state, START_MS).is_none());
        assert!(store.take(&secret, "", START_MS).is_none());
        let taken = store.take(&secret, &state, START_MS).unwrap();
        assert_eq!(taken.next.as_str(), "/live");
        assert!(store.take(&secret, &state, START_MS).is_none());
    }

    #[test]
    fn an_attempt_ends_after_ten_minutes() {
        let store = AttemptStore::default();
        let (secret, state) = begin(&store, START_MS);
        let expired_ms = START_MS + 600_001;
        assert!(store.take(&secret, &state, expired_ms).is_none());
    }

    #[test]
    fn open_attempts_are_limited_and_the_oldest_is_removed() {
        let store = AttemptStore::default();
        let (secret, state) = begin(&store, START_MS);
        for offset_ms in 1..1024 {
            begin(&store, START_MS + offset_ms);
        }
        let (second, second_state) = begin(&store, START_MS + 2_000);
        assert_eq!(store.0.lock().unwrap().len(), MAX_ATTEMPTS);
        assert!(store.take(&secret, &state, START_MS + 2_000).is_none());
        assert!(
            store
                .take(&second, &second_state, START_MS + 2_000)
                .is_some()
        );
    }

    /// The example of RFC 7636 appendix B.
    #[test]
    fn the_challenge_is_that_of_the_example_of_rfc_7636() {
        let (_, mut attempt) = LoginAttempt::new(OwnPath::parse("/"));
        attempt.code_verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned();
        assert_eq!(
            attempt.code_challenge(),
            "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
        );
    }
}
