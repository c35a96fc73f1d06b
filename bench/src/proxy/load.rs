//! (t) Throughput of tunnels, and (u) new connections, each compared with the other programs in turn.

use futures_util::future::try_join_all;

use super::ProxySizes;
use super::client::{ClientProtocol, ProxyRoute};
use super::fixture::ProxyFixture;
use super::peers::{PeerProxies, route_through};
use crate::harness::{BenchComparison, RatioTarget, SampleSet, side_by_side};
use crate::print_line;

/// Smallest ratio of our throughput to that of a plain relay.
const MIN_THROUGHPUT: f64 = 0.9;
/// Tunnels that are measured together.
pub(super) const TUNNEL_COUNTS: [u64; 2] = [1, 8];
/// Clients that open new connections concurrently. Each client opens one connection after the other.
pub(super) const CLIENT_COUNT: usize = 16;

/// Compares downloads.
pub(super) async fn measure_throughput(
    fixture: &ProxyFixture,
    peers: &PeerProxies,
    sizes: ProxySizes,
) -> anyhow::Result<()> {
    let ours = fixture.route(ClientProtocol::Connect);
    let socat = peers.socat.as_ref().map(|program| {
        let route = route_through(program, ClientProtocol::Relay);
        ("socat", route, MIN_THROUGHPUT)
    });
    let squid = peers.squid.as_ref().map(|program| {
        let route = route_through(program, ClientProtocol::Connect);
        ("Squid", route, 1.0)
    });
    for count in TUNNEL_COUNTS {
        for (name, theirs, least) in [&socat, &squid].into_iter().flatten() {
            let size = sizes.download_bytes;
            let (baseline, measured) = side_by_side(
                sizes.download_rounds,
                || download_all(theirs, count, size),
                || download_all(&ours, count, size),
            )
            .await?;
            let row = BenchComparison {
                name: format!("(t) {} MiB through {count} tunnels", size >> 20),
                baseline: SampleSet::new(*name, baseline),
                ours: SampleSet::new("dray: CONNECT", measured),
                target: RatioTarget::ThroughputAtLeast(*least),
            };
            print_line(&row.to_string());
        }
    }
    Ok(())
}

/// Compares new connections, each with a small exchange.
pub(super) async fn measure_connections(
    fixture: &ProxyFixture,
    peers: &PeerProxies,
    sizes: ProxySizes,
) -> anyhow::Result<()> {
    let squid = peers.squid.as_ref();
    let smokescreen = peers.smokescreen.as_ref();
    for (ours, program, name, theirs) in [
        (
            ClientProtocol::Connect,
            squid,
            "Squid",
            ClientProtocol::Connect,
        ),
        (
            ClientProtocol::Request,
            squid,
            "Squid",
            ClientProtocol::Request,
        ),
        (
            ClientProtocol::Socks,
            squid,
            "Squid",
            ClientProtocol::Connect,
        ),
        (
            ClientProtocol::Connect,
            smokescreen,
            "Smokescreen",
            ClientProtocol::Connect,
        ),
        (
            ClientProtocol::Request,
            smokescreen,
            "Smokescreen",
            ClientProtocol::Request,
        ),
    ] {
        let Some(program) = program else {
            // The line about the missing program was printed when it did not start.
            continue;
        };
        let route = fixture.route(ours);
        let peer_route = route_through(program, theirs);
        let count = sizes.connections;
        let (baseline, measured) = side_by_side(
            sizes.connection_rounds,
            || connect_all(&peer_route, count),
            || connect_all(&route, count),
        )
        .await?;
        let row = BenchComparison {
            name: format!(
                "(u) {count} new connections with a small exchange, {CLIENT_COUNT} concurrently"
            ),
            baseline: SampleSet::new(format!("{name}: {theirs:?}"), baseline),
            ours: SampleSet::new(format!("dray: {ours:?}"), measured),
            target: RatioTarget::ThroughputAtLeast(1.0),
        };
        print_line(&row.to_string());
    }
    Ok(())
}

/// Receives `size` bytes over `count` tunnels together.
pub(super) async fn download_all(route: &ProxyRoute, count: u64, size: u64) -> anyhow::Result<()> {
    try_join_all((0..count).map(|_| {
        run_in_task(route.clone(), move |route| async move {
            route.download(size / count).await
        })
    }))
    .await?;
    Ok(())
}

/// Opens `count` connections, one after the other for each client.
pub(super) async fn connect_all(route: &ProxyRoute, count: usize) -> anyhow::Result<()> {
    // A fixed number for each client: a shared list of work would need a lock.
    let connections_per_client = count / CLIENT_COUNT;
    try_join_all((0..CLIENT_COUNT).map(|_| {
        run_in_task(route.clone(), move |route| async move {
            for _ in 0..connections_per_client {
                route.exchange().await?;
            }
            Ok(())
        })
    }))
    .await?;
    Ok(())
}

/// Runs a client as a separate task, so that several clients use all processors.
#[expect(
    clippy::disallowed_methods,
    reason = "the clients end with the measurement, which waits for them"
)]
async fn run_in_task<F>(
    route: ProxyRoute,
    work: impl FnOnce(ProxyRoute) -> F + Send + 'static,
) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    tokio::spawn(work(route)).await?
}
