//! The model test (messaging-reliability 19.1): operations, workers that crash, lose messages or stall at any step, and
//! a sweeper. At the end, every operation has exactly one outcome.
//!
//! Runs in process on a clock that the test moves, so that minutes pass in milliseconds.

mod recovery;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dray_proto::v1::{self, LedgerState, TerminalState};
use dray_types::{Clock, Deadline};
use proptest::prelude::*;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::backend::Backend;
use crate::backend::local::{FaultPlan, InjectedFault, LocalBackend};
use crate::conformance::{
    ScriptedHandler, call_meta, noop_meter, outgoing_message, small_topology, tool_call,
};
use crate::health::ConnectionHealth;
use crate::metrics::BusMetrics;
use crate::{
    Bus, EventFilter, WorkCompleted, WorkDelivery, WorkFailure, WorkHandler, WorkSettings,
    WorkSweeper, headers,
};

/// Step by which the clock that the code reads advances with Tokio's paused time.
const CLOCK_TICK: Duration = Duration::from_millis(100);
/// Latest start of the last worker.
const LAST_WORKER_START: Duration = Duration::from_secs(100);
/// Longest time from the deadline to the outcome (G-1).
const MAX_END_DELAY: Duration = Duration::from_mins(2);

#[derive(Clone, Debug)]
struct ModelOperation {
    tool: &'static str,
    deadline: Duration,
    /// Whether the message is published a second time, without the id by which the stream would recognise it.
    published_twice: bool,
}

type ProcessRun = Vec<(u32, InjectedFault)>;

#[derive(Clone, Debug)]
struct ModelRun {
    operations: Vec<ModelOperation>,
    worker_runs: Vec<ProcessRun>,
    sweeper: ProcessRun,
}

fn fault_strategy() -> impl Strategy<Value = InjectedFault> {
    prop_oneof![
        Just(InjectedFault::CrashBefore),
        Just(InjectedFault::CrashAfter),
        Just(InjectedFault::LoseRequest),
        Just(InjectedFault::LoseResponse),
        (1..80_u64).prop_map(|seconds| InjectedFault::Pause(Duration::from_secs(seconds))),
    ]
}

fn process_run_strategy() -> impl Strategy<Value = ProcessRun> {
    prop::collection::vec((0..40_u32, fault_strategy()), 1..4)
}

fn operation_strategy() -> impl Strategy<Value = ModelOperation> {
    let tool = prop::sample::select(vec![
        "works",
        "works",
        "fails",
        "fails-once",
        "panics-once",
        "panics",
        "always-passing",
        "no-responder",
        "no-responder-three-times",
        "waits",
    ]);
    (tool, 1..150_u64, any::<bool>()).prop_map(|(tool, deadline, published_twice)| ModelOperation {
        tool,
        deadline: Duration::from_secs(deadline),
        published_twice,
    })
}

fn model_run_strategy() -> impl Strategy<Value = ModelRun> {
    (
        prop::collection::vec(operation_strategy(), 1..5),
        prop::collection::vec(process_run_strategy(), 0..6),
        prop::collection::vec((0..60_u32, fault_strategy()), 0..2),
    )
        .prop_map(|(operations, worker_runs, sweeper)| ModelRun {
            operations,
            worker_runs,
            sweeper,
        })
}

/// The script of the conformance suite, which also notes which epochs ran.
#[derive(Clone, Default)]
struct RecordingHandler {
    script: ScriptedHandler,
    epochs: Arc<Mutex<BTreeMap<String, Vec<u64>>>>,
}

impl WorkHandler<v1::ToolCallRequested> for RecordingHandler {
    async fn handle(
        &self,
        delivery: WorkDelivery<v1::ToolCallRequested>,
    ) -> Result<WorkCompleted, WorkFailure> {
        self.epochs
            .lock()
            .unwrap()
            .entry(delivery.meta.operation.to_string())
            .or_default()
            .push(delivery.epoch);
        self.script.handle(delivery).await
    }
}

struct ModelStage {
    local: LocalBackend,
    clock: Clock,
    bus: Bus,
    handler: RecordingHandler,
}

impl ModelStage {
    async fn new() -> Self {
        let clock = Clock::manual(1_700_000_000_000);
        let local = LocalBackend::new(clock.clone());
        let bus = bus_over(local.clone(), &clock);
        let found = bus.apply_topology(&small_topology(|_| {})).await.unwrap();
        assert_eq!(found, []);
        Self {
            local,
            clock,
            bus,
            handler: RecordingHandler::default(),
        }
    }

