//! `cargo xtask check`: what a change must pass, cheapest first.

use std::path::Path;

use crate::{step, suite};

/// Stops at the first failure: what comes later would only repeat it.
pub(crate) fn run_checks(root: &Path) -> anyhow::Result<()> {
    step::cargo_step(root)
        .args(["fmt", "--all", "--check"])
        .run()?;
    step::cargo_step(root)
        .args([
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ])
        .run()?;
    step::cargo_step(root)
        .args([
            "doc",
            "--workspace",
            "--no-deps",
            // Links between private items are read by people too; a broken one fails here.
            "--document-private-items",
        ])
        .env("RUSTDOCFLAGS", "-D warnings")
        .run()?;
    // Generated files and source rules are part of it.
    suite::run_tests(root, &[])
}
