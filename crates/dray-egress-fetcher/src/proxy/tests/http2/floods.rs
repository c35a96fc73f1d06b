//! Floods, clients that take nothing, and connections that should have ended.

use super::frames::*;
use super::*;

#[tokio::test]
async fn a_head_that_never_ends_and_one_that_expands_end_the_connection() {
    let fixture = open_proxy(&[]).await;
    let calm = StreamEnd::GoAway(Reason::ENHANCE_YOUR_CALM);
    // CVE-2024-27316.
    for block in [Vec::new(), field(b"a", b"b"), field(b"a", &[b'b'; 100])] {
        let start = frame(HEADERS, 0, 1, &block);
        let endless = frame(CONTINUATION, 0, 1, &block).repeat(2_000);
        assert_eq!(end_after(&fixture, &[start, endless]).await, calm);
    }
    // One field of 4,000 bytes in the dynamic table, then a byte for each repetition: 32 MB from 12 KB.
    let length = 4_000_u16 - 0x7f;
    let [low, high] = [length & 0x7f | 0x80, length >> 7].map(|part| u8::try_from(part).unwrap());
    let mut bomb = block(&request_fields(":method=GET", &[]));
    bomb.extend([0x40, 1, b'x', 0x7f, low, high]);
    bomb.extend([b'y'; 4_000]);
    bomb.extend([0xbe; 8_000]);
    let bomb = frame(HEADERS, END_HEADERS | END_STREAM, 1, &bomb);
    assert_eq!(end_after(&fixture, &[bomb]).await, calm);
    assert!(fixture.proxy.fake_network.dialled().is_empty());
}

#[tokio::test]
async fn short_frames_of_data_that_their_target_does_not_take_end_the_connection() {
    let fixture = open_proxy(&[]).await;
    fixture
        .proxy
        .fake_network
        .peer(PUBLIC_ADDRESS, 80, FakePeer::Hangs);
    let open = head(1, 0, &request_fields(":method=POST", &[]));
    for data in [&b""[..], b"x"] {
        let flood = frame(DATA, 0, 1, data).repeat(60_000);
        let end = end_after(&fixture, &[open.clone(), flood]).await;
        assert_eq!(
            end,
            StreamEnd::GoAway(Reason::ENHANCE_YOUR_CALM),
            "{data:?}"
        );
    }
}

/// CVE-2023-44487. Streams that were reset do not count for HTTP/2, but their work does for the proxy.
#[tokio::test]
async fn streams_that_their_client_resets_have_a_bound() {
    let set = [
        ("max_per_session", "1000"),
        ("max_per_host", "1000"),
        ("open_timeout", "1m"),
    ];
    let fixture = open_proxy(&set).await;
    fixture
        .proxy
        .fake_network
        .peer(PUBLIC_ADDRESS, 80, FakePeer::Hangs);
    let mut client = FrameClient::start(&fixture, &[]).await;
    let (mut frames, mut end) = (Vec::new(), None);
    for number in 0..2_000 {
        let stream = 2 * number + 1;
        // The stream is accepted when the answer to the PING comes, and reset after that.
        frames.extend([get(stream), frame(PING, 0, 0, &[0; 8])]);
        client.send(&frames).await;
        end = client.wait_for_any(&[PING, GOAWAY]).await;
        if end.as_ref().is_none_or(|frame| frame.kind == GOAWAY) {
            break;
        }
        frames = vec![frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])];
    }
    assert_eq!(end.unwrap().reason(), Reason::ENHANCE_YOUR_CALM);
    let queried = fixture.proxy.fake_network.queried_names().len();
    assert!((1..=200).contains(&queried), "{queried}");
}

#[tokio::test]
async fn ten_thousand_streams_are_refused_beyond_a_hundred_and_end_the_connection() {
    let fixture = open_proxy(&[("max_per_session", "1000"), ("max_per_host", "1000")]).await;
    fixture
        .proxy
        .fake_network
        .peer(PUBLIC_ADDRESS, 80, FakePeer::Mute);
    let mut client = FrameClient::start(&fixture, &[]).await;
    let streams: Vec<_> = (0..10_000).map(|number| get(2 * number + 1)).collect();
    client.send(&streams).await;
    let mut refused = 0;
    let end = loop {
        let next = client.wait_for_any(&[RST_STREAM, GOAWAY]).await.unwrap();
        if next.kind == GOAWAY {
            break next.reason();
        }
        assert_eq!(next.reason(), Reason::REFUSED_STREAM);
        assert!(next.stream > 200, "{}", next.stream);
        refused += 1;
    };
    assert!(refused > 0);
    assert_eq!(end, Reason::ENHANCE_YOUR_CALM);
    assert!(fixture.proxy.fake_network.dialled().len() <= 100);
}

