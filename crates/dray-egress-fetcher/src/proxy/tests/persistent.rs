//! Several requests in one intercepted tunnel: each is judged and recorded, and none reaches a server behind another.

use std::sync::Mutex;

use tokio::io::AsyncRead;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::client::TlsStream;

use super::intercepted::{InterceptingProxy, POLICY_TEXT, smuggling_cases};
use super::*;

/// A server with TLS that serves any number of requests on each connection.
pub(super) struct PersistentServer {
    pub(super) requests: RequestLog,
    _serving: JoinSet<()>,
}

/// Number of the connection, from 1, and head of every request.
pub(super) type RequestLog = Arc<Mutex<Vec<(usize, String)>>>;

/// The bytes that a server sends for a path.
pub(super) type ResponseOfPath = fn(&str) -> String;

impl PersistentServer {
    /// Sends what `respond` makes. Closes after a message that says so, after a response without another end, and after
    /// the path `/quiet`. Takes the body of a request for `/unread` for the next request. Closes in place of a response
    /// to `/gone`, and on the first connection also in place of one to `/once`.
    pub(super) fn start(fixture: &InterceptingProxy, respond: ResponseOfPath) -> Self {
        let mut ends = fixture.proxy.be_server(PUBLIC_ADDRESS, 443);
        let acceptor = fixture.origin.acceptor(TARGET_HOST).unwrap();
        let requests = RequestLog::default();
        let log = Arc::clone(&requests);
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            let mut number = 0;
            while let Some(end) = ends.recv().await {
                number += 1;
                let to = (number, Arc::clone(&log));
                let connection = serve(acceptor.clone(), end, respond, to);
                connections.spawn(async move {
                    // Ends when the proxy closes it.
                    let _ = connection.await;
                });
            }
        });
        Self {
            requests,
            _serving: serving,
        }
    }

    /// The connection and the path of every request.
    pub(super) fn paths(&self) -> Vec<(usize, String)> {
        let requests = self.requests.lock().unwrap();
        let path = |(number, head): &(usize, String)| (*number, path_of(head).to_owned());
        requests.iter().map(path).collect()
    }
}

fn path_of(head: &str) -> &str {
    head.split(' ').nth(1).unwrap_or_default()
}

pub(super) async fn read_head_of(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    String::from_utf8(head).ok()
}

/// The value of a field of a head.
pub(super) fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(": ")?;
        found.eq_ignore_ascii_case(name).then_some(value)
    })
}

/// A connection of the server.
async fn serve(
    acceptor: TlsAcceptor,
    end: DuplexStream,
    respond: ResponseOfPath,
    (number, log): (usize, RequestLog),
) -> Option<()> {
    let mut stream = acceptor.accept(end).await.ok()?;
    loop {
        let head = read_head_of(&mut stream).await?;
        let path = path_of(&head).to_owned();
        if !path.ends_with("/unread") {
            let length = field(&head, "content-length").map_or(0, |length| length.parse().unwrap());
            let mut body = vec![0; length];
            stream.read_exact(&mut body).await.ok()?;
        }
        let is_last = field(&head, "connection") == Some("close");
        log.lock().unwrap().push((number, head));
        if path.ends_with("/gone") || (path.ends_with("/once") && number == 1) {
            stream.shutdown().await.ok()?;
            return None;
        }
        let response = respond(&path);
        stream.write_all(response.as_bytes()).await.ok()?;
        let has_end = response.contains("-Length") || response.contains("chunked");
        if is_last || !has_end || response.contains("close") || path.ends_with("/quiet") {
            stream.shutdown().await.ok()?;
            return None;
        }
    }
}

/// A table with these fields and this content.
pub(super) fn table_with(fields: &str, content: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/csv\r\n{fields}Content-Length: {}\r\n\r\n{content}",
        content.len()
    )
}

/// A response with a CSV table whose content is the path of its request.
pub(super) fn path_table(path: &str) -> String {
    table_with("", path)
}

