//! Tests of tunnels: what their first bytes must be, and what is relayed afterwards.

use dray_testkit::http::{ResponseScript, ScriptedResponder};
use dray_testkit::tls::Authority;
use tokio_rustls::TlsConnector;

use super::*;
use crate::proxy::hello::tests::{hello, name_list};
use crate::proxy::refusal::ProxyRefusal;

#[tokio::test]
async fn tls_passes_end_to_end_and_every_byte_is_counted() {
    let mut proxy = ProxyFixture::start(&[]).await;
    let authority = Authority::new().unwrap();
    let responder = ScriptedResponder::always(ResponseScript::ok("secret"));
    let acceptor = authority.acceptor(TARGET_HOST).unwrap();
    proxy.fake_network.peer(
        PUBLIC_ADDRESS,
        443,
        FakePeer::Tls(acceptor, responder.clone()),
    );
    let (client, head) = proxy.tunnel(&format!("{TARGET_HOST}:443")).await;
    assert_eq!(head, "HTTP/1.1 200 Connection established\r\n\r\n");
    let connector = TlsConnector::from(tls_config(Some(authority.certificate())));
    let name = TARGET_HOST.to_owned().try_into().unwrap();
    let mut tls = connector.connect(name, client).await.unwrap();
    tls.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    let mut response = Vec::new();
    tls.read_to_end(&mut response).await.unwrap();
    assert!(response.ends_with(b"secret"));
    drop(tls);
    assert_eq!(responder.received_requests().len(), 1);
    let (opened, closed) = (proxy.event().await, proxy.event().await);
    assert_eq!(opened.server_name, TARGET_HOST);
    assert_eq!((opened.up_bytes, opened.down_bytes), (0, 0));
    assert_eq!(opened.operation_id, closed.operation_id);
    assert!(
        closed.up_bytes > 300 && closed.down_bytes > 300,
        "{closed:?}"
    );
    assert_eq!(closed.hops[0].peer_address, format!("{PUBLIC_ADDRESS}:443"));
}

#[tokio::test]
async fn t_5_a_tunnel_whose_first_bytes_do_not_fit_reaches_nothing() {
    let mut proxy = ProxyFixture::start(&[]).await;
    let cases: [(&str, Vec<u8>, &str); 7] = [
        (
            TARGET_HOST,
            client_flight("other.example.org"),
            "server_name_mismatch",
        ),
        (TARGET_HOST, client_flight("8.8.8.8"), "server_name_missing"),
        (
            PUBLIC_ADDRESS,
            client_flight(TARGET_HOST),
            "server_name_mismatch",
        ),
        (TARGET_HOST, hidden_name(), "encrypted_client_hello"),
        (TARGET_HOST, b"SSH-2.0-x\r\n".to_vec(), "not_tls"),
        (
            TARGET_HOST,
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
            "not_tls",
        ),
        (
            TARGET_HOST,
            vec![22, 3, 1, 0, 4, 2, 0, 0, 0],
            "malformed_client_hello",
        ),
    ];
    let mut ends = proxy.be_server(PUBLIC_ADDRESS, 443);
    for (host, first, code) in cases {
        let (mut client, head) = proxy.tunnel(&format!("{host}:443")).await;
        assert_eq!(status_of(&head), 200, "{code}");
        client.write_all(&first).await.unwrap();
        let mut last = Vec::new();
        let _ = client.read_to_end(&mut last).await;
        assert_eq!(last, ProxyRefusal::EncryptedName.tls_alert(), "{code}");
        let mut received = Vec::new();
        let mut server = ends.recv().await.unwrap();
        server.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, Vec::<u8>::new(), "{code}");
        let event = proxy.event().await;
        assert_eq!(
            (event.proxy_stage.as_str(), event.code.as_str()),
            ("refused", code)
        );
        assert_eq!(
            (event.verdict.as_str(), event.rule.as_str()),
            ("deny", "server_name")
        );
    }
}

/// A hello for `files.example.org` with an encrypted name beside it.
fn hidden_name() -> Vec<u8> {
    hello(&[(0, &name_list(&[(0, TARGET_HOST)])), (0xfe0d, &[0])])
}

#[tokio::test]
async fn an_operator_may_accept_encrypted_names() {
    let proxy = ProxyFixture::start(&[("allow_encrypted_hello", "true")]).await;
    let mut ends = proxy.be_server(PUBLIC_ADDRESS, 443);
    let (mut client, _) = proxy.tunnel(&format!("{TARGET_HOST}:443")).await;
    let hidden = hidden_name();
    client.write_all(&hidden).await.unwrap();
    let mut received = vec![0; hidden.len()];
    ends.recv()
        .await
        .unwrap()
        .read_exact(&mut received)
        .await
        .unwrap();
    assert!(received == hidden);
}

#[tokio::test]
async fn bytes_behind_the_request_wait_for_the_judgement_of_the_tunnel() {
    let mut proxy = ProxyFixture::start(&[]).await;
    let mut ends = proxy.be_server(PUBLIC_ADDRESS, 443);
    let auth = proxy.auth();
    let flight = client_flight(TARGET_HOST);
    let early = [&flight[..], &[23, 3, 3, 0, 2, 1, 2]].concat();
    let head =
        format!("CONNECT {TARGET_HOST}:443 HTTP/1.1\r\nHost: {TARGET_HOST}:443\r\n{auth}\r\n");
    let mut client = proxy.connect().await;
    client
        .write_all(&[head.as_bytes(), &early].concat())
        .await
        .unwrap();
    assert_eq!(status_of(&read_head(&mut client).await), 200);
    let mut received = vec![0; early.len()];
    let mut server = ends.recv().await.unwrap();
    server.read_exact(&mut received).await.unwrap();
    assert!(received == early);
    drop((server, client));
    // After a refused request, the same bytes are not read as another request.
    let other = format!("GET http://{TARGET_HOST}/ HTTP/1.1\r\nHost: {TARGET_HOST}\r\n{auth}\r\n");
    let refused =
        format!("CONNECT 127.0.0.1:443 HTTP/1.1\r\nHost: 127.0.0.1:443\r\n{auth}\r\n{other}");
    proxy.fake_network.forget_dials();
    let response = proxy.exchange(refused).await;
    assert_eq!(
        (status_of(&response), code_of(&response)),
        (403, "ssrf_blocked")
    );
    assert_eq!(proxy.fake_network.dialled(), Vec::<String>::new());
    while proxy.event().await.proxy_stage != "refused" {}
}

#[tokio::test]
async fn a_plain_port_carries_any_protocol_and_a_server_may_send_first() {
    let proxy =
        ProxyFixture::start(&[("connect_ports", "443,8080"), ("plain_ports", "8080")]).await;
    let mut ends = proxy.be_server(PUBLIC_ADDRESS, 8080);
    let (mut client, head) = proxy.tunnel(&format!("{TARGET_HOST}:8080")).await;
    assert_eq!(status_of(&head), 200);
    let mut server = ends.recv().await.unwrap();
    server.write_all(b"220 hello").await.unwrap();
    let mut greeting = [0; 9];
    client.read_exact(&mut greeting).await.unwrap();
    assert_eq!(&greeting, b"220 hello");
    // The client closes its direction, and the server still responds.
    client.write_all(b"question").await.unwrap();
    client.shutdown().await.unwrap();
    let mut question = Vec::new();
    server.read_to_end(&mut question).await.unwrap();
    assert_eq!(question, b"question");
    server.write_all(b"answer").await.unwrap();
    drop(server);
    assert_eq!(read_all(&mut client).await, "answer");
}
