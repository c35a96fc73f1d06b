//! The server over streamable HTTP.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use dray_http_server::{ConnectionLimits, serve};
use futures_util::future::BoxFuture;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, ORIGIN};
use http::{Method, StatusCode};
use http_body_util::LengthLimitError;
use rmcp::ServerHandler;
use rmcp::model::{ErrorData, JsonRpcMessage};
use rmcp::service::{RoleServer, TxJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::accept::name_accepted_types;
use crate::auth::{AuthLayer, AuthOptions, Authenticator, check_request, metadata_router};
use crate::baselines::read_http_baselines;
use crate::cors::share_responses;
use crate::message_check::{
    RejectedMessage, as_sentence, check_counted_message, check_cursor, has_too_many_values,
    too_many_values,
};
use crate::sessions::{SessionLimit, limit_sessions, session_manager};
use crate::{McpServer, ServiceClient};

/// URL path at which clients send their messages.
const ENDPOINT_PATH: &str = "/mcp";
/// Largest request: arguments refer to files and do not contain them.
pub(crate) const MAX_REQUEST_BYTES: usize = 1024 * 1024;

/// Content type of messages.
const JSON_TYPE: &str = "application/json";
/// First words of the responses with which the library refuses a message for its shape.
const MESSAGE_REFUSALS: [&[u8]; 2] = [
    b"fail to deserialize",
    b"Bad Request: Session ID is required",
];

/// The number of values of a body that the check of its token has counted. An extension of the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CountedValues {
    pub(crate) are_too_many: bool,
}

/// Address, tokens and names of the endpoint.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Accepted tokens. If there are any, every request needs one. They are required on an address that other machines
    /// can reach.
    pub auth: AuthOptions,
    /// Further names of this server in `Host`, `NAME` or `NAME:PORT`. Loopback names are always accepted.
    pub allowed_hosts: Vec<String>,
    /// Origins of pages that may call this server, `https://app.example.org`. By default none.
    pub allowed_origins: Vec<String>,
}

/// The endpoint cannot start.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The address is not on loopback, and no token is configured.
    #[error("other machines can reach {0}, so the server needs a token")]
    TokenNeeded(SocketAddr),
    /// The address cannot be bound.
    #[error("cannot listen on {address}")]
    Bind {
        /// The address that cannot be bound.
        address: SocketAddr,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
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
        if !address.ip().is_loopback() && !options.auth.is_required() {
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

    /// Serves clients until `stop` is cancelled, which also ends their calls. The future is boxed, so that the protocol
    /// is compiled here and not by the caller.
    pub fn serve(self, server: McpServer, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let main = server.clone();
            self.serve_with(move || server.for_session(), Some(main), stop)
                .await;
        })
    }

    /// Like [`Self::serve`], with any handler of the protocol: `handler` makes one for each session, and one for each
    /// request without a session. Keys of an authorization server have to be in a file.
    pub async fn serve_each<H: ServerHandler>(
        self,
        handler: impl Fn() -> H + Send + Sync + 'static,
        stop: CancellationToken,
    ) {
        self.serve_with(handler, None, stop).await;
    }

    async fn serve_with<H: ServerHandler>(
        self,
        handler: impl Fn() -> H + Send + Sync + 'static,
        server: Option<McpServer>,
        stop: CancellationToken,
    ) {
        let config = protocol_config(&self.options, self.address, &stop);
        let manager = Arc::new(session_manager());
        let service =
            StreamableHttpService::new(move || Ok(handler()), Arc::clone(&manager), config);
        let mut protocol = router(service.clone(), manager);
        let mut client = None;
        if let Some(server) = server {
            client = Some(server.client().await.clone());
            let reading = middleware::from_fn_with_state(server, read_http_baselines);
            protocol = protocol.layer(reading);
        }
        let checked = with_auth(protocol, &self.options.auth, client.as_ref());
        // A preflight has no token, and a page has to read why its request was refused.
        let shared = checked.layer(middleware::from_fn(share_responses));
        // The outermost layer: no other one works for a request that it refuses.
        let checked = shared.layer(middleware::from_fn_with_state(service, check_names));
        // Clients of any origin find the authorization server.
        let router = match &self.options.auth.oauth {
            Some(oauth) => checked.merge(metadata_router(oauth)),
            None => checked,
        };
        // Without a drain timeout it always completes: the end of the sessions ends their calls.
        let _ = serve(self.listener, router, ConnectionLimits::default(), stop).await;
    }
}

