//! Tokens that identify a client of the forward proxy: its tenant, session and app, and an expiry. The proxy verifies
//! them; the service that starts programs in sandboxes makes them, with the same key.
//!
//! A token is its claims with an HMAC-SHA-256 under a key of the operator's configuration, so every replica verifies it
//! without shared state. Its holder acts as that session. A token cannot be revoked before it expires, and the holder
//! of the key can make one for any tenant. It is not encrypted.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use dray_types::{AppId, Secret, SessionId, TenantId};
use hmac::{Hmac, Mac as _};
use http::HeaderValue;
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::{AppPolicy, Caller};

/// Prefix of every token. The number changes with the form of the claims.
const TOKEN_PREFIX: &str = "dray1";
/// Fewest bytes of a key (RFC 2104, section 3: the length of the hash).
pub const MIN_KEY_BYTES: usize = 32;
/// Longest token that SOCKS5 can carry as a password (RFC 1929).
pub const MAX_SOCKS_TOKEN_BYTES: usize = 255;
/// Longest token in bytes. A token with too many hosts is refused when it is made.
pub const MAX_TOKEN_BYTES: usize = 4096;

/// A client of the proxy, identified by a token, a client certificate or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyIdentity {
    /// The tenant, whose limits and audit stream are used.
    pub tenant: TenantId,
    /// The session of the sandbox.
    pub session: SessionId,
    /// The app of the session, when it has one.
    pub app: Option<AppId>,
    /// Unix seconds at which the identity expires and its tunnels end.
    pub expires_s: u64,
    /// Hosts that the session may reach, as in an app's policy; `None` adds no limit (P-1).
    pub allow: Option<Vec<String>>,
    /// Name of its client certificate; `None` without one. A token does not contain it.
    pub certificate: Option<String>,
}

impl ProxyIdentity {
    /// The policy of the session, which can only narrow the operator's (C-3).
    pub fn policy(&self) -> AppPolicy {
        AppPolicy {
            enabled: None,
            host_allowlist: self.allow.clone(),
        }
    }

    /// The caller, for the rules of the policy files.
    pub fn caller(&self) -> Caller {
        Caller {
            tenant: self.tenant.to_string(),
            session: self.session.to_string(),
            app: self
                .app
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
            certificate: self.certificate.clone().unwrap_or_default(),
        }
    }
}

/// Claims as a token carries them: JSON with names of one letter, because the password of SOCKS5 has at most 255 bytes
/// (RFC 1929).
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenClaims {
    #[serde(rename = "t")]
    tenant: String,
    #[serde(rename = "s")]
    session: String,
    #[serde(rename = "a", default, skip_serializing_if = "Option::is_none")]
    app: Option<String>,
    #[serde(rename = "e")]
    expires_s: u64,
    #[serde(rename = "h", default, skip_serializing_if = "Option::is_none")]
    allow: Option<Vec<String>>,
}

/// The reason why a client is not identified. Only the operator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The client sent no credentials.
    #[error("no credentials were given")]
    Missing,
    /// The text is not a token, or none of the keys made it.
    #[error("the token is not valid")]
    Invalid,
    /// The token has expired.
    #[error("the token has expired")]
    Expired,
    /// Token and client certificate belong to different tenants.
    #[error("the token is of another tenant than the client certificate")]
    OtherTenant,
}

/// A token that cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MintError {
    /// The key is shorter than [`MIN_KEY_BYTES`].
    #[error("the key of tokens needs at least {MIN_KEY_BYTES} bytes")]
    ShortKey,
    /// More than [`MAX_TOKEN_BYTES`].
    #[error("the token would be longer than {MAX_TOKEN_BYTES} bytes; name fewer hosts")]
    TooLong,
}

/// Keys of tokens. The current key makes and verifies them; while the keys are changed, the previous one also verifies.
#[derive(Clone)]
pub struct TokenKeys {
    current: Hmac<Sha256>,
    previous: Option<Hmac<Sha256>>,
}

impl std::fmt::Debug for TokenKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenKeys").finish_non_exhaustive()
    }
}

