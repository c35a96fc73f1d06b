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
