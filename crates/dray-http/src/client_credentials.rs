//! Access tokens of client credentials (RFC 6749 section 4.4). This module caches no token and sends none to an
//! endpoint.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use dray_types::Secret;
use http::HeaderValue;
use serde::Deserialize;

use crate::client::HttpClient;
use crate::error::HttpError;
use crate::request::percent_encode;
use crate::response::HttpResponse;

/// Most bytes of a response of a token endpoint.
const MAX_RESPONSE_BYTES: usize = 64 << 10;
/// Longest lifetime, in seconds, that is read; a longer one is shortened to it.
const MAX_LIFETIME_SECONDS: f64 = 365.0 * 86_400.0;

/// The credentials of a client and the token that it requests.
#[derive(Clone, Copy, Debug)]
pub struct ClientCredentials<'a> {
    /// URL of the token endpoint.
    pub token_url: &'a str,
    /// `client_id` of RFC 6749, section 2.2, as the authorization server registered it.
    pub client_id: &'a str,
    /// `client_secret` of RFC 6749, section 2.3.1: sent in the body, and in the header where the server refuses that.
    pub client_secret: &'a Secret,
    /// Scopes of the token, separated by spaces; without them the server decides.
    pub scope: Option<&'a str>,
    /// The parameter `audience`, which is not part of RFC 6749; some servers require it.
    pub audience: Option<&'a str>,
}

/// A token that can be the value of a header.
#[derive(Clone, Debug)]
pub struct AccessToken {
    /// The bearer token (RFC 6750), valid as the value of a header.
    pub secret: Secret,
    /// How long it is valid, where the server says it in a readable form.
    pub lifetime: Option<Duration>,
}

/// The reason why a token endpoint gave no token. No text has a secret or a part of the response.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// A status that is not a success, in both forms of the request.
    #[error("the token endpoint answered with status {0}")]
    Status(u16),
    /// A response without a token, or with one that cannot be sent in a header.
    #[error("the token endpoint returned no usable token")]
    Unusable,
    /// The request or its response was not complete.
    #[error("the token endpoint was not reached")]
    Transport(#[from] HttpError),
}

/// The part of a request that carries the credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CredentialsPlace {
    Body,
    Header,
}

/// The response of a token endpoint (RFC 6749 section 5.1).
#[derive(Deserialize)]
struct TokenResponse {
    access_token: Secret,
    expires_in: Option<serde_json::Value>,
}

impl ClientCredentials<'_> {
    /// Requests a token: first with the credentials in the body, and if the server refuses that, in the header.
    /// `response_within` replaces the client's time limit for the head of a response.
    ///
    /// # Errors
    ///
    /// See [`TokenError`].
    pub async fn request_token(
        &self,
        client: &HttpClient,
        response_within: Option<Duration>,
    ) -> Result<AccessToken, TokenError> {
        let mut response = self
            .send(client, CredentialsPlace::Body, response_within)
            .await?;
        // RFC 6749, section 2.3.1: servers must support the header and may support the body.
        if matches!(response.status(), 400 | 401) {
            response = self
                .send(client, CredentialsPlace::Header, response_within)
                .await?;
        }
        if !response.is_success() {
            return Err(TokenError::Status(response.status()));
        }
        let bytes = response.bytes(MAX_RESPONSE_BYTES).await?;
        let granted: TokenResponse =
            serde_json::from_slice(&bytes).map_err(|_| TokenError::Unusable)?;
        let secret = granted.access_token;
        if secret.is_empty() || HeaderValue::from_bytes(secret.expose().as_bytes()).is_err() {
            return Err(TokenError::Unusable);
        }
        Ok(AccessToken {
            secret,
            lifetime: granted.expires_in.as_ref().and_then(parse_seconds),
        })
    }

    async fn send(
        &self,
        client: &HttpClient,
        place: CredentialsPlace,
        response_within: Option<Duration>,
    ) -> Result<HttpResponse, HttpError> {
        let mut pairs = vec![("grant_type", "client_credentials")];
        pairs.extend(self.scope.map(|scope| ("scope", scope)));
        pairs.extend(self.audience.map(|audience| ("audience", audience)));
        let mut request = client
            .post(self.token_url)
            .header("accept", "application/json");
        if let Some(wait) = response_within {
            request = request.response_within(wait);
        }
        let (id, secret) = (self.client_id, self.client_secret.expose());
        match place {
            CredentialsPlace::Body => {
                pairs.extend([("client_id", id), ("client_secret", secret)]);
            }
            CredentialsPlace::Header => {
                // Id and secret are form-encoded first (RFC 6749 section 2.3.1), so a colon in the id is not the end.
                let credentials = format!("{}:{}", percent_encode(id), percent_encode(secret));
                let credentials = Secret::new(BASE64_STANDARD.encode(credentials));
                request = request.authorization("Basic", &credentials);
            }
        }
        request.form(&pairs).send(&|_| {}).await
    }
}

/// Seconds as a number, or as the text of one; `None` for other values and for negative times.
fn parse_seconds(value: &serde_json::Value) -> Option<Duration> {
    let seconds = value
        .as_f64()
        .or_else(|| value.as_str().and_then(|text| text.parse().ok()))?;
    // `min` is not used, because it would turn a value that is not a number into the limit.
    Duration::try_from_secs_f64(if seconds > MAX_LIFETIME_SECONDS {
        MAX_LIFETIME_SECONDS
    } else {
        seconds
    })
    .ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_lifetime_is_a_number_or_the_text_of_one() {
        for (value, expected) in [
            (json!(60), Some(Duration::from_mins(1))),
            (json!("60"), Some(Duration::from_mins(1))),
            (json!(-1), None),
            (json!("soon"), None),
            (json!("NaN"), None),
            (json!(1e300), Some(Duration::from_hours(365 * 24))),
            (json!(null), None),
        ] {
            assert_eq!(parse_seconds(&value), expected, "{value}");
        }
    }
}
