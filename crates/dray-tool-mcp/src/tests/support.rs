//! Storage, DIAL and a server for the tests.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use dray_agent::caller::Caller;
use dray_agent::manifest::toolset::{DialMcp, Mcp};
use dray_agent::message::Attachment;
use dray_http::fake_server::{
    self, ConnectionClosed, FakeServer, ReceivedRequest, Reply, SharedState,
};
use dray_http::{HttpClient, HttpTimeouts};
use dray_tool::{
    FileStorage, StageWriter, Tool, ToolCall, ToolFailure, ToolOutput, ToolsetResult, Turn,
    UrlClass,
};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::McpOptions;

/// Keeps files in memory.
#[derive(Debug, Default)]
pub(super) struct MemoryStorage(pub(super) Mutex<Vec<(String, String, Bytes)>>);

#[async_trait]
impl FileStorage for MemoryStorage {
    fn classify(&self, url: &str) -> UrlClass {
        match url {
            url if url.starts_with("files/") || url.contains("/v1/files/") => UrlClass::Dial,
            url if url.starts_with("http") => UrlClass::External,
            url if url.starts_with("data:") => UrlClass::Data,
            _ => UrlClass::Unsupported,
        }
    }

    async fn durable(&self, parameter: &str, _: &str) -> Result<Attachment, ToolFailure> {
        Err(ToolFailure::parameter(parameter, "nothing is durable here"))
    }

    async fn keep(&self, name: &str, kind: &str, bytes: Bytes) -> Result<Attachment, ToolFailure> {
        let mut files = self.0.lock().unwrap();
        files.push((name.to_owned(), kind.to_owned(), bytes));
        Ok(Attachment {
            kind: Some(kind.to_owned()),
            url: Some(format!("files/b/{name}")),
            ..Attachment::default()
        })
    }
}

pub(super) fn options() -> McpOptions {
    let client = HttpClient::new(HttpTimeouts::default(), None).unwrap();
    McpOptions {
        clock: dray_types::Clock::manual(1_700_000_000_000),
        ..McpOptions::new(client)
    }
}

pub(super) fn mcp(value: Value) -> Mcp {
    serde_json::from_value(value).unwrap()
}

pub(super) fn streamable(url: &str) -> Mcp {
    mcp(json!({"name": "s", "mcp_server_info": {"url": url, "protocol": "streamable_http"}}))
}

pub(super) fn dial_mcp(id: &str) -> DialMcp {
    serde_json::from_value(json!({"dial_id": id, "name": id})).unwrap()
}

pub(super) fn named(built: &ToolsetResult, name: &str) -> Arc<dyn Tool> {
    let of_name = |tool: &&Arc<dyn Tool>| tool.declaration().name == name;
    Arc::clone(built.tools.iter().find(of_name).unwrap_or_else(|| {
        panic!("no {name} in {built:?}");
    }))
}

pub(super) fn messages(built: &ToolsetResult) -> Vec<&str> {
    built
        .issues
        .iter()
        .map(|issue| issue.message.as_str())
        .collect()
}

pub(super) async fn call_as(
    tool: &Arc<dyn Tool>,
    arguments: Value,
    caller: Caller,
    storage: &Arc<MemoryStorage>,
) -> Result<ToolOutput, ToolFailure> {
    let storage: Arc<dyn FileStorage> = Arc::<MemoryStorage>::clone(storage);
    call_with(tool, arguments, caller, storage).await
}

pub(super) async fn call_with(
    tool: &Arc<dyn Tool>,
    arguments: Value,
    caller: Caller,
    storage: Arc<dyn FileStorage>,
) -> Result<ToolOutput, ToolFailure> {
    let turn = Turn::new(caller, "session", Vec::new(), storage, 1 << 20);
    let arguments = arguments.as_object().unwrap().clone();
    let call = ToolCall {
        id: "1".to_owned(),
        written: arguments.clone(),
        arguments,
        stage: StageWriter::hidden(),
        deadline: Instant::now() + Duration::from_mins(1),
    };
    tool.call(call, &turn).await
}

