//! Tests of clients that try to reach forbidden targets: by spellings, rebinding, ports, smuggling and floods.

use dray_testkit::egress::{EGRESS_CASES, EGRESS_NAMES};

use super::*;

#[tokio::test]
async fn i_1_the_corpus_of_fetches_has_the_same_verdicts_through_the_proxy() {
    let ports = "80,443,8000,8080,8443";
    let proxy = ProxyFixture::start(&[("http_ports", ports), ("connect_ports", ports)]).await;
    for (name, addresses) in EGRESS_NAMES {
        proxy.fake_network.name(name, addresses);
    }
    for (url, code) in EGRESS_CASES {
        let allowed = proxy.fake_network.dialled().len();
        let auth = proxy.auth();
        // In HTTP/1.0 no Host field is needed, which could not name most of these.
        let response = proxy
            .exchange(format!("GET {url} HTTP/1.0\r\n{auth}\r\n"))
            .await;
        let dialled = proxy.fake_network.dialled().len() - allowed;
        if code.is_empty() {
            // Whether a server listens there does not matter.
            assert!(
                [200, 502].contains(&status_of(&response)),
                "{url}: {response}"
            );
            assert_eq!(dialled, 1, "{url}");
            continue;
        }
        assert_eq!(dialled, 0, "{url}");
        let is_target = url.contains("://") && !url.contains([' ', '\t']);
        let expected = if is_target { code } else { "malformed_request" };
        // The parser of heads does not know a backslash in a target.
        let is_unread = url.contains('\\') && code_of(&response) == "malformed_request";
        assert!(
            is_unread || code_of(&response) == expected,
            "{url}: {response}"
        );
        assert!(status_of(&response) >= 400);
    }
}

#[tokio::test]
async fn i_1_no_spelling_of_an_inside_target_opens_a_tunnel() {
    let proxy = ProxyFixture::start(&[("connect_ports", "80,443")]).await;
    for (name, addresses) in EGRESS_NAMES {
        proxy.fake_network.name(name, addresses);
    }
    for (authority, code) in [
        ("169.254.169.254:80", "ssrf_blocked"),
        ("127.0.0.1:443", "ssrf_blocked"),
        ("0.0.0.0:443", "ssrf_blocked"),
        ("10.0.0.1:443", "ssrf_blocked"),
        ("[::1]:443", "ssrf_blocked"),
        ("[::]:443", "ssrf_blocked"),
        ("[::ffff:127.0.0.1]:443", "ssrf_blocked"),
        ("[::ffff:a9fe:a9fe]:80", "ssrf_blocked"),
        ("[::127.0.0.1]:443", "ssrf_blocked"),
        ("[64:ff9b::7f00:1]:443", "ssrf_blocked"),
        ("[2002:7f00:1::]:443", "ssrf_blocked"),
        ("[fe80::1]:443", "ssrf_blocked"),
        ("[fd00:ec2::254]:80", "ssrf_blocked"),
        ("inside.example.org:443", "ssrf_blocked"),
        ("mixed.example.org:443", "ssrf_blocked"),
        ("metadata.example.org:80", "ssrf_blocked"),
        ("mapped.example.org:443", "ssrf_blocked"),
        ("localhost:443", "blocked_host"),
        ("metadata.google.internal:80", "blocked_host"),
        ("kubernetes.default.svc:443", "blocked_host"),
        ("127.1:443", "ambiguous_host"),
        ("2130706433:443", "ambiguous_host"),
        ("0x7f000001:443", "ambiguous_host"),
        ("0177.0.0.1:443", "ambiguous_host"),
        ("127.0.0.1.:443", "ambiguous_host"),
        ("u:p@files.example.org:443", "url_credentials"),
        ("files.example.org@127.0.0.1:443", "url_credentials"),
        ("files.example.org:22", "port_not_allowed"),
        ("files.example.org:6379", "port_not_allowed"),
        ("files.example.org:8443", "port_not_allowed"),
        ("files.example.org", "invalid_url"),
        ("files.example.org:", "invalid_url"),
        ("[::1%25lo]:443", "invalid_url"),
        ("a%0d%0aHost:x:443", "invalid_url"),
        ("http://files.example.org/", "invalid_url"),
        ("/etc/passwd:443", "invalid_url"),
    ] {
        let auth = proxy.auth();
        let response = proxy
            .exchange(format!("CONNECT {authority} HTTP/1.0\r\n{auth}\r\n"))
            .await;
        assert_eq!(code_of(&response), code, "{authority}");
        // I-8: no address in any response.
        let is_mute = ["169.254", "10.0.0", "::1"]
            .iter()
            .all(|part| !response.contains(part));
        assert!(is_mute, "{response}");
    }
    assert_eq!(proxy.fake_network.dialled(), Vec::<String>::new());
}

