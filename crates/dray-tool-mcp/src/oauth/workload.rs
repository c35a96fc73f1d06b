//! Sign-in with the identity of a workload. The platform of this service issues a token, such as the projected service
//! account token of Kubernetes, and the client exchanges it for an access token (RFC 7523 section 2.1, MCP SEP-1933).
//!
//! The token belongs to the operator, but the author of a manifest may be another person. So the operator names the
//! servers for which the token is used, and the token endpoints to which it is sent.

use std::fmt;
use std::io::Read as _;
use std::path::PathBuf;

use dray_agent::manifest::toolset::{OauthClient, OauthGrant};
use dray_types::Secret;
use thiserror::Error;
use url::Url;

use super::OAuthOptions;

/// Longest token, in bytes.
const MAX_TOKEN_BYTES: u64 = 64 << 10;

const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

/// A token that the platform of this service issued.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct WorkloadToken {
    /// The file with the token. It is read at each sign-in, because platforms renew tokens.
    pub file: PathBuf,
    /// URLs of the MCP servers for which it may be used.
    pub servers: Vec<String>,
    /// URLs of the token endpoints to which it may be sent.
    pub token_endpoints: Vec<String>,
}

/// The reason why no workload token can be presented.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum WorkloadError {
    /// The manifest names none.
    #[error("the grant `jwt_bearer` needs a `workload_token`")]
    Unnamed,
    /// The operator has no token of this name, or does not offer it for this server.
    #[error("the operator offers no such `workload_token` for this server")]
    NotOffered,
    /// The authorization server has another token endpoint than the operator named.
    #[error("the operator does not permit the workload token at this token endpoint")]
    Endpoint,
    /// The file is missing, empty, too long or not text.
    #[error("the workload token cannot be read")]
    Unreadable,
}

/// Whether two URLs are the same after they are parsed.
fn is_same_url(one: &str, other: &str) -> bool {
    let other = Url::parse(other).ok();
    other.is_some() && Url::parse(one).ok() == other
}

impl WorkloadToken {
    /// The token that the client of a server may present; `None` for a client with another grant.
    ///
    /// # Errors
    ///
    /// [`WorkloadError::Unnamed`] and [`WorkloadError::NotOffered`].
    pub(super) fn of_client(
        client: &OauthClient,
        server: &str,
        options: &OAuthOptions,
    ) -> Result<Option<Self>, WorkloadError> {
        if client.grant != OauthGrant::JwtBearer {
            return Ok(None);
        }
        let name = client.workload_token.as_ref();
        let token = options
            .workload_tokens
            .get(name.ok_or(WorkloadError::Unnamed)?)
            // The error is the same as for an unknown name: the author of a manifest learns no names.
            .filter(|token| token.servers.iter().any(|named| is_same_url(named, server)));
        token.cloned().map(Some).ok_or(WorkloadError::NotOffered)
    }

    /// The token that replaces the credentials in a request to this token endpoint.
    ///
    /// # Errors
    ///
    /// [`WorkloadError::Endpoint`] and [`WorkloadError::Unreadable`].
    pub(super) async fn present(
        &self,
        token_endpoint: &str,
        client_id: Option<&str>,
    ) -> Result<PresentedToken, WorkloadError> {
        let mut permitted = self.token_endpoints.iter();
        if !permitted.any(|named| is_same_url(named, token_endpoint)) {
            return Err(WorkloadError::Endpoint);
        }
        let file = self.file.clone();
        let reading = tokio::task::spawn_blocking(move || read_token(file));
        let assertion = reading.await.ok().flatten();
        Ok(PresentedToken {
            token_endpoint: token_endpoint.to_owned(),
            client_id: client_id.map(str::to_owned),
            assertion: assertion.ok_or(WorkloadError::Unreadable)?,
        })
    }
}

fn read_token(file: PathBuf) -> Option<Secret> {
    let file = std::fs::File::open(file);
    let file = file.inspect_err(|error| tracing::warn!(%error, "a workload token was not read"));
    let mut text = String::new();
    let mut limited = file.ok()?.take(MAX_TOKEN_BYTES + 1);
    let read_bytes = limited.read_to_string(&mut text).ok()?;
    let token = text.trim();
    let is_usable = read_bytes as u64 <= MAX_TOKEN_BYTES && !token.is_empty();
    is_usable.then(|| Secret::new(token))
}

/// A token for requests to one token endpoint.
#[derive(Clone)]
pub(super) struct PresentedToken {
    token_endpoint: String,
    client_id: Option<String>,
    assertion: Secret,
}

impl fmt::Debug for PresentedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PresentedToken")
            .field("token_endpoint", &self.token_endpoint)
            .finish_non_exhaustive()
    }
}

impl PresentedToken {
    /// Whether requests to this URL present the token.
    pub(super) fn is_for(&self, url: &str) -> bool {
        is_same_url(&self.token_endpoint, url)
    }

    /// The form of a token request with the token as its grant. The client has no other credentials.
    pub(super) fn replace_grant(&self, body: &[u8]) -> Vec<u8> {
        let replaced = ["grant_type", "client_id", "client_secret"];
        let pairs = url::form_urlencoded::parse(body);
        let others = pairs.filter(|(name, _)| !replaced.contains(&&**name));
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.extend_pairs(others)
            .append_pair("grant_type", JWT_BEARER)
            .append_pair("assertion", self.assertion.expose());
        if let Some(client_id) = &self.client_id {
            form.append_pair("client_id", client_id);
        }
        form.finish().into_bytes()
    }
}