pub(super) async fn call(
    tool: &Arc<dyn Tool>,
    arguments: Value,
) -> Result<ToolOutput, ToolFailure> {
    call_as(tool, arguments, Caller::default(), &Arc::default()).await
}

/// Behaviour of the fake server when a tool is called.
#[derive(Clone, Debug, Default)]
pub(super) enum FakeAction {
    #[default]
    Echo,
    Status(u16),
    Hang,
    Huge,
    HugeEvents,
    Cut,
    Closed,
    WrongJson,
    NoMessage,
    OtherId,
    Code(i32),
    Accepted,
    Batch,
    Resumable,
    /// This many requests of the server, and then a result.
    Requests(usize),
    /// A result of this many empty texts.
    Blocks(usize),
    /// A result of this many pictures.
    Pictures(usize),
    /// This result.
    Result(Value),
    /// An error with this message.
    Message(String),
    /// This many questions to the user, and then a result.
    Questions(usize),
    /// As events, a response to another request, then the response, and the response again.
    Responses,
}

/// A scripted server that misbehaves.
#[derive(Debug, Default)]
pub(super) struct FakeMcpServer {
    /// The actions for the next calls, one each; later calls are echoed.
    pub(super) acts: Vec<FakeAction>,
    /// The status for the next messages, and their number.
    pub(super) refuse: Option<(u16, usize)>,
    /// Cursors of the pages of the list; the last page has none.
    pub(super) cursors: Vec<&'static str>,
    pub(super) schema: Option<Value>,
    /// The version in the response to `initialize`; that of the request if absent.
    pub(super) version: Option<&'static str>,
    /// The tools on one page, in place of those above.
    pub(super) tools: Option<Value>,
    pub(super) started: usize,
    pub(super) calls: Vec<Value>,
    pub(super) cancelled: usize,
    /// Number of responses to requests of this server.
    pub(super) answers: usize,
    pub(super) ended: usize,
    /// The id of the call whose response comes when its stream is resumed.
    pub(super) resumed: Value,
    pub(super) headers: Vec<Vec<(String, String)>>,
    /// The requests that DIAL itself got.
    pub(super) asked: Vec<(String, Value)>,
}

impl FakeMcpServer {
    fn refusal(&mut self) -> Option<Reply> {
        let (status, left) = self.refuse.as_mut()?;
        *left = left.checked_sub(1)?;
        let body = json!({"secret": "of-the-server"});
        Some(fake_server::json_reply(*status, &body))
    }

    /// Records a call, and takes the action for it off the script.
    fn next_action(&mut self, message: &Value) -> FakeAction {
        self.calls.push(message["params"].clone());
        self.resumed = message["id"].clone();
        if self.acts.is_empty() {
            FakeAction::Echo
        } else {
            self.acts.remove(0)
        }
    }
}

const WATCHED_HEADERS: [&str; 7] = [
    "authorization",
    "api-key",
    "x-tenant",
    "x-secret",
    "x-key",
    "mcp-session-id",
    "mcp-protocol-version",
];

pub(super) async fn fake_server(state: FakeMcpServer) -> FakeServer<FakeMcpServer> {
    let answer = |shared: Arc<SharedState<FakeMcpServer>>,
                  request: ReceivedRequest|
     -> BoxFuture<'static, Result<Reply, ConnectionClosed>> {
        answer(shared, request).boxed()
    };
    FakeServer::start(state, answer).await.unwrap()
}

/// Whether a request opens the standing stream of a session. The server has none, and counts only the other requests.
fn is_standing(request: &ReceivedRequest) -> bool {
    let is_session = request.header("mcp-session-id").is_some();
    request.method == "GET" && is_session && request.header("last-event-id").is_none()
}

