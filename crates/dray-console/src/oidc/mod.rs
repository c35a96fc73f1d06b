//! Login through an identity provider: OpenID Connect Core 1.0, the authorization code flow (section 3.1) with PKCE
//! (RFC 7636), `state`, `nonce` and the issuer in the response (RFC 9207).
//!
//! [`OidcLogin`] begins an attempt and completes it; [`routes`] are its pages. The provider is an address of the
//! operator, so requests go to it directly and not through egress-fetcher, which sends no client secrets.

mod attempt;
mod error;
mod exchange;
mod identity;
mod own_path;
mod provider;
mod routes;
mod settings;
mod userinfo;

use std::sync::Arc;

use dray_jwt::{ClaimRules, KeyCache, TokenVerifier};
use dray_types::{Clock, Secret};
use http::HeaderMap;
use subtle::ConstantTimeEq as _;
use url::Url;

pub(crate) use self::own_path::OwnPath;
pub(crate) use self::routes::{
    BEGIN_PATH, LOGOUT_RETURN_PATH, RETURN_PATH, begin_login, complete_login, login_link,
    logout_return_page,
};
pub use self::settings::{OidcProblem, OidcSettings};

use self::attempt::{ATTEMPT_LIFETIME, LoginAttempt, LoginAttempts};
use self::error::OidcError;
use self::identity::LoginIdentity;
use self::provider::{ProviderClient, ProviderKeys};
use crate::cookie::ConsoleCookie;
use crate::form::FormFields;

/// Longest ID token in the URL of a logout, in bytes.
const MAX_HINT_BYTES: usize = 4096;

/// Logins through one identity provider.
#[derive(Debug)]
pub(crate) struct OidcLogin {
    settings: OidcSettings,
    provider: Arc<ProviderClient>,
    verifier: TokenVerifier,
    attempts: LoginAttempts,
    cookie: ConsoleCookie,
    clock: Clock,
    /// Address to which the provider sends the browser after a login.
    redirect_uri: String,
    /// Address to which the provider sends the browser after a logout; `None` for a page of the provider.
    logout_return_uri: Option<String>,
}

/// A redirect to the provider with the cookie of the attempt.
struct BegunLogin {
    url: String,
    /// `Set-Cookie` with the attempt.
    cookie: String,
}

/// A completed attempt: who logged in, and which page they wanted.
struct CompletedLogin {
    identity: LoginIdentity,
    next: OwnPath,
}

impl OidcLogin {
    /// # Errors
    /// The HTTP client cannot be made, as with an unreadable file of authorities.
    pub(crate) fn open(
        settings: OidcSettings,
        base_url: &str,
        cookie: ConsoleCookie,
        clock: Clock,
    ) -> Result<Self, dray_http::HttpError> {
        let provider = Arc::new(ProviderClient::open(&settings, clock.clone())?);
        let keys = KeyCache::new(Arc::new(ProviderKeys(Arc::clone(&provider))), clock.clone());
        let rules = ClaimRules {
            issuer: settings.issuer.clone(),
            audiences: vec![settings.client_id.clone()],
        };
        Ok(Self {
            verifier: TokenVerifier::new(rules, keys, clock.clone()),
            attempts: LoginAttempts::default(),
            redirect_uri: format!("{base_url}{RETURN_PATH}"),
            logout_return_uri: settings
                .logout_return
                .then(|| format!("{base_url}{LOGOUT_RETURN_PATH}")),
            settings,
            provider,
            cookie,
            clock,
        })
    }

    /// The host of the provider, for the page that leads to it.
    pub(crate) fn provider_name(&self) -> String {
        let issuer = Url::parse(&self.settings.issuer).ok();
        let host = issuer.as_ref().and_then(Url::host_str);
        host.unwrap_or("the identity provider").to_owned()
    }

