//! The forward proxy as a program, compared with a plain TCP relay (`socat`), Squid and Stripe's Smokescreen.
//!
//! (t) the throughput of one tunnel and of eight, (u) new connections: `CONNECT`, SOCKS5 and requests in absolute form,
//! (v) memory of idle and of busy tunnels in one process, (w) streams of HTTP/2 over TLS beside connections of
//! HTTP/1.1. The guard opens no loopback address, so the target is a process in a separate network namespace, behind a
//! pair of virtual interfaces; all programs connect to it there. The namespace needs root. Ours checks a token, a
//! policy file and the address, and publishes two audit events for a connection, the first of them before a byte
//! passes; the other programs are configured to allow only the target. Tunnels carry plain bytes, so no `ClientHello`
//! is read on any side.
//!
//! Smokescreen has no Debian package: `go build -mod=vendor` in its repository, then `--smokescreen PROGRAM`. It
//! builds with Go 1.19.

mod client;
mod fixture;
mod http2;
mod load;
mod memory;
mod peers;
pub(crate) mod target;

use std::path::Path;

use fixture::ProxyFixture;
use peers::PeerProxies;

/// Numbers of connections and bytes that each row measures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProxySizes {
    /// Bytes of a measured download, over all tunnels.
    download_bytes: u64,
    download_rounds: usize,
    /// New connections of a round.
    connections: usize,
    connection_rounds: usize,
    idle_tunnels: usize,
    busy_tunnels: usize,
}

impl ProxySizes {
    /// The sizes for which the targets are set.
    const FULL: Self = Self {
        download_bytes: 2 << 30,
        download_rounds: 7,
        connections: 4_000,
        connection_rounds: 7,
        idle_tunnels: 10_000,
        busy_tunnels: 1_000,
    };
    /// Sizes that show within a minute whether everything works, even in a debug build.
    const SMALL: Self = Self {
        download_bytes: 64 << 20,
        download_rounds: 3,
        connections: 400,
        connection_rounds: 3,
        idle_tunnels: 500,
        busy_tunnels: 100,
    };

    const fn of(is_small: bool) -> Self {
        if is_small { Self::SMALL } else { Self::FULL }
    }
}

/// Measures the proxy of this binary. `smokescreen` is the program of that name.
pub(crate) async fn run(
    dray: &Path,
    smokescreen: Option<&Path>,
    is_small: bool,
) -> anyhow::Result<()> {
    let sizes = ProxySizes::of(is_small);
    let fixture = ProxyFixture::start(dray).await?;
    // Memory is measured first, because memory that earlier tunnels leave in the heap would hide that of the later
    // ones.
    memory::run(&fixture, sizes).await?;
    let peers = PeerProxies::start(&fixture, smokescreen).await?;
    load::measure_throughput(&fixture, &peers, sizes).await?;
    load::measure_connections(&fixture, &peers, sizes).await?;
    http2::run(dray, &fixture, sizes).await
}
