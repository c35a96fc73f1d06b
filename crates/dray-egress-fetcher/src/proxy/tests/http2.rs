//! Clients that speak HTTP/2 with the proxy: several requests and tunnels on one connection, each judged separately.

use bytes::Bytes;
use dray_testkit::http::{ResponseScript, ScriptedResponder};
use dray_testkit::tls::Authority;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::header::{AUTHORIZATION, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION};
use http::{Request, Response};
use tokio::task::JoinSet;

mod floods;
mod frames;
mod intercepted;
mod malformed;
mod shared;

use super::certificates::{AGENT_NAME, CertifiedProxy, Pair, client_certificate, pem_of};
use super::*;

/// A connection of a client, and the task that drives it.
pub(super) struct Http2Client {
    sender: SendRequest<Bytes>,
    driving: JoinSet<()>,
}

/// A response with its whole body.
pub(super) struct WholeResponse {
    head: Response<()>,
    pub(super) body: String,
}

async fn whole(response: ResponseFuture) -> Result<WholeResponse, h2::Error> {
    let (parts, body) = response.await?.into_parts();
    let body = read_stream(body).await?;
    Ok(WholeResponse {
        head: Response::from_parts(parts, ()),
        body: String::from_utf8(body).unwrap(),
    })
}

async fn read_stream(mut body: RecvStream) -> Result<Vec<u8>, h2::Error> {
    let mut all = Vec::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        body.flow_control().release_capacity(chunk.len())?;
        all.extend_from_slice(&chunk);
    }
    Ok(all)
}

/// Reads the request that a target received until it ends with `end`, and responds without content.
async fn serve_no_content(server: &mut DuplexStream, end: &[u8]) -> Vec<u8> {
    let mut received = Vec::new();
    while !received.ends_with(end) {
        assert!(server.read_buf(&mut received).await.unwrap() > 0);
    }
    server
        .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
        .await
        .unwrap();
    received
}

impl Http2Client {
    async fn start(fixture: &CertifiedProxy) -> Self {
        Self::start_as(fixture, client_certificate(&fixture.clients, AGENT_NAME)).await
    }

    /// A client with this certificate.
    pub(super) async fn start_as(fixture: &CertifiedProxy, certificate: Pair) -> Self {
        let stream = fixture.connect_with(Some(certificate), &[b"h2"]).await;
        let stream = stream.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (sender, connection) = h2::client::handshake(stream).await.unwrap();
        let mut driving = JoinSet::new();
        driving.spawn(async move {
            // The end of the connection shows at its streams.
            let _ = connection.await;
        });
        Self { sender, driving }
    }

    async fn send(
        &self,
        request: Request<()>,
        is_last: bool,
    ) -> (ResponseFuture, SendStream<Bytes>) {
        let mut sender = self.sender.clone().ready().await.unwrap();
        sender.send_request(request, is_last).unwrap()
    }

    async fn get(&self, url: &str, token: &str) -> Result<WholeResponse, h2::Error> {
        let request = Request::get(url).header(PROXY_AUTHORIZATION, bearer(token));
        let (response, _) = self.send(request.body(()).unwrap(), true).await;
        whole(response).await
    }

    /// A request without a token, or the reason why the connection carries none.
    pub(super) async fn get_certified(&self, url: &str) -> Result<WholeResponse, h2::Error> {
        let mut sender = self.sender.clone().ready().await?;
        let request = Request::get(url).body(()).unwrap();
        let (response, _) = sender.send_request(request, true)?;
        whole(response).await
    }

    /// Waits for the end of the connection.
    pub(super) async fn ended(&mut self) {
        self.driving.join_next().await.unwrap().unwrap();
    }

