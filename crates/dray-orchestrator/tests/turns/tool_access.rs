//! Tests of tools that only some callers may use, and of large sets of tools that the model searches.

use dray_orchestrator::Config;
use dray_orchestrator::config::permissions::CallerPermissions;
use dray_testkit::dial::DialCore;
use dray_types::Secret;
use serde_json::{Value, json};

use crate::client_tools::{CountingEndpoint, kept, tool_result, user};
use crate::fixture::{ChatResult, TurnFixture, manifest, rest};
use crate::responses::create;

/// The model calls `shop_b` in any case.
const CALLING_SCRIPT: &str = r#"{"rules": [
    {"when": {"tool_result_of": "shop_b"}, "reply": {"say": "Got {result}."}},
    {"reply": {"call": [{"name": "shop_b", "arguments": {"q": "1"}}]}}]}"#;

fn configure_portal(config: &mut Config, access: Value) {
    config.preview = true;
    config.clients = [("portal", "k-1"), ("batch", "k-2")]
        .map(|(name, key)| (name.to_owned(), Secret::new(key)))
        .into();
    let users = CallerPermissions {
        user_header: Some("X-Portal-User".to_owned()),
        groups_header: Some("X-Portal-Groups".to_owned()),
        ..CallerPermissions::default()
    };
    config.permissions.clients = [("portal".to_owned(), users)].into();
    config.tool_access = serde_json::from_value(access).unwrap();
}

async fn ask_as(fixture: &TurnFixture, key: &'static str, headers: &[(&str, &str)]) -> ChatResult {
    let body = json!({"model": "agent", "messages": [user("go")], "stream": true});
    let url = format!("{}/v1/chat/completions", fixture.url);
    let mut request = fixture
        .client
        .post(&url)
        .authorization("Bearer", &Secret::new(key));
    for (name, value) in headers {
        request = request.header(name, value);
    }
    fixture.send(request.json(&body)).await
}

fn tool_names(asked: &Value) -> Vec<String> {
    let tools = asked["tools"].as_array().cloned().unwrap_or_default();
    let name = |tool: &Value| tool["function"]["name"].as_str().unwrap().to_owned();
    tools.iter().map(name).collect()
}