#[tokio::test]
async fn a_client_that_takes_no_byte_of_a_response_loses_its_stream() {
    let mut fixture = open_proxy(&[("idle_timeout", "1s")]).await;
    let mut servers = fixture.proxy.be_server(PUBLIC_ADDRESS, 80);
    // SETTINGS_INITIAL_WINDOW_SIZE is 0.
    let mut client = FrameClient::start(&fixture, &[0, 4, 0, 0, 0, 0]).await;
    client.send(&[get(1)]).await;
    let mut server = servers.recv().await.unwrap();
    let writing = async {
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n";
        server.write_all(head).await.unwrap();
        let mut written = 0;
        while server.write_all(&[b'x'; 16 * 1024]).await.is_ok() {
            written += 16 * 1024;
        }
        written
    };
    let (end, written) = tokio::join!(client.end_of(1), writing);
    assert_eq!(end, StreamEnd::Reset(Reason::CANCEL));
    assert!(written < 1 << 20, "{written}");
    assert_eq!(fixture.proxy.event().await.proxy_stage, "opened");
    assert_eq!(fixture.proxy.event().await.code, "idle_timeout");
    // Such a client does not keep the stream of a refusal either.
    let refused = [
        ":method=GET",
        ":scheme=http",
        ":authority=10.0.0.1",
        ":path=/",
    ];
    client.send(&[head(3, END_STREAM, &refused)]).await;
    assert_eq!(client.end_of(3).await, StreamEnd::Reset(Reason::CANCEL));
}

#[tokio::test]
async fn a_client_that_ignores_the_end_of_its_connection_gets_no_stream() {
    let fixture = open_proxy(&[("tunnel_timeout", "1s")]).await;
    let mut client = FrameClient::start(&fixture, &[]).await;
    client.send(&[get(1)]).await;
    assert_eq!(client.end_of(1).await, StreamEnd::Whole("hello".to_owned()));
    // The proxy waits for the answer to its PING, which this client does not send.
    assert_eq!(
        client.wait_for_any(&[GOAWAY]).await.unwrap().reason(),
        Reason::NO_ERROR
    );
    client.send(&[get(3)]).await;
    assert_eq!(
        client.end_of(3).await,
        StreamEnd::Reset(Reason::REFUSED_STREAM)
    );
    // Refused streams do not keep the connection open.
    let mut stream = 5;
    while client.next().await.is_some() {
        client.send(&[get(stream)]).await;
        stream += 2;
    }
    assert_eq!(fixture.proxy.fake_network.dialled().len(), 1);
}

/// Clients of two tenants, by their certificates.
const TWO_TENANTS: &str = r#"[
    {"names": ["spiffe://example.org/agents/umbrella"], "tenant": "umbrella"},
    {"names": ["spiffe://example.org/agents/one"], "tenant": "acme", "app": "analyst"}
]"#;

async fn umbrella_client(fixture: &CertifiedProxy) -> Http2Client {
    let name = "spiffe://example.org/agents/umbrella";
    Http2Client::start_as(fixture, client_certificate(&fixture.clients, name)).await
}

fn umbrella_token() -> String {
    mint_of("umbrella", "chat-1")
}

