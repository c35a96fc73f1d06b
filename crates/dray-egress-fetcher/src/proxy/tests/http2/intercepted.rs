//! Tunnels into which the proxy looks, inside of streams of HTTP/2: the same judgement as over HTTP/1.1, for each
//! stream.

use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::super::intercepted::InterceptionFiles;
use super::*;

/// Bytes of a stream that wait for the client of these tests.
const PIPE_BYTES: usize = 64 * 1024;
/// The alert of a refused tunnel: `access_denied`, fatal (RFC 8446, section 6.2).
const ACCESS_DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

/// A proxy that speaks HTTP/2 and looks into tunnels, and a connection of a client.
struct InterceptedStreams {
    fixture: CertifiedProxy,
    client: Http2Client,
    files: InterceptionFiles,
}

/// A tunnel as the program inside of it sees it; the tasks move its bytes.
struct StreamTunnel {
    io: DuplexStream,
    moving: JoinSet<()>,
}

/// TLS inside of a tunnel.
struct InnerClient {
    stream: TlsStream<DuplexStream>,
    _moving: JoinSet<()>,
}

impl InterceptedStreams {
    async fn start(set: &[(&str, &str)]) -> Self {
        let files = InterceptionFiles::create();
        let fixture = CertifiedProxy::start(&files.settings(set)).await;
        let client = Http2Client::start(&fixture).await;
        Self {
            fixture,
            client,
            files,
        }
    }

    /// Serves `script` with a certificate for `files.example.org`.
    fn serve(&self, script: ResponseScript) -> ScriptedResponder {
        let responder = ScriptedResponder::always(script);
        let acceptor = self.files.origin.acceptor(TARGET_HOST).unwrap();
        let peer = FakePeer::Tls(acceptor, responder.clone());
        self.fixture
            .proxy
            .fake_network
            .peer(PUBLIC_ADDRESS, 443, peer);
        responder
    }

    /// A tunnel of `session` to `files.example.org`, in a stream of the one connection.
    async fn tunnel(&self, session: &str) -> StreamTunnel {
        let token = self.fixture.proxy.token_of(session, None);
        let authority = format!("{TARGET_HOST}:443");
        let (response, mut up) = self.client.connect(&authority, &token).await;
        let response = response.await.unwrap();
        assert_eq!(response.status(), 200);
        let (near, far) = tokio::io::duplex(PIPE_BYTES);
        let (mut sent, mut down) = tokio::io::split(far);
        let mut moving = JoinSet::new();
        let mut body = response.into_body();
        moving.spawn(async move {
            while let Some(Ok(chunk)) = body.data().await {
                body.flow_control().release_capacity(chunk.len()).unwrap();
                // The program inside may have gone.
                let _ = down.write_all(&chunk).await;
            }
            let _ = down.shutdown().await;
        });
        moving.spawn(async move {
            let mut chunk = vec![0; 4096];
            while let Ok(count @ 1..) = sent.read(&mut chunk).await {
                let bytes = Bytes::copy_from_slice(&chunk[..count]);
                // The stream may have ended.
                let _ = up.send_data(bytes, false);
            }
            let _ = up.send_data(Bytes::new(), true);
        });
        StreamTunnel { io: near, moving }
    }

    /// A client that trusts the authority of the proxy, inside of a new tunnel.
    async fn client(&self, session: &str) -> InnerClient {
        let tunnel = self.tunnel(session).await;
        let connector = TlsConnector::from(tls_config(Some(self.files.anchor.clone())));
        let name = TARGET_HOST.to_owned().try_into().unwrap();
        InnerClient {
            stream: connector.connect(name, tunnel.io).await.unwrap(),
            _moving: tunnel.moving,
        }
    }

    /// Sends one request inside of a new tunnel, and returns everything that comes back.
    async fn exchange(&self, line: &str, fields: &str) -> String {
        let mut client = self.client("chat-1").await;
        client.send(line, fields).await;
        client.rest().await
    }

    async fn event(&mut self) -> v1::EgressAudit {
        self.fixture.proxy.event().await
    }
}

impl InnerClient {
    async fn send(&mut self, line: &str, fields: &str) {
        let request =
            format!("{line} HTTP/1.1\r\nHost: {TARGET_HOST}\r\nConnection: close\r\n{fields}\r\n");
        self.stream.write_all(request.as_bytes()).await.unwrap();
    }

