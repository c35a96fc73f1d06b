//! Tests of the proxy with the in-memory network: clients use real sockets, and audit events go over the bus.

mod asked;
mod audit;
mod certificate_files;
mod certificates;
mod changed_responses;
mod client_handshakes;
mod clients;
mod forms;
mod hostile;
mod http2;
pub(super) mod intercepted;
mod kept_tunnels;
mod limits;
mod package_clients;
mod persistent;
mod reloaded;
mod repeated;
mod requests;
mod responses;
mod ruled;
mod socks;
mod tunnels;
mod unanswered;
mod websocket;

use std::net::SocketAddr;
use std::sync::Arc;

use dray_guard::proxy_token::{ProxyIdentity, TokenKeys};
use dray_proto::v1;
use dray_types::{SessionId, TenantId};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::service::PROXY_ADDRESS_NAME;
use crate::tests::fake_network::*;
use crate::tests::test_service::{TestService, start_service};

/// The key of all tokens in these tests.
const TOKEN_KEY: &str = "the key of these tests, 32 bytes or more";
/// Name of the host to which most of these tests connect.
const TARGET_HOST: &str = "files.example.org";

/// A service with a proxy, over a network of the test.
struct ProxyFixture {
    fake_network: FakeNetwork,
    service: TestService,
    address: SocketAddr,
}

impl ProxyFixture {
    /// `files.example.org` answers `hello` on port 80; `set` are fields of the proxy, or of the service with a slash.
    async fn start(set: &[(&str, &str)]) -> Self {
        let fake_network = FetcherFixture::default().fake_network;
        let mut fields = vec![
            ("egress-fetcher.proxy.listen".to_owned(), "127.0.0.1:0"),
            ("egress-fetcher.proxy.token_key".to_owned(), TOKEN_KEY),
        ];
        for (field, value) in set {
            fields.push(match field.strip_prefix('/') {
                Some(field) => (format!("egress-fetcher.{field}"), *value),
                None => (format!("egress-fetcher.proxy.{field}"), *value),
            });
        }
        let fields: Vec<_> = fields
            .iter()
            .map(|(field, value)| (field.as_str(), *value))
            .collect();
        let service = start_service(&fake_network, &fields).await;
        let addresses = &service.running.context().listen_addresses;
        let address = addresses.find(PROXY_ADDRESS_NAME).unwrap();
        Self {
            fake_network,
            service,
            address,
        }
    }

    /// A token of `session` for the next hour.
    fn token_of(&self, session: &str, allow: Option<&[&str]>) -> String {
        let now_s = self.service.running.context().clock.now_ms() / 1000;
        let allow = allow.map(|hosts| hosts.iter().map(|host| (*host).to_owned()).collect());
        mint(session, now_s + 3600, allow)
    }

    fn token(&self) -> String {
        self.token_of("chat-1", None)
    }

    /// The field that identifies the client, with its line end.
    fn auth(&self) -> String {
        format!("Proxy-Authorization: Bearer {}\r\n", self.token())
    }

    async fn connect(&self) -> TcpStream {
        connect_to(self.address).await
    }

    /// Sends `request` and returns everything that comes back.
    async fn exchange(&self, request: impl AsRef<[u8]>) -> String {
        let mut client = self.connect().await;
        // A client that is refused early may be closed before it has sent everything.
        let _ = client.write_all(request.as_ref()).await;
        read_all(&mut client).await
    }

    /// A `GET` in absolute form with a token.
    async fn get(&self, url: &str) -> String {
        let host = url.split('/').nth(2).unwrap_or_default();
        let auth = self.auth();
        self.exchange(format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n{auth}\r\n"))
            .await
    }

    /// Asks for a tunnel with a token; returns the client and the response.
    async fn tunnel(&self, authority: &str) -> (TcpStream, String) {
        let auth = self.auth();
        self.tunnel_with(authority, &auth).await
    }

    async fn tunnel_with(&self, authority: &str, auth: &str) -> (TcpStream, String) {
        let mut client = self.connect().await;
        let request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{auth}\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        let head = read_head(&mut client).await;
        (client, head)
    }

    /// The test is the server at `address`.
    fn be_server(&self, address: &str, port: u16) -> UnboundedReceiver<DuplexStream> {
        let (ends, received) = tokio::sync::mpsc::unbounded_channel();
        self.fake_network
            .peer(address, port, FakePeer::Handed(ends));
        received
    }

    async fn event(&mut self) -> v1::EgressAudit {
        self.service.event().await
    }

    /// The value of a metric of the proxy; 0 when there is none.
    fn metric(&self, name: &str, labels: &[&str]) -> u64 {
        let text = self.service.running.metrics().unwrap();
        let start = format!("dray_egress_proxy_{name}");
        let line = text.lines().find(|line| {
            line.starts_with(&start) && labels.iter().all(|label| line.contains(label))
        });
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
            .unwrap_or_default()
    }
}

fn mint(session: &str, expires_s: u64, allow: Option<Vec<String>>) -> String {
    let keys = TokenKeys::new(&dray_types::Secret::new(TOKEN_KEY), None).unwrap();
    keys.mint(&identity(session, expires_s, allow)).unwrap()
}

/// A token of another tenant, valid for years.
fn mint_of(tenant: &str, session: &str) -> String {
    let keys = TokenKeys::new(&dray_types::Secret::new(TOKEN_KEY), None).unwrap();
    let identity = ProxyIdentity {
        tenant: TenantId::new(tenant).unwrap(),
        ..identity(session, u64::from(u32::MAX), None)
    };
    keys.mint(&identity).unwrap()
}

fn identity(session: &str, expires_s: u64, allow: Option<Vec<String>>) -> ProxyIdentity {
    ProxyIdentity {
        tenant: TenantId::new("acme").unwrap(),
        session: SessionId::new(session).unwrap(),
        app: None,
        expires_s,
        allow,
        certificate: None,
    }
}

#[expect(clippy::disallowed_methods, reason = "a client of this test")]
async fn connect_to(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.unwrap()
}

/// Everything until the end, or until the connection breaks.
async fn read_all(client: &mut TcpStream) -> String {
    let mut all = Vec::new();
    let _ = client.read_to_end(&mut all).await;
    String::from_utf8_lossy(&all).into_owned()
}

/// A response head, byte by byte, so that no byte after it is read.
async fn read_head(client: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match client.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).unwrap()
}

/// The first flight of a TLS client that wants `name`.
fn client_flight(name: &str) -> Vec<u8> {
    let mut client = tls_client(name, None);
    let mut flight = Vec::new();
    client.write_tls(&mut flight).unwrap();
    flight
}

fn tls_client(
    name: &str,
    root: Option<rustls_pki_types::CertificateDer<'static>>,
) -> rustls::ClientConnection {
    let name = name.to_owned().try_into().unwrap();
    rustls::ClientConnection::new(tls_config(root), name).unwrap()
}

fn tls_config(
    root: Option<rustls_pki_types::CertificateDer<'static>>,
) -> Arc<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(root);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

/// The code in the body of a refusal.
fn code_of(response: &str) -> &str {
    response
        .split_once("\r\n\r\n")
        .map_or("", |(_, body)| body.trim())
}

fn status_of(response: &str) -> u16 {
    let status = response.split(' ').nth(1);
    status
        .and_then(|status| status.parse().ok())
        .unwrap_or_default()
}
