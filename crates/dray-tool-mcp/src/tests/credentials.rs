//! Tests which credentials are sent to which server.

use std::sync::Arc;

use dray_agent::caller::Caller;
use dray_dial::fake::FakeDial;
use dray_http::fake_server::{
    self, ConnectionClosed, FakeServer, ReceivedRequest, Reply, SharedState,
};
use dray_types::Secret;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::support::{FakeMcpServer, fake_server, mcp, options};
use crate::{McpToolset, connect_set};

/// The values of `Authorization` that a server sees.
async fn sent_credentials(authorization: &Value, is_dial: bool) -> Vec<String> {
    let server = fake_server(FakeMcpServer::default()).await;
    let url = server.shared().url();
    let info = json!({
        "url": url, "protocol": "streamable_http", "authorization": authorization,
    });
    let set = mcp(json!({"name": "s", "mcp_server_info": info}));
    let mut options = options();
    let url = if is_dial {
        url
    } else {
        "https://dial.example".to_owned()
    };
    options.dial = Some(Arc::new(FakeDial::at(&url)));
    let caller = Caller {
        authorization: Some(Secret::new("Bearer own")),
        ..Caller::default()
    };
    let built = connect_set(McpToolset::Mcp(&set), &caller, &options).await;
    assert_eq!(built.tools.len(), 1, "{:?}", built.issues);
    let state = server.shared().lock();
    let credentials = state.headers.iter().flatten();
    let mut credentials: Vec<_> = credentials
        .filter(|(name, _)| name == "authorization")
        .map(|(_, value)| value.clone())
        .collect();
    credentials.dedup();
    credentials
}

#[tokio::test]
async fn r_2_the_callers_token_is_sent_only_to_the_origin_of_dial() {
    assert_eq!(sent_credentials(&Value::Null, true).await, ["Bearer own"]);
    assert_eq!(sent_credentials(&Value::Null, false).await, [""; 0]);
}

#[tokio::test]
async fn configured_credentials_are_never_overridden() {
    let basic = json!({"type": "basic", "username": "u", "password": "p"});
    assert_eq!(sent_credentials(&basic, true).await, ["Basic dTpw"]);
    let bearer = json!({"type": "bearer", "token": "t"});
    assert_eq!(sent_credentials(&bearer, true).await, ["Bearer t"]);
}

#[tokio::test]
async fn client_credentials_are_sent_in_the_header_when_the_body_is_refused() {
    let answer = |_: Arc<SharedState<()>>,
                  request: ReceivedRequest|
     -> BoxFuture<'static, Result<Reply, ConnectionClosed>> {
        async move {
            let credentials = request.header("authorization");
            let reply = match credentials {
                Some("Basic bWU6aHVzaA==") => json!({"access_token": "fresh"}),
                _ => return Ok(fake_server::json_reply(401, &json!({}))),
            };
            Ok(fake_server::json_reply(200, &reply))
        }
        .boxed()
    };
    let tokens = FakeServer::start((), answer).await.unwrap();
    let client = json!({
        "type": "client_id_secret", "client_id": "me", "client_secret": "hush", "token_url": tokens.shared().url(),
    });
    assert_eq!(sent_credentials(&client, true).await, ["Bearer fresh"]);
}

#[tokio::test]
async fn client_credentials_are_exchanged_for_a_token() {
    let answer = |shared: Arc<SharedState<Vec<(String, String)>>>,
                  request: ReceivedRequest|
     -> BoxFuture<'static, Result<Reply, ConnectionClosed>> {
        async move {
            let body = request.into_reader().all().await?;
            let text = String::from_utf8_lossy(&body).into_owned();
            let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
            let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
            shared.lock().extend(pairs);
            Ok(fake_server::json_reply(
                200,
                &json!({"access_token": "fresh", "token_type": "Bearer"}),
            ))
        }
        .boxed()
    };
    let tokens = FakeServer::start(Vec::new(), answer).await.unwrap();
    let client = json!({
        "type": "client_id_secret", "client_id": "me", "client_secret": "hush",
        "token_url": tokens.shared().url(), "scope": "tools",
    });
    assert_eq!(sent_credentials(&client, true).await, ["Bearer fresh"]);
    let form = tokens.shared().lock().clone();
    let expected = [
        ("grant_type", "client_credentials"),
        ("scope", "tools"),
        ("client_id", "me"),
        ("client_secret", "hush"),
    ];
    assert_eq!(
        form,
        expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
    );
}
