//! The server with the tools, prompts and resources that the official conformance suite of MCP calls by name:
//! `cargo xtask conformance`.
//!
//! The product implements the protocol: the HTTP layer, sessions, cache hints, questions to users, signed request
//! state. This example adds only names and contents, and the parts that the product omits because the protocol
//! deprecates them: sampling, roots and logging.
#![expect(
    clippy::print_stdout,
    reason = "the address is for the program that started this one"
)]

mod handler;
mod inputs;
mod prompts;
mod resources;
mod tasks;
mod tools;

use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use dray_bus::test_bus;
use dray_mcp::{AuthOptions, HttpEndpoint, HttpOptions, McpServer, ServerOptions, ServiceClient};
use dray_store::Store;
use dray_store::embedded::EmbeddedS3;
use dray_types::{Clock, SessionId, TenantId};
use tokio_util::sync::CancellationToken;

use handler::ConformanceServer;

type StartError = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> ExitCode {
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Serves on a free port of loopback, and prints the URL, until standard input ends.
async fn serve() -> Result<(), StartError> {
    let directory = tempfile::tempdir()?;
    let clock = Clock::system();
    let (_s3, store_options) = EmbeddedS3::start(directory.path()).await?;
    let client = ServiceClient {
        bus: test_bus::without_streams(&clock),
        store: Store::open(&store_options, clock.clone()).await?,
        clock,
        tenant: TenantId::default(),
        session: SessionId::new("conformance")?,
    };
    let server = ConformanceServer::new(McpServer::new(client, None, ServerOptions::default()));
    let endpoint = HttpEndpoint::bind(HttpOptions {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        auth: AuthOptions::default(),
        allowed_hosts: Vec::new(),
        allowed_origins: Vec::new(),
    })
    .await?;
    println!("{}", endpoint.url());
    let stop = CancellationToken::new();
    let serving = endpoint.serve_each(move || server.clone(), stop.clone());
    let stopping = async {
        // The parent process has the other end, so this process ends when the parent ends.
        let ended = tokio::io::copy(&mut tokio::io::stdin(), &mut tokio::io::sink()).await;
        stop.cancel();
        ended
    };
    let ((), ended) = tokio::join!(serving, stopping);
    ended?;
    Ok(())
}
