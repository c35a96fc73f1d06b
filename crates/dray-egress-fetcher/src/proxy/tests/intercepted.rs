//! Tunnels into which the proxy looks: what is judged inside, what reaches the target, and what does not.

use std::fs;
use std::io::ErrorKind;

use dray_testkit::http::{ResponseScript, ScriptedResponder};
use dray_testkit::tls::{Authority, TlsOffer};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
};
use rustls_pki_types::CertificateDer;
use tokio::process::Command;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;

pub(super) const POLICY_TEXT: &str = r#"
[[intercept]]
name = "tables"
hosts = ["files.example.org"]
[[role]]
name = "sandboxes"
[[role.rule]]
name = "tables"
outcome = "allow"
hosts = ["files.example.org"]
methods = ["GET", "POST"]
paths = ["/tables/**"]
media_types = ["text/csv"]
max_bytes = "1KiB"
[[role.rule]]
name = "other"
outcome = "allow"
hosts = ["other.example.org"]
[[role.rule]]
name = "sockets"
outcome = "allow"
hosts = ["files.example.org"]
paths = ["/sockets/**"]
max_bytes = "1KiB"
"#;

/// A proxy with an authority of its own, and a server with TLS behind it.
pub(super) struct InterceptingProxy {
    pub(super) proxy: ProxyFixture,
    /// Trusted by the proxy for servers.
    pub(super) origin: Authority,
    /// Trusted by clients for the proxy.
    pub(super) anchor: CertificateDer<'static>,
    directory: tempfile::TempDir,
}

/// An authority: its certificate in both forms, and its key.
pub(in crate::proxy) fn new_authority() -> (String, CertificateDer<'static>, String) {
    let mut params = CertificateParams::default();
    let name = &mut params.distinguished_name;
    name.push(DnType::CommonName, "proxy of the tests");
    name.push(DnType::OrganizationName, "tests");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = issuer.key().serialize_pem();
    (issuer.pem(), issuer.der().clone(), key)
}

/// The files that a proxy needs to look into tunnels, and the authorities behind them.
pub(super) struct InterceptionFiles {
    /// The proxy trusts it for servers.
    pub(super) origin: Authority,
    /// Clients trust it for the proxy.
    pub(super) anchor: CertificateDer<'static>,
    pub(super) directory: tempfile::TempDir,
    paths: [(&'static str, String); 4],
}

impl InterceptionFiles {
    pub(super) fn create() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let (certificate, anchor, key) = new_authority();
        let origin = Authority::new().unwrap();
        let paths = [
            ("/policy_path", write("policy.toml", POLICY_TEXT)),
            ("/ca_bundle", write("origin.pem", &origin.pem())),
            ("interception.certificate", write("ca.pem", &certificate)),
            ("interception.key_file", write("ca.key", &key)),
        ];
        Self {
            origin,
            anchor,
            directory,
            paths,
        }
    }

    /// The settings that name the files, and those of `set`.
    pub(super) fn settings<'a>(&'a self, set: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let paths = self.paths.iter().map(|(name, path)| (*name, path.as_str()));
        paths.chain(set.iter().copied()).collect()
    }
}

impl InterceptingProxy {
    /// Starts a proxy with the settings `set`, besides those that interception needs.
    pub(super) async fn start(set: &[(&str, &str)]) -> Self {
        let files = InterceptionFiles::create();
        let proxy = ProxyFixture::start(&files.settings(set)).await;
        proxy
            .fake_network
            .name("other.example.org", &[PUBLIC_ADDRESS]);
        Self {
            proxy,
            origin: files.origin,
            anchor: files.anchor,
            directory: files.directory,
        }
    }

    /// Serves `script` with a certificate for `files.example.org`.
    pub(super) fn serve(&self, script: ResponseScript) -> ScriptedResponder {
        self.serve_as(TARGET_HOST, TlsOffer::default(), script)
    }

    fn serve_as(&self, name: &str, offer: TlsOffer, script: ResponseScript) -> ScriptedResponder {
        let responder = ScriptedResponder::always(script);
        let acceptor = self.origin.acceptor_with(name, offer).unwrap();
        let peer = FakePeer::Tls(acceptor, responder.clone());
        self.proxy.fake_network.peer(PUBLIC_ADDRESS, 443, peer);
        responder
    }

