//! The gRPC endpoint with TLS and known callers, tested with honest and with hostile clients.

use std::path::PathBuf;

use dray_proto::{Call, v1};
use dray_testkit::tls::{Authority, IssuedCertificate};
use dray_types::{FaultCode, Sha256Digest};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status};

use super::service::{HandlerProbe, TestHost, host, settings};
use crate::{ExitStatus, HostError, fault_of};

/// Certificates and identities of an endpoint, in a temporary directory.
pub(super) struct SecuredFiles {
    pub(super) authority: Authority,
    directory: tempfile::TempDir,
}

pub(super) const ACME_TOKEN: &str = "a-token-of-acme";

impl SecuredFiles {
    pub(super) fn new() -> Self {
        let files = Self {
            authority: Authority::new().unwrap(),
            directory: tempfile::tempdir().unwrap(),
        };
        let server = files.authority.issue(&["localhost"], false).unwrap();
        files.write_server(&server);
        std::fs::write(files.path("ca.crt"), files.authority.pem()).unwrap();
        files.write_identities(ACME_TOKEN, "[\"dray.v1.Egress/Fetch\"]");
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Replaces a file as a whole: a reader finds the former content or this one.
    pub(super) fn replace(&self, name: &str, content: &str) {
        let new = self.path("new");
        std::fs::write(&new, content).unwrap();
        std::fs::rename(new, self.path(name)).unwrap();
    }

    pub(super) fn write_server(&self, certificate: &IssuedCertificate) {
        self.replace("tls.key", &certificate.private_key);
        self.replace("tls.crt", &certificate.certificate);
    }

    /// A caller of `acme` with a token and a name in a certificate, and one of `other` with every scope.
    pub(super) fn write_identities(&self, token: &str, scopes: &str) {
        let text = format!(
            "[[identity]]\nname = \"a\"\ntenant = \"acme\"\ntoken_sha256 = [\"{}\"]\n\
             certificate_names = [\"spiffe://prod/a\"]\nscopes = {scopes}\n\
             [[identity]]\nname = \"b\"\ntenant = \"other\"\ntoken_sha256 = [\"{}\"]\nscopes = [\"*\"]\n",
            Sha256Digest::of(token.as_bytes()).to_hex(),
            Sha256Digest::of(b"a-token-of-other").to_hex(),
        );
        self.replace("identities.toml", &text);
    }

    /// A host whose endpoint has TLS and identifies its callers.
    pub(super) async fn start(&self, extra: &[(&str, &str)]) -> TestHost {
        let [certificate, key, authorities, identities] =
            ["tls.crt", "tls.key", "ca.crt", "identities.toml"]
                .map(|name| self.path(name).display().to_string());
        let mut all = vec![
            ("grpc.certificate", certificate.as_str()),
            ("grpc.private_key", &key),
            ("grpc.client_authorities", &authorities),
            ("grpc.identities", &identities),
            ("grpc.reload_interval", "20ms"),
        ];
        all.extend_from_slice(extra);
        TestHost::new(&all).await
    }

    fn trust(&self) -> ClientTlsConfig {
        ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(self.authority.pem()))
            .domain_name("localhost")
    }

    pub(super) async fn channel(&self, fixture: &TestHost) -> Channel {
        connect(fixture, self.trust()).await.unwrap()
    }

    /// Connects with a client certificate and fetches once: over TLS 1.3 a client learns of the refusal of its
    /// certificate only with the first request.
    async fn with_certificate(
        &self,
        fixture: &TestHost,
        certificate: &IssuedCertificate,
    ) -> Result<String, Status> {
        let identity = Identity::from_pem(&certificate.certificate, &certificate.private_key);
        let channel = connect(fixture, self.trust().identity(identity)).await;
        let channel = channel.map_err(|error| Status::unavailable(error.to_string()))?;
        fetch(channel, "echo:hello", &[]).await
    }
}

async fn connect(
    fixture: &TestHost,
    tls: ClientTlsConfig,
) -> Result<Channel, tonic::transport::Error> {
    let address = fixture.running.addresses().grpc.unwrap();
    let endpoint = Endpoint::from_shared(format!("https://{address}"))?.tls_config(tls)?;
    endpoint.connect().await
}

