//! The listener of chats: the limits of its connections, and how it ends.

use std::time::Duration;

use axum::Router;
use dray_http_server::{ConnectionLimits, DrainOutcome, with_text_paths};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Most bytes of a request head; a manifest may be in it.
const MAX_HEAD_BYTES: usize = 1 << 20;

/// Serves until `stop`. Chats that run then continue for at most `drain`; dropping the future ends all immediately.
pub async fn serve_until(
    router: Router,
    listener: TcpListener,
    stop: CancellationToken,
    drain: Duration,
) {
    let limits = ConnectionLimits {
        max_head_bytes: MAX_HEAD_BYTES,
        // `body_timeout` of the configuration limits the body of each request.
        body_idle_timeout: None,
        drain_timeout: Some(drain),
        ..ConnectionLimits::default()
    };
    let outcome = dray_http_server::serve(listener, with_text_paths(router), limits, stop).await;
    if outcome == DrainOutcome::CutOff {
        tracing::warn!("chats were cut off by the end of the service");
    }
}
