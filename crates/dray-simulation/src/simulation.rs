//! The state of a run, its event loop, and a request from a replica to the bus.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use dray_bus::rules;
use dray_delivery_rules::buckets::RateBuckets;
use dray_proto::v1::LedgerRecord;
use futures_util::future::{Either, select};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::bus_model::{KeyBucket, WorkStream};
use crate::delivery::SimulatedRecord;
use crate::executor::{TaskId, TimedEvent, VirtualExecutor, VirtualTime, micros};
use crate::operation::{
    FailedOperation, OperationId, OperationKind, OperationProblem, ReportedState,
    SimulatedOperation, check_operation, describe_trace,
};
use crate::options::SimulationOptions;
use crate::platform_model::PLATFORMS;
use crate::report::ProblemCounts;
use crate::statistics::{DurationHistogram, RequestKind};

/// Start of a run, in Unix milliseconds.
pub(crate) const START_MS: u64 = 1_700_000_000_000;
/// Owner of tasks that no fault of a replica affects.
pub(crate) const NO_REPLICA: u32 = u32::MAX;
/// Longest wait for a response of the bus (messaging-reliability A-15), in microseconds.
const BUS_TIMEOUT: VirtualTime = 5_000_000;
/// Time after the last publication until which every operation must have ended, in microseconds: twice the longest
/// deadline.
const MAX_END_DELAY: VirtualTime = 2_000_000_000;
/// Latest arrival of a delayed request, in microseconds after its timeout (messaging-reliability A-6).
const MAX_ARRIVAL_DELAY: VirtualTime = 20_000_000;

/// The ledger key of one round of work.
pub(crate) type WorkKey = (OperationId, u32);

/// A callback at a time.
pub(crate) type SimulationCall = Box<dyn FnOnce(&Rc<Simulation>)>;

/// A request without a response: it may have been carried out or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoResponse;

/// The state of one worker process.
#[derive(Default)]
pub(crate) struct ReplicaState {
    pub(crate) skew_ms: i64,
    /// Requests do not reach the bus until then.
    pub(crate) requests_lost_until: VirtualTime,
    /// Responses do not reach the replica until then.
    pub(crate) responses_lost_until: VirtualTime,
    /// The process is paused until then.
    pub(crate) paused_until: VirtualTime,
    /// Whether the client knows that its connection is lost.
    pub(crate) is_lost: bool,
    pub(crate) restored_at: Option<VirtualTime>,
    /// Running deliveries of each queue.
    pub(crate) running: Vec<usize>,
    /// Pull loops that wait for a slot.
    pub(crate) slot_waiters: Vec<Option<TaskId>>,
    pub(crate) buckets: RateBuckets,
    pub(crate) is_dead: bool,
}

/// The whole state of a run, shared by its tasks.
pub(crate) struct Simulation {
    pub(crate) options: SimulationOptions,
    pub(crate) executor: VirtualExecutor<SimulationCall>,
    pub(crate) random: RefCell<SmallRng>,
    pub(crate) stream: RefCell<WorkStream>,
    pub(crate) ledger: RefCell<KeyBucket<WorkKey, Rc<LedgerRecord>>>,
    pub(crate) records: RefCell<KeyBucket<OperationId, Rc<SimulatedRecord>>>,
    pub(crate) leases: RefCell<KeyBucket<u32, Rc<Vec<u8>>>>,
    pub(crate) replicas: RefCell<Vec<ReplicaState>>,
    pub(crate) operations: RefCell<HashMap<OperationId, SimulatedOperation>>,
    /// Operations that can make no further progress.
    pub(crate) idle: RefCell<Vec<OperationId>>,
    /// Messages that were handed to waiting pulls, by the number of the pull.
    pub(crate) served: RefCell<HashMap<u64, crate::bus_model::PulledWork>>,
    pub(crate) published: Cell<u64>,
    pub(crate) settled: Cell<u64>,
    pub(crate) counts: RefCell<[u64; RequestKind::ALL.len()]>,
    pub(crate) queue_times: RefCell<DurationHistogram>,
    pub(crate) end_times: RefCell<DurationHistogram>,
    pub(crate) problems: RefCell<ProblemCounts>,
    pub(crate) faults: RefCell<std::collections::BTreeMap<&'static str, u64>>,
    pub(crate) ends: RefCell<std::collections::BTreeMap<&'static str, u64>>,
    pub(crate) last_end: Cell<VirtualTime>,
    pub(crate) max_live: Cell<usize>,
}

