//! What streams of one connection share, and what they do not.

use tokio::task::JoinSet;

use super::*;

/// Sends as much of a body as the windows of a stream let through.
async fn upload(mut up: SendStream<Bytes>, length: usize) {
    let mut rest = Bytes::from(vec![b'x'; length]);
    while !rest.is_empty() {
        up.reserve_capacity(rest.len());
        let capacity = std::future::poll_fn(|cx| up.poll_capacity(cx)).await;
        let Some(Ok(capacity)) = capacity else {
            return;
        };
        up.send_data(rest.split_to(capacity.min(rest.len())), false)
            .unwrap();
    }
    up.send_data(Bytes::new(), true).unwrap();
}

#[tokio::test]
async fn uploads_that_their_targets_do_not_take_hold_up_no_other_stream() {
    let fixture = open_proxy(&[("max_per_session", "100"), ("max_per_host", "100")]).await;
    let mut servers = fixture.proxy.be_server(PUBLIC_ADDRESS, 80);
    let client = Http2Client::start(&fixture).await;
    let token = fixture.proxy.token();
    let (mut uploading, mut stalled) = (JoinSet::new(), Vec::new());
    let mut begin = async |length| {
        let request = Request::post(format!("http://{TARGET_HOST}/"))
            .header(PROXY_AUTHORIZATION, bearer(&token));
        let (response, up) = client.send(request.body(()).unwrap(), false).await;
        uploading.spawn(upload(up, length));
        (response, servers.recv().await.unwrap())
    };
    for _ in 0..20 {
        stalled.push(begin(1 << 20).await);
    }
    let (response, mut server) = begin(300_000).await;
    serve_no_content(&mut server, b"\r\n0\r\n\r\n").await;
    assert_eq!(response.await.unwrap().status(), 204);
}

#[tokio::test]
async fn streams_count_against_the_limits_of_their_sessions() {
    let set = [("max_per_session", "1"), ("open_timeout", "3s")];
    let mut fixture = open_proxy(&set).await;
    let mut servers = fixture.proxy.be_server(PUBLIC_ADDRESS, 80);
    let client = Http2Client::start(&fixture).await;
    let (one, two) = (
        fixture.proxy.token_of("one", None),
        fixture.proxy.token_of("two", None),
    );
    let authority = format!("{TARGET_HOST}:80");
    let (first, mut up) = client.connect(&authority, &one).await;
    let first = first.await.unwrap();
    assert_eq!(first.status(), 200);
    let server = servers.recv().await.unwrap();
    let (second, _up) = client.connect(&authority, &one).await;
    assert_eq!(
        second.await.unwrap().status(),
        504,
        "it waits for its place"
    );
    let (other, _other_up) = client.connect(&authority, &two).await;
    assert_eq!(other.await.unwrap().status(), 200, "a session of its own");
    // The place is free again after a reset.
    up.send_reset(Reason::CANCEL);
    drop(server);
    while fixture.proxy.event().await.proxy_stage != "closed" {}
    let (third, _third_up) = client.connect(&authority, &one).await;
    assert_eq!(third.await.unwrap().status(), 200);
}

#[tokio::test]
async fn streams_of_a_connection_that_breaks_off_end_with_their_events() {
    let mut fixture = open_proxy(&[]).await;
    let mut servers = fixture.proxy.be_server(PUBLIC_ADDRESS, 80);
    let client = Http2Client::start(&fixture).await;
    let token = fixture.proxy.token();
    let mut streams = Vec::new();
    for _ in 0..3 {
        let (tunnel, up) = client.connect(&format!("{TARGET_HOST}:80"), &token).await;
        let server = servers.recv().await.unwrap();
        streams.push((tunnel.await.unwrap(), up, server));
        assert_eq!(fixture.proxy.event().await.proxy_stage, "opened");
    }
    drop(client);
    for (_, _, mut server) in streams {
        let mut rest = Vec::new();
        server.read_to_end(&mut rest).await.unwrap();
        let event = fixture.proxy.event().await;
        assert_eq!(
            (event.proxy_stage.as_str(), event.code.as_str()),
            ("closed", "connection_closed")
        );
    }
}

#[tokio::test]
async fn open_streams_are_drained_and_then_cut_with_their_events() {
    let mut fixture = open_proxy(&[("drain_timeout", "10ms")]).await;
    let mut servers = fixture.proxy.be_server(PUBLIC_ADDRESS, 80);
    let client = Http2Client::start(&fixture).await;
    let token = fixture.proxy.token();
    let (tunnel, _up) = client.connect(&format!("{TARGET_HOST}:80"), &token).await;
    let tunnel = tunnel.await.unwrap();
    let _server = servers.recv().await.unwrap();
    assert_eq!(fixture.proxy.event().await.proxy_stage, "opened");
    let TestService {
        running, mut audit, ..
    } = fixture.proxy.service;
    let (_, event) = tokio::join!(running.stop(), audit.next());
    let event: v1::EgressAudit = event.unwrap().decode().unwrap();
    assert_eq!(
        (event.proxy_stage.as_str(), event.code.as_str()),
        ("closed", "stopping")
    );
    assert_eq!(read_stream(tunnel.into_body()).await.unwrap(), b"");
}
