//! The listener: its connections, their limits and their end.

use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use s3s::service::S3Service;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Most connections at one time. Further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 256;
/// Longest time for the head of a request.
const REQUEST_HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause after a failed accept, which mostly means that file descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts until `stop`; each connection is a task of `tasks`.
pub(super) async fn serve_until(
    listener: TcpListener,
    service: S3Service,
    stop: CancellationToken,
    tasks: TaskTracker,
) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let next = async {
            // Before `accept`: without a permit a connection stays in the kernel's queue.
            let permit = Arc::clone(&permits).acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            () = stop.cancelled() => return,
            next = next => next,
        };
        match accepted {
            Ok((stream, _)) => {
                let connection = serve_connection(stream, service.clone(), stop.clone());
                tasks.spawn(async move {
                    connection.await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "embedded store cannot accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve_connection(stream: TcpStream, service: S3Service, stop: CancellationToken) {
    // A connection without it is slower, but works.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "no delay stays on");
    }
    let answer = service_fn(move |request: hyper::Request<Incoming>| {
        let service = service.clone();
        async move { service.call(request.map(s3s::Body::from)).await }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        // A client that sends nothing must not hold a place for ever.
        .header_read_timeout(REQUEST_HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), answer);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = stop.cancelled() => {
            // The request at work is finished, and no further one is taken.
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection to the embedded store ended early");
    }
}
