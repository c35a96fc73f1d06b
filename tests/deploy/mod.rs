//! Tests of the deployment: the files in `deploy/` and `docker-compose.yml` are accepted by the programs that read
//! them, and contain the values that the product needs.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support;

mod accounts;
mod all_services;
mod checkov;
mod compose;
mod console_attached;
mod containers;
mod distributed;
mod first_events;
mod helm;
mod helm_values;
mod image;
mod kubernetes;
mod mcp_attached;

/// All documents of a YAML text, as JSON.
fn yaml(text: &str) -> Vec<Value> {
    let program =
        "import json, sys, yaml; json.dump(list(yaml.safe_load_all(sys.stdin)), sys.stdout)";
    let mut child = Command::new(support::python())
        .args(["-c", program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "not YAML");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The text of a file of the repository.
fn read(path: &str) -> String {
    std::fs::read_to_string(support::root().join(path))
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Strings of a JSON array; none when there is no array.
fn strings(value: &Value) -> Vec<&str> {
    value
        .as_array()
        .map(|items| items.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default()
}
