//! Tests over HTTP, with DIAL Core behind the tools.

use std::sync::Arc;

use dray_dial::{DialClient, DialOptions, DialPort, InterpreterAction};
use dray_http::fake_server::{
    ConnectionClosed, FakeServer, ReceivedRequest, Reply, SharedState, bytes_reply, json_reply,
};
use dray_tool::{StageWriter, Tool, ToolFailure};
use futures_util::FutureExt as _;
use serde_json::json;

use super::deployment::described;
use super::fixture::{call, caller, turn};
use crate::build_deployments;

async fn answer(
    state: Arc<SharedState<Vec<String>>>,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let path = request.path.clone();
    state.lock().push(path.clone());
    if request.header("api-key") != Some("k") {
        return Ok(bytes_reply(401, "text/plain", "no".into()));
    }
    Ok(match path.as_str() {
        "/openai/deployments/d" => json_reply(200, &json!({ "id": "d", "display_name": "D" })),
        "/openai/deployments/d/chat/completions" => {
            let body = request.json().await?;
            let content = body["messages"][0]["content"].clone();
            if content == "refuse" {
                return Ok(bytes_reply(409, "text/plain", "".into()));
            }
            let chunk = json!({ "choices": [{ "index": 0, "delta": { "content": content }, "finish_reason": "stop" }] });
            let error = json!({ "error": { "message": "too many", "code": "429" } });
            let chunk = if content == "fail" { error } else { chunk };
            let events = format!("data: {chunk}\n\ndata: [DONE]\n\n");
            bytes_reply(200, "text/event-stream", events.into())
        }
        "/v1/ops/code_interpreter/open_session" => json_reply(200, &json!({ "sessionId": "s" })),
        _ => bytes_reply(404, "text/plain", "none".into()),
    })
}

#[tokio::test]
async fn a_deployment_is_asked_over_http() {
    let server = FakeServer::start(Vec::new(), |state, request| answer(state, request).boxed());
    let server = server.await.unwrap();
    let core = DialClient::new(DialOptions::new(server.shared().url(), "")).unwrap();
    let dial: Arc<dyn DialPort> = Arc::new(core);
    let set = json!({ "name": "set", "tools": [described(json!({}))] });
    let set = serde_json::from_value(set).unwrap();
    let built = build_deployments(&set, &dial, &caller("k")).await;
    let tool: &Arc<dyn Tool> = &built.tools[0];
    let turn = turn(json!([]), &Arc::default());
    let output = tool
        .call(
            call(json!({ "query": "echo" }), StageWriter::hidden()),
            &turn,
        )
        .await;
    assert_eq!(output.unwrap().content, "echo");
    let wrong = call(json!({ "query": "fail" }), StageWriter::hidden());
    let Err(ToolFailure::Failed(failed)) = tool.call(wrong, &turn).await else {
        panic!("an error in the middle of a stream must be a failure");
    };
    assert_eq!(
        (failed.text.as_str(), failed.status),
        ("too many", Some(429))
    );
    let refused = call(json!({ "query": "refuse" }), StageWriter::hidden());
    let Err(ToolFailure::Failed(failed)) = tool.call(refused, &turn).await else {
        panic!("an error status must be a failure");
    };
    assert_eq!(failed.text, "The deployment answered HTTP 409.");
    let action = InterpreterAction::OpenSession;
    let opened = dial.interpreter(&caller("k"), action, &json!({})).await;
    assert_eq!(opened.unwrap()["sessionId"], "s");
    let refused = build_deployments(&set, &dial, &caller("other")).await;
    assert_eq!(
        refused.issues[0].message,
        "Access to deployment 'd' is forbidden."
    );
}
