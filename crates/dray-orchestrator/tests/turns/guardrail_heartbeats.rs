//! Tests of streams that stay open while a guardrail judges.

use dray_testkit::eventually;
use dray_types::Period;
use serde_json::json;

use crate::client_tools::user;
use crate::fixture::{TurnFixture, manifest};
use crate::guardrails::{Judge, guardrail};

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_judgement_of_the_first_prompt_keeps_the_stream_open() {
    let judge = Judge::start([json!("hang")]).await;
    let mut agent = manifest(json!([judge.set()]));
    agent["guardrails"] = json!([guardrail("before_model", json!({}))]);
    let script = r#"{"rules": [{"reply": {"say": "Hello."}}]}"#;
    let fixture = TurnFixture::with(&agent, script, |config| {
        config.heartbeat_interval = Period::millis(20);
    })
    .await;
    let body = json!({"model": "agent", "messages": [user("x")], "stream": true});
    let url = format!("{}/v1/chat/completions", fixture.url);
    let request = fixture.client.post(&url).json(&body);
    let mut stream = request.send(&|_| ()).await.unwrap();
    assert_eq!(stream.status(), 200);
    let mut text = String::new();
    while !text.contains(": keep-alive") {
        // The guardrail fails after its time limit of 30 s. Its text would come without a heartbeat before.
        let chunk = stream.chunk().await.unwrap().expect("a heartbeat");
        text.push_str(std::str::from_utf8(&chunk).unwrap());
        assert!(!text.contains("content\":\"This"), "{text}");
    }
    eventually("the judgement", async || {
        (judge.asked().len() == 1).then_some(())
    })
    .await;
    assert!(fixture.asked().is_empty());
}
