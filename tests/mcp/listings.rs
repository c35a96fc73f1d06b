//! Tests of the tool `list` with directories of more entries than one result shows.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::{self, mcp_process::McpProcess};

/// Entries of a directory that the service of sandboxes lists at most.
const MAX_SANDBOX_ENTRIES: usize = 10_000;

/// Follows `next` from the first part to the last one. Returns the names, and the last part.
fn read_all_parts(server: &mut McpProcess, path: &str) -> (Vec<String>, Value) {
    let mut arguments = json!({"path": path, "limit": 500});
    let mut names = Vec::new();
    loop {
        let result = server.call("list", &arguments);
        let part = result["structuredContent"].clone();
        let entries = part["entries"].as_array().unwrap().iter();
        names.extend(entries.map(|entry| entry["name"].as_str().unwrap().to_owned()));
        if part["next"].is_null() {
            return (names, part);
        }
        assert_eq!(part["next"]["tool"], "list");
        // A part without entries would name itself as the next one, without end.
        assert_ne!(part["next"]["arguments"], arguments);
        arguments = part["next"]["arguments"].clone();
    }
}

#[test]
fn the_parts_of_a_large_directory_end_and_say_what_is_left_out() {
    let home = tempfile::tempdir().unwrap();
    let sandbox = home.path().join("box");
    std::fs::create_dir(&sandbox).unwrap();
    let files = MAX_SANDBOX_ENTRIES + 20;
    for number in 0..files {
        std::fs::write(sandbox.join(format!("f{number:05}")), "").unwrap();
    }
    for denied in [".env", ".netrc"] {
        std::fs::write(sandbox.join(denied), "").unwrap();
    }
    let mut command = Command::new(support::dray());
    command
        .args(["mcp", "--root"])
        .arg(&sandbox)
        .arg("--sandbox")
        .arg(format!("local:{}", sandbox.display()))
        .env_clear()
        .env("HOME", home.path());
    let mut server = McpProcess::start(command);
    let (names, last) = read_all_parts(&mut server, "sandbox:.");
    assert_eq!(names.len(), MAX_SANDBOX_ENTRIES - 2);
    assert_eq!(names[0], "f00000");
    assert_eq!(last["truncated"], true);
    let note = last["note"].as_str().unwrap();
    assert!(note.contains("refuses them: 2."), "{note}");
    assert!(note.contains("more entries than can be listed"), "{note}");
    // Of the root, all entries are listed, those of the sandbox's policy too.
    let (names, last) = read_all_parts(&mut server, ".");
    assert_eq!(names.len(), files + 2);
    assert_eq!(
        (&last["truncated"], &last["note"]),
        (&json!(false), &Value::Null)
    );
}