    /// Begins an attempt, which only the browser keeps.
    async fn begin_attempt(&self, next: OwnPath) -> Result<BegunLogin, OidcError> {
        let metadata = self.provider.metadata().await?;
        let (cookie, attempt) = self.attempts.begin(next, self.clock.now_ms());
        let mut url = metadata.authorization_endpoint.clone();
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.settings.client_id)
            .append_pair("redirect_uri", &self.redirect_uri)
            .append_pair("scope", &self.settings.scopes.join(" "))
            .append_pair("state", &attempt.state)
            .append_pair("nonce", &attempt.nonce)
            .append_pair("code_challenge", &attempt.code_challenge())
            .append_pair("code_challenge_method", "S256");
        Ok(BegunLogin {
            url: url.into(),
            cookie: self.cookie.set_for(&cookie, ATTEMPT_LIFETIME),
        })
    }

    /// Completes the attempt of this browser with the response of the provider, which is in the query.
    async fn complete_attempt(
        &self,
        headers: &HeaderMap,
        response: &FormFields,
    ) -> Result<CompletedLogin, OidcError> {
        // RFC 6749 section 3.1: parameters are not repeated, because two parties could read different values.
        for name in ["state", "code", "iss", "error"] {
            if response.all(name).count() > 1 {
                return Err(OidcError::Response("a parameter is repeated"));
            }
        }
        let cookie = self.cookie.read(headers).unwrap_or_default();
        let attempt = self
            .attempts
            .take(cookie, response.get("state"), self.clock.now_ms())
            .ok_or(OidcError::NoAttempt)?;
        let metadata = self.provider.metadata().await?;
        self.check_issuer(response, metadata.announces_issuer)?;
        if !response.get("error").is_empty() {
            return Err(OidcError::refused_by_provider(response.get("error")));
        }
        let code = response.get("code");
        if code.is_empty() {
            return Err(OidcError::Response("it has no code"));
        }
        let tokens = self
            .exchange_code(&metadata, code, &attempt.code_verifier)
            .await?;
        let claims = self.verifier.verify(&tokens.id_token).await?;
        check_nonce(&claims, &attempt)?;
        let userinfo = self.missing_claims(&metadata, &tokens, &claims).await?;
        let now_ms = self.clock.now_ms();
        let mut identity = LoginIdentity::from_claims(&claims, &userinfo, &self.settings, now_ms)?;
        let logout_endpoint = metadata.end_session_endpoint.as_ref();
        identity.person.logout_url =
            logout_endpoint.map(|endpoint| self.logout_url(endpoint, &tokens.id_token));
        Ok(CompletedLogin {
            identity,
            next: attempt.next,
        })
    }

    /// Address at which the person ends the session at the provider (OpenID Connect RP-Initiated Logout 1.0 section 2).
    fn logout_url(&self, endpoint: &Url, id_token: &str) -> Secret {
        let mut url = endpoint.clone();
        let mut query = url.query_pairs_mut();
        query.append_pair("client_id", &self.settings.client_id);
        // Without the hint the provider asks the person; a long one exceeds the URLs that servers take.
        if id_token.len() <= MAX_HINT_BYTES {
            query.append_pair("id_token_hint", id_token);
        }
        // Section 3: without the hint, a provider may show its own page in place of this one.
        if let Some(uri) = &self.logout_return_uri {
            query.append_pair("post_logout_redirect_uri", uri);
        }
        drop(query);
        Secret::new(String::from(url))
    }

    /// RFC 9207 section 2.4: a code of another provider must not be sent to this one (mix-up attack).
    fn check_issuer(&self, response: &FormFields, is_announced: bool) -> Result<(), OidcError> {
        match response.all("iss").next() {
            Some(issuer) if issuer == self.settings.issuer => Ok(()),
            None if !is_announced => Ok(()),
            _ => Err(OidcError::Response("it is of another issuer")),
        }
    }
}

/// OpenID Connect Core section 3.1.3.7, step 11: the token belongs to this attempt.
fn check_nonce(claims: &dray_jwt::TokenClaims, attempt: &LoginAttempt) -> Result<(), OidcError> {
    let nonce = claims.text_claim("nonce")?.unwrap_or_default();
    if attempt.nonce.as_bytes().ct_eq(nonce.as_bytes()).into() {
        Ok(())
    } else {
        Err(OidcError::Token("the token belongs to another login"))
    }
}