pub(super) type TunnelClient = TlsStream<TcpStream>;

/// Sends a request and reads its response, by the framing that the response has.
pub(super) async fn ask(client: &mut TunnelClient, line: &str, body: &str) -> (String, String) {
    let length = match body.len() {
        0 => String::new(),
        length => format!("Content-Length: {length}\r\n"),
    };
    let request = format!("{line} HTTP/1.1\r\nHost: {TARGET_HOST}\r\n{length}\r\n{body}");
    client.write_all(request.as_bytes()).await.unwrap();
    let head = read_head_of(client).await.expect("a response");
    let mut body = Vec::new();
    if field(&head, "transfer-encoding").is_some() {
        while !body.ends_with(b"\r\n0\r\n\r\n") {
            body.push(client.read_u8().await.unwrap());
        }
    } else if !line.starts_with("HEAD") {
        let length = field(&head, "content-length").map_or(0, |length| length.parse().unwrap());
        body.resize(length, 0);
        client.read_exact(&mut body).await.unwrap();
    }
    (head, String::from_utf8(body).unwrap())
}

/// Everything up to the end of the tunnel.
pub(super) async fn rest_of(client: &mut TunnelClient) -> String {
    let mut rest = Vec::new();
    // The proxy may close without the alert of TLS.
    let _ = client.read_to_end(&mut rest).await;
    String::from_utf8(rest).unwrap()
}

#[tokio::test]
async fn requests_of_one_tunnel_are_judged_and_recorded_each_and_share_a_connection() {
    let mut fixture = InterceptingProxy::start(&[]).await;
    let server = PersistentServer::start(&fixture, path_table);
    let mut client = fixture.client().await;
    let mut connections = Vec::new();
    for (method, path, body) in [
        ("GET", "/tables/a", ""),
        ("POST", "/tables/b", ""),
        ("GET", "/tables/c", ""),
    ] {
        let (head, received) = ask(&mut client, &format!("{method} {path}"), body).await;
        assert_eq!((status_of(&head), received.as_str()), (200, path), "{head}");
        assert_eq!(field(&head, "connection"), None);
        let (opened, closed) = fixture.events().await;
        for event in [&opened, &closed] {
            assert!(event.intercepted);
            assert_eq!(
                (event.method.as_str(), event.server_name.as_str()),
                (method, TARGET_HOST)
            );
            assert_eq!(event.decided_by, "sandboxes/tables (policy.toml:7)");
            assert_eq!(event.operation_id, opened.operation_id);
        }
        assert_eq!(opened.proxy_stage, "opened");
        let fields = (
            closed.proxy_stage.as_str(),
            closed.code.as_str(),
            closed.http_status,
        );
        assert_eq!(fields, ("closed", "", 200));
        let hop = &closed.hops[0];
        assert_eq!(
            (closed.hops.len(), hop.tls_version.as_str()),
            (1, "TLSv1.3")
        );
        assert!(closed.up_bytes > 0 && (1..4096).contains(&closed.down_bytes));
        connections.push((
            opened.operation_id,
            opened.url_path_hash,
            hop.peer_address.clone(),
        ));
    }
    // Only the first one has the handshake.
    assert!(
        connections
            .windows(2)
            .all(|two| two[0].0 != two[1].0 && two[0].1 != two[1].1)
    );
    assert!(connections.windows(2).all(|two| two[0].2 == two[1].2));
    let (head, body) = ask(&mut client, "GET /other", "").await;
    assert_eq!((status_of(&head), body.as_str()), (403, "policy_denied\n"));
    assert_eq!(rest_of(&mut client).await, "");
    let refused = fixture.proxy.event().await;
    let fields = (refused.proxy_stage.as_str(), refused.code.as_str());
    assert_eq!(
        (fields, refused.intercepted),
        (("refused", "policy_denied"), true)
    );
    let expected = ["/tables/a", "/tables/b", "/tables/c"].map(|path| (1, path.to_owned()));
    assert_eq!(server.paths(), expected);
    assert_eq!(fixture.proxy.fake_network.dialled().len(), 1);
    assert_eq!(fixture.proxy.fake_network.queried_names().len(), 1);
}

