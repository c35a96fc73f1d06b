//! Messages that break the rules of HTTP/2, or that HTTP/1.1 would read differently.

use super::frames::*;
use super::*;

/// The end of stream 1 after this head, which also ends the request.
async fn end_of_head(fixture: &CertifiedProxy, fields: &[&str]) -> StreamEnd {
    end_after(fixture, &[head(1, END_STREAM, fields)]).await
}

#[tokio::test]
async fn a_malformed_head_resets_its_stream() {
    let fixture = open_proxy(&[]).await;
    let pseudo = |method, scheme, authority, path| vec![method, scheme, authority, path];
    let (method, scheme, authority, path) = (
        ":method=GET",
        ":scheme=http",
        ":authority=files.example.org",
        ":path=/",
    );
    let with = |field| request_fields(method, &[field]);
    for fields in [
        // RFC 9113, section 8.2.2.
        with("connection=close"),
        with("keep-alive=timeout=5"),
        with("proxy-connection=keep-alive"),
        with("transfer-encoding=chunked"),
        with("upgrade=websocket"),
        with("te=gzip"),
        // Section 8.3.
        with(":path=/other"),
        with(":status=200"),
        vec![scheme, authority, path],
        vec![method, authority, path],
        vec![method, scheme, authority],
        vec!["x=1", method, scheme, authority, path],
        pseudo(method, scheme, authority, ":path="),
        pseudo(method, scheme, authority, ":path=other.example.org/"),
        pseudo(method, scheme, authority, ":path=@other.example.org/"),
        pseudo(method, scheme, authority, ":path=?x=1"),
        pseudo(method, scheme, authority, ":path=/ HTTP/1.1\r\nX: y\r\n"),
        pseudo(method, scheme, ":authority=files.example.org\r\nX: y", path),
        pseudo(method, scheme, ":authority=files example org", path),
        pseudo(method, ":scheme=ht tp", authority, path),
        vec![method, scheme, authority, path, ":protocol=websocket"],
        // Section 8.5, and RFC 8441 without its setting.
        vec![":method=CONNECT", ":authority=files.example.org:443", path],
        vec![
            ":method=CONNECT",
            ":authority=files.example.org:443",
            scheme,
        ],
        pseudo(":method=CONNECT", scheme, authority, path),
        [
            &pseudo(":method=CONNECT", scheme, authority, path)[..],
            &[":protocol=websocket"],
        ]
        .concat(),
        // Section 8.2.1: a reader of HTTP/1.1 would remove the blanks.
        with("x= value"),
        with("x=value\t"),
        // Section 8.1.1.
        with("content-length=5"),
        with("content-length=-1"),
        request_fields(method, &["content-length=0", "content-length=1"]),
    ] {
        let end = end_of_head(&fixture, &fields).await;
        assert_eq!(end, StreamEnd::Reset(Reason::PROTOCOL_ERROR), "{fields:?}");
    }
    assert!(fixture.proxy.fake_network.dialled().is_empty());
    assert_eq!(fixture.proxy.fake_network.queried_names(), [""; 0]);
}

#[tokio::test]
async fn a_head_that_cannot_be_decoded_ends_the_connection() {
    let fixture = open_proxy(&[]).await;
    for field in [
        "X-Upper=1",
        ":unknown=1",
        "a b=1",
        "a:b=1",
        "=1",
        "x=a\r\nHost: other.example.org",
        "x=a\nb",
        "x=a\rb",
        "x=a\0b",
        "x=a\x7fb",
    ] {
        let fields = request_fields(":method=GET", &[field]);
        let end = end_of_head(&fixture, &fields).await;
        let expected = StreamEnd::GoAway(Reason::PROTOCOL_ERROR);
        assert_eq!(end, expected, "{field:?}");
    }
    assert!(fixture.proxy.fake_network.dialled().is_empty());
}