    /// A client that trusts the authority of the proxy, inside a tunnel to `files.example.org`.
    pub(super) async fn client(&self) -> TlsStream<TcpStream> {
        let (client, head) = self.proxy.tunnel(&format!("{TARGET_HOST}:443")).await;
        assert_eq!(status_of(&head), 200, "{head}");
        let connector = TlsConnector::from(tls_config(Some(self.anchor.clone())));
        let name = TARGET_HOST.to_owned().try_into().unwrap();
        connector.connect(name, client).await.unwrap()
    }

    /// Sends `request` inside a tunnel, as the last one, and returns everything that comes back.
    pub(super) async fn exchange(&self, request: &str) -> String {
        let mut client = self.client().await;
        let request = if request.contains("\r\nConnection:") {
            request.to_owned()
        } else {
            request.replacen("\r\n", "\r\nConnection: close\r\n", 1)
        };
        client.write_all(request.as_bytes()).await.unwrap();
        let mut response = Vec::new();
        match client.read_to_end(&mut response).await {
            Err(error) if error.kind() != ErrorKind::UnexpectedEof => panic!("{error}"),
            _ => String::from_utf8(response).unwrap(),
        }
    }

    async fn get(&self, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {TARGET_HOST}\r\n\r\n");
        self.exchange(&request).await
    }

    /// The events of one connection that was opened.
    pub(super) async fn events(&mut self) -> (v1::EgressAudit, v1::EgressAudit) {
        (self.proxy.event().await, self.proxy.event().await)
    }
}

fn table() -> ResponseScript {
    ResponseScript::with_fields(&[("Content-Type", "text/csv")], "1;2")
}

#[tokio::test]
async fn a_request_inside_a_tunnel_is_judged_by_method_path_and_type_and_audited() {
    let mut fixture = InterceptingProxy::start(&[]).await;
    let server = fixture.serve(table());
    let response = fixture.get("/tables/a.csv?x=1").await;
    assert_eq!((status_of(&response), code_of(&response)), (200, "1;2"));
    let requests = server.received_requests();
    assert_eq!(
        requests[0].head.lines().next(),
        Some("GET /tables/a.csv?x=1 HTTP/1.1")
    );
    let (opened, closed) = fixture.events().await;
    for event in [&opened, &closed] {
        assert!(event.intercepted);
        let fields = (event.proxy_protocol.as_str(), event.method.as_str());
        assert_eq!(fields, ("connect", "GET"));
        assert_eq!(event.decided_by, "sandboxes/tables (policy.toml:7)");
        assert_eq!(event.server_name, TARGET_HOST);
        assert_eq!(event.hops.len(), 1);
    }
    assert_eq!(
        (opened.proxy_stage.as_str(), opened.up_bytes),
        ("opened", 0)
    );
    assert_eq!(closed.hops[0].tls_version, "TLSv1.3");
    assert_eq!((closed.code.as_str(), closed.http_status), ("", 200));
    assert_ne!(opened.url_path_hash, "");
    for (line, code) in [
        ("GET /other", "policy_denied"),
        ("DELETE /tables/a.csv", "policy_denied"),
        ("GET /tables/%2e%2e/other", "policy_denied"),
        ("GET /tables%2fa.csv", "policy_denied"),
        ("POST /tables/override", "policy_denied"),
    ] {
        let (field, rule) = match line {
            "POST /tables/override" => ("X-HTTP-Method-Override: DELETE\r\n", "method_override"),
            _ => ("", "policy_rules"),
        };
        let request = format!("{line} HTTP/1.1\r\nHost: {TARGET_HOST}\r\n{field}\r\n");
        let response = fixture.exchange(&request).await;
        assert_eq!(
            (status_of(&response), code_of(&response)),
            (403, code),
            "{line}"
        );
        let event = fixture.proxy.event().await;
        let fields = (event.proxy_stage.as_str(), event.rule.as_str());
        assert_eq!(fields, ("refused", rule), "{line}");
        assert!(event.intercepted);
    }
    assert_eq!(server.received_requests().len(), 1);
    fixture.serve(ResponseScript::ok("<html>"));
    let response = fixture.get("/tables/a.csv").await;
    let fields = (status_of(&response), code_of(&response));
    assert_eq!(fields, (403, "media_type_not_allowed"));
    let (_, closed) = fixture.events().await;
    assert_eq!(closed.code, "media_type_not_allowed");
}

