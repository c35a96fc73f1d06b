//! Runs two commands alternately, and prints a table of the resources that they used.

use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use serde::Deserialize;

use super::MAX_PRIVATE_BYTES;
use crate::harness::{BenchComparison, RatioTarget, SampleSet, verdict_text};
use crate::print_line;

/// Runs a command and prints the resources that it used.
const USAGE_SCRIPT: &str = include_str!("usage.py");

/// Resources that one run used.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct ResourceUsage {
    status: i32,
    pub(super) seconds: f64,
    pub(super) cpu: f64,
    peak_kib: u64,
    private_kib: u64,
}

/// One side: its name, and the words of its command in the round with this number.
pub(super) struct BenchSide<'a> {
    pub(super) name: String,
    pub(super) words: Box<dyn Fn(usize) -> Vec<String> + 'a>,
}

/// Two commands that move the same file, and the settings of their measurement.
pub(super) struct BenchPair<'a> {
    pub(super) name: String,
    pub(super) theirs: BenchSide<'a>,
    pub(super) ours: BenchSide<'a>,
    /// Highest ratio of our time to theirs.
    pub(super) target: f64,
    pub(super) rounds: usize,
    /// Runs before every run of either side, and is not measured.
    pub(super) prepare: Box<dyn Fn() + 'a>,
}

impl BenchPair<'_> {
    /// Runs both sides alternately and prints medians and ratios.
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        for round in 0..=self.rounds {
            let mut sides = [(&self.theirs, &mut theirs), (&self.ours, &mut ours)];
            // The order changes, so that neither side always profits from the caches of the other one.
            if round % 2 == 1 {
                sides.reverse();
            }
            for (side, usages) in sides {
                (self.prepare)();
                let usage = run(false, &(side.words)(round))?;
                // The first round fills caches and is not measured.
                if round > 0 {
                    usages.push(usage);
                }
            }
        }
        (self.prepare)();
        // The memory is measured in a separate run, because reading it every 2 ms disturbs the times.
        let private = run(true, &(self.ours.words)(self.rounds + 1))?;
        self.report(&theirs, &ours, private.private_kib << 10);
        Ok(())
    }

    fn report(&self, theirs: &[ResourceUsage], ours: &[ResourceUsage], private_bytes: u64) {
        let comparison = BenchComparison {
            name: self.name.clone(),
            baseline: SampleSet::new(side_label(&self.theirs.name, theirs), wall_times(theirs)),
            ours: SampleSet::new(side_label(&self.ours.name, ours), wall_times(ours)),
            target: RatioTarget::TimeAtMost(self.target),
        };
        let verdict = verdict_text(private_bytes <= MAX_PRIVATE_BYTES);
        let mib = |bytes: u64| bytes >> 20;
        print_line(comparison.to_string().trim_end());
        print_line(&format!(
            "  private memory {} MiB, aim at most {} MiB: {verdict}\n",
            mib(private_bytes),
            mib(MAX_PRIVATE_BYTES)
        ));
    }
}

/// The name of a side with its processor time and memory.
fn side_label(name: &str, usages: &[ResourceUsage]) -> String {
    let cpu = median_of(usages.iter().map(|usage| usage.cpu * 1_000.0).collect());
    let peak = usages.iter().map(|usage| usage.peak_kib >> 10).max();
    format!("{name} (CPU {cpu:.0} ms, {} MiB)", peak.unwrap_or_default())
}

fn wall_times(usages: &[ResourceUsage]) -> Vec<Duration> {
    let seconds = usages.iter().map(|usage| usage.seconds);
    seconds.map(Duration::from_secs_f64).collect()
}

fn median_of(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Runs one command to its end.
pub(super) fn run(private: bool, words: &[String]) -> anyhow::Result<ResourceUsage> {
    let mut command = Command::new("python3");
    // Python runs isolated and without `site`, so that Python starts quickly and reads no user settings.
    command.args(["-I", "-S", "-c", USAGE_SCRIPT]);
    if private {
        command.arg("--private");
    }
    let output = command.args(words).output();
    let output = output.context("python3 is needed")?;
    let usage: ResourceUsage = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    anyhow::ensure!(usage.status == 0, "{words:?} ended with {}", usage.status);
    Ok(usage)
}

/// Words of a command.
pub(super) fn to_words<const COUNT: usize>(words: [&str; COUNT]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_reports_time_and_memory_and_fails_if_its_command_fails() {
        let usage = run(false, &to_words(["sleep", "0.05"])).unwrap();
        assert!(usage.seconds >= 0.05 && usage.peak_kib > 0, "{usage:?}");
        let usage = run(true, &to_words(["sleep", "0.05"])).unwrap();
        assert!(usage.private_kib > 0, "{usage:?}");
        assert!(run(false, &to_words(["false"])).is_err());
    }
}
