//! (w) Streams of HTTP/2 over TLS, compared with connections of HTTP/1.1 to the same program, without TLS and with it.
//! Squid has no HTTP/2 with its clients.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;
use dray_testkit::port::unassigned_address;
use dray_testkit::tls::Authority;
use futures_util::future::try_join_all;
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use http::Request;
use http::header::PROXY_AUTHORIZATION;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::ProxySizes;
use super::client::{ClientProtocol, EXCHANGE_BYTES, ProxyRoute, receive};
use super::fixture::{ProxyFixture, StartedProgram, dray_command};
use super::load::{CLIENT_COUNT, TUNNEL_COUNTS, connect_all, download_all};
use super::memory::{SETTLE_DELAY, print_memory};
use super::target::{ECHO_ORDER, TUNNEL_PORT};
use crate::harness::{BenchComparison, RatioTarget, SampleSet, side_by_side};
use crate::print_line;

/// Name in the certificate of the proxy.
const PROXY_NAME: &str = "127.0.0.1";
/// Window of the client for one stream, as Chromium has it.
const STREAM_WINDOW_BYTES: u32 = 6 << 20;
/// Window of the client for all streams of a connection, as Chromium has it.
const CONNECTION_WINDOW_BYTES: u32 = 15 << 20;
/// Most streams that the proxy allows on a connection.
const MAX_STREAMS: usize = 100;
/// Streams before the measurement of memory. More of them would leave heap for those that are measured.
const WARM_UP_STREAMS: usize = 8;
/// Smallest ratio to connections of HTTP/1.1.
const MIN_RATIO: f64 = 1.0;
/// Smallest ratio of the throughput to that without TLS and frames.
const MIN_THROUGHPUT: f64 = 0.5;

/// `dray` with its proxy over TLS, and the route of its clients.
#[derive(Clone)]
struct TlsRoute {
    route: ProxyRoute,
    /// Offers no protocol: the connection then speaks HTTP/1.1.
    http1: TlsConnector,
    http2: TlsConnector,
}

/// Measures memory, throughput and new streams.
pub(super) async fn run(
    program: &Path,
    fixture: &ProxyFixture,
    sizes: ProxySizes,
) -> anyhow::Result<()> {
    let authority = Authority::new()?;
    let issued = authority.issue(&[PROXY_NAME], false)?;
    let home = fixture.directory.path().join("tls");
    std::fs::create_dir(&home)?;
    let address = unassigned_address();
    let command = dray_command(program, &home, address, Some(&issued))?;
    let dray = StartedProgram::start(command, address).await?;
    let plain = fixture.route(ClientProtocol::Connect);
    let tls = TlsRoute::new(&authority, plain.clone(), address)?;
    measure_memory(&dray, &tls, sizes).await?;
    for count in TUNNEL_COUNTS {
        measure_throughput(&plain, &tls, count, sizes).await?;
    }
    measure_streams(&plain, &tls, sizes).await
}

async fn measure_memory(
    dray: &StartedProgram,
    tls: &TlsRoute,
    sizes: ProxySizes,
) -> anyhow::Result<()> {
    // Creates pools, caches and threads.
    drop(tls.open_idle(WARM_UP_STREAMS).await?);
    tokio::time::sleep(SETTLE_DELAY).await;
    let before = dray.resident_bytes()?;
    let streams = tls.open_idle(sizes.busy_tunnels).await?;
    tokio::time::sleep(SETTLE_DELAY).await;
    let label = "idle HTTP/2";
    print_memory(label, sizes.busy_tunnels, before, dray.resident_bytes()?);
    drop(streams);
    Ok(())
}

