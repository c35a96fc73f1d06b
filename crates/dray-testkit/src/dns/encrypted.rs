//! The scripted DNS server over TLS (RFC 7858) and over HTTPS (RFC 8484). It closes connections when a test requests
//! it.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use hickory_proto::op::Message;
use http::header::CONTENT_TYPE;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::{DnsReply, DnsZone, lock_mutex, serve_stream};

/// The protocol inside TLS.
#[derive(Clone, Copy, Debug)]
pub(super) enum EncryptedProtocol {
    /// Each message follows its length (RFC 7858).
    Stream,
    /// Each message is a request of HTTP/2 (RFC 8484).
    Http2,
}

/// Accepts connections until the task is dropped.
pub(super) async fn serve(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    protocol: EncryptedProtocol,
    zone: Arc<DnsZone>,
    closed: watch::Sender<u64>,
) {
    let mut connections = JoinSet::new();
    while let Ok((stream, from)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let (zone, acceptor) = (Arc::clone(&zone), acceptor.clone());
        let mut closed = closed.subscribe();
        connections.spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else {
                tracing::debug!("a client ended the scripted handshake");
                return;
            };
            zone.connections.fetch_add(1, Ordering::Relaxed);
            let serving = async {
                match protocol {
                    EncryptedProtocol::Stream => serve_stream(stream, from, &zone).await,
                    EncryptedProtocol::Http2 => serve_http2(stream, from, Arc::clone(&zone)).await,
                }
            };
            tokio::select! {
                result = serving => if let Err(error) = result {
                    tracing::debug!(%error, "scripted connection ended");
                },
                _ = closed.changed() => {}
            }
        });
    }
}

async fn serve_http2(
    stream: TlsStream<TcpStream>,
    from: SocketAddr,
    zone: Arc<DnsZone>,
) -> io::Result<()> {
    let service = service_fn(move |request| {
        let zone = Arc::clone(&zone);
        async move { Ok::<_, Infallible>(respond(request, from, &zone).await) }
    });
    hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await
        .map_err(io::Error::other)
}

/// Responds to one POST. A silent question waits until the client gives up.
async fn respond(
    request: Request<Incoming>,
    from: SocketAddr,
    zone: &DnsZone,
) -> Response<Full<Bytes>> {
    let packet = match request.into_body().collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => Bytes::new(),
    };
    let (answers, _) = zone.answer(&packet, from, true);
    if let Some(DnsReply::Http(status, media_type, body)) = zone.reply_to(&packet) {
        return response(status, media_type, body);
    }
    match answers.into_iter().next() {
        Some(answer) => response(200, "application/dns-message", answer),
        None => std::future::pending().await,
    }
}

fn response(status: u16, media_type: &'static str, body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
    let value = http::HeaderValue::from_static(media_type);
    response.headers_mut().insert(CONTENT_TYPE, value);
    response
}

impl DnsZone {
    /// The reply that the test set for the question of `packet`.
    fn reply_to(&self, packet: &[u8]) -> Option<DnsReply> {
        let question = Message::from_vec(packet).ok()?;
        let query = question.queries.first()?;
        let key = (query.name().to_lowercase().to_string(), query.query_type());
        lock_mutex(&self.replies).get(&key).cloned()
    }
}
