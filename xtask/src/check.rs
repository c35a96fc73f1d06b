//! `cargo xtask lint` and `cargo xtask check`: the checks for a change, cheapest first.

use std::path::Path;

use crate::{step, suite};

/// Formatting, Clippy and the documentation, without a warning in any target: tests, benchmarks and examples included.
///
/// Stops at the first failure, because later steps would only repeat it. Continuous integration does not run this: it
/// would compile every dependency a second time in addition to the build of the tests, which takes minutes in a fresh
/// clone.
pub(crate) fn run_lints(root: &Path) -> anyhow::Result<()> {
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
        .run()
}

/// The lints, then all tests.
pub(crate) fn run_checks(root: &Path) -> anyhow::Result<()> {
    run_lints(root)?;
    // This includes the checks of generated files and source rules.
    suite::run_tests(root, suite::PROPERTY_SEED, &[])
}
