//! Tests of the fake server behind TLS, which every real cluster uses.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use dray_sandbox::{Backend as _, ErrorKind};
use dray_testkit::tls::{Authority, TlsOffer};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::fixture::{PodFixture, kind, read};
use crate::{Config, KubernetesBackend};

/// A TLS proxy in front of a server. It ends when it is dropped.
struct TlsFront {
    address: SocketAddr,
    _serving: JoinSet<()>,
}

impl TlsFront {
    #[expect(
        clippy::disallowed_methods,
        reason = "the address is that of the fake server"
    )]
    async fn new(fixture: &PodFixture, authority: &Authority, offer: TlsOffer) -> Self {
        let acceptor = authority.acceptor_with("127.0.0.1", offer).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let behind = fixture.server.url().replace("http://", "");
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let (acceptor, behind) = (acceptor.clone(), behind.clone());
                connections.spawn(async move {
                    // Some tests are about clients that refuse the certificate.
                    if let Ok(mut socket) = acceptor.accept(socket).await
                        && let Ok(mut server) = TcpStream::connect(behind).await
                    {
                        let _ = copy_bidirectional(&mut socket, &mut server).await;
                    }
                });
            }
        });
        Self {
            address,
            _serving: serving,
        }
    }

    /// A backend that trusts this authority.
    fn backend(&self, fixture: &PodFixture, trusted: &Authority) -> Arc<KubernetesBackend> {
        let directory = fixture.server.directory();
        std::fs::write(directory.join("ca.pem"), trusted.pem()).unwrap();
        let text = std::fs::read_to_string(directory.join("kubeconfig")).unwrap();
        let server = format!(
            "https://{}\n    certificate-authority: ca.pem",
            self.address
        );
        let path: PathBuf = directory.join("kubeconfig-tls");
        std::fs::write(&path, text.replace(&fixture.server.url(), &server)).unwrap();
        let config = Config {
            kubeconfig: Some(path),
            ..Config::default()
        };
        Arc::new(KubernetesBackend::new(config).unwrap())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_and_tokens_travel_over_tls() {
    let fixture = PodFixture::new().await;
    fixture.server.require("first");
    let authority = Authority::new().unwrap();
    let front = TlsFront::new(&fixture, &authority, TlsOffer::default()).await;
    let backend = front.backend(&fixture, &authority);
    let bytes = vec![b'x'; 200_000];
    let path = fixture.file("a", &bytes);
    let handle = fixture.handle().await.unwrap();
    let sandbox = backend.open(&handle).await.unwrap();
    assert!(read(sandbox.as_ref(), &path).await.unwrap() == bytes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_cannot_prove_itself_gets_no_token() {
    let fixture = PodFixture::new().await;
    let authority = Authority::new().unwrap();
    let other = Authority::new().unwrap();
    let address = "kubernetes:agents/box".parse().unwrap();
    let expired = TlsOffer {
        expired: true,
        ..TlsOffer::default()
    };
    for (offer, trusted) in [(TlsOffer::default(), &other), (expired, &authority)] {
        let front = TlsFront::new(&fixture, &authority, offer).await;
        let backend = front.backend(&fixture, trusted);
        assert_eq!(kind(backend.resolve(&address).await), ErrorKind::Auth);
    }
    assert_eq!(fixture.server.requests(), [] as [String; 0]);
}
