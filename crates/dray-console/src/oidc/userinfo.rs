//! Claims that a provider gives at its userinfo endpoint alone (OpenID Connect Core section 5.3).
//!
//! In the code flow a provider may leave the claims of scopes out of the ID token (section 5.4), and some do by
//! default.

use dray_jwt::TokenClaims;
use dray_types::{ErrorChain, Secret};
use serde_json::{Map, Value};
use url::Url;

use super::error::OidcError;
use super::exchange::IssuedTokens;
use super::provider::ProviderMetadata;
use super::{OidcLogin, identity};

/// Largest response of the userinfo endpoint, in bytes.
const MAX_USERINFO_BYTES: usize = 64 * 1024;

impl OidcLogin {
    /// The claims that the ID token lacks. Empty if the token has a role and a name, or if the provider has no
    /// endpoint for claims.
    pub(super) async fn missing_claims(
        &self,
        metadata: &ProviderMetadata,
        tokens: &IssuedTokens,
        claims: &TokenClaims,
    ) -> Result<Map<String, Value>, OidcError> {
        let has_role = identity::has_role_claim(claims, &self.settings);
        let is_complete = has_role && identity::find_name(&claims.all).is_some();
        let (Some(endpoint), Some(access_token), false) = (
            &metadata.userinfo_endpoint,
            &tokens.access_token,
            is_complete,
        ) else {
            return Ok(Map::new());
        };
        let read = self.read_userinfo(endpoint, access_token, &claims.subject);
        match read.await {
            // A login does not fail because of a missing name: the pages show the subject instead.
            Err(error) if has_role => {
                tracing::info!(error = %ErrorChain(&error), "the name of a person is not known");
                Ok(Map::new())
            }
            read => read,
        }
    }

    /// The claims about the subject of a verified ID token. Signed and encrypted responses are not supported.
    async fn read_userinfo(
        &self,
        endpoint: &Url,
        access_token: &Secret,
        subject: &str,
    ) -> Result<Map<String, Value>, OidcError> {
        let request = self.provider.get_request(endpoint);
        let request = request
            .header("accept", "application/json")
            .authorization("Bearer", access_token);
        let sent = self.provider.send_request(request, MAX_USERINFO_BYTES);
        let claims: Map<String, Value> = match sent.await? {
            (200, body) => serde_json::from_slice(&body)
                .map_err(|_| OidcError::Provider("its userinfo is not a JSON object"))?,
            (status, _) => return Err(OidcError::Status(status)),
        };
        // Section 5.3.2: without this comparison an access token of another person would lend its roles.
        if claims.get("sub").and_then(Value::as_str) == Some(subject) {
            Ok(claims)
        } else {
            Err(OidcError::Token("the userinfo is about another person"))
        }
    }
}
