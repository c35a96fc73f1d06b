//! (r) Builds of `dray` in release: the first one, as of a new contributor, and one after a change in one service.
//!
//! It takes about ten minutes, and the aims are for two idle cores.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Context as _;
use dray_types::Clock;

use super::pair::{ResourceUsage, run as run_command, to_words};
use super::path_text;
use crate::harness::verdict_text;
use crate::print_line;

const MAX_FIRST_SECONDS: f64 = 600.0;
const MAX_FIRST_CPU_SECONDS: f64 = 1_100.0;
const MAX_CHANGE_SECONDS: f64 = 25.0;
const MAX_PROGRAM_BYTES: u64 = 40_000_000;

/// Builds into an empty directory, again after a change, and measures the program without symbols.
pub(super) fn run() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let root = root.context("no workspace")?;
    let target = tempfile::tempdir()?;
    print_line("(r) release builds of dray");
    let first = build(root, target.path())?;
    report("first build", first.seconds, MAX_FIRST_SECONDS);
    report("first build, processor", first.cpu, MAX_FIRST_CPU_SECONDS);

    // A new time of modification makes cargo build the crate again, as a changed line does.
    let changed = root.join("crates/dray-egress-fetcher/src/lib.rs");
    File::options()
        .append(true)
        .open(changed)?
        .set_modified(UNIX_EPOCH + Duration::from_millis(Clock::system().now_ms()))?;
    let again = build(root, target.path())?;
    let program = target.path().join("release/dray");
    let started = run_command(false, &to_words([path_text(&program)?, "--version"]))?;
    let seconds = again.seconds + started.seconds;
    report(
        "change in egress-fetcher to a running dray",
        seconds,
        MAX_CHANGE_SECONDS,
    );
    report("the same, processor", again.cpu, f64::INFINITY);

    let stripped = target.path().join("stripped");
    let status = Command::new("strip")
        .arg("-o")
        .args([&stripped, &program])
        .status()
        .context("strip is needed")?;
    anyhow::ensure!(status.success(), "strip failed");
    let bytes = stripped.metadata()?.len();
    let verdict = verdict_text(bytes <= MAX_PROGRAM_BYTES);
    let mb = |bytes: u64| bytes / 1_000_000;
    print_line(&format!(
        "  {:<44} {:>9} MB, aim at most {}: {verdict}",
        "program without symbols",
        mb(bytes),
        mb(MAX_PROGRAM_BYTES)
    ));
    Ok(())
}

/// One build, as the first command of the README runs it.
fn build(root: &Path, target: &Path) -> anyhow::Result<ResourceUsage> {
    let manifest = root.join("Cargo.toml");
    let words = [
        "cargo",
        "build",
        "--quiet",
        "--release",
        "--package",
        "dray",
        "--manifest-path",
        path_text(&manifest)?,
        "--target-dir",
        path_text(target)?,
    ];
    run_command(false, &to_words(words))
}

fn report(name: &str, seconds: f64, target: f64) {
    let verdict = verdict_text(seconds <= target);
    let aim = if target.is_finite() {
        format!(", aim at most {target}: {verdict}")
    } else {
        String::new()
    };
    print_line(&format!("  {name:<44} {seconds:>9.1} s{aim}"));
}