async fn measure_throughput(
    plain: &ProxyRoute,
    tls: &TlsRoute,
    count: u64,
    sizes: ProxySizes,
) -> anyhow::Result<()> {
    let size = sizes.download_bytes;
    let name = format!("(w) {} MiB through {count} streams of HTTP/2", size >> 20);
    let rounds = sizes.download_rounds;
    let streams = || tls.download_streams(count, size / count);
    let without_tls = side_by_side(rounds, || download_all(plain, count, size), streams).await?;
    print_row(&name, "dray: CONNECT", without_tls, MIN_THROUGHPUT);
    let tunnels = || tls.download_tunnels(count, size / count);
    let with_tls = side_by_side(rounds, tunnels, streams).await?;
    print_row(&name, "dray: CONNECT, TLS", with_tls, MIN_RATIO);
    Ok(())
}

async fn measure_streams(
    plain: &ProxyRoute,
    tls: &TlsRoute,
    sizes: ProxySizes,
) -> anyhow::Result<()> {
    let count = sizes.connections;
    let name =
        format!("(w) {count} new streams with a small exchange, over {CLIENT_COUNT} connections");
    let rounds = sizes.connection_rounds;
    let streams = || tls.exchange_streams(count);
    let without_tls = side_by_side(rounds, || connect_all(plain, count), streams).await?;
    print_row(&name, "dray: CONNECT", without_tls, MIN_RATIO);
    let with_tls = side_by_side(rounds, || tls.exchange_tunnels(count), streams).await?;
    print_row(&name, "dray: CONNECT, TLS", with_tls, MIN_RATIO);
    Ok(())
}

fn print_row(
    name: &str,
    label: &str,
    (baseline, measured): (Vec<std::time::Duration>, Vec<std::time::Duration>),
    least: f64,
) {
    let row = BenchComparison {
        name: name.to_owned(),
        baseline: SampleSet::new(label, baseline),
        ours: SampleSet::new("dray: HTTP/2", measured),
        target: RatioTarget::ThroughputAtLeast(least),
    };
    print_line(&row.to_string());
}

impl TlsRoute {
    fn new(authority: &Authority, plain: ProxyRoute, address: SocketAddr) -> anyhow::Result<Self> {
        let connector = |protocols: &[&[u8]]| {
            let mut roots = RootCertStore::empty();
            roots.add(authority.certificate())?;
            let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
            let mut config = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()?
                .with_root_certificates(roots)
                .with_no_client_auth();
            config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
            anyhow::Ok(TlsConnector::from(Arc::new(config)))
        };
        Ok(Self {
            route: ProxyRoute { address, ..plain },
            http1: connector(&[])?,
            http2: connector(&[b"h2"])?,
        })
    }

