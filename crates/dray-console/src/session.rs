//! Sessions of people who logged in. They are in memory, and only the browser has their secret.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dray_types::{Secret, Sha256Digest, whole_millis};
use subtle::ConstantTimeEq as _;

use crate::settings::ConsoleRole;

/// A session without a request for this long ends.
const IDLE_TIMEOUT: Duration = Duration::from_hours(2);
/// A session ends after this time in any case.
const MAX_AGE: Duration = Duration::from_hours(12);
/// How far the clock may be set back without ending sessions.
const MAX_CLOCK_STEP: Duration = Duration::from_mins(1);
/// Most open sessions; a new session replaces the one that was idle longest.
const MAX_SESSIONS: usize = 64;
/// Size of the secret of forms, in bytes.
const SECRET_BYTES: usize = 32;
/// Hexadecimal digits of a session's digest that name its login in audit events.
const LOGIN_DIGITS: usize = 16;

/// A person whom the identity provider named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConsolePerson {
    /// `sub` of the ID token: printable ASCII, at most 255 bytes, never reused by the provider.
    pub(crate) subject: String,
    /// A name for people, which the provider may change.
    pub(crate) name: String,
    /// Address at which this person ends the session at the provider; it may contain the ID token.
    pub(crate) logout_url: Option<Secret>,
}

/// A session as a request sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConsoleSession {
    pub(crate) role: ConsoleRole,
    /// Name of the login in audit events.
    pub(crate) login: String,
    /// Who logged in; `None` with a login link, which names no person.
    pub(crate) person: Option<ConsolePerson>,
    /// Secret of the forms of this session.
    form_secret: [u8; SECRET_BYTES],
}

impl ConsoleSession {
    /// A text for a form of this session. Each one is masked by new random bytes, because pages are compressed: a
    /// secret that is the same on each page can be guessed from the lengths of pages (the BREACH attack on HTTP
    /// compression).
    pub(crate) fn form_token(&self) -> String {
        let mask = rand::random::<[u8; SECRET_BYTES]>();
        URL_SAFE_NO_PAD.encode([mask, xor(&mask, &self.form_secret)].as_flattened())
    }

    /// Whether a form was made for this session.
    pub(crate) fn has_token(&self, token: &str) -> bool {
        let bytes = URL_SAFE_NO_PAD.decode(token).unwrap_or_default();
        let (halves, rest) = bytes.as_chunks::<SECRET_BYTES>();
        let [mask, masked] = halves else {
            return false;
        };
        rest.is_empty() && xor(mask, masked).ct_eq(&self.form_secret).into()
    }

    pub(crate) fn can_act(&self) -> bool {
        self.role == ConsoleRole::Act
    }
}

fn xor(left: &[u8; SECRET_BYTES], right: &[u8; SECRET_BYTES]) -> [u8; SECRET_BYTES] {
    let mut mixed = *left;
    for (byte, other) in mixed.iter_mut().zip(right) {
        *byte ^= other;
    }
    mixed
}

/// What makes a browser send a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestOrigin {
    /// A person opens a page or sends a form.
    Person,
    /// The script of an open page, again and again. It must not keep the session of a person who has left.
    OpenPage,
}

#[derive(Debug)]
struct SessionEntry {
    session: ConsoleSession,
    begun_ms: u64,
    used_ms: u64,
}

impl SessionEntry {
    fn is_open(&self, now_ms: u64) -> bool {
        let idle_ms = now_ms.saturating_sub(self.used_ms);
        let age_ms = now_ms.saturating_sub(self.begun_ms);
        // After the clock was set back, a session from the time ahead would live longer by this step.
        let is_ahead = self.used_ms > now_ms.saturating_add(whole_millis(MAX_CLOCK_STEP));
        idle_ms <= whole_millis(IDLE_TIMEOUT) && age_ms <= whole_millis(MAX_AGE) && !is_ahead
    }
}

/// All open sessions, by the digest of their secret, so that a copy of the process memory opens none of them.
#[derive(Debug, Default)]
pub(crate) struct SessionStore {
    sessions: Mutex<HashMap<Sha256Digest, SessionEntry>>,
}

impl SessionStore {
    /// Begins a session with a new secret. A secret that the browser sent before is never adopted, so a planted one
    /// opens nothing (session fixation).
    pub(crate) fn begin(
        &self,
        role: ConsoleRole,
        person: Option<ConsolePerson>,
        now_ms: u64,
    ) -> (String, ConsoleSession) {
        let secret = random_text();
        let key = Sha256Digest::of(secret.as_bytes());
        let login: String = key.to_hex().chars().take(LOGIN_DIGITS).collect();
        let session = ConsoleSession {
            role,
            login,
            person,
            form_secret: rand::random(),
        };
        let mut sessions = self.lock();
        sessions.retain(|_, entry| entry.is_open(now_ms));
        if sessions.len() >= MAX_SESSIONS {
            let idlest = sessions
                .iter()
                .min_by_key(|(_, entry)| entry.used_ms)
                .map(|(key, _)| *key);
            if let Some(key) = idlest {
                sessions.remove(&key);
            }
        }
        let entry = SessionEntry {
            session: session.clone(),
            begun_ms: now_ms,
            used_ms: now_ms,
        };
        sessions.insert(key, entry);
        (secret, session)
    }

    /// The open session with this secret. A request of a person counts as use.
    pub(crate) fn find(
        &self,
        secret: &str,
        origin: RequestOrigin,
        now_ms: u64,
    ) -> Option<ConsoleSession> {
        let key = Sha256Digest::of(secret.as_bytes());
        let mut sessions = self.lock();
        let entry = sessions.get_mut(&key)?;
        if !entry.is_open(now_ms) {
            sessions.remove(&key);
            return None;
        }
        // The time is set after the check; otherwise a request would reopen an expired session.
        if origin == RequestOrigin::Person {
            entry.used_ms = now_ms;
        }
        Some(entry.session.clone())
    }

