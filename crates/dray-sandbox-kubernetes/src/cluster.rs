//! The connection to the API server: credentials, requests and the streams of commands.

use std::time::Duration;

use bytes::Bytes;
use dray_sandbox::{Error, ErrorKind};
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use hyper_util::rt::TokioIo;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_util::task::TaskTracker;

use crate::client::api_client;
use crate::config::Config;
use crate::fault::{self, StatusBody};
use crate::pod::Pod;
use crate::target::Target;

/// Longest response of the API server in bytes.
const MAX_RESPONSE_BYTES: usize = 4 << 20;
/// Longest URI in bytes: `http` accepts less than 64 KiB.
const MAX_URI_BYTES: usize = 60 << 10;
/// Longest WebSocket message of a stream in bytes.
const MAX_MESSAGE_BYTES: usize = 1 << 20;
/// Bytes that a connection buffers in each direction.
const BUFFER_BYTES: usize = 64 << 10;
/// Versions of the exec protocol that this crate speaks, best first.
const EXEC_PROTOCOLS: &str = "v5.channel.k8s.io, v4.channel.k8s.io";

/// A WebSocket that carries the input and the outputs of a command.
pub(crate) type Socket = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;

/// The stream of a command that was accepted.
#[derive(Debug)]
pub(crate) struct AcceptedStream {
    pub(crate) socket: Socket,
    /// Whether the end of stdin can be signalled (v5; v4 cannot).
    pub(crate) half_close: bool,
}

/// The connection to one API server.
pub(crate) struct Cluster {
    config: Config,
    /// The client in use, with its number: a refused client is replaced only once.
    client: Mutex<Option<(u64, kube::Client)>>,
    tasks: TaskTracker,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}

