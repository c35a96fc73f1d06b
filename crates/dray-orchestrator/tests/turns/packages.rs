//! Tests with agents of independent packages, which bring their own tools and want structured output.

use serde_json::{Value, json};

use crate::bank::Bank;
use crate::client_tools::CountingEndpoint;
use crate::fixture::{TurnFixture, manifest, rest};

/// Asks for a tool of the client and one of the manifest in one round, and gives structured answers where they are
/// wanted.
const AGENT_SCRIPT: &str = r#"{"rules": [
    {"when": {"tool_result_of": "weather"}, "reply": {"say": "It is {result}."}},
    {"when": {"last_user_contains": "by a tool"},
     "reply": {"call": [{"name": "final_result", "arguments": {"name": "Paris", "degrees": 21}}]}},
    {"when": {"last_user_contains": "as JSON"}, "reply": {"say": "{\"name\":\"Paris\",\"degrees\":21}", "piece": 5}},
    {"reply": {"call": [
        {"name": "weather", "arguments": {"city": "Paris"}}, {"name": "shop_a", "arguments": {"q": "1"}}]}}]}"#;

const MODEL_REPLY: &str = "It is sunny in Paris.";

struct PackageRun {
    seen: Value,
    /// The requests to the model.
    asked: Vec<Value>,
    /// How often the manifest's own tool was called.
    own_calls: usize,
}

async fn run(package: &str, module: &str) -> PackageRun {
    let endpoint = CountingEndpoint::start().await;
    let sets = json!([rest(&endpoint.url(), &["a"])]);
    let fixture = TurnFixture::plain(&manifest(sets), AGENT_SCRIPT).await;
    let arguments = [fixture.url.as_str(), package];
    let report = dray_testkit::python::run_script("agent_packages.py", module, &arguments).await;
    PackageRun {
        seen: report,
        asked: fixture.asked(),
        own_calls: endpoint.called().len(),
    }
}

fn city() -> Value {
    json!({"name": "Paris", "degrees": 21})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_openai_package_calls_its_tools_streams_calls_and_parses() {
    let run = run("openai", "openai").await;
    assert_eq!(
        run.seen,
        json!({
            "finish": "tool_calls", "answer": MODEL_REPLY, "counted": true, "streamed": ["tool_calls", "weather"],
            "events": true, "parsed": city(),
        })
    );
    // One loop to its end, and one stream that is not continued.
    assert_eq!(run.own_calls, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pydantic_ai_runs_its_tools_and_its_structured_output_and_keeps_its_prompts() {
    let run = run("pydantic_ai", "pydantic_ai").await;
    assert_eq!(
        run.seen,
        json!({"answer": MODEL_REPLY, "streamed": MODEL_REPLY, "parsed": city(), "by_tool": city()})
    );
    let system = run.asked[0]["messages"][0]["content"].as_str().unwrap();
    for prompt in ["You help.", "Be brief.", "Speak French."] {
        assert!(system.contains(prompt), "{system}");
    }
    assert_eq!(run.own_calls, 2, "once for each loop");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openai_agents_run_their_tools_and_their_structured_output() {
    let run = run("agents", "agents").await;
    assert_eq!(
        run.seen,
        json!({"answer": MODEL_REPLY, "streamed": MODEL_REPLY, "parsed": city()})
    );
    assert_eq!(run.own_calls, 2, "once for each loop");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn langchain_runs_its_tools_and_its_structured_output() {
    let run = run("langchain", "langchain_openai").await;
    assert_eq!(
        run.seen,
        json!({"answer": MODEL_REPLY, "streamed": MODEL_REPLY, "parsed": city()})
    );
    assert_eq!(run.own_calls, 2, "once for each loop");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn langgraph_runs_its_tools_over_chat_completions_and_responses() {
    let run = run("langgraph", "langgraph").await;
    let expected = json!({"answer": MODEL_REPLY, "streamed": MODEL_REPLY});
    assert_eq!(run.seen, json!({"chat": expected, "responses": expected}));
    assert_eq!(run.own_calls, 4, "once for each loop");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn litellm_runs_its_tools_streams_and_gets_structured_output() {
    let run = run("litellm", "litellm").await;
    assert_eq!(
        run.seen,
        json!({
            "answer": MODEL_REPLY, "streamed": MODEL_REPLY, "counted": true, "parsed": city(),
            "response": city().to_string(),
        })
    );
    assert_eq!(
        run.own_calls, 1,
        "the second and third request bring its result"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_of_dial_chats_and_streams() {
    let run = run("aidial", "aidial_client").await;
    let answer = city().to_string();
    assert_eq!(run.seen, json!([answer, answer]));
}

/// Asks for a tool that needs approval, and says what the tool returned.
const ORDER_SCRIPT: &str = r#"{"rules": [
    {"when": {"tool_result_of": "shop_b"}, "reply": {"say": "Got {result}."}},
    {"when": {"tool_result_of": "bank_balance"}, "reply": {"say": "Got {result}."}},
    {"when": {"tool_result_of": "bank_lose"}, "reply": {"say": "Got {result}."}},
    {"when": {"last_user_contains": "balance"}, "reply": {"call": [{"name": "bank_balance", "arguments": {"of": "x"}}]}},
    {"when": {"last_user_contains": "lose"}, "reply": {"call": [{"name": "bank_lose", "arguments": {}}]}},
    {"reply": {"say": "Let me order.", "call": [
        {"name": "shop_a", "arguments": {"q": "free"}}, {"name": "shop_b", "arguments": {"q": "dear"}}]}}]}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_openai_package_answers_questions_on_approval() {
    let endpoint = CountingEndpoint::start().await;
    let mut agent = manifest(json!([rest(&endpoint.url(), &["a", "b"])]));
    agent["require_approval"] = json!([{"tools": ["shop_b"]}]);
    let fixture = TurnFixture::plain(&agent, ORDER_SCRIPT).await;
    let bank = Bank::start().await;
    let mut other = manifest(json!([bank.set()]));
    other["require_approval"] = json!([{"tools": ["bank_balance"]}]);
    let path = fixture.directory().join("manifests/bank.json");
    std::fs::write(path, other.to_string()).unwrap();
    let arguments = [fixture.url.as_str()];
    let report = dray_testkit::python::run_script("approval_client.py", "openai", &arguments).await;
    let done = "Got {\"own\":\"dear\"}.";
    assert_eq!(
        report,
        json!({
            "approves": {
                "status": "completed", "kind": "McpApprovalRequest", "text": done, "again": "accepted",
                "question": ["shop", "shop_b", {"q": "dear"}],
            },
            "refuses": true,
            "streams": {"kinds": ["message", "mcp_approval_request"], "text": done},
            "keeps_no_state": done,
            "converses": done,
            "names_approvals": {"approved": vec![json!(["McpCall", true]); 4], "free": null},
        })
    );
    let called = endpoint.called();
    let dear = called.iter().filter(|query| *query == "dear").count();
    assert_eq!(
        (dear, called.len()),
        (4, 9),
        "once for each approval: {called:?}"
    );
}
