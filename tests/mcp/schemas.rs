//! Documents and their schemas, compared by the validator `jsonschema` of Python: the structured content of every tool
//! with the output schema that the tool declares, and `server.json` with the rules of the registry.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::McpFixture;
use super::egress::EgressFixture;
use crate::support::{self, mcp_process::McpProcess};

/// Calls of each tool except `fetch`, in an order in which all succeed. They lead to different kinds of results.
fn calls() -> Vec<(&'static str, Value)> {
    let read = |arguments: Value| ("read", arguments);
    vec![
        read(json!({"path": "notes.txt"})),
        read(json!({"path": "notes.txt", "find": "answer"})),
        read(json!({"path": "notes.txt", "find": "no such words"})),
        read(json!({"path": "big.txt", "max_tokens": 1_000})),
        read(json!({"path": "big.txt", "summarize": true})),
        read(json!({"path": "report.pdf", "range": "pages 1-1"})),
        read(json!({"path": "dot.png"})),
        read(json!({"path": "data.bin"})),
        ("list", json!({})),
        ("list", json!({"limit": 1})),
        ("list", json!({"path": "sandbox:"})),
        ("get", json!({"from": "notes.txt"})),
        ("get", json!({"from": "report.pdf", "to": "copy.pdf"})),
        ("put", json!({"from": "notes.txt"})),
        ("put", json!({"from": "notes.txt"})),
        (
            "put",
            json!({"from": "dot.png", "directory": "in", "name": "a.png"}),
        ),
        ("receipts", json!({})),
        (
            "send_file",
            json!({"files": ["notes.txt", "dot.png"], "message": "here", "delivery_id": "d1"}),
        ),
        (
            "send_file",
            json!({"files": ["report.pdf"], "as_document": true, "wait_seconds": 0}),
        ),
        ("receipts", json!({"delivery_id": "d1"})),
        ("receipts", json!({"limit": 1})),
        ("receipts", json!({"open_only": true})),
        ("resolve_file_arguments", json!({"arguments": {"a": 1}})),
        (
            "resolve_file_arguments",
            json!({"arguments": {"a": "file:url::https://example.org/a", "b": ["file:url::files/b/c"]}, "nested": true}),
        ),
        ("policy_check", json!({"url": "https://example.org/"})),
        (
            "policy_check",
            json!({"url": "http://169.254.169.254/", "allow": ["a.example"]}),
        ),
        ("upload_ticket", json!({})),
        (
            "upload_ticket",
            json!({"to": "sandbox:in", "name": "b.bin", "max_bytes": 1_000}),
        ),
        (
            "download_ticket",
            json!({"from": "notes.txt", "name": "other.txt"}),
        ),
    ]
}

/// A server with every tool.
fn serve_all_tools(fixture: &McpFixture) -> McpProcess {
    let mut command = Command::new(support::dray());
    command
        .args([
            "mcp",
            "--root",
            &fixture.path("data"),
            "--tickets",
            "127.0.0.1:0",
        ])
        .args(["--sandbox", &format!("local:{}", fixture.path("box"))])
        .args(["--to", &format!("cli:{}", fixture.path("out"))])
        .args(["--allow-write", "--allow-send"])
        .env("HOME", fixture.path("home"));
    McpProcess::start(command)
}