impl Cluster {
    /// Creates the value without connecting.
    pub(crate) fn new(config: Config) -> Self {
        Self {
            config,
            // The client is created at the first request: the service must start even when the cluster is down.
            client: Mutex::new(None),
            tasks: TaskTracker::new(),
        }
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Tasks that continue after their caller has returned.
    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    /// Gets a pod, as the API server knows it now.
    pub(crate) async fn pod(&self, target: &Target) -> Result<Pod, Error> {
        let ask = RepeatableRequest {
            action: "asking for a pod",
            method: Method::GET,
            uri: target.path(),
            headers: HeaderMap::new(),
            body: Vec::new(),
        };
        self.request_pod(ask).await
    }

    /// Changes a subresource of a pod with a strategic merge patch.
    pub(crate) async fn patch(
        &self,
        target: &Target,
        part: &str,
        patch: &serde_json::Value,
    ) -> Result<Pod, Error> {
        let mut headers = HeaderMap::new();
        // A strategic patch merges ephemeral containers by name and keeps the others; a JSON merge patch replaces
        // lists.
        let kind = "application/strategic-merge-patch+json";
        headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
        let ask = RepeatableRequest {
            action: "changing a pod",
            method: Method::PATCH,
            uri: format!("{}/{part}", target.path()),
            headers,
            body: patch.to_string().into_bytes(),
        };
        self.request_pod(ask).await
    }

    /// Asks the API server whether these credentials have a right (`SelfSubjectAccessReview`).
    pub(crate) async fn is_allowed(&self, right: &serde_json::Value) -> Result<bool, Error> {
        let mut headers = HeaderMap::new();
        let kind = header::HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, kind);
        let review = serde_json::json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": right },
        });
        let ask = RepeatableRequest {
            action: "asking for a right",
            method: Method::POST,
            uri: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".to_owned(),
            headers,
            body: review.to_string().into_bytes(),
        };
        let response = self.send(&ask).await?;
        let body = self.read(ask.action, response).await?;
        let review: serde_json::Value = serde_json::from_slice(&body).map_err(|error| {
            Error::new(ErrorKind::Protocol, "the response is not a review").caused_by(error)
        })?;
        let allowed = review.pointer("/status/allowed");
        Ok(allowed.and_then(serde_json::Value::as_bool) == Some(true))
    }

    async fn request_pod(&self, ask: RepeatableRequest) -> Result<Pod, Error> {
        let action = ask.action;
        let response = self.send(&ask).await?;
        let body = self.read(action, response).await?;
        serde_json::from_slice(&body).map_err(|error| {
            Error::new(ErrorKind::Protocol, "the response is not a pod").caused_by(error)
        })
    }

    /// Starts a command in a container and opens its stream.
    pub(crate) async fn exec(
        &self,
        target: &Target,
        container: &str,
        argv: &[String],
        stdin: bool,
    ) -> Result<AcceptedStream, Error> {
        let key = generate_key();
        let ask = RepeatableRequest {
            action: "starting a command",
            method: Method::GET,
            uri: exec_uri(target, container, argv, stdin)?,
            headers: upgrade_headers(&key)?,
            body: Vec::new(),
        };
        let response = self.send(&ask).await?;
        let half_close = check_upgrade(&response, &key)?;
        let upgraded = timeout(
            self.config.response_timeout.as_duration(),
            hyper::upgrade::on(response),
        )
        .await
        .map_err(|_| Error::new(ErrorKind::Timeout, "a stream did not open"))?
        .map_err(|error| {
            Error::new(ErrorKind::Unavailable, "a stream did not open").caused_by(error)
        })?;
        // A hostile container could otherwise fill the memory with one message.
        let limits = WebSocketConfig::default()
            .read_buffer_size(BUFFER_BYTES)
            .write_buffer_size(BUFFER_BYTES)
            .max_message_size(Some(MAX_MESSAGE_BYTES))
            .max_frame_size(Some(MAX_MESSAGE_BYTES));
        let io = TokioIo::new(upgraded);
        let socket = WebSocketStream::from_raw_socket(io, Role::Client, Some(limits)).await;
        Ok(AcceptedStream { socket, half_close })
    }

    /// Sends a request. When the credentials are refused, sends it once more with fresh credentials.
    async fn send(&self, ask: &RepeatableRequest) -> Result<Response<Body>, Error> {
        let (made, client) = self.client(0).await?;
        let response = self.send_with(&client, ask).await?;
        // Projected tokens are rotated: the file has a new token before the old one expires (sandbox-transfer 6.4).
        let response = if response.status() == StatusCode::UNAUTHORIZED {
            drop(response);
            // The request is repeated only once: when the new token is refused too, the cause is missing permission and
            // not an expired token.
            let (_, client) = self.client(made).await?;
            self.send_with(&client, ask).await?
        } else {
            response
        };
        let status = response.status();
        if status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(response);
        }
        let retry_after = retry_after(response.headers());
        // The kind of the error depends only on the status, so an incomplete body is ignored.
        let body = self.read(ask.action, response).await.unwrap_or_default();
        // A proxy may send an HTML page instead of a `Status` object.
        let status_body = serde_json::from_slice(&body).unwrap_or_else(|_| StatusBody {
            message: String::from_utf8_lossy(&body).into_owned(),
            ..StatusBody::default()
        });
        Err(fault::refused(
            ask.action,
            status.as_u16(),
            &status_body,
            retry_after,
        ))
    }

    async fn send_with(
        &self,
        client: &kube::Client,
        ask: &RepeatableRequest,
    ) -> Result<Response<Body>, Error> {
        let sent = client.send(ask.request()?);
        match timeout(self.config.response_timeout.as_duration(), sent).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(fault::unreached(ask.action, error)),
            Err(_) => Err(Error::new(ErrorKind::Timeout, ask.action)),
        }
    }

    async fn read(&self, action: &str, response: Response<Body>) -> Result<Bytes, Error> {
        let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES);
        match timeout(self.config.response_timeout.as_duration(), body.collect()).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) => Err(Error::new(ErrorKind::Unavailable, action).caused_by(error)),
            Err(_) => Err(Error::new(ErrorKind::Timeout, action)),
        }
    }

    /// Returns a client that is newer than the client with this number.
    async fn client(&self, after: u64) -> Result<(u64, kube::Client), Error> {
        // The lock is held while the client is created: concurrent callers that were refused too share the new client.
        let mut guard = self.client.lock().await;
        if let Some((made, client)) = guard.as_ref()
            && *made > after
        {
            return Ok((*made, client.clone()));
        }
        let client = self.create_client().await?;
        let made = guard.as_ref().map_or(0, |(made, _)| *made) + 1;
        *guard = Some((made, client.clone()));
        Ok((made, client))
    }

    /// Creates a client with the current credentials. This may run a credential plugin, which can be slow.
    async fn create_client(&self) -> Result<kube::Client, Error> {
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| {
            Error::new(ErrorKind::Auth, "the cluster cannot be used as configured").caused_by(error)
        };
        let mut config = match &self.config.kubeconfig {
            Some(path) => {
                let path = path.clone();
                let read = tokio::task::spawn_blocking(move || Kubeconfig::read_from(path));
                let file = read.await.map_err(|error| failed(error.into()))?;
                let file = file.map_err(|error| failed(error.into()))?;
                let options = KubeConfigOptions {
                    context: self.config.context.clone(),
                    ..KubeConfigOptions::default()
                };
                kube::Config::from_custom_kubeconfig(file, &options)
                    .await
                    .map_err(|error| failed(error.into()))?
            }
            // Uses the name `kubernetes.default.svc`, because the certificates of some clusters do not list the
            // address.
            None => kube::Config::incluster_dns().map_err(|error| failed(error.into()))?,
        };
        config.connect_timeout = Some(self.config.connect_timeout.as_duration());
        // Retries belong to the caller, who knows the deadline.
        config.default_retry = false;
        let making = tokio::task::spawn_blocking(move || api_client(config));
        let made = making.await.map_err(|error| failed(error.into()))?;
        made.map_err(|error| failed(error.into()))
    }
}

