//! Tests of requests in absolute form, and of who may make them.

use dray_testkit::http::{ReceivedRequest, ResponseScript, ResponseStep};

use super::persistent::read_head_of;
use super::*;

#[tokio::test]
async fn nothing_is_resolved_or_dialled_for_a_client_without_a_valid_token() {
    let proxy = ProxyFixture::start(&[]).await;
    let now_s = proxy.service.running.context().clock.now_ms() / 1000;
    let expired = format!(
        "Proxy-Authorization: Bearer {}\r\n",
        mint("chat-1", now_s - 1, None)
    );
    for (auth, code) in [
        ("", "unidentified"),
        ("Proxy-Authorization: Bearer abc\r\n", "token_invalid"),
        ("Proxy-Authorization: Basic YTpi\r\n", "token_invalid"),
        ("Proxy-Authorization: Digest x\r\n", "token_invalid"),
        ("Authorization: Bearer abc\r\n", "unidentified"),
        (&expired, "token_expired"),
    ] {
        for line in [
            format!("GET http://{TARGET_HOST}/ HTTP/1.1\r\nHost: {TARGET_HOST}"),
            format!("CONNECT {TARGET_HOST}:443 HTTP/1.1\r\nHost: {TARGET_HOST}:443"),
        ] {
            let response = proxy.exchange(format!("{line}\r\n{auth}\r\n")).await;
            assert_eq!(status_of(&response), 407, "{auth}");
            assert!(response.contains("\r\nProxy-Authenticate: Basic realm="));
            assert_eq!(code_of(&response), code);
        }
    }
    assert_eq!(proxy.fake_network.queried_names(), Vec::<String>::new());
    assert_eq!(proxy.fake_network.dialled(), Vec::<String>::new());
    let unknown = |code: &str| {
        proxy.metric(
            "connections_total",
            &["unknown", &format!("code=\"{code}\"")],
        )
    };
    assert_eq!((unknown("unidentified"), unknown("token_expired")), (4, 2));
}

#[tokio::test]
async fn q_1_the_target_gets_the_request_without_the_fields_of_the_proxy() {
    let mut proxy = ProxyFixture::start(&[]).await;
    let server = proxy.fake_network.serve_with(PUBLIC_ADDRESS, |_| {
        ResponseScript::with_fields(
            &[
                ("Connection", "X-Hop"),
                ("X-Hop", "1"),
                ("Keep-Alive", "x"),
                ("X-End", "2"),
            ],
            "hello",
        )
    });
    let auth = proxy.auth();
    let response = proxy
        .exchange(format!(
            "GET http://FILES.example.org/a?b=c#d HTTP/1.1\r\nHost: files.EXAMPLE.org\r\n{auth}\
             Connection: keep-alive, X-Private\r\nX-Private: 1\r\nProxy-Connection: keep-alive\r\nTE: trailers\r\n\
             HTTP2-Settings: AAMAAABk\r\n\
             Upgrade: websocket\r\nX-Kept: yes\r\nAuthorization: Bearer own\r\n\r\n"
        ))
        .await;
    assert_eq!(status_of(&response), 200, "{response}");
    assert!(response.ends_with("\r\n\r\nhello"));
    assert!(response.to_ascii_lowercase().contains("\r\nx-end: 2\r\n"));
    for field in ["x-hop", "keep-alive"] {
        assert!(!response.to_ascii_lowercase().contains(field), "{response}");
    }
    let requests = server.received_requests();
    assert_eq!(requests.len(), 1);
    let mut lines: Vec<_> = requests[0].head.trim_end().split("\r\n").collect();
    assert_eq!(lines.remove(0), "GET /a?b=c HTTP/1.1");
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "Authorization: Bearer own",
            "Connection: close",
            "Host: files.example.org",
            "X-Kept: yes"
        ]
    );
    let (opened, closed) = (proxy.event().await, proxy.event().await);
    assert_eq!(
        (opened.proxy_protocol.as_str(), opened.proxy_stage.as_str()),
        ("http", "opened")
    );
    assert_eq!(closed.up_bytes, requests[0].head.len() as u64);
    assert_eq!(closed.http_status, 200);
}