/// The problems that the validator finds: for each document its own, prefixed with the name.
fn validate(documents: &[Value]) -> Vec<String> {
    let mut validator = Command::new(support::python())
        .arg(support::root().join("tests/python/json_schema.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = validator.stdin.take().unwrap();
    input
        .write_all(json!(documents).to_string().as_bytes())
        .unwrap();
    drop(input);
    let output = validator.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_structured_content_of_every_tool_has_the_declared_schema() {
    let fixture = McpFixture::new();
    let mut server = serve_all_tools(&fixture);
    let mut listed = server.request("tools/list", &json!({}));
    let tools = listed["tools"].as_array_mut().unwrap();
    let schemas: BTreeMap<String, Value> = tools
        .iter_mut()
        .filter(|tool| tool["outputSchema"].is_object())
        .map(|tool| {
            (
                tool["name"].as_str().unwrap().to_owned(),
                tool["outputSchema"].take(),
            )
        })
        .collect();
    let mut results: Vec<(&str, Value)> = Vec::new();
    for (tool, arguments) in calls() {
        let result = server.call(tool, &arguments);
        assert_eq!(result["isError"], false, "{tool} {arguments}: {result}");
        results.push((tool, result["structuredContent"].clone()));
    }
    let network = Box::pin(EgressFixture::start()).await;
    let fetched = network
        .call(
            "fetch",
            &json!({"url": "http://files.example.org/docs/page.html"}),
        )
        .await;
    results.push(("fetch", json!(fetched.structured_content)));
    network.stop().await;

    for tool in schemas.keys() {
        let is_called = results.iter().any(|(called, _)| called == tool);
        assert!(is_called, "no call of {tool} is in the table");
    }
    let documents: Vec<Value> = results
        .iter()
        .map(|(tool, value)| json!({"name": tool, "schema": schemas[*tool], "value": value}))
        .collect();
    assert_eq!(validate(&documents), Vec::<String>::new());
    // The validator refuses what a schema does not allow.
    let wrong = json!({"name": "list", "schema": schemas["list"], "value": {"entries": 7}});
    assert_eq!(validate(&[wrong]).len(), 1);
}

/// The rules of `server.schema.json` of 2025-12-11 (<https://static.modelcontextprotocol.io/schemas/2025-12-11>) for
/// the members that this program writes, and no other members. The registry requires `version` and `fileSha256` of a
/// bundle.
fn registry_rules() -> Value {
    let text = |min: u64, max: u64| json!({"type": "string", "minLength": min, "maxLength": max});
    let object = |required: &[&str], properties: Value| {
        json!({
            "type": "object",
            "required": required,
            "properties": properties,
            "additionalProperties": false,
        })
    };
    let uri = json!({"type": "string", "format": "uri", "pattern": "^https://"});
    let transport = object(&["type"], json!({"type": {"const": "stdio"}}));
    let package = object(
        &[
            "registryType",
            "identifier",
            "version",
            "fileSha256",
            "transport",
        ],
        json!({
            "registryType": {"const": "mcpb"},
            "identifier": uri,
            "version": {"type": "string", "minLength": 1, "not": {"const": "latest"}},
            "fileSha256": {"type": "string", "pattern": "^[a-f0-9]{64}$"},
            "transport": transport,
        }),
    );
    let mut name = text(3, 200);
    name["pattern"] = json!("^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$");
    let source = json!({"enum": ["github", "gitlab"]});
    object(
        &["$schema", "name", "description", "version", "packages"],
        json!({
            "$schema": {"const": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"},
            "name": name,
            "title": text(1, 100),
            "description": text(1, 100),
            "version": text(1, 255),
            "repository": object(&["url", "source"], json!({"url": uri, "source": source})),
            "packages": {"type": "array", "minItems": 1, "items": package},
        }),
    )
}

#[test]
fn server_json_follows_the_rules_of_the_registry() {
    let fixture = McpFixture::new();
    let program = fixture.path("program");
    std::fs::write(&program, "#!/bin/sh\n").unwrap();
    let dray = |arguments: &[&str]| {
        let mut command = Command::new(support::dray());
        command.args(arguments).env("HOME", fixture.path("home"));
        support::stdout(&mut command)
    };
    let bundles = ["linux", "macos"].map(|system| {
        let bundle = fixture.path(&format!("drayage-{system}.mcpb"));
        dray(&[
            "mcp", "bundle", &bundle, "--binary", &program, "--system", system,
        ]);
        format!(
            "{bundle}=https://gitlab.com/example/drayage/-/releases/v0.1.0/drayage-{system}.mcpb"
        )
    });
    let longest_name = format!("io.example/{}", "a".repeat(189));
    let [linux, macos] = &bundles;
    let mut documents = Vec::new();
    for (name, further) in [
        ("a/b", &[][..]),
        (&longest_name, &["--bundle", macos]),
        (
            "io.github.example/drayage",
            &["--repository", "https://github.com/example/drayage"],
        ),
    ] {
        let command = ["mcp", "server-json", "--name", name, "--bundle", linux];
        let printed = dray(&[&command[..], further].concat());
        let value: Value = serde_json::from_str(&printed).unwrap();
        documents.push(json!({"name": name, "schema": registry_rules(), "value": value}));
    }
    assert_eq!(validate(&documents), Vec::<String>::new());
    documents[0]["value"]["packages"][0]["fileSha256"] = json!("0");
    documents[1]["value"]["websiteUrl"] = json!("https://example.org/");
    assert_eq!(validate(&documents).len(), 2);
}