/// The parts of a request, from which it can be built and sent more than once.
struct RepeatableRequest {
    action: &'static str,
    method: Method,
    uri: String,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl RepeatableRequest {
    fn request(&self) -> Result<Request<Body>, Error> {
        let mut request = Request::builder()
            .method(self.method.clone())
            .uri(&self.uri)
            .body(Body::from(self.body.clone()))
            .map_err(|error| Error::new(ErrorKind::Protocol, self.action).caused_by(error))?;
        // Sending consumes a request of the client library, and a response 401 needs a second send.
        request.headers_mut().extend(self.headers.clone());
        Ok(request)
    }
}

fn exec_uri(
    target: &Target,
    container: &str,
    argv: &[String],
    stdin: bool,
) -> Result<String, Error> {
    let mut uri = format!(
        "{}/exec?container={container}&stdout=true&stderr=true&tty=false&stdin={stdin}",
        target.path()
    );
    for word in argv {
        uri.push_str("&command=");
        // Escapes more characters than a URL needs, so that no byte can end the parameter.
        uri.extend(utf8_percent_encode(word, NON_ALPHANUMERIC));
    }
    if uri.len() > MAX_URI_BYTES {
        return Err(Error::new(
            ErrorKind::ToolMissing,
            "the command is too long for the URI of a request",
        ));
    }
    Ok(uri)
}

fn upgrade_headers(key: &str) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::new();
    let fixed = header::HeaderValue::from_static;
    headers.insert(header::CONNECTION, fixed("Upgrade"));
    headers.insert(header::UPGRADE, fixed("websocket"));
    headers.insert(header::SEC_WEBSOCKET_VERSION, fixed("13"));
    headers.insert(header::SEC_WEBSOCKET_PROTOCOL, fixed(EXEC_PROTOCOLS));
    let key = header::HeaderValue::from_str(key).map_err(|error| {
        Error::new(
            ErrorKind::Protocol,
            "the WebSocket key is not a header value",
        )
        .caused_by(error)
    })?;
    headers.insert(header::SEC_WEBSOCKET_KEY, key);
    Ok(headers)
}

/// Checks the upgrade response (RFC 6455, 4.1). Returns whether the end of stdin can be signalled.
fn check_upgrade(response: &Response<Body>, key: &str) -> Result<bool, Error> {
    let invalid = |reason: &str| Err(Error::new(ErrorKind::Protocol, reason));
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        // A proxy that does not forward upgrades responds with 200 or 400 here.
        return invalid("the server did not open a stream");
    }
    let header_value = |name| {
        let value = response.headers().get(name);
        value
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    let accepted = header_value(header::SEC_WEBSOCKET_ACCEPT) == derive_accept_key(key.as_bytes());
    if !accepted || !header_value(header::UPGRADE).eq_ignore_ascii_case("websocket") {
        return invalid("the server did not open a WebSocket");
    }
    match header_value(header::SEC_WEBSOCKET_PROTOCOL) {
        "v5.channel.k8s.io" => Ok(true),
        // v5 added a close signal for each stream (Kubernetes 1.30). In v4 the end of stdin cannot be sent.
        "v4.channel.k8s.io" => Ok(false),
        _ => invalid("the server speaks neither v5 nor v4 of the exec protocol"),
    }
}

/// `Retry-After` in seconds, limited to a week.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    let seconds: u64 = seconds.trim().parse().ok()?;
    // A larger value than a week is an error of a proxy, and adding it to the clock must not overflow.
    Some(Duration::from_secs(seconds.min(604_800)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Target {
        Target {
            namespace: "n".into(),
            pod: "p".into(),
            container: None,
        }
    }

    #[test]
    fn r_16_arguments_stay_arguments() {
        let argv = ["sh".to_owned(), "a&stdin=true #\u{e4}+ %".to_owned()];
        let uri = exec_uri(&target(), "c", &argv, false).unwrap();
        assert_eq!(
            uri,
            "/api/v1/namespaces/n/pods/p/exec?container=c&stdout=true&stderr=true&tty=false&stdin=false\
             &command=sh&command=a%26stdin%3Dtrue%20%23%C3%A4%2B%20%25"
        );
    }

    #[test]
    fn a_command_that_is_too_long_for_a_uri_is_refused() {
        let argv = ["/".repeat(MAX_URI_BYTES / 3)];
        let error = exec_uri(&target(), "c", &argv, false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ToolMissing);
    }

    #[test]
    fn protocols_other_than_v5_and_v4_are_refused() {
        let key = generate_key();
        let answer = |protocol: &str, accept: &str| {
            let response = Response::builder()
                .status(101)
                .header("upgrade", "WebSocket")
                .header("sec-websocket-accept", accept)
                .header("sec-websocket-protocol", protocol)
                .body(Body::empty())
                .unwrap();
            check_upgrade(&response, &key).map_err(|error| error.kind())
        };
        let accept = derive_accept_key(key.as_bytes());
        assert_eq!(answer("v5.channel.k8s.io", &accept), Ok(true));
        assert_eq!(answer("v4.channel.k8s.io", &accept), Ok(false));
        assert_eq!(answer("channel.k8s.io", &accept), Err(ErrorKind::Protocol));
        assert_eq!(answer("v5.channel.k8s.io", "x"), Err(ErrorKind::Protocol));
        let plain = Response::new(Body::empty());
        assert_eq!(
            check_upgrade(&plain, &key).unwrap_err().kind(),
            ErrorKind::Protocol
        );
    }
}