#[tokio::test]
async fn d_6_a_name_that_rebinds_is_resolved_once_for_each_connection() {
    let proxy = ProxyFixture::start(&[]).await;
    let public = answer("rebind.example.org", &[], &[PUBLIC_ADDRESS]);
    let inside = answer("rebind.example.org", &[], &["127.0.0.1"]);
    proxy
        .fake_network
        .set_dns_answers("rebind.example.org", vec![Ok(public), Ok(inside)]);
    let mut ends = proxy.be_server(PUBLIC_ADDRESS, 443);
    let (_client, head) = proxy.tunnel("rebind.example.org:443").await;
    assert_eq!(status_of(&head), 200);
    assert!(ends.recv().await.is_some());
    for _ in 0..3 {
        let (mut client, head) = proxy.tunnel("rebind.example.org:443").await;
        assert_eq!(status_of(&head), 403);
        assert_eq!(read_all(&mut client).await, "ssrf_blocked\n");
    }
    assert_eq!(proxy.fake_network.queried_names().len(), 4);
    assert_eq!(
        proxy.fake_network.dialled(),
        [format!("{PUBLIC_ADDRESS}:443")]
    );
}

#[tokio::test]
async fn t_2_a_connection_to_another_peer_than_the_judged_one_is_not_used() {
    let mut proxy = ProxyFixture::start(&[]).await;
    let inside = "10.0.0.1:443".parse().unwrap();
    proxy
        .fake_network
        .peer(PUBLIC_ADDRESS, 443, FakePeer::Impostor(inside));
    let (_, head) = proxy.tunnel(&format!("{TARGET_HOST}:443")).await;
    assert_eq!(status_of(&head), 500);
    let event = proxy.event().await;
    assert_eq!(
        (event.code.as_str(), event.proxy_stage.as_str()),
        ("internal", "refused")
    );
}

#[tokio::test]
async fn smuggled_and_pipelined_requests_reach_no_server() {
    let proxy = ProxyFixture::start(&[]).await;
    let second = "GET /smuggled HTTP/1.1\r\nHost: files.example.org\r\n\r\n";
    let chunks = format!("0\r\n\r\n{second}");
    let auth = proxy.auth();
    let post = format!("POST http://{TARGET_HOST}/ HTTP/1.1\r\nHost: {TARGET_HOST}\r\n{auth}");
    for fields in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        "Content-Length: 4\r\nContent-Length: 5\r\n",
        "Content-Length: 4\r\nContent-Length: 4\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n",
        "Transfer-Encoding:\r\n chunked\r\n",
        "X: a\nContent-Length: 4\r\n",
        "X: a\rContent-Length: 4\r\n",
        "Content-Length : 4\r\n",
        "Host: other.example.org\r\n",
    ] {
        let response = proxy.exchange(format!("{post}{fields}\r\n{chunks}")).await;
        assert!(
            [400, 501].contains(&status_of(&response)),
            "{fields}: {response}"
        );
        assert_eq!(code_of(&response), "malformed_request", "{fields}");
    }
    let other =
        format!("GET http://{TARGET_HOST}/ HTTP/1.1\r\nHost: other.example.org\r\n{auth}\r\n");
    assert_eq!(code_of(&proxy.exchange(other).await), "host_mismatch");
    assert_eq!(proxy.fake_network.dialled(), Vec::<String>::new());
    // A second request behind a whole one: the first is served, the second reaches nothing.
    let server = proxy.fake_network.serve_with(PUBLIC_ADDRESS, |_| {
        dray_testkit::http::ResponseScript::ok("hello")
    });
    let get = format!("GET http://{TARGET_HOST}/ HTTP/1.1\r\nHost: {TARGET_HOST}\r\n{auth}\r\n");
    let response = proxy.exchange(format!("{get}{get}")).await;
    assert_eq!(response.matches("HTTP/1.1 ").count(), 1, "{response}");
    assert_eq!(server.received_requests().len(), 1);
}