#[tokio::test]
async fn nothing_is_smuggled_as_the_second_request_of_a_tunnel() {
    let mut fixture = InterceptingProxy::start(&[]).await;
    let server = PersistentServer::start(&fixture, path_table);
    for (request, code) in smuggling_cases() {
        let mut client = fixture.client().await;
        let (head, _) = ask(&mut client, "GET /tables/first", "").await;
        assert_eq!(status_of(&head), 200);
        let _ = fixture.events().await;
        client.write_all(request.as_bytes()).await.unwrap();
        let response = rest_of(&mut client).await;
        assert_eq!(
            response.matches("HTTP/1.1 ").count(),
            1,
            "{request}: {response}"
        );
        assert_eq!(code_of(&response), code, "{request}");
        let event = fixture.proxy.event().await;
        let fields = (event.proxy_stage.as_str(), event.code.as_str());
        assert_eq!(fields, ("refused", code), "{request}");
    }
    let paths = server.paths();
    assert_eq!(paths.len(), smuggling_cases().len());
    assert!(paths.iter().all(|(_, path)| path == "/tables/first"));
}

#[tokio::test]
async fn bytes_behind_a_response_do_not_answer_the_next_request() {
    let fixture = InterceptingProxy::start(&[]).await;
    let server = PersistentServer::start(&fixture, |path| match path {
        "/tables/split" => format!("{}{}", path_table(path), table_with("", "stolen")),
        // The status means that there is no body, regardless of the fields.
        "/sockets/empty" => "HTTP/1.1 204 No Content\r\nContent-Length: 6\r\n\r\nstolen".to_owned(),
        _ => path_table(path),
    });
    let mut client = fixture.client().await;
    for path in ["/tables/split", "/tables/b", "/sockets/empty", "/tables/c"] {
        let (head, body) = ask(&mut client, &format!("GET {path}"), "").await;
        if path == "/sockets/empty" {
            assert_eq!(
                (status_of(&head), field(&head, "content-length")),
                (204, None)
            );
        } else {
            assert_eq!((status_of(&head), body.as_str()), (200, path), "{head}");
        }
    }
    // Each of the two ended its connection.
    let numbers: Vec<_> = server
        .paths()
        .into_iter()
        .map(|(number, _)| number)
        .collect();
    assert_eq!(numbers, [1, 2, 2, 3]);
}

#[tokio::test]
async fn a_target_that_closes_gets_a_new_connection_for_the_next_request() {
    let mut fixture = InterceptingProxy::start(&[]).await;
    let server = PersistentServer::start(&fixture, |path| match path {
        "/tables/close" => table_with("Connection: close\r\n", path),
        "/tables/old" => path_table(path).replace("HTTP/1.1", "HTTP/1.0"),
        _ => path_table(path),
    });
    let mut client = fixture.client().await;
    for path in [
        "/tables/close",
        "/tables/old",
        "/tables/quiet",
        "/tables/end",
    ] {
        let (head, body) = ask(&mut client, &format!("GET {path}"), "").await;
        assert_eq!((status_of(&head), body.as_str()), (200, path), "{head}");
        assert_eq!(field(&head, "connection"), None);
        let (opened, _) = fixture.events().await;
        assert_eq!(opened.hops.len(), 1);
    }
    let numbers: Vec<_> = server
        .paths()
        .into_iter()
        .map(|(number, _)| number)
        .collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    // This name is judged, resolved and checked like the first one.
    assert_eq!(fixture.proxy.fake_network.queried_names().len(), 4);
}