    async fn rest(&mut self) -> String {
        let mut response = Vec::new();
        match self.stream.read_to_end(&mut response).await {
            Err(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => panic!("{error}"),
            _ => String::from_utf8(response).unwrap(),
        }
    }
}

fn csv(text: &str) -> ResponseScript {
    ResponseScript::with_fields(&[("Content-Type", "text/csv")], text)
}

#[tokio::test]
async fn a_request_inside_a_tunnel_of_a_stream_is_judged_by_method_path_type_and_size() {
    let mut streams = InterceptedStreams::start(&[]).await;
    let server = streams.serve(csv("1;2"));
    let response = streams.exchange("GET /tables/a.csv?x=1", "").await;
    assert_eq!((status_of(&response), code_of(&response)), (200, "1;2"));
    let requests = server.received_requests();
    let line = requests[0].head.lines().next();
    assert_eq!(line, Some("GET /tables/a.csv?x=1 HTTP/1.1"));
    for stage in ["opened", "closed"] {
        let event = streams.event().await;
        assert_eq!(
            (event.proxy_stage.as_str(), event.intercepted),
            (stage, true)
        );
        let fields = (event.proxy_protocol.as_str(), event.method.as_str());
        assert_eq!(fields, ("connect", "GET"));
        assert_eq!(event.decided_by, "sandboxes/tables (policy.toml:7)");
    }
    for (line, fields) in [
        ("GET /other", ""),
        ("DELETE /tables/a.csv", ""),
        ("GET /tables/%2e%2e/other", ""),
        ("POST /tables/a", "X-HTTP-Method-Override: DELETE\r\n"),
    ] {
        let response = streams.exchange(line, fields).await;
        let refused = (status_of(&response), code_of(&response));
        assert_eq!(refused, (403, "policy_denied"), "{line}");
        let event = streams.event().await;
        let rule = match fields {
            "" => "policy_rules",
            _ => "method_override",
        };
        let fields = (event.proxy_stage.as_str(), event.rule.as_str());
        assert_eq!(fields, ("refused", rule), "{line}");
    }
    assert_eq!(server.received_requests().len(), 1);
    for (script, code) in [
        (ResponseScript::ok("<html>"), "media_type_not_allowed"),
        (csv(&"x".repeat(1025)), "too_large"),
    ] {
        streams.serve(script);
        let response = streams.exchange("GET /tables/a.csv", "").await;
        assert_eq!((status_of(&response), code_of(&response)), (403, code));
        assert_eq!(streams.event().await.proxy_stage, "opened");
        assert_eq!(streams.event().await.code, code);
    }
}

#[tokio::test]
async fn a_tunnel_of_a_stream_with_another_server_name_is_refused_and_nothing_is_sent() {
    let mut streams = InterceptedStreams::start(&[]).await;
    let mut ends = streams.fixture.proxy.be_server(PUBLIC_ADDRESS, 443);
    for (first, code) in [
        (client_flight("other.example.org"), "server_name_mismatch"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(), "not_tls"),
    ] {
        let mut tunnel = streams.tunnel("chat-1").await;
        tunnel.io.write_all(&first).await.unwrap();
        let mut last = Vec::new();
        tunnel.io.read_to_end(&mut last).await.unwrap();
        assert_eq!(last, ACCESS_DENIED, "{code}");
        let mut received = Vec::new();
        let mut server = ends.recv().await.unwrap();
        server.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, Vec::<u8>::new(), "{code}");
        let event = streams.event().await;
        let fields = (event.proxy_stage.as_str(), event.code.as_str());
        assert_eq!(fields, ("refused", code));
    }
}

#[tokio::test]
async fn a_credential_is_added_inside_a_tunnel_of_a_stream_for_its_tenant_and_never_shown() {
    let credential = serde_json::json!([{
        "name": "files", "host": TARGET_HOST, "header": "authorization", "prefix": "Bearer ",
        "secret": "hunter2", "tenants": ["acme"],
    }])
    .to_string();
    let mut streams = InterceptedStreams::start(&[("/credentials", &credential)]).await;
    let server = streams.serve(csv("1;2"));
    let own = "Authorization: Bearer own\r\nProxy-Authorization: Bearer own\r\n";
    let response = streams.exchange("GET /tables/a", own).await;
    assert_eq!((status_of(&response), code_of(&response)), (200, "1;2"));
    assert!(!response.contains("hunter2"));
    let head = server.received_requests()[0].head.clone();
    assert!(head.contains("Authorization: Bearer hunter2\r\n"), "{head}");
    assert!(!head.contains("own"), "{head}");
    for _ in 0..2 {
        let event = streams.event().await;
        assert_eq!(event.credentials, ["files"]);
        assert!(!format!("{event:?}").contains("hunter2"));
    }
}

#[tokio::test]
async fn tunnels_of_one_connection_are_intercepted_each_for_its_session() {
    let mut streams = InterceptedStreams::start(&[]).await;
    let server = streams.serve(csv("1;2"));
    let (mut one, mut two) = (streams.client("one").await, streams.client("two").await);
    two.send("GET /other", "").await;
    assert_eq!(status_of(&two.rest().await), 403);
    one.send("GET /tables/a", "").await;
    let response = one.rest().await;
    assert_eq!((status_of(&response), code_of(&response)), (200, "1;2"));
    assert_eq!(server.received_requests().len(), 1);
    let mut stages = Vec::new();
    for _ in 0..3 {
        let event = streams.event().await;
        stages.push(format!("{} {}", event.session_id, event.proxy_stage));
    }
    assert_eq!(stages, ["two refused", "one opened", "one closed"]);
}
