//! Tests of servers that send too much: requests, values, files.

use std::sync::Arc;

use dray_agent::caller::Caller;
use dray_http::fake_server::FakeServer;
use dray_tool::{Tool, ToolFailure};
use serde_json::json;

use super::support::{
    FakeAction, FakeMcpServer, call, fake_server, mcp, messages, named, options, streamable,
};
use crate::{McpToolset, ProgramCommand, connect_set};

async fn flooding(act: FakeAction) -> (FakeServer<FakeMcpServer>, Arc<dyn Tool>) {
    let server = fake_server(FakeMcpServer {
        acts: vec![act],
        ..FakeMcpServer::default()
    })
    .await;
    let set = streamable(&server.shared().url());
    let built = connect_set(McpToolset::Mcp(&set), &Caller::default(), &options()).await;
    let tool = named(&built, "s_echo0");
    (server, tool)
}

async fn failure_text(tool: &Arc<dyn Tool>) -> String {
    match call(tool, json!({})).await {
        Err(ToolFailure::Failed(failed)) => failed.text,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_server_that_floods_a_call_with_requests_fails_the_call_and_the_next_one_works() {
    let (_server, tool) = flooding(FakeAction::Requests(5_000)).await;
    assert_eq!(
        failure_text(&tool).await,
        "Error calling MCP tool 'echo0': the server does not respond as an MCP server: it sends too many requests at a \
         time"
    );
    assert_eq!(
        call(&tool, json!({"a": 2})).await.unwrap().content,
        r#"{"a":2}"#
    );
}

#[tokio::test]
async fn a_few_requests_during_a_call_are_answered() {
    let (server, tool) = flooding(FakeAction::Requests(8)).await;
    let output = call(&tool, json!({})).await.unwrap();
    assert_eq!(output.content, "after the requests");
    let answered = async || (server.shared().lock().answers == 8).then_some(());
    dray_testkit::eventually("the responses to the requests", answered).await;
}

#[tokio::test]
async fn a_result_of_too_many_values_is_refused_before_it_is_parsed() {
    let (_server, tool) = flooding(FakeAction::Blocks(100_000)).await;
    assert_eq!(
        failure_text(&tool).await,
        "Error calling MCP tool 'echo0': the server does not respond as an MCP server: a message has too many values"
    );
}

#[tokio::test]
async fn a_result_has_a_limit_of_files_and_says_how_many_are_left_out() {
    let server = fake_server(FakeMcpServer {
        acts: vec![FakeAction::Pictures(70)],
        ..FakeMcpServer::default()
    })
    .await;
    let set = mcp(json!({
        "name": "s",
        "mcp_server_info": {"url": server.shared().url(), "protocol": "streamable_http"},
        "attachment": {"supported_types": ["image/*"]},
    }));
    let built = connect_set(McpToolset::Mcp(&set), &Caller::default(), &options()).await;
    let output = call(&named(&built, "s_echo0"), json!({})).await.unwrap();
    assert_eq!(output.attachments.len(), 64);
    assert_eq!(
        output.content,
        "(The tool also returned 6 further files. A result has at most 64.)"
    );
}

#[tokio::test]
async fn a_program_that_floods_its_output_with_requests_is_ended() {
    let script = r#"
        read -r discover
        i=0
        while [ $i -lt 100000 ]; do
            i=$((i + 1))
            printf '{"jsonrpc":"2.0","id":"p%s","method":"ping"}\n' $i || exit 1
        done
        read -r line
    "#;
    let mut options = options();
    let command = ProgramCommand {
        command: "/bin/sh".to_owned(),
        args: vec!["-c".to_owned(), script.to_owned()],
        ..ProgramCommand::default()
    };
    options.stdio.insert("local".to_owned(), command);
    let set = streamable("stdio:local");
    let built = connect_set(McpToolset::Mcp(&set), &Caller::default(), &options).await;
    assert_eq!(
        messages(&built),
        [
            "MCP error for s: the server does not respond as an MCP server: it sends too many requests at a time"
        ]
    );
}

#[tokio::test]
async fn the_message_of_an_error_is_cut() {
    let (_server, tool) = flooding(FakeAction::Message("e".repeat(1 << 20))).await;
    let text = failure_text(&tool).await;
    assert!(
        text.starts_with("Error calling MCP tool 'echo0': eee"),
        "{text}"
    );
    assert!(text.len() < 2_100, "{}", text.len());
}

#[tokio::test]
async fn the_message_of_an_error_has_no_characters_that_a_terminal_interprets_or_hides() {
    let message = "\u{1b}]0;title\u{7}disk\u{1b}[31m full\u{202e},\r\ntry later\u{e0041}\0";
    let (_server, tool) = flooding(FakeAction::Message(message.to_owned())).await;
    let Err(ToolFailure::Failed(failed)) = call(&tool, json!({})).await else {
        panic!("the call did not fail");
    };
    let message = "disk full,\ntry later";
    assert_eq!(
        (failed.text, failed.shown.unwrap()),
        (
            format!("Error calling MCP tool 'echo0': {message}"),
            format!("> ##### Exception:\nMCP: {message}\n")
        )
    );
    let source = failed.source.unwrap();
    assert_eq!(source.to_string(), message, "for the log");
}
