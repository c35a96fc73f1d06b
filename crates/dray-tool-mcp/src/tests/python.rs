//! Tests with the official `mcp` package as the server, unchanged, over each of the three transports.

use std::process::Stdio;
use std::sync::Arc;

use dray_agent::caller::Caller;
use dray_testkit::python;
use dray_tool::{ToolFailure, ToolsetResult};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;

use super::support::{call, call_as, mcp, messages, named, options};
use crate::{McpToolset, ProgramCommand, connect_set};

/// A server over HTTP and its port.
async fn serve(kind: &str) -> (Child, u16) {
    let mut server = python::script_command("mcp_server.py", "mcp")
        .arg(kind)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let port = lines.next_line().await.unwrap().unwrap();
    (server, port.parse().unwrap())
}

async fn over_http(url: &str, protocol: &str) -> ToolsetResult {
    let set = mcp(json!({"name": "py", "mcp_server_info": {"url": url, "protocol": protocol}}));
    connect_set(McpToolset::Mcp(&set), &Caller::default(), &options()).await
}

async fn over_stdio() -> ToolsetResult {
    let script =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/python/mcp_server.py");
    let mut options = options();
    options.stdio.insert(
        "local".to_owned(),
        ProgramCommand {
            command: python::interpreter("mcp").to_str().unwrap().to_owned(),
            args: vec![script.to_str().unwrap().to_owned(), "stdio".to_owned()],
            ..ProgramCommand::default()
        },
    );
    let info = json!({"url": "stdio:local", "protocol": "streamable_http"});
    let set = mcp(json!({"name": "py", "mcp_server_info": info}));
    connect_set(McpToolset::Mcp(&set), &Caller::default(), &options).await
}

/// Checks what is the same over every transport.
async fn works(built: &ToolsetResult) {
    assert_eq!(messages(built), [""; 0]);
    assert_eq!(built.tools.len(), 6);
    let add = named(built, "py_add");
    assert_eq!(
        add.declaration().description.as_deref(),
        Some("Adds two numbers.")
    );
    assert_eq!(add.declaration().parameters["required"], json!(["a", "b"]));
    let sum = call(&add, json!({"a": 2, "b": 3})).await.unwrap();
    assert_eq!(
        (sum.content.as_str(), sum.content_type.as_str()),
        ("5", "text/plain")
    );
    let Err(ToolFailure::Failed(refused)) =
        call(&named(built, "py_refuse"), json!({"why": "not today"})).await
    else {
        panic!("a refusal must be a failure");
    };
    assert_eq!(refused.text, "not today");
    assert_eq!(
        refused.shown.as_deref(),
        Some("> ##### Error:\nnot today\n")
    );
    let structured = call(&named(built, "py_structured"), json!({}))
        .await
        .unwrap();
    assert_eq!(structured.content, r#"{"b":1,"a":[2]}"#);
    let storage = Arc::default();
    let everything = named(built, "py_everything");
    let all = call_as(&everything, json!({}), Caller::default(), &storage).await;
    let all = all.unwrap();
    assert_eq!(all.content, "one\n\na link: https://example.com/a\n\ntwo");
    assert_eq!(all.attachments.len(), 3);
    let kept = storage.0.lock().unwrap();
    let kept: Vec<_> = kept
        .iter()
        .map(|(name, kind, bytes)| (name.as_str(), kind.as_str(), &bytes[..]))
        .collect();
    assert_eq!(
        kept,
        [
            ("everything-1700000000000.png", "image/png", &b"picture"[..]),
            ("everything-1700000000000-2.wav", "audio/wav", b"sound"),
            (
                "everything-1700000000000-3.pdf",
                "application/pdf",
                b"paper"
            ),
        ]
    );
}

#[tokio::test]
async fn the_python_package_works_over_streamable_http_with_events() {
    let (_server, port) = serve("http").await;
    works(&over_http(&format!("http://127.0.0.1:{port}/mcp"), "streamable_http").await).await;
}

#[tokio::test]
async fn the_python_package_works_over_streamable_http_with_json() {
    let (_server, port) = serve("json").await;
    works(&over_http(&format!("http://127.0.0.1:{port}/mcp"), "streamable_http").await).await;
}

#[tokio::test]
async fn the_python_package_works_over_server_sent_events() {
    let (_server, port) = serve("sse").await;
    works(&over_http(&format!("http://127.0.0.1:{port}/sse"), "sse").await).await;
}

#[tokio::test]
async fn the_python_package_works_as_a_program() {
    works(&over_stdio().await).await;
}

#[tokio::test]
async fn a_program_that_ended_is_started_again_by_the_next_call() {
    let built = over_stdio().await;
    let count = named(&built, "py_count");
    for expected in ["1", "2"] {
        assert_eq!(call(&count, json!({})).await.unwrap().content, expected);
    }
    let Err(ToolFailure::Failed(died)) = call(&named(&built, "py_die"), json!({})).await else {
        panic!("a call that ended the server gave a result");
    };
    assert_eq!(
        died.text,
        "Error calling MCP tool 'die': the connection ended before the answer came"
    );
    assert_eq!(call(&count, json!({})).await.unwrap().content, "1");
}

#[tokio::test]
async fn a_call_reports_that_the_server_of_its_event_stream_ended() {
    let (_server, port) = serve("sse").await;
    let built = over_http(&format!("http://127.0.0.1:{port}/sse"), "sse").await;
    let outcome = call(&named(&built, "py_die"), json!({})).await;
    let Err(ToolFailure::Failed(died)) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(
        died.text.starts_with("Error calling MCP tool 'die': "),
        "{}",
        died.text
    );
    assert!(!died.text.contains("127.0.0.1"), "{}", died.text);
}
