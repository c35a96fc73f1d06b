//! An MCP server that asks during its calls, and agents whose chats get the questions.

use std::sync::Arc;

use dray_http::fake_server::{
    self, ConnectionClosed, FakeServer, ReceivedRequest, Reply, SharedState,
};
use futures_util::FutureExt as _;
use serde_json::{Value, json};

use super::approvals::{APPROVER_ID, OPS_CHAT, OpsFixture};
use super::fixture::AgentSetup;

/// A server of 2026-07-28. `pay` asks which account, `note` asks for a text, `twice` asks two times, `balance` never.
pub(super) struct AskingServer(FakeServer<Vec<String>>);

fn form(name: &str, property: &Value) -> Value {
    json!({"q": {"method": "elicitation/create", "params": {
        "mode": "form", "message": "Which\u{202e} account?", "requestedSchema": {
            "type": "object", "required": [name], "properties": {name: property}}}}})
}

fn call_result(params: &Value) -> Value {
    let done =
        |text: &str| json!({"resultType": "complete", "content": [{"type": "text", "text": text}]});
    let asks = |requests: Value, state: &str| json!({"resultType": "input_required", "requestState": state, "inputRequests": requests});
    let account = form(
        "account",
        &json!({"type": "string", "enum": ["first", "second"]}),
    );
    let given = params.pointer("/inputResponses/q");
    let state = params["requestState"].as_str();
    match (params["name"].as_str().unwrap(), state, given) {
        ("balance", ..) => done("12 pounds"),
        ("note", None, _) => asks(form("note", &json!({"type": "string"})), "noting"),
        ("twice", None, _) => asks(account, "once"),
        ("twice", Some("once"), Some(_)) | (_, None, _) => asks(account, "sealed"),
        (_, Some(_), given) => {
            let given = given.cloned().unwrap_or_default();
            let action = given["action"].as_str().unwrap_or("none");
            done(&format!("{action} {}", given["content"]))
        }
    }
}

async fn reply(
    shared: Arc<SharedState<Vec<String>>>,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let message = request.json().await?;
    let tools = ["pay", "note", "twice", "balance"];
    let tools = tools.map(|name| json!({"name": name, "inputSchema": {"type": "object"}}));
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
            let action = params.pointer("/inputResponses/q/action");
            let action = action.and_then(Value::as_str).unwrap_or("begin");
            let call = format!("{} {action}", params["name"].as_str().unwrap());
            shared.lock().push(call);
            call_result(params)
        }
        _ => json!({}),
    };
    let body = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
    Ok(fake_server::json_reply(200, &body))
}

impl AskingServer {
    pub(super) async fn start() -> Self {
        let reply = |shared: Arc<SharedState<Vec<String>>>, request: ReceivedRequest| {
            reply(shared, request).boxed()
        };
        Self(FakeServer::start(Vec::new(), reply).await.unwrap())
    }

    /// Tools and answers of all calls.
    pub(super) fn calls(&self) -> Vec<String> {
        self.0.shared().lock().clone()
    }

    /// An agent whose questions of tools go to the chat `ops`.
    fn setup(&self) -> AgentSetup {
        self.setup_in(&format!("telegram:{OPS_CHAT}"), &APPROVER_ID.to_string())
    }

    /// The setup of an agent whose questions go to this chat and person.
    pub(super) fn setup_in(&self, chat: &str, person: &str) -> AgentSetup {
        let url = self.0.shared().url();
        let info = json!({"url": url, "protocol": "streamable_http"});
        let set = json!({"type": "mcp", "name": "bank", "mcp_server_info": info});
        setup_in(&set, chat, person)
    }

    pub(super) async fn start_ops(
        &self,
        change: impl FnOnce(AgentSetup) -> AgentSetup,
    ) -> OpsFixture {
        OpsFixture::start(|_| change(self.setup())).await
    }
}

/// An agent with this tool set, whose questions go to the chat `ops`.
pub(super) fn setup(tool_set: &Value) -> AgentSetup {
    let chat = format!("telegram:{OPS_CHAT}");
    setup_in(tool_set, &chat, &APPROVER_ID.to_string())
}

fn setup_in(tool_set: &Value, asked: &str, person: &str) -> AgentSetup {
    let call = |tool: &str| json!({"call": [{"name": tool, "arguments": {"sum": 1}}]});
    let rules = json!([
        {"when": {"last_user_contains": "weather"}, "reply": {"say": "It rains."}},
        {"when": {"tool_result_of": "bank_pay"}, "reply": {"say": "Got {result}."}},
        {"when": {"tool_result_of": "bank_note"}, "reply": {"say": "Got {result}."}},
        {"when": {"tool_result_of": "bank_twice"}, "reply": {"say": "Got {result}."}},
        {"when": {"last_user_contains": "both"}, "reply": {"call": [
            {"name": "bank_balance", "arguments": {}}, {"name": "bank_pay", "arguments": {}}]}},
        {"when": {"last_user_contains": "note"}, "reply": call("bank_note")},
        {"when": {"last_user_contains": "twice"}, "reply": call("bank_twice")},
        {"reply": call("bank_pay")},
    ]);
    let ops = "platform-delivery.question_chats.ops";
    let chat = json!([{"chat": "ops", "approvals": false, "tool_questions": true}]);
    AgentSetup::new(json!([tool_set]), rules)
        .set("orchestrator.approval_chats", chat.to_string())
        .set(&format!("{ops}.chat"), asked)
        .set(&format!("{ops}.people"), format!(r#"["{person}"]"#))
        .set(&format!("{ops}.tool_questions"), "true")
}
