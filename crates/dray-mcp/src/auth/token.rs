//! Bearer tokens: static ones, and JWT of the authorization server.

use std::fmt;

use dray_types::{SessionId, Sha256Digest, TenantId};
use jsonwebtoken::{Algorithm, Validation};
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::keys::{KeyCache, KeyError};
use super::scope::ScopeSet;
use super::signature::install_provider;
use super::{Caller, OAuthOptions};

/// Shortest static token that is accepted.
const MIN_TOKEN_CHARACTERS: usize = 16;
/// Longest token that is looked at, in bytes.
const MAX_TOKEN_BYTES: usize = 16 * 1024;
/// Longest `kid` that is looked up, in bytes.
const MAX_KEY_ID_BYTES: usize = 512;
/// By how much the clocks of the two servers may differ, in seconds.
const CLOCK_LEEWAY_SECONDS: u64 = 60;
/// Algorithms of tokens: those with a public key.
const ALLOWED_ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

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
    /// It is too short, or not printable ASCII.
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

/// Why a token does not count. The texts go to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TokenError {
    /// The token is not valid (RFC 6750 section 3.1).
    #[error("{0}")]
    Invalid(&'static str),
    /// The token cannot be verified now.
    #[error("the keys of the authorization server are not available right now")]
    KeysUnavailable,
}

/// The claims that are read. Others are in `further`.
#[derive(Debug, Deserialize)]
struct TokenClaims {
    iss: String,
    sub: String,
    exp: f64,
    /// RFC 8693 section 4.2.
    #[serde(default)]
    scope: Option<String>,
    /// The same in tokens of some servers: a list, or a text.
    #[serde(default)]
    scp: Option<ScopeClaim>,
    #[serde(flatten)]
    further: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum ScopeClaim {
    Text(String),
    List(Vec<String>),
}

impl TokenClaims {
    fn scopes(&self) -> ScopeSet {
        let list = match &self.scp {
            Some(ScopeClaim::Text(text)) => text.clone(),
            Some(ScopeClaim::List(names)) => names.join(" "),
            None => String::new(),
        };
        let scopes = ScopeSet::from_list(self.scope.as_deref().unwrap_or_default());
        scopes.union(ScopeSet::from_list(&list))
    }
}

/// Checks JWT of one authorization server.
#[derive(Debug)]
pub(crate) struct TokenVerifier {
    options: OAuthOptions,
    keys: KeyCache,
}

impl TokenVerifier {
    pub(super) fn new(options: OAuthOptions, keys: KeyCache) -> Self {
        install_provider();
        Self { options, keys }
    }

    pub(super) fn options(&self) -> &OAuthOptions {
        &self.options
    }

    /// The caller that a token names.
    pub(super) async fn verify(&self, token: &str) -> Result<Caller, TokenError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(TokenError::Invalid("the token is too long"));
        }
        let header = jsonwebtoken::decode_header(token)
            .map_err(|_| TokenError::Invalid("the token is not a JWT with a known algorithm"))?;
        if !ALLOWED_ALGORITHMS.contains(&header.alg) {
            return Err(TokenError::Invalid(
                "the algorithm of the token is not accepted",
            ));
        }
        // RFC 7515 section 4.1.11: extensions that are not understood.
        if header.crit.is_some() {
            return Err(TokenError::Invalid(
                "the token needs an extension that is not known",
            ));
        }
        let id = header.kid.as_deref();
        if id.is_some_and(|id| id.len() > MAX_KEY_ID_BYTES) {
            return Err(TokenError::Invalid("the key id of the token is too long"));
        }
        // Only the id is used from the header, because the sender controls keys and URLs of keys in it (`jwk`, `jku`,
        // `x5u`).
        let key = self
            .keys
            .find(id, header.alg)
            .await
            .map_err(|error| match error {
                KeyError::Unknown => TokenError::Invalid("the key of the token is not known"),
                KeyError::Unavailable => TokenError::KeysUnavailable,
            })?;
        let validation = self.validation(header.alg);
        let claims = jsonwebtoken::decode::<TokenClaims>(token, &key, &validation)
            .map_err(|error| TokenError::Invalid(refusal(&error)))?
            .claims;
        self.caller(&claims)
    }

    fn validation(&self, algorithm: Algorithm) -> Validation {
        // One algorithm: the library wants all of them to be of the family of the key.
        let mut validation = Validation::new(algorithm);
        validation.leeway = CLOCK_LEEWAY_SECONDS;
        validation.validate_nbf = true;
        validation.set_issuer(&[&self.options.issuer]);
        validation.set_audience(&self.options.audiences);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation
    }

    fn caller(&self, claims: &TokenClaims) -> Result<Caller, TokenError> {
        let options = &self.options;
        let text = |name: &str| match claims.further.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str())),
            Some(_) => Err(TokenError::Invalid("a claim of the token is not a text")),
        };
        let tenant = match text(&options.tenant_claim)? {
            Some(tenant) => TenantId::new(tenant).ok(),
            None => options.default_tenant.clone(),
        };
        let tenant = tenant.ok_or(TokenError::Invalid("the token names no tenant"))?;
        // A separate session per subject: the operator decides which callers share a sandbox or a chat.
        let subject = Sha256Digest::of(format!("{}\0{}", claims.iss, claims.sub).as_bytes());
        let session = match text(&options.session_claim)? {
            Some(session) => SessionId::new(session),
            None => SessionId::new(format!("oauth-{}", subject.to_hex().split_at(32).0)),
        };
        let session =
            session.map_err(|_| TokenError::Invalid("the session of the token is not valid"))?;
        Ok(Caller {
            tenant,
            session,
            scopes: claims.scopes(),
            subject: format!("oauth:{subject}"),
            expires_at_ms: Some(expiry_ms(claims.exp)),
        })
    }
}

fn expiry_ms(seconds: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "such a cast is within the range, and the leeway is larger than what it rounds"
    )]
    let seconds = seconds as u64;
    seconds
        .saturating_add(CLOCK_LEEWAY_SECONDS)
        .saturating_mul(1_000)
}

fn refusal(error: &jsonwebtoken::errors::Error) -> &'static str {
    use jsonwebtoken::errors::ErrorKind;
    match error.kind() {
        ErrorKind::ExpiredSignature => "the token has expired",
        ErrorKind::ImmatureSignature => "the token is not valid yet",
        ErrorKind::InvalidIssuer => "the token is of another issuer",
        ErrorKind::InvalidAudience => "the token is for another audience",
        ErrorKind::InvalidSignature => "the signature of the token is not valid",
        ErrorKind::MissingRequiredClaim(_) => "the token lacks a claim: iss, aud, exp, sub",
        _ => "the token is not valid",
    }
}
