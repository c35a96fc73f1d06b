//! Tokens of client credentials (RFC 6749 section 4.4), kept until they expire.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dray_agent::manifest::toolset::ClientIdSecret;
use dray_http::{HttpClient, HttpResponse};
use dray_tool::{HandledFailure, ToolFailure};
use dray_types::Secret;
use serde::Deserialize;
use tokio::time::Instant;

use crate::{failure, place};

/// Most credentials whose tokens are kept.
const MAX_CACHED_TOKENS: usize = 1000;

/// Longest response of a token server, in bytes.
const MAX_RESPONSE_BYTES: usize = 64 << 10;

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

/// The response of a token server (RFC 6749 section 5.1).
#[derive(Deserialize)]
struct TokenResponse {
    access_token: Secret,
    expires_in: Option<serde_json::Value>,
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

/// Requests a token with credentials in the body, and if the server does not accept that, in the header.
async fn request_token(
    client: &ClientIdSecret,
    http: &HttpClient,
    deadline: Instant,
) -> Result<CachedToken, ToolFailure> {
    let mut response = send_token_request(client, http, deadline, false).await?;
    // RFC 6749, section 2.3.1: servers must support the header and may support the body.
    if matches!(response.status(), 400 | 401) {
        response = send_token_request(client, http, deadline, true).await?;
    }
    let status = response.status();
    if !response.is_success() {
        let text = format!("The token server answered with status {status}.");
        return Err(HandledFailure::new(text).status(status).into());
    }
    let bytes = response
        .bytes(MAX_RESPONSE_BYTES)
        .await
        .map_err(token_failure)?;
    let unusable = || HandledFailure::new("The token server returned no usable token.");
    let granted: TokenResponse =
        serde_json::from_slice(&bytes).map_err(|_| ToolFailure::from(unusable()))?;
    let token = granted.access_token;
    if token.is_empty() || !place::is_header_value(token.expose()) {
        return Err(unusable().into());
    }
    let lifetime = granted.expires_in.as_ref().and_then(parse_seconds);
    let lifetime = lifetime.unwrap_or(DEFAULT_LIFETIME).min(MAX_LIFETIME);
    Ok(CachedToken {
        secret: token,
        until: Instant::now() + lifetime.saturating_sub(EXPIRY_MARGIN),
    })
}

async fn send_token_request(
    client: &ClientIdSecret,
    http: &HttpClient,
    deadline: Instant,
    in_header: bool,
) -> Result<HttpResponse, ToolFailure> {
    use base64::Engine as _;
    let (id, secret) = (client.client_id.as_str(), client.client_secret.expose());
    let mut pairs = vec![("grant_type", "client_credentials")];
    pairs.extend(client.scope.as_deref().map(|scope| ("scope", scope)));
    pairs.extend(client.aud.as_deref().map(|audience| ("audience", audience)));
    let mut request = http
        .post(&client.token_url)
        .header("accept", "application/json")
        .response_within(deadline.saturating_duration_since(Instant::now()));
    if in_header {
        // Id and secret are form-encoded first (RFC 6749 section 2.3.1).
        let credentials = format!(
            "{}:{}",
            place::percent_encode(id),
            place::percent_encode(secret)
        );
        let credentials = base64::engine::general_purpose::STANDARD.encode(credentials);
        request = request.authorization("Basic", &Secret::new(credentials));
    } else {
        pairs.extend([("client_id", id), ("client_secret", secret)]);
    }
    request
        .form(&pairs)
        .send(&|_| {})
        .await
        .map_err(token_failure)
}

fn token_failure(error: dray_http::HttpError) -> ToolFailure {
    failure::of_transport(error, "token server")
}

/// Seconds as a number, or as the text of one.
fn parse_seconds(value: &serde_json::Value) -> Option<Duration> {
    let seconds = value
        .as_f64()
        .or_else(|| value.as_str().and_then(|text| text.parse().ok()))?;
    Duration::try_from_secs_f64(seconds.min(MAX_LIFETIME.as_secs_f64())).ok()
}
