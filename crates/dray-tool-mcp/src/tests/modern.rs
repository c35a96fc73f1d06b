//! Servers that speak MCP 2026-07-28 and nothing older.

use std::sync::Arc;

use dray_agent::caller::Caller;
use dray_http::fake_server::{
    self, ConnectionClosed, FakeServer, ReceivedRequest, Reply, SharedState,
};
use dray_tool::ToolsetResult;
use dray_types::TraceContext;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::support::{MemoryStorage, call, call_as, mcp, messages, named, options, streamable};
use crate::{McpToolset, connect_set};

const VERSION: &str = "2026-07-28";

/// A server without `initialize` and sessions.
#[derive(Debug, Default)]
struct ModernServer {
    /// The methods that were accepted, in order.
    methods: Vec<String>,
    /// `traceparent` of the header and of `_meta`, of each accepted request.
    traces: Vec<[Option<String>; 2]>,
    /// How many requests are still refused. A refusal names the version of the server.
    refuse: usize,
    /// The result of the next call; an echo if absent.
    result: Option<Value>,
    /// Whether the server knows no requests about tools.
    has_no_tools: bool,
    /// How many requests about resources and prompts still find no session.
    lost: usize,
}

impl ModernServer {
    fn is_lost(&mut self, method: &str) -> bool {
        let is_lost = self.lost > 0 && matches!(method, "resources/read" | "prompts/get");
        self.lost -= usize::from(is_lost);
        is_lost
    }
}

async fn modern_server(result: Option<Value>) -> FakeServer<ModernServer> {
    let answer = |shared: Arc<SharedState<ModernServer>>,
                  request: ReceivedRequest|
     -> BoxFuture<'static, Result<Reply, ConnectionClosed>> {
        answer(shared, request).boxed()
    };
    let state = ModernServer {
        result,
        ..ModernServer::default()
    };
    FakeServer::start(state, answer).await.unwrap()
}

const REQUIRED_HEADERS: [&str; 3] = ["mcp-protocol-version", "mcp-method", "mcp-name"];

/// Whether the headers that 2026-07-28 requires are there and agree with the body.
fn has_headers([version, method, name]: &[Option<String>; 3], message: &Value) -> bool {
    let version_pointer = "/params/_meta/io.modelcontextprotocol~1protocolVersion";
    let params = &message["params"];
    let expected_name = params
        .get("name")
        .or(params.get("uri"))
        .unwrap_or(&Value::Null);
    version.as_deref() == Some(VERSION)
        && message.pointer(version_pointer) == Some(&json!(VERSION))
        && method.as_deref() == message["method"].as_str()
        && name.as_deref() == expected_name.as_str()
}

