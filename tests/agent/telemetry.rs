//! Tests that one turn is one trace, from the client's request to the work of another service for a tool.

use std::collections::BTreeMap;
use std::sync::Arc;

use dray_http::fake_server::{self, ConnectionClosed, FakeServer, ReceivedRequest, SharedState};
use dray_testkit::eventually;
use dray_testkit::otlp::{ReceivedSpan, SpanCollector};
use futures_util::FutureExt as _;
use serde_json::{Value, json};

use super::chat_answer::AgentAnswer;
use super::fixture::{AgentFixture, AgentSetup, DIAL_KEY, user};
use super::process::ServiceProcess;
use super::rest_endpoint::order_tool_set;

pub(super) const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
pub(super) const CLIENT_SPAN: &str = "00f067aa0ba902b7";

/// An endpoint that records the `traceparent` of each request, and the tool set that calls it.
pub(super) async fn tracing_shop() -> (FakeServer<Vec<String>>, Value) {
    let server = FakeServer::start(
        Vec::new(),
        |shared: Arc<SharedState<Vec<String>>>, received: ReceivedRequest| {
            let parent = received
                .header("traceparent")
                .unwrap_or_default()
                .to_owned();
            async move {
                shared.lock().push(parent);
                Ok::<_, ConnectionClosed>(fake_server::json_reply(200, &json!({"ordered": true})))
            }
            .boxed()
        },
    );
    let server = server.await.unwrap();
    let tools = order_tool_set(&server.shared().url(), "get");
    (server, tools)
}

/// The names of the spans from this one up to the root.
fn path_to_root(spans: &BTreeMap<String, ReceivedSpan>, span: &ReceivedSpan) -> Vec<String> {
    let above = std::iter::successors(Some(span), |span| spans.get(&span.parent_id));
    above.map(|span| span.name.clone()).collect()
}

fn find<'a>(spans: &'a BTreeMap<String, ReceivedSpan>, name: &str) -> Vec<&'a ReceivedSpan> {
    let mut found: Vec<_> = spans.values().filter(|span| span.name == name).collect();
    found.sort_by_key(|span| span.attributes.get("gen_ai.usage.input_tokens").cloned());
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_one_trace_from_the_request_of_the_client_to_the_service_behind_a_tool() {
    let collector = SpanCollector::start().await.unwrap();
    let (shop, tools) = tracing_shop().await;
    let rules = json!([
        {"when": {"tool_result_of": "shop_order"},
         "reply": {"say": "Done.", "usage": {"prompt": 300, "completion": 7}}},
        {"when": {"tool_result_of": "read_files"},
         "reply": {"call": [{"name": "shop_order", "arguments": {}}], "usage": {"prompt": 200, "completion": 5}}},
        {"reply": {"call": [{"name": "read_files", "arguments": {"ids": ["a1-0"]}}],
                   "usage": {"prompt": 100, "completion": 3}}},
    ]);
    let setup = AgentSetup::new(json!([tools]), rules)
        .distributed()
        .without("file-resolver")
        .without("orchestrator");
    let fixture = setup.start().await;
    let export = ("telemetry.otlp_endpoint", collector.url());
    let resolver = fixture
        .process("file-resolver", std::slice::from_ref(&export))
        .await;
    let price = ("orchestrator.budgets.prices.lead.input", "2.5".to_owned());
    let agent = fixture.process("orchestrator", &[export, price]).await;
    ask_for_an_order(&fixture, &agent).await;

    let spans = spans_of_both(&collector).await;
    let root = "POST /v1/chat/completions";
    let turn = find(&spans, "invoke_agent agent");
    assert_eq!(turn.len(), 1);
    assert_eq!(path_to_root(&spans, turn[0]), ["invoke_agent agent", root]);
    check_attributes(&spans, turn[0]);

    check_chats(&spans, &fixture);
    let order = find(&spans, "execute_tool shop_order");
    assert_eq!(
        path_to_root(&spans, order[0]),
        ["execute_tool shop_order", "invoke_agent agent", root]
    );
    let parents = shop.shared().lock().clone();
    assert_eq!(parents, [format!("00-{TRACE_ID}-{}-01", order[0].span_id)]);

    check_metrics(&fixture.metrics_of(&agent).await);
    drop((resolver, agent));
    fixture.stop().await;
}

