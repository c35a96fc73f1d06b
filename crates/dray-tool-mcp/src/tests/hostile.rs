//! Tests of servers that send without end on a stream that stays open: server-sent events of 2024-11-05, and the
//! standing stream of a session.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use dray_agent::caller::Caller;
use dray_http::fake_server::{
    self, ConnectionClosed, FakeServer, ReceivedRequest, Reply, SharedState,
};
use dray_tool::{ToolsetResult, UserAnswer, UserQuestion};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use serde_json::{Map, Value, json};

use super::support::{
    FakeAction, FakeMcpServer, call, fake_server as scripted_server, mcp, messages, named, options,
};
use crate::{McpToolset, QuestionPort, connect_set};

/// A server that repeats one text on its stream.
#[derive(Debug)]
struct FloodingServer {
    flood: Bytes,
    /// Whether the client has closed the stream.
    is_closed: Arc<AtomicBool>,
}

/// Sets its flag when the stream that owns it is dropped.
struct ClosedFlag(Arc<AtomicBool>);

impl Drop for ClosedFlag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

async fn flooding(flood: &str) -> FakeServer<FloodingServer> {
    let answer = |shared: Arc<SharedState<FloodingServer>>,
                  request: ReceivedRequest|
     -> BoxFuture<'static, Result<Reply, ConnectionClosed>> {
        answer(shared, request).boxed()
    };
    let state = FloodingServer {
        // The flood is in chunks of some length, because a test server sends short ones slowly.
        flood: flood.repeat((64 << 10) / flood.len() + 1).into(),
        is_closed: Arc::default(),
    };
    FakeServer::start(state, answer).await.unwrap()
}

async fn answer(
    shared: Arc<SharedState<FloodingServer>>,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    if request.method == "GET" {
        let state = shared.lock();
        let (flood, flag) = (
            state.flood.clone(),
            ClosedFlag(Arc::clone(&state.is_closed)),
        );
        let endpoint = Bytes::from_static(b"event: endpoint\ndata: /messages\n\n");
        let flood = stream::repeat_with(move || {
            let _ = &flag;
            flood.clone()
        });
        let body = stream::iter([endpoint]).chain(flood).map(Ok);
        return Ok(fake_server::stream_reply("text/event-stream", body));
    }
    let message = request.json().await?;
    let id = message["id"].clone();
    let result = |result: Value| {
        fake_server::json_reply(200, &json!({"jsonrpc": "2.0", "id": id, "result": result}))
    };
    Ok(match message["method"].as_str().unwrap_or_default() {
        "initialize" => {
            let information = json!({
                "protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "flooding", "version": "1"},
            });
            fake_server::with_header(result(information), "mcp-session-id", "s1")
        }
        "tools/list" => {
            result(json!({"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}))
        }
        "tools/call" => result(json!({"content": [{"type": "text", "text": "fine"}]})),
        _ => fake_server::bytes_reply(202, "text/plain", Bytes::new()),
    })
}

async fn connect_toolset(url: &str, protocol: &str) -> ToolsetResult {
    let set = mcp(json!({"name": "s", "mcp_server_info": {"url": url, "protocol": protocol}}));
    connect_set(McpToolset::Mcp(&set), &Caller::default(), &options()).await
}

/// An event with this message.
fn event(message: &Value) -> String {
    format!("data: {message}\n\n")
}

/// Texts that a server repeats, and the refusal of each.
fn floods() -> [(String, &'static str); 6] {
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    let log = json!({"level": "info", "data": "x".repeat(10_000)});
    let log = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": log});
    let response = json!({"jsonrpc": "2.0", "id": 4711, "result": {"x": "x".repeat(10_000)}});
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let too_much = "it sends too much besides responses";
    [
        (format!(": {}\n\n", "x".repeat(10_000)), too_much),
        (format!("event: other\n{}", event(&log)), too_much),
        (event(&log), too_much),
        (event(&response), too_much),
        (event(&changed), "it sends too many notifications"),
        (event(&ping), "it sends too many requests"),
    ]
}

#[tokio::test]
async fn a_stream_of_events_that_does_not_end_is_refused() {
    for (flood, reason) in floods() {
        let server = flooding(&flood).await;
        let built = connect_toolset(&format!("{}/sse", server.shared().url()), "sse").await;
        let text =
            format!("MCP error for s: the server does not respond as an MCP server: {reason}");
        assert_eq!(messages(&built), [text]);
    }
}

#[tokio::test]
async fn an_event_that_does_not_end_is_refused() {
    let server = flooding("data: xxxxxxxx").await;
    let built = connect_toolset(&format!("{}/sse", server.shared().url()), "sse").await;
    let text = "MCP error for s: the answer is longer than 16777216 bytes";
    assert_eq!(messages(&built), [text]);
}

#[tokio::test]
async fn a_standing_stream_without_end_is_closed_and_the_session_works() {
    for (flood, _) in floods() {
        let server = flooding(&flood).await;
        let built = connect_toolset(&server.shared().url(), "streamable_http").await;
        assert_eq!(messages(&built), [""; 0]);
        let state = server.shared();
        let is_closed = async || {
            let is_closed = state.lock().is_closed.load(Ordering::Relaxed);
            is_closed.then_some(())
        };
        dray_testkit::eventually("the end of the stream", is_closed).await;
        let output = call(&named(&built, "s_echo"), json!({})).await.unwrap();
        assert_eq!(output.content, "fine");
    }
}

/// Counts the questions of a user who accepts each one.
#[derive(Debug, Default)]
struct CountingUser(AtomicUsize);

#[async_trait]
impl QuestionPort for CountingUser {
    async fn ask(&self, _: &str, _: &UserQuestion, _: &Caller) -> UserAnswer {
        self.0.fetch_add(1, Ordering::Relaxed);
        UserAnswer::Accepted(Map::new())
    }
}

#[tokio::test]
async fn a_user_is_asked_a_limited_number_of_questions_during_a_call() {
    let server = scripted_server(FakeMcpServer {
        acts: vec![FakeAction::Questions(40)],
        ..FakeMcpServer::default()
    })
    .await;
    let user = Arc::new(CountingUser::default());
    let mut options = options();
    options.questions = Some(Arc::clone(&user) as Arc<dyn QuestionPort>);
    let url = server.shared().url();
    let set =
        mcp(json!({"name": "s", "mcp_server_info": {"url": url, "protocol": "streamable_http"}}));
    let built = connect_set(McpToolset::Mcp(&set), &Caller::default(), &options).await;
    let output = call(&named(&built, "s_echo0"), json!({})).await.unwrap();
    assert_eq!(output.content, "after the requests");
    let answered = async || (server.shared().lock().answers == 40).then_some(());
    dray_testkit::eventually("the responses to the requests", answered).await;
    assert_eq!(user.0.load(Ordering::Relaxed), 32);
}