fn last_asked(fixture: &TurnFixture) -> Value {
    fixture.asked().pop().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_of_others_is_neither_shown_nor_called_nor_its_server_reached() {
    let (endpoint, server) = (
        CountingEndpoint::start().await,
        CountingEndpoint::start().await,
    );
    let mut agent = manifest(json!([
        rest(&endpoint.url(), &["a", "b", "c"]),
        {"type": "mcp", "name": "bank", "mcp_server_info": {"url": server.url(), "protocol": "streamable_http"}},
    ]));
    agent["hooks"] = json!([{"type": "tool", "event": "on_request_start", "tool": "shop_c"}]);
    let access = json!([
        {"tools": ["shop_b", "shop_c"], "groups": ["finance"]},
        {"tool_sets": ["bank"], "callers": ["client:batch"]},
    ]);
    let fixture = TurnFixture::with(&agent, CALLING_SCRIPT, |config| {
        configure_portal(config, access);
    })
    .await;
    let of_finance = [
        ("x-portal-user", "ann"),
        ("x-portal-groups", "staff, finance"),
    ];
    let result = ask_as(&fixture, "k-1", &of_finance).await;
    assert_eq!(result.text(), "Got {\"own\":\"1\"}.", "{result:?}");
    // The endpoint is called once for the hook, and once for the model.
    assert_eq!(endpoint.called(), ["", "1"]);
    assert!(tool_names(&last_asked(&fixture)).contains(&"shop_b".to_owned()));
    // The tool is hidden from all other callers, and from those whose groups are not known for certain.
    for (key, headers) in [
        ("k-1", &[("x-portal-groups", "staff")][..]),
        (
            "k-1",
            &[("x-portal-groups", "finance"), ("x-portal-groups", "staff")],
        ),
        ("k-1", &[]),
        ("k-2", &of_finance),
    ] {
        let result = ask_as(&fixture, key, headers).await;
        assert!(result.text().contains("shop_b"), "{result:?}");
        assert!(!result.text().contains("own"), "{headers:?}: {result:?}");
        let names = tool_names(&last_asked(&fixture));
        assert!(names.contains(&"shop_a".to_owned()), "{names:?}");
        assert!(!names.contains(&"shop_b".to_owned()), "{names:?}");
    }
    assert_eq!(endpoint.called().len(), 2);
    // The server of the set was reached for the one caller that may use it.
    assert!(!server.called().is_empty());
    let before = server.called().len();
    ask_as(&fixture, "k-1", &of_finance).await;
    assert_eq!(server.called().len(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_and_claims_of_dial_decide_and_a_core_that_fails_permits_nothing() {
    let endpoint = CountingEndpoint::start().await;
    let core = DialCore::start().await.unwrap();
    for key in ["key", "key-2", "key-3"] {
        core.add_key(key, "bucket-ann");
    }
    core.document(
        "/v1/user/info",
        json!({"roles": ["admin"], "userClaims": {"title": ["cfo"]}}),
    );
    let url = core.url();
    let access = json!([{"tools": ["shop_b"], "users": ["bucket-ann"], "groups": ["admin"], "claims": {"title": ["cfo"]}}]);
    let agent = manifest(json!([rest(&endpoint.url(), &["b"])]));
    let fixture = TurnFixture::with(&agent, CALLING_SCRIPT, |config| {
        config.dial_url = Some(url);
        config.tool_access = serde_json::from_value(access).unwrap();
    })
    .await;
    let ask = |key: &'static str| {
        let url = format!("{}/openai/deployments/agent/chat/completions", fixture.url);
        let request = fixture.client.post(&url).header("api-key", key);
        fixture.send(request.json(&json!({"messages": [user("go")], "stream": true})))
    };
    let result = ask("key").await;
    assert!(result.text().contains("Got {\"own\":\"1\"}."), "{result:?}");
    core.document(
        "/v1/user/info",
        json!({"roles": ["admin"], "userClaims": {"title": ["clerk"]}}),
    );
    assert!(!ask("key-2").await.text().contains("own"));
    core.document("/v1/user/info", json!("not an object"));
    assert!(!ask("key-3").await.text().contains("own"));
    assert_eq!(endpoint.called(), ["1"]);
    // The user of the first key is cached, and a failure is not.
    for key in ["key", "key-3"] {
        ask(key).await;
    }
    let requests = core.received_requests();
    let looked_up = requests
        .iter()
        .filter(|request| request.target == "/v1/user/info");
    let keys: Vec<_> = looked_up.map(|request| request.header("api-key")).collect();
    assert_eq!(keys, ["key", "key-2", "key-3", "key-3"]);
    assert_eq!(endpoint.called(), ["1", "1"]);
}

/// The model searches, and calls what it found through the other tool.
const SEARCHING_SCRIPT: &str = r#"{"rules": [
    {"when": {"tool_result_of": "call_tool", "last_user_contains": "unknown"}, "reply": {"say": "Told: {result}"}},
    {"when": {"tool_result_of": "call_tool"}, "reply": {"say": "Got {result}."}},
    {"when": {"last_user_contains": "unknown"}, "reply": {"call": [{"name": "call_tool", "arguments": {"name": "shop_z", "arguments": {}}}]}},
    {"when": {"tool_result_of": "search_tools"}, "reply": {"call": [
        {"name": "call_tool", "arguments": {"name": "shop_tool_7", "arguments": {"q": "7"}}}]}},
    {"reply": {"call": [{"name": "search_tools", "arguments": {"query": "tool 7", "limit": 1}}]}}]}"#;

fn large_shop(endpoint: &CountingEndpoint) -> Value {
    let paths: Vec<_> = (0..30).map(|number| format!("tool_{number}")).collect();
    let paths: Vec<_> = paths.iter().map(String::as_str).collect();
    let mut agent = manifest(json!([rest(&endpoint.url(), &paths)]));
    agent["features"]["tool_search"] = json!({"threshold": 20, "always_loaded": ["shop_tool_0"]});
    agent
}

#[tokio::test(flavor = "multi_thread")]
async fn the_model_searches_many_tools_and_the_prompt_keeps_its_beginning() {
    let endpoint = CountingEndpoint::start().await;
    let fixture = TurnFixture::plain(&large_shop(&endpoint), SEARCHING_SCRIPT).await;
    let chat_result = fixture.send_text("go").await;
    assert_eq!(
        chat_result.text(),
        "Got {\"own\":\"7\"}.",
        "{chat_result:?}"
    );
    assert_eq!(endpoint.called(), ["7"]);
    let requests = fixture.asked();
    let names = tool_names(&requests[0]);
    for name in ["search_tools", "call_tool", "shop_tool_0"] {
        assert!(names.contains(&name.to_owned()), "{names:?}");
    }
    assert_eq!(
        names
            .iter()
            .filter(|name| name.starts_with("shop_"))
            .count(),
        1
    );
    assert!(
        requests[0]["tools"].to_string().contains("shop (29)"),
        "{}",
        requests[0]["tools"]
    );
    let result = requests[1]["messages"].to_string();
    assert!(
        result.contains("shop_tool_7") && result.contains("parameters"),
        "{result}"
    );
    // A search does not change the beginning: the tools are the same, and each prompt begins with the one before.
    let (_, next) = (
        chat_result.message(),
        fixture
            .ask(json!([user("go"), chat_result.message(), user("unknown")]))
            .await,
    );
    assert!(
        next.text().contains("There is no tool 'shop_z'"),
        "{next:?}"
    );
    let requests = fixture.asked();
    for pair in requests.windows(2) {
        assert_eq!(pair[0]["tools"], pair[1]["tools"]);
        let (before, after) = (
            pair[0]["messages"].as_array().unwrap(),
            pair[1]["messages"].as_array().unwrap(),
        );
        assert_eq!(before[..], after[..before.len()]);
    }
    // Stages and records have the tool itself.
    let stages = chat_result.stages();
    assert!(
        stages.iter().any(|stage| stage.0.starts_with("tool_7")),
        "{stages:?}"
    );
    // A few tools are declared as they are.
    let few = manifest(json!([rest(&endpoint.url(), &["a"])]));
    let fixture = TurnFixture::plain(&few, SEARCHING_SCRIPT).await;
    fixture.send_text("unknown").await;
    assert!(!tool_names(&last_asked(&fixture)).contains(&"search_tools".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_was_found_needs_its_approval_and_stays_out_of_reach_for_others() {
    let endpoint = CountingEndpoint::start().await;
    let mut agent = large_shop(&endpoint);
    agent["require_approval"] = json!([{"tools": ["shop_tool_7"]}]);
    let fixture = TurnFixture::plain(&agent, SEARCHING_SCRIPT).await;
    let question = fixture.send_text("go").await;
    assert!(question.text().contains("`shop_tool_7`"), "{question:?}");
    assert_eq!(endpoint.called(), [""; 0]);
    let assistant_message = json!({"role": "assistant", "content": question.text()});
    let second_result = fixture
        .ask(json!([user("go"), assistant_message, user("yes")]))
        .await;
    assert_eq!(
        second_result.text(),
        "Got {\"own\":\"7\"}.",
        "{second_result:?}"
    );
    let (_, requests) = create(&fixture, &json!({"input": "go"})).await;
    let output = requests["output"].as_array().unwrap();
    let request = output
        .iter()
        .find(|item| item["type"] == "mcp_approval_request");
    assert_eq!(request.unwrap()["name"], "shop_tool_7", "{requests}");
    // A tool of others is not found either.
    let access = json!([{"tools": ["shop_tool_7"], "callers": ["client:batch"]}]);
    let fixture = TurnFixture::with(&large_shop(&endpoint), SEARCHING_SCRIPT, |config| {
        configure_portal(config, access);
    })
    .await;
    let before = endpoint.called().len();
    let chat_result = ask_as(&fixture, "k-1", &[]).await;
    assert!(
        chat_result
            .text()
            .contains("There is no tool 'shop_tool_7'"),
        "{chat_result:?}"
    );
    let requests = fixture.asked();
    let result = requests[1]["messages"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()
        .to_string();
    assert!(!result.contains("\\\"shop_tool_7\\\""), "{result}");
    assert_eq!(endpoint.called().len(), before);
    assert_eq!(
        ask_as(&fixture, "k-2", &[]).await.text(),
        "Got {\"own\":\"7\"}."
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_of_a_client_that_do_not_fit_beside_the_others_are_searched() {
    let endpoint = CountingEndpoint::start().await;
    let script = r#"{"rules": [
        {"when": {"tool_result_of": "call_tool"}, "reply": {"say": "Got {result}."}},
        {"when": {"tool_result_of": "search_tools"}, "reply": {"call": [
            {"name": "call_tool", "arguments": {"name": "page_7", "arguments": {"q": "7"}}}]}},
        {"reply": {"call": [{"name": "search_tools", "arguments": {"query": "page 7", "limit": 1}}]}}]}"#;
    let agent = manifest(json!([rest(&endpoint.url(), &["a"])]));
    let fixture = TurnFixture::plain(&agent, script).await;
    let named =
        |number: usize| json!({"type": "function", "function": {"name": format!("page_{number}")}});
    let tools: Vec<_> = (0..128).map(named).collect();
    let first = fixture
        .chat(json!({"messages": [user("go")], "tools": tools}))
        .await;
    let calls = first.calls();
    assert_eq!(calls.len(), 1, "{first:?}");
    let function = json!({"name": "page_7", "arguments": r#"{"q":"7"}"#});
    assert_eq!(calls[0]["function"], function);
    let messages = json!([user("go"), kept(&first), tool_result(&calls[0], "opened")]);
    let second = fixture
        .chat(json!({"messages": messages, "tools": tools}))
        .await;
    // The model sees its call of `call_tool`, although the client has the call of its own tool.
    assert_eq!(second.text(), "Got opened.", "{second:?}");
    fixture
        .chat(json!({"messages": [user("go")], "tools": tools, "tool_choice": named(0)}))
        .await;
    let requests = fixture.asked();
    for (request, has_chosen) in [(&requests[0], false), (&requests[3], true)] {
        let names = tool_names(request);
        assert!(names.len() <= 128, "{names:?}");
        assert!(names.contains(&"search_tools".to_owned()), "{names:?}");
        assert_eq!(names.contains(&"page_0".to_owned()), has_chosen);
        assert!(!names.contains(&"page_7".to_owned()), "{names:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_are_not_searched_when_a_client_has_a_tool_of_that_name() {
    let endpoint = CountingEndpoint::start().await;
    let agent = manifest(json!([rest(&endpoint.url(), &["a"])]));
    let script = r#"{"rules": [{"reply": {"say": "Done."}}]}"#;
    let fixture = TurnFixture::plain(&agent, script).await;
    let named = |name: &str| json!({"type": "function", "function": {"name": name}});
    let others = (1..128).map(|number| named(&format!("page_{number}")));
    let tools: Vec<_> = others.chain([named("search_tools")]).collect();
    let result = fixture
        .chat(json!({"messages": [user("go")], "tools": tools}))
        .await;
    assert_eq!(result.text(), "Done.", "{result:?}");
    let names = tool_names(&fixture.asked()[0]);
    assert!(names.contains(&"page_7".to_owned()), "{names:?}");
    assert!(!names.contains(&"call_tool".to_owned()), "{names:?}");
}
