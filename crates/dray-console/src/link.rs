//! Login links: single-use URLs that a person opens to get a session.
//!
//! A link is signed with a key that is derived from the configuration of the store, so that `dray console link` can make
//! a link for a console that runs elsewhere.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dray_store::DerivedKeys;
use dray_types::{TenantId, whole_millis};
use ring::hmac;

use crate::settings::ConsoleRole;

/// Purpose of the key of login links, for [`dray_store::Store::derive_keys`].
pub const LINK_KEY_PURPOSE: &str = "log in to the console";
/// How long a link can be used.
pub const LINK_LIFETIME: Duration = Duration::from_mins(10);

/// How far ahead the clock of the machine that made a link may be. Such a link works when the clock of the console has
/// reached its time.
const MAX_CLOCK_SKEW: Duration = Duration::from_mins(1);
/// Used links that are remembered until they expire.
const MAX_USED_LINKS: usize = 1024;
/// Longest text of a link's token, in bytes; the tenant takes at most 64 of them.
const MAX_TOKEN_BYTES: usize = 256;

/// The content of a login link before it is signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginLink {
    role: ConsoleRole,
    tenant: String,
    issued_ms: u64,
    nonce: String,
}

/// The reason why a link does not log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("This login link is not valid for this console.")]
    Invalid,
    #[error("This login link is older than 10 minutes, or older than this console.")]
    Expired,
    #[error(
        "The clock of the machine that made this login link is ahead of this console. Open the link again in {seconds} \
         seconds."
    )]
    Early { seconds: u64 },
    #[error("This login link was used before. A link works once.")]
    Used,
    #[error("This console does not let anyone act; make a link with the role `look`.")]
    RoleNotOffered,
}

impl LoginLink {
    /// A link for one login with this role to the console of this tenant, made at `now_ms` (Unix milliseconds).
    pub fn new(tenant: &TenantId, role: ConsoleRole, now_ms: u64) -> Self {
        Self {
            role,
            tenant: tenant.token(),
            issued_ms: now_ms,
            nonce: URL_SAFE_NO_PAD.encode(rand::random::<[u8; 16]>()),
        }
    }

    /// The URL to open; `base_url` is that of the console. Anyone who has the URL can log in once.
    pub fn url(&self, base_url: &str, key: &[u8; 32]) -> String {
        let base_url = base_url.trim_end_matches('/');
        format!("{base_url}/login?token={}", self.token(key))
    }

    fn token(&self, key: &[u8; 32]) -> String {
        let payload = self.payload();
        let signature = hmac::sign(&signing_key(key), payload.as_bytes());
        let signature = URL_SAFE_NO_PAD.encode(signature);
        format!("{payload}.{signature}")
    }

    /// No part contains a dot: the token of a tenant consists of `[a-z0-9_-]`.
    fn payload(&self) -> String {
        let Self {
            role,
            tenant,
            issued_ms,
            nonce,
        } = self;
        format!("{role}.{tenant}.{issued_ms}.{nonce}")
    }

    /// Reads a token that this key signed.
    fn read(token: &str, key: &[u8; 32]) -> Option<Self> {
        if token.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let (payload, signature) = token.rsplit_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        // Compares in constant time, and before anything of the text is trusted.
        hmac::verify(&signing_key(key), payload.as_bytes(), &signature).ok()?;
        let mut parts = payload.split('.');
        let link = Self {
            role: parts.next()?.parse().ok()?,
            tenant: parts.next()?.to_owned(),
            issued_ms: parts.next()?.parse().ok()?,
            nonce: parts.next()?.to_owned(),
        };
        parts.next().is_none().then_some(link)
    }
}

fn signing_key(key: &[u8; 32]) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, key)
}

/// Verifies login links, and accepts each of them once.
pub(crate) struct LinkVerifier {
    keys: DerivedKeys,
    tenant: String,
    highest_role: ConsoleRole,
    started_ms: u64,
    /// Nonces of used links with the instant at which they expire.
    used: Mutex<HashMap<String, u64>>,
}

impl LinkVerifier {
    pub(crate) fn new(
        keys: DerivedKeys,
        tenant: &TenantId,
        highest_role: ConsoleRole,
        started_ms: u64,
    ) -> Self {
        Self {
            keys,
            tenant: tenant.token(),
            highest_role,
            started_ms,
            used: Mutex::default(),
        }
    }

