//! The system under measurement: the real services in one process, over real sockets, and a plain file server.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use dray_bus::Meta;
use dray_egress_fetcher::dial::{DialedStream, Dialer};
use dray_egress_fetcher::resolve::{DnsError, Resolver};
use dray_egress_fetcher::{EgressFetcher, NetworkAccess};
use dray_file_resolver::FileResolver;
use dray_guard::{CanonicalName, DnsAnswer, Judge, PinnedAddr};
use dray_proto::v1;
use dray_service::{Host, RunningHost, Settings};
use dray_testkit::dial::DialCore;
use dray_testkit::files::FileServer;
use dray_types::{Deadline, TenantId};
use futures_util::future::BoxFuture;

/// Time for one measured operation.
const OPERATION_TIMEOUT: Duration = Duration::from_mins(5);

/// The fixture of a measurement.
pub(crate) struct BenchFixture {
    /// The running fetcher and resolver, with the embedded bus and store.
    pub(crate) running: RunningHost,
    /// A fake DIAL Core with a file of [`BenchFixture::DIAL_SIZE`] bytes.
    _dial: DialCore,
    /// The server of the files, for the services and for the program that they are compared with.
    pub(crate) server: FileServer,
    _directory: tempfile::TempDir,
}

impl BenchFixture {
    /// The key that may read the fake server's files.
    pub(crate) const DIAL_KEY: &str = "bench-key";
    /// Bytes of the file in the fake server.
    pub(crate) const DIAL_SIZE: usize = 10 << 20;

    /// Starts the services with an embedded bus and store.
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let server = FileServer::start().await?;
        let dial = DialCore::start().await?;
        dial.add_key(Self::DIAL_KEY, "bench");
        dial.put(
            "bench/file",
            vec![0x5a; Self::DIAL_SIZE],
            "application/octet-stream",
        );
        let network = LoopbackDialer {
            server: server.address(),
        };
        let settings = Settings::embedded(directory.path())
            .set("limits.free_disk_percent", "0")
            .set("file-resolver.dial_url", dial.url())
            .set("egress-fetcher.enabled", "true")
            .set("egress-fetcher.max_bytes_ceiling", "4GiB")
            // With the usual limits the measurement would include waiting in the queue.
            .set("egress-fetcher.max_per_host", "64")
            .set("egress-fetcher.max_per_address", "64")
            .set("egress-fetcher.max_per_app", "64")
            .set("file-resolver.max_size_limit", "4GiB");
        let running = Host::new(settings)
            .with_start::<EgressFetcher, _, _>(move |config, cx| async move {
                let network = NetworkAccess {
                    resolver: Arc::new(network),
                    dialer: Arc::new(network),
                };
                EgressFetcher::start_with(config, cx, network).await
            })
            .with::<FileResolver>()
            .start()
            .await
            .context("the services did not start")?;
        running.ready().await;
        Ok(Self {
            _dial: dial,
            running,
            server,
            _directory: directory,
        })
    }

    /// A new operation's envelope.
    pub(crate) fn meta(&self) -> Meta {
        let now = self.running.context().clock.now_ms();
        Meta::new(TenantId::default(), Deadline::after(now, OPERATION_TIMEOUT))
    }

    /// Fetches `size` bytes into the store.
    pub(crate) async fn fetch(&self, url: String, size: u64) -> anyhow::Result<()> {
        let request = v1::FetchRequest {
            url,
            size_limit_bytes: size,
            ..v1::FetchRequest::default()
        };
        let bus = &self.running.context().bus;
        let reply = bus.call(&self.meta(), &request).await?;
        anyhow::ensure!(
            reply.size == size,
            "{} of {size} bytes were fetched",
            reply.size
        );
        Ok(())
    }

    /// The URL of a file of this size for the services.
    pub(crate) fn url(size: u64) -> String {
        format!("http://files.example.org/{size}")
    }
}

/// Connects the one public name to the file server on loopback, over real sockets.
#[derive(Clone, Copy, Debug)]
struct LoopbackDialer {
    server: SocketAddr,
}

impl Resolver for LoopbackDialer {
    fn lookup<'a>(
        &'a self,
        name: &'a CanonicalName,
        _judge: &'a Judge,
    ) -> BoxFuture<'a, Result<DnsAnswer, DnsError>> {
        Box::pin(async move {
            // A public address, since the guard refuses loopback; the dialer below replaces it.
            let addresses = vec![IpAddr::V4(Ipv4Addr::new(93, 184, 215, 14))];
            Ok(DnsAnswer {
                name: name.clone(),
                cnames: Vec::new(),
                addresses,
                dnssec: dray_guard::DnssecStatus::NotKnown,
            })
        })
    }
}

impl Dialer for LoopbackDialer {
    #[expect(
        clippy::disallowed_methods,
        reason = "the measurement's own server on loopback"
    )]
    fn connect<'a>(&'a self, to: &'a PinnedAddr) -> BoxFuture<'a, io::Result<DialedStream>> {
        Box::pin(async move {
            let stream = tokio::net::TcpStream::connect(self.server).await?;
            Ok(DialedStream {
                upstream_proxy: None,
                peer: to.socket_addr(),
                local: stream.local_addr()?,
                io: Box::new(stream),
            })
        })
    }
}
