//! The result of a run, for people and as JSON.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::time::Duration;

use serde::Serialize;

use crate::bus_model::MAX_ACK_PENDING;
use crate::operation::{FailedOperation, OperationProblem};
use crate::simulation::Simulation;
use crate::statistics::{DurationSummary, RequestKind};

/// How often each problem was found, and the shortest trace of each.
#[derive(Debug, Default)]
pub(crate) struct ProblemCounts {
    counts: BTreeMap<OperationProblem, u64>,
    shortest: BTreeMap<OperationProblem, FailedOperation>,
}

impl ProblemCounts {
    pub(crate) fn add(
        &mut self,
        problem: OperationProblem,
        describe: impl FnOnce() -> FailedOperation,
    ) {
        *self.counts.entry(problem).or_default() += 1;
        let failed = describe();
        let is_shorter = self
            .shortest
            .get(&problem)
            .is_none_or(|known| failed.trace.len() < known.trace.len());
        if is_shorter {
            self.shortest.insert(problem, failed);
        }
    }

    fn count(&self, problem: OperationProblem) -> u64 {
        self.counts.get(&problem).copied().unwrap_or(0)
    }
}

/// Results of a run.
#[derive(Clone, Debug, Serialize)]
pub struct SimulationReport {
    /// The seed that repeats it.
    pub seed: u64,
    /// Operations that were published.
    pub operations: u64,
    /// Operations that have ended.
    pub settled: u64,
    /// Number of worker processes.
    pub replicas: u32,
    /// Operations per second of virtual time.
    pub rate: f64,
    /// Virtual time from the start to the last end of an operation.
    pub virtual_seconds: f64,
    /// Accepted operations without an end, and messages that left the queue before their end was recorded.
    pub lost: u64,
    /// Effects or reports that happened twice.
    pub duplicated: u64,
    /// Reports that do not agree with what happened.
    pub falsely_reported: u64,
    /// Time from the publication to the first claim.
    pub queue_time: DurationSummary,
    /// Time from the publication to the last event of the operation.
    pub end_time: DurationSummary,
    /// Requests for each operation, by kind.
    pub requests_per_operation: BTreeMap<&'static str, f64>,
    /// Requests to the bus for each second of virtual time.
    pub bus_requests_per_second: f64,
    /// Requests to the object store for each second of virtual time.
    pub store_requests_per_second: f64,
    /// Number of operations by how they ended.
    pub ends: BTreeMap<&'static str, u64>,
    /// Number of injected faults, and of operations that the sweeper ended.
    pub faults: BTreeMap<&'static str, u64>,
    /// Messages that were handed out again.
    pub redeliveries: u64,
    /// Most concurrent messages that one queue had handed out.
    pub max_ack_pending: usize,
    /// Pulls that got no message because their queue was at its limit of unacknowledged messages.
    pub full_queue_pulls: u64,
    /// Pulls that were refused because too many waited at one consumer.
    pub refused_pulls: u64,
    /// Most operations that were in memory at the same time.
    pub max_live: usize,
    /// Events of the simulation.
    pub events: u64,
    /// The limit that the run reached, or is nearest to.
    pub first_limit: String,
    /// The shortest trace of each problem.
    pub failed: Vec<FailedOperation>,
}

impl SimulationReport {
    pub(crate) fn of(simulation: &Simulation) -> Self {
        let options = &simulation.options;
        let problems = simulation.problems.borrow();
        let stream = simulation.stream.borrow();
        let counts = simulation.counts.borrow();
        let seconds = Duration::from_micros(simulation.last_end.get()).as_secs_f64();
        // The load is that of the time in which operations are published, not of the last one's deadline.
        let publishing = float(options.operations) / options.rate;
        let sum = |is_store: bool| {
            let kinds = RequestKind::ALL.iter().zip(counts.iter());
            let counted = kinds.filter(|(kind, _)| kind.is_store() == is_store);
            float(counted.map(|(_, count)| *count).sum()) / publishing
        };
        let kinds = RequestKind::ALL.iter().zip(counts.iter());
        let index_reads = counts
            .get(RequestKind::IndexRead as usize)
            .copied()
            .unwrap_or(0);
        Self {
            seed: options.seed,
            operations: options.operations,
            settled: simulation.settled.get(),
            replicas: options.replicas,
            rate: options.rate,
            virtual_seconds: seconds,
            lost: problems.count(OperationProblem::Lost),
            duplicated: problems.count(OperationProblem::Duplicated),
            falsely_reported: problems.count(OperationProblem::FalselyReported),
            queue_time: simulation.queue_times.borrow().summary(),
            end_time: simulation.end_times.borrow().summary(),
            requests_per_operation: kinds
                .map(|(kind, count)| (kind.name(), float(*count) / float(options.operations)))
                .collect(),
            bus_requests_per_second: sum(false),
            store_requests_per_second: sum(true),
            ends: simulation.ends.borrow().clone(),
            faults: simulation.faults.borrow().clone(),
            redeliveries: stream.redeliveries,
            max_ack_pending: stream.max_pending(),
            full_queue_pulls: stream.full_queues,
            refused_pulls: stream.refused_pulls,
            max_live: simulation.max_live.get(),
            events: simulation.executor.scheduled(),
            first_limit: first_limit(
                stream.full_queues,
                stream.refused_pulls,
                stream.max_pending(),
                float(index_reads) / publishing,
            ),
            failed: problems.shortest.values().cloned().collect(),
        }
    }