#[tokio::test]
async fn a_chunked_response_keeps_its_tunnel_and_one_without_an_end_does_not() {
    let fixture = InterceptingProxy::start(&[]).await;
    let server = PersistentServer::start(&fixture, |path| match path {
        "/tables/chunks" => {
            "HTTP/1.1 200 OK\r\nContent-Type: text/csv\r\nTransfer-Encoding: chunked\r\n\r\n\
                             3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
                .to_owned()
        }
        "/tables/endless" => "HTTP/1.1 200 OK\r\nContent-Type: text/csv\r\n\r\nabc".to_owned(),
        _ => path_table(path),
    });
    let mut client = fixture.client().await;
    let (head, body) = ask(&mut client, "GET /tables/chunks", "").await;
    assert_eq!(field(&head, "connection"), None);
    assert!(body.contains("abc") && body.contains("de"), "{body}");
    let (head, body) = ask(&mut client, "GET /tables/endless", "").await;
    assert_eq!(field(&head, "connection"), Some("close"));
    assert_eq!(body, "3\r\nabc\r\n0\r\n\r\n");
    assert_eq!(rest_of(&mut client).await, "");
    assert!(server.paths().iter().all(|(number, _)| *number == 1));
}

#[tokio::test]
async fn responses_without_a_body_keep_their_tunnel() {
    let fixture = InterceptingProxy::start(&[]).await;
    let server = PersistentServer::start(&fixture, |path| match path {
        "/sockets/head" => "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n".to_owned(),
        _ => "HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\nX-Length: 0\r\n\r\n".to_owned(),
    });
    let mut client = fixture.client().await;
    let (head, _) = ask(&mut client, "HEAD /sockets/head", "").await;
    assert_eq!(
        (status_of(&head), field(&head, "content-length")),
        (200, Some("5"))
    );
    let (head, _) = ask(&mut client, "GET /sockets/known", "").await;
    assert_eq!(
        (status_of(&head), field(&head, "etag")),
        (304, Some("\"x\""))
    );
    let (head, _) = ask(&mut client, "HEAD /sockets/head", "").await;
    assert_eq!(status_of(&head), 200);
    assert!(server.paths().iter().all(|(number, _)| *number == 1));
}

#[tokio::test]
async fn an_ambiguous_message_is_the_last_of_its_tunnel() {
    let fixture = InterceptingProxy::start(&[]).await;
    let server = PersistentServer::start(&fixture, path_table);
    let (get, post) = ("GET /tables/last", "POST /tables/last");
    for (line, fields, body) in [
        (get, "Connection: close\r\n", ""),
        (get, "Connection: x, Close\r\n", ""),
        (get, "Upgrade: h2c\r\nConnection: Upgrade\r\n", ""),
        (post, "Expect: 100-continue\r\nContent-Length: 2\r\n", "ab"),
        (
            get,
            "",
            "GET /tables/more HTTP/1.1\r\nHost: files.example.org\r\n\r\n",
        ),
        (
            post,
            "Content-Length: 2\r\n",
            "abGET /tables/more HTTP/1.1\r\nHost: files.example.org\r\n\r\n",
        ),
    ] {
        let mut client = fixture.client().await;
        let _ = ask(&mut client, "GET /tables/first", "").await;
        let request = format!("{line} HTTP/1.1\r\nHost: {TARGET_HOST}\r\n{fields}\r\n{body}");
        client.write_all(request.as_bytes()).await.unwrap();
        let response = rest_of(&mut client).await;
        let lower = response.to_ascii_lowercase();
        assert!(
            lower.contains("\r\nconnection: close\r\n"),
            "{request}: {response}"
        );
        // The final head follows the interim response, where there is one.
        assert!(
            response.ends_with("\r\n\r\n/tables/last"),
            "{request}: {response}"
        );
    }
    assert!(
        server
            .paths()
            .iter()
            .all(|(_, path)| path != "/tables/more")
    );
}