    /// Verifies a link and marks it as used, so that it is refused from then on.
    pub(crate) fn redeem(&self, token: &str, now_ms: u64) -> Result<ConsoleRole, LinkError> {
        let mut keys = self.keys.accepted();
        let link = keys.find_map(|key| LoginLink::read(token, key));
        let link = link.ok_or(LinkError::Invalid)?;
        // Consoles of several tenants may share the credentials of one store.
        if link.tenant != self.tenant {
            return Err(LinkError::Invalid);
        }
        let early_ms = link.issued_ms.saturating_sub(now_ms);
        let expires_ms = link.issued_ms.saturating_add(whole_millis(LINK_LIFETIME));
        // A restarted console does not know which links were used, so it refuses links from before its start.
        let is_older = link.issued_ms < self.started_ms;
        let is_far_ahead = early_ms > whole_millis(MAX_CLOCK_SKEW);
        if now_ms > expires_ms || is_older || is_far_ahead {
            return Err(LinkError::Expired);
        }
        // A used link must be from before any later start, or it would work again after one.
        if early_ms > 0 {
            return Err(LinkError::Early {
                seconds: early_ms.div_ceil(1000),
            });
        }
        // The role is checked after the age, so that only the holder of a link that could work learns about roles.
        if link.role > self.highest_role {
            return Err(LinkError::RoleNotOffered);
        }
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.retain(|_, expires_ms| now_ms <= *expires_ms);
        // Only signed links come this far, so a full table means that a holder of the key makes too many links.
        if used.contains_key(&link.nonce) || used.len() >= MAX_USED_LINKS {
            return Err(LinkError::Used);
        }
        used.insert(link.nonce, expires_ms);
        Ok(link.role)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK_KEY: [u8; 32] = [7; 32];
    const START_MS: u64 = 1_800_000_000_000;

    fn verifier(highest_role: ConsoleRole) -> LinkVerifier {
        LinkVerifier::new(
            LINK_KEY.into(),
            &TenantId::default(),
            highest_role,
            START_MS,
        )
    }

    fn token_at(role: ConsoleRole, now_ms: u64) -> String {
        LoginLink::new(&TenantId::default(), role, now_ms).token(&LINK_KEY)
    }

    #[test]
    fn a_link_logs_in_once() {
        let verifier = verifier(ConsoleRole::Act);
        let token = token_at(ConsoleRole::Act, START_MS);
        assert_eq!(verifier.redeem(&token, START_MS), Ok(ConsoleRole::Act));
        assert_eq!(verifier.redeem(&token, START_MS), Err(LinkError::Used));
        let other = token_at(ConsoleRole::Look, START_MS);
        assert_eq!(verifier.redeem(&other, START_MS), Ok(ConsoleRole::Look));
    }

    #[test]
    fn a_link_expires_and_does_not_outlive_a_restart_of_the_console() {
        let verifier = verifier(ConsoleRole::Act);
        let lifetime_ms = whole_millis(LINK_LIFETIME);
        let token = token_at(ConsoleRole::Look, START_MS);
        assert_eq!(
            verifier.redeem(&token, START_MS + lifetime_ms + 1),
            Err(LinkError::Expired)
        );
        assert_eq!(
            verifier.redeem(&token, START_MS + lifetime_ms),
            Ok(ConsoleRole::Look)
        );
        let earlier = token_at(ConsoleRole::Look, START_MS - 1);
        assert_eq!(verifier.redeem(&earlier, START_MS), Err(LinkError::Expired));
        let future = token_at(ConsoleRole::Look, START_MS + 10 * 60_000);
        assert_eq!(verifier.redeem(&future, START_MS), Err(LinkError::Expired));
    }

    #[test]
    fn a_used_link_of_a_clock_that_is_ahead_does_not_work_after_a_restart() {
        let issued_ms = START_MS + 50_000;
        let token = token_at(ConsoleRole::Act, issued_ms);
        let before = verifier(ConsoleRole::Act);
        assert_eq!(
            before.redeem(&token, START_MS + 500),
            Err(LinkError::Early { seconds: 50 })
        );
        assert_eq!(before.redeem(&token, issued_ms), Ok(ConsoleRole::Act));
        let started_ms = issued_ms + 1;
        let after = LinkVerifier::new(
            LINK_KEY.into(),
            &TenantId::default(),
            ConsoleRole::Act,
            started_ms,
        );
        assert_eq!(after.redeem(&token, started_ms), Err(LinkError::Expired));
    }

    #[test]
    fn a_changed_link_and_one_of_another_key_or_tenant_are_refused() {
        let verifier = verifier(ConsoleRole::Act);
        let token = token_at(ConsoleRole::Look, START_MS);
        let raised = token.replacen("look", "act", 1);
        let other_key = LoginLink::new(&TenantId::default(), ConsoleRole::Look, START_MS);
        let other_tenant =
            LoginLink::new(&TenantId::new("acme").unwrap(), ConsoleRole::Look, START_MS);
        for refused in [
            raised,
            other_key.token(&[8; 32]),
            other_tenant.token(&LINK_KEY),
            format!("{token}x"),
            token.trim_end_matches(|letter| letter != '.').to_owned(),
            String::new(),
            "a".repeat(10_000),
        ] {
            assert_eq!(
                verifier.redeem(&refused, START_MS),
                Err(LinkError::Invalid),
                "{refused}"
            );
        }
        assert_eq!(verifier.redeem(&token, START_MS), Ok(ConsoleRole::Look));
    }

    #[test]
    fn a_read_only_console_accepts_no_link_for_actions() {
        let verifier = verifier(ConsoleRole::Look);
        let token = token_at(ConsoleRole::Act, START_MS);
        assert_eq!(
            verifier.redeem(&token, START_MS),
            Err(LinkError::RoleNotOffered)
        );
    }
}
