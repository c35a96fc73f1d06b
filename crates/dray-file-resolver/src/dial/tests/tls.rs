//! Tests of the certificate authorities that the client trusts.

use dray_testkit::http::{FakeHttpServer, ResponseScript, ScriptedResponder};
use dray_testkit::tls::Authority;
use dray_types::FileSetting;

use super::*;

#[test]
fn authorities_come_from_a_pem_file_when_one_is_given() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ca.pem");
    // The file is missing, is not a certificate, or has no certificate in it: a wrong file stops the start.
    for pem in [
        None,
        Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        Some("text"),
    ] {
        if let Some(pem) = pem {
            std::fs::write(&path, pem).unwrap();
        }
        let config = Config {
            dial_ca_file: Some(FileSetting::read(&path)),
            ..Config::default()
        };
        let error = dial_client("https://dial.example", &config).unwrap_err();
        assert_eq!(error.kind, dray_dial::ErrorKind::Request, "{pem:?}");
    }
}

#[tokio::test]
async fn tls_trusts_the_given_authorities_and_no_others() {
    let authority = Authority::new().unwrap();
    let acceptor = authority.acceptor("localhost").unwrap();
    let responder = ScriptedResponder::new(|seen| match seen.target() {
        "/v1/metadata/files/b/a.txt" => ResponseScript::ok("{}"),
        _ => ResponseScript::ok("over tls"),
    });
    let server = FakeHttpServer::start_tls(responder, acceptor)
        .await
        .unwrap();
    let url = format!("https://localhost:{}", server.address().port());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ca.pem");
    std::fs::write(&path, authority.pem()).unwrap();
    let open = |dial_ca_file| {
        let config = Config {
            dial_ca_file,
            ..Config::default()
        };
        dial_client(&url, &config).unwrap()
    };
    let credentials = CallerCredentials::default();
    let trusted = read(
        &open(Some(FileSetting::read(path))),
        "files/b/a.txt",
        &credentials,
        FILE_LIMIT,
    )
    .await;
    assert_eq!(trusted.unwrap(), b"over tls");
    let public = read(&open(None), "files/b/a.txt", &credentials, FILE_LIMIT).await;
    assert!(
        matches!(public, Err(DialError::Unreachable(_))),
        "{public:?}"
    );
}
