//! `cargo xtask fuzz`: the targets of `fuzz/`, each for a bounded time.

use std::path::Path;

use anyhow::{Context as _, bail};

use crate::step;

/// Runs one target or all of them, and stops at the first finding.
pub(crate) fn run_targets(root: &Path, minutes: u64, target: Option<&str>) -> anyhow::Result<()> {
    if !step::cargo_step(root)
        .args(["fuzz", "--version"])
        .succeeds()
    {
        step::cargo_step(root)
            // `--locked` uses the lock file of the tool, so that the tool is built from the dependencies that its
            // authors tested.
            .args(["install", "cargo-fuzz", "--locked"])
            .run()
            .context("cargo-fuzz is missing and could not be installed")?;
    }
    let all = fuzz_step(root).arg("list").output()?;
    for target in select_targets(&all, target)? {
        fuzz_step(root)
            // This project forbids `unsafe`, and without the address sanitizer twice as many inputs are tested.
            .args(["run", "--sanitizer", "none", target, "--"])
            .arg(format!("-max_total_time={}", minutes.saturating_mul(60)))
            // An input that takes ten seconds or 2 GiB is a finding: parsers of untrusted bytes have to be bounded.
            .args(["-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1"])
            .run()?;
    }
    Ok(())
}

/// `cargo fuzz` on a stable compiler: coverage instrumentation is an unstable option.
fn fuzz_step(root: &Path) -> step::ProgramStep {
    step::cargo_step(root)
        .arg("fuzz")
        .env("RUSTC_BOOTSTRAP", "1")
}

/// The requested target, or all targets.
fn select_targets<'names>(
    all: &'names str,
    requested: Option<&str>,
) -> anyhow::Result<Vec<&'names str>> {
    let names: Vec<_> = all.split_whitespace().collect();
    let Some(requested) = requested else {
        return Ok(names);
    };
    let selected: Vec<_> = names
        .iter()
        .copied()
        .filter(|name| *name == requested)
        .collect();
    if selected.is_empty() {
        bail!(
            "no fuzz target `{requested}`; there are: {}",
            names.join(", ")
        );
    }
    Ok(selected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_name_every_target_runs() {
        assert_eq!(
            select_targets("url\nhead\n", None).unwrap(),
            ["url", "head"]
        );
        assert_eq!(
            select_targets("url\nhead\n", Some("head")).unwrap(),
            ["head"]
        );
    }

    #[test]
    fn an_unknown_target_is_refused_with_a_list_of_the_known_ones() {
        let error = select_targets("url\nhead\n", Some("hea")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no fuzz target `hea`; there are: url, head"
        );
    }
}