#[tokio::test]
async fn a_head_that_only_http2_allows_gets_the_refusal_of_the_strict_reader() {
    let fixture = open_proxy(&[]).await;
    let rest = [":scheme=http", ":path=/"];
    let of = |authority| [&[":method=GET", authority], &rest[..]].concat();
    let with = |fields: &[&'static str]| request_fields(":method=GET", fields);
    let many: Vec<_> = (0..101).map(|number| format!("x-{number}=1")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    for (fields, code) in [
        (with(&["host=other.example.org"]), "host_mismatch"),
        (
            with(&["host=files.example.org", "host=files.example.org"]),
            "malformed_request",
        ),
        (
            with(&["content-length=0", "content-length=0"]),
            "malformed_request",
        ),
        (with(&["transfer_encoding=chunked"]), "malformed_request"),
        (with(&["content_length=5"]), "malformed_request"),
        (request_fields(":method=GET", &many), "request_too_large"),
        (
            [&[":method=GET"][..], &rest, &["host=files.example.org"]].concat(),
            "malformed_request",
        ),
        (of(":authority=user@files.example.org"), "url_credentials"),
        (of(":authority=169.254.169.254"), "policy_denied"),
        (
            vec![
                ":method=OPTIONS",
                ":scheme=http",
                ":authority=files.example.org",
                ":path=*",
            ],
            "malformed_request",
        ),
        (
            vec![
                ":method=GET",
                ":scheme=https",
                ":authority=files.example.org",
                ":path=/",
            ],
            "unsupported_scheme",
        ),
        (
            vec![
                ":method=CONNECT",
                ":authority=files.example.org:443",
                "content-length=5",
            ],
            "malformed_request",
        ),
    ] {
        let end = end_after(&fixture, &[head(1, 0, &fields)]).await;
        assert_eq!(end, StreamEnd::Whole(format!("{code}\n")), "{fields:?}");
    }
    assert!(fixture.proxy.fake_network.dialled().is_empty());
}

/// A name, the frames of a client, and the reason with which they end its connection.
type FrameCase = (&'static str, Vec<Vec<u8>>, Reason);

async fn assert_each_ends_the_connection(cases: Vec<FrameCase>) {
    let fixture = open_proxy(&[]).await;
    let network = &fixture.proxy.fake_network;
    network.peer(PUBLIC_ADDRESS, 80, FakePeer::Mute);
    for (name, frames, reason) in cases {
        let end = end_after(&fixture, &frames).await;
        assert_eq!(end, StreamEnd::GoAway(reason), "{name}");
    }
}

#[tokio::test]
async fn frames_of_streams_that_break_the_rules_end_the_connection() {
    let opened = |next| vec![head(1, 0, &request_fields(":method=POST", &[])), next];
    let padded = |payload: &[u8]| frame(DATA, PADDED, 1, payload);
    let padded_head = frame(HEADERS, PADDED | END_HEADERS, 1, &[200, 0x82]);
    let large = frame(DATA, 0, 1, &vec![0; 16 * 1024 + 1]);
    let data = frame(DATA, 0, 1, b"x");
    let protocol = Reason::PROTOCOL_ERROR;
    assert_each_ends_the_connection(vec![
        ("data after the end", vec![get(1), data.clone()], protocol),
        ("data of no stream", vec![data], protocol),
        ("much padding", opened(padded(&[9, 1, 2])), protocol),
        ("padding of no length", opened(padded(&[])), protocol),
        ("much padding in a head", vec![padded_head], protocol),
        ("a stream of a server", vec![get(2)], protocol),
        ("an older stream", vec![get(5), get(1)], protocol),
        ("a head of the connection", vec![get(0)], protocol),
        ("a large frame", opened(large), Reason::FRAME_SIZE_ERROR),
    ])
    .await;
}

#[tokio::test]
async fn frames_of_the_connection_that_break_the_rules_end_it() {
    let window = frame(WINDOW_UPDATE, 0, 0, &0x7fff_ffff_u32.to_be_bytes());
    // SETTINGS_INITIAL_WINDOW_SIZE.
    let settings = frame(SETTINGS, 0, 0, &[0, 4, 0xff, 0xff, 0xff, 0xff]);
    let ping = |length: usize| frame(PING, 0, 0, &vec![0; length]);
    let continued = frame(CONTINUATION, END_HEADERS, 1, &[0x82]);
    let unknown_index = frame(HEADERS, END_HEADERS, 1, &[0xfe]);
    let protocol = Reason::PROTOCOL_ERROR;
    assert_each_ends_the_connection(vec![
        ("a large window", vec![window], Reason::FLOW_CONTROL_ERROR),
        ("settings with a large window", vec![settings], protocol),
        ("a short ping", vec![ping(7)], protocol),
        ("a continuation of nothing", vec![continued], protocol),
        (
            "a frame within a head",
            vec![frame(HEADERS, 0, 1, &[0x82]), ping(8)],
            protocol,
        ),
        ("an index of nothing", vec![unknown_index], protocol),
    ])
    .await;
}

#[tokio::test]
async fn a_body_of_another_length_than_declared_never_looks_whole() {
    let fixture = open_proxy(&[]).await;
    let mut servers = fixture.proxy.be_server(PUBLIC_ADDRESS, 80);
    let open = head(1, 0, &request_fields(":method=POST", &["content-length=3"]));
    for body in [
        frame(DATA, 0, 1, b"abcd"),
        frame(DATA, END_STREAM, 1, b"ab"),
    ] {
        let mut client = FrameClient::start(&fixture, &[]).await;
        client.send(std::slice::from_ref(&open)).await;
        let mut server = servers.recv().await.unwrap();
        client.send(&[body]).await;
        assert_eq!(
            client.end_of(1).await,
            StreamEnd::Reset(Reason::PROTOCOL_ERROR)
        );
        let mut received = Vec::new();
        server.read_to_end(&mut received).await.unwrap();
        let text = String::from_utf8(received).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(
            head.to_ascii_lowercase().contains("content-length: 3"),
            "{head}"
        );
        assert!(body.len() < 3, "{body}");
    }
}

#[tokio::test]
async fn trailers_of_a_request_do_not_reach_the_target() {
    let fixture = open_proxy(&[]).await;
    let mut servers = fixture.proxy.be_server(PUBLIC_ADDRESS, 80);
    for trailers in [
        &["x-late=1", "host=other.example.org"][..],
        &[":path=/other"],
    ] {
        let mut client = FrameClient::start(&fixture, &[]).await;
        let open = head(1, 0, &request_fields(":method=POST", &["trailer=x-late"]));
        let trailers = head(1, END_STREAM, trailers);
        client
            .send(&[open, frame(DATA, 0, 1, b"abc"), trailers])
            .await;
        let mut server = servers.recv().await.unwrap();
        let received = serve_no_content(&mut server, b"\r\n0\r\n\r\n").await;
        assert_eq!(client.end_of(1).await, StreamEnd::Whole(String::new()));
        let text = String::from_utf8(received).unwrap().to_ascii_lowercase();
        assert!(
            !text.contains("x-late") && !text.contains("other"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn the_body_of_a_get_reaches_the_target() {
    let fixture = open_proxy(&[]).await;
    let mut servers = fixture.proxy.be_server(PUBLIC_ADDRESS, 80);
    for (fields, end) in [
        (&[][..], "\r\n\r\n5\r\nquery\r\n0\r\n\r\n"),
        (&["content-length=5"][..], "\r\n\r\nquery"),
    ] {
        let mut client = FrameClient::start(&fixture, &[]).await;
        let open = head(1, 0, &request_fields(":method=GET", fields));
        client
            .send(&[open, frame(DATA, END_STREAM, 1, b"query")])
            .await;
        let mut server = servers.recv().await.unwrap();
        serve_no_content(&mut server, end.as_bytes()).await;
        assert_eq!(client.end_of(1).await, StreamEnd::Whole(String::new()));
    }
}