    async fn connect(&self, authority: &str, token: &str) -> (ResponseFuture, SendStream<Bytes>) {
        let request = Request::connect(authority).header(PROXY_AUTHORIZATION, bearer(token));
        self.send(request.body(()).unwrap(), false).await
    }
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

/// A proxy over TLS with `hello` on port 80, whose policy allows its host for the certificate of these clients.
async fn open_proxy(set: &[(&str, &str)]) -> CertifiedProxy {
    let ports = [("connect_ports", "80,443"), ("plain_ports", "80")];
    CertifiedProxy::start(&[&ports[..], set].concat()).await
}

#[tokio::test]
async fn requests_and_tunnels_of_several_sessions_share_a_connection() {
    let mut fixture = open_proxy(&[]).await;
    let client = Http2Client::start(&fixture).await;
    let (one, two) = (
        fixture.proxy.token_of("one", None),
        fixture.proxy.token_of("two", None),
    );
    let (tunnel, mut up) = client.connect(&format!("{TARGET_HOST}:80"), &one).await;
    let tunnel = tunnel.await.unwrap();
    assert_eq!(tunnel.status(), 200);
    let got = client
        .get(&format!("http://{TARGET_HOST}/"), &two)
        .await
        .unwrap();
    assert_eq!(
        (got.head.status().as_u16(), got.body.as_str()),
        (200, "hello")
    );
    assert!(got.head.headers().get("connection").is_none());
    let request = format!("GET / HTTP/1.1\r\nHost: {TARGET_HOST}\r\n\r\n");
    up.send_data(request.into(), false).unwrap();
    let received = read_stream(tunnel.into_body()).await.unwrap();
    assert!(received.ends_with(b"hello"));
    up.send_data(Bytes::new(), true).unwrap();
    let mut stages = Vec::new();
    for _ in 0..4 {
        let event = fixture.proxy.event().await;
        stages.push(format!(
            "{} {} {}",
            event.session_id, event.proxy_protocol, event.proxy_stage
        ));
    }
    stages.sort();
    let expected = [
        "one connect closed",
        "one connect opened",
        "two http closed",
        "two http opened",
    ];
    assert_eq!(stages, expected);
}

#[tokio::test]
async fn each_request_needs_an_identity_and_nothing_of_another_reaches_the_target() {
    let fixture = open_proxy(&[]).await;
    let client = Http2Client::start(&fixture).await;
    let url = format!("http://{TARGET_HOST}/");
    let token = fixture.proxy.token();
    assert_eq!(client.get(&url, &token).await.unwrap().body, "hello");
    let refused = client.get(&url, "wrong").await.unwrap();
    assert_eq!(refused.head.status(), 407);
    assert!(refused.head.headers().contains_key(PROXY_AUTHENTICATE));
    assert_eq!(refused.body, "token_invalid\n");
    // The next request is served again.
    assert_eq!(client.get(&url, &token).await.unwrap().body, "hello");
    assert_eq!(fixture.proxy.fake_network.dialled().len(), 2);
}

#[tokio::test]
async fn a_client_that_is_never_identified_loses_its_connection() {
    let fixture = open_proxy(&[("head_timeout", "1s")]).await;
    let mut client = Http2Client::start(&fixture).await;
    let refused = client.get(&format!("http://{TARGET_HOST}/"), "wrong").await;
    assert_eq!(refused.unwrap().head.status(), 407);
    client.ended().await;
    assert!(fixture.proxy.fake_network.dialled().is_empty());
}

#[tokio::test]
async fn targets_inside_and_heads_with_two_readings_are_refused() {
    let fixture = open_proxy(&[]).await;
    let client = Http2Client::start(&fixture).await;
    let token = fixture.proxy.token();
    for (authority, status) in [
        ("169.254.169.254:80", 403),
        ("[::1]:80", 403),
        ("127.0.0.1:443", 403),
        (&format!("{TARGET_HOST}:25"), 403),
    ] {
        let (response, _) = client.connect(authority, &token).await;
        assert_eq!(response.await.unwrap().status(), status, "{authority}");
    }
    let inside = client.get("http://169.254.169.254/latest/", &token).await;
    assert_eq!(inside.unwrap().head.status(), 403);
    // The authority and `Host` name different servers.
    let two_hosts = Request::get(format!("http://{TARGET_HOST}/"))
        .header(HOST, "other.example.org")
        .header(PROXY_AUTHORIZATION, bearer(&token));
    let (response, _) = client.send(two_hosts.body(()).unwrap(), true).await;
    assert_eq!(whole(response).await.unwrap().body, "host_mismatch\n");
    // Some servers read this name as that of the field which frames the body.
    let namesake = Request::post(format!("http://{TARGET_HOST}/"))
        .header("transfer_encoding", "chunked")
        .header(PROXY_AUTHORIZATION, bearer(&token));
    let (response, _) = client.send(namesake.body(()).unwrap(), true).await;
    assert_eq!(response.await.unwrap().status(), 400);
    assert!(fixture.proxy.fake_network.dialled().is_empty());
}

#[tokio::test]
async fn bodies_of_both_directions_pass_with_flow_control() {
    let fixture = open_proxy(&[]).await;
    let mut servers = fixture.proxy.be_server(PUBLIC_ADDRESS, 80);
    let client = Http2Client::start(&fixture).await;
    let token = fixture.proxy.token();
    let request = Request::post(format!("http://{TARGET_HOST}/upload"))
        .header(PROXY_AUTHORIZATION, bearer(&token))
        .header(AUTHORIZATION, "Bearer of-the-target")
        .header("cookie", "a=1")
        .header("cookie", "b=2");
    let (response, mut up) = client.send(request.body(()).unwrap(), false).await;
    // More than every window and buffer on the way.
    let body = vec![b'x'; 3 << 20];
    let uploading = async {
        let mut rest = Bytes::from(body.clone());
        while !rest.is_empty() {
            up.reserve_capacity(rest.len());
            let capacity = std::future::poll_fn(|cx| up.poll_capacity(cx)).await;
            let capacity = capacity.unwrap().unwrap().min(rest.len());
            up.send_data(rest.split_to(capacity), false).unwrap();
        }
        up.send_data(Bytes::new(), true).unwrap();
    };
    let serving = async {
        let mut server = servers.recv().await.unwrap();
        let mut received = Vec::new();
        while !received.ends_with(b"\r\n0\r\n\r\n") {
            server.read_buf(&mut received).await.unwrap();
        }
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 3145728\r\n\r\n";
        server.write_all(head).await.unwrap();
        server.write_all(&body).await.unwrap();
        received
    };
    let ((), received, response) = tokio::join!(uploading, serving, whole(response));
    assert_eq!(response.unwrap().body.len(), body.len());
    let text = String::from_utf8_lossy(&received);
    let (head, _) = text.split_once("\r\n\r\n").unwrap();
    let head = head.to_ascii_lowercase();
    assert!(head.starts_with("post /upload http/1.1\r\n"), "{head}");
    assert!(head.contains("cookie: a=1; b=2"), "{head}");
    assert!(
        head.contains("authorization: bearer of-the-target"),
        "{head}"
    );
    assert!(!head.contains("proxy-authorization"), "{head}");
    assert!(received.len() > body.len());
}

#[tokio::test]
async fn a_response_that_breaks_off_resets_its_stream_and_no_other() {
    let fixture = open_proxy(&[]).await;
    let client = Http2Client::start(&fixture).await;
    let token = fixture.proxy.token();
    let url = format!("http://{TARGET_HOST}/");
    let mut servers = fixture.proxy.be_server(PUBLIC_ADDRESS, 80);
    let breaking = async {
        let mut server = servers.recv().await.unwrap();
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc";
        server.write_all(head).await.unwrap();
    };
    let (broken, ()) = tokio::join!(client.get(&url, &token), breaking);
    assert_eq!(broken.err().unwrap().reason(), Some(Reason::INTERNAL_ERROR));
    let serving = async {
        let mut server = servers.recv().await.unwrap();
        let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        server.write_all(response).await.unwrap();
        server
    };
    let (next, _server) = tokio::join!(client.get(&url, &token), serving);
    assert_eq!(next.unwrap().body, "ok");
}

#[tokio::test]
async fn a_tunnel_that_the_client_resets_is_closed_at_its_target() {
    let mut fixture = open_proxy(&[]).await;
    let mut servers = fixture.proxy.be_server(PUBLIC_ADDRESS, 80);
    let client = Http2Client::start(&fixture).await;
    let token = fixture.proxy.token();
    let (tunnel, mut up) = client.connect(&format!("{TARGET_HOST}:80"), &token).await;
    let _body = tunnel.await.unwrap().into_body();
    let mut server = servers.recv().await.unwrap();
    up.send_data(Bytes::from_static(b"first"), false).unwrap();
    let mut first = [0; 5];
    server.read_exact(&mut first).await.unwrap();
    up.send_reset(Reason::CANCEL);
    let mut rest = Vec::new();
    server.read_to_end(&mut rest).await.unwrap();
    assert!(rest.is_empty());
    let (opened, closed) = (fixture.proxy.event().await, fixture.proxy.event().await);
    assert_eq!(opened.operation_id, closed.operation_id);
    assert_eq!(
        (closed.up_bytes, closed.code.as_str()),
        (5, "connection_closed")
    );
}

#[tokio::test]
async fn a_listener_can_speak_http1_alone() {
    let fixture = open_proxy(&[("tls.http1_only", "true")]).await;
    let both = fixture.connect_with(None, &[b"h2", b"http/1.1"]).await;
    assert_eq!(
        both.unwrap().get_ref().1.alpn_protocol(),
        Some(&b"http/1.1"[..])
    );
}

const NODE_CLIENT: &str = "
const http2 = require('http2'), tls = require('tls'), fs = require('fs');
const [url, certificate, key, bundle, token] = process.argv.slice(1);
const read = (path) => fs.readFileSync(path);
// The authority and the certificate of these tests have one name, which OpenSSL takes for a self-signed certificate.
const session = http2.connect(url, { rejectUnauthorized: false, cert: read(certificate), key: read(key) });
const fields = { 'proxy-authorization': 'Bearer ' + token };
const plain = new Promise((resolve, reject) => {
  const request = session.request({ ...fields, ':scheme': 'http', ':authority': 'files.example.org', ':path': '/' });
  let body = '';
  request.setEncoding('utf8').on('data', (text) => { body += text; }).on('end', () => resolve(body)).on('error', reject);
});
const tunnelled = new Promise((resolve, reject) => {
  const tunnel = session.request({ ...fields, ':method': 'CONNECT', ':authority': 'files.example.org:443' });
  tunnel.on('error', reject).on('response', () => {
    const inner = tls.connect({ socket: tunnel, servername: 'files.example.org', ca: read(bundle) });
    inner.write('GET / HTTP/1.1\\r\\nHost: files.example.org\\r\\nConnection: close\\r\\n\\r\\n');
    let body = '';
    inner.setEncoding('utf8').on('data', (text) => { body += text; }).on('error', reject).on('end', () => {
      // Node leaves its side of the stream open.
      tunnel.end();
      resolve(body.split('\\r\\n\\r\\n')[1]);
    });
  });
});
Promise.all([plain, tunnelled]).then((bodies) => { console.log(bodies.join(' ')); session.close(); });
";

#[tokio::test(flavor = "multi_thread")]
async fn http2_of_node_sends_requests_and_tls_through_one_connection() {
    let fixture = open_proxy(&[]).await;
    let authority = Authority::new().unwrap();
    let responder = ScriptedResponder::always(ResponseScript::ok("hello"));
    let acceptor = authority.acceptor(TARGET_HOST).unwrap();
    let network = &fixture.proxy.fake_network;
    network.peer(PUBLIC_ADDRESS, 443, FakePeer::Tls(acceptor, responder));
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (certificate, key) = client_certificate(&fixture.clients, AGENT_NAME);
    let files = [
        write("agent.pem", &pem_of(&certificate)),
        write("agent.key", &key.serialize_pem()),
        write("bundle.pem", &authority.pem()),
    ];
    let output = tokio::process::Command::new("node")
        .args([
            "-e",
            NODE_CLIENT,
            &format!("https://{}", fixture.proxy.address),
        ])
        .args(files)
        .arg(fixture.proxy.token())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout, b"hello hello\n");
}

