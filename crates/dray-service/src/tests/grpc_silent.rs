//! Clients of the gRPC endpoint that connect and stay silent.

use std::io::{ErrorKind, Read as _};
use std::sync::Arc;

use dray_testkit::tls::IssuedCertificate;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::grpc_auth::{ACME_TOKEN, SecuredFiles, bearer, fetch, raw_connection};
use super::service::TestHost;

/// More than the endpoint has handshakes in progress.
const SILENT_CLIENTS: usize = 300;

/// A client that trusts the authority of the endpoint, with this certificate if there is one.
pub(super) fn client_config(
    files: &SecuredFiles,
    certificate: Option<&IssuedCertificate>,
) -> Arc<ClientConfig> {
    let pem = files.authority.pem();
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    roots.add(authority).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    Arc::new(match certificate {
        None => builder.with_no_client_auth(),
        Some(certificate) => {
            let chain = CertificateDer::from_pem_slice(certificate.certificate.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(certificate.private_key.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![chain], key).unwrap()
        }
    })
}

/// A connection after its handshake.
pub(super) async fn tls_connection(
    config: Arc<ClientConfig>,
    fixture: &TestHost,
) -> TlsStream<TcpStream> {
    let name = ServerName::try_from("localhost").unwrap();
    let connector = TlsConnector::from(config);
    let stream = raw_connection(fixture).await;
    connector.connect(name, stream).await.unwrap()
}

#[tokio::test]
async fn a_client_that_does_not_begin_to_speak_is_disconnected() {
    let plain = TestHost::new(&[("grpc.handshake_timeout", "50ms")]).await;
    for beginning in [&b""[..], b"PRI * HT"] {
        let mut stream = raw_connection(&plain).await;
        stream.write_all(beginning).await.unwrap();
        // Ends only because the server closes it.
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
    let files = SecuredFiles::new();
    let fixture = files.start(&[("grpc.handshake_timeout", "2s")]).await;
    let mut stream = tls_connection(client_config(&files, None), &fixture).await;
    let _ = stream.read_to_end(&mut Vec::new()).await;
}

#[tokio::test]
async fn silent_clients_keep_no_other_client_from_its_handshake() {
    let files = SecuredFiles::new();
    let fixture = files.start(&[("grpc.handshake_timeout", "60s")]).await;
    let mut silent = Vec::new();
    for _ in 0..SILENT_CLIENTS {
        silent.push(raw_connection(&fixture).await);
    }
    let authorization = bearer(ACME_TOKEN);
    let channel = files.channel(&fixture).await;
    let served = fetch(channel, "echo:hello", &[("authorization", &authorization)]).await;
    assert_eq!(served.unwrap(), "hello");
    // The oldest handshake was ended for another one, and the newest has not reached its timeout.
    let mut newest = silent.pop().unwrap().into_std().unwrap();
    let read = newest.read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(read, Err(ErrorKind::WouldBlock));
    let _ = silent[0].read_to_end(&mut Vec::new()).await;
}
