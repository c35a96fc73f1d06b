//! Tests of resources of a sandbox: completions of paths, and notifications of changes.

use std::process::Command;

use serde_json::{Value, json};

use super::McpFixture;
use crate::support::{self, mcp_process::McpProcess};

/// The completions of a path.
#[track_caller]
fn completions(server: &mut McpProcess, typed: &str) -> Value {
    let params = json!({
        "ref": {"type": "ref/resource", "uri": "dray://sandbox/{session}/{+path}"},
        "argument": {"name": "path", "value": typed},
    });
    server.request("completion/complete", &params)["completion"]["values"].take()
}

/// The completions of the path in a prompt.
#[track_caller]
fn prompt_completions(server: &mut McpProcess, typed: &str) -> Value {
    let params = json!({
        "ref": {"type": "ref/prompt", "name": "read_document"},
        "argument": {"name": "path", "value": typed},
    });
    server.request("completion/complete", &params)["completion"]["values"].take()
}

#[test]
fn paths_in_prompts_are_completed_from_the_root_and_from_the_sandbox() {
    let fixture = McpFixture::new();
    std::fs::create_dir_all(fixture.path("data/notes")).unwrap();
    std::fs::write(fixture.path("data/notes/a.txt"), "a").unwrap();
    std::fs::write(fixture.path("data/no\u{1b}[31m.txt"), "red").unwrap();
    std::fs::create_dir_all(fixture.path("box/out")).unwrap();
    std::fs::write(fixture.path("box/other.txt"), "o").unwrap();
    let mut command = Command::new(support::dray());
    command
        .args(["mcp", "--root", &fixture.path("data")])
        .args(["--sandbox", &format!("local:{}", fixture.path("box"))])
        .env("HOME", fixture.path("home"));
    let mut server = McpProcess::start(command);
    for (typed, completed) in [
        ("no", json!(["notes/", "notes.txt"])),
        ("notes/", json!(["notes/a.txt"])),
        ("sand", json!(["sandbox:"])),
        ("sandbox:o", json!(["sandbox:other.txt", "sandbox:out/"])),
        ("../", json!([])),
        ("/etc/", json!([])),
    ] {
        assert_eq!(prompt_completions(&mut server, typed), completed, "{typed}");
    }
}

#[test]
fn paths_of_the_sandbox_are_completed_and_new_files_are_announced() {
    let fixture = McpFixture::new();
    for name in ["report.txt", "records.txt", "other.txt"] {
        std::fs::write(fixture.path(&format!("box/{name}")), name).unwrap();
    }
    let mut command = Command::new(support::dray());
    command
        .args(["mcp", "--allow-write", "--root", &fixture.path("data")])
        .args(["--sandbox", &format!("local:{}", fixture.path("box"))])
        .env("HOME", fixture.path("home"));
    let mut server = McpProcess::start(command);
    assert_eq!(
        completions(&mut server, "re"),
        json!(["records.txt", "report.txt"])
    );
    assert_eq!(completions(&mut server, "none"), json!([]));
    // The directory for files of the user, which does not exist yet.
    let uri = "dray://sandbox/mcp/uploads/";
    server.request("resources/subscribe", &json!({"uri": uri}));
    let put = server.call("put", &json!({"from": "notes.txt"}));
    assert_eq!(put["isError"], false, "{put}");
    let announced = server.notification("notifications/resources/updated");
    assert_eq!(announced["uri"], uri);
    assert_eq!(
        completions(&mut server, "uploads/"),
        json!(["uploads/notes.txt"])
    );
}
