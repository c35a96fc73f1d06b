//! The server over streamable HTTP.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::McpServer;

/// Path of the endpoint.
const ENDPOINT_PATH: &str = "/mcp";
/// Largest request: arguments name files and do not hold them.
const MAX_REQUEST_BYTES: usize = 1024 * 1024;
/// Shortest token that is accepted.
const MIN_TOKEN_CHARACTERS: usize = 16;

/// A secret that clients send as `Authorization: Bearer`.
#[derive(Clone)]
pub struct BearerToken {
    /// Compared instead of the token, so that the time of a comparison says nothing about it.
    digest: [u8; 32],
}

/// The text is too short for a token, or has characters that a header cannot carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a bearer token has at least {MIN_TOKEN_CHARACTERS} printable ASCII characters without blanks"
)]
pub struct InvalidToken;

impl BearerToken {
    /// Takes a token.
    ///
    /// # Errors
    ///
    /// It is too short, or not printable ASCII.
    pub fn new(token: &str) -> Result<Self, InvalidToken> {
        if token.len() < MIN_TOKEN_CHARACTERS || !token.bytes().all(|byte| byte.is_ascii_graphic())
        {
            return Err(InvalidToken);
        }
        Ok(Self {
            digest: Sha256::digest(token).into(),
        })
    }

    fn admits(&self, request: &Request) -> bool {
        let sent = request.headers().get(header::AUTHORIZATION);
        let sent = sent.and_then(|value| value.to_str().ok());
        let Some((scheme, token)) = sent.and_then(|value| value.split_once(' ')) else {
            return false;
        };
        let digest: [u8; 32] = Sha256::digest(token.trim()).into();
        scheme.eq_ignore_ascii_case("bearer") && digest == self.digest
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken(***)")
    }
}

/// How the endpoint is reached.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// What every request has to carry; required on addresses that other machines reach.
    pub token: Option<BearerToken>,
    /// Further names of this server in `Host`, `NAME` or `NAME:PORT`. Loopback names are always accepted.
    pub allowed_hosts: Vec<String>,
    /// Origins of pages that may call this server, `https://app.example.org`. By default none may.
    pub allowed_origins: Vec<String>,
}

/// The endpoint cannot start or failed.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The address is not on loopback, and no token is configured.
    #[error("{0} is reached by other machines, so the server needs a token")]
    TokenNeeded(SocketAddr),
    /// The address cannot be bound.
    #[error("cannot listen on {address}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The listener failed.
    #[error("the HTTP server failed")]
    Failed(#[source] io::Error),
}

/// A bound endpoint.
#[derive(Debug)]
pub struct HttpEndpoint {
    listener: TcpListener,
    address: SocketAddr,
    options: HttpOptions,
}

impl HttpEndpoint {
    /// Binds the address.
    ///
    /// # Errors
    ///
    /// [`HttpError::TokenNeeded`] and [`HttpError::Bind`].
    pub async fn bind(options: HttpOptions) -> Result<Self, HttpError> {
        let address = options.listen;
        if !address.ip().is_loopback() && options.token.is_none() {
            return Err(HttpError::TokenNeeded(address));
        }
        let failed = |source| HttpError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self {
            listener,
            address,
            options,
        })
    }

    /// The URL for clients. Port 0 was replaced by the port that was bound.
    pub fn url(&self) -> String {
        format!("http://{}{ENDPOINT_PATH}", self.address)
    }

    /// Serves clients until `stop` is cancelled, which also ends their calls.
    ///
    /// # Errors
    ///
    /// [`HttpError::Failed`].
    pub async fn serve(self, server: McpServer, stop: CancellationToken) -> Result<(), HttpError> {
        self.serve_each(move || server.clone(), stop).await
    }

    /// As [`Self::serve`], with any handler of the protocol: `handler` makes one for each session, and one for each
    /// request without a session.
    ///
    /// # Errors
    ///
    /// [`HttpError::Failed`].
    pub async fn serve_each<H: ServerHandler>(
        self,
        handler: impl Fn() -> H + Send + Sync + 'static,
        stop: CancellationToken,
    ) -> Result<(), HttpError> {
        let router = router(handler, &self.options, self.address, &stop);
        axum::serve(self.listener, router)
            .with_graceful_shutdown(stop.cancelled_owned())
            .await
            .map_err(HttpError::Failed)
    }
}

fn router<H: ServerHandler>(
    handler: impl Fn() -> H + Send + Sync + 'static,
    options: &HttpOptions,
    address: SocketAddr,
    stop: &CancellationToken,
) -> Router {
    let hosts = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let config = StreamableHttpServerConfig::default()
        .with_max_request_body_bytes(MAX_REQUEST_BYTES)
        // Against DNS rebinding: a page of another name reaches the port, but cannot choose these headers.
        .with_allowed_hosts(
            hosts
                .into_iter()
                .chain(options.allowed_hosts.iter().cloned()),
        )
        .with_allowed_origins(own_origins(address).chain(options.allowed_origins.iter().cloned()))
        .enforce_origin_validation()
        .with_cancellation_token(stop.child_token());
    let service = StreamableHttpService::new(
        move || Ok(handler()),
        Arc::new(LocalSessionManager::default()),
        config,
    );
    Router::new()
        .route_service(ENDPOINT_PATH, service)
        .layer(middleware::from_fn_with_state(
            options.token.clone(),
            check_token,
        ))
}

/// Origins of this endpoint. They are harmless, because it serves no pages, and some clients send them.
fn own_origins(address: SocketAddr) -> impl Iterator<Item = String> {
    let local = address
        .ip()
        .is_loopback()
        .then(|| format!("http://localhost:{}", address.port()));
    std::iter::once(format!("http://{address}")).chain(local)
}

/// Refuses requests without the token. Before anything of the request is read but its head.
async fn check_token(
    State(token): State<Option<BearerToken>>,
    request: Request,
    next: Next,
) -> Response {
    if token.is_none_or(|token| token.admits(&request)) {
        return next.run(request).await;
    }
    let mut response = Response::new(Body::from("This server needs a bearer token.\n"));
    *response.status_mut() = StatusCode::UNAUTHORIZED;
    // RFC 6750 section 3.
    let challenge = HeaderValue::from_static("Bearer realm=\"drayage\"");
    response
        .headers_mut()
        .insert(header::WWW_AUTHENTICATE, challenge);
    response
}
