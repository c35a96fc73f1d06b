//! The server with the tools, prompts and resources that the official conformance suite calls by name.
//!
//! The product implements the protocol: the HTTP layer, sessions, cache hints, questions to users, signed request
//! state. This server adds only names and contents, and the parts that the product omits because the protocol
//! deprecates them: sampling, roots and logging.

mod handler;
mod inputs;
mod prompts;
mod resources;
mod tasks;
mod tools;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use dray_bus::test_bus;
use dray_mcp::{AuthOptions, HttpEndpoint, HttpOptions, McpServer, ServerOptions, ServiceClient};
use dray_store::Store;
use dray_store::embedded::EmbeddedS3;
use dray_types::{Clock, SessionId, TenantId};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use handler::ConformanceServer;

/// Serves on a free port of loopback while `client` runs with the URL, and returns its value.
pub(super) async fn serve_during<T: Send + 'static>(
    client: impl FnOnce(String) -> T + Send + 'static,
) -> T {
    let directory = tempfile::tempdir().unwrap();
    let clock = Clock::system();
    let (_s3, store_options) = EmbeddedS3::start(directory.path()).await.unwrap();
    let services = ServiceClient {
        bus: test_bus::without_streams(&clock),
        store: Store::open(&store_options, clock.clone()).await.unwrap(),
        clock,
        tenant: TenantId::default(),
        session: SessionId::new("conformance").unwrap(),
    };
    let server = ConformanceServer::new(McpServer::new(services, None, ServerOptions::default()));
    let endpoint = HttpEndpoint::bind(HttpOptions {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        auth: AuthOptions::default(),
        allowed_hosts: Vec::new(),
        allowed_origins: Vec::new(),
    })
    .await
    .unwrap();
    let url = endpoint.url();
    let stop = CancellationToken::new();
    let mut serving = JoinSet::new();
    serving.spawn(endpoint.serve_each(move || server.clone(), stop.clone()));
    let value = tokio::task::spawn_blocking(move || client(url))
        .await
        .unwrap();
    stop.cancel();
    serving.join_all().await;
    value
}

/// Lets a tool take the time that the suite asks for. No test waits for it.
async fn pass_time(time: Duration) {
    let _ = tokio::time::timeout(time, std::future::pending::<()>()).await;
}
