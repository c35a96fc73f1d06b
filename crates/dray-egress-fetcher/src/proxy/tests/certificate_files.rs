//! Files for TLS with clients that change while the proxy serves, and revocation lists.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    CertificateParams, CertificateRevocationListParams, ExtendedKeyUsagePurpose, KeyIdMethod,
    KeyPair, RevokedCertParams, SanType, SerialNumber, date_time_ymd,
};

use super::certificates::{
    AGENT_NAME, CertifiedProxy, Issuer, PROXY_NAME, Pair, client_certificate, issue, new_issuer,
    pem_of,
};
use super::http2::Http2Client;
use super::intercepted::InterceptingProxy;
use super::*;

/// Serial number of the certificate that a list revokes.
const REVOKED_SERIAL: u64 = 4711;

/// A list of `issuer` until that year, which revokes these serial numbers.
fn revocation_list(issuer: &Issuer, until_year: i32, serials: &[u64]) -> String {
    let revoked = serials.iter().map(|serial| RevokedCertParams {
        serial_number: SerialNumber::from(*serial),
        revocation_time: date_time_ymd(2020, 1, 1),
        reason_code: None,
        invalidity_date: None,
    });
    let params = CertificateRevocationListParams {
        this_update: date_time_ymd(2020, 1, 1),
        next_update: date_time_ymd(until_year, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: revoked.collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    params.signed_by(issuer).unwrap().pem().unwrap()
}

fn numbered_certificate(issuer: &Issuer, serial: u64) -> Pair {
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![SanType::URI(AGENT_NAME.try_into().unwrap())];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.serial_number = Some(SerialNumber::from(serial));
    let key = KeyPair::generate().unwrap();
    (params.signed_by(&key, issuer).unwrap().der().clone(), key)
}

/// A proxy that accepts certificates of `clients`, and the file from which it reads their revocation list `text`.
async fn start_with_lists(clients: Issuer, text: &str) -> (CertifiedProxy, PathBuf) {
    let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    let path = path.keep().unwrap();
    fs::write(&path, text).unwrap();
    let field = ("tls.revocation_lists", path.to_str().unwrap());
    (CertifiedProxy::start_for(clients, &[field]).await, path)
}

impl CertifiedProxy {
    /// Whether the revocable client gets a response.
    async fn accepts(&self, serial: u64) -> bool {
        let certificate = numbered_certificate(&self.clients, serial);
        self.get(Some(certificate), "").await.ends_with("hello")
    }

    /// Waits until the revocable client gets a response, or gets none.
    async fn wait_for_acceptance(&self, is_accepted: bool) {
        while self.accepts(REVOKED_SERIAL).await != is_accepted {}
    }

    /// Waits until the metric of stale files has this value.
    async fn wait_for_stale(&self, value: u64) {
        while self.proxy.metric("tls_stale", &[]) != value {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_revoked_certificate_is_refused_from_the_change_of_the_list_on() {
    let clients = new_issuer();
    let list = revocation_list(&clients, 2100, &[]);
    let (certified, path) = start_with_lists(clients, &list).await;
    assert!(certified.accepts(REVOKED_SERIAL).await);
    let list = revocation_list(&certified.clients, 2100, &[REVOKED_SERIAL]);
    fs::write(&path, list).unwrap();
    certified.wait_for_acceptance(false).await;
    assert!(certified.accepts(REVOKED_SERIAL + 1).await);
    // A client without a certificate still has its token, so nothing else changed.
    let auth = certified.proxy.auth();
    assert_eq!(code_of(&certified.get(None, &auth).await), "policy_denied");
    for broken in [
        "",
        "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n",
    ] {
        fs::write(&path, broken).unwrap();
        certified.wait_for_stale(1).await;
        assert!(!certified.accepts(REVOKED_SERIAL).await, "{broken}");
        assert!(certified.accepts(REVOKED_SERIAL + 1).await, "{broken}");
    }
    let list = revocation_list(&certified.clients, 2100, &[]);
    fs::write(&path, list).unwrap();
    certified.wait_for_acceptance(true).await;
    certified.wait_for_stale(0).await;
    fs::remove_file(path).unwrap();
}

#[tokio::test]
async fn an_open_connection_of_http2_begins_no_stream_with_a_revoked_certificate() {
    let clients = new_issuer();
    let list = revocation_list(&clients, 2100, &[]);
    let (certified, path) = start_with_lists(clients, &list).await;
    let certificate = numbered_certificate(&certified.clients, REVOKED_SERIAL);
    let client = Http2Client::start_as(&certified, certificate).await;
    let url = format!("http://{TARGET_HOST}/");
    assert_eq!(client.get_certified(&url).await.unwrap().body, "hello");
    let list = revocation_list(&certified.clients, 2100, &[REVOKED_SERIAL]);
    fs::write(&path, list).unwrap();
    // Requests without a pause, so that the connection does not end because it is idle.
    while client.get_certified(&url).await.is_ok() {}
    assert!(!certified.accepts(REVOKED_SERIAL).await);
    fs::remove_file(path).unwrap();
}

#[tokio::test]
async fn clients_are_refused_without_a_current_list_of_their_issuer() {
    let other = revocation_list(&new_issuer(), 2100, &[]);
    let clients = new_issuer();
    let expired = revocation_list(&clients, 2021, &[]);
    let (certified, path) = start_with_lists(clients, &other).await;
    assert!(!certified.accepts(REVOKED_SERIAL).await);
    fs::remove_file(path).unwrap();
    let (certified, path) = start_with_lists(certified.clients, &expired).await;
    assert!(!certified.accepts(REVOKED_SERIAL).await);
    fs::remove_file(path).unwrap();
}

#[tokio::test]
async fn a_new_certificate_of_the_proxy_counts_once_its_key_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let paths = ["own.pem", "own.key"].map(|name| directory.path().join(name));
    let write_pair = |issuer: &Issuer, paths: &[&Path; 2], has_key: bool| {
        let name = SanType::DnsName(PROXY_NAME.try_into().unwrap());
        let (certificate, key) = issue(issuer, name, ExtendedKeyUsagePurpose::ServerAuth, 2100);
        fs::write(paths[0], pem_of(&certificate)).unwrap();
        if has_key {
            fs::write(paths[1], key.serialize_pem()).unwrap();
        }
    };
    let paths = [paths[0].as_path(), paths[1].as_path()];
    let (first, second) = (new_issuer(), new_issuer());
    write_pair(&first, &paths, true);
    let [certificate, key] = paths.map(|path| path.to_str().unwrap());
    let fields = [("tls.certificate", certificate), ("tls.private_key", key)];
    let mut certified = CertifiedProxy::start(&fields).await;
    let client = || client_certificate(&certified.clients, AGENT_NAME);
    let (one, two, three) = (client(), client(), client());
    certified.anchor = first.der().clone();
    assert!(certified.connect(Some(one)).await.is_ok());
    write_pair(&second, &paths, false);
    certified.wait_for_stale(1).await;
    // The earlier certificate stays while the key belongs to another one.
    assert!(certified.connect(Some(two)).await.is_ok());
    write_pair(&second, &paths, true);
    certified.wait_for_stale(0).await;
    certified.anchor = second.der().clone();
    assert!(certified.connect(Some(three)).await.is_ok());
}

#[tokio::test]
async fn the_end_of_the_certificate_of_the_proxy_is_a_metric() {
    let certified = CertifiedProxy::start(&[]).await;
    let expiry = certified
        .proxy
        .metric("certificate_expiry_timestamp_seconds", &[]);
    // 2100-01-01, as the fixture has it.
    assert_eq!(expiry, 4_102_444_800);
}

#[tokio::test]
async fn the_end_of_the_authority_for_intercepted_tunnels_is_a_metric() {
    let intercepting = InterceptingProxy::start(&[]).await;
    let expiry = intercepting
        .proxy
        .metric("certificate_expiry_timestamp_seconds", &["interception"]);
    // 4096-01-01, the default of the library that makes it.
    assert_eq!(expiry, 67_090_118_400);
}
