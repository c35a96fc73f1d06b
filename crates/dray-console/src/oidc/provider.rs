//! The provider over HTTP: its discovery document and its keys. Every request has a limit of size and time.

use std::sync::Arc;
use std::time::Duration;

use dray_http::{HttpClient, HttpError, HttpTimeouts, RequestBuilder};
use dray_jwt::{KeySource, LoadCause, check_secure_url};
use dray_types::{Clock, TimeMark};
use futures_util::future::BoxFuture;
use serde::Deserialize;
use tokio::sync::Mutex;
use url::Url;

use super::error::OidcError;
use super::settings::OidcSettings;

/// Path of the discovery document below the issuer (OpenID Connect Discovery 1.0 section 4).
const DISCOVERY_PATH: &str = "/.well-known/openid-configuration";
/// Largest discovery document, in bytes.
const MAX_DISCOVERY_BYTES: usize = 64 * 1024;
/// Largest key set, in bytes.
const MAX_KEYS_BYTES: usize = 256 * 1024;
/// Age at which the document is fetched again.
const METADATA_MAX_AGE: Duration = Duration::from_hours(1);
/// Shortest time from a failed fetch of the document to the next one: anyone who reaches the console can begin logins.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// The fields of the discovery document that the console uses.
#[derive(Debug)]
pub(super) struct ProviderMetadata {
    pub(super) authorization_endpoint: Url,
    pub(super) token_endpoint: Url,
    pub(super) jwks_uri: Url,
    /// Endpoint for claims that the ID token does not contain.
    pub(super) userinfo_endpoint: Option<Url>,
    /// Address at which a person ends the session at the provider (OpenID Connect RP-Initiated Logout 1.0 section 2.1).
    pub(super) end_session_endpoint: Option<Url>,
    /// Whether responses name their issuer (RFC 9207 section 3).
    pub(super) announces_issuer: bool,
    /// Whether the client secret goes into the body (`client_secret_post`), because the provider does not accept
    /// `client_secret_basic`.
    pub(super) posts_secret: bool,
}

/// The document as sent. Fields that are not used are ignored.
#[derive(Deserialize)]
struct DiscoveryDocument {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    #[serde(default)]
    userinfo_endpoint: Option<String>,
    #[serde(default)]
    end_session_endpoint: Option<String>,
    #[serde(default)]
    response_types_supported: Option<Vec<String>>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
}

impl ProviderMetadata {
    /// Parses a document, which must name this issuer.
    fn parse(text: &[u8], issuer: &str) -> Result<Self, OidcError> {
        let document: DiscoveryDocument = serde_json::from_slice(text)
            .map_err(|_| OidcError::Provider("its discovery document is not valid"))?;
        // OpenID Connect Discovery section 4.3: compared exactly, so that no provider can pose as another one.
        if document.issuer != issuer {
            return Err(OidcError::Provider(
                "its discovery document names another issuer",
            ));
        }
        let endpoint = |text: &str| {
            check_secure_url(text)
                .map_err(|_| OidcError::Provider("an endpoint of it is not an https URL"))
        };
        // A login works without these two, so an unusable address counts as a missing one.
        let optional_endpoint = |text: Option<String>| text.and_then(|text| endpoint(&text).ok());
        let types = document.response_types_supported;
        if types.is_some_and(|types| !types.iter().any(|response_type| response_type == "code")) {
            return Err(OidcError::Provider("it does not offer the code flow"));
        }
        let methods = document.token_endpoint_auth_methods_supported;
        let accepts = |name: &str| {
            let mut listed = methods.iter().flatten();
            listed.any(|method| method == name)
        };
        Ok(Self {
            authorization_endpoint: endpoint(&document.authorization_endpoint)?,
            token_endpoint: endpoint(&document.token_endpoint)?,
            jwks_uri: endpoint(&document.jwks_uri)?,
            userinfo_endpoint: optional_endpoint(document.userinfo_endpoint),
            end_session_endpoint: optional_endpoint(document.end_session_endpoint),
            announces_issuer: document.authorization_response_iss_parameter_supported,
            // Discovery section 3: the default is `client_secret_basic`.
            posts_secret: accepts("client_secret_post") && !accepts("client_secret_basic"),
        })
    }
}

/// The last result of a fetch of the document.
#[derive(Debug, Default)]
struct CachedMetadata {
    metadata: Option<(Arc<ProviderMetadata>, TimeMark)>,
    failed: Option<TimeMark>,
}

/// The provider, as this console reaches it.
#[derive(Debug)]
pub(super) struct ProviderClient {
    http: HttpClient,
    issuer: String,
    request_timeout: Duration,
    clock: Clock,
    /// Held during a fetch, so that only one runs.
    cached: Mutex<CachedMetadata>,
}

impl ProviderClient {
    pub(super) fn open(settings: &OidcSettings, clock: Clock) -> Result<Self, HttpError> {
        let timeouts = HttpTimeouts {
            connect: settings.request_timeout,
            idle: settings.request_timeout,
            response: settings.request_timeout,
        };
        Ok(Self {
            // The client follows no redirects, so that a secret or a code is sent only to the endpoint of the document.
            http: HttpClient::new(timeouts, settings.ca_file.as_deref())?,
            issuer: settings.issuer.clone(),
            request_timeout: settings.request_timeout,
            clock,
            cached: Mutex::default(),
        })
    }

