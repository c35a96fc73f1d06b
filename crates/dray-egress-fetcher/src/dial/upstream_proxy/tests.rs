//! Tests over a proxy on loopback. Its targets are public addresses, which only the proxy "reaches": it serves them
//! itself.

use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dray_guard::judge::HopContext;
use dray_guard::{Judge, JudgeConfig, PrivateRanges};
use dray_testkit::eventually;
use dray_testkit::http::{ResponseScript, ScriptedResponder, serve_request};
use dray_testkit::tls::Authority;
use futures_util::future::join_all;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::fetch::{Fetcher, NetworkAccess};
use crate::limits::FetchAdmission;
use crate::tests::fake_network::{FetchResult, FetcherFixture, PUBLIC_ADDRESS, request, run};

mod breaker;

const TUNNEL_OPEN: &str = "HTTP/1.1 200 Connection established\r\n\r\n";

/// Behaviour of the proxy after its response.
#[derive(Clone)]
enum FakeTarget {
    /// Keeps the connection open and sends nothing.
    Silent,
    /// Sends nothing for a tunnel, and a refusal for every other request.
    NoTunnel,
    /// Closes the connection.
    Closed,
    /// A plain server behind the tunnel.
    Plain(ScriptedResponder),
    /// An HTTPS server behind the tunnel.
    Tls(TlsAcceptor, ScriptedResponder),
}

/// A proxy that answers each request with the same bytes and then serves one target.
struct FakeProxy {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    _task: JoinSet<()>,
}

impl FakeProxy {
    async fn start(response: impl AsRef<[u8]>, target: FakeTarget) -> Self {
        Self::listen(None, response, target).await
    }

    async fn listen(
        tls: Option<TlsAcceptor>,
        response: impl AsRef<[u8]>,
        target: FakeTarget,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let received_heads = Arc::clone(&heads);
        let response = response.as_ref().to_vec();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, received_heads) = (tls.clone(), Arc::clone(&received_heads));
                let (response, target) = (response.clone(), target.clone());
                connections.spawn(async move {
                    let io: Box<dyn Io> = match tls {
                        Some(acceptor) => Box::new(acceptor.accept(stream).await?),
                        None => Box::new(stream),
                    };
                    serve_tunnel(io, &received_heads, &response, target).await
                });
            }
        });
        Self {
            address,
            heads,
            _task: task,
        }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    fn settings(&self) -> UpstreamProxySettings {
        settings(&format!("http://{}", self.address))
    }
}

async fn serve_tunnel(
    mut io: Box<dyn Io>,
    received_heads: &Mutex<Vec<String>>,
    response: &[u8],
    target: FakeTarget,
) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(io.read_u8().await?);
    }
    let is_tunnel = head.starts_with(b"CONNECT ");
    received_heads
        .lock()
        .unwrap()
        .push(String::from_utf8(head).unwrap());
    if matches!(target, FakeTarget::NoTunnel) && !is_tunnel {
        return io.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    }
    io.write_all(response).await?;
    io.flush().await?;
    match target {
        FakeTarget::Silent | FakeTarget::NoTunnel => read_to_end(io).await,
        FakeTarget::Closed => io.shutdown().await,
        FakeTarget::Plain(responder) => serve_request(io, &responder).await,
        FakeTarget::Tls(acceptor, responder) => {
            serve_request(acceptor.accept(io).await?, &responder).await
        }
    }
}

async fn read_to_end(mut io: impl Io) -> io::Result<()> {
    tokio::io::copy(&mut io, &mut tokio::io::sink()).await?;
    Ok(())
}

fn settings(url: &str) -> UpstreamProxySettings {
    UpstreamProxySettings {
        url: CanonicalUrl::parse(url).unwrap(),
        authorization: None,
    }
}

fn tls(bundle: Option<&str>) -> TlsClient {
    TlsClient::new(bundle).unwrap()
}

/// Fetches with the names of `fixture`, through the proxy.
async fn fetch(
    fixture: &FetcherFixture,
    settings: UpstreamProxySettings,
    url: &str,
) -> FetchResult {
    let tls_client = tls(fixture.bundle.as_deref());
    let network = NetworkAccess {
        dialer: Arc::new(UpstreamProxyDialer::new(settings, tls_client.clone())),
        ..fixture.fake_network.network()
    };
    let fetcher = Fetcher::new(
        fixture.settings.clone(),
        fixture.admin.clone(),
        Judge::new(fixture.judge.clone()),
        network,
        tls_client,
        FetchAdmission::new(fixture.sizes),
    );
    run(&fetcher, &request(url)).await
}

fn pinned(address: &str, judge: JudgeConfig) -> PinnedAddr {
    let address: IpAddr = address.parse().unwrap();
    let context = HopContext {
        previous: None,
        admin_listed: true,
    };
    let judged = Judge::new(judge).judge_literal(address, 22, context);
    judged.unwrap().addresses().first().unwrap().clone()
}

