//! Turns on DIAL: manifest, metadata, keys and tools of Core.

use dray_agent::budget::{MoneyAmount, TokenPrice};
use dray_orchestrator::Config;
use dray_testkit::dial::DialCore;
use serde_json::{Value, json};

use crate::fixture::{ChatResult, TurnFixture, manifest};

const REQUEST_KEY: &str = "request-key";

pub(crate) struct DialFixture {
    pub(crate) core: DialCore,
    fixture: TurnFixture,
}

impl DialFixture {
    pub(crate) async fn new(manifest: &Value) -> Self {
        Self::with(manifest, |_| {}).await
    }

    /// Starts a fixture whose operator lets applications reach these origins.
    pub(crate) async fn with_origins(manifest: &Value, origins: Vec<String>) -> Self {
        Self::with(manifest, |config| {
            config.permissions.applications.origins = origins;
        })
        .await
    }

    /// Starts a fixture with a changed configuration.
    async fn with(manifest: &Value, change: impl FnOnce(&mut Config)) -> Self {
        let core = DialCore::start().await.unwrap();
        core.add_key(REQUEST_KEY, "bucket");
        core.document(
            "/openai/applications/my-app",
            json!({"application_properties": manifest}),
        );
        core.document("/openai/deployments/lead", json!({"display_name": "Lead"}));
        let url = core.url();
        let fixture = TurnFixture::with(manifest, r#"{"rules": []}"#, |config| {
            config.dial_url = Some(url);
            config.model_url = None;
            config.preview = true;
            change(config);
        })
        .await;
        Self { core, fixture }
    }

    async fn ask(&self, messages: Value) -> ChatResult {
        let url = format!(
            "{}/openai/deployments/quick_apps2/chat/completions",
            self.fixture.url
        );
        let request = self
            .fixture
            .client
            .post(&url)
            .header("api-key", REQUEST_KEY)
            .header("authorization", "Bearer token-1")
            .header("x-tenant", "t")
            .header("x-dial-application-id", "my-app")
            .json(&json!({"messages": messages, "stream": true}));
        self.fixture.send(request).await
    }

    pub(crate) async fn send_text(&self, text: &str) -> ChatResult {
        self.ask(json!([{"role": "user", "content": text}])).await
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "callers pass values that they have just made"
)]
fn chunk(delta: Value, reason: Value) -> Value {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})
}

