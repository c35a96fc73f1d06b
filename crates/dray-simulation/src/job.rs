//! One delivery of a message: claim, work, end, report, acknowledge (modelled after `dray-bus`, `work::process`,
//! `work::job` and `work::supervise`).
//!
//! Every decision is made by the product: what an entry allows, the next entry, what follows a failure or a lost lease.

mod entry;
mod supervise;

use std::rc::Rc;
use std::time::Duration;

use dray_bus::WorkSettings;
use dray_bus::rules::{
    self, ClaimRequest, DeliveryPlan, FailedAttempt, MAX_LEDGER_READS, NextStep, decide_claim,
    ended_record, is_last_panic, park_delay, plan_delivery, released_record, reported_record,
    work_delay,
};
use dray_proto::v1::{LedgerRecord, RecordedEvent, TerminalState};
use dray_types::{Deadline, Fault};
use rand::Rng as _;

use self::supervise::HandlerEnd;
use crate::background::sweep_later;
use crate::bus_model::{PulledWork, WorkAck};
use crate::executor::{VirtualTime, micros};
use crate::handler::HandlerResult;
use crate::operation::{OperationHold, OperationProblem};
use crate::options::BrokenRule;
use crate::simulation::{NO_REPLICA, NoResponse, Simulation, WorkKey};
use crate::statistics::RequestKind;

/// Longest time between two attempts of one write, in microseconds.
const MAX_WRITE_RETRY_DELAY: VirtualTime = 200_000;

/// The reason why a job cannot continue now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobError {
    /// Another worker changed the entry.
    Moved,
    /// The bus does not respond.
    Unreachable,
}

impl From<NoResponse> for JobError {
    fn from(_: NoResponse) -> Self {
        Self::Unreachable
    }
}

/// An entry as it was read or written last.
#[derive(Clone)]
pub(crate) struct KnownEntry {
    pub(crate) record: Rc<LedgerRecord>,
    revision: u64,
}

/// One delivery of a message.
pub(crate) struct SimulatedJob {
    pub(crate) simulation: Rc<Simulation>,
    pub(crate) replica: u32,
    pub(crate) work: PulledWork,
    pub(crate) entry: Option<KnownEntry>,
    pub(crate) deadline_ms: u64,
    owner: String,
    suffix: String,
}

/// Processes one delivery. It never fails: work that cannot be done now is redelivered.
pub(crate) async fn process_delivery(simulation: &Rc<Simulation>, replica: u32, work: PulledWork) {
    let id = work.hold.id;
    simulation.note(id, replica, "got the message, delivery", work.delivered);
    // The sweeper checks only work that was delivered again: a sweep for each message would double the events.
    if work.delivered == 2 {
        sweep_later(simulation, id, work.round);
    }
    let nonce: u64 = simulation.random.borrow_mut().random();
    let suffix = format!("/{nonce:016x}");
    let deadline_ms = simulation.with_operation(id, |operation| operation.deadline_ms);
    let mut job = SimulatedJob {
        simulation: Rc::clone(simulation),
        replica,
        entry: None,
        deadline_ms: deadline_ms.unwrap_or(0),
        // Two claims of one process differ by the suffix, as in `dray-bus`.
        owner: format!("r{replica}{suffix}"),
        suffix,
        work,
    };
    if let Err(error) = job.deliver().await {
        let delay = {
            let mut random = simulation.random.borrow_mut();
            park_delay(job.work.delivered, &mut *random)
        };
        simulation.note(id, replica, "left to redelivery", error as u64);
        job.acknowledge(WorkAck::Again(micros(delay))).await;
    }
}

impl SimulatedJob {
    /// A job of the sweeper. It acknowledges nothing.
    pub(crate) fn for_sweeper(
        simulation: &Rc<Simulation>,
        hold: Rc<OperationHold>,
        round: u32,
    ) -> Self {
        let deadline_ms = simulation.with_operation(hold.id, |operation| operation.deadline_ms);
        Self {
            simulation: Rc::clone(simulation),
            replica: NO_REPLICA,
            entry: None,
            deadline_ms: deadline_ms.unwrap_or(0),
            owner: String::new(),
            suffix: "/sweeper".to_owned(),
            work: PulledWork {
                message: 0,
                hold,
                round,
                delivered: 1,
            },
        }
    }

    fn key(&self) -> WorkKey {
        (self.work.hold.id, self.work.round)
    }

    pub(crate) fn note(&self, event: &'static str, value: u64) {
        self.simulation
            .note(self.work.hold.id, self.replica, event, value);
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.simulation.clock_ms(self.replica)
    }

    pub(crate) fn record(&self) -> LedgerRecord {
        self.entry
            .as_ref()
            .map(|entry| (*entry.record).clone())
            .unwrap_or_default()
    }