#[tokio::test]
async fn t_3_the_upstream_proxy_gets_the_judged_address_and_never_the_name() {
    let target = ScriptedResponder::always(ResponseScript::ok("hello"));
    let proxy = FakeProxy::start(TUNNEL_OPEN, FakeTarget::Plain(target.clone())).await;
    let fixture = FetcherFixture::default();
    let fetched = fetch(
        &fixture,
        proxy.settings(),
        "http://files.example.org/a?b=secret",
    )
    .await;
    assert_eq!((fetched.code(), fetched.body), ("ok", b"hello".to_vec()));
    assert_eq!(
        proxy.heads(),
        [format!(
            "CONNECT {PUBLIC_ADDRESS}:80 HTTP/1.1\r\nHost: {PUBLIC_ADDRESS}:80\r\n\r\n"
        )]
    );
    assert_eq!(
        target.received_requests()[0].field("host"),
        Some("files.example.org"),
        "inside the tunnel"
    );
    let hop = &fetched.record.hops[0];
    assert_eq!(hop.upstream_proxy, Some(proxy.address));
    assert_eq!(hop.peer, hop.chosen);
    assert_eq!(fixture.fake_network.dialled(), [""; 0]);
}

#[tokio::test]
async fn the_target_proves_its_name_through_the_tunnel() {
    let authority = Authority::new().unwrap();
    let fixture = FetcherFixture {
        bundle: Some(authority.pem()),
        ..FetcherFixture::default()
    };
    for (name, code) in [
        ("files.example.org", "ok"),
        ("other.example.org", "tls_error"),
    ] {
        let target = FakeTarget::Tls(
            authority.acceptor(name).unwrap(),
            ScriptedResponder::always(ResponseScript::ok("hello")),
        );
        let proxy = FakeProxy::start(TUNNEL_OPEN, target).await;
        let fetched = fetch(&fixture, proxy.settings(), "https://files.example.org/").await;
        assert_eq!(fetched.code(), code, "{name}");
    }
}

#[tokio::test]
async fn a_private_or_metadata_address_never_reaches_the_upstream_proxy() {
    let proxy = FakeProxy::start(TUNNEL_OPEN, FakeTarget::Silent).await;
    let fixture = FetcherFixture::default();
    fixture
        .fake_network
        .name("rebound.example.org", &["169.254.169.254"]);
    for url in [
        "http://169.254.169.254/latest/meta-data/",
        "http://10.0.0.7/",
        "http://rebound.example.org/",
    ] {
        let fetched = fetch(&fixture, proxy.settings(), url).await;
        assert_eq!(fetched.code(), "ssrf_blocked", "{url}");
    }
    assert_eq!(proxy.heads(), [""; 0]);
}

#[tokio::test]
async fn credentials_go_to_the_proxy_and_a_refusal_names_the_setting_and_no_secret() {
    let refusal = "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n";
    let proxy = FakeProxy::start(refusal, FakeTarget::Closed).await;
    let dialer = UpstreamProxyDialer::new(
        UpstreamProxySettings {
            authorization: Some(Secret::new("Basic ZHJheTpzZWNyZXQ=")),
            ..proxy.settings()
        },
        tls(None),
    );
    let address = pinned(PUBLIC_ADDRESS, JudgeConfig::default());
    let error = dialer.connect(&address).await.unwrap_err().to_string();
    assert!(
        error.contains("egress-fetcher.upstream_proxy (status 407)"),
        "{error}"
    );
    assert!(!error.contains("ZHJheTpzZWNyZXQ"), "{error}");
    assert!(!format!("{dialer:?}").contains("ZHJheTpzZWNyZXQ"));
    assert!(
        proxy.heads()[0].contains("\r\nProxy-Authorization: Basic ZHJheTpzZWNyZXQ=\r\n"),
        "{:?}",
        proxy.heads()
    );
}

#[tokio::test]
async fn a_proxy_that_opens_no_tunnel_fails_the_fetch() {
    let long_field = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(MAX_HEAD_BYTES));
    let interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(400);
    let fixture = FetcherFixture::default();
    let responses = [
        "HTTP/1.1 403 Forbidden\r\n\r\n",
        "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 3\r\n\r\nno!",
        "HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\n\r\n",
        "SSH-2.0-OpenSSH_9.2\r\n\r\n",
        "HTTP/1.1 200",
        "",
        &long_field,
        &interim,
    ];
    // The fetches run concurrently, because each fetch waits before its further attempts.
    let fetched = join_all(responses.map(async |response| {
        let proxy = FakeProxy::start(response, FakeTarget::Closed).await;
        fetch(&fixture, proxy.settings(), "http://files.example.org/").await
    }));
    for (response, fetched) in responses.iter().zip(fetched.await) {
        assert_eq!(fetched.code(), "connect_failed", "{response:.40}");
        assert_eq!(fetched.record.hops[0].peer, None);
    }
}

