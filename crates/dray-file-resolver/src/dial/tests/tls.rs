//! Whom the client trusts.

use dray_testkit::http::{FakeHttpServer, ResponseScript, ScriptedResponder};
use dray_testkit::tls::Authority;

use super::*;

#[test]
fn authorities_come_from_a_pem_file_when_one_is_given() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    let new = |path: &Path| {
        let timeouts = DialTimeouts {
            connect: Duration::from_secs(5),
            read: Duration::from_secs(5),
        };
        DialClient::new(
            DialOrigin::parse("https://dial.example").unwrap(),
            timeouts,
            Some(path),
        )
    };
    assert!(matches!(new(&path), Err(OpenError::Authorities(_))));
    std::fs::write(
        &path,
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    )
    .unwrap();
    assert!(matches!(new(&path), Err(OpenError::Tls(_))));
}

#[tokio::test]
async fn tls_trusts_the_given_authorities_and_nobody_else() {
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
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    std::fs::write(&path, authority.pem()).unwrap();
    let timeouts = DialTimeouts {
        connect: Duration::from_secs(5),
        read: Duration::from_secs(5),
    };
    let open =
        |ca_file| DialClient::new(DialOrigin::parse(&url).unwrap(), timeouts, ca_file).unwrap();
    let credentials = CallerCredentials::default();
    let trusted = read(
        &open(Some(&path)),
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
