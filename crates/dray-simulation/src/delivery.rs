//! The work of a delivery: its record, its right to the chat, and its visible request (modelled after
//! `dray-platform-delivery`, `deliver`).
//!
//! The states of the request, what follows a failure or a lost response, the rates and the lease are the product's. A
//! delivery has one visible request here. The requests for the order of deliveries in a chat are counted, not modelled.

mod send;

use std::rc::Rc;
use std::time::Duration;

use dray_delivery_rules::chat_lease::{
    CHAT_LEASE, LEASE_RETRY_DELAY, LeaseRecord, MAX_LEASE_WAIT, is_free,
};
use dray_delivery_rules::failure::{
    MAX_WRITE_ATTEMPTS, NotFoundAction, REPORT_MARGIN, SendMode, WRITE_RETRY_DELAY,
    decide_not_found,
};
use dray_delivery_rules::machine::{
    DeliveryStep, ReadyStep, ResumeAction, SendingStep, StepPlan, decide_resume,
};
use dray_delivery_rules::refusal::{FIRST_RETRY_DELAY, backoff_bound};
use dray_platform::Route;
use dray_types::{Deadline, Fault, FaultCode, whole_millis};

use crate::background::continue_later;
use crate::executor::micros;
use crate::handler::{HandlerContext, HandlerResult, STORE_WRITES};
use crate::options::BrokenRule;
use crate::platform_model::{PLATFORMS, PlatformModel};
use crate::simulation::{NoResponse, Simulation};
use crate::statistics::RequestKind;

/// How long a platform that can be queried is watched for the message (`dray-platform-slack`, `share_wait`), in
/// microseconds.
const RECONCILE_WATCH: u64 = 30_000_000;
/// Time between two queries to the platform, in microseconds.
const RECONCILE_POLL: u64 = 2_000_000;
/// Requests for the place of a delivery in its chat: to take, hold, check and release it.
const ORDER_REQUESTS: u64 = 7;

/// The part of a delivery's record that decisions depend on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SimulatedRecord {
    pub(crate) step: DeliveryStep,
    pub(crate) finished: bool,
    pub(crate) rounds: u32,
    pub(crate) due_at_ms: u64,
    pub(crate) deadline_ms: u64,
    /// Distinguishes two workers that would write the same.
    pub(crate) writer: u64,
}

/// The reason why a delivery does not continue here.
enum DeliveryError {
    Moved,
    Unreachable,
}

impl From<NoResponse> for DeliveryError {
    fn from(_: NoResponse) -> Self {
        Self::Unreachable
    }
}

/// The next action after a step.
enum StepFlow {
    Next,
    SameStep,
    Park(u64),
}

/// Runs one round of a delivery.
pub(crate) async fn deliver(context: &HandlerContext, platform: usize, chat: u32) -> HandlerResult {
    let Some(model) = PLATFORMS.get(platform) else {
        return HandlerResult::Failed(Fault::internal());
    };
    match deliver_round(context, model, chat).await {
        Ok(Some(true)) => HandlerResult::Failed(not_delivered()),
        Ok(_) => HandlerResult::Completed,
        // Another worker changed the record. The fault is retried, as every fault of a delivery.
        Err(DeliveryError::Moved) => {
            HandlerResult::Failed(Fault::internal().retry_after(Duration::from_secs(5)))
        }
        Err(DeliveryError::Unreachable) => HandlerResult::Failed(
            Fault::new(FaultCode::Unavailable, "later")
                .detail("bus_unavailable")
                .retry_after(Duration::from_secs(1)),
        ),
    }
}

fn not_delivered() -> Fault {
    Fault::new(FaultCode::Unavailable, "not delivered").detail("not_delivered")
}

