//! MCP servers of both protocol versions that ask the user.

use std::sync::Arc;

use dray_http::fake_server::{
    self, ConnectionClosed, FakeServer, ReceivedRequest, Reply, SharedState,
};
use futures_util::FutureExt as _;
use serde_json::{Value, json};

/// A program of 2025-11-25 that asks during the call.
pub(crate) const ASKING_PROGRAM: &str =
    include_str!("../../../../tests/programs/asking_mcp_server.sh");

/// A server of 2026-07-28 that asks for an account before it pays, and whether to sign. `nag` asks until it is
/// cancelled, and `insist` also then.
pub(crate) struct Bank(FakeServer<Vec<Value>>);

fn form(message: &str, name: &str, property: &Value) -> Value {
    json!({"q": {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": {
        "type": "object", "required": [name], "properties": {name: property}}}}})
}

fn bank_result(params: &Value) -> Value {
    let done =
        |text: &str| json!({"resultType": "complete", "content": [{"type": "text", "text": text}]});
    let asks = |requests: Value| json!({"resultType": "input_required", "requestState": "sealed", "inputRequests": requests});
    let given = params.pointer("/inputResponses/q");
    let tool = params["name"].as_str().unwrap();
    if given.is_some() && params["requestState"] != "sealed" {
        return done("a wrong state");
    }
    match (
        tool,
        given.map(|given| (given["action"].as_str().unwrap(), &given["content"])),
    ) {
        ("pay", None) => asks(form(
            "Which account?",
            "account",
            &json!({"type": "string"}),
        )),
        ("pay", Some(("accept", content))) => done(&format!(
            "paid from {}",
            content["account"].as_str().unwrap()
        )),
        ("balance", None) => done("12 pounds"),
        ("lose", None) => {
            let times = params.pointer("/arguments/times").and_then(Value::as_u64);
            let times = usize::try_from(times.unwrap_or(1)).unwrap();
            let mut lost = done(&vec!["nothing is left"; times].join(", "));
            lost["isError"] = json!(true);
            lost
        }
        ("sign", None) => asks(form("Sign it?", "ok", &json!({"type": "boolean"}))),
        ("insist", _) => asks(form("Sure?", "ok", &json!({"type": "boolean"}))),
        ("nag", None | Some(("accept", _))) => {
            asks(form("More?", "ok", &json!({"type": "boolean"})))
        }
        (_, Some((action, content))) => done(&format!("{action} {content}")),
        other => panic!("{other:?}"),
    }
}

async fn bank_reply(
    shared: Arc<SharedState<Vec<Value>>>,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let message = request.json().await?;
    let tools: Vec<_> = ["pay", "sign", "nag", "insist", "balance", "lose"]
        .map(|name| json!({"name": name, "inputSchema": {"type": "object"}}))
        .into();
    let result = match message["method"].as_str().unwrap_or_default() {
        "server/discover" => json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"], "ttlMs": 0, "cacheScope": "private",
            "capabilities": {"tools": {}},
        }),
        "tools/list" => {
            json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "tools": tools})
        }
        "tools/call" => {
            let params = &message["params"];
            shared.lock().push(params.clone());
            bank_result(params)
        }
        _ => json!({}),
    };
    let body = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
    Ok(fake_server::json_reply(200, &body))
}

impl Bank {
    pub(crate) async fn start() -> Self {
        let reply = |shared: Arc<SharedState<Vec<Value>>>, request: ReceivedRequest| {
            bank_reply(shared, request).boxed()
        };
        Self(FakeServer::start(Vec::new(), reply).await.unwrap())
    }

    pub(crate) fn set(&self) -> Value {
        let url = self.0.shared().url();
        json!({"type": "mcp", "name": "bank", "mcp_server_info": {"url": url, "protocol": "streamable_http"}})
    }

    /// Records the tools and answers of all calls.
    pub(crate) fn calls(&self) -> Vec<String> {
        let calls = self.0.shared().lock();
        let call = |params: &Value| {
            let action = params.pointer("/inputResponses/q/action");
            let action = action.and_then(Value::as_str).unwrap_or("begin");
            format!("{} {action}", params["name"].as_str().unwrap())
        };
        calls.iter().map(call).collect()
    }
}
