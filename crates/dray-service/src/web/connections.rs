//! The connections of an HTTP server: few enough, and none that sends its request byte by byte.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

/// Most concurrent connections; more wait in the backlog of the kernel.
const MAX_CONNECTIONS: usize = 4_096;
/// Wait after a connection that could not be accepted, such as for want of descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Serves until `stop` is cancelled, then waits for the responses at work. The head of a request must come within
/// `head_timeout`; a connection that sends none is closed after the same time.
pub async fn serve_connections(
    listener: TcpListener,
    router: Router,
    head_timeout: Duration,
    stop: CancellationToken,
) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        // Ended tasks stay in the set until they are taken out.
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&listener, &room) => accepted,
        };
        match accepted {
            Ok((socket, permit)) => {
                let serving = serve_connection(socket, router.clone(), head_timeout, stop.clone());
                connections.spawn(async move {
                    serving.await;
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
    // New connections are refused instead of waiting in the backlog.
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    // Before `accept`, so that connections beyond the limit hold no descriptor.
    let permit = Arc::clone(room).acquire_owned().await;
    let permit = permit.map_err(io::Error::other)?;
    let (socket, _) = listener.accept().await?;
    socket.set_nodelay(true)?;
    Ok((socket, permit))
}

async fn serve_connection(
    socket: TcpStream,
    router: Router,
    head_timeout: Duration,
    stop: CancellationToken,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let router = router.clone();
        async move {
            let response = router.oneshot(request.map(Body::new)).await;
            Ok::<_, Infallible>(response.unwrap_or_else(|never| match never {}))
        }
    });
    let connection = http1::Builder::new()
        // hyper panics on a header timeout without a timer.
        .timer(TokioTimer::new())
        .header_read_timeout(head_timeout)
        .half_close(true)
        .serve_connection(TokioIo::new(socket), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            // Finishes the response that is being sent; idle connections close immediately.
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