/// Returns `Some(true)` if the delivery ended and no part of it can be visible, and `None` if it waits.
async fn deliver_round(
    context: &HandlerContext,
    model: &'static PlatformModel,
    chat: u32,
) -> Result<Option<bool>, DeliveryError> {
    let mut run = DeliveryRun::open(context, model, chat).await?;
    if run.record.finished {
        return Ok(Some(run.is_refused()));
    }
    let is_current_round = context.round == run.record.rounds;
    if !is_current_round || run.record.due_at_ms > context.now_ms() {
        return Ok(None);
    }
    context
        .simulation
        .count(RequestKind::ChatOrder, ORDER_REQUESTS);
    context.simulation.count(RequestKind::IndexRead, 2);
    let Some(lease) = run.take_lease().await? else {
        let due = context.now_ms() + whole_millis(LEASE_RETRY_DELAY);
        run.park(due).await?;
        return Ok(None);
    };
    let ended = run.run_to_end().await;
    run.release_lease(lease).await;
    ended
}

/// One round of a delivery.
struct DeliveryRun<'a> {
    context: &'a HandlerContext,
    model: &'static PlatformModel,
    chat: u32,
    record: SimulatedRecord,
    revision: u64,
    writer: u64,
    /// Whether this worker made the last visible request.
    is_own_request: bool,
}

impl<'a> DeliveryRun<'a> {
    async fn open(
        context: &'a HandlerContext,
        model: &'static PlatformModel,
        chat: u32,
    ) -> Result<Self, DeliveryError> {
        let simulation = &context.simulation;
        let id = context.hold.id;
        let found = simulation
            .request(
                context.replica,
                RequestKind::RecordRead,
                move |simulation| simulation.records.borrow().get(&id),
            )
            .await?;
        let writer = simulation.draw(1, u64::MAX);
        let plan = StepPlan::text(Route::Text, String::new());
        let mut run = Self {
            context,
            model,
            chat,
            record: SimulatedRecord {
                step: ReadyStep::new(plan, Vec::new()).into(),
                finished: false,
                rounds: 0,
                due_at_ms: 0,
                deadline_ms: context.deadline_ms,
                writer,
            },
            revision: 0,
            writer,
            is_own_request: false,
        };
        if let Some(found) = found {
            run.record = (*found.value).clone();
            run.revision = found.revision;
        } else {
            simulation.count(RequestKind::StoreWrite, STORE_WRITES);
            run.save().await?;
        }
        Ok(run)
    }

    fn is_refused(&self) -> bool {
        matches!(self.record.step, DeliveryStep::Failed(_))
    }

    /// Writes the record. No step that depends on the record may run before.
    async fn save(&mut self) -> Result<(), DeliveryError> {
        self.record.writer = self.writer;
        let value = Rc::new(self.record.clone());
        let (id, expected) = (self.context.hold.id, self.revision);
        // Every replica reads every change of a record into its index (`index`).
        let replicas = u64::from(self.simulation().options.replicas);
        self.simulation().count(RequestKind::IndexRead, replicas);
        let mut attempts = 0;
        loop {
            attempts += 1;
            let value = Rc::clone(&value);
            let stored = Rc::clone(&value);
            let written = self
                .simulation()
                .request(
                    self.context.replica,
                    RequestKind::RecordWrite,
                    move |simulation| simulation.records.borrow_mut().put(id, stored, expected),
                )
                .await;
            match written {
                Ok(Some(revision)) => {
                    self.revision = revision;
                    return Ok(());
                }
                // The first write may have been stored although its response was lost.
                Ok(None) if attempts > 1 => {
                    let found = self
                        .simulation()
                        .request(
                            self.context.replica,
                            RequestKind::RecordRead,
                            move |simulation| simulation.records.borrow().get(&id),
                        )
                        .await?;
                    let own = found.filter(|found| found.value == value);
                    self.revision = own.ok_or(DeliveryError::Moved)?.revision;
                    return Ok(());
                }
                Ok(None) => return Err(DeliveryError::Moved),
                Err(NoResponse) if attempts < MAX_WRITE_ATTEMPTS => {
                    self.simulation().sleep(micros(WRITE_RETRY_DELAY)).await;
                }
                Err(NoResponse) => return Err(DeliveryError::Unreachable),
            }
        }
    }

