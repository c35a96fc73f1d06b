//! Authentication of callers over HTTP, and their permissions.
//!
//! A request carries one bearer token: a static one of the operator ([`StaticToken`]), or a JWT of the authorization
//! server ([`OAuthOptions`]). Tenant, session and scopes come from it and never from an argument. The server is a
//! resource server of OAuth 2.1: it checks tokens and issues none.

mod challenge;
mod file;
mod keys;
mod layer;
mod scope;
mod session_id;
mod source;
mod token;

use std::sync::Arc;

use dray_jwt::KeyCache;
use dray_types::{Clock, SessionId, TenantId};

use crate::ServiceClient;

pub(crate) use challenge::metadata_router;
pub use file::AuthFileError;
pub use keys::KeyLocation;
pub(crate) use layer::{AuthLayer, check_request};
pub(crate) use scope::required_scopes;
pub use scope::{Scope, ScopeSet, UnknownScope};
pub use token::{BearerToken, InvalidToken};

use keys::LocatedKeys;
use token::OAuthVerifier;

/// A caller, from its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The tenant whose data the tools see.
    pub tenant: TenantId,
    /// The session whose sandbox and chat the tools use.
    pub session: SessionId,
    /// The permissions of the caller.
    pub scopes: ScopeSet,
    /// Owner of the session of the protocol. Another subject cannot use it, even with the same tenant and session.
    pub subject: String,
    /// Unix milliseconds after which the token is invalid; `None` for static tokens.
    pub expires_at_ms: Option<u64>,
}

/// A static bearer token and its permissions.
#[derive(Clone, Debug)]
pub struct StaticToken {
    /// The secret.
    pub token: BearerToken,
    /// The caller that the token identifies.
    pub caller: Caller,
}

/// The authorization server whose tokens are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OAuthOptions {
    /// Identifier of the server, compared with `iss` byte for byte.
    pub issuer: String,
    /// The URL of this endpoint for clients: the `resource` of RFC 9728.
    pub resource: String,
    /// Values of `aud` of which a token needs one. The resource is among them unless the operator names others.
    pub audiences: Vec<String>,
    /// Location of the server's key set.
    pub keys: KeyLocation,
    /// Name of the claim whose value is the tenant.
    pub tenant_claim: String,
    /// The tenant for tokens without one; `None` refuses such tokens.
    pub default_tenant: Option<TenantId>,
    /// The claim with the session. For a token without it, the session is derived from its subject.
    pub session_claim: String,
}

/// Rules for the tokens that the endpoint accepts.
#[derive(Clone, Debug, Default)]
pub struct AuthOptions {
    /// Static tokens.
    pub tokens: Vec<StaticToken>,
    /// The authorization server.
    pub oauth: Option<OAuthOptions>,
}

/// Two accepted tokens have the same secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another token has the same secret")]
pub struct DuplicateToken;

impl AuthOptions {
    /// Accepts one more static token.
    ///
    /// # Errors
    ///
    /// A token with this secret is accepted already. That one would always win, and the rights of the other would
    /// silently never apply.
    pub fn add_token(&mut self, token: StaticToken) -> Result<(), DuplicateToken> {
        if self.tokens.iter().any(|other| other.token == token.token) {
            return Err(DuplicateToken);
        }
        self.tokens.push(token);
        Ok(())
    }

    /// Whether requests need a token.
    pub fn is_required(&self) -> bool {
        !self.tokens.is_empty() || self.oauth.is_some()
    }
}

/// Checks the tokens of requests.
#[derive(Clone, Debug)]
pub(crate) struct Authenticator {
    pub(crate) tokens: Arc<Vec<StaticToken>>,
    pub(crate) verifier: Option<Arc<OAuthVerifier>>,
}

impl Authenticator {
    /// `client` fetches the keys of the authorization server, under the operator's own tenant.
    pub(crate) fn new(options: &AuthOptions, client: Option<&ServiceClient>) -> Self {
        let clock = client.map_or_else(Clock::system, |client| client.clock.clone());
        let verifier = options.oauth.as_ref().map(|oauth| {
            let source = LocatedKeys {
                location: oauth.keys.clone(),
                client: client.cloned(),
            };
            let keys = KeyCache::new(Arc::new(source), clock);
            Arc::new(OAuthVerifier::new(oauth.clone(), keys))
        });
        Self {
            tokens: Arc::new(options.tokens.clone()),
            verifier,
        }
    }
}
