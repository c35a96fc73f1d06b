//! Attempts to log in to which the provider has not responded yet.
//!
//! The browser keeps its attempt in a signed cookie. So an attempt costs this process nothing, and the number of begun
//! attempts cannot end the attempt of a person. `state`, `nonce` and the verifier are derived from the cookie's secret
//! and a key that only this process has: the browser never gets the verifier.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dray_types::{Sha256Digest, whole_millis};
use ring::hmac;
use subtle::ConstantTimeEq as _;

use super::own_path::OwnPath;
use crate::session::random_text;

/// How long a person may take to log in at the provider.
pub(super) const ATTEMPT_LIFETIME: Duration = Duration::from_mins(10);
/// Longest value of the cookie of an attempt, in bytes: that of the longest path.
const MAX_COOKIE_BYTES: usize = 2048;
/// Attempts with a response that are remembered until they end, so that each of them works once. Where more come, the
/// oldest are forgotten; their codes were used, and a provider takes a code once (RFC 6749 section 4.1.2).
const MAX_USED_ATTEMPTS: usize = 16_384;

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
    /// `S256` of the verifier (RFC 7636 section 4.2).
    pub(super) fn code_challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(Sha256Digest::of(self.code_verifier.as_bytes()).as_bytes())
    }
}

/// Begins attempts, and takes each of them once.
#[derive(Debug)]
pub(super) struct LoginAttempts {
    key: hmac::Key,
    /// The start time of each used attempt in Unix milliseconds, and the digest of its cookie.
    used: Mutex<BTreeSet<(u64, Sha256Digest)>>,
}

impl Default for LoginAttempts {
    /// Creates a store with a new key: attempts do not outlive the process.
    fn default() -> Self {
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, &rand::random::<[u8; 32]>()),
            used: Mutex::default(),
        }
    }
}

impl LoginAttempts {
    /// A new attempt, and the value for the cookie of its browser.
    pub(super) fn begin(&self, next: OwnPath, now_ms: u64) -> (String, LoginAttempt) {
        let secret = random_text();
        // No part contains a dot.
        let encoded_next = URL_SAFE_NO_PAD.encode(next.as_str());
        let payload = format!("{secret}.{now_ms}.{encoded_next}");
        let signature = self.derive("cookie", &payload);
        let attempt = self.attempt(&secret, next);
        (format!("{payload}.{signature}"), attempt)
    }

    /// The attempt of this browser if it is open and the response has its `state`. It cannot be taken a second time, so
    /// that a response counts once.
    pub(super) fn take(&self, cookie: &str, state: &str, now_ms: u64) -> Option<LoginAttempt> {
        let (begun_ms, attempt) = self.read(cookie)?;
        let has_expired =
            |begun_ms: u64| now_ms.saturating_sub(begun_ms) > whole_millis(ATTEMPT_LIFETIME);
        let is_same: bool = attempt.state.as_bytes().ct_eq(state.as_bytes()).into();
        // A response with another state keeps the attempt; otherwise a link on another site could end a person's login.
        if !is_same || has_expired(begun_ms) {
            return None;
        }
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        while used
            .first()
            .is_some_and(|(begun_ms, _)| used.len() >= MAX_USED_ATTEMPTS || has_expired(*begun_ms))
        {
            used.pop_first();
        }
        let is_new = used.insert((begun_ms, Sha256Digest::of(cookie.as_bytes())));
        is_new.then_some(attempt)
    }

    /// Reads a cookie that this process signed, and when its attempt began.
    fn read(&self, cookie: &str) -> Option<(u64, LoginAttempt)> {
        if cookie.len() > MAX_COOKIE_BYTES {
            return None;
        }
        let (payload, signature) = cookie.rsplit_once('.')?;
        let expected = self.derive("cookie", payload);
        let is_signed: bool = expected.as_bytes().ct_eq(signature.as_bytes()).into();
        if !is_signed {
            return None;
        }
        let mut parts = payload.split('.');
        let (secret, begun_ms) = (parts.next()?, parts.next()?.parse().ok()?);
        let next = URL_SAFE_NO_PAD.decode(parts.next()?).ok()?;
        let next = OwnPath::parse(&String::from_utf8(next).ok()?);
        Some((begun_ms, self.attempt(secret, next)))
    }

    fn attempt(&self, secret: &str, next: OwnPath) -> LoginAttempt {
        LoginAttempt {
            state: self.derive("state", secret),
            nonce: self.derive("nonce", secret),
            code_verifier: self.derive("code_verifier", secret),
            next,
        }
    }

