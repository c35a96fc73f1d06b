//! Tests of permissions: no connection, program or charge for a caller without permission.

use dray_orchestrator::Config;
use dray_orchestrator::config::permissions::{ManifestPermissions, ToolKind};
use dray_orchestrator::config::{McpServer, McpWorkloadToken};
use dray_testkit::dial::DialCore;
use dray_testkit::http::{FakeHttpServer, ResponseScript, ScriptedResponder};
use dray_types::Secret;
use serde_json::{Value, json};

use crate::fixture::{ChatResult, TurnFixture, manifest, rest};

const HELLO_SCRIPT: &str = r#"{"rules": [{"reply": {"say": "Hello."}}]}"#;

/// A tool server that counts its requests.
async fn tools() -> (FakeHttpServer, String) {
    let server = FakeHttpServer::start(ScriptedResponder::always(ResponseScript::ok(
        "out of bounds",
    )))
    .await
    .unwrap();
    let url = format!("http://{}", server.address());
    (server, url)
}

fn mcp(url: &str) -> Value {
    json!({"type": "mcp", "name": "s", "mcp_server_info": {"url": url, "protocol": "streamable_http"}})
}

/// A chat by DIAL's API with these headers.
async fn chat(fixture: &TurnFixture, headers: &[(&str, &str)]) -> ChatResult {
    let url = format!("{}/openai/deployments/agent/chat/completions", fixture.url);
    let mut request = fixture.client.post(&url);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let body = json!({"messages": [{"role": "user", "content": "x"}], "stream": true});
    fixture.send(request.json(&body)).await
}

async fn with_manifest(fixture: &TurnFixture, key: &str, manifest: &Value) -> ChatResult {
    let properties = manifest.to_string();
    let headers = [
        ("api-key", key),
        ("x-dial-application-properties", properties.as_str()),
    ];
    chat(fixture, &headers).await
}

