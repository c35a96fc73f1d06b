//! Commands as processes, and what they leave.

use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

/// A command with an empty environment.
pub(crate) fn dray(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dray"));
    command
        .env_clear()
        .env("HOME", home)
        .current_dir(home)
        .arg("chat")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Runs a command to its end with this on standard input.
pub(crate) async fn run(home: &Path, arguments: &[&str], input: &[u8]) -> Output {
    let mut child: Child = dray(home, arguments).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A command that reads nothing may be gone already.
    let _ = stdin.write_all(input).await;
    drop(stdin);
    child.wait_with_output().await.unwrap()
}

pub(crate) fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

pub(crate) fn events(output: &Output) -> Vec<Value> {
    let lines = out(output);
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[track_caller]
pub(crate) fn check(output: &Output, code: i32, stdout: &str) {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    assert_eq!(out(output), stdout, "{output:?}");
}

pub(crate) fn file(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}
