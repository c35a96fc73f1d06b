//! Whom the client trusts.

use dray_testkit::http::{Responder, Script, Server};
use dray_testkit::tls::Authority;

use super::*;

#[test]
fn authorities_come_from_a_pem_file_when_one_is_given() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    let new = |path: &Path| {
        let timeouts = Timeouts {
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
    let responder = Responder::new(|seen| match seen.target() {
        "/v1/metadata/files/b/a.txt" => Script::ok("{}"),
        _ => Script::ok("over tls"),
    });
    let server = Server::start_tls(responder, acceptor).await.unwrap();
    let url = format!("https://localhost:{}", server.address().port());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    std::fs::write(&path, authority.pem()).unwrap();
    let timeouts = Timeouts {
        connect: Duration::from_secs(5),
        read: Duration::from_secs(5),
    };
    let open =
        |ca_file| DialClient::new(DialOrigin::parse(&url).unwrap(), timeouts, ca_file).unwrap();
    let credentials = Credentials::default();
    let trusted = read(&open(Some(&path)), "files/b/a.txt", &credentials, LIMIT).await;
    assert_eq!(trusted.unwrap(), b"over tls");
    let public = read(&open(None), "files/b/a.txt", &credentials, LIMIT).await;
    assert!(matches!(public, Err(Error::Unreachable(_))), "{public:?}");
}
