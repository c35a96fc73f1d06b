//! The double is proved with a client that we did not write: the vendor's, in a version that speaks JSON to the
//! daemon, as we do. Its latest ones speak protobuf.
//!
//! It runs in the Python environment of the tests, which `cargo xtask test` makes and names in `DRAY_TEST_PYTHON`;
//! without that it is made here, in the same place.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::{ID, World};
use crate::double::KEY;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
}

/// An interpreter with the client.
fn interpreter() -> PathBuf {
    #[expect(
        clippy::disallowed_methods,
        reason = "the test command names the interpreter here"
    )]
    let named = std::env::var_os("DRAY_TEST_PYTHON");
    if let Some(named) = named {
        return named.into();
    }
    let folder = root().join("target/python");
    let interpreter = folder.join("bin/python");
    let run = |command: &mut Command| assert!(command.status().unwrap().success());
    if !interpreter.exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&folder));
    }
    let has_it = Command::new(&interpreter)
        .args(["-c", "import e2b"])
        .stderr(Stdio::null())
        .status();
    if !has_it.unwrap().success() {
        let mut install = Command::new(&interpreter);
        install.args(["-m", "pip", "install", "--quiet", "--requirement"]);
        run(install.arg(root().join("tests/python/requirements.txt")));
    }
    interpreter
}

/// Runs the script against the double, and gives what it printed.
async fn run(world: &World) -> Value {
    let output = tokio::process::Command::new(interpreter())
        .arg(root().join("tests/python/e2b_client.py"))
        .args([&world.double.url(), KEY, ID])
        .arg(world.folder.path())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test]
async fn the_client_of_the_vendor_takes_the_double_for_the_service() {
    let world = World::new().await;
    let folder = world.folder.path().to_str().unwrap();
    let at = |name: &str| format!("{folder}/{name}");
    let shown = run(&world).await;
    assert_eq!(shown["written"], json!(["отчёт 1.csv", at("отчёт 1.csv")]));
    assert_eq!(shown["many"], json!([at("many/a"), at("many/b")]));
    assert_eq!(shown["moved"], json!(["moved.csv", at("new/moved.csv")]));
    assert_eq!(shown["made"], json!([true, false]));
    let listed = json!([["made", "dir"], ["many", "dir"], ["new", "dir"]]);
    assert_eq!(shown["listed"], listed);
    assert_eq!(shown["info"], json!(["moved.csv", "file", 4]));
    assert_eq!(shown["bytes"], json!([0, 255]));
    assert_eq!(shown["empty"], "");
    assert_eq!(shown["text"], "1,2\n");
    assert_eq!(shown["exists"], json!([false, true]));
    assert_eq!(shown["ran"], json!([0, "out \u{fffd}", "err\n"]));
    assert_eq!(shown["exit"], json!([3, "last\n"]));
    assert_eq!(shown["running"], true);
    assert_eq!(shown["id"], ID);
    assert_eq!(world.double.left(ID), Some(Duration::from_mins(20)));
    let failures = json!({
        "missing": "FileNotFoundException",
        "directory": "InvalidArgumentException",
        "move": "FileNotFoundException",
        "key": "AuthenticationException",
        "box": "SandboxNotFoundException",
    });
    assert_eq!(shown["failures"], failures);
    assert_eq!(fs::read(at("new/moved.csv")).unwrap(), b"1,2\n");
}
