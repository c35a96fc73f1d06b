//! The double of DIAL Core against the official Python client.

#![cfg(test)]

use dray_testkit::dial::DialCore;
use dray_testkit::python;
use serde_json::json;

#[tokio::test]
async fn the_official_client_works_against_the_double() {
    let double = DialCore::start().await.unwrap();
    double.add_key("k", "b");
    double.put("b/f/z", "z", "text/plain");
    double.document(
        "/openai/toolsets/t",
        json!({"id": "t", "toolset": "t", "transport": "HTTP"}),
    );
    double.sign_in("t", json!({"result": "success"}));
    let chunk = |delta, reason: Option<&str>| {
        json!({
            "id": "1", "object": "chat.completion.chunk", "created": 1, "model": "gpt",
            "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
        })
    };
    double.chat(
        "gpt",
        vec![
            chunk(json!({"role": "assistant", "content": "Hel"}), None),
            chunk(json!({"content": "lo"}), None),
            chunk(json!({}), Some("stop")),
        ],
    );
    let url = double.url();
    let said = python::run_script("dial_client.py", "aidial_client", &[&url]).await;
    assert_eq!(said, "ok");
}
