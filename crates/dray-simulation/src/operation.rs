//! Records what really happened to each operation, and compares it with what the system reports.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use dray_delivery_rules::machine::DeliveryStep;
use dray_proto::v1::{LedgerState, TerminalState};
use serde::Serialize;

use crate::executor::VirtualTime;
use crate::simulation::Simulation;

/// Number of an operation.
pub(crate) type OperationId = u64;

/// The kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperationKind {
    ToolCall,
    /// A delivery to the platform with this index.
    Delivery(usize),
}

/// One line of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceStep {
    at: VirtualTime,
    /// The replica; `None` for the bus, the platform and the publisher.
    replica: Option<u32>,
    event: &'static str,
    value: u64,
}

/// Keeps an operation in memory. While one of these exists, the operation may still change.
pub(crate) struct OperationHold {
    simulation: Rc<Simulation>,
    pub(crate) id: OperationId,
}

impl OperationHold {
    pub(crate) fn new(simulation: &Rc<Simulation>, id: OperationId) -> Self {
        if let Some(operation) = simulation.operations.borrow_mut().get_mut(&id) {
            operation.holds += 1;
        }
        Self {
            simulation: Rc::clone(simulation),
            id,
        }
    }
}

impl Drop for OperationHold {
    fn drop(&mut self) {
        let mut operations = self.simulation.operations.borrow_mut();
        if let Some(operation) = operations.get_mut(&self.id) {
            operation.holds -= 1;
            if operation.holds == 0 {
                self.simulation.idle.borrow_mut().push(self.id);
            }
        }
    }
}

/// The true events of one round of an operation.
#[derive(Clone, Debug, Default)]
pub(crate) struct RoundTruth {
    /// Whether the bus has accepted its message.
    pub(crate) is_published: bool,
    /// Distinct reports in the event stream, with the end that each reports.
    pub(crate) events: Vec<TerminalState>,
    /// Epochs that began to work.
    pub(crate) epochs: Vec<u64>,
    /// Number of handlers that completed the work.
    pub(crate) completed: u32,
}

/// One operation that has not ended.
pub(crate) struct SimulatedOperation {
    pub(crate) kind: OperationKind,
    pub(crate) chat: u32,
    /// Unix milliseconds of true time.
    pub(crate) deadline_ms: u64,
    pub(crate) published_at: VirtualTime,
    pub(crate) is_started: bool,
    pub(crate) rounds: BTreeMap<u32, RoundTruth>,
    /// Messages that the user sees.
    pub(crate) visible: u32,
    /// The time at which the first visible message appeared.
    pub(crate) visible_at: VirtualTime,
    pub(crate) is_swept: bool,
    holds: u32,
    trace: Vec<TraceStep>,
    problems: Vec<OperationProblem>,
}

/// A violation of the product's guarantees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationProblem {
    /// An accepted operation has no end, or its message left the queue before its end was recorded.
    Lost,
    /// The effect happened twice, or two ends were reported.
    Duplicated,
    /// The report does not agree with what happened.
    FalselyReported,
}

/// Most lines of a trace; later ones are dropped.
const MAX_TRACE_STEPS: usize = 400;

impl SimulatedOperation {
    pub(crate) const fn new(
        kind: OperationKind,
        chat: u32,
        deadline_ms: u64,
        published_at: VirtualTime,
    ) -> Self {
        Self {
            kind,
            chat,
            deadline_ms,
            published_at,
            is_started: false,
            rounds: BTreeMap::new(),
            visible: 0,
            visible_at: 0,
            is_swept: false,
            holds: 0,
            trace: Vec::new(),
            problems: Vec::new(),
        }
    }

    pub(crate) fn note(
        &mut self,
        at: VirtualTime,
        replica: Option<u32>,
        event: &'static str,
        value: u64,
    ) {
        if self.trace.len() < MAX_TRACE_STEPS {
            self.trace.push(TraceStep {
                at,
                replica,
                event,
                value,
            });
        }
    }

    pub(crate) fn fail(&mut self, problem: OperationProblem) {
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    pub(crate) const fn is_idle(&self) -> bool {
        self.holds == 0
    }
}

/// An operation with a problem.
#[derive(Clone, Debug, Serialize)]
pub struct FailedOperation {
    /// The rule that the product broke.
    pub problem: OperationProblem,
    /// Number of the operation, in the order of publication.
    pub operation: u64,
    /// The events of the operation, in order.
    pub trace: Vec<String>,
}

/// The state of an operation that has ended, as the buckets report it.
pub(crate) struct ReportedState<'a> {
    /// Ledger state and end of each round.
    pub(crate) rounds: Vec<(u32, LedgerState, TerminalState)>,
    /// The visible request of a delivery, and whether its record is finished.
    pub(crate) delivery: Option<(&'a DeliveryStep, bool)>,
}

/// Compares what happened with what is reported. Returns the problems.
pub(crate) fn check_operation(
    operation: &SimulatedOperation,
    reported: &ReportedState<'_>,
) -> Vec<OperationProblem> {
    let mut problems = operation.problems.clone();
    let mut fail = |problem| {
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    };
    for (round, truth) in &operation.rounds {
        if !truth.is_published {
            continue;
        }
        let entry = reported.rounds.iter().find(|(of, _, _)| of == round);
        match entry {
            Some((_, LedgerState::Reported, terminal)) => {
                // Two kinds of events have two ids, and readers count both.
                if truth.events.len() > 1 {
                    fail(OperationProblem::Duplicated);
                }
                if truth.events.is_empty() {
                    fail(OperationProblem::Lost);
                }
                if truth.events.first().is_some_and(|event| event != terminal) {
                    fail(OperationProblem::FalselyReported);
                }
                if *terminal == TerminalState::Done && truth.completed == 0 {
                    fail(OperationProblem::FalselyReported);
                }
            }
            _ => fail(OperationProblem::Lost),
        }
    }
    if operation.visible > 1 {
        fail(OperationProblem::Duplicated);
    }
    if let OperationKind::Delivery(_) = operation.kind {
        match reported.delivery {
            Some((step, true)) => {
                let is_visible = operation.visible > 0;
                match step {
                    DeliveryStep::Done(_) if !is_visible => fail(OperationProblem::FalselyReported),
                    DeliveryStep::Failed(_) if is_visible => {
                        fail(OperationProblem::FalselyReported);
                    }
                    DeliveryStep::Ready(_) | DeliveryStep::Sending(_) => {
                        fail(OperationProblem::Lost);
                    }
                    DeliveryStep::Done(_) | DeliveryStep::Failed(_) | DeliveryStep::Unknown(_) => {}
                }
            }
            // Work that never began has no record; the end of the work is the report.
            None if operation.visible == 0 => {}
            _ => fail(OperationProblem::Lost),
        }
    }
    problems
}

/// Returns the lines of a trace for people.
pub(crate) fn describe_trace(operation: &SimulatedOperation) -> Vec<String> {
    operation
        .trace
        .iter()
        .map(|step| {
            let at = Duration::from_micros(step.at).as_secs_f64();
            let source = step
                .replica
                .map_or_else(|| "-".to_owned(), |replica| format!("replica {replica}"));
            format!("{at:>12.6} s  {source:<13} {} {}", step.event, step.value)
        })
        .collect()
}