/// Streams cost memory, and a connection may have many: the bound is that of the process.
#[tokio::test]
async fn streams_of_all_connections_together_have_a_bound() {
    let set = [
        ("max_tunnels", "1"),
        ("max_queue", "1"),
        ("max_unidentified", "8"),
        ("tls.clients", TWO_TENANTS),
    ];
    let fixture = open_proxy(&set).await;
    let mut servers = fixture.proxy.be_server(PUBLIC_ADDRESS, 80);
    let (one, other) = (
        Http2Client::start(&fixture).await,
        Http2Client::start(&fixture).await,
    );
    let token = fixture.proxy.token();
    let authority = format!("{TARGET_HOST}:80");
    let (tunnel, _up) = one.connect(&authority, &token).await;
    assert_eq!(tunnel.await.unwrap().status(), 200);
    let _server = servers.recv().await.unwrap();
    // A stream of another tenant waits for its slot. Streams without an identity have places of their own; their
    // response comes after it.
    let umbrella = umbrella_client(&fixture).await;
    let (_waiting, _up) = umbrella.connect(&authority, &umbrella_token()).await;
    let url = format!("http://{TARGET_HOST}/");
    let unidentified = umbrella.get(&url, "wrong").await.unwrap();
    assert_eq!(unidentified.head.status(), 407);
    for client in [&one, &other] {
        let refused = client.get(&url, &token).await;
        let reason = refused.err().unwrap().reason();
        assert_eq!(reason, Some(Reason::REFUSED_STREAM));
    }
    let labels = ["code=\"too_many_streams\""];
    assert_eq!(fixture.proxy.metric("connections_total", &labels), 2);
}

#[tokio::test]
async fn a_tenant_leaves_places_for_streams_of_other_tenants() {
    let set = [
        ("max_tunnels", "4"),
        ("max_queue", "4"),
        ("open_timeout", "3s"),
        ("tls.clients", TWO_TENANTS),
    ];
    let fixture = open_proxy(&set).await;
    let mut servers = fixture.proxy.be_server(PUBLIC_ADDRESS, 80);
    let one = Http2Client::start(&fixture).await;
    let other = umbrella_client(&fixture).await;
    let authority = format!("{TARGET_HOST}:80");
    let (mut open, mut refused) = (Vec::new(), 0);
    for session in 0..16 {
        let token = fixture.proxy.token_of(&format!("chat-{session}"), None);
        let (tunnel, up) = one.connect(&authority, &token).await;
        open.push((tunnel, up));
    }
    // Two have slots, two wait for one, and the others are refused immediately.
    for (tunnel, _) in open.split_off(4) {
        let response = tunnel.await.unwrap();
        assert_eq!(response.status(), 503);
        let headers = response.headers();
        let status = headers["proxy-status"].to_str().unwrap();
        assert!(status.contains("too_many_tenant_streams"), "{status}");
        assert!(headers.contains_key("retry-after"));
        refused += 1;
    }
    let labels = ["code=\"too_many_tenant_streams\""];
    assert_eq!(fixture.proxy.metric("connections_total", &labels), refused);
    let (tunnel, _up) = other.connect(&authority, &umbrella_token()).await;
    assert_eq!(tunnel.await.unwrap().status(), 200);
    let mut served = Vec::new();
    for _ in 0..3 {
        served.push(servers.recv().await.unwrap());
    }
    drop((open, served));
}

#[tokio::test]
async fn the_places_of_a_tenant_are_configurable_and_free_again_after_a_stream() {
    let fixture = open_proxy(&[("max_per_tenant", "1"), ("tls.clients", TWO_TENANTS)]).await;
    let mut servers = fixture.proxy.be_server(PUBLIC_ADDRESS, 80);
    let client = Http2Client::start(&fixture).await;
    let (authority, token) = (format!("{TARGET_HOST}:80"), fixture.proxy.token());
    let (tunnel, mut up) = client.connect(&authority, &token).await;
    let tunnel = tunnel.await.unwrap();
    assert_eq!(tunnel.status(), 200);
    let (second, _up) = client.connect(&authority, &token).await;
    assert_eq!(second.await.unwrap().status(), 503);
    let umbrella = umbrella_client(&fixture).await;
    let (other, _other_up) = umbrella.connect(&authority, &umbrella_token()).await;
    assert_eq!(other.await.unwrap().status(), 200);
    up.send_data(Bytes::new(), true).unwrap();
    drop(servers.recv().await.unwrap());
    assert_eq!(read_stream(tunnel.into_body()).await.unwrap(), b"");
    dray_testkit::eventually("the place is free", async || {
        let (third, _up) = client.connect(&authority, &token).await;
        (third.await.unwrap().status() == 200).then_some(())
    })
    .await;
}