    /// A value of 256 bits for one purpose, as text.
    fn derive(&self, purpose: &str, text: &str) -> String {
        let message = format!("{purpose} {text}");
        URL_SAFE_NO_PAD.encode(hmac::sign(&self.key, message.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START_MS: u64 = 1_800_000_000_000;

    fn begin(attempts: &LoginAttempts, now_ms: u64) -> (String, String) {
        let (cookie, attempt) = attempts.begin(OwnPath::parse("/live?a=1"), now_ms);
        (cookie, attempt.state)
    }

    #[test]
    fn an_attempt_works_once_with_its_cookie_and_its_state() {
        let attempts = LoginAttempts::default();
        let (cookie, begun) = attempts.begin(OwnPath::parse("/live?a=1"), START_MS);
        let state = begun.state.clone();
        let (other_cookie, other_state) = begin(&attempts, START_MS);
        assert!(attempts.take(&cookie, &other_state, START_MS).is_none());
        assert!(attempts.take(&other_cookie, &state, START_MS).is_none());
        assert!(attempts.take("", &state, START_MS).is_none());
        assert!(attempts.take(&cookie, "", START_MS).is_none());
        let attempt_taken = attempts.take(&cookie, &state, START_MS).unwrap();
        assert_eq!(attempt_taken.next.as_str(), "/live?a=1");
        assert_eq!(attempt_taken.nonce, begun.nonce);
        assert_eq!(attempt_taken.code_verifier, begun.code_verifier);
        assert!(attempts.take(&cookie, &state, START_MS).is_none());
    }

    #[test]
    fn an_attempt_ends_after_ten_minutes() {
        let attempts = LoginAttempts::default();
        let (cookie, state) = begin(&attempts, START_MS);
        let expired_ms = START_MS + 600_001;
        assert!(attempts.take(&cookie, &state, expired_ms).is_none());
        assert!(attempts.take(&cookie, &state, START_MS + 600_000).is_some());
    }

    #[test]
    fn an_attempt_stays_open_however_many_others_begin_and_end_after_it() {
        let attempts = LoginAttempts::default();
        let (cookie, state) = begin(&attempts, START_MS);
        for _ in 0..=MAX_USED_ATTEMPTS {
            let (other_cookie, other_state) = begin(&attempts, START_MS + 1);
            let attempt_taken = attempts.take(&other_cookie, &other_state, START_MS + 1);
            assert!(attempt_taken.is_some());
        }
        assert_eq!(attempts.used.lock().unwrap().len(), MAX_USED_ATTEMPTS);
        assert!(attempts.take(&cookie, &state, START_MS + 2).is_some());
        // The next attempt removes expired ones.
        let (late_cookie, late_state) = begin(&attempts, START_MS + 700_000);
        let late = attempts.take(&late_cookie, &late_state, START_MS + 700_000);
        assert!(late.is_some());
        assert_eq!(attempts.used.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_cookie_that_was_changed_or_is_of_another_process_has_no_attempt() {
        let attempts = LoginAttempts::default();
        let (cookie, state) = begin(&attempts, START_MS);
        assert!(
            LoginAttempts::default()
                .take(&cookie, &state, START_MS)
                .is_none()
        );
        let later = cookie.replace(&START_MS.to_string(), &(START_MS + 1).to_string());
        assert_ne!(later, cookie);
        let elsewhere = cookie.replace(
            &URL_SAFE_NO_PAD.encode("/live?a=1"),
            &URL_SAFE_NO_PAD.encode("/letters"),
        );
        assert_ne!(elsewhere, cookie);
        for changed in [
            later,
            elsewhere,
            format!("{cookie}A"),
            "a.b".to_owned(),
            ".".repeat(4096),
        ] {
            assert!(
                attempts.take(&changed, &state, START_MS).is_none(),
                "{changed}"
            );
        }
        // The longest path fits.
        let longest = OwnPath::parse(&format!("/{}", "a".repeat(1023)));
        let (cookie, attempt) = attempts.begin(longest, START_MS);
        assert!(cookie.len() <= MAX_COOKIE_BYTES);
        let attempt_taken = attempts.take(&cookie, &attempt.state, START_MS).unwrap();
        assert_eq!(attempt_taken.next.as_str().len(), 1024);
    }

    /// The example of RFC 7636 appendix B.
    #[test]
    fn the_challenge_is_that_of_the_example_of_rfc_7636() {
        let (_, mut attempt) = LoginAttempts::default().begin(OwnPath::parse("/"), START_MS);
        attempt.code_verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned();
        assert_eq!(
            attempt.code_challenge(),
            "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
        );
    }
}
