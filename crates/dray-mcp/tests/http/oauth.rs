//! The server as a resource server of OAuth, with a fake authorization server.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dray_mcp::KeyLocation;
use hmac::{Hmac, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::client::{call, send};
use crate::fixture::{HttpFixture, STATIC_TOKEN};
use crate::issuer::{
    FakeIssuer, ISSUER_URL, KeysAnswer, RESOURCE_URL, seconds_from_now, signing_input,
};

#[tokio::test(flavor = "multi_thread")]
async fn the_challenge_leads_a_client_to_the_authorization_server_whose_token_is_accepted() {
    let fixture = Box::pin(HttpFixture::new()).await;
    let refused = call(fixture.address, None, "tools/list", json!({})).await;
    assert_eq!(refused.status, 401);
    let challenge = refused.field("www-authenticate");
    let url = "https://files.example.org/.well-known/oauth-protected-resource/mcp";
    assert!(
        challenge.contains(&format!("resource_metadata=\"{url}\"")),
        "{challenge}"
    );
    // RFC 6750: no error where no token was sent.
    assert!(!challenge.contains("error"), "{challenge}");
    for path in [
        "/.well-known/oauth-protected-resource/mcp",
        "/.well-known/oauth-protected-resource",
    ] {
        let metadata = send(fixture.address, "GET", path, &[], "").await;
        assert_eq!(metadata.status, 200);
        let document: Value = serde_json::from_str(&metadata.body).unwrap();
        assert_eq!(document["resource"], RESOURCE_URL);
        assert_eq!(document["authorization_servers"], json!([ISSUER_URL]));
        assert_eq!(
            document["scopes_supported"],
            json!(["read", "fetch", "put", "send", "approve"])
        );
    }
    let listed = fixture.list(&fixture.issuer.token(&json!({}))).await;
    assert_eq!(listed.status, 200, "{listed:?}");
    assert!(listed.message()["result"]["tools"].is_array());
    // The second token needs no fetch of the keys.
    assert_eq!(
        fixture.list(&fixture.issuer.token(&json!({}))).await.status,
        200
    );
    assert_eq!(fixture.issuer.requests(), 1);
}

/// Every token is refused as invalid, and the challenge leads to the authorization server.
async fn assert_refused(fixture: &HttpFixture, cases: Vec<(&str, String)>) {
    for (name, token) in cases {
        let refused = fixture.list(&token).await;
        assert_eq!(refused.status, 401, "{name}: {refused:?}");
        let challenge = refused.field("www-authenticate");
        let is_named = challenge.contains("error=\"invalid_token\"");
        assert!(is_named, "{name}: {challenge}");
        assert!(challenge.contains("resource_metadata="), "{challenge}");
    }
}

/// A token that is signed by HMAC with a public key.
fn hmac_token(key: &[u8]) -> String {
    let message = signing_input(&json!({"alg": "HS256", "kid": "k1"}), &json!({}));
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(message.as_bytes());
    let code = mac.finalize().into_bytes();
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(code))
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_the_issuer_did_not_sign_are_refused() {
    let fixture = Box::pin(HttpFixture::new()).await;
    let (issuer, stranger) = (&fixture.issuer, FakeIssuer::new());
    let good = issuer.token(&json!({}));
    assert_eq!(fixture.list(&good).await.status, 200);
    let (head, signature) = good.rsplit_once('.').unwrap();
    let header = |algorithm: &str| json!({"alg": algorithm, "kid": "k1"});
    let unsigned = signing_input(&header("none"), &json!({}));
    let mut own_key = header("ES256");
    own_key["jwk"] = stranger.key_set()["keys"][0].clone();
    let mut extension = header("ES256");
    extension["crit"] = json!(["exp"]);
    let zeros = URL_SAFE_NO_PAD.encode([0_u8; 64]);
    let key_set = issuer.key_set().to_string();
    let cases = vec![
        ("none", format!("{unsigned}.")),
        ("none with a signature", format!("{unsigned}.{signature}")),
        ("no signature", format!("{head}.")),
        ("a signature of zeros", format!("{head}.{zeros}")),
        ("HMAC with the public key", hmac_token(&issuer.public_key())),
        ("HMAC with the key set", hmac_token(key_set.as_bytes())),
        (
            "an algorithm of another family",
            issuer.signed(&header("RS256"), &json!({})),
        ),
        ("another curve", issuer.signed(&header("ES384"), &json!({}))),
        ("a stranger", stranger.token(&json!({}))),
        ("a key in the header", stranger.signed(&own_key, &json!({}))),
        ("an extension", issuer.signed(&extension, &json!({}))),
        ("not a token", "x".repeat(40)),
        ("two parts", head.to_owned()),
        (
            "too long",
            issuer.token(&json!({"padding": "x".repeat(40_000)})),
        ),
    ];
    assert_refused(&fixture, cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_for_others_and_for_other_times_are_refused() {
    let fixture = Box::pin(HttpFixture::new()).await;
    let expired = json!({"exp": seconds_from_now(-120)});
    let not_yet_valid = json!({"nbf": seconds_from_now(600)});
    let claims = [
        ("another issuer", json!({"iss": "https://evil.example/"})),
        (
            "an issuer without its slash",
            json!({"iss": ISSUER_URL.trim_end_matches('/')}),
        ),
        (
            "another audience",
            json!({"aud": "https://other.example/mcp"}),
        ),
        ("no audience", json!({"aud": null})),
        ("expired", expired),
        ("no expiry", json!({"exp": null})),
        ("expiry as text", json!({"exp": "4102444800"})),
        ("not valid yet", not_yet_valid),
        ("no subject", json!({"sub": null})),
        ("no tenant", json!({"tenant": null})),
        ("a tenant with a line end", json!({"tenant": "a\nb"})),
        ("tenants as a list", json!({"tenant": ["acme", "own"]})),
        ("an empty session", json!({"session": ""})),
    ];
    let cases = claims
        .iter()
        .map(|(name, claims)| (*name, fixture.issuer.token(claims)))
        .collect();
    assert_refused(&fixture, cases).await;
    // The audience may be one of several.
    let several = json!({"aud": ["https://other.example/", RESOURCE_URL]});
    let admitted = fixture.list(&fixture.issuer.token(&several)).await;
    assert_eq!(admitted.status, 200, "{admitted:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_is_accepted_only_in_one_header_and_not_in_the_query() {
    let fixture = Box::pin(HttpFixture::new()).await;
    let token = fixture.issuer.token(&json!({}));
    let bearer = format!("Bearer {token}");
    let query = format!("/mcp?access_token={token}");
    let one_header = [("Authorization", bearer.as_str())];
    let two_headers = [
        ("Authorization", bearer.as_str()),
        ("Authorization", "Bearer another"),
    ];
    for (path, fields) in [(query.as_str(), &[] as &[_]), ("/mcp", &two_headers)] {
        let refused = send(fixture.address, "GET", path, fields, "").await;
        assert_eq!(refused.status, 401, "{path}");
    }
    // The token is admitted: the protocol handles the request.
    let admitted = send(fixture.address, "GET", "/mcp", &one_header, "").await;
    assert!(![401, 403].contains(&admitted.status), "{admitted:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_challenge_names_the_missing_scope_and_the_scopes_of_the_token() {
    let fixture = Box::pin(HttpFixture::new()).await;
    let token = fixture
        .issuer
        .token(&json!({"scope": "openid read", "tenant": "own"}));
    let files = json!({"files": ["a.txt"]});
    for (name, arguments, scopes) in [
        ("send_file", files.clone(), "read send"),
        ("put", json!({"from": "a.txt"}), "read put"),
        ("fetch", json!({"url": "https://a.example/"}), "read fetch"),
        ("read", json!({"path": "https://a.example/"}), "read fetch"),
        ("get", json!({"from": "a.txt", "to": "b.txt"}), "read put"),
    ] {
        let refused = fixture.tool(&token, name, arguments).await;
        assert_eq!(refused.status, 403, "{name}: {refused:?}");
        let challenge = refused.field("www-authenticate");
        assert!(
            challenge.contains("error=\"insufficient_scope\""),
            "{challenge}"
        );
        assert!(
            challenge.contains(&format!("scope=\"{scopes}\"")),
            "{name}: {challenge}"
        );
        assert!(challenge.contains("resource_metadata="), "{challenge}");
    }
    assert!(!fixture.directory.path().join("data/b.txt").exists());
    // The same in the session of an earlier version, and with scopes as a list.
    let none = fixture
        .issuer
        .token(&json!({"scope": null, "scp": ["put"], "tenant": "own"}));
    assert_eq!(fixture.tool(&none, "list", json!({})).await.status, 403);
    let allowed = fixture.tool(&token, "get", json!({"from": "a.txt"})).await;
    assert_eq!(allowed.status, 200, "{allowed:?}");
    assert_eq!(allowed.message()["result"]["isError"], false, "{allowed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tenant_and_session_are_those_of_the_token() {
    let fixture = Box::pin(HttpFixture::new()).await;
    let own_token = fixture
        .issuer
        .token(&json!({"tenant": "own", "session": "s7"}));
    let stored = fixture
        .tool(&own_token, "get", json!({"from": "a.txt"}))
        .await
        .message();
    let handle = stored["result"]["structuredContent"]["handle"]
        .as_str()
        .unwrap()
        .to_owned();
    let repeated = fixture
        .tool(&own_token, "get", json!({"from": handle}))
        .await
        .message();
    assert_eq!(repeated["result"]["isError"], false, "{repeated}");
    // Another tenant sees neither the stored file nor the directory of this machine.
    let other_token = fixture
        .issuer
        .token(&json!({"tenant": "acme", "session": "s7"}));
    let missing = fixture
        .tool(&other_token, "get", json!({"from": handle}))
        .await
        .message();
    assert_eq!(
        missing["result"]["_meta"]["drayage/fault"]["detail"], "claim_missing",
        "{missing}"
    );
    let rootless = fixture
        .tool(&other_token, "get", json!({"from": "a.txt"}))
        .await
        .message();
    assert_eq!(
        rootless["result"]["_meta"]["drayage/fault"]["detail"], "no_root",
        "{rootless}"
    );
    // A session in an argument is accepted only if it is the session of the token.
    let refused = fixture
        .tool(&own_token, "list", json!({"path": "dray://sandbox/s8/x"}))
        .await
        .message();
    let detail = &refused["result"]["_meta"]["drayage/fault"]["detail"];
    assert_eq!(detail, "session_not_found", "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_static_token_has_its_own_scopes_beside_the_authorization_server() {
    let fixture = Box::pin(HttpFixture::new()).await;
    let read = fixture
        .tool(STATIC_TOKEN, "get", json!({"from": "a.txt"}))
        .await;
    assert_eq!(read.status, 200, "{read:?}");
    let put = fixture
        .tool(STATIC_TOKEN, "put", json!({"from": "a.txt"}))
        .await;
    assert_eq!(put.status, 403, "{put:?}");
    assert_eq!(fixture.issuer.requests(), 0, "a static token needs no keys");
}

#[tokio::test(flavor = "multi_thread")]
async fn new_keys_are_fetched_when_a_token_names_one_but_not_for_each_invented_name() {
    let fixture = Box::pin(HttpFixture::new()).await;
    let issuer = &fixture.issuer;
    let old = issuer.token(&json!({}));
    assert_eq!(fixture.list(&old).await.status, 200);
    issuer.rotate("k2");
    fixture.advance(31);
    assert_eq!(fixture.list(&issuer.token(&json!({}))).await.status, 200);
    assert_eq!(issuer.requests(), 2);
    // The removed key is no longer accepted.
    assert_eq!(fixture.list(&old).await.status, 401);
    for invented in 0..20 {
        let header = json!({"alg": "ES256", "kid": format!("invented-{invented}")});
        let token = issuer.signed(&header, &json!({}));
        assert_eq!(fixture.list(&token).await.status, 401);
    }
    assert_eq!(issuer.requests(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn known_keys_are_used_for_an_hour_while_the_authorization_server_fails() {
    let fixture = Box::pin(HttpFixture::new()).await;
    let issuer = &fixture.issuer;
    let token = issuer.token(&json!({}));
    assert_eq!(fixture.list(&token).await.status, 200);
    for answer in [
        KeysAnswer::Garbage,
        KeysAnswer::Failure,
        KeysAnswer::Refused,
        KeysAnswer::Stall,
    ] {
        issuer.set_answer(answer);
        fixture.advance(11 * 60);
        let listed = fixture.list(&token).await;
        assert_eq!(listed.status, 200, "{answer:?}: {listed:?}");
    }
    fixture.advance(20 * 60);
    let refused = fixture.list(&token).await;
    assert_eq!(refused.status, 503, "{refused:?}");
    assert_eq!(refused.field("retry-after"), "30");
    issuer.set_answer(KeysAnswer::Keys);
    fixture.advance(31);
    assert_eq!(fixture.list(&token).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_caller_is_admitted_while_the_keys_were_never_available() {
    let fixture = Box::pin(HttpFixture::new()).await;
    fixture.issuer.set_answer(KeysAnswer::Stall);
    let token = fixture.issuer.token(&json!({}));
    let (one, two) = tokio::join!(fixture.list(&token), fixture.list(&token));
    assert_eq!((one.status, two.status), (503, 503));
    assert_eq!(fixture.issuer.requests(), 1);
    // A static token does not need the keys.
    assert_eq!(fixture.list(STATIC_TOKEN).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_a_file_are_read_again_when_it_changes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys.json");
    let fixture = Box::pin(HttpFixture::with_keys(KeyLocation::File(path.clone()))).await;
    let issuer = &fixture.issuer;
    assert_eq!(fixture.list(&issuer.token(&json!({}))).await.status, 503);
    for key in ["k2", "k3"] {
        issuer.rotate(key);
        std::fs::write(&path, issuer.key_set().to_string()).unwrap();
        fixture.advance(31);
        assert_eq!(
            fixture.list(&issuer.token(&json!({}))).await.status,
            200,
            "{key}"
        );
    }
    std::fs::write(&path, " ".repeat(300 << 10)).unwrap();
    fixture.advance(61 * 60);
    assert_eq!(fixture.list(&issuer.token(&json!({}))).await.status, 503);
    assert_eq!(issuer.requests(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_another_caller_is_not_found() {
    let fixture = Box::pin(HttpFixture::new()).await;
    let bearer = |claims: Value| format!("Bearer {}", fixture.issuer.token(&claims));
    // Tenant and session are the same, but the person is another one.
    let alice = bearer(json!({"sub": "alice", "session": "shared"}));
    let bob = bearer(json!({"sub": "bob", "session": "shared"}));
    let begin = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"}}});
    let ask = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}});
    let post = async |authorization: &str, session: &str, message: &Value| {
        let mut fields = vec![
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
            ("Authorization", authorization),
        ];
        if !session.is_empty() {
            fields.push(("Mcp-Session-Id", session));
        }
        send(
            fixture.address,
            "POST",
            "/mcp",
            &fields,
            &message.to_string(),
        )
        .await
    };
    let begun = post(&alice, "", &begin).await;
    assert_eq!(begun.status, 200, "{begun:?}");
    let session = begun.field("mcp-session-id").to_owned();
    assert!(!session.is_empty());
    assert_eq!(post(&alice, &session, &ask).await.status, 200);
    assert_eq!(post(&bob, &session, &ask).await.status, 404);
    // A new token of the same person continues with it.
    let renewed = bearer(json!({"sub": "alice", "session": "shared", "scope": "read send"}));
    assert_eq!(post(&renewed, &session, &ask).await.status, 200);
}