#[tokio::test]
async fn an_upload_that_the_client_resets_has_no_end_at_the_target() {
    let fixture = open_proxy(&[]).await;
    let mut servers = fixture.proxy.be_server(PUBLIC_ADDRESS, 80);
    let client = Http2Client::start(&fixture).await;
    let token = fixture.proxy.token();
    // hyper would take a body that ends with NO_ERROR for a whole one.
    for reason in [Reason::NO_ERROR, Reason::CANCEL] {
        let request = Request::post(format!("http://{TARGET_HOST}/upload"))
            .header(PROXY_AUTHORIZATION, bearer(&token));
        let (_response, mut up) = client.send(request.body(()).unwrap(), false).await;
        up.send_data(Bytes::from_static(b"a part"), false).unwrap();
        let mut server = servers.recv().await.unwrap();
        let mut received = Vec::new();
        while !received.ends_with(b"a part\r\n") {
            server.read_buf(&mut received).await.unwrap();
        }
        up.send_reset(reason);
        server.read_to_end(&mut received).await.unwrap();
        assert!(
            received.ends_with(b"a part\r\n"),
            "{reason:?}: {received:?}"
        );
    }
}

#[tokio::test]
async fn a_request_that_the_client_resets_before_its_response_ends_at_the_target() {
    // A target that is silent ends its request after this time, too.
    let fixture = open_proxy(&[("idle_timeout", "10m")]).await;
    let mut servers = fixture.proxy.be_server(PUBLIC_ADDRESS, 80);
    let client = Http2Client::start(&fixture).await;
    let token = fixture.proxy.token();
    let request = Request::get(format!("http://{TARGET_HOST}/slow"))
        .header(PROXY_AUTHORIZATION, bearer(&token));
    let (_response, mut stream) = client.send(request.body(()).unwrap(), true).await;
    let mut server = servers.recv().await.unwrap();
    let mut received = Vec::new();
    while !received.ends_with(b"\r\n\r\n") {
        server.read_buf(&mut received).await.unwrap();
    }
    stream.send_reset(Reason::CANCEL);
    server.read_to_end(&mut received).await.unwrap();
}
