//! The connections of a sign-in: only to authorization servers that are trusted, without redirects, with bounded
//! responses.

use std::sync::{Mutex, PoisonError};

use dray_http::{FailureKind, HttpClient, RequestBuilder};
use http::Method;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, LOCATION, WWW_AUTHENTICATE};
use rmcp::transport::auth::{
    OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRequest,
};
use thiserror::Error;
use url::{Origin, Url};

use super::assertion::{AssertionError, AssertionSigner};
use super::workload::PresentedToken;
use super::{IssuerTrust, SignInError};

/// Most bytes of one response.
const MAX_RESPONSE_BYTES: usize = 1 << 20;

/// Media type of token requests.
const FORM_TYPE: &str = "application/x-www-form-urlencoded";

/// Headers of a response that the protocol uses.
const RESPONSE_HEADERS: [http::HeaderName; 3] = [CONTENT_TYPE, LOCATION, WWW_AUTHENTICATE];

/// The HTTP client of one server's sign-in.
#[derive(Debug)]
pub(super) struct OAuthBackend {
    client: HttpClient,
    server: Option<Url>,
    /// Origins of authorization servers that the manifest names.
    named: Vec<Origin>,
    trust: IssuerTrust,
    /// The host that was refused last.
    untrusted: Mutex<Option<String>>,
    /// Authenticates the client at token endpoints, if it has a private key.
    signer: Result<Option<AssertionSigner>, AssertionError>,
    /// The token of the workload, in place of all credentials of the client.
    presented: Mutex<Option<PresentedToken>>,
}

#[derive(Debug, Error)]
#[error("this authorization server is not trusted")]
struct UntrustedServer;

impl OAuthBackend {
    pub(super) fn new(
        client: HttpClient,
        server: &str,
        named: &[String],
        trust: IssuerTrust,
        signer: Result<Option<AssertionSigner>, AssertionError>,
    ) -> Self {
        let named = named.iter().filter_map(|url| Url::parse(url).ok());
        Self {
            client,
            server: Url::parse(server).ok(),
            named: named.map(|url| url.origin()).collect(),
            trust,
            untrusted: Mutex::default(),
            signer,
            presented: Mutex::default(),
        }
    }

    /// Whether requests for tokens are signed.
    ///
    /// # Errors
    ///
    /// The private key of the client cannot be used.
    pub(super) fn signs(&self) -> Result<bool, AssertionError> {
        self.signer
            .as_ref()
            .map(Option::is_some)
            .map_err(|error| *error)
    }

    /// Sets the authorization server, for which assertions are.
    pub(super) fn set_issuer(&self, issuer: Option<&str>) {
        if let Ok(Some(signer)) = &self.signer {
            signer.set_issuer(issuer);
        }
    }

    /// Sets the token that requests to its token endpoint present.
    pub(super) fn set_presented(&self, presented: Option<PresentedToken>) {
        let current = self.presented.lock();
        *current.unwrap_or_else(PoisonError::into_inner) = presented;
    }

    /// The token that a request to this URL presents.
    fn presented_to(&self, url: &str) -> Option<PresentedToken> {
        let current = self.presented.lock();
        let current = current.unwrap_or_else(PoisonError::into_inner);
        current.clone().filter(|presented| presented.is_for(url))
    }

    /// Whether this is an address of the web with at least the protection of the server's own, and without a user name,
    /// which can look like the host of a page (RFC 3986 section 7.6).
    pub(super) fn is_web(&self, url: &str) -> bool {
        let server = self.server.as_ref().map(Url::scheme);
        Url::parse(url).is_ok_and(|url| {
            let is_protected = match url.scheme() {
                "https" => true,
                "http" => server == Some("http"),
                _ => false,
            };
            is_protected && url.username().is_empty() && url.password().is_none()
        })
    }

    /// Checks that a sign-in may connect to this URL.
    ///
    /// # Errors
    ///
    /// [`SignInError::Untrusted`].
    pub(super) fn check(&self, url: &str) -> Result<(), SignInError> {
        if self.is_trusted(url) {
            return Ok(());
        }
        let host = Url::parse(url).ok();
        let host = host.and_then(|url| url.host_str().map(str::to_owned));
        Err(SignInError::Untrusted(host.unwrap_or_default()))
    }

    fn is_trusted(&self, url: &str) -> bool {
        let Some(parsed) = Url::parse(url).ok().filter(|_| self.is_web(url)) else {
            return false;
        };
        let origin = parsed.origin();
        let own = self.server.as_ref().map(Url::origin);
        self.trust == IssuerTrust::Any
            || own.as_ref() == Some(&origin)
            || self.named.contains(&origin)
    }

