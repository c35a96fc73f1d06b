//! Times, repetitions and the table of ratios.

use std::fmt;
use std::time::{Duration, Instant};

/// Two methods for the same task, measured in one run.
#[derive(Debug)]
pub(crate) struct BenchComparison {
    /// The task, with the letter of the measurement.
    pub(crate) name: String,
    /// The program that a user would use instead.
    pub(crate) baseline: SampleSet,
    /// The same task with Drayage.
    pub(crate) ours: SampleSet,
    /// The meaning of the ratio, and its target.
    pub(crate) target: RatioTarget,
}

/// The bound that the ratio of two measurements should meet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RatioTarget {
    /// Our time divided by the other's, at most this.
    TimeAtMost(f64),
    /// Our throughput divided by the other's, at least this.
    ThroughputAtLeast(f64),
}

/// Repeated measurements of one side, compared by their median.
#[derive(Debug)]
pub(crate) struct SampleSet {
    /// The first column of its row.
    pub(crate) label: String,
    times: Vec<Duration>,
}

impl SampleSet {
    /// Collects measurements under a label.
    pub(crate) fn new(label: impl Into<String>, mut times: Vec<Duration>) -> Self {
        // One sort is enough: the median and the range are then values at fixed positions.
        times.sort_unstable();
        Self {
            label: label.into(),
            times,
        }
    }

    /// The median, which one slow round does not change. For an even number of measurements, the upper of the two.
    pub(crate) fn median(&self) -> Duration {
        self.times
            .get(self.times.len() / 2)
            .copied()
            .unwrap_or_default()
    }

    /// The smallest and the largest measurement.
    fn range(&self) -> (Duration, Duration) {
        (
            self.times.first().copied().unwrap_or_default(),
            self.times.last().copied().unwrap_or_default(),
        )
    }
}

impl BenchComparison {
    /// Our result divided by the other's in the unit of the target: times or throughputs.
    fn ratio(&self) -> f64 {
        let (baseline, ours) = (
            self.baseline.median().as_secs_f64(),
            self.ours.median().as_secs_f64(),
        );
        match self.target {
            RatioTarget::TimeAtMost(_) => ours / baseline,
            RatioTarget::ThroughputAtLeast(_) => baseline / ours,
        }
    }

    fn meets(&self) -> bool {
        match self.target {
            RatioTarget::TimeAtMost(limit) => self.ratio() <= limit,
            RatioTarget::ThroughputAtLeast(least) => self.ratio() >= least,
        }
    }
}

impl fmt::Display for BenchComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.name)?;
        for measured in [&self.baseline, &self.ours] {
            let (shortest, longest) = measured.range();
            writeln!(
                f,
                "  {:<52} {:>11.3} ms   ({:.3} to {:.3}, {} runs)",
                measured.label,
                to_millis(measured.median()),
                to_millis(shortest),
                to_millis(longest),
                measured.times.len()
            )?;
        }
        let result = match self.target {
            RatioTarget::TimeAtMost(limit) => {
                format!("time ratio {:.2}, aim at most {limit}", self.ratio())
            }
            RatioTarget::ThroughputAtLeast(least) => {
                format!("throughput ratio {:.2}, aim at least {least}", self.ratio())
            }
        };
        writeln!(f, "  {result}: {}", verdict_text(self.meets()))
    }
}

/// The last word of each line with a target: in capitals for a missed target, so that readers can search for it.
pub(crate) const fn verdict_text(is_met: bool) -> &'static str {
    if is_met { "met" } else { "MISSED" }
}

/// Milliseconds with their fraction. A float, so that differences of two times can be negative.
pub(crate) fn to_millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

/// Runs two measurements alternately, after one round of each that is not measured. The order changes from round to
/// round, so that both run under the same conditions and neither always profits from the caches of the other one.
pub(crate) async fn side_by_side<A, B>(
    rounds: usize,
    mut baseline: impl FnMut() -> A,
    mut ours: impl FnMut() -> B,
) -> anyhow::Result<(Vec<Duration>, Vec<Duration>)>
where
    A: Future<Output = anyhow::Result<()>>,
    B: Future<Output = anyhow::Result<()>>,
{
    // This round is not measured, because the first round creates connections, caches and other lazy state.
    baseline().await?;
    ours().await?;
    let (mut first, mut second) = (Vec::with_capacity(rounds), Vec::with_capacity(rounds));
    for round in 0..rounds {
        if round % 2 == 0 {
            first.push(time_work(baseline()).await?);
            second.push(time_work(ours()).await?);
        } else {
            second.push(time_work(ours()).await?);
            first.push(time_work(baseline()).await?);
        }
    }
    Ok((first, second))
}

async fn time_work(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<Duration> {
    let start = Instant::now();
    work.await?;
    Ok(start.elapsed())
}
