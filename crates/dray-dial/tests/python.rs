//! Tests the fake DIAL Core with the official Python client.

#![cfg(test)]

use dray_testkit::dial::DialCore;
use dray_testkit::python;
use serde_json::json;

#[tokio::test]
async fn the_official_client_works_against_the_fake_server() {
    let fake_server = DialCore::start().await.unwrap();
    fake_server.add_key("k", "b");
    fake_server.put("b/f/z", "z", "text/plain");
    fake_server.document(
        "/openai/toolsets/t",
        json!({"id": "t", "toolset": "t", "transport": "HTTP"}),
    );
    fake_server.sign_in("t", json!({"result": "success"}));
    let chunk = |delta, reason: Option<&str>| {
        json!({
            "id": "1", "object": "chat.completion.chunk", "created": 1, "model": "gpt",
            "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
        })
    };
    fake_server.chat(
        "gpt",
        vec![
            chunk(json!({"role": "assistant", "content": "Hel"}), None),
            chunk(json!({"content": "lo"}), None),
            chunk(json!({}), Some("stop")),
        ],
    );
    let url = fake_server.url();
    let report = python::run_script("dial_client.py", "aidial_client", &[&url]).await;
    assert_eq!(report, "ok");
}