    /// The host that was refused since the last call.
    pub(super) fn take_untrusted(&self) -> Option<String> {
        let mut untrusted = self
            .untrusted
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        untrusted.take()
    }

    async fn send(
        &self,
        request: OAuthHttpRequest,
    ) -> Result<http::Response<Vec<u8>>, OAuthHttpClientError> {
        let (parts, body) = request.request.into_parts();
        let url = parts.uri.to_string();
        if let Err(SignInError::Untrusted(host)) = self.check(&url) {
            let mut untrusted = self
                .untrusted
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            *untrusted = Some(host);
            return Err(UntrustedServer.into());
        }
        let response = match self.request(&parts, &url, &body)?.send(&|_| {}).await {
            // A server may close a kept connection at the moment in which it is used again, and a request for metadata
            // has no effect (RFC 9110 section 9.2.2). A token may have been issued, so its request is not repeated.
            Err(error)
                if parts.method == Method::GET
                    && matches!(error.failure, FailureKind::Broken(_)) =>
            {
                self.request(&parts, &url, &body)?.send(&|_| {}).await?
            }
            response => response?,
        };
        let mut builder = http::Response::builder().status(response.status());
        for name in RESPONSE_HEADERS {
            if let Some(value) = response.header(name.as_str()) {
                builder = builder.header(name, value);
            }
        }
        let body = response.bytes(MAX_RESPONSE_BYTES).await?;
        Ok(builder.body(body.to_vec())?)
    }

    /// A request with the credentials of this client.
    fn request(
        &self,
        parts: &http::request::Parts,
        url: &str,
        body: &[u8],
    ) -> Result<RequestBuilder, OAuthHttpClientError> {
        let presented = self.presented_to(url);
        let mut sending = self.client.request(parts.method.clone(), url);
        // The headers of the body are set together with the body.
        let body_headers = [CONTENT_LENGTH, CONTENT_TYPE];
        for (name, value) in &parts.headers {
            // An assertion replaces a secret (RFC 6749 section 2.3: one method for a request).
            let has_assertion = presented.is_some() || self.signs() == Ok(true);
            let is_replaced = *name == AUTHORIZATION && has_assertion;
            if !body_headers.contains(name) && !is_replaced {
                sending = sending.header(name.as_str(), value.to_str()?);
            }
        }
        if body.is_empty() {
            return Ok(sending);
        }
        let kind = parts.headers.get(CONTENT_TYPE);
        let kind = kind.map_or(Ok("application/octet-stream"), |kind| kind.to_str())?;
        let body = match (&presented, &self.signer) {
            (Some(presented), _) if kind == FORM_TYPE => presented.replace_grant(body),
            (None, Ok(Some(signer))) if kind == FORM_TYPE => signer.authenticate(body.to_vec())?,
            _ => body.to_vec(),
        };
        Ok(sending.bytes(kind, body.into()))
    }
}

impl OAuthHttpClient for OAuthBackend {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(self.send(request))
    }
}

#[cfg(test)]
mod tests {
    use dray_http::HttpTimeouts;

    use super::*;

    fn backend(server: &str, named: &[&str], trust: IssuerTrust) -> OAuthBackend {
        let client = HttpClient::new(HttpTimeouts::default(), None).unwrap();
        let named: Vec<_> = named.iter().map(|url| (*url).to_owned()).collect();
        OAuthBackend::new(client, server, &named, trust, Ok(None))
    }

    #[test]
    fn only_the_server_and_what_the_manifest_names_are_trusted() {
        let named = ["https://login.example/realms/a"];
        let backend = backend("https://mcp.example/mcp", &named, IssuerTrust::Named);
        for url in [
            "https://mcp.example/.well-known/oauth-protected-resource",
            "https://login.example/token",
            "https://login.example:443/token",
        ] {
            assert!(backend.check(url).is_ok(), "{url}");
        }
        for url in [
            "https://login.example:8443/token",
            "https://evil.example/token",
            "http://login.example/token",
            "http://169.254.169.254/latest/meta-data",
            "https://login.example.evil.example/",
        ] {
            let refused = backend.check(url);
            assert!(matches!(refused, Err(SignInError::Untrusted(_))), "{url}");
        }
    }

    #[test]
    fn plain_http_is_for_servers_that_use_it_themselves() {
        let plain = backend("http://127.0.0.1:1/mcp", &[], IssuerTrust::Any);
        assert!(plain.is_web("http://127.0.0.1:2/authorize"));
        let safe = backend("https://mcp.example/mcp", &[], IssuerTrust::Any);
        for url in [
            "http://login.example/",
            "javascript:alert(1)",
            "file:///etc/passwd",
            "https://login.example@evil.example/",
        ] {
            assert!(!safe.is_web(url), "{url}");
            assert!(safe.check(url).is_err(), "{url}");
        }
    }
}
