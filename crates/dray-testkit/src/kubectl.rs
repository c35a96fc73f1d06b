//! The `kubectl` of the tests.

use std::path::PathBuf;

/// Path of the `kubectl` that `cargo xtask test` chose or downloaded: version 1.31 or newer.
///
/// # Panics
///
/// There is none.
pub fn program() -> PathBuf {
    let path = crate::python::workspace_root().join("target/kubectl/bin/kubectl");
    assert!(
        path.exists(),
        "no kubectl 1.31 or newer: run `cargo xtask test --prepare` once"
    );
    path
}
