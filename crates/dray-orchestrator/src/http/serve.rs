//! The listener. It owns its connections: when it ends, they end, and with them the chats on them.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

/// Longest time for the head of a request to come.
const REQUEST_HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Most bytes of a head; a manifest may be in it.
const HEAD_BYTES: usize = 1 << 20;
/// Most concurrent connections; more wait in the backlog.
const MAX_CONNECTIONS: usize = 4096;
/// Wait after a connection that could not be accepted, such as for want of descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Serves until `stop`. Chats that run then go on for at most `drain`; dropping the future ends all immediately.
pub async fn serve_until(
    router: Router,
    listener: TcpListener,
    stop: CancellationToken,
    drain: Duration,
) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        // Ended tasks stay in the set until they are taken out; it would grow with each connection.
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            // Cancel safe: a dropped permit is released, and `accept` loses no connection.
            accepted = accept_connection(&listener, &room) => accepted,
        };
        match accepted {
            Ok((socket, permit)) => {
                let (router, stop) = (router.clone(), stop.clone());
                connections.spawn(async move {
                    serve_connection(socket, router, stop).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                // Without descriptors `accept` fails immediately, and the loop would spin.
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
    // Before the drain: new connections are refused instead of waiting in the backlog.
    drop(listener);
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(drain, drained).await.is_err() {
        tracing::warn!("chats were cut off by the end of the service");
    }
}

async fn accept_connection(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    // Before `accept`: beyond the limit connections wait in the backlog of the kernel, without a descriptor.
    let permit = Arc::clone(room).acquire_owned().await;
    let permit = permit.map_err(io::Error::other)?;
    let (socket, _) = listener.accept().await?;
    // Chunks leave as they are made.
    socket.set_nodelay(true)?;
    Ok((socket, permit))
}

async fn serve_connection(socket: TcpStream, router: Router, stop: CancellationToken) {
    let service = service_fn(move |request: Request<Incoming>| {
        let router = router.clone();
        async move { Ok::<_, Infallible>(answer_request(router, request).await) }
    });
    let connection = http1::Builder::new()
        // hyper panics on a header timeout without a timer.
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(socket), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            // Finishes the response that is being sent; idle keep-alive connections close immediately.
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

async fn answer_request(router: Router, request: Request<Incoming>) -> axum::response::Response {
    match router.oneshot(request.map(Body::new)).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}