async fn answer(
    shared: Arc<SharedState<FakeMcpServer>>,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let headers = WATCHED_HEADERS
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), request.header(name)?.to_owned())))
        .collect();
    let method = request.method.clone();
    if request.path.starts_with("/openai/") || request.path.starts_with("/v1/ops/") {
        return dial(&shared, request).await;
    }
    if is_standing(&request) {
        return Ok(fake_server::json_reply(405, &json!({})));
    }
    {
        let mut state = shared.lock();
        state.headers.push(headers);
        if method == "DELETE" {
            state.ended += 1;
            return Ok(fake_server::json_reply(200, &json!({})));
        }
        if method == "GET" && request.header("last-event-id") == Some("7") {
            return Ok(resumed_reply(&state.resumed));
        }
        if let Some(reply) = state.refusal() {
            return Ok(reply);
        }
    }
    let message = request.json().await?;
    let id = message["id"].clone();
    let result = |result: Value| {
        fake_server::json_reply(200, &json!({"jsonrpc": "2.0", "id": id, "result": result}))
    };
    let act = {
        let mut state = shared.lock();
        match message["method"].as_str().unwrap_or_default() {
            "" => {
                state.answers += 1;
                return Ok(fake_server::bytes_reply(202, "text/plain", Bytes::new()));
            }
            "initialize" => {
                state.started += 1;
                let session = format!("session-{}", state.started);
                let version = state.version.map(|version| json!(version));
                let version = version.as_ref();
                let version = version.unwrap_or(&message["params"]["protocolVersion"]);
                let reply = result(server_info(version));
                return Ok(fake_server::with_header(reply, "mcp-session-id", &session));
            }
            "tools/list" => return Ok(result(page(&state, &message["params"]["cursor"]))),
            "tools/call" => state.next_action(&message),
            "notifications/cancelled" => {
                state.cancelled += 1;
                return Ok(fake_server::bytes_reply(202, "text/plain", Bytes::new()));
            }
            _ => return Ok(fake_server::bytes_reply(202, "text/plain", Bytes::new())),
        }
    };
    let text =
        json!({"content": [{"type": "text", "text": message["params"]["arguments"].to_string()}]});
    act_out(act, &id, result(text)).await
}

fn server_info(version: &Value) -> Value {
    json!({
        "protocolVersion": version,
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "fake", "version": "1"},
    })
}

fn resumed_reply(id: &Value) -> Reply {
    let result = json!({"content": [{"type": "text", "text": "resumed"}]});
    let body = json!({"jsonrpc": "2.0", "id": id, "result": result});
    fake_server::bytes_reply(200, "text/event-stream", format!("data: {body}\n\n").into())
}

/// DIAL itself: metadata, grants and sign-in.
async fn dial(
    shared: &SharedState<FakeMcpServer>,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let path = request.path.clone();
    let body = match request.method.as_str() {
        "GET" => Value::Null,
        _ => request.json().await?,
    };
    shared.lock().asked.push((path.clone(), body));
    Ok(if path.ends_with("/interact") {
        let event = "data: [{\"id\":\"1\",\"result\":\"success\"}]\n\n";
        fake_server::bytes_reply(200, "text/event-stream", event.into())
    } else {
        fake_server::json_reply(200, &json!({"display_name": "Shown", "transport": "HTTP"}))
    })
}

fn page(state: &FakeMcpServer, cursor: &Value) -> Value {
    let index = cursor
        .as_str()
        .and_then(|cursor| state.cursors.iter().position(|known| *known == cursor))
        .map_or(0, |index| index + 1);
    let schema = state.schema.clone().unwrap_or(json!({"type": "object"}));
    let own = json!([{"name": format!("echo{index}"), "inputSchema": schema}]);
    let mut page = json!({"tools": state.tools.as_ref().unwrap_or(&own)});
    if let Some(next) = state.cursors.get(index) {
        page["nextCursor"] = json!(next);
    }
    page
}

/// Requests of the server before the response, in one stream.
fn requests_reply(id: &Value, count: usize, method: &str, params: &Value) -> Reply {
    let requests = (0..count).map(|number| {
        json!({"jsonrpc": "2.0", "id": format!("p{number}"), "method": method, "params": params})
    });
    let response = text_response(id, "after the requests");
    events_reply(requests.chain([response]))
}

