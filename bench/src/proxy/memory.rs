//! (v) Memory of one process with many tunnels: idle tunnels, and tunnels that exchange messages without a pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::net::TcpStream;

use super::ProxySizes;
use super::client::{ClientProtocol, ProxyRoute, exchange_echo};
use super::fixture::ProxyFixture;
use crate::harness::verdict_text;
use crate::print_line;

/// Most resident memory of one tunnel.
const MAX_TUNNEL_BYTES: u64 = 40 << 10;
/// Tunnels that are opened concurrently.
const OPENING_COUNT: usize = 64;
/// Tunnels before the measurement, which create pools, caches and threads.
const WARM_UP_TUNNELS: usize = 64;
/// Bytes of a message in a busy tunnel.
const MESSAGE_BYTES: usize = 4 << 10;
/// Time after which busy tunnels are in the middle of their work.
const BUSY_DELAY: Duration = Duration::from_secs(5);
/// Time in which the memory of the proxy settles after tunnels were opened or closed.
pub(super) const SETTLE_DELAY: Duration = Duration::from_secs(2);
/// File descriptors of the proxy for other purposes than tunnels. Each tunnel has two.
const SPARE_DESCRIPTORS: u64 = 400;

/// Measures idle tunnels, then busy ones.
pub(super) async fn run(fixture: &ProxyFixture, sizes: ProxySizes) -> anyhow::Result<()> {
    let route = fixture.route(ClientProtocol::Connect);
    drop(open_tunnels(&route, WARM_UP_TUNNELS).await?);
    tokio::time::sleep(SETTLE_DELAY).await;
    let before = fixture.dray.resident_bytes()?;
    measure_busy(fixture, &route, sizes.busy_tunnels, before).await?;
    tokio::time::sleep(SETTLE_DELAY).await;
    let before = fixture.dray.resident_bytes()?;
    // The proxy has two descriptors for each tunnel.
    let available = fixture.descriptors.saturating_sub(SPARE_DESCRIPTORS) / 2;
    let count = sizes
        .idle_tunnels
        .min(usize::try_from(available).unwrap_or(usize::MAX));
    if count < sizes.idle_tunnels {
        print_line(&format!(
            "  {count} idle tunnels, since a process here has {} file descriptors",
            fixture.descriptors
        ));
    }
    let tunnels = open_tunnels(&route, count).await?;
    tokio::time::sleep(SETTLE_DELAY).await;
    print_memory("idle", count, before, fixture.dray.resident_bytes()?);
    drop(tunnels);
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the clients end with the measurement, which waits for them"
)]
async fn measure_busy(
    fixture: &ProxyFixture,
    route: &ProxyRoute,
    count: usize,
    before: u64,
) -> anyhow::Result<()> {
    let tunnels = open_tunnels(route, count).await?;
    let is_over = Arc::new(AtomicBool::new(false));
    let exchanged = Arc::new(AtomicU64::new(0));
    let busy: Vec<_> = tunnels
        .into_iter()
        .map(|mut stream| {
            let (is_over, exchanged) = (Arc::clone(&is_over), Arc::clone(&exchanged));
            tokio::spawn(async move {
                let mut message = vec![0x5a; MESSAGE_BYTES];
                while !is_over.load(Ordering::Relaxed) {
                    exchange_echo(&mut stream, &mut message).await?;
                    exchanged.fetch_add(1, Ordering::Relaxed);
                }
                anyhow::Ok(())
            })
        })
        .collect();
    tokio::time::sleep(BUSY_DELAY).await;
    let during = fixture.dray.resident_bytes();
    // The values are read before the tunnels end, and reported after all have ended well.
    is_over.store(true, Ordering::Relaxed);
    for tunnel in busy {
        tunnel.await??;
    }
    print_line(&format!(
        "(v) {} exchanges of {MESSAGE_BYTES} B through {count} busy tunnels in {} s",
        exchanged.load(Ordering::Relaxed),
        BUSY_DELAY.as_secs()
    ));
    print_memory("busy", count, before, during?);
    Ok(())
}

/// Opens tunnels and sends one message through each, so that the proxy has allocated everything for them.
async fn open_tunnels(route: &ProxyRoute, count: usize) -> anyhow::Result<Vec<TcpStream>> {
    let mut tunnels = Vec::with_capacity(count);
    while tunnels.len() < count {
        let batch = OPENING_COUNT.min(count - tunnels.len());
        tunnels.extend(try_join_all((0..batch).map(|_| route.open_echo())).await?);
    }
    Ok(tunnels)
}

/// Prints the memory of each tunnel, beside the aim.
pub(super) fn print_memory(label: &str, count: usize, before: u64, with_tunnels: u64) {
    let per_tunnel = with_tunnels.saturating_sub(before) / count as u64;
    let verdict = verdict_text(per_tunnel <= MAX_TUNNEL_BYTES);
    print_line(&format!(
        "(v) {count} {label} tunnels in one process: {} KiB, before {} KiB; {:.1} KiB each, aim at most {} KiB: {verdict}\n",
        with_tunnels >> 10,
        before >> 10,
        kib(per_tunnel),
        MAX_TUNNEL_BYTES >> 10
    ));
}

#[expect(clippy::cast_precision_loss, reason = "far below the precision of f64")]
fn kib(bytes: u64) -> f64 {
    bytes as f64 / 1024.0
}