#[tokio::test]
async fn the_target_gets_path_and_query_as_the_client_wrote_them() {
    let proxy = ProxyFixture::start(&[]).await;
    let server = proxy
        .fake_network
        .serve_with(PUBLIC_ADDRESS, |_| ResponseScript::ok("hello"));
    let auth = proxy.auth();
    for (line, target) in [
        ("GET", "/x?q=it's{a}|b^"),
        ("GET", "/a{b}/c%27d"),
        ("OPTIONS", ""),
        ("GET", "/<a>?q={\"b\":1}"),
    ] {
        let request = format!(
            "{line} http://{TARGET_HOST}{target} HTTP/1.1\r\nHost: {TARGET_HOST}\r\n{auth}\r\n"
        );
        assert_eq!(status_of(&proxy.exchange(request).await), 200, "{target}");
    }
    let requests = server.received_requests();
    let targets: Vec<_> = requests.iter().map(ReceivedRequest::target).collect();
    // The last one has characters that the HTTP library does not send.
    let encoded = "/%3Ca%3E?q={%22b%22:1}";
    assert_eq!(targets, ["/x?q=it's{a}|b^", "/a{b}/c%27d", "*", encoded]);
}

#[tokio::test]
async fn bodies_pass_in_both_framings_and_lengths_are_kept() {
    let proxy = ProxyFixture::start(&[]).await;
    let mut ends = proxy.be_server(PUBLIC_ADDRESS, 80);
    let auth = proxy.auth();
    let chunks = "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n";
    let (fixed, chunked) = ("Content-Length: 5", "Transfer-Encoding: chunked");
    for (method, framing, body, end) in [
        ("POST", fixed, "hello", "\r\n\r\nhello"),
        ("POST", "Content-Length: 0", "", "\r\n\r\n"),
        ("POST", chunked, chunks, "\r\n0\r\n\r\n"),
        ("GET", fixed, "hello", "\r\n\r\nhello"),
        ("GET", chunked, chunks, "llo\r\n0\r\n\r\n"),
    ] {
        let mut client = proxy.connect().await;
        let request = format!(
            "{method} http://{TARGET_HOST}/ HTTP/1.1\r\nHost: {TARGET_HOST}\r\n{auth}{framing}\r\n\r\n{body}"
        );
        client.write_all(request.as_bytes()).await.unwrap();
        let mut server = ends.recv().await.unwrap();
        let mut received = String::new();
        while !received.ends_with(end) {
            let mut chunk = [0; 1024];
            let count = server.read(&mut chunk).await.unwrap();
            assert!(count > 0, "{received}");
            received.push_str(std::str::from_utf8(&chunk[..count]).unwrap());
        }
        let field = format!("\r\n{}\r\n", framing.to_ascii_lowercase());
        assert!(received.to_ascii_lowercase().contains(&field), "{received}");
        server
            .write_all(
                b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            )
            .await
            .unwrap();
        let response = read_all(&mut client).await;
        assert_eq!(status_of(&response), 201);
        assert!(response.contains("ok"), "{response}");
    }
}

#[tokio::test]
async fn r_3_a_response_with_ambiguous_framing_is_not_passed_on() {
    let proxy = ProxyFixture::start(&[]).await;
    for head in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        "nonsense\r\n\r\n",
        "",
    ] {
        proxy
            .fake_network
            .serve(PUBLIC_ADDRESS, ResponseScript::raw(format!("{head}hello")));
        let response = proxy.get("http://files.example.org/").await;
        assert_eq!(status_of(&response), 502, "{head}: {response}");
        assert!(!response.contains("hello"));
    }
}

#[tokio::test]
async fn b_3_a_response_that_breaks_off_does_not_look_whole() {
    let proxy = ProxyFixture::start(&[]).await;
    let script =
        ResponseScript::raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
            .then(ResponseStep::Drop);
    proxy.fake_network.serve(PUBLIC_ADDRESS, script);
    let response = proxy.get("http://files.example.org/").await;
    assert!(!response.contains("\r\n0\r\n"), "{response}");
}

