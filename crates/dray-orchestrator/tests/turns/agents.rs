//! Tests of agents that call other agents: what they share, their permissions, and the limit of depth.

use dray_agent::approval::ApprovalRule;
use dray_orchestrator::Config;
use dray_orchestrator::config::permissions::CallerPermissions;
use dray_types::Secret;
use serde_json::{Value, json};

use crate::client_tools::{CountingEndpoint, user};
use crate::fixture::{ChatResult, TurnFixture, manifest, rest};
use crate::tools::FakeEndpoint;

/// The lead calls the helper, and the helper a tool of the shop.
const TEAM_SCRIPT: &str = r#"{"rules": [
    {"when": {"model": "help", "tool_result_of": "shop_a"}, "reply": {"say": "Found {result}.",
        "usage": {"prompt": 40, "completion": 10}}},
    {"when": {"model": "help"}, "reply": {"call": [{"name": "shop_a", "arguments": {"q": "deep"}}],
        "usage": {"prompt": 40, "completion": 10}}},
    {"when": {"model": "lead", "tool_result_of": "team_helper"}, "reply": {"say": "It says: {result}"}},
    {"when": {"model": "lead", "last_user_contains": "file"}, "reply": {"call": [
        {"name": "team_helper", "arguments": {"request": "read", "files": ["a.txt"]}}]}},
    {"reply": {"call": [{"name": "team_helper", "arguments": {"request": "look"}}]}}]}"#;

fn team(agents: &[&str]) -> Value {
    let agents: Vec<_> = agents.iter().map(|name| json!({"agent": name})).collect();
    json!({"type": "agents", "name": "team", "agents": agents})
}

fn helper(endpoint: &CountingEndpoint) -> Value {
    let mut helper = manifest(json!([rest(&endpoint.url(), &["a"]), team(&["agent"])]));
    helper["orchestrator"]["deployment"]["deployment_id"] = json!("help");
    helper
}

async fn fixture(helper: &Value, change: impl FnOnce(&mut Config)) -> TurnFixture {
    let lead = manifest(json!([team(&["helper"])]));
    TurnFixture::with(&lead, TEAM_SCRIPT, |config| {
        let directory = config.manifests.clone().unwrap();
        std::fs::write(directory.join("helper.json"), helper.to_string()).unwrap();
        change(config);
    })
    .await
}

/// The lead and its helper, with the usual settings.
pub(crate) async fn team_fixture(endpoint: &CountingEndpoint) -> TurnFixture {
    fixture(&helper(endpoint), |_| {}).await
}

