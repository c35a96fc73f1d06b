//! Models whose services refuse calls that `OpenAI`'s API accepts.

use std::sync::Arc;

use dray_http::fake_server::{
    self, ConnectionClosed, FakeServer, ReceivedRequest, Reply, SharedState,
};
use futures_util::FutureExt as _;
use serde_json::{Value, json};

use crate::client_tools::{CountingEndpoint, user};
use crate::fixture::{TurnFixture, manifest, rest};

/// The first message with a call that has no reasoning.
fn without_reasoning(request: &Value) -> Option<usize> {
    let mut messages = request["messages"].as_array().unwrap().iter();
    messages.position(|message| {
        let reasoning = message["reasoning_content"].as_str().unwrap_or_default();
        message["tool_calls"].is_array() && reasoning.is_empty()
    })
}

/// The first message with a call that has no signature.
fn without_signature(request: &Value) -> Option<usize> {
    let mut messages = request["messages"].as_array().unwrap().iter();
    messages.position(|message| {
        let signature = message.pointer("/tool_calls/0/extra_content/google/thought_signature");
        message["tool_calls"].is_array() && signature.is_none()
    })
}

/// The first message with a call whose id is not one of Mistral's.
fn with_foreign_id(request: &Value) -> Option<usize> {
    let mut messages = request["messages"].as_array().unwrap().iter();
    messages.position(|message| {
        let mut ids = message["tool_calls"].as_array().into_iter().flatten();
        ids.any(|call| {
            let id = call["id"].as_str().unwrap();
            id.len() != 9 || !id.bytes().all(|byte| byte.is_ascii_alphanumeric())
        })
    })
}

/// A refusal of Mistral's API.
fn foreign_id(index: usize) -> Value {
    let message =
        format!("Tool call id was s_{index} but must be a-z, A-Z, 0-9, with a length of 9.");
    json!({"object": "error", "message": message, "type": "invalid_function_call", "code": "3280"})
}

/// A refusal of Moonshot's API.
fn missing_reasoning(index: usize) -> Value {
    let message = format!(
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index {index}"
    );
    json!({"error": {"message": message, "type": "invalid_request_error"}})
}

/// A refusal of Gemini's API, which has it in a list.
fn missing_signature(index: usize) -> Value {
    let message = format!(
        "Function call is missing a thought_signature in functionCall parts. Additional data, position {index}."
    );
    json!([{"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}])
}

fn streamed_reply(choices: &[Value]) -> Reply {
    let events = choices
        .iter()
        .map(|choice| format!("data: {}\n\n", json!({"choices": [choice]})));
    let body: String = events.chain(["data: [DONE]\n\n".to_owned()]).collect();
    fake_server::bytes_reply(200, "text/event-stream", body.into())
}

/// A service with a model that thinks, calls `shop_a`, and answers.
#[derive(Clone, Copy)]
struct StrictService {
    lacking: fn(&Value) -> Option<usize>,
    refusal: fn(usize) -> Value,
}

impl StrictService {
    fn reply(self, request: &Value) -> Reply {
        if let Some(index) = (self.lacking)(request) {
            return fake_server::json_reply(400, &(self.refusal)(index));
        }
        let mut messages = request["messages"].as_array().unwrap().iter();
        if messages.any(|message| message["tool_calls"][0]["function"]["name"] == "shop_a") {
            let answer =
                json!({"index": 0, "delta": {"content": "Done."}, "finish_reason": "stop"});
            return streamed_reply(&[answer]);
        }
        let call = json!({
            "index": 0, "id": "D681PevKs", "function": {"name": "shop_a", "arguments": r#"{"q":"1"}"#},
            "extra_content": {"google": {"thought_signature": "signed"}},
        });
        streamed_reply(&[
            json!({"index": 0, "delta": {"reasoning_content": "Let me "}}),
            json!({"index": 0, "delta": {"reasoning_content": "look."}}),
            json!({"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}),
        ])
    }

    async fn start(self) -> FakeServer<Vec<Value>> {
        let answer = move |shared: Arc<SharedState<Vec<Value>>>, received: ReceivedRequest| {
            async move {
                let request = received.json().await?;
                shared.lock().push(request.clone());
                Ok::<_, ConnectionClosed>(self.reply(&request))
            }
            .boxed()
        };
        FakeServer::start(Vec::new(), answer).await.unwrap()
    }

    /// Runs two turns. Returns the message with the call in the last request.
    async fn run(self) -> Value {
        let model = self.start().await;
        let endpoint = CountingEndpoint::start().await;
        let fixture = fixture_of(&model, &endpoint).await;
        for _turn in 0..2 {
            let result = fixture.send_text("go").await;
            assert_eq!(result.text(), "Done.", "{result:?}");
        }
        assert_eq!(endpoint.called(), ["1", "1"]);
        let requests = model.shared().lock().clone();
        let refused = requests.iter().filter_map(self.lacking).count();
        assert_eq!(refused, 1, "the second turn knows what the model wants");
        let last = requests.last().unwrap()["messages"].as_array().unwrap();
        let mut messages = last.iter();
        let asked =
            messages.find(|message| message["tool_calls"][0]["function"]["name"] == "shop_a");
        asked.unwrap().clone()
    }
}

/// An agent with this model and a tool.
async fn fixture_of(model: &FakeServer<Vec<Value>>, endpoint: &CountingEndpoint) -> TurnFixture {
    let agent = manifest(json!([rest(&endpoint.url(), &["a"])]));
    let unused_script = r#"{"rules": [{"reply": {"say": "unused"}}]}"#;
    TurnFixture::with(&agent, unused_script, |config| {
        config.model_url = Some(format!("{}/v1", model.shared().url()));
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_that_no_change_prevents_changes_no_later_request() {
    let service = StrictService {
        lacking: |_| Some(0),
        refusal: |_| json!({"error": {"message": "property 'reasoning_content' is unsupported"}}),
    };
    let model = service.start().await;
    let endpoint = CountingEndpoint::start().await;
    let fixture = fixture_of(&model, &endpoint).await;
    for _turn in 0..2 {
        let (status, body) = fixture.whole(json!({"messages": [user("go")]})).await;
        assert_eq!(status, 400, "{body}");
    }
    let requests = model.shared().lock().clone();
    let reasoned: Vec<_> = requests
        .iter()
        .map(|request| {
            request["messages"]
                .to_string()
                .contains("reasoning_content")
        })
        .collect();
    assert_eq!(reasoned, [false, true, false, true]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_wants_its_reasoning_back_gets_it_after_one_refusal() {
    let service = StrictService {
        lacking: without_reasoning,
        refusal: missing_reasoning,
    };
    let message = service.run().await;
    assert_eq!(message["reasoning_content"], "Let me look.");
    let extra = &message["tool_calls"][0]["extra_content"];
    assert!(extra.is_null(), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_wants_its_signatures_back_gets_them_after_one_refusal() {
    let service = StrictService {
        lacking: without_signature,
        refusal: missing_signature,
    };
    let message = service.run().await;
    let signature = &message["tool_calls"][0]["extra_content"]["google"]["thought_signature"];
    assert_eq!(signature, "signed");
    assert!(message["reasoning_content"].is_null(), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_wants_short_ids_gets_them_after_one_refusal() {
    let service = StrictService {
        lacking: with_foreign_id,
        refusal: foreign_id,
    };
    let message = service.run().await;
    assert_eq!(message["tool_calls"][0]["id"], "D681PevKs");
}
