//! Tests of trust and sessions below the pipeline. `tests/connection.rs` tests handshakes over the pipeline.

use dray_guard::CanonicalUrl;
use dray_testkit::tls::{Authority, TlsOffer};
use rustls::version::TLS13;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

fn host(text: &str) -> Host {
    CanonicalUrl::parse(&format!("https://{text}/"))
        .unwrap()
        .host()
        .clone()
}

#[test]
fn t_5_a_bundle_must_hold_certificates() {
    let authority = Authority::new().unwrap();
    assert!(TlsClient::new(Some(&authority.pem())).is_ok());
    for wrong in [
        "",
        "no certificate",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ] {
        assert!(
            matches!(TlsClient::new(Some(wrong)), Err(TlsError::Bundle(_))),
            "{wrong}"
        );
    }
}

#[tokio::test]
async fn t_5_sessions_are_not_resumed_and_http_1_1_is_the_only_protocol() {
    let authority = Authority::new().unwrap();
    let offer = TlsOffer {
        versions: vec![&TLS13],
        alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        ..TlsOffer::default()
    };
    let acceptor = authority.acceptor_with("files.example.org", offer).unwrap();
    // The proxy and DNS use `handshake`, which keeps its protocol although fetches may use HTTP/2.
    let tls = TlsClient::new(Some(&authority.pem())).unwrap().with_http2();
    for _ in 0..3 {
        let (near, far) = tokio::io::duplex(1 << 16);
        let name = host("files.example.org");
        let (handshake, accepted) =
            tokio::join!(tls.handshake(Box::new(near), &name), acceptor.accept(far));
        let (mut stream, session) = handshake.unwrap();
        let mut accepted = accepted.unwrap();
        // The tickets with which a session could be resumed come with the first bytes.
        accepted.write_all(b"x").await.unwrap();
        accepted.flush().await.unwrap();
        stream.read_u8().await.unwrap();
        let server = accepted.get_ref().1;
        assert_eq!(session.version, "TLSv1.3");
        assert_eq!(server.alpn_protocol(), Some(b"http/1.1".as_slice()));
        assert!(!session.is_http2);
        assert_eq!(server.server_name(), Some("files.example.org"), "SNI");
        assert_eq!(server.handshake_kind(), Some(rustls::HandshakeKind::Full));
    }
}

#[tokio::test]
async fn t_4_a_fetch_offers_http_2_where_it_is_on() {
    let authority = Authority::new().unwrap();
    let offer = TlsOffer {
        alpn: vec![b"http/1.1".to_vec(), b"h2".to_vec()],
        ..TlsOffer::default()
    };
    for (server_protocols, is_on, expected) in [
        (offer.alpn.clone(), true, Some(b"http/1.1".as_slice())),
        (vec![b"h2".to_vec()], true, Some(b"h2")),
        (vec![b"http/1.1".to_vec()], true, Some(b"http/1.1")),
        (Vec::new(), true, None),
        (offer.alpn.clone(), false, Some(b"http/1.1")),
    ] {
        let offer = TlsOffer {
            alpn: server_protocols,
            ..TlsOffer::default()
        };
        let acceptor = authority.acceptor_with("files.example.org", offer).unwrap();
        let tls = TlsClient::new(Some(&authority.pem())).unwrap();
        let tls = if is_on { tls.with_http2() } else { tls };
        let (near, far) = tokio::io::duplex(1 << 16);
        let name = host("files.example.org");
        let handshaking = tls.handshake_for_fetch(Box::new(near), &name);
        let (handshake, accepted) = tokio::join!(handshaking, acceptor.accept(far));
        let accepted = accepted.unwrap();
        assert_eq!(accepted.get_ref().1.alpn_protocol(), expected);
        let (_, session) = handshake.unwrap();
        assert_eq!(session.is_http2, expected == Some(b"h2"));
    }
}

#[tokio::test]
async fn t_5_a_literal_address_sends_no_name() {
    let authority = Authority::new().unwrap();
    let acceptor = authority.acceptor("93.184.215.14").unwrap();
    let tls = TlsClient::new(Some(&authority.pem())).unwrap();
    let (near, far) = tokio::io::duplex(1 << 16);
    let literal = host("93.184.215.14");
    let (handshake, accepted) = tokio::join!(
        tls.handshake(Box::new(near), &literal),
        acceptor.accept(far)
    );
    assert!(handshake.is_ok());
    assert_eq!(accepted.unwrap().get_ref().1.server_name(), None);
}

#[tokio::test]
async fn t_5_a_connection_that_ends_in_the_handshake_is_closed() {
    let tls = TlsClient::new(None).unwrap();
    let (near, far) = tokio::io::duplex(1 << 16);
    drop(far);
    let error = tls
        .handshake(Box::new(near), &host("files.example.org"))
        .await
        .map(|_| ())
        .unwrap_err();
    assert_eq!(error.code(), Code::ConnectionClosed);
}

#[test]
fn t_5_no_code_path_can_turn_verification_off() {
    let source = include_str!("../tls.rs");
    for word in [
        "dangerous",
        "ServerCertVerifier",
        "KeyLogFile",
        "with_client_auth_cert",
    ] {
        assert!(!source.contains(word), "{word}");
    }
}
