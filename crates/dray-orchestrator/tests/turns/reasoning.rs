//! Models whose services refuse calls without the reasoning before them.

use std::sync::Arc;

use dray_http::fake_server::{
    self, ConnectionClosed, FakeServer, ReceivedRequest, Reply, SharedState,
};
use futures_util::FutureExt as _;
use serde_json::{Value, json};

use crate::client_tools::CountingEndpoint;
use crate::fixture::{TurnFixture, manifest, rest};

/// The first message with a call that has no reasoning.
fn lacking_message(request: &Value) -> Option<usize> {
    let mut messages = request["messages"].as_array().unwrap().iter();
    messages.position(|message| {
        let reasoning = message["reasoning_content"].as_str().unwrap_or_default();
        message["tool_calls"].is_array() && reasoning.is_empty()
    })
}

fn streamed_reply(choices: &[Value]) -> Reply {
    let events = choices
        .iter()
        .map(|choice| format!("data: {}\n\n", json!({"choices": [choice]})));
    let body: String = events.chain(["data: [DONE]\n\n".to_owned()]).collect();
    fake_server::bytes_reply(200, "text/event-stream", body.into())
}

/// The reply of Moonshot's API to a model that thinks, calls `shop_a`, and answers.
fn reply(request: &Value) -> Reply {
    if let Some(index) = lacking_message(request) {
        let message = format!(
            "thinking is enabled but reasoning_content is missing in assistant tool call message at index {index}"
        );
        let error = json!({"error": {"message": message, "type": "invalid_request_error"}});
        return fake_server::json_reply(400, &error);
    }
    let mut messages = request["messages"].as_array().unwrap().iter();
    if messages.any(|message| message["tool_calls"][0]["function"]["name"] == "shop_a") {
        return streamed_reply(&[
            json!({"index": 0, "delta": {"content": "Done."}, "finish_reason": "stop"}),
        ]);
    }
    let call = json!({"index": 0, "id": "c1", "function": {"name": "shop_a", "arguments": "{\"q\":\"1\"}"}});
    streamed_reply(&[
        json!({"index": 0, "delta": {"reasoning_content": "Let me "}}),
        json!({"index": 0, "delta": {"reasoning_content": "look."}}),
        json!({"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}),
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_wants_its_reasoning_back_gets_it_after_one_refusal() {
    let model = FakeServer::start(
        Vec::new(),
        |shared: Arc<SharedState<Vec<Value>>>, received: ReceivedRequest| {
            async move {
                let request = received.json().await?;
                shared.lock().push(request.clone());
                Ok::<_, ConnectionClosed>(reply(&request))
            }
            .boxed()
        },
    );
    let model = model.await.unwrap();
    let endpoint = CountingEndpoint::start().await;
    let agent = manifest(json!([rest(&endpoint.url(), &["a"])]));
    let unused_script = r#"{"rules": [{"reply": {"say": "unused"}}]}"#;
    let fixture = TurnFixture::with(&agent, unused_script, |config| {
        config.model_url = Some(format!("{}/v1", model.shared().url()));
    })
    .await;
    for _turn in 0..2 {
        let result = fixture.send_text("go").await;
        assert_eq!(result.text(), "Done.", "{result:?}");
    }
    assert_eq!(endpoint.called(), ["1", "1"]);
    let requests = model.shared().lock().clone();
    let refused = requests.iter().filter_map(lacking_message).count();
    assert_eq!(refused, 1, "the second turn knows what the model wants");
    let last = requests.last().unwrap()["messages"].as_array().unwrap();
    let mut reasoning = last.iter().map(|message| &message["reasoning_content"]);
    assert!(
        reasoning.any(|reasoning| reasoning == "Let me look."),
        "{last:?}"
    );
}
