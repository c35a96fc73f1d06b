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

/// One tick of the clock that the code reads, as timers run.
const CLOCK_TICK: Duration = Duration::from_millis(100);
/// When the workers' last life begins at the latest.
const LIVES_END: Duration = Duration::from_secs(100);
/// What is promised after the deadline (G-1).
const PROMISED_END: Duration = Duration::from_mins(2);

#[derive(Clone, Debug)]
struct ModelOperation {
    tool: &'static str,
    deadline: Duration,
    /// Published again with an id that the stream has not stored.
    again: bool,
}

type ProcessRun = Vec<(u32, InjectedFault)>;

#[derive(Clone, Debug)]
struct ModelRun {
    operations: Vec<ModelOperation>,
    lives: Vec<ProcessRun>,
    sweeper: ProcessRun,
}

fn fault_strategy() -> impl Strategy<Value = InjectedFault> {
    prop_oneof![
        Just(InjectedFault::CrashBefore),
        Just(InjectedFault::CrashAfter),
        Just(InjectedFault::LoseRequest),
        Just(InjectedFault::LoseAnswer),
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
    (tool, 1..150_u64, any::<bool>()).prop_map(|(tool, deadline, again)| ModelOperation {
        tool,
        deadline: Duration::from_secs(deadline),
        again,
    })
}

fn model_run_strategy() -> impl Strategy<Value = ModelRun> {
    (
        prop::collection::vec(operation_strategy(), 1..5),
        prop::collection::vec(process_run_strategy(), 0..6),
        prop::collection::vec((0..60_u32, fault_strategy()), 0..2),
    )
        .prop_map(|(operations, lives, sweeper)| ModelRun {
            operations,
            lives,
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
    async fn set() -> Self {
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

    /// A worker until it dies by its plan or is stopped.
    async fn live(&self, life: ProcessRun, gone: CancellationToken) {
        let plan = Arc::new(FaultPlan::new(life));
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
            () = plan.dead.cancelled() => {}
            () = gone.cancelled() => {}
        }
    }

    async fn sweep(&self, life: ProcessRun, gone: CancellationToken) {
        let plan = Arc::new(FaultPlan::new(life));
        tokio::select! {
            () = WorkSweeper::new(self.bus_of(&plan)).run(CancellationToken::new()) => {}
            () = plan.dead.cancelled() => {}
            () = gone.cancelled() => {}
        }
    }

    async fn publish(&self, number: usize, operation: &ModelOperation) {
        let deadline = Deadline::after(self.clock.now_ms(), operation.deadline);
        let meta = call_meta(&format!("op-{number}"), deadline);
        let work = tool_call(operation.tool);
        self.bus.publish_work(&meta, &work).await.unwrap();
        if operation.again {
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
async fn run_workers(stage: &ModelStage, lives: Vec<ProcessRun>, gone: &CancellationToken) {
    let (odd, even): (Vec<_>, Vec<_>) = lives
        .into_iter()
        .enumerate()
        .partition(|(number, _)| number % 2 == 1);
    let lane = async |lives: Vec<(usize, ProcessRun)>| {
        for (_, life) in lives {
            stage.live(life, gone.clone()).await;
        }
    };
    let both = async { tokio::join!(lane(odd), lane(even)) };
    // Lives that do not end by themselves continue beside the last one.
    tokio::select! {
        _ = both => stage.live(Vec::new(), gone.clone()).await,
        () = async {
            // paused clock
            tokio::time::sleep(LIVES_END).await;
            stage.live(Vec::new(), gone.clone()).await;
        } => {}
    }
}

/// Moves the clock that the code reads as timers run, until the result is dropped.
fn tick_clock(clock: &Clock) -> JoinSet<()> {
    let mut ticking = JoinSet::new();
    let clock = clock.clone();
    ticking.spawn(async move {
        loop {
            // paused clock
            tokio::time::sleep(CLOCK_TICK).await;
            clock.advance(CLOCK_TICK);
        }
    });
    ticking
}

async fn play_run(story: ModelRun) {
    let stage = ModelStage::set().await;
    let gone = CancellationToken::new();
    let _ticking = tick_clock(&stage.clock);
    for (number, operation) in story.operations.iter().enumerate() {
        stage.publish(number, operation).await;
    }
    let latest = story
        .operations
        .iter()
        .map(|operation| operation.deadline)
        .max();
    // A sweep every half minute after the last life began: the promise counts from whichever is later.
    let end = latest.unwrap_or_default().max(LIVES_END) + PROMISED_END;
    let sweeping = async {
        stage.sweep(story.sweeper.clone(), gone.clone()).await;
        stage.sweep(Vec::new(), gone.clone()).await;
    };
    let ending = async {
        // paused clock
        tokio::time::sleep(end).await;
        gone.cancel();
    };
    tokio::join!(run_workers(&stage, story.lives, &gone), sweeping, ending);
    check_invariants(&stage, &story.operations).await;
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

fn run_model(story: ModelRun) {
    on_paused_clock(play_run(story));
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
    fn every_operation_ends_once_when_its_workers_crash_or_pause(story in model_run_strategy()) {
        run_model(story);
    }
}

#[test]
fn a_crash_after_every_step_of_a_delivery_changes_nothing() {
    for step in 0..16 {
        for fault in [
            InjectedFault::CrashBefore,
            InjectedFault::CrashAfter,
            InjectedFault::LoseAnswer,
            InjectedFault::LoseRequest,
        ] {
            run_model(ModelRun {
                operations: vec![ModelOperation {
                    tool: "works",
                    deadline: Duration::from_secs(140),
                    again: true,
                }],
                lives: vec![vec![(step, fault)]],
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
                again: false,
            }],
            lives: vec![
                vec![(step, InjectedFault::Pause(Duration::from_secs(70)))],
                Vec::new(),
            ],
            sweeper: Vec::new(),
        });
    }
}
