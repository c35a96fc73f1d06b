//! Tests with agents of independent packages from npm, which bring their own tools and want structured output, over
//! chat completions and over responses.

use dray_testkit::python::run_json;
use serde_json::{Value, json};

use super::fixture::{AgentFixture, AgentSetup};
use crate::support::{self, node};

/// The packages, in the versions that the tests expect.
const NPM_PACKAGES: [&str; 9] = [
    "openai@6.49.0",
    "ai@6.0.326",
    "@ai-sdk/openai@3.0.141",
    "@ai-sdk/openai-compatible@2.0.92",
    "@openai/agents@0.20.0",
    "@langchain/core@1.4.0",
    "@langchain/langgraph@1.7.3",
    "@langchain/openai@1.5.8",
    "zod@4.6.7",
];
/// Answer of the model about the weather.
const MODEL_ANSWER: &str = "It is sunny in Paris.";
/// Answer of the model to a greeting.
const MODEL_GREETING: &str = "Hello to you.";

/// An agent whose model calls the tool `weather` of the client, and answers with JSON where that is wanted.
async fn start_agent() -> AgentFixture {
    let rules = json!([
        {"when": {"tool_result_of": "weather"}, "reply": {"say": "It is {result}."}},
        {"when": {"last_user_contains": "as JSON"},
         "reply": {"say": "{\"name\":\"Paris\",\"degrees\":21}", "piece": 5}},
        {"when": {"last_user_contains": "hello"}, "reply": {"say": MODEL_GREETING}},
        {"reply": {"call": [{"name": "weather", "arguments": {"city": "Paris"}}]}},
    ]);
    AgentSetup::new(json!([]), rules).start().await
}

/// Runs the agents of a package, and returns their report.
async fn run(package: &str) -> Value {
    let fixture = start_agent().await;
    let install = tokio::task::spawn_blocking(|| node::packages("node-openai", &NPM_PACKAGES));
    let directory = install.await.unwrap();
    // The copy is beside the packages, because Node.js looks for modules from the directory of the script.
    let copy = tempfile::Builder::new()
        .prefix("script-")
        .suffix(".mjs")
        .tempfile_in(directory)
        .unwrap();
    std::fs::copy(
        support::root().join("tests/agent/npm_packages.mjs"),
        copy.path(),
    )
    .unwrap();
    let mut node = tokio::process::Command::new("node");
    node.arg(copy.path())
        .args([&fixture.url(), package])
        .env_remove("OPENAI_API_KEY")
        .kill_on_drop(true);
    let report = run_json(&mut node).await;
    fixture.stop().await;
    report
}

/// The report of an agent that called its tool, streamed the same answer, and got an object.
fn complete_run() -> Value {
    json!({"answer": MODEL_ANSWER, "streamed": MODEL_ANSWER, "parsed": city()})
}

fn city() -> Value {
    json!({"name": "Paris", "degrees": 21})
}

#[tokio::test(flavor = "multi_thread")]
async fn the_openai_package_of_npm_chats_streams_parses_and_keeps_responses_and_files() {
    assert_eq!(
        run("openai").await,
        json!({
            "answer": MODEL_ANSWER, "streamed": MODEL_ANSWER, "parsed": city(),
            "responses": [MODEL_GREETING, MODEL_GREETING, MODEL_GREETING],
            "events": ["response.created", "response.completed"],
            "structured": city(),
            "file": ["a.csv", "a,b\n1,2\n"],
            "refused": ["NotFoundError", 404],
        })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ai_sdk_runs_its_tools_and_gets_objects_through_three_providers() {
    let mut expected = complete_run();
    expected["steps"] = json!(2);
    assert_eq!(
        run("ai").await,
        json!({"compatible": expected, "chat": expected, "responses": expected})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_openai_agents_of_npm_run_their_tools_and_get_objects() {
    assert_eq!(
        run("agents").await,
        json!({"chat": complete_run(), "responses": complete_run()})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn langgraph_of_npm_runs_its_tools_and_gets_objects() {
    assert_eq!(
        run("langchain").await,
        json!({"chat": complete_run(), "responses": complete_run()})
    );
}