async fn answer(
    shared: Arc<SharedState<ModernServer>>,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let headers = REQUIRED_HEADERS.map(|name| request.header(name).map(str::to_owned));
    let trace_in_header = request.header("traceparent").map(str::to_owned);
    let message = request.json().await?;
    let trace_in_message = message.pointer("/params/_meta/traceparent");
    let trace_in_message = trace_in_message.and_then(Value::as_str).map(str::to_owned);
    let id = message["id"].clone();
    let method = message["method"].as_str().unwrap_or_default().to_owned();
    let is_refused = {
        let mut state = shared.lock();
        let is_refused = state.refuse > 0;
        state.refuse = state.refuse.saturating_sub(1);
        is_refused
    };
    if is_refused || method == "initialize" || !has_headers(&headers, &message) {
        let error =
            json!({"code": -32022, "message": "unsupported", "data": {"supported": [VERSION]}});
        let body = json!({"jsonrpc": "2.0", "id": id, "error": error});
        return Ok(fake_server::json_reply(400, &body));
    }
    let mut state = shared.lock();
    if state.is_lost(&method) {
        return Ok(fake_server::json_reply(404, &json!({})));
    }
    state.methods.push(method.clone());
    state.traces.push([trace_in_header, trace_in_message]);
    let mut capabilities = json!({"resources": {}, "prompts": {}});
    if !state.has_no_tools {
        capabilities["tools"] = json!({});
    }
    let result = match method.as_str() {
        "server/discover" => json!({
            "resultType": "complete", "supportedVersions": [VERSION], "capabilities": capabilities, "ttlMs": 0,
            "cacheScope": "private",
        }),
        "tools/list" if state.has_no_tools => {
            let error = json!({"code": -32601, "message": "Method not found"});
            let body = json!({"jsonrpc": "2.0", "id": id, "error": error});
            return Ok(fake_server::json_reply(404, &body));
        }
        "tools/list" => json!({
            "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
            "tools": [{"name": "echo", "inputSchema": {"type": "object"}}],
        }),
        "tools/call" => state.result.take().unwrap_or_else(|| {
            let text = message["params"]["arguments"].to_string();
            json!({"resultType": "complete", "content": [{"type": "text", "text": text}]})
        }),
        other => {
            let Some(result) = feature_result(other, &message["params"]) else {
                let error = json!({"code": -32602, "message": "unknown"});
                let body = json!({"jsonrpc": "2.0", "id": id, "error": error});
                return Ok(fake_server::json_reply(400, &body));
            };
            result
        }
    };
    let body = json!({"jsonrpc": "2.0", "id": id, "result": result});
    Ok(fake_server::json_reply(200, &body))
}

/// Results about resources and prompts.
fn feature_result(method: &str, params: &Value) -> Option<Value> {
    Some(match method {
        "resources/list" => json!({
            "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
            "resources": [{"uri": "notes://1", "name": "one"}], "nextCursor": "2",
        }),
        "resources/templates/list" if params["cursor"] == "more" => json!({
            "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
            "resourceTemplates": [{"uriTemplate": "tags://{tag}", "name": "tag"}],
        }),
        "resources/templates/list" => json!({
            "resultType": "complete", "ttlMs": 0, "cacheScope": "private", "nextCursor": "more",
            "resourceTemplates": [{"uriTemplate": "notes://{number}", "name": "note"}],
        }),
        "prompts/list" => json!({
            "resultType": "complete", "ttlMs": 0, "cacheScope": "private", "prompts": [{"name": "greet"}],
        }),
        "prompts/get" => json!({"resultType": "complete", "messages": [
            {"role": "user", "content": {"type": "text", "text": params["arguments"].to_string()}},
        ]}),
        "resources/read" if params["uri"] == "notes://2" => json!({
            "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
            "contents": [{"uri": "notes://2", "mimeType": "image/png", "blob": "AAAA"}],
        }),
        "resources/read" if params["uri"] == "notes://1" => json!({
            "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
            "contents": [{"uri": "notes://1", "mimeType": "text/plain", "text": "the note"}],
        }),
        _ => return None,
    })
}

async fn tools_of(server: &FakeServer<ModernServer>) -> ToolsetResult {
    let set = streamable(&server.shared().url());
    let built = connect_set(McpToolset::Mcp(&set), &Caller::default(), &options()).await;
    assert_eq!(messages(&built), [""; 0]);
    built
}