/// Fetches once with these metadata; returns the name in the reply.
pub(super) async fn fetch(
    channel: Channel,
    url: &str,
    metadata: &[(&'static str, &str)],
) -> Result<String, Status> {
    let mut request = Request::new(v1::FetchRequest {
        url: url.to_owned(),
        ..v1::FetchRequest::default()
    });
    for (name, value) in metadata {
        request
            .metadata_mut()
            .append(*name, MetadataValue::try_from(*value).unwrap());
    }
    let mut client = tonic::client::Grpc::new(channel);
    client
        .ready()
        .await
        .map_err(|error| Status::unavailable(error.to_string()))?;
    let codec = tonic_prost::ProstCodec::<v1::FetchRequest, v1::FetchReply>::default();
    let path = PathAndQuery::from_static(<v1::FetchRequest as Call>::GRPC_PATH);
    client
        .unary(request, path, codec)
        .await
        .map(|reply| reply.into_inner().name)
}

pub(super) fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

#[tokio::test]
async fn a_token_is_enough_and_its_tenant_is_used() {
    let files = SecuredFiles::new();
    let fixture = files.start(&[]).await;
    let channel = files.channel(&fixture).await;
    let authorization = bearer(ACME_TOKEN);
    let tenant = fetch(
        channel.clone(),
        "tenant:",
        &[("authorization", &authorization)],
    )
    .await;
    assert_eq!(tenant.unwrap(), "acme");
    let named = [
        ("authorization", authorization.as_str()),
        ("dray-tenant", "acme"),
    ];
    assert_eq!(
        fetch(channel.clone(), "tenant:", &named).await.unwrap(),
        "acme"
    );
    let other = bearer("a-token-of-other");
    let tenant = fetch(channel, "tenant:", &[("authorization", &other)]).await;
    assert_eq!(tenant.unwrap(), "other");
}

#[tokio::test]
async fn requests_without_valid_credentials_never_reach_the_handler() {
    let files = SecuredFiles::new();
    let fixture = files.start(&[]).await;
    let channel = files.channel(&fixture).await;
    let (right, wrong) = (bearer(ACME_TOKEN), bearer("another-token"));
    for (metadata, detail) in [
        (&[][..], "unauthenticated"),
        (&[("authorization", wrong.as_str())], "unauthenticated"),
        (&[("authorization", "Basic dXNlcg==")], "unauthenticated"),
        (&[("dray-tenant", "acme")], "unauthenticated"),
        (
            &[
                ("authorization", right.as_str()),
                ("authorization", wrong.as_str()),
            ],
            "unauthenticated",
        ),
    ] {
        let status = fetch(channel.clone(), "echo:x", metadata)
            .await
            .unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated, "{metadata:?}");
        let fault = fault_of(&status).unwrap();
        assert_eq!(
            (fault.code, fault.detail.as_str()),
            (FaultCode::Denied, detail)
        );
        assert!(!fault.message.is_empty() && !fault.advice.is_empty());
    }
    let foreign = [("authorization", right.as_str()), ("dray-tenant", "other")];
    let status = fetch(channel, "echo:x", &foreign).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    assert_eq!(fault_of(&status).unwrap().detail, "tenant_mismatch");
    assert_eq!(
        fixture
            .probe
            .entered
            .load(std::sync::atomic::Ordering::SeqCst),
        0
    );
    let refused = |reason: &str| {
        fixture.counter("dray_answer_refused_total", &format!("reason=\"{reason}\""))
    };
    assert_eq!(
        (refused("unauthenticated"), refused("forbidden")),
        (Some(5.0), Some(1.0))
    );
}

#[tokio::test]
async fn a_scope_covers_its_methods_and_no_others() {
    let files = SecuredFiles::new();
    files.write_identities(
        ACME_TOKEN,
        "[\"dray.v1.Sandboxes\", \"dray.v1.Egress/Explain\"]",
    );
    let fixture = files.start(&[]).await;
    let channel = files.channel(&fixture).await;
    let authorization = bearer(ACME_TOKEN);
    let status = fetch(channel, "echo:x", &[("authorization", &authorization)])
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    let fault = fault_of(&status).unwrap();
    assert_eq!(fault.detail, "missing_scope");
    assert_eq!(
        fault.message,
        "The identity `a` may not call `dray.v1.Egress/Fetch`."
    );
}

#[tokio::test]
async fn a_client_certificate_is_known_by_its_names() {
    let files = SecuredFiles::new();
    let fixture = files.start(&[]).await;
    let known = files.authority.issue(&["spiffe://prod/a"], false).unwrap();
    assert_eq!(
        files.with_certificate(&fixture, &known).await.unwrap(),
        "hello"
    );
    let unlisted = files.authority.issue(&["spiffe://prod/c"], false).unwrap();
    let status = files
        .with_certificate(&fixture, &unlisted)
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
}

#[tokio::test]
async fn expired_and_foreign_client_certificates_are_refused_in_the_handshake() {
    let files = SecuredFiles::new();
    let fixture = files
        .start(&[("grpc.require_client_certificate", "true")])
        .await;
    let expired = files.authority.issue(&["spiffe://prod/a"], true).unwrap();
    let foreign = Authority::new()
        .unwrap()
        .issue(&["spiffe://prod/a"], false)
        .unwrap();
    for certificate in [expired, foreign] {
        let status = files
            .with_certificate(&fixture, &certificate)
            .await
            .unwrap_err();
        assert_ne!(
            status.code(),
            Code::Unauthenticated,
            "no request was read: {status}"
        );
    }
    // If a certificate is required, a token alone is not accepted.
    let authorization = bearer(ACME_TOKEN);
    let refused = match connect(&fixture, files.trust()).await {
        Ok(channel) => fetch(channel, "echo:x", &[("authorization", &authorization)])
            .await
            .is_err(),
        Err(_) => true,
    };
    assert!(refused);
    assert_eq!(
        fixture
            .probe
            .entered
            .load(std::sync::atomic::Ordering::SeqCst),
        0
    );
    let known = files.authority.issue(&["spiffe://prod/a"], false).unwrap();
    assert_eq!(
        files.with_certificate(&fixture, &known).await.unwrap(),
        "hello"
    );
}

#[expect(
    clippy::disallowed_methods,
    reason = "a hostile client of this test, on loopback"
)]
pub(super) async fn raw_connection(fixture: &TestHost) -> TcpStream {
    TcpStream::connect(fixture.running.addresses().grpc.unwrap())
        .await
        .unwrap()
}