#[tokio::test]
async fn the_limit_of_a_rule_counts_the_content_of_a_response() {
    let mut fixture = InterceptingProxy::start(&[]).await;
    let csv = |bytes: usize| {
        ResponseScript::with_fields(&[("Content-Type", "text/csv")], "x".repeat(bytes))
    };
    // Exactly the limit: neither the head counts, nor TLS, nor the framing of chunks.
    let text = "x".repeat(1024);
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/csv\r\n";
    let chunks = format!("200\r\n{0}\r\n200\r\n{0}\r\n0\r\n\r\n", &text[..512]);
    for script in [
        csv(1024),
        ResponseScript::raw(format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunks}")),
        ResponseScript::raw(format!("{head}\r\n{text}")),
    ] {
        fixture.serve(script);
        let response = fixture.get("/tables/a.csv").await;
        assert!(response.contains(&text[..512]), "{response}");
        let (_, closed) = fixture.events().await;
        assert_eq!(closed.code, "");
        assert!(closed.down_bytes > 1024, "{closed:?}");
    }
    // A length that the head says is refused before a byte of the body; any other one is cut.
    let text = "x".repeat(2000);
    let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n7d0\r\n{text}\r\n0\r\n\r\n");
    for (script, status) in [(csv(2000), 403), (ResponseScript::raw(chunked), 200)] {
        fixture.serve(script);
        let response = fixture.get("/tables/a.csv").await;
        assert_eq!(status_of(&response), status, "{response}");
        // The chunks of the client have other sizes.
        assert!(
            code_of(&response).matches('x').count() <= 1024,
            "{response}"
        );
        assert!(!response.ends_with("\r\n0\r\n\r\n"), "it is not complete");
        let (_, closed) = fixture.events().await;
        assert_eq!(closed.code, "too_large");
    }
}

#[tokio::test]
async fn a_credential_goes_to_its_host_inside_the_tunnel_and_is_never_shown() {
    let credential = serde_json::json!([{
        "name": "files", "host": TARGET_HOST, "header": "authorization", "prefix": "Bearer ",
        "secret": "hunter2", "tenants": ["acme"],
    }])
    .to_string();
    let mut fixture = InterceptingProxy::start(&[("/credentials", &credential)]).await;
    let redirect = "HTTP/1.1 302 Found\r\nLocation: https://other.example.org/\r\nContent-Type: text/csv\r\n\
                    Content-Length: 0\r\n\r\n";
    let server = fixture.serve(ResponseScript::raw(redirect));
    let own = "Authorization: Bearer own\r\nProxy-Authorization: Bearer own\r\n";
    let request = format!("GET /tables/a HTTP/1.1\r\nHost: {TARGET_HOST}\r\n{own}\r\n");
    let response = fixture.exchange(&request).await;
    // The redirect is the client's to follow, in a separate tunnel, without the credential.
    assert_eq!(status_of(&response), 302, "{response}");
    assert!(!response.contains("hunter2"));
    let head = server.received_requests()[0].head.clone();
    assert!(head.contains("Authorization: Bearer hunter2\r\n"), "{head}");
    assert!(!head.contains("own"), "{head}");
    let (opened, closed) = fixture.events().await;
    for event in [opened, closed] {
        assert_eq!(event.credentials, ["files"]);
        assert!(!format!("{event:?}").contains("hunter2"));
    }
    // A tunnel that is not intercepted is passed as it is.
    let mut ends = fixture.proxy.be_server(PUBLIC_ADDRESS, 443);
    let (mut client, _) = fixture.proxy.tunnel("other.example.org:443").await;
    let flight = client_flight("other.example.org");
    client.write_all(&flight).await.unwrap();
    let mut received = vec![0; flight.len()];
    ends.recv()
        .await
        .unwrap()
        .read_exact(&mut received)
        .await
        .unwrap();
    assert!(received == flight);
    assert!(!fixture.proxy.event().await.intercepted);
}

