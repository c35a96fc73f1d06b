//! Tests of tools that only hooks may call.

use dray_agent::caller::Caller;
use serde_json::json;

use super::support::{FakeMcpServer, fake_server, mcp, options};
use crate::{McpToolset, connect_set};

#[tokio::test]
async fn hidden_tools_are_built_for_hooks_and_only_of_those_that_are_allowed() {
    let server = fake_server(FakeMcpServer {
        cursors: vec!["a", "b"],
        ..FakeMcpServer::default()
    })
    .await;
    let info = json!({"url": server.shared().url(), "protocol": "streamable_http"});
    let set = mcp(json!({
        "name": "s", "mcp_server_info": info, "allowed_tools": ["echo0", "echo1"],
        "hidden_from_model": ["echo1", "echo2", "s_echo0"],
    }));
    let built = connect_set(McpToolset::Mcp(&set), &Caller::default(), &options()).await;
    let hidden: Vec<_> = built
        .tools
        .iter()
        .map(|tool| (tool.declaration().name.as_str(), tool.rules().hidden))
        .collect();
    assert_eq!(hidden, [("s_echo0", false), ("s_echo1", true)]);
}
