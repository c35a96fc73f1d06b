//! Tests of a replica that finishes a response of a killed process, where the agent has guardrails or the client chose
//! a tool.

use std::sync::Arc;

use dray_http::fake_server::{
    self, ConnectionClosed, FakeServer, ReceivedRequest, Reply, SharedState,
};
use dray_testkit::eventually;
use futures_util::FutureExt as _;
use serde_json::{Value, json};

use super::crashes::{is_running, send, wait_until_finished};
use super::fixture::{AgentFixture, AgentSetup};
use super::process::ServiceProcess;

/// The requests that the tools of the agent received.
#[derive(Debug, Default)]
struct ToolRequests {
    /// The bodies of the requests for a verdict.
    judged: Vec<Value>,
    /// The bodies of the orders. The first one hangs.
    orders: Vec<Value>,
}

async fn tool_reply(
    shared: Arc<SharedState<ToolRequests>>,
    received: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let is_order = received.path == "/order";
    let body = received.json().await?;
    if is_order {
        let number = {
            let mut requests = shared.lock();
            requests.orders.push(body);
            requests.orders.len()
        };
        if number == 1 {
            std::future::pending::<()>().await;
        }
        return Ok(fake_server::json_reply(200, &json!({"card": "4711"})));
    }
    let verdict = match body["event"].as_str() {
        // Each verdict is a different word, which must not become a label of a metric.
        Some("before_model") => {
            let judged = shared.lock().judged.len();
            json!({"verdict": format!("word-{judged}")})
        }
        Some("before_tool") => json!({"verdict": "replace", "arguments": {"q": "safe"}}),
        Some("after_tool") => json!({"verdict": "replace", "text": "a card"}),
        _ if body["text"] == "I got a card" => json!({"verdict": "replace", "text": "Done."}),
        _ => json!({"verdict": "allow"}),
    };
    shared.lock().judged.push(body);
    Ok(fake_server::json_reply(200, &verdict))
}

struct GuardedAgent {
    tools: FakeServer<ToolRequests>,
    fixture: AgentFixture,
    first: ServiceProcess,
    second: ServiceProcess,
}

impl GuardedAgent {
    /// Two processes of an agent whose tool `shop_order` may be repeated, with these guardrails.
    async fn start(guardrails: Value) -> Self {
        Self::start_with(guardrails, |setup| setup).await
    }

    async fn start_with(guardrails: Value, change: impl FnOnce(AgentSetup) -> AgentSetup) -> Self {
        let tools = FakeServer::start(ToolRequests::default(), |shared, received| {
            tool_reply(shared, received).boxed()
        });
        let tools = tools.await.unwrap();
        let url = tools.shared().url();
        let tool = |name: &str, is_hidden: bool, parameters: &[(&str, &str)]| {
            let parameters = parameters.iter().map(|(name, kind)| {
                let place = json!({"type": "body", "key": name});
                (
                    (*name).to_owned(),
                    json!({"type": kind, "parameter_info": place}),
                )
            });
            let properties: serde_json::Map<_, _> = parameters.collect();
            json!({
                "type": "restapi-tool", "hidden_from_model": is_hidden,
                "open_ai_tool": {"function": {"name": name, "parameters": {"type": "object", "properties": properties}}},
                "rest_api_method_info": {"method_url": format!("{url}/{name}"), "method_type": "post"},
            })
        };
        let judged = [
            ("event", "string"),
            ("text", "string"),
            ("tool", "string"),
            ("arguments", "object"),
            ("result", "string"),
        ];
        let set = json!({"type": "rest-api", "name": "shop", "tools": [
            tool("order", false, &[("q", "string")]), tool("judge", true, &judged)]});
        let rules = json!([
            {"when": {"tool_result_of": "shop_order"}, "reply": {"say": "I got {result}"}},
            {"when": {"tool_result_of": "transfer_to_billing"},
                "reply": {"call": [{"name": "shop_order", "arguments": {"q": "handed over"}}]}},
            {"when": {"last_user_contains": "hand over"}, "reply": {"call": [{"name": "transfer_to_billing"}]}},
            {"reply": {"call": [{"name": "shop_order", "arguments": {"q": "unsafe"}}]}},
        ]);
        let setup = AgentSetup::new(json!([set]), rules).distributed();
        let setup = setup
            .part("repeatable_tools", json!([{"tools": ["shop_order"]}]))
            .part("guardrails", guardrails);
        let fixture = change(setup).without("orchestrator").start().await;
        let lease = [("orchestrator.response_lease", "2s".to_owned())];
        Self {
            tools,
            first: fixture.process("orchestrator", &lease).await,
            second: fixture.process("orchestrator", &lease).await,
            fixture,
        }
    }

    /// Begins a response at the first process, kills it in the call of the tool, and returns the response that the
    /// second one finishes.
    async fn finish_after_kill(self, body: Value) -> (Value, FinishedAgent) {
        let request = self.fixture.post_to(&self.first, "/v1/responses");
        let (status, response) = send(request.json(&body)).await;
        assert!(status == 200 && is_running(&response), "{response}");
        eventually("a call of the tool", async || {
            (self.tools.shared().lock().orders.len() == 1).then_some(())
        })
        .await;
        self.first.kill9();
        let path = format!("/v1/responses/{}", response["id"].as_str().unwrap());
        let finished = wait_until_finished(&self.fixture, &self.second, &path).await;
        let agent = FinishedAgent {
            tools: self.tools,
            fixture: self.fixture,
            second: self.second,
        };
        (finished, agent)
    }
}