/// Sends a chat request with its own trace and an attachment.
async fn ask_for_an_order(fixture: &AgentFixture, agent: &ServiceProcess) {
    let note =
        json!({"type": "text/plain", "title": "n.txt", "url": "data:text/plain;base64,aGVsbG8="});
    let question =
        json!({"role": "user", "content": "Order.", "custom_content": {"attachments": [note]}});
    let body = json!({"model": "agent", "messages": [question], "stream": true, "max_completion_tokens": 500});
    let request = fixture
        .post_to(agent, "/v1/chat/completions")
        .header("traceparent", &format!("00-{TRACE_ID}-{CLIENT_SPAN}-01"))
        .json(&body);
    let answer = AgentAnswer::of(request).await;
    assert!(answer.text().ends_with("Done."), "{answer:?}");
}

/// Whether this is a span of the file-resolver below the span of the tool that reads.
fn is_below_tool(spans: &BTreeMap<String, ReceivedSpan>, span: &ReceivedSpan) -> bool {
    let service = span.attributes.get("service").map(String::as_str);
    service == Some("file-resolver")
        && path_to_root(spans, span).contains(&"execute_tool read_files".to_owned())
}

/// The spans of the trace, once they are one tree with the turn and the work of the other service in it.
async fn spans_of_both(collector: &SpanCollector) -> BTreeMap<String, ReceivedSpan> {
    eventually("the spans of both services", async || {
        let spans = collector.trace(TRACE_ID);
        let spans: BTreeMap<_, _> = spans
            .into_iter()
            .map(|span| (span.span_id.clone(), span))
            .collect();
        // The processes export on their own, so a parent may arrive after its child.
        let is_connected = spans
            .values()
            .all(|span| spans.contains_key(&span.parent_id) || span.parent_id == CLIENT_SPAN);
        let has_turn = !find(&spans, "POST /v1/chat/completions").is_empty();
        let is_whole =
            is_connected && has_turn && spans.values().any(|span| is_below_tool(&spans, span));
        is_whole.then_some(spans)
    })
    .await
}

/// Checks that each call of the model is a span below the turn, and that the model got this span as its parent.
fn check_chats(spans: &BTreeMap<String, ReceivedSpan>, fixture: &AgentFixture) {
    let chats = find(spans, "chat lead");
    assert_eq!(chats.len(), 3);
    let requests = fixture.model.received_requests();
    for (chat, request) in chats.iter().zip(requests) {
        assert_eq!(
            path_to_root(spans, chat),
            [
                "chat lead",
                "invoke_agent agent",
                "POST /v1/chat/completions"
            ]
        );
        let parent = request
            .headers
            .get("traceparent")
            .unwrap()
            .to_str()
            .unwrap();
        assert_eq!(parent, format!("00-{TRACE_ID}-{}-01", chat.span_id));
        assert_eq!(chat.attributes["gen_ai.request.max_tokens"], "500");
    }
}

/// Checks the attributes that OpenTelemetry's conventions for generative AI require, and that no span has contents.
fn check_attributes(spans: &BTreeMap<String, ReceivedSpan>, turn: &ReceivedSpan) {
    let text =
        |span: &ReceivedSpan, name: &str| span.attributes.get(name).cloned().unwrap_or_default();
    for (name, expected) in [
        ("gen_ai.operation.name", "invoke_agent"),
        ("gen_ai.agent.name", "agent"),
        ("gen_ai.request.model", "lead"),
        ("gen_ai.usage.input_tokens", "600"),
        ("gen_ai.usage.output_tokens", "15"),
        ("gen_ai.response.finish_reasons", "stop"),
    ] {
        assert_eq!(text(turn, name), expected, "{name}");
    }
    assert!(text(turn, "gen_ai.conversation.id").starts_with("first/"));
    let chat = find(spans, "chat lead")[0];
    for (name, expected) in [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.provider.name", "openai"),
        ("gen_ai.request.model", "lead"),
        ("gen_ai.usage.input_tokens", "100"),
        ("gen_ai.usage.output_tokens", "3"),
        ("gen_ai.response.finish_reasons", "tool_calls"),
    ] {
        assert_eq!(text(chat, name), expected, "{name}");
    }
    let tool = find(spans, "execute_tool read_files")[0];
    assert_eq!(text(tool, "gen_ai.tool.name"), "read_files");
    assert!(!text(tool, "gen_ai.tool.call.id").is_empty());
    let contents = [
        "gen_ai.input.messages",
        "gen_ai.output.messages",
        "gen_ai.tool.call.arguments",
        "gen_ai.tool.call.result",
    ];
    for span in spans.values() {
        let content = contents
            .iter()
            .find(|name| span.attributes.contains_key(**name));
        assert_eq!(content, None, "contents were not requested: {span:?}");
    }
}