    async fn connect(&self, connector: &TlsConnector) -> anyhow::Result<TlsStream<TcpStream>> {
        #[expect(
            clippy::disallowed_methods,
            reason = "a proxy of this measurement, on loopback"
        )]
        let stream = TcpStream::connect(self.route.address).await?;
        stream.set_nodelay(true)?;
        Ok(connector.connect(PROXY_NAME.try_into()?, stream).await?)
    }

    /// A connection of HTTP/2.
    async fn start(&self) -> anyhow::Result<StreamClient> {
        let io = self.connect(&self.http2).await?;
        let (sender, connection) = h2::client::Builder::new()
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .handshake(io)
            .await?;
        let mut driving = JoinSet::new();
        driving.spawn(async move {
            // An error of the connection also fails its streams, so it is ignored here.
            let _ = connection.await;
        });
        Ok(StreamClient {
            sender,
            route: self.route.clone(),
            _driving: driving,
        })
    }

    /// Idle streams over as few connections as possible, each with one exchanged message.
    async fn open_idle(&self, count: usize) -> anyhow::Result<Vec<(StreamClient, Vec<Tunnel>)>> {
        let mut clients = Vec::new();
        let mut left = count;
        while left > 0 {
            let client = self.start().await?;
            let batch = left.min(MAX_STREAMS);
            let streams = try_join_all((0..batch).map(|_| client.open_echo())).await?;
            clients.push((client, streams));
            left -= batch;
        }
        Ok(clients)
    }

    /// Downloads over `count` streams of one connection, concurrently.
    async fn download_streams(&self, count: u64, size: u64) -> anyhow::Result<()> {
        let client = Arc::new(self.start().await?);
        let downloads = (0..count).map(|_| {
            let client = Arc::clone(&client);
            async move { client.download(size).await }
        });
        join_tasks(downloads).await
    }

    /// Downloads over `count` connections of HTTP/1.1 over TLS, concurrently.
    async fn download_tunnels(&self, count: u64, size: u64) -> anyhow::Result<()> {
        let downloads = (0..count).map(|_| {
            let tls = self.clone();
            async move { tls.download_tunnel(size).await }
        });
        join_tasks(downloads).await
    }

    async fn download_tunnel(&self, size: u64) -> anyhow::Result<()> {
        let mut stream = self.connect(&self.http1).await?;
        self.route.connect(&mut stream).await?;
        receive(stream, size).await
    }

    /// Makes `count` short exchanges, each on a new stream. Each connection makes its exchanges one after the other.
    async fn exchange_streams(&self, count: usize) -> anyhow::Result<()> {
        let clients = (0..CLIENT_COUNT).map(|_| {
            let tls = self.clone();
            async move {
                let client = tls.start().await?;
                for _ in 0..count / CLIENT_COUNT {
                    client.download(EXCHANGE_BYTES).await?;
                }
                Ok(())
            }
        });
        join_tasks(clients).await
    }

    /// Makes `count` short exchanges, each on a new connection of HTTP/1.1 over TLS.
    async fn exchange_tunnels(&self, count: usize) -> anyhow::Result<()> {
        let clients = (0..CLIENT_COUNT).map(|_| {
            let tls = self.clone();
            async move {
                for _ in 0..count / CLIENT_COUNT {
                    tls.download_tunnel(EXCHANGE_BYTES).await?;
                }
                Ok(())
            }
        });
        join_tasks(clients).await
    }
}

/// Runs clients as tasks, so that they use all processors.
async fn join_tasks<F>(clients: impl Iterator<Item = F>) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let mut tasks: JoinSet<_> = clients.collect();
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

/// A tunnel over a stream: its receiving half and its sending half.
type Tunnel = (RecvStream, SendStream<Bytes>);

/// A connection of HTTP/2 with the proxy.
struct StreamClient {
    sender: SendRequest<Bytes>,
    route: ProxyRoute,
    _driving: JoinSet<()>,
}

impl StreamClient {
    /// Opens a tunnel, and sends its first message.
    async fn open(&self, order: u64) -> anyhow::Result<Tunnel> {
        let authority = format!("{}:{TUNNEL_PORT}", self.route.target);
        let request = Request::connect(authority)
            .header(PROXY_AUTHORIZATION, format!("Bearer {}", self.route.token))
            .body(())?;
        let mut sender = self.sender.clone().ready().await?;
        let (response, mut up) = sender.send_request(request, false)?;
        let response = response.await?;
        anyhow::ensure!(response.status() == 200, "refused: {}", response.status());
        let order = Bytes::copy_from_slice(&order.to_be_bytes());
        up.send_data(order, false)?;
        Ok((response.into_body(), up))
    }

    /// A tunnel in which the target returns every byte.
    async fn open_echo(&self) -> anyhow::Result<Tunnel> {
        let (mut down, mut up) = self.open(ECHO_ORDER).await?;
        up.send_data(Bytes::from_static(&[7; 64]), false)?;
        let mut received = 0;
        while received < 64 {
            let chunk = down.data().await.context("the tunnel ended")??;
            down.flow_control().release_capacity(chunk.len())?;
            received += chunk.len();
        }
        Ok((down, up))
    }

    /// Receives `size` bytes through a tunnel, to its end.
    async fn download(&self, size: u64) -> anyhow::Result<()> {
        let (mut down, mut up) = self.open(size).await?;
        let mut received = 0;
        while let Some(chunk) = down.data().await {
            let length = chunk?.len();
            down.flow_control().release_capacity(length)?;
            received += length as u64;
        }
        up.send_data(Bytes::new(), true)?;
        anyhow::ensure!(received == size, "{received} of {size} bytes arrived");
        Ok(())
    }
}