fn everything() -> ManifestPermissions {
    let any = || vec!["*".to_owned()];
    ManifestPermissions {
        enabled: true,
        models: any(),
        tools: ToolKind::ALL_NAMES.to_vec(),
        templates: any(),
        mcp_servers: any(),
        hosts: any(),
        origins: Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_in_a_header_is_refused_unless_the_operator_allows_it() {
    let directory = tempfile::tempdir().unwrap();
    let started = directory.path().join("started");
    let fixture = TurnFixture::with(&manifest(json!([])), HELLO_SCRIPT, |config| {
        let program = McpServer {
            command: "/usr/bin/touch".to_owned(),
            args: vec![started.to_str().unwrap().to_owned()],
            ..McpServer::default()
        };
        config.mcp_servers.insert("notes".to_owned(), program);
    })
    .await;
    let program = json!({"type": "mcp", "name": "s",
        "mcp_server_info": {"url": "stdio:notes", "protocol": "stdio"}});
    let (server, url) = tools().await;
    for sets in [
        json!([program]),
        json!([mcp(&url)]),
        json!([rest(&url, &["metrics"])]),
        json!([]),
    ] {
        let result = with_manifest(&fixture, "k", &manifest(sets)).await;
        assert_eq!(result.status, 403, "{result:?}");
    }
    assert!(!started.exists());
    assert_eq!(
        (server.received_requests().len(), fixture.asked().len()),
        (0, 0)
    );
    // The operator's own manifest still works.
    assert!(
        chat(&fixture, &[("api-key", "k")])
            .await
            .text()
            .ends_with("Hello.")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_is_accepted_reaches_no_internal_address() {
    let (server, url) = tools().await;
    let fixture = TurnFixture::with(&manifest(json!([])), HELLO_SCRIPT, |config| {
        config.permissions.local.manifest_header = everything();
    })
    .await;
    let result = with_manifest(&fixture, "k", &manifest(json!([mcp(&url)]))).await;
    assert_eq!(result.status, 403, "{result:?}");
    let message = result.error()["message"].as_str().unwrap().to_owned();
    assert!(
        message.contains("tool_sets.0.mcp_server_info.url: is not a public address"),
        "{message}"
    );
    let name = format!("http://localhost:{}", server.address().port());
    let result = with_manifest(&fixture, "k", &manifest(json!([mcp(&name)]))).await;
    assert_eq!(result.status, 403, "{result:?}");
    assert_eq!(server.received_requests().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_in_a_header_works_where_the_operator_allows_it() {
    let (server, url) = tools().await;
    let script = r#"{"rules": [
        {"when": {"tool_result_of": "shop_orders"}, "reply": {"say": "It says {result}."}},
        {"reply": {"call": [{"name": "shop_orders", "arguments": {}}]}}]}"#;
    let origin = url.clone();
    let fixture = TurnFixture::with(&manifest(json!([])), script, |config| {
        config.permissions.local.manifest_header = ManifestPermissions {
            origins: vec![origin],
            ..everything()
        };
    })
    .await;
    let chat_result =
        with_manifest(&fixture, "k", &manifest(json!([rest(&url, &["orders"])]))).await;
    assert!(
        chat_result.text().ends_with("It says out of bounds."),
        "{chat_result:?}"
    );
    assert_eq!(server.received_requests().len(), 1);
}

/// A server that requires a sign-in, and is its own authorization server.
async fn protected_tools() -> (FakeHttpServer, String) {
    let server = FakeHttpServer::start(ScriptedResponder::new(|request| {
        let url = format!("http://{}", request.field("host").unwrap_or_default());
        let resource_metadata = "/.well-known/oauth-protected-resource/mcp";
        let body = match request.target() {
            "/.well-known/oauth-protected-resource/mcp" => {
                json!({"resource": format!("{url}/mcp"), "authorization_servers": [url]})
            }
            "/.well-known/oauth-authorization-server" => json!({
                "issuer": url, "authorization_endpoint": format!("{url}/authorize"),
                "token_endpoint": format!("{url}/token"), "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
            }),
            "/token" => json!({"access_token": "t", "token_type": "Bearer", "expires_in": 3600}),
            _ => {
                let challenge = format!("Bearer resource_metadata=\"{url}{resource_metadata}\"");
                return ResponseScript::raw(format!(
                    "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: {challenge}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                ));
            }
        };
        ResponseScript::with_fields(&[("Content-Type", "application/json")], body.to_string())
    }))
    .await
    .unwrap();
    let url = format!("http://{}", server.address());
    (server, url)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_identity_of_the_service_is_presented_for_the_operators_manifest_alone() {
    let (server, url) = protected_tools().await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "workload.jwt").unwrap();
    let mut set = mcp(&format!("{url}/mcp"));
    set["mcp_server_info"]["authorization"] =
        json!({"type": "oauth", "grant": "jwt_bearer", "workload_token": "platform"});
    let sets = manifest(json!([set]));
    let fixture = TurnFixture::with(&sets, HELLO_SCRIPT, |config| {
        let token = McpWorkloadToken {
            file,
            servers: vec![format!("{url}/mcp")],
            token_endpoints: vec![format!("{url}/token")],
        };
        let tokens = &mut config.mcp_workload_tokens;
        tokens.insert("platform".to_owned(), token);
        config.permissions.local.manifest_header = ManifestPermissions {
            origins: vec![url.clone()],
            ..everything()
        };
    })
    .await;
    let exchanges = || {
        let requests = server.received_requests();
        requests
            .iter()
            .filter(|request| request.target() == "/token")
            .count()
    };
    let result = with_manifest(&fixture, "k", &sets).await;
    assert!(result.text().ends_with("Hello."), "{result:?}");
    let stages = format!("{:?}", result.stages());
    assert!(
        stages.contains("the operator offers no such `workload_token`"),
        "{stages}"
    );
    assert_eq!(exchanges(), 0);
    let result = chat(&fixture, &[("api-key", "k")]).await;
    assert!(exchanges() > 0, "{:?}", result.stages());
    // Nor is the sign-in of the operator's manifest used for another one.
    let with_token = || {
        let requests = server.received_requests();
        let tokens = requests
            .iter()
            .filter_map(|request| request.field("authorization"));
        tokens.count()
    };
    let before = (exchanges(), with_token());
    let result = with_manifest(&fixture, "k", &sets).await;
    assert!(result.text().ends_with("Hello."), "{result:?}");
    assert_eq!((exchanges(), with_token()), before);
}

/// Starts a fixture with a separate DIAL Core and model.
async fn beside_dial(dial_url: String, change: impl FnOnce(&mut Config)) -> TurnFixture {
    TurnFixture::with(&manifest(json!([])), HELLO_SCRIPT, |config| {
        config.dial_url = Some(dial_url);
        config.permissions.dial.manifest_header = everything();
        change(config);
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_unknown_to_dial_has_no_access() {
    let core = DialCore::start().await.unwrap();
    core.add_key("good", "bucket");
    let (server, url) = tools().await;
    let origin = url.clone();
    let fixture = beside_dial(core.url(), |config| {
        config.permissions.dial.manifest_header.origins = vec![origin];
    })
    .await;
    let result = with_manifest(&fixture, "BOGUS", &manifest(json!([mcp(&url)]))).await;
    assert_eq!(result.status, 401, "{result:?}");
    assert_eq!(chat(&fixture, &[("api-key", "BOGUS")]).await.status, 401);
    assert_eq!(
        (server.received_requests().len(), fixture.asked().len()),
        (0, 0)
    );
    assert!(
        chat(&fixture, &[("api-key", "good")])
            .await
            .text()
            .ends_with("Hello.")
    );
    with_manifest(&fixture, "good", &manifest(json!([mcp(&url)]))).await;
    assert!(!server.received_requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_refused_while_dial_core_is_unreachable() {
    let url = format!("http://{}", dray_testkit::port::unassigned_address());
    let (server, tools_url) = tools().await;
    let origin = tools_url.clone();
    let fixture = beside_dial(url, |config| {
        config.permissions.dial.manifest_header.origins = vec![origin];
    })
    .await;
    let result = with_manifest(&fixture, "BOGUS", &manifest(json!([mcp(&tools_url)]))).await;
    assert_eq!(result.status, 503, "{result:?}");
    assert_eq!(chat(&fixture, &[("api-key", "BOGUS")]).await.status, 503);
    let starters = format!("{}/openai/deployments/agent/configuration", fixture.url);
    let starters = fixture.client.get(&starters).header("api-key", "BOGUS");
    assert_eq!(starters.send(&|_| ()).await.unwrap().status(), 503);
    assert_eq!(
        (server.received_requests().len(), fixture.asked().len()),
        (0, 0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_application_of_dial_reaches_no_internal_address_and_no_program() {
    let core = DialCore::start().await.unwrap();
    core.add_key("good", "bucket");
    let (server, url) = tools().await;
    let program = json!({"type": "mcp", "name": "s",
        "mcp_server_info": {"url": "stdio:notes", "protocol": "stdio"}});
    for (id, sets) in [("web", json!([mcp(&url)])), ("program", json!([program]))] {
        core.document(
            &format!("/openai/applications/{id}"),
            json!({"application_properties": manifest(sets)}),
        );
    }
    let fixture = beside_dial(core.url(), |_| {}).await;
    for id in ["web", "program"] {
        let headers = [("api-key", "good"), ("x-dial-application-id", id)];
        let result = chat(&fixture, &headers).await;
        assert_eq!(result.status, 403, "{result:?}");
    }
    assert_eq!(
        (server.received_requests().len(), fixture.asked().len()),
        (0, 0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_sees_and_uses_only_its_own_agents() {
    let fixture = TurnFixture::with(&manifest(json!([])), HELLO_SCRIPT, |config| {
        for name in ["alice", "bob"] {
            config.clients.insert(name.to_owned(), Secret::new(name));
        }
        let alice = config.permissions.clients.entry("alice".to_owned());
        alice.or_default().agents = Some(vec!["other".to_owned()]);
        config.default_manifest = Some("agent".to_owned());
    })
    .await;
    let ask = async |client: &str| {
        let url = format!("{}/v1/chat/completions", fixture.url);
        let request = fixture.client.post(&url);
        let request = request.header("authorization", &format!("Bearer {client}"));
        let body = json!({"model": "agent", "stream": true, "messages": [{"role": "user", "content": "x"}]});
        fixture.send(request.json(&body)).await.status
    };
    let models = async |client: &str| {
        let request = fixture.client.get(&format!("{}/v1/models", fixture.url));
        let request = request.header("authorization", &format!("Bearer {client}"));
        let answer = request.send(&|_| ()).await.unwrap();
        let list: Value = answer.json().await.unwrap();
        list["data"].as_array().unwrap().len()
    };
    assert_eq!((ask("alice").await, models("alice").await), (404, 0));
    assert_eq!(chat(&fixture, &[("api-key", "alice")]).await.status, 403);
    assert_eq!(fixture.asked().len(), 0);
    assert_eq!((ask("bob").await, models("bob").await), (200, 1));
    assert_eq!(chat(&fixture, &[("api-key", "bob")]).await.status, 200);
}
