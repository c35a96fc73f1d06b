//! Tests recovery on a manual clock: how long work waits after a worker was killed, and that an outage of a dependency
//! uses up no attempt.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dray_proto::v1::{self, LedgerState, TerminalState};
use dray_types::{Deadline, Fault as WorkFault, FaultCode};
use tokio_util::sync::CancellationToken;

use super::{CLOCK_TICK, ModelStage, on_paused_clock, tick_clock};
use crate::backend::local::{FaultPlan, InjectedFault};
use crate::conformance::{call_meta, resolved_event, tool_call};
use crate::topology::{EVENT_STREAM, LEDGER_STREAM, WORK_STREAM};
use crate::{Bus, WorkCompleted, WorkDelivery, WorkFailure, WorkHandler, WorkSettings};

/// Longest time until work ends after its worker was killed.
const MAX_RECOVERY: Duration = Duration::from_secs(10);
/// Duration of an outage of a dependency.
const DEPENDENCY_OUTAGE: Duration = Duration::from_mins(1);
/// Number of operations that wait for the dependency.
const WAITING_OPERATIONS: usize = 20;

/// Records the epoch of each delivery, then ends immediately or never.
#[derive(Clone, Default)]
struct EpochRecorder {
    never_ends: bool,
    epochs: Arc<Mutex<Vec<u64>>>,
}

impl WorkHandler<v1::ToolCallRequested> for EpochRecorder {
    async fn handle(
        &self,
        delivery: WorkDelivery<v1::ToolCallRequested>,
    ) -> Result<WorkCompleted, WorkFailure> {
        self.epochs.lock().unwrap().push(delivery.epoch);
        if self.never_ends {
            std::future::pending::<()>().await;
        }
        Ok(WorkCompleted::event(&resolved_event(&delivery)))
    }
}

/// Fails with `no_responder` while the dependency is unavailable, then succeeds.
#[derive(Clone)]
struct DependentHandler {
    clock: dray_types::Clock,
    unavailable_until_ms: u64,
}

impl WorkHandler<v1::ToolCallRequested> for DependentHandler {
    async fn handle(
        &self,
        delivery: WorkDelivery<v1::ToolCallRequested>,
    ) -> Result<WorkCompleted, WorkFailure> {
        if self.clock.now_ms() < self.unavailable_until_ms {
            let fault = WorkFault::new(FaultCode::Unavailable, "later")
                .detail("no_responder")
                .retry_after(Duration::from_secs(1));
            return Err(fault.into());
        }
        Ok(WorkCompleted::event(&resolved_event(&delivery)))
    }
}

/// Records the epoch of each delivery, then works for `duration`.
#[derive(Clone)]
struct SlowHandler {
    duration: Duration,
    epochs: Arc<Mutex<Vec<u64>>>,
}

impl WorkHandler<v1::ToolCallRequested> for SlowHandler {
    async fn handle(
        &self,
        delivery: WorkDelivery<v1::ToolCallRequested>,
    ) -> Result<WorkCompleted, WorkFailure> {
        self.epochs.lock().unwrap().push(delivery.epoch);
        // The clock is paused, so this takes no real time.
        tokio::time::sleep(self.duration).await;
        Ok(WorkCompleted::event(&resolved_event(&delivery)))
    }
}

async fn start_worker(bus: Bus, handler: impl WorkHandler<v1::ToolCallRequested>) {
    let settings = WorkSettings::default();
    let stop = CancellationToken::new();
    bus.work("file-resolver", settings, handler, stop)
        .await
        .unwrap();
}

async fn publish_work(stage: &ModelStage, number: usize) -> crate::Meta {
    let deadline = Deadline::after(stage.clock.now_ms(), Duration::from_mins(4));
    let meta = call_meta(&format!("op-{number}"), deadline);
    stage
        .bus
        .publish_work(&meta, &tool_call("works"))
        .await
        .unwrap();
    meta
}

/// Waits until the operation has ended.
async fn wait_until_reported(stage: &ModelStage, meta: &crate::Meta) -> v1::LedgerRecord {
    loop {
        let ledger = stage.bus.ledger();
        let found = ledger
            .find::<v1::ToolCallRequested>(&meta.tenant, &meta.operation)
            .await
            .unwrap();
        if let Some(record) = found.filter(|record| record.state() == LedgerState::Reported) {
            return record;
        }
        // The clock is paused, so this takes no real time.
        tokio::time::sleep(CLOCK_TICK).await;
    }
}