#[tokio::test]
async fn plaintext_on_the_tls_port_is_closed_without_a_response() {
    let files = SecuredFiles::new();
    let fixture = files.start(&[]).await;
    let mut stream = raw_connection(&fixture).await;
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .await
        .unwrap();
    let mut received = Vec::new();
    // Either an alert of TLS and the end, or a reset.
    let _ = stream.read_to_end(&mut received).await;
    assert!(received.len() < 16, "{received:?}");
    let address = fixture.running.addresses().grpc.unwrap();
    let plain = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let refused = match plain.connect().await {
        Ok(channel) => fetch(channel, "echo:x", &[]).await.is_err(),
        Err(_) => true,
    };
    assert!(refused);
}

#[tokio::test]
async fn a_stalled_handshake_is_ended_and_delays_no_other_client() {
    let files = SecuredFiles::new();
    let fixture = files.start(&[("grpc.handshake_timeout", "5s")]).await;
    let mut stalled = Vec::new();
    for _ in 0..20 {
        stalled.push(raw_connection(&fixture).await);
    }
    // The first bytes of a handshake record that never ends.
    stalled[0]
        .write_all(&[0x16, 0x03, 0x01, 0x02, 0x00])
        .await
        .unwrap();
    let authorization = bearer(ACME_TOKEN);
    let channel = files.channel(&fixture).await;
    let served = fetch(channel, "echo:hello", &[("authorization", &authorization)]).await;
    assert_eq!(served.unwrap(), "hello");
    for mut stream in stalled {
        let mut received = Vec::new();
        // Ends only because the server closes it.
        let _ = stream.read_to_end(&mut received).await;
    }
}

