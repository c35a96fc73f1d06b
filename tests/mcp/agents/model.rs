//! A model that calls one tool until it has the file, in the three HTTP APIs that agents speak: responses and chat
//! completions of `OpenAI`, and messages of Anthropic, all as event streams.

use std::fmt::Write as _;
use std::sync::Arc;

use dray_http::fake_server::{
    self, ConnectionClosed, FakeServer, ReceivedRequest, Reply, SharedState,
};
use futures_util::FutureExt as _;
use serde_json::{Value, json};

use super::FILE_TEXT;

/// The final text of the model.
pub(super) const FINAL_TEXT: &str = "Reading is done.";
/// Most calls of the tool: an agent that starts its servers in the background offers the tool only in later requests.
const MAX_CALLS: usize = 500;

/// The model of one test.
pub(super) struct RehearsedModel(FakeServer<ModelState>);

struct ModelState {
    /// The tool as the agent names it; the responses API puts a namespace and a slash before it.
    tool: &'static str,
    /// Results of tools, those of each request as one text.
    results: Vec<String>,
}

/// The next response of the model.
enum NextStep {
    Call,
    Say,
}

impl RehearsedModel {
    pub(super) async fn start(tool: &'static str) -> Self {
        let results = Vec::new();
        let server = FakeServer::start(ModelState { tool, results }, |shared, request| {
            respond(shared, request).boxed()
        });
        Self(server.await.unwrap())
    }

    pub(super) fn url(&self) -> String {
        self.0.shared().url()
    }

    /// Results of tools, one text for each request that had some.
    pub(super) fn results(&self) -> Vec<String> {
        self.0.shared().lock().results.clone()
    }
}

async fn respond(
    shared: Arc<SharedState<ModelState>>,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let path = request.path.clone();
    let body = request.json().await.unwrap_or_default();
    let (step, tool) = {
        let mut state = shared.lock();
        (next_step(&mut state, &body), state.tool)
    };
    let events = match path.as_str() {
        "/v1/responses" => response_events(&step, tool),
        "/v1/messages" => message_events(&step, tool),
        "/v1/chat/completions" => completion_events(&step, tool),
        // Agents also request lists of models and token counts.
        _ => return Ok(fake_server::json_reply(404, &json!({}))),
    };
    Ok(fake_server::bytes_reply(
        200,
        "text/event-stream",
        events.into(),
    ))
}

/// Calls the tool where the request offers tools and has no result with the file yet.
fn next_step(state: &mut ModelState, body: &Value) -> NextStep {
    let offers_tools = body["tools"]
        .as_array()
        .is_some_and(|tools| !tools.is_empty());
    let results = tool_results(body);
    if !results.is_empty() {
        state.results.push(results.clone());
    }
    let is_done = results.contains(FILE_TEXT) || state.results.len() >= MAX_CALLS;
    if offers_tools && !is_done {
        NextStep::Call
    } else {
        NextStep::Say
    }
}

/// All results of tools in a request, as JSON.
fn tool_results(body: &Value) -> String {
    let items = body["input"].as_array().into_iter().flatten();
    let outputs = items.filter(|item| item["type"] == "function_call_output");
    let messages = || body["messages"].as_array().into_iter().flatten();
    let tool_messages = messages().filter(|message| message["role"] == "tool");
    let parts = messages()
        .filter_map(|message| message["content"].as_array())
        .flatten();
    let blocks = parts.filter(|part| part["type"] == "tool_result");
    outputs
        .chain(tool_messages)
        .chain(blocks)
        .map(Value::to_string)
        .collect()
}

fn arguments() -> String {
    json!({"path": "notes.txt"}).to_string()
}

/// Events with names, as responses and messages have them.
fn named_events(events: &[Value]) -> String {
    events.iter().fold(String::new(), |mut text, event| {
        let name = event["type"].as_str().unwrap_or_default();
        let _ = write!(text, "event: {name}\ndata: {event}\n\n");
        text
    })
}

fn response_events(step: &NextStep, tool: &str) -> String {
    let item = match step {
        NextStep::Call => {
            let (namespace, name) = tool.split_once('/').unwrap();
            json!({"type": "function_call", "id": "call", "call_id": "call", "namespace": namespace,
                "name": name, "arguments": arguments()})
        }
        NextStep::Say => json!({"type": "message", "role": "assistant", "id": "message",
            "content": [{"type": "output_text", "text": FINAL_TEXT}]}),
    };
    let usage = json!({"input_tokens": 1, "output_tokens": 1, "total_tokens": 2});
    named_events(&[
        json!({"type": "response.created", "response": {"id": "response"}}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
        json!({"type": "response.completed", "response": {"id": "response", "usage": usage}}),
    ])
}

fn message_events(step: &NextStep, tool: &str) -> String {
    let (block, delta, reason) = match step {
        NextStep::Call => (
            json!({"type": "tool_use", "id": "call", "name": tool, "input": {}}),
            json!({"type": "input_json_delta", "partial_json": arguments()}),
            "tool_use",
        ),
        NextStep::Say => (
            json!({"type": "text", "text": ""}),
            json!({"type": "text_delta", "text": FINAL_TEXT}),
            "end_turn",
        ),
    };
    let usage = json!({"input_tokens": 1, "output_tokens": 1});
    let message = json!({"id": "message", "type": "message", "role": "assistant", "model": "rehearsed",
        "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage});
    named_events(&[
        json!({"type": "message_start", "message": message}),
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
        json!({"type": "content_block_delta", "index": 0, "delta": delta}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}),
        json!({"type": "message_stop"}),
    ])
}

fn completion_events(step: &NextStep, tool: &str) -> String {
    let (delta, reason) = match step {
        NextStep::Call => {
            let function = json!({"name": tool, "arguments": arguments()});
            let call = json!({"index": 0, "id": "call", "type": "function", "function": function});
            (
                json!({"role": "assistant", "tool_calls": [call]}),
                "tool_calls",
            )
        }
        NextStep::Say => (json!({"role": "assistant", "content": FINAL_TEXT}), "stop"),
    };
    let chunk = |delta: Value, reason: Value| {
        json!({"id": "chunk", "object": "chat.completion.chunk", "created": 1, "model": "rehearsed",
            "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})
    };
    let chunks = [chunk(delta, Value::Null), chunk(json!({}), reason.into())];
    let mut text = String::new();
    for chunk in chunks {
        let _ = write!(text, "data: {chunk}\n\n");
    }
    text + "data: [DONE]\n\n"
}