/// One worker crashes at the given step of its requests to the bus; then a second worker starts.
async fn recovers_after_a_kill(step: u32, fault: InjectedFault) {
    let stage = ModelStage::new().await;
    let _ticking = tick_clock(&stage.clock);
    let meta = publish_work(&stage, 0).await;
    let handler = EpochRecorder::default();
    let stuck = EpochRecorder {
        never_ends: true,
        ..handler.clone()
    };
    let plan = Arc::new(FaultPlan::new(vec![(step, fault)]));
    tokio::select! {
        () = start_worker(stage.bus_of(&plan), stuck) => panic!("the worker ended although it was not stopped"),
        () = plan.crashed.cancelled() => {}
    }
    let killed_at_ms = stage.clock.now_ms();
    tokio::select! {
        () = start_worker(stage.bus.clone(), handler.clone()) => panic!("the worker ended although it was not stopped"),
        record = wait_until_reported(&stage, &meta) => {
            assert_eq!(record.terminal(), TerminalState::Done);
            let epochs = handler.epochs.lock().unwrap().clone();
            assert!(epochs.is_sorted_by(|earlier, later| earlier < later), "{epochs:?}");
        }
    }
    let recovery = Duration::from_millis(stage.clock.now_ms() - killed_at_ms);
    assert!(recovery <= MAX_RECOVERY, "step {step}: {recovery:?}");
}

#[test]
fn work_ends_within_ten_seconds_after_its_worker_is_killed_at_any_step() {
    for step in 0..32 {
        for fault in [InjectedFault::CrashBefore, InjectedFault::CrashAfter] {
            on_paused_clock(recovers_after_a_kill(step, fault));
        }
    }
}

#[test]
fn work_waits_for_a_dependency_that_is_unavailable_for_a_minute() {
    on_paused_clock(async {
        let stage = ModelStage::new().await;
        let _ticking = tick_clock(&stage.clock);
        let handler = DependentHandler {
            clock: stage.clock.clone(),
            unavailable_until_ms: stage.clock.now_ms() + 60_000,
        };
        let mut metas = Vec::new();
        for number in 0..WAITING_OPERATIONS {
            metas.push(publish_work(&stage, number).await);
        }
        let all_reported = async {
            for meta in &metas {
                let record = wait_until_reported(&stage, meta).await;
                let ended = (record.terminal(), record.attempts);
                assert_eq!(ended, (TerminalState::Done, 1), "{record:?}");
            }
        };
        let started_ms = stage.clock.now_ms();
        tokio::select! {
            () = start_worker(stage.bus.clone(), handler) => panic!("the worker ended although it was not stopped"),
            () = all_reported => {}
        }
        let took = Duration::from_millis(stage.clock.now_ms() - started_ms);
        assert!(
            took <= DEPENDENCY_OUTAGE + MAX_RECOVERY + MAX_RECOVERY,
            "{took:?}"
        );
        assert_eq!(stage.bus.dead_letters().list(1, 1).await.unwrap(), []);
    });
}

#[test]
fn lost_renewals_and_lost_responses_do_not_interrupt_the_only_worker() {
    for fault in [InjectedFault::LoseRequest, InjectedFault::LoseResponse] {
        on_paused_clock(async {
            let stage = ModelStage::new().await;
            let _ticking = tick_clock(&stage.clock);
            let meta = publish_work(&stage, 0).await;
            let handler = SlowHandler {
                duration: Duration::from_secs(30),
                epochs: Arc::default(),
            };
            // Every other step fails: a renewal, or the read after a renewal whose response was lost.
            let faults = (8..60).step_by(2).map(|step| (step, fault)).collect();
            let plan = Arc::new(FaultPlan::new(faults));
            let record = tokio::select! {
                () = start_worker(stage.bus_of(&plan), handler.clone()) => panic!("the worker ended although it was not stopped"),
                record = wait_until_reported(&stage, &meta) => record,
            };
            assert_eq!((record.terminal(), record.epoch), (TerminalState::Done, 1));
            assert_eq!(*handler.epochs.lock().unwrap(), [1]);
        });
    }
}

#[test]
fn an_operation_costs_three_ledger_writes_and_two_publications() {
    on_paused_clock(async {
        let stage = ModelStage::new().await;
        let _ticking = tick_clock(&stage.clock);
        let mut metas = Vec::new();
        for number in 0..WAITING_OPERATIONS {
            metas.push(publish_work(&stage, number).await);
        }
        let all_reported = async {
            for meta in &metas {
                wait_until_reported(&stage, meta).await;
            }
        };
        tokio::select! {
            () = start_worker(stage.bus.clone(), EpochRecorder::default()) => {
                panic!("the worker ended although it was not stopped")
            }
            () = all_reported => {}
        }
        // The numbers of docs/scale.md, which the simulation counts: the claim, the end and the report; the work and
        // its event.
        for (stream, per_operation) in [(LEDGER_STREAM, 3), (WORK_STREAM, 1), (EVENT_STREAM, 1)] {
            let state = stage
                .bus
                .inner
                .backend
                .stream(stream)
                .await
                .unwrap()
                .unwrap();
            let expected = per_operation * WAITING_OPERATIONS as u64;
            assert_eq!(state.last_sequence, expected, "{stream}");
            if stream == LEDGER_STREAM {
                // The bytes of docs/scale.md, from which operators compute the size of the store.
                let entry_bytes = state.bytes / WAITING_OPERATIONS as u64;
                assert!(entry_bytes <= 610, "{entry_bytes}");
            }
        }
    });
}
