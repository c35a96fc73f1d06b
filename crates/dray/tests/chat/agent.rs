//! An agent that follows the script of a test, chunk by chunk, and records its requests.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use dray_http::fake_server::{
    ConnectionClosed, FakeServer, ReceivedRequest, Reply, SharedState, bytes_reply,
    json_reply as document,
};
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use http_body_util::StreamBody;
use http_body_util::combinators::BoxBody;
use serde_json::{Value, json};

/// One step of the fake agent's answer.
#[derive(Clone, Debug)]
pub(crate) enum AnswerStep {
    /// `data: …`
    Event(Value),
    /// Any bytes.
    Raw(Bytes),
    /// Silence until the client disconnects.
    Silence,
    /// The connection breaks.
    Break,
    /// Removes a directory.
    Remove(std::path::PathBuf),
}

/// The scripted answer to a question.
#[derive(Clone, Debug)]
pub(crate) enum AnswerScript {
    /// As server-sent events with status 200.
    Stream(Vec<AnswerStep>),
    /// Responds with a status and a body.
    Status(u16, Value),
}

/// A request that the fake agent received.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedQuestion {
    pub(crate) path: String,
    pub(crate) authorization: Option<String>,
    pub(crate) api_key: Option<String>,
    pub(crate) body: Value,
}

#[derive(Debug, Default)]
pub(crate) struct AgentState {
    pub(crate) scripts: VecDeque<AnswerScript>,
    pub(crate) asked: Vec<ReceivedQuestion>,
    /// Number of streams whose client disconnected before they ended.
    pub(crate) left: usize,
    /// Other paths that were requested.
    pub(crate) fetched: Vec<String>,
    pub(crate) models: Vec<&'static str>,
}

pub(crate) struct FakeAgent(FakeServer<AgentState>);

impl FakeAgent {
    /// An agent with these answers, in this order.
    pub(crate) async fn start(scripts: Vec<AnswerScript>) -> Self {
        let state = AgentState {
            scripts: scripts.into(),
            models: vec!["harbour"],
            ..AgentState::default()
        };
        Self(FakeServer::start(state, answer).await.unwrap())
    }

    pub(crate) fn url(&self) -> String {
        self.0.shared().url()
    }

    pub(crate) fn state(&self) -> std::sync::MutexGuard<'_, AgentState> {
        self.0.shared().lock()
    }

    pub(crate) fn asked(&self) -> Vec<ReceivedQuestion> {
        self.state().asked.clone()
    }
}

/// Text in two chunks, and an end.
pub(crate) fn says(text: &str) -> Vec<AnswerStep> {
    let (head, tail) = text.split_at(text.len() / 2);
    vec![
        delta(&json!({"role": "assistant"})),
        delta(&json!({"content": head})),
        delta(&json!({"content": tail})),
        end(),
        done(),
    ]
}

pub(crate) fn delta(delta: &Value) -> AnswerStep {
    AnswerStep::Event(
        json!({"choices": [{"index": 0, "finish_reason": null, "delta": delta}], "usage": null}),
    )
}

pub(crate) fn custom(custom: &Value) -> AnswerStep {
    delta(&json!({"custom_content": custom}))
}

pub(crate) fn end() -> AnswerStep {
    AnswerStep::Event(json!({
        "choices": [{"index": 0, "finish_reason": "stop", "delta": {}}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }))
}

pub(crate) fn done() -> AnswerStep {
    AnswerStep::Raw(Bytes::from_static(b"data: [DONE]\n\n"))
}

fn answer(
    shared: Arc<SharedState<AgentState>>,
    request: ReceivedRequest,
) -> BoxFuture<'static, Result<Reply, ConnectionClosed>> {
    Box::pin(async move {
        let header = |name| request.header(name).map(ToOwned::to_owned);
        let mut asked = ReceivedQuestion {
            path: request.path.clone(),
            authorization: header("authorization"),
            api_key: header("api-key"),
            body: Value::Null,
        };
        if request.method == "GET" {
            let mut state = shared.lock();
            state.fetched.push(asked.path.clone());
            return Ok(match asked.path.as_str() {
                "/v1/models" => {
                    let models = state.models.iter();
                    let models: Vec<_> = models.map(|id| json!({"id": id})).collect();
                    document(200, &json!({"data": models}))
                }
                "/gone" => bytes_reply(403, "text/plain", Bytes::new()),
                _ => bytes_reply(200, "text/plain", Bytes::from_static(b"stored")),
            });
        }
        asked.body = request.json().await?;
        let script = {
            let mut state = shared.lock();
            state.asked.push(asked);
            state.scripts.pop_front()
        };
        match script {
            Some(AnswerScript::Stream(steps)) => Ok(stream(shared, steps)),
            Some(AnswerScript::Status(status, body)) => Ok(document(status, &body)),
            None => Ok(document(
                500,
                &json!({"error": {"message": "not expected"}}),
            )),
        }
    })
}

/// Counts a client that disconnects before the end of the response.
struct DisconnectCounter {
    shared: Arc<SharedState<AgentState>>,
    ended: bool,
}

impl DisconnectCounter {
    fn end(&mut self) {
        self.ended = true;
    }
}

impl Drop for DisconnectCounter {
    fn drop(&mut self) {
        if !self.ended {
            self.shared.lock().left += 1;
        }
    }
}

fn stream(shared: Arc<SharedState<AgentState>>, steps: Vec<AnswerStep>) -> Reply {
    let watch = DisconnectCounter {
        shared,
        ended: false,
    };
    let state = (watch, VecDeque::from(steps));
    let body = futures_util::stream::unfold(state, |(mut watch, mut steps)| async move {
        // The events so far are written out before the next step.
        tokio::task::yield_now().await;
        let Some(step) = steps.pop_front() else {
            watch.end();
            return None;
        };
        let piece = match step {
            AnswerStep::Event(event) => Ok(Bytes::from(format!("data: {event}\n\n"))),
            AnswerStep::Raw(bytes) => Ok(bytes),
            AnswerStep::Silence => std::future::pending().await,
            AnswerStep::Remove(directory) => {
                std::fs::remove_dir_all(directory).unwrap();
                Ok(Bytes::from_static(b": gone\n\n"))
            }
            AnswerStep::Break => {
                watch.end();
                Err(ConnectionClosed)
            }
        };
        Some((piece, (watch, steps)))
    });
    let frames = body.map(|piece| piece.map(frame));
    let mut whole = bytes_reply(200, "text/event-stream", Bytes::new());
    *whole.body_mut() = BoxBody::new(StreamBody::new(frames));
    whole
}

fn frame(bytes: Bytes) -> http_body::Frame<Bytes> {
    http_body::Frame::data(bytes)
}