#[tokio::test]
async fn a_proxy_that_never_responds_ends_the_fetch_at_the_timeout_for_connecting() {
    let proxy = FakeProxy::start("", FakeTarget::Silent).await;
    let fixture = FetcherFixture {
        settings: crate::fetch::FetchLimits {
            connect: Duration::from_millis(100),
            ..crate::tests::fake_network::settings()
        },
        ..FetcherFixture::default()
    };
    let fetched = fetch(&fixture, proxy.settings(), "http://files.example.org/").await;
    assert_eq!(fetched.end(), ("timeout", "connect"));
}

#[tokio::test]
async fn bytes_behind_the_response_belong_to_the_tunnel() {
    // A body of a 2xx to CONNECT does not exist, so the length is ignored; the target speaks first.
    let response =
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nSSH-2.0-x\r\n";
    let proxy = FakeProxy::start(response, FakeTarget::Closed).await;
    let dialer = UpstreamProxyDialer::new(proxy.settings(), tls(None));
    let address = pinned(PUBLIC_ADDRESS, JudgeConfig::default());
    let mut opened = dialer.connect(&address).await.unwrap();
    let mut text = String::new();
    opened.io.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "SSH-2.0-x\r\n");
}

#[tokio::test]
async fn an_https_proxy_proves_its_name_before_it_gets_a_request() {
    let authority = Authority::new().unwrap();
    let pem = authority.pem();
    for (name, is_trusted) in [("localhost", true), ("other.example.org", false)] {
        let acceptor = authority.acceptor(name).unwrap();
        let proxy = FakeProxy::listen(Some(acceptor), TUNNEL_OPEN, FakeTarget::Silent).await;
        let url = format!("https://localhost:{}", proxy.address.port());
        let dialer = UpstreamProxyDialer::new(settings(&url), tls(Some(&pem)));
        let address = pinned(PUBLIC_ADDRESS, JudgeConfig::default());
        let opened = dialer.connect(&address).await;
        assert_eq!(opened.is_ok(), is_trusted, "{opened:?}");
        assert_eq!(proxy.heads().len(), usize::from(is_trusted), "{name}");
    }
}

#[test]
fn opened_ranges_are_dialled_directly() {
    let judge = JudgeConfig {
        private_ranges: PrivateRanges::parse("10.20.30.0/24").unwrap(),
        ..JudgeConfig::default()
    };
    assert!(is_direct(&pinned("10.20.30.7", judge.clone())));
    assert!(!is_direct(&pinned(PUBLIC_ADDRESS, judge)));
}

/// The proxy `tinyproxy`, which opens every tunnel through another proxy. Dropping it ends the process.
struct Tinyproxy {
    child: Child,
    port: u16,
    _directory: tempfile::TempDir,
}

impl Tinyproxy {
    async fn start(next: SocketAddr) -> Self {
        // Another test may choose the same port; the next round tries another one.
        for _ in 0..5 {
            let port = dray_testkit::port::unassigned_address().port();
            if let Some(started) = Self::start_at(port, next).await {
                return started;
            }
        }
        panic!("tinyproxy does not start");
    }

    /// Starts the proxy on this port. Returns `None` if it ends before it accepts connections.
    async fn start_at(port: u16, next: SocketAddr) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("tinyproxy.conf");
        let lines = format!(
            "Port {port}\nListen 127.0.0.1\nTimeout 60\nMaxClients 8\nConnectPort 80\n\
             BasicAuth dray secret\nUpstream http {next}\n"
        );
        std::fs::write(&file, lines).unwrap();
        let child = Command::new("tinyproxy")
            .args(["-d".as_ref(), "-c".as_ref(), file.as_os_str()])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut started = Self {
            child,
            port,
            _directory: directory,
        };
        let accepts = eventually("tinyproxy to accept connections or to end", async || {
            if started.child.try_wait().unwrap().is_some() {
                return Some(false);
            }
            let socket = new_socket(([127, 0, 0, 1], port).into()).unwrap();
            let connecting = socket.connect(([127, 0, 0, 1], port).into());
            connecting.await.is_ok().then_some(true)
        })
        .await;
        accepts.then_some(started)
    }
}

impl Drop for Tinyproxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn tinyproxy_opens_tunnels_only_with_the_correct_password() {
    let target = ScriptedResponder::always(ResponseScript::ok("hello"));
    let next = FakeProxy::start(TUNNEL_OPEN, FakeTarget::Plain(target)).await;
    let proxy = Tinyproxy::start(next.address).await;
    let fixture = FetcherFixture::default();
    for (pair, code) in [
        ("ZHJheTpzZWNyZXQ=", "ok"),
        ("ZHJheTp3cm9uZw==", "connect_failed"),
    ] {
        let settings = UpstreamProxySettings {
            authorization: Some(Secret::new(format!("Basic {pair}"))),
            ..settings(&format!("http://127.0.0.1:{}", proxy.port))
        };
        let fetched = fetch(&fixture, settings, "http://files.example.org/").await;
        assert_eq!(fetched.code(), code, "{:?}", fetched.result);
    }
    let heads = next.heads();
    assert_eq!(heads.len(), 1);
    assert!(
        heads[0].starts_with(&format!("CONNECT {PUBLIC_ADDRESS}:80 HTTP/1.")),
        "{heads:?}"
    );
}