/// Requests with several readings, or to another target, each with another request behind it, and the code that refuses
/// it.
pub(super) fn smuggling_cases() -> Vec<(String, &'static str)> {
    let smuggled = "GET /other HTTP/1.1\r\nHost: other.example.org\r\n\r\n";
    let host = format!("Host: {TARGET_HOST}");
    let (length, chunked) = ("Content-Length: 5", "Transfer-Encoding: chunked");
    let (malformed, mismatch) = ("malformed_request", "host_mismatch");
    let (post, get) = ("POST /tables/a", "GET /tables/a");
    let other = "Host: other.example.org";
    let cases = [
        (post, &[&host, length, chunked][..], malformed),
        (post, &[&host, chunked, length], malformed),
        (post, &[&host, "Transfer-Encoding: xchunked"], malformed),
        (post, &[&host, length, "Content-Length: 2"], malformed),
        (post, &[&host, "X: y\r\n Content-Length: 5"], malformed),
        (get, &[other], mismatch),
        (get, &[&host, other], malformed),
        (get, &[], malformed),
        ("GET https://other.example.org/", &[&host], mismatch),
        ("GET http://files.example.org/tables/a", &[&host], mismatch),
        ("GET https://127.0.0.1/", &[&host], mismatch),
        ("CONNECT other.example.org:443", &[&host], malformed),
        ("OPTIONS *", &[&host], malformed),
        ("GET tables/a", &[&host], malformed),
    ];
    let request = |(line, fields, code): (&str, &[&str], _)| {
        let fields = [fields, &[""]].concat().join("\r\n");
        let request = format!("{line} HTTP/1.1\r\n{fields}\r\n0\r\n\r\n{smuggled}");
        (request, code)
    };
    cases.map(request).into()
}

#[tokio::test]
async fn nothing_is_smuggled_through_a_tunnel_to_this_host_or_another() {
    let mut fixture = InterceptingProxy::start(&[]).await;
    let server = fixture.serve(table());
    for (request, code) in smuggling_cases() {
        let response = fixture.exchange(&request).await;
        let found = (status_of(&response), code_of(&response));
        assert_eq!(found.1, code, "{request}: {response}");
        assert!((400..=501).contains(&found.0), "{response}");
        let event = fixture.proxy.event().await;
        let fields = (event.proxy_stage.as_str(), event.code.as_str());
        assert_eq!(fields, ("refused", code), "{request}");
    }
    assert_eq!(server.received_requests().len(), 0);
}

#[tokio::test]
async fn a_second_request_in_the_same_tunnel_reaches_nothing() {
    let fixture = InterceptingProxy::start(&[]).await;
    let server = fixture.serve(table());
    let smuggled = "GET /other HTTP/1.1\r\nHost: other.example.org\r\n\r\n";
    let own = format!("Host: {TARGET_HOST}\r\n");
    let first = format!("GET /tables/a HTTP/1.1\r\n{own}\r\n");
    for second in [smuggled.to_owned(), first.clone()] {
        let response = fixture.exchange(&format!("{first}{second}")).await;
        assert_eq!(response.matches("HTTP/1.1 ").count(), 1, "{response}");
        assert!(
            response
                .to_ascii_lowercase()
                .contains("\r\nconnection: close\r\n")
        );
    }
    let heads: Vec<String> = server
        .received_requests()
        .into_iter()
        .map(|request| request.head)
        .collect();
    assert_eq!(heads.len(), 2);
    for head in heads {
        assert!(!head.contains("other") && head.contains(&own), "{head}");
    }
}

