//! The handlers of operations. A tool call takes some time and succeeds or fails; deliveries are in `delivery`.

use std::rc::Rc;
use std::time::Duration;

use dray_types::{Fault, FaultCode};

use crate::delivery::deliver;
use crate::job::SimulatedJob;
use crate::operation::{OperationHold, OperationKind};
use crate::simulation::Simulation;
use crate::statistics::RequestKind;

/// Mean time of a tool call in addition to the shortest time.
const MEAN_CALL_TIME: Duration = Duration::from_millis(300);
/// Shortest time of a tool call, in microseconds.
const MIN_CALL_TIME: u64 = 20_000;
/// Share of the calls that take about ten times as long.
const SLOW_SHARE: f64 = 0.02;
/// Share of the calls whose result goes through the object store.
const STORED_SHARE: f64 = 0.4;
/// Requests of `dray-store` to store content of one part: one conditional PUT (`commit::put_known`).
pub(crate) const STORE_WRITES: u64 = 1;

/// Outcome of a handler.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum HandlerResult {
    Completed,
    Failed(Fault),
    Panicked,
}

/// Data about a delivery for its handler.
pub(crate) struct HandlerContext {
    pub(crate) simulation: Rc<Simulation>,
    pub(crate) replica: u32,
    pub(crate) hold: Rc<OperationHold>,
    pub(crate) round: u32,
    /// End of the operation, in Unix milliseconds.
    pub(crate) deadline_ms: u64,
}

impl HandlerContext {
    pub(crate) fn of(job: &SimulatedJob) -> Self {
        Self {
            simulation: Rc::clone(&job.simulation),
            replica: job.replica,
            hold: Rc::clone(&job.work.hold),
            round: job.work.round,
            deadline_ms: job.deadline_ms,
        }
    }

    pub(crate) fn note(&self, event: &'static str, value: u64) {
        self.simulation
            .note(self.hold.id, self.replica, event, value);
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.simulation.clock_ms(self.replica)
    }
}

/// Runs the handler of an operation.
pub(crate) async fn run_handler(context: HandlerContext) -> HandlerResult {
    let found = context
        .simulation
        .with_operation(context.hold.id, |operation| {
            (operation.kind, operation.chat)
        });
    let result = match found {
        Some((OperationKind::Delivery(platform), chat)) => deliver(&context, platform, chat).await,
        Some((OperationKind::ToolCall, _)) => call_tool(&context).await,
        None => HandlerResult::Failed(Fault::internal()),
    };
    if result == HandlerResult::Completed {
        context.note("the handler completed, round", u64::from(context.round));
        context
            .simulation
            .with_operation(context.hold.id, |operation| {
                operation.rounds.entry(context.round).or_default().completed += 1;
            });
    }
    result
}

async fn call_tool(context: &HandlerContext) -> HandlerResult {
    let simulation = &context.simulation;
    let mean = if simulation.chance(SLOW_SHARE) {
        MEAN_CALL_TIME * 10
    } else {
        MEAN_CALL_TIME
    };
    let duration = MIN_CALL_TIME + simulation.draw_exponential(mean);
    simulation.sleep(duration).await;
    // The call fails after its time: a failure takes as long as a success.
    if simulation.chance(simulation.options.faults.failing_handler) {
        return draw_failure(simulation);
    }
    if simulation.chance(STORED_SHARE) {
        simulation.count(RequestKind::StoreWrite, STORE_WRITES);
        simulation.count(RequestKind::StoreRead, 1);
    }
    HandlerResult::Completed
}

fn draw_failure(simulation: &Simulation) -> HandlerResult {
    let unavailable = |detail: &str| {
        Fault::new(FaultCode::Unavailable, "later")
            .detail(detail)
            .retry_after(Duration::from_secs(1))
    };
    match simulation.draw(0, 10) {
        // The web server resets connections; this counts as an attempt.
        0..=4 => HandlerResult::Failed(unavailable("connect_failed")),
        // A service cannot be reached; this does not count as an attempt.
        5..=7 => HandlerResult::Failed(unavailable("no_responder")),
        8 => HandlerResult::Failed(Fault::new(FaultCode::Denied, "refused")),
        _ => HandlerResult::Panicked,
    }
}