pub(crate) fn text_chunks(text: &str) -> Vec<Value> {
    vec![
        chunk(json!({"role": "assistant"}), Value::Null),
        chunk(json!({"content": text}), Value::Null),
        chunk(json!({}), json!("stop")),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn manifest_metadata_and_model_come_from_core_with_the_caller_s_key() {
    let dial = DialFixture::new(&manifest(json!([]))).await;
    dial.core.chat("lead", text_chunks("Hello."));
    let answer = dial.send_text("x").await;
    assert_eq!(answer.text(), "\n\rHello.");
    let requests: Vec<_> = dial.core.received_requests();
    assert!(
        requests
            .iter()
            .all(|request| request.header("api-key") == REQUEST_KEY)
    );
    assert!(
        requests
            .iter()
            .all(|request| request.header("authorization") == "Bearer token-1")
    );
    let chat = requests
        .iter()
        .find(|request| request.target.contains("chat/completions"))
        .unwrap();
    assert!(
        chat.target.ends_with("api-version=2025-01-01-preview"),
        "{}",
        chat.target
    );
    assert_eq!(chat.header("x-tenant"), "t");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_a_key_gets_400() {
    let dial = DialFixture::new(&manifest(json!([]))).await;
    let url = format!(
        "{}/openai/deployments/quick_apps2/chat/completions",
        dial.fixture.url
    );
    let request = dial.fixture.client.post(&url);
    let request = request.json(&json!({"messages": [{"role": "user", "content": "x"}]}));
    let result = dial.fixture.send(request).await;
    assert_eq!(result.status, 400);
    assert_eq!(result.error()["message"], "Api-Key header is required");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unavailable_application_is_reported() {
    let dial = DialFixture::new(&manifest(json!([]))).await;
    let url = format!(
        "{}/openai/deployments/quick_apps2/chat/completions",
        dial.fixture.url
    );
    let request = dial
        .fixture
        .client
        .post(&url)
        .header("api-key", REQUEST_KEY)
        .header("x-dial-application-id", "other");
    let request = request.json(&json!({"messages": [{"role": "user", "content": "x"}]}));
    let result = dial.fixture.send(request).await;
    assert_eq!(result.status, 500);
    assert_eq!(result.error()["type"], "internal_server_error");
    let message = result.error()["message"].as_str().unwrap().to_owned();
    assert!(
        message.starts_with("Error while fetching application"),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn stages_attachments_and_state_of_the_model_are_passed_on_and_come_back() {
    let dial = DialFixture::new(&manifest(json!([]))).await;
    let custom = |content: Value| chunk(json!({"custom_content": content}), Value::Null);
    dial.core.chat(
        "lead",
        vec![
            custom(json!({"stages": [{"index": 0, "name": "Thinking", "status": null}]})),
            custom(json!({"stages": [{"index": 0, "content": "hard", "status": null}]})),
            custom(json!({"stages": [{"index": 0, "status": "completed"}]})),
            custom(json!({"attachments": [{"index": 0, "type": "image/png", "reference_url": "https://e/x.png"}]})),
            custom(json!({"state": {"memory": 7}})),
            chunk(json!({"content": "Done."}), Value::Null),
            chunk(json!({}), json!("stop")),
        ],
    );
    let first = dial.send_text("x").await;
    assert_eq!(
        first.stages(),
        [(
            "Thinking".to_owned(),
            "hard".to_owned(),
            "completed".to_owned()
        )]
    );
    assert_eq!(first.attachments()[0]["url"], "https://e/x.png");
    assert_eq!(first.state(), json!({"orchestrator_state": {"memory": 7}}));
    dial.core.chat("lead", text_chunks("Again."));
    let messages = json!([{"role": "user", "content": "x"}, first.message(), {"role": "user", "content": "y"}]);
    dial.ask(messages).await;
    let model_request = dial
        .core
        .bodies()
        .into_iter()
        .rfind(|(target, _)| target.contains("chat/completions"))
        .unwrap()
        .1;
    let back = model_request["messages"]
        .as_array()
        .unwrap()
        .iter()
        .find(|message| message["role"] == "assistant")
        .unwrap();
    assert_eq!(back["custom_content"]["state"], json!({"memory": 7}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_is_a_tool_whose_text_streams_into_its_stage() {
    let sets = json!([{"type": "dial-deployment", "name": "experts", "tools": [
        {"type": "dial-deployment-simple", "deployment_id": "lawyer"}]}]);
    let dial = DialFixture::new(&manifest(sets)).await;
    dial.core.document(
        "/openai/deployments/lawyer",
        json!({"display_name": "Lawyer", "description": "Knows law."}),
    );
    let call = json!({"tool_calls": [{"index": 0, "id": "c1", "type": "function",
        "function": {"name": "experts_lawyer_tool", "arguments": "{\"query\": \"Is it legal?\"}"}}]});
    dial.core.chat(
        "lead",
        vec![
            chunk(call, Value::Null),
            chunk(json!({}), json!("tool_calls")),
        ],
    );
    dial.core.chat("lawyer", text_chunks("It is."));
    dial.core.chat("lead", text_chunks("The lawyer agrees."));
    let result = dial.send_text("x").await;
    assert!(result.text().ends_with("The lawyer agrees."), "{result:?}");
    let stages = result.stages();
    assert!(stages[0].0.starts_with("Call Lawyer: "), "{stages:?}");
    assert!(stages[0].1.contains("It is."), "{stages:?}");
    assert_eq!(stages[0].2, "completed");
    assert_eq!(crate::tools::rounds(&result)[1]["content"], "It is.");
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_of_a_tool_by_a_model_without_a_price_costs_as_much_as_the_most_expensive_model() {
    let sets = json!([{"type": "dial-deployment", "name": "experts", "tools": [
        {"type": "dial-deployment-simple", "deployment_id": "lawyer"}]}]);
    let dial = DialFixture::with(&manifest(sets), |config| {
        let price = |output| TokenPrice {
            output: MoneyAmount::from_micros(output),
            ..TokenPrice::default()
        };
        config.budgets.turn.limits.max_cost = Some(MoneyAmount::from_micros(1_000_000));
        config.budgets.prices = [
            ("lead".to_owned(), price(1)),
            ("large".to_owned(), price(50_000_000_000)),
        ]
        .into();
    })
    .await;
    dial.core.document(
        "/openai/deployments/lawyer",
        json!({"display_name": "Lawyer"}),
    );
    let call = json!({"tool_calls": [{"index": 0, "id": "c1", "type": "function",
        "function": {"name": "experts_lawyer_tool", "arguments": "{\"query\": \"x\"}"}}]});
    dial.core.chat(
        "lead",
        vec![
            chunk(call, Value::Null),
            chunk(json!({}), json!("tool_calls")),
        ],
    );
    // Each token costs 0.05.
    let usage = json!({"choices": [], "statistics": {"usage_per_model": [
        {"index": 0, "model": "unknown", "prompt_tokens": 1, "completion_tokens": 20}]}});
    let mut answer = text_chunks("It is.");
    answer.push(usage);
    dial.core.chat("lawyer", answer);
    dial.core.chat("lead", text_chunks("The lawyer agrees."));
    let result = dial.send_text("x").await;
    assert!(result.text().contains("(a cost of 1)"), "{result:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unavailable_model_metadata_end_the_request() {
    for (status, outgoing) in [(401, 401), (403, 403), (500, 500)] {
        let dial = DialFixture::new(&manifest(json!([]))).await;
        let fault = dray_testkit::dial::ApiFault::Status(status);
        dial.core
            .inject_fault("/openai/deployments/lead", Some(fault));
        let result = dial.send_text("x").await;
        assert_eq!(result.status, outgoing, "{result:?}");
        assert!(result.error()["display_message"].is_string());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn static_tools_of_the_model_are_sent_and_never_run() {
    let dial = DialFixture::new(&manifest(json!([]))).await;
    let tool = json!({"type": "static_function", "static_function": {"name": "search", "configuration": {"deep": true}}});
    dial.core.document(
        "/openai/deployments/lead",
        json!({"display_name": "Lead", "defaults": {"tools": [tool, {"type": "static_function"}]}}),
    );
    dial.core.chat("lead", text_chunks("Hi."));
    dial.send_text("x").await;
    let model_request = dial
        .core
        .bodies()
        .into_iter()
        .rfind(|(target, _)| target.contains("chat/completions"))
        .unwrap()
        .1;
    let statics: Vec<_> = model_request["tools"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|tool| tool["type"] == "static_function")
        .collect();
    assert_eq!(statics, [&tool]);
}

#[tokio::test(flavor = "multi_thread")]
async fn skills_come_from_prompts_and_those_that_are_not_there_are_reported() {
    let mut manifest = manifest(json!([]));
    manifest["skills"] = json!([
        {"type": "dial-prompt", "url": "prompts/bucket/tone"}, {"type": "dial-prompt", "url": "prompts/bucket/gone"}]);
    let dial = DialFixture::new(&manifest).await;
    let skill = "---\nname: tone\ndescription: How we speak.\n---\nBe kind.";
    dial.core
        .document("/v1/prompts/bucket/tone", json!({"content": skill}));
    let call = json!({"tool_calls": [{"index": 0, "id": "c1", "type": "function",
        "function": {"name": "internal_skills_read_skill", "arguments": "{\"skill_name\": \"tone\"}"}}]});
    dial.core.chat(
        "lead",
        vec![
            chunk(call, Value::Null),
            chunk(json!({}), json!("tool_calls")),
        ],
    );
    dial.core.chat("lead", text_chunks("Gladly."));
    let result = dial.send_text("x").await;
    assert!(result.text().ends_with("Gladly."), "{result:?}");
    let issues = &result.stages()[0];
    assert_eq!(
        (issues.1.as_str(), issues.2.as_str()),
        (
            "#### Skill loading\n> Errors:\n- **prompts/bucket/gone**: DIAL prompt not found",
            "completed"
        )
    );
    let bodies = dial.core.bodies();
    let mut chats = bodies
        .iter()
        .filter(|(target, _)| target.contains("chat/completions"));
    let system = chats.next().unwrap().1["messages"][0].to_string();
    assert!(
        system.contains("tone") && system.contains("How we speak."),
        "{system}"
    );
    assert!(!system.contains("Be kind."), "{system}");
    let read = crate::tools::rounds(&result);
    assert!(
        read[1]["content"].as_str().unwrap().contains("Be kind."),
        "{read:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_the_model_requests_is_returned_with_the_result_of_a_call_when_files_are_lazy()
{
    let mut manifest = manifest(json!([]));
    manifest["orchestrator"]["attachment_strategy"] = json!({"type": "lazy_on_demand"});
    let dial = DialFixture::new(&manifest).await;
    dial.core.put("bucket/a.pdf", "%PDF-1.7", "application/pdf");
    dial.core.document(
        "/openai/deployments/lead",
        json!({"display_name": "Lead", "input_attachment_types": ["application/pdf"]}),
    );
    dial.core.chat("lead", text_chunks("Seen."));
    let attachments = json!([
        {"type": "application/pdf", "title": "a.pdf", "url": "files/bucket/a.pdf"},
        {"type": "text/csv", "title": "b.csv", "url": "files/bucket/b.csv"},
    ]);
    let result = dial
        .ask(json!([{"role": "user", "content": "x", "custom_content": {"attachments": attachments}}]))
        .await;
    assert_eq!(result.text(), "\n\rSeen.");
    let model_request = dial.core.bodies().into_iter();
    let model_request = model_request
        .rev()
        .find(|(target, _)| target.contains("chat/completions"));
    let messages = model_request.unwrap().1["messages"].clone();
    let inline: Vec<_> = messages
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|message| {
            let files = message["custom_content"]["attachments"].as_array();
            let role = message["role"].as_str().unwrap().to_owned();
            let files = files.cloned().unwrap_or_default().into_iter();
            files.map(move |file| (role.clone(), file["url"].as_str().unwrap().to_owned()))
        })
        .collect();
    assert_eq!(
        inline,
        [("tool".to_owned(), "files/bucket/a.pdf".to_owned())],
        "{messages}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn starters_of_the_application_are_its_configuration() {
    let mut manifest = manifest(json!([]));
    manifest["conversation_starters"] =
        json!({"starters": [{"title": "Orders", "text": "Show my orders."}]});
    let dial = DialFixture::new(&manifest).await;
    let url = format!(
        "{}/openai/deployments/quick_apps2/configuration",
        dial.fixture.url
    );
    let request = dial.fixture.client.get(&url).header("api-key", REQUEST_KEY);
    let request = request.header("x-dial-application-id", "my-app");
    let answer = request.send(&|_| ()).await.unwrap();
    assert_eq!(answer.status(), 200);
    let schema: Value = answer.json().await.unwrap();
    let starter = &schema["properties"]["starter"];
    assert_eq!(starter["description"], "Select an action");
    assert_eq!(starter["oneOf"][0]["const"], 1);
    assert_eq!(starter["oneOf"][0]["title"], "Orders");
    assert_eq!(
        starter["oneOf"][0]["dial:widgetOptions"],
        json!({"populateText": "Show my orders.", "submit": true})
    );
    assert_eq!(schema["dial:chatMessageInputDisabled"], false);
}

/// The files that the newest request to the model names: the last segment of each address, and its status.
fn named_files(dial: &DialFixture) -> Vec<(String, Value)> {
    let bodies = dial.core.bodies();
    let model_request = bodies
        .iter()
        .rfind(|(target, _)| target.contains("chat/completions"));
    let messages = model_request.unwrap().1["messages"].as_array().unwrap();
    let result = messages.iter().rfind(|message| message["role"] == "tool");
    let result = result.unwrap()["content"].as_str().unwrap();
    let notice: Value = serde_json::from_str(result).unwrap();
    let entries = notice["entries"].as_array().unwrap().iter();
    let named = entries.map(|entry| {
        let url = entry["url"].as_str().unwrap();
        let name = url.strip_prefix("files/bucket/my%20dir/").unwrap();
        (name.to_owned(), entry["status"].clone())
    });
    named.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_of_a_directory_reach_the_model_with_what_changed_since_the_last_turn() {
    let mut manifest = manifest(json!([]));
    // These URLs are not in the canonical spelling of DIAL.
    manifest["contexts"] = json!([
        {"type": "folder", "url": "/files/bucket/my dir/", "description": "Reports", "max_depth": 2},
        {"type": "file", "url": "files/bucket/my%20dir/b.txt", "description": "Its own"},
    ]);
    let dial = DialFixture::new(&manifest).await;
    for path in [
        "my dir/a a.txt",
        "my dir/b.txt",
        "my dir/in/c.txt",
        "other.txt",
    ] {
        dial.core.put(format!("bucket/{path}"), "x", "text/plain");
    }
    dial.core.chat("lead", text_chunks("One."));
    let first = dial.send_text("x").await;
    assert_eq!(first.text(), "\n\rOne.");
    let is_new = |name: &str| (name.to_owned(), json!("new"));
    let names = ["a%20a.txt", "in/c.txt", "b.txt"];
    assert_eq!(named_files(&dial), names.map(is_new));
    // One file is added between the turns.
    dial.core.put("bucket/my dir/d.txt", "x", "text/plain");
    dial.core.chat("lead", text_chunks("Two."));
    let messages = json!([{"role": "user", "content": "x"}, first.message(), {"role": "user", "content": "y"}]);
    let second = dial.ask(messages).await;
    assert_eq!(second.text(), "\n\rTwo.");
    let known = |name: &str| (name.to_owned(), Value::Null);
    let changed = [
        known("a%20a.txt"),
        is_new("d.txt"),
        known("in/c.txt"),
        known("b.txt"),
    ];
    assert_eq!(named_files(&dial), changed);
    assert!(
        dial.core
            .received_requests()
            .iter()
            .filter(|request| request.target.contains("/metadata/"))
            .all(|request| request.header("api-key") == REQUEST_KEY)
    );
}