#[tokio::test]
async fn requests_that_are_not_for_a_proxy_are_refused() {
    let proxy = ProxyFixture::start(&[]).await;
    let auth = proxy.auth();
    for (line, status) in [
        ("GET / HTTP/1.1", 400),
        ("OPTIONS * HTTP/1.1", 400),
        ("PRI * HTTP/2.0", 505),
        ("GET https://files.example.org/ HTTP/1.1", 501),
        ("\0\0\0", 400),
    ] {
        let response = proxy
            .exchange(format!("{line}\r\nHost: {TARGET_HOST}\r\n{auth}\r\n"))
            .await;
        assert_eq!(status_of(&response), status, "{line}: {response}");
    }
    let huge = format!(
        "GET http://{TARGET_HOST}/ HTTP/1.1\r\nX: {}",
        "a".repeat(64 * 1024)
    );
    let response = proxy.exchange(huge).await;
    assert_eq!(
        (status_of(&response), code_of(&response)),
        (431, "request_too_large")
    );
    assert_eq!(proxy.fake_network.queried_names(), Vec::<String>::new());
}

#[tokio::test]
async fn other_protocols_are_refused_with_their_first_byte() {
    let proxy = ProxyFixture::start(&[("head_timeout", "5m")]).await;
    // TLS, SOCKS4, an empty line, and bytes of no protocol. Each is too short for a message of its protocol.
    for first in [
        &b"\x16\x03\x01"[..],
        b"\x04\x01\x01\xbb",
        b"\r",
        b" ",
        b"\0",
        b"\xff",
    ] {
        let mut client = proxy.connect().await;
        client.write_all(first).await.unwrap();
        let response = read_all(&mut client).await;
        assert_eq!(
            (status_of(&response), code_of(&response)),
            (400, "malformed_request"),
            "{first:?}"
        );
    }
}

#[tokio::test]
async fn a_bare_line_end_is_refused_without_a_wait_for_the_rest_of_the_head() {
    let proxy = ProxyFixture::start(&[("head_timeout", "5m")]).await;
    let auth = proxy.auth();
    for head in [
        format!("GET http://{TARGET_HOST}/ HTTP/1.1\nHost: {TARGET_HOST}\n{auth}\n\n"),
        format!("CONNECT {TARGET_HOST}:443 HTTP/1.1\r\nHost: {TARGET_HOST}:443\r\n{auth}\n"),
        format!("CONNECT {TARGET_HOST}:443 HTTP/1.1\rX"),
        "GET / HTTP/1.1\r\nX: a\r\n b".to_owned(),
    ] {
        let mut client = proxy.connect().await;
        client.write_all(head.as_bytes()).await.unwrap();
        let response = read_all(&mut client).await;
        assert_eq!(
            (status_of(&response), code_of(&response)),
            (400, "malformed_request"),
            "{head:?}"
        );
    }
    assert_eq!(proxy.fake_network.queried_names(), Vec::<String>::new());
}
