//! The listener of the embedded endpoint.

use std::time::Duration;

use dray_http_server::{ConnectionLimits, RequestBody};
use s3s::service::S3Service;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::service_fn;

/// Most connections at one time. Further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 256;
/// Longest time for which a peer may take no bytes.
const WRITE_IDLE_TIMEOUT: Duration = Duration::from_hours(1);

/// Serves requests until `stop`, and then finishes the running ones.
pub(super) async fn serve_until(
    listener: TcpListener,
    service: S3Service,
    stop: CancellationToken,
) {
    let limits = ConnectionLimits {
        max_connections: MAX_CONNECTIONS,
        // The peers are services of this system. They read as fast as their own peers, to which they apply a timeout.
        write_idle_timeout: WRITE_IDLE_TIMEOUT,
        ..ConnectionLimits::default()
    };
    let handler = service_fn(move |request: http::Request<RequestBody>| {
        let service = service.clone();
        async move { service.call(request.map(s3s::Body::http_body)).await }
    });
    // Without a drain timeout it always completes.
    let _ = dray_http_server::serve(listener, handler, limits, stop).await;
}