/// The protocol over HTTP, with a handler for each session or request.
type ProtocolService<H> = StreamableHttpService<H, LocalSessionManager>;

fn protocol_config(
    options: &HttpOptions,
    address: SocketAddr,
    stop: &CancellationToken,
) -> StreamableHttpServerConfig {
    let hosts = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    StreamableHttpServerConfig::default()
        .with_max_request_body_bytes(MAX_REQUEST_BYTES)
        // This prevents DNS rebinding: a page under another name can reach the port, but cannot choose these headers.
        // `check_names` applies both lists before any other work.
        .with_allowed_hosts(
            hosts
                .into_iter()
                .chain(options.allowed_hosts.iter().cloned())
                .chain(resource_host(&options.auth)),
        )
        .with_allowed_origins(own_origins(address).chain(listed_origins(options)))
        .enforce_origin_validation()
        .with_cancellation_token(stop.child_token())
}

fn router<H: ServerHandler>(
    service: ProtocolService<H>,
    manager: Arc<LocalSessionManager>,
) -> Router {
    let limit = Arc::new(SessionLimit::new(manager));
    Router::new()
        .route_service(ENDPOINT_PATH, service)
        .layer(middleware::from_fn(name_accepted_types))
        .layer(middleware::from_fn(answer_unreadable))
        .layer(middleware::from_fn_with_state(limit, limit_sessions))
}

/// Refuses a request under a name of another server (DNS rebinding) or from a page of another origin.
///
/// The library checks both names, but only when it gets the request. So it first gets a request with nothing but the
/// names, and with a method that it does not support.
async fn check_names<H: ServerHandler>(
    State(service): State<ProtocolService<H>>,
    request: Request,
    next: Next,
) -> Response {
    let mut named = Request::new(Body::empty());
    *named.method_mut() = Method::TRACE;
    named.uri_mut().clone_from(request.uri());
    for name in [HOST, ORIGIN] {
        if let Some(value) = request.headers().get(&name) {
            named.headers_mut().insert(name, value.clone());
        }
    }
    let checked = service.handle(named).await;
    if checked.status() == StatusCode::METHOD_NOT_ALLOWED {
        return next.run(request).await;
    }
    checked.map(Body::new)
}