    /// Whether no operation was lost, duplicated or falsely reported.
    pub const fn is_clean(&self) -> bool {
        self.lost == 0 && self.duplicated == 0 && self.falsely_reported == 0
    }

    /// The share of deliveries that were delivered, among those that ended; `None` without any.
    pub fn delivered_share(&self) -> Option<f64> {
        self.share_of("delivery ", "delivery delivered")
    }

    /// The share of tool calls that were done, among those that ended; `None` without any.
    pub fn done_share(&self) -> Option<f64> {
        self.share_of("tool call ", "tool call done")
    }

    fn share_of(&self, kind: &str, success: &str) -> Option<f64> {
        let of_kind = self.ends.iter().filter(|(name, _)| name.starts_with(kind));
        let ended: u64 = of_kind.map(|(_, count)| *count).sum();
        let succeeded = self.ends.get(success).copied().unwrap_or(0);
        (ended > 0).then(|| float(succeeded) / float(ended))
    }
}

fn float(count: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts below 2^52")]
    let float = count as f64;
    float
}

/// Reads of single keys per second above which the report calls the index of deliveries the first limit. This is an
/// assumption about one server, not a measurement.
const MANY_INDEX_READS: f64 = 100_000.0;

fn first_limit(
    full_queues: u64,
    refused_pulls: u64,
    max_pending: usize,
    index_reads: f64,
) -> String {
    // The value is in percent of the limit that the shipped consumers have.
    let used = max_pending * 100 / MAX_ACK_PENDING;
    if index_reads > MANY_INDEX_READS {
        format!(
            "the index of deliveries: every replica reads every change, {index_reads:.0} reads/s; max_ack_pending was \
             used to {used} %, {refused_pulls} pulls were refused"
        )
    } else if full_queues > 0 {
        "max_ack_pending of a queue was reached: it hands out nothing until work ends".to_owned()
    } else if refused_pulls > 0 {
        format!(
            "the waiting pulls of a consumer (512): idle replicas beyond them ask again and again; max_ack_pending was \
             used to {used} %"
        )
    } else {
        format!("none was reached; max_ack_pending was used to {used} %")
    }
}

impl fmt::Display for SimulationReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.write_outcome(&mut text)?;
        self.write_load(&mut text)?;
        for failed in &self.failed {
            writeln!(
                text,
                "\n{:?}: operation {} (repeat with --seed {})",
                failed.problem, failed.operation, self.seed
            )?;
            for line in &failed.trace {
                writeln!(text, "  {line}")?;
            }
        }
        f.write_str(&text)
    }
}

impl SimulationReport {
    fn write_outcome(&self, text: &mut String) -> fmt::Result {
        writeln!(
            text,
            "seed {}: {} operations, {} replicas, {:.0} operations/s, {:.0} s of virtual time, {} events",
            self.seed, self.settled, self.replicas, self.rate, self.virtual_seconds, self.events
        )?;
        writeln!(text, "  lost              {}", self.lost)?;
        writeln!(text, "  duplicated        {}", self.duplicated)?;
        writeln!(text, "  falsely reported  {}", self.falsely_reported)?;
        for (name, times) in [("queue time", self.queue_time), ("end time", self.end_time)] {
            writeln!(
                text,
                "  {name:<10} p50 {:.0} ms, p90 {:.0} ms, p99 {:.0} ms, p99.9 {:.0} ms, longest {:.0} ms",
                times.p50_ms, times.p90_ms, times.p99_ms, times.p999_ms, times.max_ms
            )?;
        }
        for (title, counts) in [("ends", &self.ends), ("faults", &self.faults)] {
            writeln!(text, "{title}")?;
            for (name, count) in counts {
                writeln!(text, "  {count:>12}  {name}")?;
            }
        }
        writeln!(text, "  {:>12}  redeliveries", self.redeliveries)
    }

    fn write_load(&self, text: &mut String) -> fmt::Result {
        writeln!(
            text,
            "load: {:.0} bus requests/s, {:.0} store requests/s; for each operation:",
            self.bus_requests_per_second, self.store_requests_per_second
        )?;
        for (name, count) in &self.requests_per_operation {
            writeln!(text, "  {count:>12.3}  {name}")?;
        }
        writeln!(
            text,
            "limits: {} unacknowledged messages of a queue at most, {} pulls at a full queue, {} refused pulls",
            self.max_ack_pending, self.full_queue_pulls, self.refused_pulls
        )?;
        writeln!(text, "first limit: {}", self.first_limit)
    }
}