    async fn deliver(&mut self) -> Result<(), JobError> {
        for _ in 0..MAX_LEDGER_READS {
            self.entry = self.read().await?;
            match self.try_claim().await {
                // Another worker wrote between the read and the claim; the entry is read again.
                Err(JobError::Moved) => {}
                other => return other,
            }
        }
        Err(JobError::Moved)
    }

    async fn try_claim(&mut self) -> Result<(), JobError> {
        let settings = settings();
        let request = ClaimRequest {
            owner: &self.owner,
            now_ms: self.now_ms(),
            lease: settings.lease,
            attempts: settings.attempts,
            redrives: 0,
            grace: self.simulation.lease_grace(self.replica, settings.lease),
        };
        let is_expired = Deadline::from_unix_ms(self.deadline_ms).has_passed(request.now_ms);
        let found = self.entry.as_ref().map(|entry| &*entry.record);
        match plan_delivery(decide_claim(found, &request), is_expired) {
            DeliveryPlan::Work(record) => {
                let epoch = record.epoch;
                self.write(*record).await?;
                self.note("claimed, epoch", epoch);
                self.begin_epoch(epoch);
                self.do_work().await
            }
            DeliveryPlan::Wait(left) => {
                self.acknowledge(WorkAck::Again(micros(left))).await;
                Ok(())
            }
            DeliveryPlan::End(terminal) => {
                self.end(terminal, None).await?;
                self.report_and_finish().await
            }
            DeliveryPlan::DeadLetter => {
                self.dead_letter().await?;
                self.report_and_finish().await
            }
            DeliveryPlan::Report => self.report_and_finish().await,
            DeliveryPlan::Finish => {
                self.acknowledge(WorkAck::Final).await;
                Ok(())
            }
        }
    }

    /// Records that an epoch begins. Two workers of one epoch would have the same claim, which is a problem. An earlier
    /// epoch may begin after a later one, if its worker was paused between its claim and the response; its end is
    /// refused.
    fn begin_epoch(&self, epoch: u64) {
        let round = self.work.round;
        let now = self.simulation.now();
        let id = self.work.hold.id;
        let queued = self.simulation.with_operation(id, |operation| {
            let truth = operation.rounds.entry(round).or_default();
            let is_repeated = truth.epochs.contains(&epoch);
            truth.epochs.push(epoch);
            if is_repeated {
                operation.fail(OperationProblem::Duplicated);
            }
            let is_first = !std::mem::replace(&mut operation.is_started, true);
            is_first.then(|| now.saturating_sub(operation.published_at))
        });
        if let Some(queued) = queued.flatten() {
            self.simulation.queue_times.borrow_mut().record(queued);
        }
    }