impl TokenKeys {
    /// Creates the message authentication codes of the keys.
    ///
    /// # Errors
    ///
    /// [`MintError::ShortKey`] for either key.
    pub fn new(current: &Secret, previous: Option<&Secret>) -> Result<Self, MintError> {
        Ok(Self {
            current: keyed_mac(current)?,
            previous: previous.map(keyed_mac).transpose()?,
        })
    }

    /// Makes the token of an identity. The caller decides who gets it; nothing is checked here.
    ///
    /// # Errors
    ///
    /// [`MintError::TooLong`].
    pub fn mint(&self, identity: &ProxyIdentity) -> Result<String, MintError> {
        let claims = TokenClaims {
            tenant: identity.tenant.to_string(),
            session: identity.session.to_string(),
            app: identity.app.as_ref().map(ToString::to_string),
            expires_s: identity.expires_s,
            allow: identity.allow.clone(),
        };
        let claims = serde_json::to_vec(&claims).map_err(|_| MintError::TooLong)?;
        let signed = format!("{TOKEN_PREFIX}.{}", URL_SAFE_NO_PAD.encode(claims));
        let code = self.current.clone().chain_update(&signed).finalize();
        let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(code.into_bytes()));
        if token.len() > MAX_TOKEN_BYTES {
            return Err(MintError::TooLong);
        }
        Ok(token)
    }

    /// Verifies a token at `now_ms` (Unix milliseconds).
    ///
    /// # Errors
    ///
    /// [`IdentityError::Invalid`] and [`IdentityError::Expired`].
    pub fn verify(&self, token: &[u8], now_ms: u64) -> Result<ProxyIdentity, IdentityError> {
        let identity = self.read(token).ok_or(IdentityError::Invalid)?;
        if now_ms / 1000 >= identity.expires_s {
            return Err(IdentityError::Expired);
        }
        Ok(identity)
    }

    fn read(&self, token: &[u8]) -> Option<ProxyIdentity> {
        if token.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let token = std::str::from_utf8(token).ok()?;
        let (signed, code) = token.rsplit_once('.')?;
        let code = URL_SAFE_NO_PAD.decode(code).ok()?;
        // The signature is compared in constant time against timing attacks, and before any claim is read.
        let keys = std::iter::once(&self.current).chain(&self.previous);
        let is_ours = keys
            .map(|key| key.clone().chain_update(signed).verify_slice(&code).is_ok())
            .fold(false, |is_verified, is_match| is_verified | is_match);
        if !is_ours {
            return None;
        }
        let claims = signed.strip_prefix(TOKEN_PREFIX)?.strip_prefix('.')?;
        let claims: TokenClaims =
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
        Some(ProxyIdentity {
            tenant: TenantId::new(claims.tenant).ok()?,
            session: SessionId::new(claims.session).ok()?,
            app: claims.app.map(AppId::new).transpose().ok()?,
            expires_s: claims.expires_s,
            allow: claims.allow,
            certificate: None,
        })
    }
}

fn keyed_mac(key: &Secret) -> Result<Hmac<Sha256>, MintError> {
    let key = key.expose().as_bytes();
    if key.len() < MIN_KEY_BYTES {
        return Err(MintError::ShortKey);
    }
    Hmac::new_from_slice(key).map_err(|_| MintError::ShortKey)
}

/// Finds the token in the value of `Proxy-Authorization`: that of `Bearer`, or the password of `Basic`, whose user name
/// may be any (RFC 6750, RFC 7617).
///
/// # Errors
///
/// [`IdentityError::Missing`] without a field, [`IdentityError::Invalid`] for any other scheme or form.
pub fn token_of(field: Option<&HeaderValue>) -> Result<Vec<u8>, IdentityError> {
    let field = field.ok_or(IdentityError::Missing)?;
    let text = field.to_str().map_err(|_| IdentityError::Invalid)?;
    let (scheme, value) = text.split_once(' ').ok_or(IdentityError::Invalid)?;
    let value = value.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Ok(value.as_bytes().to_vec());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(IdentityError::Invalid);
    }
    let decoded = STANDARD.decode(value).map_err(|_| IdentityError::Invalid)?;
    let colon = decoded.iter().position(|byte| *byte == b':');
    let password = colon.and_then(|colon| decoded.get(colon + 1..));
    password.map(<[u8]>::to_vec).ok_or(IdentityError::Invalid)
}

#[cfg(test)]
mod tests;