impl Simulation {
    pub(crate) fn new(options: SimulationOptions) -> Rc<Self> {
        let broken_rule = options.broken_rule;
        let mut random = SmallRng::seed_from_u64(options.seed);
        let skew = i64::try_from(options.faults.clock_skew.as_millis()).unwrap_or(0);
        let replicas = (0..options.replicas).map(|_| ReplicaState {
            skew_ms: random.random_range(-skew..=skew),
            running: vec![0; queue_count()],
            slot_waiters: vec![None; queue_count()],
            ..ReplicaState::default()
        });
        let replicas = RefCell::new(replicas.collect());
        Rc::new(Self {
            executor: VirtualExecutor::new(),
            random: RefCell::new(random),
            stream: RefCell::new(WorkStream::new(queue_count())),
            ledger: RefCell::new(KeyBucket::new(broken_rule)),
            records: RefCell::new(KeyBucket::new(broken_rule)),
            leases: RefCell::new(KeyBucket::new(None)),
            replicas,
            operations: RefCell::default(),
            idle: RefCell::default(),
            served: RefCell::default(),
            published: Cell::new(0),
            settled: Cell::new(0),
            counts: RefCell::new([0; RequestKind::ALL.len()]),
            queue_times: RefCell::new(DurationHistogram::new()),
            end_times: RefCell::new(DurationHistogram::new()),
            problems: RefCell::default(),
            faults: RefCell::default(),
            ends: RefCell::default(),
            last_end: Cell::new(0),
            max_live: Cell::new(0),
            options,
        })
    }

    /// Runs until every operation has ended.
    pub(crate) fn run(self: &Rc<Self>) {
        let mut limit = VirtualTime::MAX;
        while self.settled.get() < self.options.operations {
            let Some(event) = self.executor.next_event() else {
                break;
            };
            if self.published.get() == self.options.operations && limit == VirtualTime::MAX {
                limit = self.now() + MAX_END_DELAY;
            }
            // A run that cannot end must still report what it found.
            if self.now() > limit {
                break;
            }
            match event {
                TimedEvent::Wake(task) => self.wake(task),
                TimedEvent::Call(call) => call(self),
            }
            self.settle();
        }
        self.fail_unsettled();
    }

    /// Reports operations that have no end long after their deadline as lost.
    fn fail_unsettled(&self) {
        for (id, operation) in self.operations.borrow().iter() {
            self.problems
                .borrow_mut()
                .add(OperationProblem::Lost, || FailedOperation {
                    problem: OperationProblem::Lost,
                    operation: *id,
                    trace: describe_trace(operation),
                });
        }
    }

    fn wake(&self, task: TaskId) {
        let Some(owner) = self.executor.owner(task) else {
            return;
        };
        let paused_until = self
            .replicas
            .borrow()
            .get(owner as usize)
            .map_or(0, |replica| replica.paused_until);
        // A paused process handles its events when it continues, in the same order.
        if paused_until > self.executor.now() {
            self.executor.schedule(paused_until, TimedEvent::Wake(task));
        } else {
            self.executor.poll(task);
        }
    }

    /// Checks and removes operations that can make no further progress.
    fn settle(self: &Rc<Self>) {
        loop {
            let Some(id) = self.idle.borrow_mut().pop() else {
                return;
            };
            let is_idle = {
                let operations = self.operations.borrow();
                operations.get(&id).is_some_and(SimulatedOperation::is_idle)
            };
            // Work without an end is handled by the sweeper and the reconciler, as in the product.
            if is_idle && !crate::background::start_recovery(self, id) {
                self.finish_operation(id);
            }
        }
    }

