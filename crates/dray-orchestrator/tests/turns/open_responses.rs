//! Responses and their events, checked with the types that are generated from the Open Responses specification.

use serde_json::json;

use crate::fixture::{TurnFixture, manifest};
use crate::responses::thinking_model;

const MODEL_SCRIPT: &str = r#"{"rules": [
    {"when": {"tool_result_of": "weather"}, "reply": {"say": "It is {result}."}},
    {"when": {"has_tool": "weather"}, "reply": {"call": [{"name": "weather", "arguments": {"city": "Paris"}}]}},
    {"reply": {"say": "Hello there.", "piece": 6}}]}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn responses_and_events_have_the_types_of_open_responses() {
    let fixture = TurnFixture::plain(&manifest(json!([])), MODEL_SCRIPT).await;
    let model = thinking_model().await;
    let url = format!("{}/v1", model.shared().url());
    let thinking = TurnFixture::with(&manifest(json!([])), MODEL_SCRIPT, |config| {
        config.model_url = Some(url);
    })
    .await;
    let arguments = [fixture.url.as_str(), thinking.url.as_str()];
    let module = "openresponses_types";
    let report = dray_testkit::python::run_script("open_responses.py", module, &arguments).await;
    let correct = |status: &str, output: &[&str]| json!([[], status, output]);
    let mut expected = json!({"thinking": correct("incomplete", &["reasoning", "message"])});
    for name in ["tool", "tool streaming"] {
        expected[name] = correct("completed", &["function_call"]);
    }
    for name in [
        "basic",
        "streaming",
        "system",
        "round trip",
        "image",
        "file",
        "turns",
        "previous",
        "format",
    ] {
        expected[name] = correct("completed", &["message"]);
    }
    assert_eq!(report, expected);
}
