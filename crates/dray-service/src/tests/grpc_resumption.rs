//! TLS sessions of the gRPC endpoint that a client wants to resume.

use rustls::HandshakeKind;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::grpc_auth::SecuredFiles;
use super::grpc_silent::{client_config, tls_connection};

/// The preface of HTTP/2 with an empty frame of settings (RFC 9113 section 3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

#[tokio::test]
async fn a_session_with_a_client_certificate_is_not_resumed() {
    let files = SecuredFiles::new();
    let fixture = files.start(&[]).await;
    let certificate = files.authority.issue(&["spiffe://prod/a"], false).unwrap();
    let mut config = client_config(&files, Some(&certificate));
    std::sync::Arc::get_mut(&mut config).unwrap().alpn_protocols = vec![b"h2".to_vec()];
    for _ in 0..2 {
        let mut stream = tls_connection(config.clone(), &fixture).await;
        stream.write_all(PREFACE).await.unwrap();
        // Tickets for another session come before the first byte.
        stream.read_u8().await.unwrap();
        let (_, connection) = stream.get_ref();
        assert_eq!(connection.handshake_kind(), Some(HandshakeKind::Full));
    }
}