fn stage_text(seen: &ChatResult, name: &str) -> String {
    let stages = seen.stages();
    let found = stages.iter().find(|stage| stage.0.starts_with(name));
    found.map(|stage| stage.1.clone()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_calls_another_with_its_own_model_and_tools() {
    let endpoint = CountingEndpoint::start().await;
    let fixture = fixture(&helper(&endpoint), |_| {}).await;
    let result = fixture.send_text("go").await;
    assert_eq!(
        result.text(),
        "It says: Found {\"own\":\"deep\"}.",
        "{result:?}"
    );
    assert_eq!(endpoint.called(), ["deep"]);
    let models: Vec<_> = fixture
        .asked()
        .iter()
        .map(|request| request["model"].clone())
        .collect();
    assert_eq!(models, ["lead", "help", "help", "lead"]);
    // The helper got only the request, and no tool of the lead.
    let request = &fixture.asked()[1];
    let messages_text = request["messages"].to_string();
    assert!(
        messages_text.contains("look") && !messages_text.contains("\"go\""),
        "{messages_text}"
    );
    // The stages of the helper are inside that of its call.
    let stage = stage_text(&result, "helper");
    assert!(
        stage.contains("#### a") && stage.contains("deep"),
        "{:?}",
        result.stages()
    );
    // The helper may not call the lead, and gets the reason.
    assert!(
        !request["tools"].to_string().contains("team_agent"),
        "{request}"
    );
    assert!(stage.contains("it would call itself"), "{stage}");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_passed_by_name_and_a_wrong_name_is_reported() {
    let endpoint = CountingEndpoint::start().await;
    let fixture = fixture(&helper(&endpoint), |_| {}).await;
    let files = json!({"attachments": [{"title": "a.txt", "type": "text/plain", "url": "https://files.example/a.txt"}]});
    let with = json!([{"role": "user", "content": "read the file", "custom_content": files}]);
    assert!(fixture.ask(with).await.text().starts_with("It says: Found"));
    let messages_text = fixture.asked()[1]["messages"].to_string();
    assert!(messages_text.contains("a.txt"), "{messages_text}");
    let result = fixture.send_text("read the file").await;
    assert!(
        result.text().contains("the conversation has no files"),
        "{result:?}"
    );
}

/// The title of the file that a large result of `shop_long` becomes.
async fn long_result_title(agent: &Value, script: &str) -> String {
    let seen = TurnFixture::plain(agent, script)
        .await
        .send_text("go")
        .await;
    let state = seen.state().to_string();
    let title = state.split('"').find(|text| text.contains("shop_long-"));
    title.unwrap_or_else(|| panic!("{state}")).to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_a_tool_made_in_the_same_turn_is_passed_to_an_agent() {
    let (endpoint, large) = (CountingEndpoint::start().await, FakeEndpoint::start().await);
    let lead = manifest(json!([rest(&large.url(), &["long"]), team(&["helper"])]));
    let long_call = json!({"reply": {"call": [{"name": "shop_long", "arguments": {}}]}});
    let alone = json!({"rules": [
        {"when": {"tool_result_of": "shop_long"}, "reply": {"say": "Long."}}, long_call]});
    // The name contains the digest of the content, so it is the same in the second turn.
    let title = long_result_title(&lead, &alone.to_string()).await;
    let passed = json!({"request": "look", "files": [title]});
    let script = json!({"rules": [
        {"when": {"model": "help"}, "reply": {"say": "Seen."}},
        {"when": {"tool_result_of": "team_helper"}, "reply": {"say": "It says: {result}"}},
        {"when": {"tool_result_of": "shop_long"},
         "reply": {"call": [{"name": "team_helper", "arguments": passed}]}},
        long_call]});
    let fixture = TurnFixture::with(&lead, &script.to_string(), |config| {
        let directory = config.manifests.clone().unwrap();
        let helper = helper(&endpoint).to_string();
        std::fs::write(directory.join("helper.json"), helper).unwrap();
    })
    .await;
    assert_eq!(fixture.send_text("go").await.text(), "It says: Seen.");
    let requests = fixture.asked();
    let request = requests.iter().find(|request| request["model"] == "help");
    let messages_text = request.unwrap()["messages"].to_string();
    assert!(messages_text.contains(&title), "{messages_text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_called_only_for_callers_that_may_use_it_and_to_a_depth() {
    let endpoint = CountingEndpoint::start().await;
    let config = |config: &mut Config| {
        config.clients = [("one", "k-1"), ("two", "k-2")]
            .map(|(name, key)| (name.to_owned(), Secret::new(key)))
            .into();
        let only = CallerPermissions {
            agents: Some(vec!["agent".to_owned()]),
            ..CallerPermissions::default()
        };
        config.permissions.clients = [("one".to_owned(), only)].into();
    };
    let fixture = fixture(&helper(&endpoint), config).await;
    let ask = |key: &'static str| {
        let body = json!({"model": "agent", "messages": [user("go")], "stream": true});
        let url = format!("{}/v1/chat/completions", fixture.url);
        let request = fixture
            .client
            .post(&url)
            .authorization("Bearer", &Secret::new(key));
        fixture.send(request.json(&body))
    };
    let refused = ask("k-1").await;
    assert!(
        stage_text(&refused, "Initialization").contains("not for the caller"),
        "{refused:?}"
    );
    assert_eq!(endpoint.called(), [""; 0]);
    assert!(ask("k-2").await.text().starts_with("It says: Found"));
    let shallow = self::fixture(&helper(&endpoint), |config| config.max_agent_depth = 0).await;
    let result = shallow.send_text("go").await;
    assert!(
        stage_text(&result, "Initialization").contains("at most 0 deep"),
        "{result:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_of_a_called_agent_counts_for_its_caller_and_its_calls_cannot_be_approved() {
    let endpoint = CountingEndpoint::start().await;
    let fixture = fixture(&helper(&endpoint), |config| {
        config.budgets.turn.limits.max_tokens = Some(90);
    })
    .await;
    let result = fixture.send_text("go").await;
    assert_eq!(result.reason(), "length", "{result:?}");
    assert!(
        result
            .text()
            .contains("budget of this turn is used up (90 tokens)"),
        "{result:?}"
    );
    let fixture = self::fixture(&helper(&endpoint), |config| {
        let rule = json!({"tools": ["shop_*"]});
        config.require_approval = vec![serde_json::from_value::<ApprovalRule>(rule).unwrap()];
    })
    .await;
    let before = endpoint.called().len();
    let result = fixture.send_text("go").await;
    assert!(
        result.text().contains("who cannot be asked here"),
        "{result:?}"
    );
    assert_eq!(endpoint.called().len(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_called_agent_ends_at_its_own_budget_and_its_caller_continues() {
    let endpoint = CountingEndpoint::start().await;
    let mut helper = helper(&endpoint);
    helper["budget"] = json!({"max_tokens": 50});
    let fixture = fixture(&helper, |_| {}).await;
    let result = fixture.send_text("go").await;
    let text = result.text();
    assert!(text.starts_with("It says:"), "{result:?}");
    assert!(text.contains("(50 tokens)"), "{result:?}");
    assert_eq!(result.reason(), "stop", "{result:?}");
    assert_eq!(endpoint.called(), ["deep"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_learns_that_the_answer_of_another_is_not_complete() {
    let script = r#"{"rules": [
        {"when": {"model": "help"}, "reply": {"say": "Half", "finish_reason": "length"}},
        {"when": {"tool_result_of": "team_helper"}, "reply": {"say": "It says: {result}"}},
        {"reply": {"call": [{"name": "team_helper", "arguments": {"request": "look"}}]}}]}"#;
    let mut helper = manifest(json!([]));
    helper["orchestrator"]["deployment"]["deployment_id"] = json!("help");
    let lead = manifest(json!([team(&["helper"])]));
    let fixture = TurnFixture::with(&lead, script, |config| {
        let directory = config.manifests.clone().unwrap();
        std::fs::write(directory.join("helper.json"), helper.to_string()).unwrap();
    })
    .await;
    let result = fixture.send_text("go").await;
    assert_eq!(
        result.text(),
        "It says: Half\n\n[The answer reached a limit and is not complete.]",
        "{result:?}"
    );
    assert_eq!(result.reason(), "stop");
}
