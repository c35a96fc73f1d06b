//! Tests of identities and connections: TLS, client certificates, `NKey`s, and the private inbox.

use dray_bus::{Bus, ConnectError, NatsOptions};
use dray_testkit::nats::{NatsServer, NatsServerOptions};
use dray_types::{Clock, Secret};

use crate::fixture::meter;

/// The pair of the server's own documentation.
const USER_SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
const USER_PUBLIC_KEY: &str = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";

async fn try_connect(options: &NatsOptions) -> Result<Bus, ConnectError> {
    Bus::connect(options, Clock::system(), &meter()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_connects_with_its_key_and_not_without_one() {
    let server = NatsServerOptions::default()
        .config(&format!(
            "authorization {{ users: [ {{ nkey: {USER_PUBLIC_KEY}, permissions: {{
                publish: \"nothing.else\", subscribe: \"_INBOX_file-resolver.>\" }} }} ] }}"
        ))
        .start();
    let with_key = |name: &str| NatsOptions {
        nkey_seed: Secret::new(USER_SEED),
        ..NatsOptions::at(server.url()).named(name)
    };
    try_connect(&with_key("file-resolver")).await.unwrap();
    let error = try_connect(&NatsOptions::at(server.url()))
        .await
        .unwrap_err();
    assert!(matches!(error, ConnectError::Connect(_)), "{error}");
}

/// A server that requires TLS and has a self-made certificate that no client trusts.
fn tls_server(directory: &std::path::Path) -> NatsServer {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let issued = rcgen::generate_simple_self_signed(names).unwrap();
    std::fs::write(directory.join("cert.pem"), issued.cert.pem()).unwrap();
    std::fs::write(
        directory.join("key.pem"),
        issued.signing_key.serialize_pem(),
    )
    .unwrap();
    let path = |name: &str| directory.join(name).display().to_string();
    NatsServerOptions::default()
        .config(&format!(
            "tls {{ cert_file: \"{}\", key_file: \"{}\" }}",
            path("cert.pem"),
            path("key.pem")
        ))
        .start()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_trusted_only_with_a_known_certificate() {
    let directory = tempfile::tempdir().unwrap();
    let server = tls_server(directory.path());
    let known = NatsOptions {
        require_tls: true,
        ca_file: Some(directory.path().join("cert.pem")),
        ..NatsOptions::at(server.url())
    };
    try_connect(&known).await.unwrap();
    let unknown = NatsOptions {
        require_tls: true,
        ..NatsOptions::at(server.url())
    };
    let error = try_connect(&unknown).await.unwrap_err();
    assert!(matches!(error, ConnectError::Connect(_)), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_tls_is_refused_where_tls_is_required() {
    let server = NatsServer::start();
    let options = NatsOptions {
        require_tls: true,
        ..NatsOptions::at(server.url())
    };
    let error = try_connect(&options).await.unwrap_err();
    assert!(matches!(error, ConnectError::Connect(_)), "{error}");
}
