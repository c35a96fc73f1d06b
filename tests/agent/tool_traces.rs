//! Whose tools get the trace of a turn.

use dray_testkit::agent::agent_manifest;
use dray_testkit::otlp::SpanCollector;
use serde_json::json;

use super::chat_answer::AgentAnswer;
use super::fixture::{AgentSetup, DIAL_KEY, user};
use super::telemetry::{CLIENT_SPAN, TRACE_ID, tracing_shop};

#[tokio::test(flavor = "multi_thread")]
async fn tools_of_the_operator_get_the_trace_and_those_of_a_caller_s_manifest_do_not() {
    let collector = SpanCollector::start().await.unwrap();
    let (server, tools) = tracing_shop().await;
    let rules = json!([
        {"when": {"tool_result_of": "shop_order"}, "reply": {"say": "Done."}},
        {"reply": {"call": [{"name": "shop_order", "arguments": {}}]}},
    ]);
    let setup = AgentSetup::new(json!([tools]), rules).distributed();
    let of_caller = agent_manifest(&json!([tools])).to_string();
    let fixture = setup.without("orchestrator").start().await;
    let permission = |name: &str| format!("orchestrator.permissions.local.manifest_header.{name}");
    let permissions = [
        ("enabled", json!(true)),
        ("models", json!(["*"])),
        ("tools", json!(["rest-api"])),
        ("hosts", json!(["*"])),
        ("origins", json!([server.shared().url()])),
    ];
    let permissions =
        permissions.map(|(name, value)| (&*permission(name).leak(), value.to_string()));
    let mut settings = vec![("telemetry.otlp_endpoint", collector.url())];
    settings.extend(permissions);
    let agent = fixture.process("orchestrator", &settings).await;
    let path = "/openai/deployments/agent/chat/completions";
    let body = json!({"messages": [user("Order.")], "stream": true});
    for manifest in [None, Some(of_caller)] {
        let request = fixture.post_to(&agent, path).header("api-key", DIAL_KEY);
        let mut request = request.header("traceparent", &format!("00-{TRACE_ID}-{CLIENT_SPAN}-01"));
        if let Some(manifest) = &manifest {
            request = request.header("x-dial-application-properties", manifest);
        }
        let answer = AgentAnswer::of(request.json(&body)).await;
        assert!(answer.text().ends_with("Done."), "{answer:?}");
    }
    let parents = server.shared().lock().clone();
    let [of_operator, of_caller] = parents.as_slice() else {
        panic!("{parents:?}")
    };
    assert!(of_operator.contains(TRACE_ID), "{of_operator}");
    assert_eq!(of_caller, "");
}