/// What is left of a guarded agent after the kill.
struct FinishedAgent {
    tools: FakeServer<ToolRequests>,
    fixture: AgentFixture,
    second: ServiceProcess,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_finishes_a_response_makes_judged_calls_and_judges_what_follows() {
    let guardrail = |event: &str| json!({"event": event, "tool": "shop_judge"});
    let before_model =
        json!({"event": "before_model", "tool": "shop_judge", "on_failure": "allow"});
    let guardrails = json!([
        before_model,
        guardrail("before_tool"),
        guardrail("after_tool"),
        guardrail("after_model")
    ]);
    let agent = GuardedAgent::start(guardrails).await;
    let body = json!({"model": "agent", "input": "go", "background": true});
    let (finished, agent) = agent.finish_after_kill(body).await;
    assert_eq!(finished["status"], "completed", "{finished}");
    let output = finished["output"].as_array().unwrap();
    assert_eq!(output.last().unwrap()["content"][0]["text"], "Done.");
    // Neither the model nor the client gets what the guardrails took out.
    let asked = agent.fixture.model.received_requests();
    let asked: Vec<_> = asked
        .iter()
        .map(|request| request.body.to_string())
        .collect();
    assert_eq!(asked.len(), 2);
    assert!(asked[1].contains("a card"), "{}", asked[1]);
    for text in asked.iter().chain([&finished.to_string()]) {
        assert!(!text.contains("4711"), "{text}");
    }
    let metrics = agent.fixture.metrics_of(&agent.second).await;
    {
        let shared = agent.tools.shared();
        let requests = shared.lock();
        // The second call has the arguments of the first one, about which no one is asked again.
        assert_eq!(
            requests.orders,
            [json!({"q": "safe"}), json!({"q": "safe"})]
        );
        let events = requests.judged.iter().map(|body| body["event"].as_str());
        let events: Vec<_> = events.map(Option::unwrap).collect();
        let expected = [
            "before_model",
            "after_model",
            "before_tool",
            "after_tool",
            "before_model",
            "after_model",
        ];
        assert_eq!(events, expected);
    }
    check_labels(&metrics);
    agent.fixture.stop().await;
}

/// Checks the counts of the second process, and that no label has a word of the guardrail's tool.
fn check_labels(page: &str) {
    let lines = page
        .lines()
        .filter(|line| line.starts_with("dray_chat_guardrail_verdicts_total{"));
    let mut counts: Vec<_> = lines
        .map(|line| {
            let (labels, count) = line.split_once('{').unwrap().1.split_once("} ").unwrap();
            // The exporter adds the instrumentation scope to each line.
            let labels = labels
                .split(',')
                .filter(|label| !label.starts_with("otel_"));
            let mut labels: Vec<_> = labels.map(str::to_owned).collect();
            labels.sort_unstable();
            (labels.join(","), count.to_owned())
        })
        .collect();
    counts.sort_unstable();
    let expected = [
        (r#"event="after_model",verdict="replace""#, "1"),
        (r#"event="after_tool",verdict="replace""#, "1"),
        (r#"event="before_model",verdict="failure""#, "1"),
    ];
    let expected = expected.map(|(labels, count)| (labels.to_owned(), count.to_owned()));
    assert_eq!(counts, expected, "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_finishes_a_response_does_not_force_the_chosen_tool_again() {
    let agent = GuardedAgent::start(json!([])).await;
    let body = json!({
        "model": "agent", "input": "go", "background": true,
        "tool_choice": {"type": "function", "name": "shop_order"},
    });
    let (finished, agent) = agent.finish_after_kill(body).await;
    assert_eq!(finished["status"], "completed", "{finished}");
    let choices = agent.fixture.model.received_requests().into_iter();
    let choices: Vec<_> = choices
        .map(|request| request.body["tool_choice"].clone())
        .collect();
    let chosen = json!({"type": "function", "function": {"name": "shop_order"}});
    assert_eq!(choices, [chosen, Value::Null]);
    drop((agent.tools, agent.second));
    agent.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_continues_with_another_agent_drops_the_choice_of_a_tool_of_the_first_one() {
    let handing_over = |setup: AgentSetup| setup.handing_over_to("billing");
    let agent = GuardedAgent::start_with(json!([]), handing_over).await;
    // Only the first agent has this tool.
    let body = json!({
        "model": "agent", "input": "hand over", "background": true,
        "tool_choice": {"type": "function", "name": "transfer_to_billing"},
    });
    let (finished, agent) = agent.finish_after_kill(body).await;
    assert_eq!(finished["status"], "completed", "{finished}");
    let output = finished["output"].as_array().unwrap();
    let text = output.last().unwrap()["content"][0]["text"]
        .as_str()
        .unwrap();
    assert!(text.contains("4711"), "{finished}");
    let choices = agent.fixture.model.received_requests().into_iter();
    let choices: Vec<_> = choices
        .map(|request| request.body["tool_choice"].clone())
        .collect();
    let chosen = json!({"type": "function", "function": {"name": "transfer_to_billing"}});
    assert_eq!(choices, [chosen, Value::Null, Value::Null]);
    drop((agent.tools, agent.second));
    agent.fixture.stop().await;
}
