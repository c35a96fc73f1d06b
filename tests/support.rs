//! Helpers for several test modules: paths in the source tree, and programs beside the tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub(crate) mod leases;
pub(crate) mod mcp_process;
pub(crate) mod node;
pub(crate) mod python_environment;
pub(crate) mod service_process;
pub(crate) mod shifted_clock;
pub(crate) mod up;

/// The directory of the workspace.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the tests are in a directory of the workspace")
}

/// The interpreter with the packages of `tests/python/requirements.txt`.
pub(crate) fn python() -> PathBuf {
    let path = root().join("target/python/bin/python");
    assert!(
        path.exists(),
        "no Python environment: run `cargo xtask test --prepare` once"
    );
    path
}

/// The binary under test: the one that the runner names, or the one that was built beside the tests.
pub(crate) fn dray() -> PathBuf {
    #[expect(
        clippy::disallowed_methods,
        reason = "the runner passes the binary that it built in this variable"
    )]
    let from_runner = std::env::var_os("DRAY_BINARY").map(PathBuf::from);
    let path = from_runner.unwrap_or_else(|| root().join("target/debug/dray"));
    assert!(path.exists(), "no {}: cargo build -p dray", path.display());
    path
}

/// Runs a program to its end and returns its standard output; its standard error becomes part of the panic message.
#[track_caller]
pub(crate) fn stdout(command: &mut Command) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command
        .output()
        .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    assert!(
        status.success(),
        "{command:?} ended with {status}: {}",
        String::from_utf8_lossy(&stderr)
    );
    String::from_utf8(stdout).expect("text")
}