/// Answers a body that is not a message with the error of JSON-RPC, which names the problem. The library responds with
/// plain text: with the status 415, or with the sentence that an `initialize` with invalid parameters needs a session.
async fn answer_unreadable(request: Request, next: Next) -> Response {
    if request.method() != Method::POST {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let body = match axum::body::to_bytes(body, MAX_REQUEST_BYTES).await {
        Ok(body) => body,
        Err(error) => return unread_body(&error),
    };
    // With tokens, the check of the token has counted the values already.
    let counted = parts.extensions.get::<CountedValues>();
    if counted.map_or_else(
        || has_too_many_values(&body),
        |counted| counted.are_too_many,
    ) {
        return message_response(StatusCode::BAD_REQUEST, too_many_values());
    }
    if let Some(rejected) = check_cursor(&body) {
        // The status of an error in a request that the library has read.
        return message_response(StatusCode::OK, rejected);
    }
    let request = Request::from_parts(parts, Body::from(body.clone()));
    let response = next.run(request).await;
    if response.status() == StatusCode::NOT_FOUND {
        return with_sentence(response).await;
    }
    let is_message_refused = match response.status() {
        StatusCode::UNSUPPORTED_MEDIA_TYPE | StatusCode::BAD_REQUEST => {
            // The library gives a type to the responses that are messages of the protocol.
            !response.headers().contains_key(CONTENT_TYPE)
        }
        _ => false,
    };
    if !is_message_refused {
        return response;
    }
    let (parts, text) = response.into_parts();
    let text = axum::body::to_bytes(text, MAX_REQUEST_BYTES).await;
    let text = text.unwrap_or_default();
    // Other content types, versions and requests without a session have the same statuses.
    if !MESSAGE_REFUSALS.iter().any(|words| text.starts_with(words)) {
        return Response::from_parts(parts, Body::from(text));
    }
    match check_counted_message(&body) {
        Some(rejected) => message_response(StatusCode::BAD_REQUEST, rejected),
        None => Response::from_parts(parts, Body::from(text)),
    }
}

/// A response for an unknown method, with a sentence as message. Other responses stay as they are.
async fn with_sentence(response: Response) -> Response {
    let content_type = response.headers().get(CONTENT_TYPE);
    if content_type.is_none_or(|content_type| content_type != JSON_TYPE) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let body = axum::body::to_bytes(body, MAX_REQUEST_BYTES).await;
    let body = body.unwrap_or_default();
    let Ok(JsonRpcMessage::Error(mut message)) =
        serde_json::from_slice::<TxJsonRpcMessage<RoleServer>>(&body)
    else {
        return Response::from_parts(parts, Body::from(body));
    };
    message.error = as_sentence(message.error);
    let message = TxJsonRpcMessage::<RoleServer>::Error(message);
    let body = serde_json::to_vec(&message).unwrap_or_default();
    parts.headers.remove(CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(body))
}

/// The response to a request whose body is too long or breaks off.
pub(crate) fn unread_body(error: &axum::Error) -> Response {
    let is_too_long = error
        .source()
        .is_some_and(<dyn Error>::is::<LengthLimitError>);
    let (status, words) = if is_too_long {
        let words = format!("The body is longer than {MAX_REQUEST_BYTES} bytes.");
        (StatusCode::PAYLOAD_TOO_LARGE, words)
    } else {
        let words = "The body ended before it was complete.".to_owned();
        (StatusCode::BAD_REQUEST, words)
    };
    let error = ErrorData::invalid_request(words, None);
    message_response(status, RejectedMessage::new(error, None))
}

fn message_response(status: StatusCode, rejected: RejectedMessage) -> Response {
    let message = serde_json::to_string(&rejected.into_response()).unwrap_or_default();
    (status, [(CONTENT_TYPE, JSON_TYPE)], message).into_response()
}

/// Adds the check of tokens.
fn with_auth(protocol: Router, options: &AuthOptions, client: Option<&ServiceClient>) -> Router {
    if !options.is_required() {
        return protocol;
    }
    let layer = AuthLayer::new(Authenticator::new(options, client), MAX_REQUEST_BYTES);
    protocol.layer(middleware::from_fn_with_state(
        Arc::new(layer),
        check_request,
    ))
}

/// The name under which clients of the authorization server reach this endpoint.
fn resource_host(options: &AuthOptions) -> Option<String> {
    let resource = Url::parse(&options.oauth.as_ref()?.resource).ok()?;
    let host = resource.host_str()?;
    Some(match resource.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    })
}

/// The origins of the operator, each with its port: the library takes one without a port for all ports of the host.
fn listed_origins(options: &HttpOptions) -> impl Iterator<Item = String> {
    options.allowed_origins.iter().map(|listed| {
        let with_port = Url::parse(listed).ok().and_then(|origin| {
            let (host, port) = (origin.host_str()?, origin.port_or_known_default()?);
            Some(format!("{}://{host}:{port}", origin.scheme()))
        });
        // `HOST:*`, which is not a URL, means all ports.
        with_port.unwrap_or_else(|| listed.clone())
    })
}

/// Origins of this endpoint. They are harmless, because it serves no pages, and some clients send them.
fn own_origins(address: SocketAddr) -> impl Iterator<Item = String> {
    let local = address
        .ip()
        .is_loopback()
        .then(|| format!("http://localhost:{}", address.port()));
    std::iter::once(format!("http://{address}")).chain(local)
}
