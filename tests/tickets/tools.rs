//! Tests of `dray mcp --tickets`: the tools that create tickets, and the effects of the tickets.

use std::process::Command;

use serde_json::{Value, json};

use super::{TicketFixture, content};
use crate::support::{self, mcp_process::McpProcess};

impl TicketFixture {
    /// The server with a sandbox and a chat that are directories.
    fn serve_mcp(&self, options: &[&str]) -> McpProcess {
        for directory in ["box", "out", "data"] {
            std::fs::create_dir(self.path(directory)).unwrap();
        }
        let sandbox = format!("local:{}", self.path("box").display());
        let chat = format!("cli:{}", self.path("out").display());
        let mut command = Command::new(support::dray());
        command
            .args(["mcp", "--tickets", "127.0.0.1:0", "--root"])
            .arg(self.path("data"))
            .args(["--sandbox", &sandbox, "--to", &chat])
            .args(options)
            .env("HOME", self.directory.path());
        McpProcess::start(command)
    }
}

/// The URL of a new ticket.
#[track_caller]
fn ticket(server: &mut McpProcess, tool: &str, arguments: &Value) -> String {
    let result = server.call(tool, arguments);
    assert_eq!(result["isError"], false, "{result}");
    let ticket = &result["structuredContent"];
    let url = ticket["url"].as_str().unwrap().to_owned();
    assert!(url.starts_with("http://127.0.0.1:"), "{result}");
    assert!(ticket["curl"].as_str().unwrap().contains(&url), "{result}");
    assert!(ticket["expires_at_ms"].as_u64().is_some(), "{result}");
    url
}

#[test]
fn tools_create_tickets_for_the_store_the_sandbox_and_the_chat() {
    let fixture = TicketFixture::new();
    let mut server = fixture.serve_mcp(&["--allow-write", "--allow-send"]);
    let bytes = content(300_000);
    let file = fixture.write("file", &bytes);

    let upload = ticket(&mut server, "upload_ticket", &json!({"name": "a.bin"}));
    let stored = fixture.curl_url(&upload, &["--upload-file", &file]);
    stored.check_status(201);
    let handle = stored.json()["artifact"].clone();
    let read = server.call("get", &json!({"from": handle}));
    assert_eq!(read["structuredContent"]["size"], 300_000, "{read}");

    let upload = ticket(
        &mut server,
        "upload_ticket",
        &json!({"name": "b.bin", "to": "sandbox:in"}),
    );
    let placed = fixture.curl_url(&upload, &["--upload-file", &file]);
    placed.check_status(201);
    assert_eq!(placed.json()["receipt"]["kind"], "sandbox");
    let arrived = std::fs::read(fixture.path("box").join("in/b.bin")).unwrap();
    assert!(arrived == bytes);

    let upload = ticket(
        &mut server,
        "upload_ticket",
        &json!({"name": "c.bin", "to": "chat", "message": "here"}),
    );
    let sent = fixture.curl_url(&upload, &["--upload-file", &file]);
    sent.check_status(201);
    let delivery = sent.json()["receipt"]["delivery_id"].clone();
    let report = server.call("receipts", &json!({"delivery_id": delivery}));
    let deliveries = &report["structuredContent"]["deliveries"];
    assert_eq!(deliveries[0]["success"], true, "{report}");
}

#[test]
fn a_download_ticket_of_the_sandbox_is_valid_until_the_file_changes() {
    let fixture = TicketFixture::new();
    let mut server = fixture.serve_mcp(&[]);
    let bytes = content(300_000);
    let path = fixture.path("box").join("result.bin");
    std::fs::write(&path, &bytes).unwrap();
    let arguments = json!({"from": "sandbox:result.bin"});
    let first = ticket(&mut server, "download_ticket", &arguments);
    let second = ticket(&mut server, "download_ticket", &arguments);
    let received = fixture.curl_url(&first, &[]);
    received.check_status(200);
    assert!(received.body == bytes);
    std::fs::write(&path, content(300_001)).unwrap();
    let refused = fixture.curl_url(&second, &[]);
    refused.check_status(410);
    assert_eq!(refused.json()["type"], "urn:drayage:problem:source-changed");
}

#[test]
fn a_ticket_has_no_effect_that_the_server_does_not_permit() {
    let fixture = TicketFixture::new();
    let mut server = fixture.serve_mcp(&[]);
    for to in ["chat", "sandbox:", "sandbox:in"] {
        let refused = server.call("upload_ticket", &json!({"to": to}));
        let detail = &refused["_meta"]["drayage/fault"]["detail"];
        assert_eq!(detail, "not_permitted", "{refused}");
    }
    for arguments in [
        json!({"to": "https://a.example/"}),
        json!({"to": "dray://sandbox/other/in"}),
        json!({"session": "other"}),
        json!({"tenant": "other"}),
        json!({"max_bytes": u64::MAX}),
        json!({"expires_seconds": 0}),
    ] {
        let refused = server.call("upload_ticket", &arguments);
        assert_eq!(refused["isError"], true, "{arguments}: {refused}");
    }
    for from in [
        "../file",
        "/etc/hostname",
        "dray://sandbox/other/a",
        "sandbox:missing",
    ] {
        let refused = server.call("download_ticket", &json!({"from": from}));
        assert_eq!(refused["isError"], true, "{from}: {refused}");
    }
}

#[test]
fn no_ticket_for_the_chat_is_created_when_a_person_confirms_each_send() {
    let fixture = TicketFixture::new();
    let mut server = fixture.serve_mcp(&["--allow-send", "--confirm-send"]);
    let refused = server.call("upload_ticket", &json!({"to": "chat"}));
    let detail = &refused["_meta"]["drayage/fault"]["detail"];
    assert_eq!(detail, "confirmation_required", "{refused}");
}

#[test]
fn without_an_endpoint_the_server_has_no_ticket_tools() {
    let fixture = TicketFixture::new();
    let mut command = Command::new(support::dray());
    command
        .args(["mcp", "--no-root"])
        .env("HOME", fixture.directory.path());
    let mut server = McpProcess::start(command);
    let list = server.request("tools/list", &json!({}));
    assert!(!list.to_string().contains("upload_ticket"), "{list}");
}