fn events_reply(messages: impl IntoIterator<Item = Value>) -> Reply {
    let mut events = String::new();
    for message in messages {
        let _ = write!(events, "data: {message}\n\n");
    }
    fake_server::bytes_reply(200, "text/event-stream", events.into())
}

fn text_response(id: &Value, text: &str) -> Value {
    let result = json!({"content": [{"type": "text", "text": text}]});
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

/// Many messages, or a message with many parts.
fn repeated_reply(act: &FakeAction, id: &Value) -> Reply {
    let json = |value: Value| fake_server::json_reply(200, &value);
    match act {
        FakeAction::Requests(count) => requests_reply(id, *count, "ping", &json!({})),
        FakeAction::Questions(count) => {
            let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
            let params = json!({"mode": "form", "message": "Again?", "requestedSchema": schema});
            requests_reply(id, *count, "elicitation/create", &params)
        }
        FakeAction::Blocks(count) => {
            let blocks = vec![json!({"type": "text", "text": ""}); *count];
            json(json!({"jsonrpc": "2.0", "id": id, "result": {"content": blocks}}))
        }
        FakeAction::Pictures(count) => {
            let picture = json!({"type": "image", "data": "AAAA", "mimeType": "image/png"});
            let result = json!({"content": vec![picture; *count]});
            json(json!({"jsonrpc": "2.0", "id": id, "result": result}))
        }
        _ => {
            let own = text_response(id, "own");
            events_reply([text_response(&json!(4711), "other"), own.clone(), own])
        }
    }
}

async fn act_out(act: FakeAction, id: &Value, echo: Reply) -> Result<Reply, ConnectionClosed> {
    let huge = || Bytes::from(vec![b'a'; 50 << 20]);
    let json = |value: Value| Ok(fake_server::json_reply(200, &value));
    match act {
        FakeAction::Echo => Ok(echo),
        FakeAction::Status(status) => Ok(fake_server::json_reply(
            status,
            &json!({"secret": "of-the-server"}),
        )),
        FakeAction::Hang => std::future::pending().await,
        FakeAction::Huge => Ok(fake_server::bytes_reply(200, "application/json", huge())),
        FakeAction::HugeEvents => Ok(fake_server::bytes_reply(200, "text/event-stream", huge())),
        FakeAction::Cut => Ok(fake_server::bytes_reply(
            200,
            "text/event-stream",
            ": and then\n\n".into(),
        )),
        FakeAction::Closed => Err(ConnectionClosed),
        FakeAction::WrongJson => Ok(fake_server::bytes_reply(
            200,
            "application/json",
            "{".into(),
        )),
        FakeAction::NoMessage => json(json!({"jsonrpc": "1.0"})),
        FakeAction::OtherId => {
            json(json!({"jsonrpc": "2.0", "id": 4711, "result": {"content": []}}))
        }
        FakeAction::Code(code) => {
            json(json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "says no"}}))
        }
        FakeAction::Batch => {
            let log = json!({"level": "info", "data": "a line"});
            let log = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": log});
            let result = json!({"content": [{"type": "text", "text": "one of two"}]});
            json(json!([log, {"jsonrpc": "2.0", "id": id, "result": result}]))
        }
        FakeAction::Resumable => Ok(fake_server::bytes_reply(
            200,
            "text/event-stream",
            "id: 7\nretry: 10\ndata:\n\n".into(),
        )),
        act @ (FakeAction::Requests(_)
        | FakeAction::Questions(_)
        | FakeAction::Responses
        | FakeAction::Blocks(_)
        | FakeAction::Pictures(_)) => Ok(repeated_reply(&act, id)),
        FakeAction::Result(result) => json(json!({"jsonrpc": "2.0", "id": id, "result": result})),
        FakeAction::Message(message) => {
            let error = json!({"code": 1, "message": message});
            json(json!({"jsonrpc": "2.0", "id": id, "error": error}))
        }
        FakeAction::Accepted => Ok(fake_server::bytes_reply(202, "text/plain", Bytes::new())),
    }
}
