//! The exchange of a code for an ID token at the token endpoint (OpenID Connect Core section 3.1.3).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dray_types::Secret;
use serde::Deserialize;
use url::form_urlencoded;

use super::OidcLogin;
use super::error::OidcError;
use super::provider::ProviderMetadata;

/// Largest response of the token endpoint, in bytes.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;

/// The tokens of a login, as sent.
#[derive(Deserialize)]
pub(super) struct IssuedTokens {
    pub(super) id_token: String,
    /// Used only for the userinfo endpoint, during the login.
    #[serde(default)]
    pub(super) access_token: Option<Secret>,
}

/// The error response of the token endpoint (RFC 6749 section 5.2).
#[derive(Deserialize)]
struct TokenFailure {
    error: String,
}

impl OidcLogin {
    /// The tokens for a code. A refresh token is not requested.
    pub(super) async fn exchange_code(
        &self,
        metadata: &ProviderMetadata,
        code: &str,
        code_verifier: &str,
    ) -> Result<IssuedTokens, OidcError> {
        let client_id = self.settings.client_id.as_str();
        let secret = self.settings.client_secret.as_ref();
        let mut pairs = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &self.redirect_uri),
            ("code_verifier", code_verifier),
        ];
        let request = self.provider.post_request(&metadata.token_endpoint);
        let mut request = request.header("accept", "application/json");
        match secret {
            Some(secret) if !metadata.posts_secret => {
                let credentials = basic_credentials(client_id, secret);
                request = request.authorization("Basic", &credentials);
            }
            Some(secret) => {
                pairs.extend([("client_id", client_id), ("client_secret", secret.expose())]);
            }
            // A public client (RFC 6749 section 3.2.1).
            None => pairs.push(("client_id", client_id)),
        }
        let request = request.form(&pairs);
        let (status, body) = self
            .provider
            .send_request(request, MAX_RESPONSE_BYTES)
            .await?;
        if status == 200 {
            return serde_json::from_slice(&body)
                .map_err(|_| OidcError::Provider("its token response has no ID token"));
        }
        let failure = serde_json::from_slice::<TokenFailure>(&body).ok();
        Err(
            match failure.as_ref().map(|failure| failure.error.as_str()) {
                Some("invalid_grant") => OidcError::CodeRefused,
                Some("invalid_client" | "unauthorized_client") => OidcError::ClientRefused,
                _ => OidcError::Status(status),
            },
        )
    }
}

/// RFC 6749 section 2.3.1: both parts are form-encoded before they are joined.
fn basic_credentials(client_id: &str, secret: &Secret) -> Secret {
    let encode =
        |text: &str| -> String { form_urlencoded::byte_serialize(text.as_bytes()).collect() };
    let pair = format!("{}:{}", encode(client_id), encode(secret.expose()));
    Secret::new(STANDARD.encode(pair))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_and_secret_are_encoded_before_they_are_joined() {
        let credentials = basic_credentials("con:sole", &Secret::new("a b%é"));
        let pair = STANDARD.decode(credentials.expose()).unwrap();
        assert_eq!(pair, b"con%3Asole:a+b%25%C3%A9");
    }
}