    /// Like [`Self::save`], for the response of a platform: retried while the bus cannot be reached, until the
    /// deadline.
    async fn save_firmly(&mut self) -> Result<(), DeliveryError> {
        let mut was_unreachable = false;
        loop {
            match self.save().await {
                Err(DeliveryError::Unreachable) => {
                    was_unreachable = true;
                    if !self.pause(FIRST_RETRY_DELAY).await {
                        return Err(DeliveryError::Unreachable);
                    }
                }
                Err(DeliveryError::Moved) if was_unreachable => {
                    let id = self.context.hold.id;
                    let found = self
                        .simulation()
                        .request(
                            self.context.replica,
                            RequestKind::RecordRead,
                            move |simulation| simulation.records.borrow().get(&id),
                        )
                        .await?;
                    let own = found.filter(|found| *found.value == self.record);
                    self.revision = own.ok_or(DeliveryError::Moved)?.revision;
                    return Ok(());
                }
                other => return other,
            }
        }
    }

    fn simulation(&self) -> &'a Rc<Simulation> {
        &self.context.simulation
    }

    fn is_broken(&self, rule: BrokenRule) -> bool {
        self.simulation().options.broken_rule == Some(rule)
    }

    /// Waits for the lease of the chat and returns its revision; `None` if another replica keeps it for too long.
    async fn take_lease(&self) -> Result<Option<u64>, DeliveryError> {
        let started = self.simulation().now();
        let holder = format!("replica {}", self.context.replica);
        let mut delay = 10_000;
        loop {
            let (chat, now_ms) = (self.chat, self.context.now_ms());
            let found = self
                .lease_request(move |simulation| simulation.leases.borrow().get(&chat))
                .await?;
            let expected = match &found {
                None => Some(0),
                Some(entry) if is_free(&entry.value, &holder, now_ms) => Some(entry.revision),
                Some(_) => None,
            };
            if let Some(expected) = expected {
                let value = Rc::new(LeaseRecord::lasting(&holder, now_ms, CHAT_LEASE).encode());
                let revision = self
                    .lease_request(move |simulation| {
                        simulation.leases.borrow_mut().put(chat, value, expected)
                    })
                    .await?;
                if revision.is_some() {
                    return Ok(revision);
                }
            }
            if self.simulation().now() - started >= micros(MAX_LEASE_WAIT) {
                return Ok(None);
            }
            self.simulation().sleep(delay).await;
            delay = (delay * 2).min(200_000);
        }
    }

    async fn release_lease(&self, revision: u64) {
        let chat = self.chat;
        let released = self
            .lease_request(move |simulation| {
                let mut leases = simulation.leases.borrow_mut();
                if leases
                    .get(&chat)
                    .is_some_and(|entry| entry.revision == revision)
                {
                    leases.remove(&chat);
                }
            })
            .await;
        if released.is_err() {
            self.context.note("the lease of the chat ends by itself", 0);
        }
    }

    async fn lease_request<T: 'static>(
        &self,
        apply: impl FnOnce(&Rc<Simulation>) -> T + 'static,
    ) -> Result<T, NoResponse> {
        self.simulation()
            .request(self.context.replica, RequestKind::ChatLease, apply)
            .await
    }

    /// Attempts the visible request until the delivery ends, or parks the delivery. The result is that of
    /// [`deliver_round`].
    async fn run_to_end(&mut self) -> Result<Option<bool>, DeliveryError> {
        if self.record.due_at_ms != 0 {
            self.record.due_at_ms = 0;
            self.save().await?;
        }
        loop {
            let flow = match self.record.step.clone() {
                DeliveryStep::Ready(step) => self.attempt(step).await?,
                DeliveryStep::Sending(step) => self.resolve(step).await?,
                DeliveryStep::Done(_) | DeliveryStep::Unknown(_) | DeliveryStep::Failed(_) => {
                    StepFlow::Next
                }
            };
            match flow {
                StepFlow::SameStep => {}
                StepFlow::Next => break,
                StepFlow::Park(due_ms) => {
                    self.park(due_ms).await?;
                    return Ok(None);
                }
            }
        }
        // This request is the audit line of the file.
        self.simulation().count(RequestKind::Publish, 1);
        self.record.finished = true;
        self.save().await?;
        self.context.note("the record is finished", 0);
        Ok(Some(self.is_refused()))
    }

    async fn park(&mut self, due_ms: u64) -> Result<(), DeliveryError> {
        self.record.due_at_ms = due_ms.max(1);
        self.record.rounds += 1;
        self.save().await?;
        self.context.note("parked until", self.record.due_at_ms);
        continue_later(self.simulation(), &self.context.hold, due_ms);
        Ok(())
    }

    fn limit(&self) -> Deadline {
        Deadline::from_unix_ms(self.record.deadline_ms.min(self.context.deadline_ms))
            .earlier(REPORT_MARGIN)
    }

    /// Waits for `delay`; returns `false` immediately if less time than that is left.
    async fn pause(&self, delay: Duration) -> bool {
        if delay >= self.limit().remaining(self.context.now_ms()) && !delay.is_zero() {
            return false;
        }
        self.simulation().sleep(micros(delay)).await;
        true
    }

    fn backoff(&self, attempts: u32) -> Duration {
        let bound = backoff_bound(FIRST_RETRY_DELAY, attempts);
        Duration::from_micros(self.simulation().draw(0, micros(bound)))
    }

    /// A response was lost, in this process or in an earlier one.
    async fn resolve(&mut self, mut step: SendingStep) -> Result<StepFlow, DeliveryError> {
        let uncounted = step.clone();
        step.count_lost();
        self.record.step = step.clone().into();
        let mut action = decide_resume(&step, self.model.protection, self.context.now_ms());
        if self.is_broken(BrokenRule::RepeatAmbiguousSend) && step.has_attempts_left() {
            action = ResumeAction::Send;
        }
        match action {
            ResumeAction::Send => {
                if let Some(flow) = self.wait_for_rate_limit().await {
                    return Ok(flow);
                }
                self.send(step.begin_again(), SendMode::Repeated).await
            }
            ResumeAction::GiveUp => self.leave_unknown(step).await,
            ResumeAction::Reconcile => {
                if self.query_platform().await {
                    self.context.note("the platform found the message", 0);
                    self.record.step = step.confirm(Vec::new()).into();
                    self.save_firmly().await?;
                    return Ok(StepFlow::Next);
                }
                self.not_found(step, uncounted).await
            }
        }
    }

    async fn not_found(
        &mut self,
        step: SendingStep,
        uncounted: SendingStep,
    ) -> Result<StepFlow, DeliveryError> {
        self.context.note("the platform did not find it", 0);
        match decide_not_found(&step, self.is_own_request, self.context.now_ms()) {
            NotFoundAction::SendAgain => {
                self.record.step = step.not_visible().into();
                self.save().await?;
                Ok(StepFlow::SameStep)
            }
            NotFoundAction::AskAt(due_ms) if due_ms < self.limit().unix_ms() => {
                self.record.step = uncounted.into();
                Ok(StepFlow::Park(due_ms))
            }
            NotFoundAction::AskAt(_) | NotFoundAction::LeaveUnknown => {
                self.leave_unknown(step).await
            }
        }
    }

    /// Whether the platform shows the message within [`RECONCILE_WATCH`].
    async fn query_platform(&self) -> bool {
        let until = self.simulation().now() + RECONCILE_WATCH;
        loop {
            let visible = self
                .simulation()
                .with_operation(self.context.hold.id, |operation| operation.visible);
            if visible.unwrap_or(0) > 0 {
                return true;
            }
            // The time is checked after the query, so that the last query happens at the end of the time.
            if self.simulation().now() >= until {
                return false;
            }
            self.simulation().sleep(RECONCILE_POLL).await;
        }
    }

    async fn leave_unknown(&mut self, step: SendingStep) -> Result<StepFlow, DeliveryError> {
        self.record.step = step.leave_unknown().into();
        self.save().await?;
        Ok(StepFlow::Next)
    }
}