    fn finish_operation(&self, id: OperationId) {
        let Some(operation) = self.operations.borrow_mut().remove(&id) else {
            return;
        };
        let mut rounds = Vec::new();
        for round in operation.rounds.keys() {
            if let Some(entry) = self.ledger.borrow_mut().remove(&(id, *round)) {
                rounds.push((*round, entry.state(), entry.terminal()));
            }
        }
        let record = self.records.borrow_mut().remove(&id);
        let delivery = record
            .as_ref()
            .map(|record| (&record.step, record.finished));
        self.count_end(&operation, &rounds, record.as_deref());
        let problems = check_operation(&operation, &ReportedState { rounds, delivery });
        for problem in problems {
            self.problems.borrow_mut().add(problem, || FailedOperation {
                problem,
                operation: id,
                trace: describe_trace(&operation),
            });
        }
        let elapsed = self.now().saturating_sub(operation.published_at);
        self.end_times.borrow_mut().record(elapsed);
        self.settled.set(self.settled.get() + 1);
        self.last_end.set(self.now());
    }

    fn count_end(
        &self,
        operation: &SimulatedOperation,
        rounds: &[(
            u32,
            dray_proto::v1::LedgerState,
            dray_proto::v1::TerminalState,
        )],
        record: Option<&SimulatedRecord>,
    ) {
        use dray_delivery_rules::machine::DeliveryStep;
        use dray_proto::v1::TerminalState;
        let name = match (operation.kind, record) {
            (OperationKind::Delivery(_), Some(record)) => match record.step {
                DeliveryStep::Done(_) => "delivery delivered",
                DeliveryStep::Unknown(_) => "delivery unknown",
                _ => "delivery failed",
            },
            (OperationKind::Delivery(_), None) => "delivery failed",
            (OperationKind::ToolCall, _) => match rounds.first().map(|(_, _, end)| *end) {
                Some(TerminalState::Done) => "tool call done",
                Some(TerminalState::Failed) => "tool call failed",
                Some(TerminalState::Expired) => "tool call expired",
                Some(TerminalState::DeadLettered) => "tool call dead-lettered",
                _ => "tool call without an end",
            },
        };
        *self.ends.borrow_mut().entry(name).or_default() += 1;
    }

    pub(crate) fn now(&self) -> VirtualTime {
        self.executor.now()
    }

    /// The true time, in Unix milliseconds.
    pub(crate) fn true_ms(&self) -> u64 {
        START_MS + self.now() / 1_000
    }

    /// Unix milliseconds by the clock of a replica.
    pub(crate) fn clock_ms(&self, replica: u32) -> u64 {
        let skew = self.with_replica(replica, |state| state.skew_ms);
        self.true_ms().saturating_add_signed(skew.unwrap_or(0))
    }

    pub(crate) fn with_replica<T>(
        &self,
        replica: u32,
        read: impl FnOnce(&mut ReplicaState) -> T,
    ) -> Option<T> {
        self.replicas
            .borrow_mut()
            .get_mut(replica as usize)
            .map(read)
    }

    pub(crate) fn count(&self, kind: RequestKind, by: u64) {
        if let Some(count) = self.counts.borrow_mut().get_mut(kind as usize) {
            *count += by;
        }
    }

    pub(crate) fn count_fault(&self, name: &'static str) {
        *self.faults.borrow_mut().entry(name).or_default() += 1;
    }

    pub(crate) fn chance(&self, probability: f64) -> bool {
        probability > 0.0 && self.random.borrow_mut().random_bool(probability.min(1.0))
    }

    pub(crate) fn draw(&self, from: VirtualTime, to: VirtualTime) -> VirtualTime {
        self.random
            .borrow_mut()
            .random_range(from..to.max(from + 1))
    }

    /// An exponentially distributed time with this mean.
    pub(crate) fn draw_exponential(&self, mean: Duration) -> VirtualTime {
        let uniform: f64 = self.random.borrow_mut().random_range(f64::EPSILON..1.0);
        micros(mean.mul_f64(-uniform.ln()))
    }

    pub(crate) async fn sleep(&self, duration: VirtualTime) {
        self.executor.sleep_until(self.now() + duration).await;
    }

    /// The result of a future, or `None` after a time.
    pub(crate) async fn timeout<T>(
        &self,
        limit: VirtualTime,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let future = std::pin::pin!(future);
        let sleep = std::pin::pin!(self.sleep(limit));
        match select(future, sleep).await {
            Either::Left((result, _)) => Some(result),
            Either::Right(_) => None,
        }
    }

    pub(crate) fn call_at(&self, at: VirtualTime, call: SimulationCall) {
        self.executor.schedule(at, TimedEvent::Call(call));
    }