    fn bus_of(&self, plan: &Arc<FaultPlan>) -> Bus {
        bus_over(self.local.faulty(plan), &self.clock)
    }

    /// Runs a worker until it crashes by its plan or the test ends.
    async fn run_worker(&self, faults: ProcessRun, test_end: CancellationToken) {
        let plan = Arc::new(FaultPlan::new(faults));
        let bus = self.bus_of(&plan);
        let stop = CancellationToken::new();
        let work = bus.work(
            "file-resolver",
            WorkSettings::default(),
            self.handler.clone(),
            stop,
        );
        tokio::select! {
            ended = work => assert!(ended.is_err(), "the worker ended although it was not stopped"),
            () = plan.crashed.cancelled() => {}
            () = test_end.cancelled() => {}
        }
    }

    async fn sweep(&self, faults: ProcessRun, test_end: CancellationToken) {
        let plan = Arc::new(FaultPlan::new(faults));
        tokio::select! {
            () = WorkSweeper::new(self.bus_of(&plan)).run(CancellationToken::new()) => {}
            () = plan.crashed.cancelled() => {}
            () = test_end.cancelled() => {}
        }
    }

    async fn publish(&self, number: usize, operation: &ModelOperation) {
        let deadline = Deadline::after(self.clock.now_ms(), operation.deadline);
        let meta = call_meta(&format!("op-{number}"), deadline);
        let work = tool_call(operation.tool);
        self.bus.publish_work(&meta, &work).await.unwrap();
        if operation.published_twice {
            let subject = "dray.work.toolcall.v1.resolve.acme";
            let mut message = outgoing_message(subject, "", prost::Message::encode_to_vec(&work));
            for (name, value) in meta.headers("dray.v1.ToolCallRequested/1").iter() {
                message.headers.append(name, value);
            }
            let wait = Duration::from_secs(5);
            self.bus.inner.backend.store(&message, wait).await.unwrap();
        }
    }
}

fn bus_over(local: LocalBackend, clock: &Clock) -> Bus {
    Bus::with_backend(
        Backend::Local(local),
        clock.clone(),
        BusMetrics::new(&noop_meter()),
        ConnectionHealth::default(),
        tokio_util::task::TaskTracker::new(),
    )
}

/// Runs two workers concurrently with all their injected faults, then one worker without faults.
async fn run_workers(
    stage: &ModelStage,
    worker_runs: Vec<ProcessRun>,
    test_end: &CancellationToken,
) {
    let (odd, even): (Vec<_>, Vec<_>) = worker_runs
        .into_iter()
        .enumerate()
        .partition(|(number, _)| number % 2 == 1);
    let run_in_order = async |worker_runs: Vec<(usize, ProcessRun)>| {
        for (_, faults) in worker_runs {
            stage.run_worker(faults, test_end.clone()).await;
        }
    };
    let both = async { tokio::join!(run_in_order(odd), run_in_order(even)) };
    // Workers that do not crash continue beside the last one.
    tokio::select! {
        _ = both => stage.run_worker(Vec::new(), test_end.clone()).await,
        () = async {
            // The clock is paused, so this takes no real time.
            tokio::time::sleep(LAST_WORKER_START).await;
            stage.run_worker(Vec::new(), test_end.clone()).await;
        } => {}
    }
}

/// Advances the clock that the code reads with Tokio's paused time, until the result is dropped.
fn tick_clock(clock: &Clock) -> JoinSet<()> {
    let mut ticking = JoinSet::new();
    let clock = clock.clone();
    ticking.spawn(async move {
        loop {
            // The clock is paused, so this takes no real time.
            tokio::time::sleep(CLOCK_TICK).await;
            clock.advance(CLOCK_TICK);
        }
    });
    ticking
}

async fn play_run(model_run: ModelRun) {
    let stage = ModelStage::new().await;
    let test_end = CancellationToken::new();
    let _ticking = tick_clock(&stage.clock);
    for (number, operation) in model_run.operations.iter().enumerate() {
        stage.publish(number, operation).await;
    }
    let latest = model_run
        .operations
        .iter()
        .map(|operation| operation.deadline)
        .max();
    // The time counts from the last deadline or from the last start of a worker, whichever is later.
    let end = latest.unwrap_or_default().max(LAST_WORKER_START) + MAX_END_DELAY;
    let sweeping = async {
        stage
            .sweep(model_run.sweeper.clone(), test_end.clone())
            .await;
        stage.sweep(Vec::new(), test_end.clone()).await;
    };
    let ending = async {
        // The clock is paused, so this takes no real time.
        tokio::time::sleep(end).await;
        test_end.cancel();
    };
    tokio::join!(
        run_workers(&stage, model_run.worker_runs, &test_end),
        sweeping,
        ending
    );
    check_invariants(&stage, &model_run.operations).await;
}

