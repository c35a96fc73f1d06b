//! SOCKS5 clients.

use super::*;

/// The messages of a client up to its request.
fn handshake(password: &str) -> Vec<u8> {
    let length = u8::try_from(password.len()).unwrap();
    [&[5, 1, 2, 1, 1, b'u', length][..], password.as_bytes()].concat()
}

fn request(name: &str, port: u16) -> Vec<u8> {
    let length = u8::try_from(name.len()).unwrap();
    [
        &[5, 1, 0, 3, length][..],
        name.as_bytes(),
        &port.to_be_bytes(),
    ]
    .concat()
}

async fn send(proxy: &ProxyFixture, bytes: &[u8]) -> (TcpStream, Vec<u8>) {
    let mut client = proxy.connect().await;
    client.write_all(bytes).await.unwrap();
    let mut received = Vec::new();
    // The method, the status and the reply have 14 bytes; a refused handshake has fewer.
    while received.len() < 14 {
        match client.read_u8().await {
            Ok(byte) => received.push(byte),
            Err(_) => break,
        }
    }
    (client, received)
}

#[tokio::test]
async fn a_name_is_resolved_and_judged_by_the_proxy() {
    let mut proxy = ProxyFixture::start(&[]).await;
    let mut ends = proxy.be_server(PUBLIC_ADDRESS, 443);
    let bytes = [handshake(&proxy.token()), request(TARGET_HOST, 443)].concat();
    let (mut client, received) = send(&proxy, &bytes).await;
    assert_eq!(received, [5, 2, 1, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    let flight = client_flight(TARGET_HOST);
    client.write_all(&flight).await.unwrap();
    let mut server = ends.recv().await.unwrap();
    let mut hello = vec![0; flight.len()];
    server.read_exact(&mut hello).await.unwrap();
    assert!(hello == flight);
    let event = proxy.event().await;
    assert_eq!(event.proxy_protocol, "socks5");
    assert_eq!(
        (event.url_host.as_str(), event.session_id.as_str()),
        (TARGET_HOST, "chat-1")
    );
}

#[tokio::test]
async fn refusals_have_their_reply_and_dial_nothing() {
    let proxy = ProxyFixture::start(&[]).await;
    proxy.fake_network.name("inside.example.org", &["10.0.0.1"]);
    let auth = handshake(&proxy.token());
    let loopback = [5, 1, 0, 1, 127, 0, 0, 1, 1, 187];
    let mapped: Vec<u8> = [
        &[5, 1, 0, 4][..],
        &[0; 10],
        &[0xff, 0xff, 10, 0, 0, 1, 1, 187],
    ]
    .concat();
    for (rest, reply) in [
        (request("inside.example.org", 443), 2),
        (request("127.0.0.1", 443), 2),
        (loopback.to_vec(), 2),
        (mapped, 2),
        (request("localhost", 443), 2),
        (request(TARGET_HOST, 22), 2),
        (request("missing.example.org", 443), 4),
        (request("127.1", 443), 1),
        (request("u@files.example.org", 443), 1),
        (vec![5, 2, 0, 1, 8, 8, 8, 8, 1, 187], 7),
        (vec![5, 3, 0, 1, 8, 8, 8, 8, 1, 187], 7),
        (vec![5, 1, 0, 9], 8),
    ] {
        let (_, received) = send(&proxy, &[auth.clone(), rest.clone()].concat()).await;
        assert_eq!(received.get(4..6), Some(&[5, reply][..]), "{rest:?}");
    }
    for (bytes, expected) in [
        (vec![5, 1, 0], &[5, 0xff][..]),
        (handshake("wrong"), &[5, 2, 1, 1]),
        (vec![5, 1, 2, 9], &[5, 2, 1, 1]),
    ] {
        let (_, received) = send(&proxy, &bytes).await;
        assert_eq!(received, expected, "{bytes:?}");
    }
    assert_eq!(proxy.fake_network.dialled(), Vec::<String>::new());
    assert_eq!(
        proxy.fake_network.queried_names(),
        ["inside.example.org", "missing.example.org"]
    );
}
