//! The Python environment of the tests, for clients of vendors.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// Root of the workspace, two levels above this crate.
pub(crate) fn workspace_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap_or(Path::new("."))
}

/// An interpreter that can import `module`. `cargo xtask test` creates the environment and sets its path in
/// `DRAY_TEST_PYTHON`; without that variable it is created in the same place.
///
/// # Panics
///
/// When the environment cannot be created.
#[expect(clippy::panic, reason = "only tests call it, and it fails the test")]
pub fn interpreter(module: &str) -> PathBuf {
    #[expect(
        clippy::disallowed_methods,
        reason = "`cargo xtask test` sets the path of the interpreter in this variable"
    )]
    let configured = std::env::var_os("DRAY_TEST_PYTHON");
    if let Some(configured) = configured {
        return configured.into();
    }
    let directory = workspace_root().join("target/python");
    let interpreter = directory.join("bin/python");
    let run = |command: &mut Command| match command.status() {
        Ok(status) if status.success() => {}
        other => panic!("{command:?}: {other:?}"),
    };
    if !interpreter.exists() {
        // The directory is below `target`, so that it survives between runs and is removed with a clean build.
        run(Command::new("python3").args(["-m", "venv"]).arg(&directory));
    }
    // The modules are imported, because the environment may have been created for earlier requirements.
    let import = Command::new(&interpreter)
        .args(["-c", &format!("import {module}")])
        .stderr(Stdio::null())
        .status();
    if !import.is_ok_and(|status| status.success()) {
        let mut install = Command::new(&interpreter);
        install.args(["-m", "pip", "install", "--quiet", "--requirement"]);
        run(install.arg(workspace_root().join("tests/python/requirements.txt")));
    }
    interpreter
}

/// A command that runs a script of `tests/python` that needs `module`, until it is dropped.
///
/// # Panics
///
/// No suitable interpreter is installed.
pub fn script_command(name: &str, module: &str) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(interpreter(module));
    command
        .arg(workspace_root().join("tests/python").join(name))
        .kill_on_drop(true);
    command
}

/// Runs a script of `tests/python` that needs `module`, and returns the JSON that it printed.
///
/// # Panics
///
/// The script failed; with its output.
pub async fn run_script(name: &str, module: &str, arguments: &[&str]) -> Value {
    run_json(script_command(name, module).args(arguments)).await
}

/// Runs a command and returns the JSON that it printed.
///
/// # Panics
///
/// When it fails; with its output.
#[expect(clippy::panic, reason = "only tests call it, and it fails the test")]
pub async fn run_json(command: &mut tokio::process::Command) -> Value {
    let output = match command.output().await {
        Ok(output) => output,
        Err(error) => panic!("{command:?}: {error}"),
    };
    match serde_json::from_slice(&output.stdout) {
        Ok(value) if output.status.success() => value,
        _ => panic!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)),
    }
}
