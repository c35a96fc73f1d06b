//! The listener of the embedded endpoint.

use dray_http_server::{ConnectionLimits, RequestBody};
use s3s::service::S3Service;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::service_fn;

/// Most connections at one time. Further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 256;

/// Serves requests until `stop`, and then finishes the running ones.
pub(super) async fn serve_until(
    listener: TcpListener,
    service: S3Service,
    stop: CancellationToken,
) {
    let limits = ConnectionLimits {
        max_connections: MAX_CONNECTIONS,
        ..ConnectionLimits::default()
    };
    let handler = service_fn(move |request: http::Request<RequestBody>| {
        let service = service.clone();
        async move { service.call(request.map(s3s::Body::http_body)).await }
    });
    // Without a drain timeout it always completes.
    let _ = dray_http_server::serve(listener, handler, limits, stop).await;
}