#[tokio::test]
async fn huge_metadata_is_refused_and_the_next_request_is_served() {
    let files = SecuredFiles::new();
    let fixture = files.start(&[]).await;
    let channel = files.channel(&fixture).await;
    let authorization = bearer(ACME_TOKEN);
    let huge = "x".repeat(200_000);
    let metadata = [
        ("authorization", authorization.as_str()),
        ("x-padding", &huge),
    ];
    assert!(fetch(channel.clone(), "echo:x", &metadata).await.is_err());
    let long_token = bearer(&huge);
    assert!(
        fetch(channel.clone(), "echo:x", &[("authorization", &long_token)])
            .await
            .is_err()
    );
    assert_eq!(
        fixture
            .probe
            .entered
            .load(std::sync::atomic::Ordering::SeqCst),
        0
    );
    let served = fetch(channel, "echo:hello", &[("authorization", &authorization)]).await;
    assert_eq!(served.unwrap(), "hello");
}

#[tokio::test]
async fn changed_files_are_used_without_a_restart() {
    let files = SecuredFiles::new();
    let fixture = files.start(&[]).await;
    let channel = files.channel(&fixture).await;
    let (old, new) = (bearer(ACME_TOKEN), bearer("the-next-token"));
    let works = async |authorization: &str| {
        fetch(
            channel.clone(),
            "echo:x",
            &[("authorization", authorization)],
        )
        .await
        .is_ok()
    };
    assert!(works(&old).await && !works(&new).await);
    // An invalid file is ignored.
    files.replace("identities.toml", "[[identity]]\n");
    let next = Authority::new().unwrap();
    files.write_server(&next.issue(&["localhost"], false).unwrap());
    assert!(works(&old).await);
    files.write_identities("the-next-token", "[\"*\"]");
    dray_testkit::eventually("the new token", async || works(&new).await.then_some(())).await;
    assert!(!works(&old).await, "on a connection from before, too");
    // New connections get the new certificate.
    let trust = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(next.pem()))
        .domain_name("localhost");
    assert!(connect(&fixture, trust).await.is_ok());
    assert!(connect(&fixture, files.trust()).await.is_err());
}

#[tokio::test]
async fn health_needs_no_credentials_and_reflection_does() {
    use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;

    let files = SecuredFiles::new();
    let fixture = files.start(&[]).await;
    let channel = files.channel(&fixture).await;
    let mut health = HealthClient::new(channel.clone());
    assert!(health.check(HealthCheckRequest::default()).await.is_ok());
    let ask = async |authorization: Option<String>| {
        let mut request = Request::new(tokio_stream::empty());
        if let Some(authorization) = authorization {
            request
                .metadata_mut()
                .insert("authorization", authorization.parse().unwrap());
        }
        ServerReflectionClient::new(channel.clone())
            .server_reflection_info(request)
            .await
    };
    assert_eq!(ask(None).await.unwrap_err().code(), Code::Unauthenticated);
    assert!(ask(Some(bearer(ACME_TOKEN))).await.is_ok());
}

#[tokio::test]
async fn a_host_does_not_start_exposed_or_with_files_that_cannot_be_used() {
    let directory = tempfile::tempdir().unwrap();
    let files = SecuredFiles::new();
    let try_start = async |extra: &[(&str, &str)]| {
        let mut settings = settings(&directory);
        for (key, value) in extra {
            settings = settings.set(*key, *value);
        }
        host(settings, &HandlerProbe::default()).start().await
    };
    let exposed = try_start(&[("grpc.listen", "0.0.0.0:0")])
        .await
        .unwrap_err();
    assert!(matches!(exposed, HostError::Config(_)), "{exposed}");
    assert!(exposed.to_string().contains("grpc.listen"), "{exposed}");
    let identities = files.path("identities.toml").display().to_string();
    std::fs::write(
        &identities,
        "[[identity]]\nname = \"a\"\ntoken = \"s3cret\"\n",
    )
    .unwrap();
    let broken = try_start(&[("grpc.identities", &identities)])
        .await
        .unwrap_err();
    assert_eq!(broken.exit_status(), ExitStatus::Config);
    let shown = crate::host::ErrorChain(&broken).to_string();
    assert!(
        shown.contains("grpc.identities") && !shown.contains("s3cret"),
        "{shown}"
    );
}