async fn check_invariants(stage: &ModelStage, operations: &[ModelOperation]) {
    let reported = reported_subjects(stage).await;
    for (number, operation) in operations.iter().enumerate() {
        let name = format!("op-{number}");
        let meta = call_meta(&name, Deadline::from_unix_ms(0));
        let ledger = stage.bus.ledger();
        let record = ledger
            .find::<v1::ToolCallRequested>(&meta.tenant, &meta.operation)
            .await
            .unwrap()
            .unwrap_or_else(|| panic!("{name} has no entry"));
        assert_eq!(record.state(), LedgerState::Reported, "{name}: {record:?}");
        let expected: &[TerminalState] = match operation.tool {
            "works" | "fails-once" | "panics-once" => &[
                TerminalState::Done,
                TerminalState::Expired,
                TerminalState::DeadLettered,
            ],
            "no-responder-three-times" => &[
                TerminalState::Done,
                TerminalState::Failed,
                TerminalState::Expired,
                TerminalState::DeadLettered,
            ],
            _ => &[
                TerminalState::Failed,
                TerminalState::Expired,
                TerminalState::DeadLettered,
            ],
        };
        assert!(expected.contains(&record.terminal()), "{name}: {record:?}");
        assert!(record.attempts <= 5, "{name}: {record:?}");
        let subjects = reported.get(&name).cloned().unwrap_or_default();
        let kind = if record.terminal() == TerminalState::Done {
            "resolved"
        } else {
            "rejected"
        };
        assert_eq!(
            subjects,
            [format!("dray.event.toolcall.v1.{kind}.acme")],
            "{name}"
        );
    }
    for (name, epochs) in stage.handler.epochs.lock().unwrap().iter() {
        let distinct: BTreeSet<_> = epochs.iter().collect();
        assert_eq!(
            distinct.len(),
            epochs.len(),
            "{name} ran twice in one epoch: {epochs:?}"
        );
    }
}

/// Subjects of the events of each operation.
async fn reported_subjects(stage: &ModelStage) -> BTreeMap<String, Vec<String>> {
    let filter = EventFilter::new("dray.event.>").from_start();
    let mut events = stage.bus.events(filter).await.unwrap();
    let mut reported: BTreeMap<String, Vec<String>> = BTreeMap::new();
    while let Ok(event) = tokio::time::timeout(CLOCK_TICK, events.next()).await {
        let event = event.unwrap();
        let operation = event
            .headers
            .get(headers::OPERATION_HEADER)
            .unwrap()
            .to_owned();
        reported.entry(operation).or_default().push(event.subject);
    }
    reported
}

fn run_model(model_run: ModelRun) {
    on_paused_clock(play_run(model_run));
}

fn on_paused_clock(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(test);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_operation_ends_once_when_its_workers_crash_or_pause(model_run in model_run_strategy()) {
        run_model(model_run);
    }
}

#[test]
fn a_delivery_has_the_same_outcome_after_a_crash_at_any_step() {
    for step in 0..16 {
        for fault in [
            InjectedFault::CrashBefore,
            InjectedFault::CrashAfter,
            InjectedFault::LoseResponse,
            InjectedFault::LoseRequest,
        ] {
            run_model(ModelRun {
                operations: vec![ModelOperation {
                    tool: "works",
                    deadline: Duration::from_secs(140),
                    published_twice: true,
                }],
                worker_runs: vec![vec![(step, fault)]],
                sweeper: Vec::new(),
            });
        }
    }
}

#[test]
fn a_worker_that_was_paused_past_its_lease_writes_nothing() {
    for step in 0..12 {
        run_model(ModelRun {
            operations: vec![ModelOperation {
                tool: "works",
                deadline: Duration::from_secs(140),
                published_twice: false,
            }],
            worker_runs: vec![
                vec![(step, InjectedFault::Pause(Duration::from_secs(70)))],
                Vec::new(),
            ],
            sweeper: Vec::new(),
        });
    }
}