    async fn do_work(&mut self) -> Result<(), JobError> {
        if self.simulation.options.broken_rule == Some(BrokenRule::AcknowledgeFirst) {
            self.acknowledge(WorkAck::Final).await;
        }
        let ended = match self.supervise().await {
            HandlerEnd::Finished(HandlerResult::Completed) => {
                self.end(TerminalState::Done, None).await.map(|()| true)
            }
            HandlerEnd::Finished(HandlerResult::Failed(fault)) => self.fail(&fault).await,
            HandlerEnd::Finished(HandlerResult::Panicked) => self.end_after_panic().await,
            HandlerEnd::Expired => self.end(TerminalState::Expired, None).await.map(|()| true),
            HandlerEnd::LeaseLost => Err(JobError::Moved),
        };
        match ended {
            Ok(true) => self.report_and_finish().await,
            Ok(false) => Ok(()),
            // Another worker has taken over: this one sends no message, not even an acknowledgement.
            Err(JobError::Moved) => {
                self.note("lost the lease", 0);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    async fn fail(&mut self, fault: &Fault) -> Result<bool, JobError> {
        let attempt = FailedAttempt {
            fault,
            attempts: self.record().attempts,
            max_attempts: settings().attempts,
            delivered: self.work.delivered,
            remaining: Deadline::from_unix_ms(self.deadline_ms).remaining(self.now_ms()),
        };
        let step = {
            let mut random = self.simulation.random.borrow_mut();
            attempt.next_step(&mut *random)
        };
        match step {
            NextStep::Release { delay, counted } => {
                self.release(fault, delay, counted).await?;
                Ok(false)
            }
            NextStep::DeadLetter => self.dead_letter().await.map(|()| true),
            NextStep::Fail => {
                self.end(TerminalState::Failed, Some(fault)).await?;
                Ok(true)
            }
        }
    }

    async fn end_after_panic(&mut self) -> Result<bool, JobError> {
        let record = self.record();
        if is_last_panic(&record, settings().attempts) {
            return self.dead_letter().await.map(|()| true);
        }
        let delay = {
            let mut random = self.simulation.random.borrow_mut();
            work_delay(record.attempts, &mut *random)
        };
        self.release(&Fault::internal().detail("panic"), delay, true)
            .await?;
        Ok(false)
    }

    async fn release(
        &mut self,
        fault: &Fault,
        delay: Duration,
        counted: bool,
    ) -> Result<(), JobError> {
        let released = released_record(&self.record(), Some(fault), self.now_ms(), counted);
        self.write(released).await?;
        self.note("gave it back, counted", u64::from(counted));
        self.acknowledge(WorkAck::Again(micros(delay))).await;
        Ok(())
    }

    /// Publishes the dead letter, then records this end.
    pub(crate) async fn dead_letter(&mut self) -> Result<(), JobError> {
        self.simulation
            .request(self.replica, RequestKind::Publish, |_| ())
            .await?;
        self.end(TerminalState::DeadLettered, Some(&Fault::internal()))
            .await
    }

    async fn end(
        &mut self,
        terminal: TerminalState,
        fault: Option<&Fault>,
    ) -> Result<(), JobError> {
        // The payload is the terminal state, so that the event that is published later is the recorded one.
        let event = RecordedEvent {
            payload: vec![u8::try_from(terminal as i32).unwrap_or(0)],
            ..RecordedEvent::default()
        };
        let record = ended_record(&self.record(), terminal, event, fault, self.now_ms());
        self.write(record).await?;
        self.note("recorded the end", terminal as u64);
        Ok(())
    }

    async fn report_and_finish(&mut self) -> Result<(), JobError> {
        self.report().await?;
        self.acknowledge(WorkAck::Final).await;
        Ok(())
    }

    /// Publishes the recorded event, and records that it was published.
    pub(crate) async fn report(&mut self) -> Result<(), JobError> {
        let record = self.record();
        if let Some(event) = &record.result {
            let terminal = event.payload.first().copied().unwrap_or(0);
            let terminal = TerminalState::try_from(i32::from(terminal)).unwrap_or_default();
            self.publish_event(terminal).await?;
        }
        match self.write(reported_record(&record)).await {
            // Another worker reports the same. The event has a fixed id, so readers count it once.
            Ok(()) | Err(JobError::Moved) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn publish_event(&self, terminal: TerminalState) -> Result<(), JobError> {
        let (id, round) = self.key();
        let hold = Rc::clone(&self.work.hold);
        let apply = move |simulation: &Rc<Simulation>| {
            simulation.note(hold.id, NO_REPLICA, "the event is stored", terminal as u64);
            simulation.with_operation(id, |operation| {
                let events = &mut operation.rounds.entry(round).or_default().events;
                // The id of an event has its kind, and readers count each id once.
                if !events.contains(&terminal) {
                    events.push(terminal);
                }
            });
        };
        self.simulation
            .request(self.replica, RequestKind::Publish, apply)
            .await?;
        Ok(())
    }

    pub(crate) async fn acknowledge(&self, ack: WorkAck) {
        let message = self.work.message;
        if message == 0 {
            // The sweeper has its own consumer.
            return;
        }
        let kind = match ack {
            WorkAck::Progress => RequestKind::Heartbeat,
            WorkAck::Final | WorkAck::Again(_) => RequestKind::Acknowledge,
        };
        let key = self.key();
        let hold = Rc::clone(&self.work.hold);
        let apply = move |simulation: &Rc<Simulation>| {
            if ack == WorkAck::Final {
                simulation.note(hold.id, NO_REPLICA, "the message is acknowledged", message);
                check_acknowledged(simulation, key);
            }
            let now = simulation.now();
            let dropped = simulation
                .stream
                .borrow_mut()
                .acknowledge(message, ack, now);
            drop(dropped);
        };
        // A lost acknowledgement is harmless: the redelivery finds the ledger entry.
        let sent = self.simulation.request(self.replica, kind, apply).await;
        if sent.is_err() {
            self.note("an acknowledgement had no response", 0);
        }
    }
}

/// Checks that a message with a final acknowledgement has an end in the ledger, because it is never delivered again.
fn check_acknowledged(simulation: &Simulation, key: WorkKey) {
    let has_end = simulation
        .ledger
        .borrow()
        .peek(&key)
        .is_some_and(|record| rules::is_terminal(record));
    if !has_end {
        simulation.fail(key.0, OperationProblem::Lost);
    }
}

/// The product's settings of a work loop, without the owner's random name.
pub(crate) fn settings() -> SettingsInUse {
    SettingsInUse::default()
}

/// The settings of [`WorkSettings`] that the model uses.
#[derive(Clone, Copy)]
pub(crate) struct SettingsInUse {
    pub(crate) lease: Duration,
    pub(crate) renew: Duration,
    pub(crate) outage: Duration,
    pub(crate) grace: Duration,
    pub(crate) attempts: u32,
}

impl Default for SettingsInUse {
    fn default() -> Self {
        thread_local! {
            // The settings are read once: the product's default draws a random owner each time.
            static SETTINGS: WorkSettings = WorkSettings::default();
        }
        SETTINGS.with(|settings| Self {
            lease: settings.lease,
            renew: settings.renew,
            outage: settings.outage,
            grace: settings.grace,
            attempts: settings.attempts,
        })
    }
}
