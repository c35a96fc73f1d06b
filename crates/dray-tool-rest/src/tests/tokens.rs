//! Tokens of client credentials.

use serde_json::{Value, json};

use super::fixture::{FakeAction, RestFixture, text};

fn grant_token(token: &str, expires_in: impl Into<Value>) -> FakeAction {
    FakeAction::Json(
        200,
        json!({"access_token": token, "expires_in": expires_in.into()}),
    )
}

fn set(fixture: &RestFixture, secret: &str) -> Value {
    let mut set = fixture.set("get", "/api", &json!({}));
    set["authorization"] = json!({
        "type": "client_id_secret", "client_id": "me", "client_secret": secret, "scope": "a b", "aud": "https://x/",
        "token_url": format!("{}/token", fixture.url()),
    });
    set
}

fn ok() -> FakeAction {
    FakeAction::Json(200, json!({"ok": true}))
}

fn paths(fixture: &RestFixture) -> Vec<String> {
    fixture
        .requests()
        .into_iter()
        .map(|request| request.path)
        .collect()
}

#[tokio::test]
async fn a_token_is_requested_once_and_used_until_it_expires() {
    let fixture = RestFixture::new([grant_token("t-1", 3600), ok(), ok()]).await;
    for _ in 0..2 {
        fixture.call(set(&fixture, "s"), json!({})).await.unwrap();
        assert_eq!(fixture.last().header("authorization"), Some("Bearer t-1"));
    }
    assert_eq!(paths(&fixture), ["/token", "/api", "/api"]);
    assert_eq!(
        fixture.requests()[0].body,
        "grant_type=client_credentials&scope=a%20b&audience=https%3A%2F%2Fx%2F&client_id=me&client_secret=s"
    );
}

#[tokio::test]
async fn r_14_other_credentials_have_another_token() {
    let fixture = RestFixture::new([
        grant_token("t-1", 3600),
        ok(),
        grant_token("t-2", "60"),
        ok(),
    ])
    .await;
    fixture.call(set(&fixture, "s"), json!({})).await.unwrap();
    fixture
        .call(set(&fixture, "other"), json!({}))
        .await
        .unwrap();
    assert_eq!(paths(&fixture), ["/token", "/api", "/token", "/api"]);
    assert_eq!(fixture.last().header("authorization"), Some("Bearer t-2"));
}

#[tokio::test]
async fn a_token_that_is_about_to_expire_is_not_used_again() {
    let fixture =
        RestFixture::new([grant_token("t-1", 5), ok(), grant_token("t-2", 5), ok()]).await;
    fixture.call(set(&fixture, "s"), json!({})).await.unwrap();
    fixture.call(set(&fixture, "s"), json!({})).await.unwrap();
    assert_eq!(fixture.last().header("authorization"), Some("Bearer t-2"));
}

#[tokio::test]
async fn a_refused_token_is_renewed_once() {
    let no = || FakeAction::Json(401, json!({}));
    let script = [
        grant_token("t-1", 3600),
        no(),
        grant_token("t-2", 3600),
        ok(),
        no(),
        grant_token("t-3", 3600),
        no(),
    ];
    let fixture = RestFixture::new(script).await;
    let ran = fixture.call(set(&fixture, "s"), json!({})).await.unwrap();
    assert!(!ran.failed);
    assert_eq!(fixture.last().header("authorization"), Some("Bearer t-2"));
    let ran = fixture.call(set(&fixture, "s"), json!({})).await.unwrap();
    assert!(text(&ran).contains("status 401"));
    assert_eq!(fixture.requests().len(), 7);
}

#[tokio::test]
async fn credentials_are_tried_in_the_header_when_the_body_is_refused() {
    let no = FakeAction::Json(401, json!({"error": "invalid_client"}));
    let fixture = RestFixture::new([no, grant_token("t-1", 60), ok()]).await;
    fixture.call(set(&fixture, "s"), json!({})).await.unwrap();
    let requests = fixture.requests();
    assert_eq!(requests[1].header("authorization"), Some("Basic bWU6cw=="));
    assert!(!requests[1].body.contains("client_secret"));
    assert_eq!(requests[2].header("authorization"), Some("Bearer t-1"));
}

#[tokio::test]
async fn a_token_server_that_returns_no_token_is_a_failure_without_secrets() {
    let useless = [
        FakeAction::Json(503, json!({"echo": "s-e-c-r-e-t"})),
        FakeAction::Json(200, json!({"token": "x"})),
        FakeAction::Json(200, json!({"access_token": "a\r\nx-key: b"})),
        FakeAction::Bytes(200, "text/html", b"<html>".to_vec()),
        FakeAction::Close,
    ];
    let expected = [
        "The token server answered with status 503.",
        "The token server returned no usable token.",
        "The token server returned no usable token.",
        "The token server returned no usable token.",
        "The connection to the token server broke before its answer was complete.",
    ];
    let fixture = RestFixture::new(useless).await;
    for expected in expected {
        let ran = fixture
            .call(set(&fixture, "s-e-c-r-e-t"), json!({}))
            .await
            .unwrap();
        assert!(text(&ran).ends_with(expected), "{ran:?}");
    }
    assert!(!fixture.stage_text().contains("s-e-c-r-e-t"));
    assert!(!paths(&fixture).contains(&"/api".to_owned()));
}

#[tokio::test]
async fn concurrent_calls_request_one_token() {
    let script = std::iter::once(grant_token("t-1", 3600));
    let fixture = RestFixture::new(script).await;
    let calls = (0..8).map(|_| fixture.call(set(&fixture, "s"), json!({})));
    for ran in futures_util::future::join_all(calls).await {
        assert!(!ran.unwrap().failed);
    }
    let token_requests = paths(&fixture)
        .iter()
        .filter(|path| *path == "/token")
        .count();
    assert_eq!(token_requests, 1);
}