#[tokio::test]
async fn a_response_that_breaks_off_or_floods_ends_the_tunnel() {
    let mut fixture = InterceptingProxy::start(&[]).await;
    let server = PersistentServer::start(&fixture, |path| match path {
        "/tables/short/quiet" => path_table(path).replace("Length: 19", "Length: 30"),
        "/tables/interim" => {
            let interim = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(17);
            format!("{interim}{}", path_table(path))
        }
        "/tables/switch" => "HTTP/1.1 101 Switching Protocols\r\nX-Length: 0\r\n\r\n".to_owned(),
        "/tables/two" => table_with("Content-Length: 1\r\n", path),
        "/tables/large" => table_with("", &"x".repeat(2000)),
        _ => path_table(path),
    });
    for (path, status, code) in [
        ("/tables/short/quiet", 200, "connection_closed"),
        ("/tables/interim", 502, "malformed_response"),
        ("/tables/switch", 502, "malformed_response"),
        ("/tables/two", 502, "malformed_response"),
        ("/tables/large", 403, "too_large"),
    ] {
        let mut client = fixture.client().await;
        let _ = ask(&mut client, "GET /tables/first", "").await;
        let _ = fixture.events().await;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {TARGET_HOST}\r\n\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        let response = rest_of(&mut client).await;
        assert_eq!(status_of(&response), status, "{path}: {response}");
        assert!(response.matches("HTTP/1.1 ").count() <= 1, "{response}");
        let (_, closed) = fixture.events().await;
        assert_eq!(closed.code, code, "{path}");
    }
    // No request was repeated.
    assert_eq!(server.paths().len(), 10);
}

#[tokio::test]
async fn a_tunnel_without_another_request_ends_after_its_idle_time() {
    let mut fixture = InterceptingProxy::start(&[("idle_timeout", "3s")]).await;
    let _server = PersistentServer::start(&fixture, path_table);
    let mut client = fixture.client().await;
    let _ = ask(&mut client, "GET /tables/a", "").await;
    assert_eq!(rest_of(&mut client).await, "");
    let (_, closed) = fixture.events().await;
    // The silence belongs to no request.
    assert_eq!(closed.code, "");
}

#[tokio::test]
async fn every_request_of_a_tunnel_counts_against_its_quota_in_one_place() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.toml");
    let limits = "[role.limits]\nconcurrent = 1\nrequests_per_hour = 2\n";
    std::fs::write(&path, format!("{POLICY_TEXT}{limits}")).unwrap();
    let set = [("/policy_path", path.to_str().unwrap())];
    let mut fixture = InterceptingProxy::start(&set).await;
    let server = PersistentServer::start(&fixture, path_table);
    let mut client = fixture.client().await;
    for path in ["/tables/a", "/tables/b"] {
        let (head, _) = ask(&mut client, &format!("GET {path}"), "").await;
        assert_eq!(status_of(&head), 200, "{head}");
        let _ = fixture.events().await;
    }
    let (head, body) = ask(&mut client, "GET /tables/c", "").await;
    assert_eq!((status_of(&head), body.as_str()), (429, "quota_exceeded\n"));
    let refused = fixture.proxy.event().await;
    assert_eq!(
        (refused.code.as_str(), refused.rule.as_str()),
        ("quota_exceeded", "quota")
    );
    assert!(
        refused
            .decided_by
            .starts_with("sandboxes/requests_per_hour")
    );
    assert_eq!(server.paths().len(), 2);
}

#[tokio::test]
async fn a_process_that_stops_does_not_wait_for_a_tunnel_between_two_requests() {
    // Longer than the test may take: the tunnel must end by itself.
    let mut fixture = InterceptingProxy::start(&[("drain_timeout", "5m")]).await;
    let _server = PersistentServer::start(&fixture, path_table);
    let mut client = fixture.client().await;
    let _ = ask(&mut client, "GET /tables/a", "").await;
    let _ = fixture.events().await;
    let ProxyFixture { service, .. } = fixture.proxy;
    let (_, rest) = tokio::join!(service.running.stop(), rest_of(&mut client));
    assert_eq!(rest, "");
}
