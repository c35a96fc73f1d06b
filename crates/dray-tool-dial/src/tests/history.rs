//! Earlier calls of the same tool (quickapps 24.3).

use std::sync::Arc;

use dray_dial::fake::FakeDial;
use dray_tool::StageWriter;
use serde_json::json;

use super::deployment::tool;
use super::fixture::{ScriptedDial as _, call, end, turn};
use crate::DeploymentFacts;

#[tokio::test]
async fn earlier_calls_become_pairs_and_files_that_are_gone_are_left_out() {
    let fixture = Arc::new(FakeDial::default().knows("k", "d", DeploymentFacts::default()));
    let tool = tool(
        &fixture,
        json!({ "content_propagation": { "propagate_history": true } }),
    )
    .await;
    let made = |id: &str, name: &str, arguments: &str| json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } });
    let history = json!([
        { "role": "user", "content": "hello" },
        { "role": "assistant", "content": " ", "tool_calls": [
            made("1", "set_ask", r#"{"query":"a","attachment_urls":["files/b/gone","file:url::files/b/here"]}"#),
            made("2", "set_other", r#"{"query":"b"}"#),
            made("3", "set_ask", "{"),
            made("4", "set_ask", r#"{"query":"c","attachment_urls":["a1-0"]}"#),
            made("5", "set_ask", r#"{"query":"never answered"}"#),
        ]},
        { "role": "tool", "tool_call_id": "4", "content": "C" },
        { "role": "tool", "tool_call_id": "3", "content": "X" },
        { "role": "tool", "tool_call_id": "2", "content": "B" },
        { "role": "tool", "tool_call_id": "1", "content": "A",
          "custom_content": { "state": { "s": 1 }, "attachments": [{ "url": "files/b/out" }] } },
        { "role": "user", "content": "again" },
    ]);
    fixture.answers(Ok(vec![end()]));
    let turn = turn(history, &Arc::default());
    tool.call(
        call(json!({ "query": "new" }), StageWriter::hidden()),
        &turn,
    )
    .await
    .unwrap();
    assert_eq!(
        fixture.body()["messages"],
        json!([
            { "role": "user", "content": "a", "custom_content": { "attachments": [
                { "type": "text/plain", "title": "here", "url": "files/b/here" } ] } },
            { "role": "assistant", "content": "A",
              "custom_content": { "state": { "s": 1 }, "attachments": [{ "url": "files/b/out" }] } },
            { "role": "user", "content": "c", "custom_content": { "attachments": [
                { "type": "text/plain", "title": "here", "url": "files/b/here" } ] } },
            { "role": "assistant", "content": "C" },
            { "role": "user", "content": "new" },
        ])
    );
}

#[tokio::test]
async fn earlier_calls_are_left_out_by_default() {
    let fixture = Arc::new(FakeDial::default().knows("k", "d", DeploymentFacts::default()));
    let tool = tool(&fixture, json!({})).await;
    let history = json!([
        { "role": "assistant", "tool_calls": [{ "id": "1", "function": { "name": "set_ask", "arguments": "{}" } }] },
        { "role": "tool", "tool_call_id": "1", "content": "A" },
    ]);
    fixture.answers(Ok(vec![end()]));
    let turn = turn(history, &Arc::default());
    tool.call(
        call(json!({ "query": "new" }), StageWriter::hidden()),
        &turn,
    )
    .await
    .unwrap();
    assert_eq!(fixture.body()["messages"].as_array().unwrap().len(), 1);
}
