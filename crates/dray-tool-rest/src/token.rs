//! Tokens of client credentials (RFC 6749 section 4.4), kept until they expire.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dray_agent::manifest::toolset::ClientIdSecret;
use dray_http::{ClientCredentials, HttpClient, TokenError};
use dray_tool::{HandledFailure, ToolFailure};
use dray_types::Secret;
use tokio::time::Instant;

use crate::failure;

/// Most credentials whose tokens are kept.
const MAX_CACHED_TOKENS: usize = 1000;

/// Lifetime of a token if the server gives none.
const DEFAULT_LIFETIME: Duration = Duration::from_mins(1);

/// Longest lifetime that is assumed for a token.
const MAX_LIFETIME: Duration = Duration::from_hours(24);

/// How long before its expiry a token is renewed.
const EXPIRY_MARGIN: Duration = Duration::from_secs(10);

/// Tokens by credentials. Callers with the same credentials share a token. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct TokenCache {
    known: Arc<Mutex<HashMap<CredentialsKey, Entry>>>,
}

/// The token of one set of credentials. Its lock is held while the token is requested.
type Entry = Arc<tokio::sync::Mutex<Option<CachedToken>>>;

#[derive(Clone)]
struct CachedToken {
    secret: Secret,
    until: Instant,
}

/// The complete credentials.
#[derive(Clone, PartialEq, Eq, Hash)]
struct CredentialsKey([String; 5]);

impl CredentialsKey {
    fn new(client: &ClientIdSecret) -> Self {
        Self([
            client.token_url.clone(),
            client.client_id.clone(),
            client.client_secret.expose().to_owned(),
            client.scope.clone().unwrap_or_default(),
            client.aud.clone().unwrap_or_default(),
        ])
    }
}

impl std::fmt::Debug for CredentialsKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl std::fmt::Debug for CachedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl TokenCache {
    /// Returns a valid token. `refused` is a token that the endpoint refused; it is not returned again.
    ///
    /// # Errors
    ///
    /// A failure if the token server returns none.
    pub(crate) async fn get(
        &self,
        client: &ClientIdSecret,
        http: &HttpClient,
        deadline: Instant,
        refused: Option<&Secret>,
    ) -> Result<Secret, ToolFailure> {
        let entry = self.entry(client);
        // The lock is held during the request: other callers wait for its token (single-flight).
        let mut token = entry.lock().await;
        if let Some(known) = token.as_ref()
            && known.until > Instant::now()
            && refused != Some(&known.secret)
        {
            return Ok(known.secret.clone());
        }
        // A request that fails must not keep the refused token.
        *token = None;
        let fresh = request_token(client, http, deadline).await?;
        let secret = fresh.secret.clone();
        *token = Some(fresh);
        Ok(secret)
    }

    fn entry(&self, client: &ClientIdSecret) -> Entry {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let key = CredentialsKey::new(client);
        if known.len() >= MAX_CACHED_TOKENS && !known.contains_key(&key) {
            let now = Instant::now();
            known.retain(|_, entry| match entry.try_lock() {
                Ok(token) => token.as_ref().is_some_and(|token| token.until > now),
                Err(_) => true,
            });
            if known.len() >= MAX_CACHED_TOKENS {
                // All of them are valid, but they can be requested again.
                known.clear();
            }
        }
        Arc::clone(known.entry(key).or_default())
    }
}

async fn request_token(
    client: &ClientIdSecret,
    http: &HttpClient,
    deadline: Instant,
) -> Result<CachedToken, ToolFailure> {
    let credentials = ClientCredentials {
        token_url: &client.token_url,
        client_id: &client.client_id,
        client_secret: &client.client_secret,
        scope: client.scope.as_deref(),
        audience: client.aud.as_deref(),
    };
    let response_within = deadline.saturating_duration_since(Instant::now());
    let token = credentials.request_token(http, Some(response_within)).await;
    let token = token.map_err(token_failure)?;
    let lifetime = token.lifetime.unwrap_or(DEFAULT_LIFETIME).min(MAX_LIFETIME);
    Ok(CachedToken {
        secret: token.secret,
        until: Instant::now() + lifetime.saturating_sub(EXPIRY_MARGIN),
    })
}

fn token_failure(error: TokenError) -> ToolFailure {
    match error {
        TokenError::Status(status) => {
            let text = format!("The token server answered with status {status}.");
            HandledFailure::new(text).status(status).into()
        }
        TokenError::Unusable => {
            HandledFailure::new("The token server returned no usable token.").into()
        }
        TokenError::Transport(error) => failure::of_transport(error, "token server"),
    }
}
