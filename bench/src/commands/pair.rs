//! Two commands in turn, and the table of what they used.

use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use serde::Deserialize;

use super::MAX_PRIVATE_BYTES;
use crate::harness::{Aim, Comparison, Measured};
use crate::say;

/// Runs a command and returns what it used.
const USAGE: &str = include_str!("usage.py");

/// What one run used.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Usage {
    status: i32,
    seconds: f64,
    cpu: f64,
    peak_kib: u64,
    private_kib: u64,
}

/// One side: its name, and the words of its command in the round with this number.
pub(super) struct Side<'a> {
    pub(super) name: String,
    pub(super) words: Box<dyn Fn(usize) -> Vec<String> + 'a>,
}

/// What is measured.
pub(super) struct Pair<'a> {
    pub(super) name: String,
    pub(super) theirs: Side<'a>,
    pub(super) ours: Side<'a>,
    /// Our time over theirs, at most.
    pub(super) aim: f64,
    pub(super) rounds: usize,
    /// Done before every run of either side, and not measured.
    pub(super) prepare: Box<dyn Fn() + 'a>,
}

impl Pair<'_> {
    /// Runs both sides in turn and prints medians and ratios.
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        for round in 0..=self.rounds {
            let mut sides = [(&self.theirs, &mut theirs), (&self.ours, &mut ours)];
            if round % 2 == 1 {
                sides.reverse();
            }
            for (side, used) in sides {
                (self.prepare)();
                let usage = run(false, &(side.words)(round))?;
                // The first round warms caches and does not count.
                if round > 0 {
                    used.push(usage);
                }
            }
        }
        (self.prepare)();
        let private = run(true, &(self.ours.words)(self.rounds + 1))?;
        self.report(&theirs, &ours, private.private_kib << 10);
        Ok(())
    }

    fn report(&self, theirs: &[Usage], ours: &[Usage], private_bytes: u64) {
        let comparison = Comparison {
            name: self.name.clone(),
            baseline: Measured::new(label(&self.theirs.name, theirs), times(theirs)),
            ours: Measured::new(label(&self.ours.name, ours), times(ours)),
            aim: Aim::TimeAtMost(self.aim),
        };
        let verdict = if private_bytes <= MAX_PRIVATE_BYTES {
            "met"
        } else {
            "MISSED"
        };
        let mib = |bytes: u64| bytes >> 20;
        say(comparison.to_string().trim_end());
        say(&format!(
            "  memory of its own {} MiB, aim at most {} MiB: {verdict}\n",
            mib(private_bytes),
            mib(MAX_PRIVATE_BYTES)
        ));
    }
}

/// The name of a side with its processor time and memory.
fn label(name: &str, used: &[Usage]) -> String {
    let cpu = middle(used.iter().map(|usage| usage.cpu * 1_000.0).collect());
    let peak = used.iter().map(|usage| usage.peak_kib >> 10).max();
    format!("{name} (CPU {cpu:.0} ms, {} MiB)", peak.unwrap_or_default())
}

fn times(used: &[Usage]) -> Vec<Duration> {
    let seconds = used.iter().map(|usage| usage.seconds);
    seconds.map(Duration::from_secs_f64).collect()
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Runs one command to its end.
fn run(private: bool, words: &[String]) -> anyhow::Result<Usage> {
    let mut command = Command::new("python3");
    command.args(["-I", "-S", "-c", USAGE]);
    if private {
        command.arg("--private");
    }
    let output = command.args(words).output();
    let output = output.context("python3 is needed")?;
    let usage: Usage = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    anyhow::ensure!(usage.status == 0, "{words:?} ended with {}", usage.status);
    Ok(usage)
}

/// Words of a command.
pub(super) fn words<const COUNT: usize>(words: [&str; COUNT]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_tells_its_time_and_memory_and_a_failure_is_one() {
        let usage = run(false, &words(["sleep", "0.05"])).unwrap();
        assert!(usage.seconds >= 0.05 && usage.peak_kib > 0, "{usage:?}");
        let usage = run(true, &words(["sleep", "0.05"])).unwrap();
        assert!(usage.private_kib > 0, "{usage:?}");
        assert!(run(false, &words(["false"])).is_err());
    }
}
