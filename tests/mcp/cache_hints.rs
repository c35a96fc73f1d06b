//! Tests of `ttlMs` and `cacheScope` (2026-07-28) in the results of lists and reads, over both transports.

use std::process::Command;

use dray_types::Sha256Digest;
use serde_json::{Value, json};

use super::{HttpServer, McpFixture};
use crate::support::{self, mcp_process::McpProcess};

/// Sends a request of 2026-07-28 and returns its result.
type RequestSender<'a> = dyn FnMut(&str, Value) -> Value + 'a;

/// Sends a request, and checks the hints of its result.
fn check_hints_of(
    request: &mut RequestSender<'_>,
    (method, params): (&str, Value),
    ttl_ms: u64,
) -> Value {
    let result = request(method, params);
    assert_eq!(result["resultType"], "complete", "{method}: {result}");
    assert_eq!(result["ttlMs"], ttl_ms, "{method}: {result}");
    // The lists and files of a tenant: a cache that several clients share must not answer from them.
    assert_eq!(result["cacheScope"], "private", "{method}: {result}");
    result
}

/// Lists and reads, and checks the hints of every result.
fn check_hints(request: &mut RequestSender<'_>) {
    let an_hour = 3_600_000_u64;
    for method in [
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
    ] {
        check_hints_of(request, (method, json!({})), an_hour);
    }
    let read = "resources/read";
    // A file of the sandbox can change at any time, and content by its digest never does.
    let text = "The answer is 42.\n";
    let file = json!({"uri": "dray://sandbox/mcp/notes.txt"});
    let result = check_hints_of(request, (read, file), 0);
    assert_eq!(result["contents"][0]["text"], text);
    let digest = Sha256Digest::of(text.as_bytes()).to_hex();
    let content = json!({"uri": format!("dray://artifact/{digest}")});
    let result = check_hints_of(request, (read, content), 365 * 24 * an_hour);
    assert_eq!(result["contents"][0]["text"], text);
    // A finished delivery can still be corrected by a later report of the platform.
    let send = json!({"name": "send_file", "arguments": {"files": ["sandbox:notes.txt"]}});
    let sent = request("tools/call", send);
    let delivery = sent["structuredContent"]["delivery_id"].as_str();
    let delivery = delivery.unwrap_or_else(|| panic!("{sent}"));
    let receipt = json!({"uri": format!("dray://receipt/{delivery}")});
    check_hints_of(request, (read, receipt), 0);
}

/// A sandbox with a file, and a chat; returns the options for them.
fn options(fixture: &McpFixture) -> [String; 3] {
    std::fs::write(fixture.path("box/notes.txt"), "The answer is 42.\n").unwrap();
    [
        format!("--sandbox=local:{}", fixture.path("box")),
        format!("--to=cli:{}", fixture.path("out")),
        "--allow-send".to_owned(),
    ]
}

#[test]
fn lists_and_reads_say_over_stdio_how_long_and_for_whom_they_may_be_kept() {
    let fixture = McpFixture::new();
    let mut command = Command::new(support::dray());
    command
        .args(["mcp", "--root", &fixture.path("data")])
        .args(options(&fixture))
        .env("HOME", fixture.path("home"));
    let mut server = McpProcess::start_without_handshake(command);
    check_hints(&mut |method, params| server.request(method, &params));
}

#[test]
fn lists_and_reads_say_over_http_how_long_and_for_whom_they_may_be_kept() {
    let fixture = McpFixture::new();
    let options = options(&fixture);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let server = HttpServer::start_with(&fixture, &options);
    check_hints(&mut |method, params| post(&server.url, method, params));
}

/// The result of a request over HTTP, alone or as the last event of a stream.
fn post(url: &str, method: &str, mut params: Value) -> Value {
    params["_meta"] = McpProcess::request_meta();
    let name = params["name"].as_str().or(params["uri"].as_str());
    let name = name.map(|name| format!("Mcp-Name: {name}"));
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--fail-with-body", "--max-time", "60", url])
        .args(["-H", "Content-Type: application/json"])
        .args(["-H", "Accept: application/json, text/event-stream"])
        .args(["-H", "MCP-Protocol-Version: 2026-07-28"])
        .args(["-H", &format!("Mcp-Method: {method}")])
        .args(["-d", &body.to_string()]);
    if let Some(name) = &name {
        curl.args(["-H", name]);
    }
    let text = support::stdout(&mut curl);
    let mut events = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let message = events.next_back().unwrap_or(&text);
    let mut message: Value = serde_json::from_str(message).unwrap();
    assert_eq!(message["error"], Value::Null, "{method}: {message}");
    message["result"].take()
}