    /// The endpoints of the provider, at most an hour old.
    pub(super) async fn metadata(&self) -> Result<Arc<ProviderMetadata>, OidcError> {
        let mut cached = self.cached.lock().await;
        let is_younger = |mark: TimeMark, age: Duration| self.clock.age(mark) < age;
        if let Some((metadata, fetched)) = &cached.metadata
            && is_younger(*fetched, METADATA_MAX_AGE)
        {
            return Ok(Arc::clone(metadata));
        }
        if cached
            .failed
            .is_some_and(|failed| is_younger(failed, RETRY_DELAY))
        {
            return Err(OidcError::FailedBefore);
        }
        let fetched = self.fetch_metadata().await;
        let now = self.clock.mark();
        match fetched {
            Ok(metadata) => {
                let metadata = Arc::new(metadata);
                cached.metadata = Some((Arc::clone(&metadata), now));
                Ok(metadata)
            }
            Err(error) => {
                cached.failed = Some(now);
                Err(error)
            }
        }
    }

    async fn fetch_metadata(&self) -> Result<ProviderMetadata, OidcError> {
        let url = format!("{}{DISCOVERY_PATH}", self.issuer.trim_end_matches('/'));
        let text = self.read_document(&url, MAX_DISCOVERY_BYTES).await?;
        ProviderMetadata::parse(&text, &self.issuer)
    }

    async fn fetch_keys(&self) -> Result<String, OidcError> {
        let metadata = self.metadata().await?;
        let url = metadata.jwks_uri.as_str();
        let text = self.read_document(url, MAX_KEYS_BYTES).await?;
        String::from_utf8(text).map_err(|_| OidcError::Provider("its key set is not text"))
    }

    async fn read_document(&self, url: &str, limit: usize) -> Result<Vec<u8>, OidcError> {
        let request = self.http.get(url).header("accept", "application/json");
        match self.send_request(request, limit).await? {
            (200, body) => Ok(body),
            (status, _) => Err(OidcError::Status(status)),
        }
    }

    /// Begins a request for a document of the provider.
    pub(super) fn get_request(&self, endpoint: &Url) -> RequestBuilder {
        self.http.get(endpoint.as_str())
    }

    /// Begins a request to an endpoint of the provider.
    pub(super) fn post_request(&self, endpoint: &Url) -> RequestBuilder {
        self.http.post(endpoint.as_str())
    }

    /// Sends a request, and reads status and body of the response.
    pub(super) async fn send_request(
        &self,
        request: RequestBuilder,
        limit: usize,
    ) -> Result<(u16, Vec<u8>), OidcError> {
        let exchange = async {
            let response = request.send(&|_| ()).await?;
            let status = response.status();
            Ok::<_, HttpError>((status, response.bytes(limit).await?.to_vec()))
        };
        // The client limits only pauses: a peer that sends a byte a second could delay the login for hours.
        let exchanged = tokio::time::timeout(self.request_timeout, exchange).await;
        Ok(exchanged.map_err(|_| OidcError::TimedOut)??)
    }
}

/// Loads the key set from the `jwks_uri` of the discovery document.
#[derive(Debug)]
pub(super) struct ProviderKeys(pub(super) Arc<ProviderClient>);

impl KeySource for ProviderKeys {
    fn load_keys(&self) -> BoxFuture<'_, Result<String, LoadCause>> {
        Box::pin(async { self.0.fetch_keys().await.map_err(LoadCause::from) })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ISSUER: &str = "https://login.example.org";

    fn parse(changes: &Value) -> Result<ProviderMetadata, OidcError> {
        let mut document = json!({
            "issuer": ISSUER,
            "authorization_endpoint": "https://login.example.org/authorize",
            "token_endpoint": "https://login.example.org/token",
            "jwks_uri": "https://keys.example.org/keys",
        });
        for (name, value) in changes.as_object().unwrap() {
            document[name] = value.clone();
        }
        ProviderMetadata::parse(document.to_string().as_bytes(), ISSUER)
    }

    #[test]
    fn a_document_of_another_issuer_or_without_tls_is_refused() {
        assert!(parse(&json!({})).is_ok());
        for wrong in [
            json!({"issuer": "https://login.example.org/"}),
            json!({"issuer": "https://LOGIN.example.org"}),
            json!({"issuer": null}),
            json!({"token_endpoint": "http://login.example.org/token"}),
            json!({"jwks_uri": "file:///etc/keys"}),
            json!({"authorization_endpoint": "javascript:alert(1)"}),
            json!({"response_types_supported": ["id_token"]}),
        ] {
            assert!(parse(&wrong).is_err(), "{wrong}");
        }
        assert!(ProviderMetadata::parse(b"<html>", ISSUER).is_err());
    }

    #[test]
    fn an_optional_endpoint_without_tls_counts_as_missing() {
        let metadata = parse(&json!({
            "userinfo_endpoint": "http://login.example.org/me",
            "end_session_endpoint": "javascript:alert(1)",
        }));
        let metadata = metadata.unwrap();
        assert_eq!(metadata.userinfo_endpoint, None);
        assert_eq!(metadata.end_session_endpoint, None);
    }

    #[test]
    fn the_secret_is_sent_in_the_body_only_if_the_provider_supports_nothing_else() {
        let posts = |methods: Value| {
            let metadata = parse(&json!({ "token_endpoint_auth_methods_supported": methods }));
            metadata.unwrap().posts_secret
        };
        assert!(!posts(json!(null)));
        assert!(!posts(json!(["client_secret_post", "client_secret_basic"])));
        assert!(posts(json!(["client_secret_post", "private_key_jwt"])));
    }
}
