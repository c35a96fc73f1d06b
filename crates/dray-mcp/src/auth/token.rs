//! Bearer tokens: static ones, and JWT of the authorization server.

use std::fmt;

use dray_jwt::{ClaimRules, KeyCache, TokenClaims, TokenError, TokenVerifier};
use dray_types::{Clock, SessionId, Sha256Digest, TenantId};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::scope::ScopeSet;
use super::{Caller, OAuthOptions};

/// Shortest static token that is accepted.
const MIN_TOKEN_CHARACTERS: usize = 16;
/// A secret that clients send as `Authorization: Bearer`.
#[derive(Clone, PartialEq, Eq)]
pub struct BearerToken {
    /// Compared instead of the token, so that the time of a comparison reveals nothing about it.
    digest: [u8; 32],
}

/// The text is too short for a token, or has characters that a header cannot carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a bearer token has at least {MIN_TOKEN_CHARACTERS} printable ASCII characters without blanks"
)]
pub struct InvalidToken;

impl BearerToken {
    /// Hashes a token.
    ///
    /// # Errors
    ///
    /// The token is too short, or not printable ASCII.
    pub fn new(token: &str) -> Result<Self, InvalidToken> {
        if token.len() < MIN_TOKEN_CHARACTERS || !token.bytes().all(|byte| byte.is_ascii_graphic())
        {
            return Err(InvalidToken);
        }
        Ok(Self {
            digest: Sha256::digest(token).into(),
        })
    }

    /// The token with this SHA-256, for configurations without secrets.
    pub fn from_digest(digest: Sha256Digest) -> Self {
        Self {
            digest: *digest.as_bytes(),
        }
    }

    pub(super) fn admits(&self, token: &str) -> bool {
        let digest: [u8; 32] = Sha256::digest(token).into();
        digest == self.digest
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken(***)")
    }
}

/// Scopes in a token of some servers: a list, or a text.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum ScopeClaim {
    Text(String),
    List(Vec<String>),
}

/// Checks JWT of one authorization server.
#[derive(Debug)]
pub(crate) struct OAuthVerifier {
    options: OAuthOptions,
    verifier: TokenVerifier,
}

impl OAuthVerifier {
    pub(super) fn new(options: OAuthOptions, keys: KeyCache) -> Self {
        let rules = ClaimRules {
            issuer: options.issuer.clone(),
            audiences: options.audiences.clone(),
        };
        Self {
            options,
            // Times in tokens come from the authorization server, so they are compared with the clock of the system.
            verifier: TokenVerifier::new(rules, keys, Clock::system()),
        }
    }

    pub(super) fn options(&self) -> &OAuthOptions {
        &self.options
    }

    /// The caller that a token names.
    pub(super) async fn verify(&self, token: &str) -> Result<Caller, TokenError> {
        let claims = self.verifier.verify(token).await?;
        self.caller(&claims)
    }

    fn caller(&self, claims: &TokenClaims) -> Result<Caller, TokenError> {
        let options = &self.options;
        let tenant = match claims.text_claim(&options.tenant_claim)? {
            Some(tenant) => TenantId::new(tenant).ok(),
            None => options.default_tenant.clone(),
        };
        let tenant = tenant.ok_or(TokenError::Invalid("the token names no tenant"))?;
        // Each subject has a separate session: the operator decides which callers share a sandbox or a chat.
        let subject = Sha256Digest::of(format!("{}\0{}", claims.issuer, claims.subject).as_bytes());
        let session = match claims.text_claim(&options.session_claim)? {
            Some(session) => SessionId::new(session),
            None => SessionId::new(format!("oauth-{}", subject.to_hex().split_at(32).0)),
        };
        let session =
            session.map_err(|_| TokenError::Invalid("the session of the token is not valid"))?;
        Ok(Caller {
            tenant,
            session,
            scopes: token_scopes(claims)?,
            subject: format!("oauth:{subject}"),
            expires_at_ms: Some(claims.expires_at_ms),
        })
    }
}

/// The scopes in `scope` (RFC 8693 section 4.2), and in `scp` of some servers.
fn token_scopes(claims: &TokenClaims) -> Result<ScopeSet, TokenError> {
    let invalid = |_| TokenError::Invalid("the scopes of the token are not valid");
    let listed = match claims.all.get("scp") {
        None | Some(Value::Null) => String::new(),
        Some(value) => match ScopeClaim::deserialize(value).map_err(invalid)? {
            ScopeClaim::Text(text) => text,
            ScopeClaim::List(names) => names.join(" "),
        },
    };
    let scopes = claims.text_claim("scope")?.unwrap_or_default();
    Ok(ScopeSet::from_list(scopes).union(ScopeSet::from_list(&listed)))
}
