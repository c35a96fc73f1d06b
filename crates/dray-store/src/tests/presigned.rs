//! Tests of presigned URLs with a plain HTTP client (messaging-reliability 11 and 19.8).

mod download;
mod lifetime;
mod upload;

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// The response of the store.
#[derive(Debug)]
struct HttpResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl HttpResponse {
    fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }
}

/// Sends a request to the URL with exactly these header fields. Adds `host` from the URL unless `fields` has it.
async fn send(
    to: SocketAddr,
    method: Method,
    url: &str,
    fields: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> HttpResponse {
    let uri: http::Uri = url.parse().unwrap();
    let mut request = Request::builder()
        .method(method)
        .uri(uri.path_and_query().unwrap().as_str());
    if !fields.iter().any(|(name, _)| *name == "host") {
        request = request.header("host", uri.authority().unwrap().as_str());
    }
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(body.into())).unwrap();

    #[expect(
        clippy::disallowed_methods,
        reason = "the test is a client outside of the system"
    )]
    let stream = TcpStream::connect(to).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(connection);
    let (parts, body) = sender.send_request(request).await.unwrap().into_parts();
    HttpResponse {
        status: parts.status,
        headers: parts.headers,
        body: body.collect().await.unwrap().to_bytes(),
    }
}