    pub(crate) fn spawn(&self, owner: u32, future: impl Future<Output = ()> + 'static) -> TaskId {
        self.executor.spawn(owner, Box::pin(future))
    }

    pub(crate) fn note(&self, id: OperationId, replica: u32, event: &'static str, value: u64) {
        let replica = (replica != NO_REPLICA).then_some(replica);
        if let Some(operation) = self.operations.borrow_mut().get_mut(&id) {
            operation.note(self.now(), replica, event, value);
        }
    }

    pub(crate) fn with_operation<T>(
        &self,
        id: OperationId,
        change: impl FnOnce(&mut SimulatedOperation) -> T,
    ) -> Option<T> {
        self.operations.borrow_mut().get_mut(&id).map(change)
    }

    pub(crate) fn fail(&self, id: OperationId, problem: OperationProblem) {
        self.with_operation(id, |operation| operation.fail(problem));
    }

    /// How long expired leases are respected after a lost connection.
    pub(crate) fn lease_grace(&self, replica: u32, lease: Duration) -> Duration {
        let now = self.now();
        let state = self.with_replica(replica, |state| {
            let restored = state.restored_at;
            let since = restored.map(|time| Duration::from_micros(now.saturating_sub(time)));
            (state.is_lost, since)
        });
        let (is_lost, since) = state.unwrap_or_default();
        rules::lease_grace(is_lost, since, lease)
    }

    fn are_requests_lost(&self, replica: u32) -> bool {
        let now = self.now();
        self.with_replica(replica, |state| state.requests_lost_until > now)
            .unwrap_or(false)
    }

    fn are_responses_lost(&self, replica: u32) -> bool {
        let now = self.now();
        self.with_replica(replica, |state| state.responses_lost_until > now)
            .unwrap_or(false)
    }

    /// A request of a replica to the bus. Without a response, it may have been carried out, or may still be.
    pub(crate) async fn request<T: 'static>(
        self: &Rc<Self>,
        replica: u32,
        kind: RequestKind,
        apply: impl FnOnce(&Rc<Self>) -> T + 'static,
    ) -> Result<T, NoResponse> {
        self.count(kind, 1);
        let started = self.now();
        let request_latency = self.draw(200, 1_500);
        let lost = self.options.faults.lost_request;
        if self.chance(lost) {
            if self.chance(0.5) {
                // The request is delayed past its timeout, and carried out then.
                let at = started + BUS_TIMEOUT + self.draw(0, MAX_ARRIVAL_DELAY);
                self.call_at(at, Box::new(move |simulation| drop(apply(simulation))));
            }
            self.sleep(BUS_TIMEOUT).await;
            return Err(NoResponse);
        }
        let mut in_flight = RequestInFlight {
            simulation: self,
            arrives_at: started + request_latency,
            apply: Some(apply),
        };
        self.sleep(request_latency).await;
        // The loss is checked on arrival: a partition may have begun after the request was sent.
        if self.are_requests_lost(replica) {
            in_flight.apply = None;
            self.sleep(BUS_TIMEOUT - request_latency).await;
            return Err(NoResponse);
        }
        let applied = in_flight.apply.take().map(|apply| apply(self));
        self.sleep(self.draw(200, 1_500)).await;
        let is_lost = self.are_responses_lost(replica) || self.chance(lost);
        match applied {
            Some(applied) if !is_lost => Ok(applied),
            _ => {
                self.sleep(BUS_TIMEOUT).await;
                Err(NoResponse)
            }
        }
    }
}

/// A request that was sent and did not arrive yet. It may still arrive after its process is killed.
struct RequestInFlight<'a, T: 'static, F: FnOnce(&Rc<Simulation>) -> T + 'static> {
    simulation: &'a Rc<Simulation>,
    arrives_at: VirtualTime,
    apply: Option<F>,
}

impl<T, F: FnOnce(&Rc<Simulation>) -> T + 'static> Drop for RequestInFlight<'_, T, F> {
    fn drop(&mut self) {
        if let Some(apply) = self.apply.take()
            && self.simulation.chance(0.5)
        {
            self.simulation.call_at(
                self.arrives_at,
                Box::new(move |simulation| drop(apply(simulation))),
            );
        }
    }
}

/// Queues of work: tool calls, and one for each platform.
pub(crate) const fn queue_count() -> usize {
    1 + PLATFORMS.len()
}