    /// Whether a login is still open. This does not count as use, or an open live page would keep its session forever.
    pub(crate) fn is_open(&self, login: &str, now_ms: u64) -> bool {
        self.lock()
            .values()
            .any(|entry| entry.session.login == login && entry.is_open(now_ms))
    }

    /// Ends the session with this secret.
    pub(crate) fn end(&self, secret: &str) {
        self.lock().remove(&Sha256Digest::of(secret.as_bytes()));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Sha256Digest, SessionEntry>> {
        // Every change is one insertion or removal, so a poisoned map is still whole.
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// 256 random bits, for URLs and cookies.
pub(crate) fn random_text() -> String {
    URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>())
}

#[cfg(test)]
mod tests {
    use super::*;

    const START_MS: u64 = 1_800_000_000_000;

    #[test]
    fn a_session_ends_when_it_is_idle_and_at_its_greatest_age() {
        let sessions = SessionStore::default();
        let (secret, session) = sessions.begin(ConsoleRole::Act, None, START_MS);
        assert_eq!(
            sessions.find(&secret, RequestOrigin::Person, START_MS),
            Some(session.clone())
        );
        assert_eq!(
            sessions.find("other", RequestOrigin::Person, START_MS),
            None
        );
        let hour_ms = 3_600_000;
        // The session is used every hour, so that only its age ends it.
        for hour in 1..=12 {
            assert!(
                sessions
                    .find(&secret, RequestOrigin::Person, START_MS + hour * hour_ms)
                    .is_some()
            );
        }
        assert!(!sessions.is_open(&session.login, START_MS + 13 * hour_ms));
        assert_eq!(
            sessions.find(&secret, RequestOrigin::Person, START_MS + 13 * hour_ms),
            None
        );
        let (secret, _) = sessions.begin(ConsoleRole::Act, None, START_MS);
        assert_eq!(
            sessions.find(&secret, RequestOrigin::Person, START_MS + 3 * hour_ms),
            None
        );
    }

    #[test]
    fn a_session_ends_when_the_clock_is_set_back_by_more_than_a_minute() {
        let sessions = SessionStore::default();
        let (secret, _) = sessions.begin(ConsoleRole::Act, None, START_MS);
        for (step_ms, is_open) in [(60_000, true), (61_000, false)] {
            let found = sessions.find(&secret, RequestOrigin::OpenPage, START_MS - step_ms);
            assert_eq!(found.is_some(), is_open, "{step_ms}");
        }
    }

    #[test]
    fn requests_of_an_open_page_do_not_keep_a_session() {
        let sessions = SessionStore::default();
        let (secret, _) = sessions.begin(ConsoleRole::Act, None, START_MS);
        let minute_ms = 60_000;
        let find = |minute: u64| {
            let now_ms = START_MS + minute * minute_ms;
            sessions.find(&secret, RequestOrigin::OpenPage, now_ms)
        };
        assert!((1..=120).all(|minute| find(minute).is_some()));
        assert_eq!(find(121), None);
    }

    #[test]
    fn logins_have_secrets_and_form_tokens_of_their_own() {
        let sessions = SessionStore::default();
        let (first, one) = sessions.begin(ConsoleRole::Act, None, START_MS);
        let (second, two) = sessions.begin(ConsoleRole::Act, None, START_MS);
        assert_ne!(first, second);
        assert_ne!(one.login, two.login);
        assert!(one.has_token(&one.form_token()));
        assert!(!one.has_token(&two.form_token()) && !one.has_token(""));
        sessions.end(&first);
        assert_eq!(sessions.find(&first, RequestOrigin::Person, START_MS), None);
        assert_eq!(
            sessions.find(&second, RequestOrigin::Person, START_MS),
            Some(two)
        );
    }

    #[test]
    fn no_two_pages_have_the_same_text_of_the_form_secret() {
        let (_, session) = SessionStore::default().begin(ConsoleRole::Act, None, START_MS);
        let (first, second) = (session.form_token(), session.form_token());
        assert!(session.has_token(&first) && session.has_token(&second));
        let bytes = |token: &str| URL_SAFE_NO_PAD.decode(token).unwrap();
        let (first_bytes, second_bytes) = (bytes(&first), bytes(&second));
        // Neither half repeats, so that no part of the secret is the same on two pages.
        assert_ne!(first_bytes[..SECRET_BYTES], second_bytes[..SECRET_BYTES]);
        assert_ne!(first_bytes[SECRET_BYTES..], second_bytes[SECRET_BYTES..]);
        let secret = URL_SAFE_NO_PAD.encode(session.form_secret);
        for forged in [
            &secret,
            &first[1..],
            &format!("{first}AAAA"),
            "ü",
            "=",
            &"A".repeat(86),
        ] {
            assert!(!session.has_token(forged), "{forged}");
        }
    }

    #[test]
    fn the_session_that_was_idle_longest_is_removed() {
        let sessions = SessionStore::default();
        let (first, _) = sessions.begin(ConsoleRole::Look, None, START_MS);
        let (second, _) = sessions.begin(ConsoleRole::Look, None, START_MS + 1);
        assert!(
            sessions
                .find(&first, RequestOrigin::Person, START_MS + 2)
                .is_some()
        );
        for offset_ms in 0..63 {
            sessions.begin(ConsoleRole::Look, None, START_MS + 10 + offset_ms);
        }
        assert!(
            sessions
                .find(&first, RequestOrigin::Person, START_MS + 100)
                .is_some()
        );
        assert!(
            sessions
                .find(&second, RequestOrigin::Person, START_MS + 100)
                .is_none()
        );
    }
}
