//! Tests of identities and connections: TLS, client certificates, `NKey`s, and the private inbox.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dray_bus::{Bus, ConnectError, NatsOptions};
use dray_testkit::eventually;
use dray_testkit::nats::{NatsServer, NatsServerOptions};
use dray_types::{Clock, Secret};
use nkeys::KeyPair;
use serde_json::{Value, json};

use crate::fixture::meter;

/// Seed of the key pair in the documentation of the server.
const USER_SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
/// Public key that belongs to [`USER_SEED`].
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

/// A signed claim of the server's decentralised authentication.
fn sign_claim(issuer: &KeyPair, subject: &KeyPair, claims: &Value) -> String {
    let header = json!({"typ": "JWT", "alg": "ed25519-nkey"});
    let body = json!({
        "jti": "test", "iat": 1_700_000_000, "iss": issuer.public_key(), "sub": subject.public_key(), "name": "test",
        "nats": claims,
    });
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let content = format!("{}.{}", encode(&header), encode(&body));
    let signature = issuer.sign(content.as_bytes()).unwrap();
    format!("{content}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// An account that an operator signed: its public key and JWT, and a file of credentials for a user of it.
fn account(operator: &KeyPair) -> (String, String, String) {
    let (account, user) = (KeyPair::new_account(), KeyPair::new_user());
    let limits = json!({
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1,
    });
    let claims = json!({"type": "account", "version": 2, "limits": limits});
    let account_jwt = sign_claim(operator, &account, &claims);
    let claims = json!({"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1});
    let user_jwt = sign_claim(&account, &user, &claims);
    let seed = user.seed().unwrap();
    let credentials = format!(
        "-----BEGIN NATS USER JWT-----\n{user_jwt}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    );
    (account.public_key(), account_jwt, credentials)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_file_of_credentials_counts_from_the_next_connection() {
    let directory = tempfile::tempdir().unwrap();
    let operator = KeyPair::new_operator();
    let claims = json!({"type": "operator", "version": 2});
    let operator_jwt = sign_claim(&operator, &operator, &claims);
    let (system, first, second) = (account(&operator), account(&operator), account(&operator));
    let accounts = directory.path().join("accounts.conf");
    let serve_account = |(key, jwt, _): &(String, String, String)| {
        let (system_key, system_jwt, _) = &system;
        let preload = format!(
            "system_account: {system_key}\nresolver_preload: {{\n  {key}: \"{jwt}\"\n  {system_key}: \"{system_jwt}\"\n}}\n"
        );
        std::fs::write(&accounts, preload).unwrap();
    };
    serve_account(&first);
    // The server reads paths from the directory of its configuration, which is beside this one.
    let name = directory.path().file_name().unwrap().to_str().unwrap();
    let config = format!(
        "operator: \"{operator_jwt}\"\nresolver: MEMORY\ninclude \"../{name}/accounts.conf\"\n"
    );
    let mut server = NatsServerOptions::default().config(&config).start();
    let file = directory.path().join("user.creds");
    std::fs::write(&file, &first.2).unwrap();
    let options = NatsOptions {
        credentials_file: Some(file.clone()),
        ..NatsOptions::at(server.url())
    };
    let bus = try_connect(&options).await.unwrap();
    // The first account does not exist any more after this.
    serve_account(&second);
    std::fs::write(&file, &second.2).unwrap();
    server.restart();
    let _echo = eventually("the second account", async || {
        bus.respond_to("dray.egress.v1.fetch", "egress-fetcher")
            .await
            .ok()
    })
    .await;
}