#[tokio::test]
async fn a_server_that_knows_only_2026_07_28_is_connected_and_called() {
    let server = modern_server(None).await;
    let built = tools_of(&server).await;
    let output = call(&named(&built, "s_echo"), json!({"a": 1})).await;
    assert_eq!(output.unwrap().content, r#"{"a":1}"#);
    let expected = ["server/discover", "tools/list", "tools/call"];
    assert_eq!(server.shared().lock().methods, expected);
}

#[tokio::test]
async fn calls_have_their_trace_in_header_and_message_if_there_is_one() {
    const TRACE_PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let server = modern_server(None).await;
    let set = streamable(&server.shared().url());
    let mut options = options();
    options.trace = Some(|| Some(TraceContext::new(TRACE_PARENT, "")));
    let built = connect_set(McpToolset::Mcp(&set), &Caller::default(), &options).await;
    call(&named(&built, "s_echo"), json!({})).await.unwrap();
    let traces = server.shared().lock().traces.clone();
    let trace_in_both = [Some(TRACE_PARENT.to_owned()), Some(TRACE_PARENT.to_owned())];
    assert_eq!(traces, [[None, None], [None, None], trace_in_both]);
    options.trace = None;
    let built = connect_set(McpToolset::Mcp(&set), &Caller::default(), &options).await;
    call(&named(&built, "s_echo"), json!({})).await.unwrap();
    assert_eq!(server.shared().lock().traces.last(), Some(&[None, None]));
}

#[tokio::test]
async fn a_server_that_names_its_version_in_a_refusal_is_asked_again() {
    let server = modern_server(None).await;
    server.shared().lock().refuse = 1;
    assert_eq!(tools_of(&server).await.tools.len(), 1);
}

#[tokio::test]
async fn a_tool_that_needs_input_describes_it() {
    let form = json!({
        "method": "elicitation/create",
        "params": {"mode": "form", "message": "Which account?", "requestedSchema": {
            "type": "object", "required": ["account"],
            "properties": {"account": {"type": "string"}, "note": {"type": "string"}},
        }},
    });
    let page = json!({
        "method": "elicitation/create",
        "params": {"mode": "url", "message": "Please agree.", "url": "https://x.example/terms"},
    });
    let required_input = json!({
        "resultType": "input_required", "requestState": "sealed",
        "inputRequests": {"a": form, "b": page},
    });
    let server = modern_server(Some(required_input)).await;
    let built = tools_of(&server).await;
    let output = call(&named(&built, "s_echo"), json!({})).await.unwrap();
    let question = output.question.unwrap();
    let expected = json!({
        "a": {"mode": "form", "message": "Which account?", "schema": {
            "type": "object", "required": ["account"],
            "properties": {"account": {"type": "string"}, "note": {"type": "string"}},
        }},
        "b": {"mode": "url", "message": "Please agree.", "url": "https://x.example/terms"},
    });
    assert_eq!(json!(question.questions), expected);
    assert_eq!(question.resume["resume"]["repeat"]["state"], "sealed");
    assert!(!question.is_over && output.state.is_none());
}

#[tokio::test]
async fn a_linked_resource_of_the_server_becomes_a_file() {
    let links = json!({"resultType": "complete", "content": [
        {"type": "resource_link", "uri": "notes://1", "name": "one", "mimeType": "text/plain"},
        {"type": "resource_link", "uri": "notes://gone", "name": "two"},
        {"type": "resource_link", "uri": "https://x.example/page", "name": "three"},
        {"type": "resource_link", "uri": "notes://big", "name": "four", "size": 100_000_000},
    ]});
    let server = modern_server(Some(links)).await;
    let built = tools_of(&server).await;
    let storage = Arc::<MemoryStorage>::default();
    let tool = named(&built, "s_echo");
    let output = call_as(&tool, json!({}), Caller::default(), &storage).await;
    let output = output.unwrap();
    assert_eq!(
        output.content,
        "one: notes://1\n\ntwo: notes://gone\n\nthree: https://x.example/page\n\nfour: notes://big"
    );
    assert_eq!(output.attachments.len(), 1);
    let stored_files = storage.0.lock().unwrap().clone();
    let expected = ("echo-1700000000000.txt", "text/plain", "the note");
    let expected = (
        expected.0.to_owned(),
        expected.1.to_owned(),
        expected.2.into(),
    );
    assert_eq!(stored_files, [expected]);
    let methods = server.shared().lock().methods.clone();
    assert_eq!(
        methods.get(3..),
        Some(&["resources/read".to_owned(), "resources/read".to_owned()][..])
    );
}

#[tokio::test]
async fn resources_and_prompts_are_tools_where_the_manifest_asks_for_them() {
    let server = modern_server(None).await;
    let info = json!({"url": server.shared().url(), "protocol": "streamable_http"});
    let set = |resources: bool| {
        mcp(json!({
            "name": "s", "mcp_server_info": info, "resources": resources, "prompts": resources,
            "timeout_seconds": 7,
        }))
    };
    let without_features = set(false);
    let built = connect_set(
        McpToolset::Mcp(&without_features),
        &Caller::default(),
        &options(),
    )
    .await;
    assert_eq!(built.tools.len(), 1);
    let with_features = set(true);
    let built = connect_set(
        McpToolset::Mcp(&with_features),
        &Caller::default(),
        &options(),
    )
    .await;
    assert_eq!(built.tools.len(), 5);
    // R13: the limit of a set counts for all of its tools.
    for tool in &built.tools {
        let timeout = tool.rules().timeout.map(|limit| limit.as_secs());
        assert_eq!(timeout, Some(7), "{}", tool.declaration().name);
    }
    let content = async |name: &str, arguments: Value| {
        let output = call(&named(&built, name), arguments).await.unwrap();
        (output.content, output.attachments.len())
    };
    let (listed, _) = content("s_list_resources", json!({})).await;
    for uri in ["notes://1", "notes://{number}", "tags://{tag}"] {
        assert!(listed.contains(uri), "{uri}: {listed}");
    }
    let (listed, _) = content("s_list_resources", json!({"cursor": "2"})).await;
    assert!(!listed.contains("templates"), "{listed}");
    let read = content("s_read_resource", json!({"uri": "notes://1"})).await;
    assert_eq!(read, ("the note".to_owned(), 0));
    let read = content("s_read_resource", json!({"uri": "notes://2"})).await;
    assert_eq!(read.1, 1);
    let (listed, _) = content("s_list_prompts", json!({})).await;
    assert!(listed.contains("greet"), "{listed}");
    let prompt = content(
        "s_get_prompt",
        json!({"name": "greet", "arguments": {"a": "b"}}),
    )
    .await;
    assert_eq!(prompt.0, "user:\n\n{\"a\":\"b\"}");
}

#[tokio::test]
async fn a_server_without_tools_offers_its_resources_and_prompts() {
    let server = modern_server(None).await;
    server.shared().lock().has_no_tools = true;
    let info = json!({"url": server.shared().url(), "protocol": "streamable_http"});
    let set = mcp(json!({
        "name": "s", "mcp_server_info": info, "resources": true, "prompts": true,
    }));
    let built = connect_set(McpToolset::Mcp(&set), &Caller::default(), &options()).await;
    assert_eq!(messages(&built), [""; 0]);
    assert_eq!(built.tools.len(), 4);
    let tool = named(&built, "s_read_resource");
    let read = call(&tool, json!({"uri": "notes://1"})).await.unwrap();
    assert_eq!(read.content, "the note");
}

#[tokio::test]
async fn a_request_about_resources_or_prompts_is_sent_again_when_its_session_was_lost() {
    let server = modern_server(None).await;
    let info = json!({"url": server.shared().url(), "protocol": "streamable_http"});
    let set = mcp(json!({
        "name": "s", "mcp_server_info": info, "resources": true, "prompts": true,
    }));
    let built = connect_set(McpToolset::Mcp(&set), &Caller::default(), &options()).await;
    for (name, arguments, content) in [
        ("s_read_resource", json!({"uri": "notes://1"}), "the note"),
        ("s_get_prompt", json!({"name": "greet"}), "user:\n\n{}"),
    ] {
        let tool = named(&built, name);
        server.shared().lock().lost = 1;
        let output = call(&tool, arguments.clone()).await.unwrap();
        assert_eq!(output.content, content);
        server.shared().lock().lost = 2;
        let failed = call(&tool, arguments).await.unwrap_err();
        assert!(failed.to_string().contains("404"), "{failed}");
    }
}