#[tokio::test]
async fn p_5_a_token_narrows_the_hosts_and_widens_nothing() {
    let proxy = ProxyFixture::start(&[("/host_allowlist", "[\"*.example.org\"]")]).await;
    proxy
        .fake_network
        .name("files.example.net", &[PUBLIC_ADDRESS]);
    for (allow, host, code) in [
        (None, TARGET_HOST, ""),
        (Some(&[TARGET_HOST][..]), TARGET_HOST, ""),
        (
            Some(&["other.example.org"]),
            TARGET_HOST,
            "host_not_in_app_allowlist",
        ),
        (Some(&[]), TARGET_HOST, "host_not_in_app_allowlist"),
        (Some(&["not a host"]), TARGET_HOST, "policy_invalid"),
        (
            Some(&["files.example.net"]),
            "files.example.net",
            "host_not_in_admin_allowlist",
        ),
    ] {
        let token = proxy.token_of("chat-1", allow);
        let response = proxy
            .exchange(format!(
                "GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nProxy-Authorization: Bearer {token}\r\n\r\n"
            ))
            .await;
        if code.is_empty() {
            assert_eq!(status_of(&response), 200, "{response}");
        } else {
            assert_eq!((status_of(&response), code_of(&response)), (403, code));
        }
    }
    assert_eq!(
        proxy.fake_network.queried_names(),
        [TARGET_HOST, TARGET_HOST]
    );
}

#[tokio::test]
async fn a_body_with_malformed_chunks_is_the_fault_of_the_client() {
    let proxy = ProxyFixture::start(&[]).await;
    let mut ends = proxy.be_server(PUBLIC_ADDRESS, 80);
    let auth = proxy.auth();
    for chunks in ["-1\r\nhello\r\n0\r\n\r\n", "5\nhello\n0\n\n"] {
        let request = format!(
            "POST http://{TARGET_HOST}/ HTTP/1.1\r\nHost: {TARGET_HOST}\r\n{auth}Transfer-Encoding: chunked\r\n\r\n{chunks}"
        );
        let (response, target) = tokio::join!(proxy.exchange(request), ends.recv());
        assert_eq!(
            (status_of(&response), code_of(&response)),
            (400, "malformed_request")
        );
        drop(target);
    }
}

#[tokio::test]
async fn equal_content_lengths_of_a_response_reach_the_client_as_one_field() {
    let proxy = ProxyFixture::start(&[]).await;
    let script = ResponseScript::raw(
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    );
    proxy.fake_network.serve(PUBLIC_ADDRESS, script);
    let response = proxy.get(&format!("http://{TARGET_HOST}/")).await;
    assert_eq!((status_of(&response), code_of(&response)), (200, "hello"));
    let lower = response.to_ascii_lowercase();
    assert_eq!(lower.matches("content-length").count(), 1, "{response}");
}

#[tokio::test]
async fn the_body_of_a_client_that_waits_is_requested_when_the_target_agrees() {
    let proxy = ProxyFixture::start(&[]).await;
    let mut ends = proxy.be_server(PUBLIC_ADDRESS, 80);
    let auth = proxy.auth();
    let request = format!(
        "PUT http://{TARGET_HOST}/ HTTP/1.1\r\nHost: {TARGET_HOST}\r\n{auth}Expect: 100-continue\r\n\
         Content-Length: 5\r\n\r\n"
    );
    for is_agreed in [true, false] {
        let mut client = proxy.connect().await;
        client.write_all(request.as_bytes()).await.unwrap();
        let mut server = ends.recv().await.unwrap();
        let head = read_head_of(&mut server).await.unwrap();
        let head = head.to_ascii_lowercase();
        assert!(head.contains("\r\nexpect: 100-continue\r\n"), "{head}");
        if is_agreed {
            let interim = b"HTTP/1.1 100 Continue\r\n\r\n";
            server.write_all(interim).await.unwrap();
            assert_eq!(status_of(&read_head(&mut client).await), 100);
            client.write_all(b"hello").await.unwrap();
            let mut body = [0; 5];
            server.read_exact(&mut body).await.unwrap();
            assert_eq!(&body, b"hello");
        }
        let response = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n";
        server.write_all(response).await.unwrap();
        // The final response is the first one where the target refuses the body.
        assert_eq!(status_of(&read_all(&mut client).await), 401);
    }
}