#[tokio::test]
async fn t_5_a_target_that_cannot_prove_its_name_gets_no_request() {
    let mut fixture = InterceptingProxy::start(&[]).await;
    let expired = TlsOffer {
        expired: true,
        ..TlsOffer::default()
    };
    let foreign = Authority::new().unwrap().acceptor(TARGET_HOST).unwrap();
    let script = ScriptedResponder::always(table());
    for (peer, code) in [
        (
            fixture.origin.acceptor("other.example.org").unwrap(),
            "tls_error",
        ),
        (
            fixture.origin.acceptor_with(TARGET_HOST, expired).unwrap(),
            "tls_error",
        ),
        (foreign, "tls_error"),
    ] {
        let peer = FakePeer::Tls(peer, script.clone());
        fixture.proxy.fake_network.peer(PUBLIC_ADDRESS, 443, peer);
        let response = fixture.get("/tables/a").await;
        assert_eq!((status_of(&response), code_of(&response)), (502, code));
        let (_, refused) = fixture.events().await;
        let fields = (refused.proxy_stage.as_str(), refused.phase.as_str());
        assert_eq!(fields, ("refused", "tls"));
    }
    let mut ends = fixture.proxy.be_server(PUBLIC_ADDRESS, 443);
    let (response, received) = tokio::join!(fixture.get("/tables/a"), async {
        let mut server = ends.recv().await.unwrap();
        server.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        let mut received = Vec::new();
        let _ = server.read_to_end(&mut received).await;
        String::from_utf8_lossy(&received).into_owned()
    });
    assert_eq!(status_of(&response), 502, "{response}");
    assert!(!received.contains("/tables"));
    assert!(script.received_requests().is_empty());
}

/// A client that checks certificates as strictly as Python does from 3.13 on, with two requests.
const STRICT_CLIENT: &str = "
import json, ssl, sys, urllib.request
proxy, bundle = sys.argv[1:]
context = ssl.create_default_context(cafile=bundle)
context.verify_flags |= ssl.VERIFY_X509_STRICT
handlers = [urllib.request.ProxyHandler({'https': proxy}), urllib.request.HTTPSHandler(context=context)]
opener = urllib.request.build_opener(*handlers)
url = 'https://files.example.org/tables/a.csv'
print(json.dumps([opener.open(url, timeout=60).read().decode() for _ in range(2)]))
";

#[tokio::test(flavor = "multi_thread")]
async fn curl_and_a_strict_python_trust_the_certificates_of_intercepted_tunnels() {
    let fixture = InterceptingProxy::start(&[]).await;
    let server = fixture.serve(table());
    let token = fixture.proxy.token();
    let proxy_url = format!("http://sandbox:{token}@{}", fixture.proxy.address);
    let bundle = fixture.directory.path().join("ca.pem");
    let mut python = Command::new(dray_testkit::python::interpreter("httpx"));
    python
        .args(["-c", STRICT_CLIENT, &proxy_url])
        .arg(&bundle)
        .kill_on_drop(true);
    let report = dray_testkit::python::run_json(&mut python).await;
    assert_eq!(report, serde_json::json!(["1;2", "1;2"]));
    for version in ["--http1.1", "--http1.0"] {
        let curl = Command::new("curl")
            .args(["--silent", "--show-error", "--fail", "--max-time", "60"])
            .args([version, "--noproxy", "", "--proxy", &proxy_url, "--cacert"])
            .arg(&bundle)
            .arg("https://files.example.org/tables/[a-b].csv")
            .env_clear()
            .output()
            .await
            .unwrap();
        let error = String::from_utf8_lossy(&curl.stderr);
        assert_eq!(
            String::from_utf8_lossy(&curl.stdout),
            "1;21;2",
            "{version} {error}"
        );
    }
    assert_eq!(server.received_requests().len(), 6);
    assert_eq!(fixture.proxy.fake_network.dialled().len(), 6);
}

#[tokio::test]
async fn without_an_authority_a_tunnel_to_be_intercepted_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.toml");
    fs::write(&path, POLICY_TEXT).unwrap();
    let set = [("/policy_path", path.to_str().unwrap())];
    let mut proxy = ProxyFixture::start(&set).await;
    let (_, head) = proxy.tunnel(&format!("{TARGET_HOST}:443")).await;
    assert_eq!(status_of(&head), 500);
    let event = proxy.event().await;
    assert_eq!(event.code, "interception_unavailable");
    assert_eq!(
        (event.url_host.as_str(), event.intercepted),
        (TARGET_HOST, false)
    );
    assert_eq!(proxy.fake_network.dialled(), Vec::<String>::new());
}
