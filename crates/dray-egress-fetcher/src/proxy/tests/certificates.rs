//! Clients that come over TLS: certificates as their identity, tokens beside them, and roles by certificate.

use std::fs;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType, date_time_ymd,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;

pub(super) const PROXY_NAME: &str = "proxy.example.org";
pub(super) const AGENT_NAME: &str = "spiffe://example.org/agents/one";
const OTHER_NAME: &str = "spiffe://example.org/others/two";
const POLICY_TEXT: &str = "default = \"deny\"\n[[role]]\nname = \"agents\"\n\
    certificates = [\"spiffe://example.org/agents/*\"]\n[[role.rule]]\nname = \"files\"\n\
    outcome = \"allow\"\nhosts = [\"files.example.org\"]\n";

pub(super) type Issuer = CertifiedIssuer<'static, KeyPair>;

/// A certificate with its key.
pub(super) type Pair = (CertificateDer<'static>, KeyPair);

pub(super) fn new_issuer() -> Issuer {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

pub(super) fn issue(
    issuer: &Issuer,
    name: SanType,
    usage: ExtendedKeyUsagePurpose,
    until_year: i32,
) -> Pair {
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![name];
    params.extended_key_usages = vec![usage];
    params.not_after = date_time_ymd(until_year, 1, 1);
    let key = KeyPair::generate().unwrap();
    (params.signed_by(&key, issuer).unwrap().der().clone(), key)
}

pub(super) fn client_certificate(issuer: &Issuer, uri: &str) -> Pair {
    let name = SanType::URI(uri.try_into().unwrap());
    issue(issuer, name, ExtendedKeyUsagePurpose::ClientAuth, 2100)
}

/// A proxy whose listener speaks TLS, and the authority of its clients.
pub(super) struct CertifiedProxy {
    pub(super) proxy: ProxyFixture,
    /// Signs the certificate of the proxy.
    pub(super) anchor: CertificateDer<'static>,
    /// Signs those of clients.
    pub(super) clients: Issuer,
    _directory: tempfile::TempDir,
}

impl CertifiedProxy {
    /// Certificates below `agents` belong to tenant `acme`. `set` are further fields.
    pub(super) async fn start(set: &[(&str, &str)]) -> Self {
        Self::start_for(new_issuer(), set).await
    }

    /// The same, with this authority of clients.
    pub(super) async fn start_for(clients: Issuer, set: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let own = new_issuer();
        let name = SanType::DnsName(PROXY_NAME.try_into().unwrap());
        let (certificate, key) = issue(&own, name, ExtendedKeyUsagePurpose::ServerAuth, 2100);
        let certificate = pem_of(&certificate);
        let (certificate, key) = (
            write("proxy.pem", &certificate),
            write("proxy.key", &key.serialize_pem()),
        );
        let authorities = write("clients.pem", &clients.pem());
        let policy = write("policy.toml", POLICY_TEXT);
        let entries = serde_json::json!([{
            "names": ["spiffe://example.org/agents/*"], "tenant": "acme", "app": "analyst",
        }]);
        let entries = entries.to_string();
        let fields = [
            ("/policy_path", policy.as_str()),
            ("tls.certificate", certificate.as_str()),
            ("tls.private_key", key.as_str()),
            ("tls.client_authorities", authorities.as_str()),
            ("tls.clients", entries.as_str()),
        ];
        Self {
            proxy: ProxyFixture::start(&[&fields[..], set].concat()).await,
            anchor: own.der().clone(),
            clients,
            _directory: directory,
        }
    }

    /// A client with this certificate, after its handshake.
    pub(super) async fn connect(
        &self,
        certificate: Option<Pair>,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        self.connect_with(certificate, &[]).await
    }

    /// The same, with these application protocols offered.
    pub(super) async fn connect_with(
        &self,
        certificate: Option<Pair>,
        protocols: &[&[u8]],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.anchor.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match certificate {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let key = PrivatePkcs8KeyDer::from(key.serialize_der());
                builder
                    .with_client_auth_cert(vec![certificate], PrivateKeyDer::Pkcs8(key))
                    .unwrap()
            }
        };
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let name = PROXY_NAME.to_owned().try_into().unwrap();
        let socket = self.proxy.connect().await;
        TlsConnector::from(Arc::new(config))
            .connect(name, socket)
            .await
    }

    /// Sends `bytes` and returns everything that comes back; empty when the proxy refused the handshake.
    async fn exchange(&self, certificate: Option<Pair>, bytes: &[u8]) -> Vec<u8> {
        let mut received = Vec::new();
        if let Ok(mut client) = self.connect(certificate).await {
            // With TLS 1.3 a client learns only here that its certificate was refused.
            let _ = client.write_all(bytes).await;
            let _ = client.read_to_end(&mut received).await;
        }
        received
    }

    pub(super) async fn get(&self, certificate: Option<Pair>, auth: &str) -> String {
        let request =
            format!("GET http://{TARGET_HOST}/ HTTP/1.1\r\nHost: {TARGET_HOST}\r\n{auth}\r\n");
        let received = self.exchange(certificate, request.as_bytes()).await;
        String::from_utf8(received).unwrap()
    }
}

pub(super) fn pem_of(certificate: &CertificateDer<'_>) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(certificate);
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
}

fn bearer(token: &str) -> String {
    format!("Proxy-Authorization: Bearer {token}\r\n")
}

#[tokio::test]
async fn a_certificate_identifies_its_client_and_gives_it_its_role() {
    let mut certified = CertifiedProxy::start(&[]).await;
    let certificate = client_certificate(&certified.clients, AGENT_NAME);
    let response = certified.get(Some(certificate), "").await;
    assert!(response.ends_with("hello"), "{response}");
    for stage in ["opened", "closed"] {
        let event = certified.proxy.event().await;
        assert_eq!(event.proxy_stage, stage);
        assert_eq!(
            [&event.tenant_id, &event.app_id, &event.session_id],
            ["acme", "analyst", AGENT_NAME]
        );
        assert_eq!(event.client_certificate, AGENT_NAME);
        assert_eq!(event.decided_by, "agents/files (policy.toml:5)");
    }
}

#[tokio::test]
async fn a_client_without_a_certificate_needs_a_token_and_has_no_role_by_certificate() {
    let mut certified = CertifiedProxy::start(&[]).await;
    let response = certified.get(None, "").await;
    assert_eq!(
        (status_of(&response), code_of(&response)),
        (407, "unidentified")
    );
    let auth = certified.proxy.auth();
    let response = certified.get(None, &auth).await;
    assert_eq!(code_of(&response), "policy_denied");
    let event = certified.proxy.event().await;
    assert_eq!(
        (event.session_id.as_str(), event.client_certificate.as_str()),
        ("chat-1", "")
    );
}

#[tokio::test]
async fn a_token_names_the_session_of_a_certificate_of_the_same_tenant_alone() {
    let mut certified = CertifiedProxy::start(&[]).await;
    let auth = certified.proxy.auth();
    let certificate = client_certificate(&certified.clients, AGENT_NAME);
    let response = certified.get(Some(certificate), &auth).await;
    assert!(response.ends_with("hello"), "{response}");
    let event = certified.proxy.event().await;
    assert_eq!(
        (event.session_id.as_str(), event.client_certificate.as_str()),
        ("chat-1", AGENT_NAME)
    );
    let certificate = client_certificate(&certified.clients, AGENT_NAME);
    let foreign = bearer(&mint_for("umbrella"));
    let response = certified.get(Some(certificate), &foreign).await;
    assert_eq!(
        (status_of(&response), code_of(&response)),
        (407, "tenant_mismatch")
    );
    // A name that no entry of `clients` matches identifies no client.
    let certificate = client_certificate(&certified.clients, OTHER_NAME);
    assert_eq!(
        code_of(&certified.get(Some(certificate), "").await),
        "unidentified"
    );
    let certificate = client_certificate(&certified.clients, OTHER_NAME);
    let response = certified.get(Some(certificate), &foreign).await;
    assert_eq!(code_of(&response), "policy_denied");
}

fn mint_for(tenant: &str) -> String {
    let keys = TokenKeys::new(&dray_types::Secret::new(TOKEN_KEY), None).unwrap();
    let identity = ProxyIdentity {
        tenant: TenantId::new(tenant).unwrap(),
        session: SessionId::new("chat-1").unwrap(),
        app: None,
        expires_s: u64::from(u32::MAX),
        allow: None,
        certificate: None,
    };
    keys.mint(&identity).unwrap()
}

#[tokio::test]
async fn a_certificate_that_does_not_verify_ends_the_handshake_and_nothing_is_resolved() {
    let certified = CertifiedProxy::start(&[]).await;
    let foreign = client_certificate(&new_issuer(), AGENT_NAME);
    let name = || SanType::URI(AGENT_NAME.try_into().unwrap());
    let client_use = ExtendedKeyUsagePurpose::ClientAuth;
    let expired = issue(&certified.clients, name(), client_use, 2020);
    let server_use = ExtendedKeyUsagePurpose::ServerAuth;
    let server = issue(&certified.clients, name(), server_use, 2100);
    for certificate in [foreign, expired, server] {
        let auth = certified.proxy.auth();
        assert_eq!(certified.get(Some(certificate), &auth).await, "");
    }
    let label = "code=\"client_tls_failed\"";
    assert_eq!(certified.proxy.metric("connections_total", &[label]), 3);
    assert_eq!(certified.proxy.fake_network.queried_names(), [""; 0]);
}

#[tokio::test]
async fn a_required_certificate_is_required_beside_a_token() {
    let certified = CertifiedProxy::start(&[("tls.require_certificate", "true")]).await;
    let auth = certified.proxy.auth();
    assert_eq!(certified.get(None, &auth).await, "");
    let certificate = client_certificate(&certified.clients, AGENT_NAME);
    let response = certified.get(Some(certificate), "").await;
    assert!(response.ends_with("hello"), "{response}");
}

#[tokio::test]
async fn a_listener_with_tls_answers_no_client_in_clear_text() {
    let certified = CertifiedProxy::start(&[]).await;
    let response = certified.proxy.get(&format!("http://{TARGET_HOST}/")).await;
    // An alert of TLS at most.
    assert!(!response.contains("HTTP/"), "{response}");
    assert_eq!(certified.proxy.fake_network.queried_names(), [""; 0]);
}

#[tokio::test]
async fn socks5_over_tls_needs_no_password_with_a_certificate() {
    let mut certified = CertifiedProxy::start(&[("plain_ports", "443")]).await;
    let mut ends = certified.proxy.be_server(PUBLIC_ADDRESS, 443);
    let length = u8::try_from(TARGET_HOST.len()).unwrap();
    let request = [
        &[5, 1, 0, 5, 1, 0, 3, length][..],
        TARGET_HOST.as_bytes(),
        &443_u16.to_be_bytes(),
    ]
    .concat();
    let certificate = client_certificate(&certified.clients, AGENT_NAME);
    let mut client = certified.connect(Some(certificate)).await.unwrap();
    client.write_all(&request).await.unwrap();
    let mut replies = [0; 12];
    client.read_exact(&mut replies).await.unwrap();
    assert_eq!(replies, [5, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    client.write_all(b"up").await.unwrap();
    let mut server = ends.recv().await.unwrap();
    let mut up = [0; 2];
    server.read_exact(&mut up).await.unwrap();
    server.write_all(b"down").await.unwrap();
    let mut down = [0; 4];
    client.read_exact(&mut down).await.unwrap();
    assert_eq!((&up, &down), (b"up", b"down"));
    assert_eq!(certified.proxy.event().await.client_certificate, AGENT_NAME);
    // Without an identity, the password stays necessary.
    let certificate = client_certificate(&certified.clients, OTHER_NAME);
    let refused = certified.exchange(Some(certificate), &request).await;
    assert_eq!(refused, [5, 0xff]);
}