/// Checks tokens and cost by agent and client, and the metrics that the conventions define for calls of the model.
fn check_metrics(page: &str) {
    let value = |name: &str, labels: &[&str]| {
        let mut lines = page.lines().filter(|line| line.starts_with(name));
        let line = lines.find(|line| labels.iter().all(|label| line.contains(label)));
        let line = line.unwrap_or_else(|| panic!("no {name} with {labels:?}: {page}"));
        line.rsplit(' ').next().unwrap().to_owned()
    };
    let agent_and_client = ["agent=\"agent\"", "client=\"local\""];
    let input = [agent_and_client[0], agent_and_client[1], "type=\"input\""];
    assert_eq!(value("dray_chat_tokens_total{", &input), "600");
    assert_eq!(value("dray_chat_cost_total{", &agent_and_client), "0.0015");
    let model = [
        "gen_ai_request_model=\"lead\"",
        "gen_ai_operation_name=\"chat\"",
    ];
    let calls = "dray_gen_ai_client_operation_duration_seconds_count{";
    assert_eq!(value(calls, &model), "3");
    let output = [model[0], "gen_ai_token_type=\"output\""];
    assert_eq!(
        value("dray_gen_ai_client_token_usage_tokens_sum{", &output),
        "15"
    );
    let turns = "dray_chat_turn_duration_seconds_bucket{";
    assert_eq!(value(turns, &["le=\"3600\""]), "1");
    // The bounds begin far below the seconds of a usual turn.
    value(turns, &["le=\"0.1\""]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_takes_the_place_of_one_that_failed_has_a_span_of_its_own() {
    let collector = SpanCollector::start().await.unwrap();
    let rules = json!([
        {"when": {"model": "lead"}, "reply": {"fail": {"status": 404, "message": "gone"}}},
        {"reply": {"say": "Done.", "usage": {"prompt": 40, "completion": 2}}},
    ]);
    let setup = AgentSetup::new(json!([]), rules).distributed();
    let models = json!({
        "deployment": {"deployment_id": "lead"},
        "fallback_deployments": [{"deployment_id": "reserve"}],
        "system_prompt": {"type": "custom", "content": "You help."},
    });
    let setup = setup.part("orchestrator", models);
    let fixture = setup.without("orchestrator").start().await;
    let export = [("telemetry.otlp_endpoint", collector.url())];
    let agent = fixture.process("orchestrator", &export).await;
    let body = json!({"model": "agent", "messages": [user("Hello.")], "stream": true});
    let request = fixture
        .post_to(&agent, "/v1/chat/completions")
        .header("traceparent", &format!("00-{TRACE_ID}-{CLIENT_SPAN}-01"))
        .json(&body);
    let answer = AgentAnswer::of(request).await;
    assert!(answer.text().ends_with("Done."), "{answer:?}");
    let root = "POST /v1/chat/completions";
    let spans = eventually("the span of the request", async || {
        let spans = collector.trace(TRACE_ID).into_iter();
        let spans: BTreeMap<_, _> = spans.map(|span| (span.span_id.clone(), span)).collect();
        (!find(&spans, root).is_empty()).then_some(spans)
    })
    .await;
    let requests = fixture.model.received_requests();
    let expected = [
        ("lead", "error.type", "refused"),
        ("reserve", "gen_ai.usage.input_tokens", "40"),
    ];
    assert_eq!(requests.len(), expected.len());
    for ((model, attribute, value), request) in expected.into_iter().zip(requests) {
        let name = format!("chat {model}");
        let chats = find(&spans, &name);
        assert_eq!(chats.len(), 1, "{name}: {spans:?}");
        let path = path_to_root(&spans, chats[0]);
        assert_eq!(path, [name.as_str(), "invoke_agent agent", root]);
        let attributes = &chats[0].attributes;
        assert_eq!(attributes["gen_ai.request.model"], model);
        assert_eq!(attributes[attribute], value, "{name}");
        let parent = request.headers["traceparent"].to_str().unwrap();
        assert_eq!(parent, format!("00-{TRACE_ID}-{}-01", chats[0].span_id));
    }
    let failed = &find(&spans, "chat lead")[0].attributes;
    assert!(!failed.contains_key("gen_ai.response.model"), "{failed:?}");
    drop(agent);
    fixture.stop().await;
}

/// A fixture whose process of the orchestrator is on DIAL and exports its spans.
async fn dial_agent(
    collector: &SpanCollector,
    settings: &[(&'static str, String)],
) -> (AgentFixture, ServiceProcess, FakeServer<Vec<String>>) {
    let (shop, tools) = tracing_shop().await;
    let rules = json!([
        {"when": {"tool_result_of": "shop_order"}, "reply": {"say": "It is done."}},
        {"reply": {"call": [{"name": "shop_order", "arguments": {}}]}},
    ]);
    let setup = AgentSetup::new(json!([tools]), rules).distributed();
    let fixture = setup.without("orchestrator").start().await;
    let mut all = vec![
        ("telemetry.otlp_endpoint", collector.url()),
        ("orchestrator.dial_url", fixture.dial.url()),
    ];
    all.extend_from_slice(settings);
    let agent = fixture.process("orchestrator", &all).await;
    (fixture, agent, shop)
}

/// Asks the deployment as a client of DIAL does, and returns the spans once the turn has ended.
async fn ask_deployment(
    collector: &SpanCollector,
    fixture: &AgentFixture,
    agent: &ServiceProcess,
    key: &str,
) -> BTreeMap<String, ReceivedSpan> {
    let body = json!({"messages": [user("My secret order.")], "stream": true});
    let request = fixture
        .post_to(agent, "/openai/deployments/agent/chat/completions")
        .header("api-key", key)
        .header("traceparent", &format!("00-{TRACE_ID}-{CLIENT_SPAN}-01"))
        .json(&body);
    let mut response = request.send(&|_| ()).await.unwrap();
    while let Ok(Some(_)) = response.chunk().await {}
    eventually("the span of the request", async || {
        let spans = collector.trace(TRACE_ID).into_iter();
        let spans: BTreeMap<_, _> = spans.map(|span| (span.span_id.clone(), span)).collect();
        (!find(&spans, DIAL_ROUTE).is_empty()).then_some(spans)
    })
    .await
}

const DIAL_ROUTE: &str = "POST /openai/deployments/{deployment}/chat/completions";

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_at_a_deployment_of_dial_continues_the_trace_and_shows_no_contents() {
    let collector = SpanCollector::start().await.unwrap();
    let (fixture, agent, shop) = dial_agent(&collector, &[]).await;
    let spans = ask_deployment(&collector, &fixture, &agent, DIAL_KEY).await;
    let root = find(&spans, DIAL_ROUTE)[0];
    assert_eq!(root.parent_id, CLIENT_SPAN);
    let attribute = |name: &str| root.attributes.get(name).map(String::as_str);
    assert_eq!(attribute("http.request.method"), Some("POST"));
    assert_eq!(attribute("http.route"), DIAL_ROUTE.strip_prefix("POST "));
    assert_eq!(attribute("http.response.status_code"), Some("200"));
    let tool = find(&spans, "execute_tool shop_order")[0];
    let expected = ["execute_tool shop_order", "invoke_agent agent", DIAL_ROUTE];
    assert_eq!(path_to_root(&spans, tool), expected);
    assert_eq!(find(&spans, "chat lead").len(), 2);
    let span_text = format!("{spans:?}");
    for secret in ["secret order", "It is done", "ordered", DIAL_KEY] {
        assert!(!span_text.contains(secret), "{secret}: {span_text}");
    }
    drop((agent, shop));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_with_an_unknown_key_has_a_span_with_its_status_and_no_turn() {
    let collector = SpanCollector::start().await.unwrap();
    let (fixture, agent, shop) = dial_agent(&collector, &[]).await;
    let spans = ask_deployment(&collector, &fixture, &agent, "unknown").await;
    let root = find(&spans, DIAL_ROUTE)[0];
    let status = root.attributes.get("http.response.status_code");
    assert_eq!(status.map(String::as_str), Some("401"));
    assert!(find(&spans, "invoke_agent agent").is_empty());
    drop((agent, shop));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn contents_are_in_the_spans_when_they_are_requested_and_are_cut() {
    let collector = SpanCollector::start().await.unwrap();
    let settings = [
        ("orchestrator.trace_contents", "true".to_owned()),
        ("orchestrator.log_payloads_max_length", "200".to_owned()),
    ];
    let (fixture, agent, shop) = dial_agent(&collector, &settings).await;
    let spans = ask_deployment(&collector, &fixture, &agent, DIAL_KEY).await;
    let text = |span: &ReceivedSpan, name: &str| {
        let value = span.attributes.get(name).cloned();
        value.unwrap_or_else(|| panic!("no {name}: {span:?}"))
    };
    let tool = find(&spans, "execute_tool shop_order")[0];
    assert_eq!(text(tool, "gen_ai.tool.call.arguments"), "{}");
    assert_eq!(text(tool, "gen_ai.tool.call.result"), "{\"ordered\":true}");
    let chats = find(&spans, "chat lead");
    assert_eq!(chats.len(), 2);
    let inputs: Vec<_> = chats
        .iter()
        .map(|chat| text(chat, "gen_ai.input.messages"))
        .collect();
    for input in &inputs {
        // The limit holds for the contents of each attribute, which stays JSON.
        let messages: serde_json::Value = serde_json::from_str(input).unwrap();
        let messages = messages.as_array().unwrap().iter();
        let parts = messages.flat_map(|message| message["parts"].as_array().unwrap());
        let contents = parts.flat_map(|part| [&part["content"], &part["response"]]);
        let chars = contents
            .filter_map(serde_json::Value::as_str)
            .map(|content| content.chars().count());
        let chars: usize = chars.sum();
        assert!((1..=200).contains(&chars), "{input}");
    }
    // The newest messages are kept.
    assert!(
        inputs.iter().any(|input| input.contains("ordered")),
        "{inputs:?}"
    );
    let outputs: Vec<_> = chats
        .iter()
        .map(|chat| text(chat, "gen_ai.output.messages"))
        .collect();
    assert!(
        outputs.iter().any(|output| output.contains("It is done.")),
        "{outputs:?}"
    );
    assert!(
        outputs.iter().any(|output| output.contains("shop_order")),
        "{outputs:?}"
    );
    // Keys are never among the contents.
    assert!(!format!("{spans:?}").contains(DIAL_KEY));
    drop((agent, shop));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_trace_of_a_turn_leads_to_the_message_of_the_platform() {
    let collector = SpanCollector::start().await.unwrap();
    let rules = json!([
        {"when": {"tool_result_of": "send_file"}, "reply": {"say": "Done."}},
        {"reply": {"call": [{"name": "send_file", "arguments": {"paths": ["report.txt"]}}]}},
    ]);
    let setup = AgentSetup::new(json!([]), rules).distributed();
    let setup = setup.without("platform-delivery").without("orchestrator");
    let fixture = setup.start().await;
    let export = ("telemetry.otlp_endpoint", collector.url());
    let delivery = [
        export.clone(),
        (
            "platform-delivery.accounts.port.telegram.base_url",
            fixture.telegram.url(),
        ),
        (
            "platform-delivery.accounts.port.telegram.token",
            fixture.telegram.token().expose().to_owned(),
        ),
    ];
    let delivery = fixture.process("platform-delivery", &delivery).await;
    let agent = fixture.process("orchestrator", &[export]).await;
    std::fs::write(fixture.sandbox.join("report.txt"), "All is well.").unwrap();
    let chat = fixture.telegram.chat();
    fixture.bind("traced", chat).await;
    let body = json!({"model": "agent", "messages": [user("Send it.")], "stream": true});
    let request = fixture
        .post_to(&agent, "/v1/chat/completions")
        .header("traceparent", &format!("00-{TRACE_ID}-{CLIENT_SPAN}-01"))
        .header("x-dray-session", "traced");
    let answer = AgentAnswer::of(request.json(&body)).await;
    assert!(answer.text().ends_with("Done."), "{answer:?}");
    let messages = fixture.telegram.visible_messages(chat);
    assert_eq!(messages.len(), 1, "{messages:?}");
    let span = eventually("the span of the delivery", async || {
        let mut spans = collector.trace(TRACE_ID).into_iter();
        spans.find(|span| span.attributes.contains_key("dray.platform_message_ids"))
    })
    .await;
    let attribute = |name: &str| span.attributes[name].as_str();
    assert_eq!(
        (
            attribute("dray.platform"),
            attribute("dray.platform_message_ids")
        ),
        ("telegram", messages[0].message_id.to_string().as_str())
    );
    drop((delivery, agent));
    fixture.stop().await;
}
