//! The sweeper finds work that no worker will finish, and ends it (messaging-reliability 9).
//!
//! Messages that ran out of deliveries stay in the stream unseen (F-8); the advisory about them may be lost (F-9). The
//! sweeper reads all work with its own durable consumer, acknowledges work that has ended, and dead-letters work that
//! has not ended a minute after its deadline.

mod plan;

use std::collections::BTreeSet;
use std::time::Duration;

use dray_proto::Work;
use dray_proto::v1::{self, TerminalState};
use dray_types::{Deadline, Fault, FaultCode, OperationId};
use tokio_util::sync::CancellationToken;

use crate::backend::{AckAction, PulledMessage, Puller};
use crate::bus_core::Bus;
use crate::dead::{DeadLetterSummary, LetterError, LetterFilter, LetterState};
use crate::error::TransportError;
use crate::topology::{
    ADVISORY_STREAM, DEAD_LETTER_STREAM, SWEEPER_ADVISORY, SWEEPER_WORK, WORK_STREAM,
};
use crate::work::job::{self, JobError, WorkJob};
use crate::work::{RecordedEvent, WorkEnvelope, poison};

pub use self::plan::{SweepPlan, plan_sweep};

/// Pause between two sweeps.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);
/// Time after the deadline at which unfinished work counts as stranded.
pub const STRANDED_AFTER: Duration = Duration::from_mins(1);
/// Time until a message is checked again if its deadline is not nearer.
const CHECK_DELAY: Duration = Duration::from_secs(30);
/// What each waiting message adds to that time, so that checks of many messages leave time for new ones.
const CHECK_DELAY_PER_MESSAGE: Duration = Duration::from_millis(10);
/// Messages of one pull.
const PULL_BATCH: usize = 64;
/// How long a pull waits for available messages.
const PULL_TIMEOUT: Duration = Duration::from_millis(200);
/// How long the ledger keeps an entry after its last change; the age of its bucket in the topology.
const LEDGER_RETENTION: Duration = Duration::from_hours(72);
/// Most advisories that are remembered, so that a repeated one ends no work twice.
const MAX_REMEMBERED_ADVISORIES: usize = 10_000;

type RejectionBuilder = fn(&[u8], &OperationId, &Fault) -> Option<RecordedEvent>;

/// Ends stranded work. One per deployment is enough; several do no harm.
#[derive(Debug)]
pub struct WorkSweeper {
    bus: Bus,
    rejections: Vec<KnownWork>,
    exhausted: BTreeSet<u64>,
    /// Sequence before which no dead letter waits for an operator.
    first_open_letter: u64,
    /// Sequence of a letter that this sweeper found waiting, so that it stays so when the ledger forgets its work.
    waiting_letter: Option<u64>,
    service_version: String,
}

/// The results of one sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Messages of work that had already ended, which were acknowledged.
    pub ended: u64,
    /// Messages whose recorded outcome was published by this sweep, because their worker had not published it.
    pub reported: u64,
    /// Messages that were dead-lettered.
    pub dead_lettered: u64,
    /// Messages that may still be worked on.
    pub waiting: u64,
}

impl WorkSweeper {
    /// A sweeper for the contracts of this crate's version.
    pub fn new(bus: Bus) -> Self {
        bus.inner.metrics.start_sweeper_at_zero();
        Self {
            bus,
            rejections: Vec::new(),
            exhausted: BTreeSet::new(),
            first_open_letter: 0,
            waiting_letter: None,
            service_version: env!("CARGO_PKG_VERSION").to_owned(),
        }
        // Every kind of work of the contracts. A kind that is missing here is still ended, with a general event.
        .knowing::<v1::ToolCallRequested>()
        .knowing::<v1::PlaceUpload>()
        .knowing::<v1::SendFileRequested>()
        .knowing::<v1::DeliverFiles>()
        .knowing::<v1::ReceiveMessage>()
    }

    /// Adds the rejection event of another kind of work. Work of an unknown kind is reported with
    /// `WorkDeadLettered`.
    #[must_use]
    pub fn knowing<W: Work>(mut self) -> Self {
        self.rejections.push(KnownWork {
            serves: W::serves,
            verb: W::VERB,
            reject: rejection_event::<W>,
        });
        self
    }

    /// Sweeps every 30 s until `stop`. Failures of the bus are logged and tried again with the next sweep.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            let outcome = tokio::select! {
                // Dropping a sweep loses no message: unacknowledged messages are redelivered after `ack_wait`.
                () = stop.cancelled() => return,
                outcome = self.sweep() => outcome,
            };
            match outcome {
                Ok(report) if report.dead_lettered + report.reported > 0 => {
                    tracing::error!(?report, "stranded work was found");
                }
                Ok(report) => tracing::debug!(?report, "swept"),
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "a sweep failed");
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(SWEEP_INTERVAL) => {}
            }
        }
    }

    /// One sweep over all messages that are available now, and over the dead letters. Its end is recorded in
    /// `dray_sweep_last_success_timestamp_seconds` or `dray_sweep_failures_total`.
    ///
    /// # Errors
    /// The bus cannot be read. The next sweep checks the remaining messages.
    pub async fn sweep(&mut self) -> Result<SweepReport, TransportError> {
        let swept = self.sweep_work().await;
        let is_complete = swept.is_ok() && self.measure_dead_letters().await;
        let metrics = &self.bus.inner.metrics;
        if is_complete {
            let now = Duration::from_millis(self.bus.now_ms());
            metrics
                .sweep_last_success_seconds
                .record(now.as_secs_f64(), &[]);
        } else {
            metrics.sweep_failures_total.add(1, &[]);
        }
        swept
    }

    async fn sweep_work(&mut self) -> Result<SweepReport, TransportError> {
        // The advisories are read first, so that a message that ran out of deliveries is ended in this sweep and not in
        // the next.
        self.read_advisories().await?;
        self.measure().await?;
        let backend = self.bus.inner.backend.clone();
        let mut puller = backend.puller(WORK_STREAM, SWEEPER_WORK).await?;
        let mut report = SweepReport::default();
        let mut oldest = 0;
        let start_ms = self.bus.now_ms();
        loop {
            let batch = fetch_batch(&mut puller).await?;
            // Later messages belong to the next sweep: otherwise none would end while work is published without a pause,
            // and nothing would be measured. Earlier messages come first, those that waited in another sweep included.
            let is_last = batch.iter().all(|pulled| pulled.message.time_ms > start_ms);
            for pulled in batch {
                let waiting = report.waiting;
                self.handle_message(&pulled, &mut report).await;
                // Only work that is not finished counts; ended messages stay in the stream for hours.
                if report.waiting > waiting {
                    let age = self.bus.now_ms().saturating_sub(pulled.message.time_ms);
                    oldest = oldest.max(age);
                }
            }
            if is_last {
                break;
            }
        }
        let gauge = &self.bus.inner.metrics.oldest_unfinished_seconds;
        gauge.record(Duration::from_millis(oldest).as_secs_f64(), &[]);
        Ok(report)
    }

    /// Measures the age of the oldest dead letter that waits for an operator, and returns whether it succeeded. A failure
    /// costs one measurement only.
    async fn measure_dead_letters(&mut self) -> bool {
        // The sequence is read before the letters: a letter that arrives in between has a higher sequence and is not
        // skipped.
        let last = match self.bus.inner.backend.stream(DEAD_LETTER_STREAM).await {
            Ok(stream) => stream.map_or(0, |stream| stream.last_sequence),
            Err(_) => 0,
        };
        match self.find_waiting_letter().await {
            Ok(oldest) => {
                let oldest = oldest.as_ref();
                self.waiting_letter = oldest.map(|letter| letter.sequence);
                // Without this position each sweep would read every letter of two weeks and the ledger entry of each.
                let next = oldest.map_or(last + 1, |letter| letter.sequence);
                self.first_open_letter = self.first_open_letter.max(next);
                let age_ms = oldest.map_or(0, |letter| {
                    self.bus.now_ms().saturating_sub(letter.last_error_ms)
                });
                let gauge = &self.bus.inner.metrics.dead_oldest_seconds;
                gauge.record(Duration::from_millis(age_ms).as_secs_f64(), &[]);
                true
            }
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the dead letters were not measured"
                );
                false
            }
        }
    }

    /// The oldest dead letter that waits for an operator.
    async fn find_waiting_letter(&self) -> Result<Option<DeadLetterSummary>, LetterError> {
        let filter = LetterFilter {
            states: vec![LetterState::Open, LetterState::Unknown],
            ..LetterFilter::default()
        };
        let letters = self.bus.dead_letters();
        let mut from = self.first_open_letter;
        loop {
            let found = letters.find(&filter, from, 1).await?;
            let Some(letter) = found.into_iter().next() else {
                return Ok(None);
            };
            if !self.may_be_resolved(&letter) {
                return Ok(Some(letter));
            }
            from = letter.sequence + 1;
        }
    }

    /// Whether the work of a letter may have been done: the ledger has forgotten it since. Letters that this sweeper
    /// saw waiting are still open, and those about messages that were never work have no entry from the beginning.
    fn may_be_resolved(&self, letter: &DeadLetterSummary) -> bool {
        let age_ms = self.bus.now_ms().saturating_sub(letter.last_error_ms);
        letter.state == LetterState::Unknown
            && !letter.operation.is_empty()
            && Duration::from_millis(age_ms) >= LEDGER_RETENTION
            && self.waiting_letter != Some(letter.sequence)
    }

    /// Remembers which messages ran out of deliveries. Only a hint: without it they are found by their deadline.
    async fn read_advisories(&mut self) -> Result<(), TransportError> {
        let backend = self.bus.inner.backend.clone();
        let mut puller = backend.puller(ADVISORY_STREAM, SWEEPER_ADVISORY).await?;
        loop {
            let batch = fetch_batch(&mut puller).await?;
            if batch.is_empty() {
                return Ok(());
            }
            for pulled in batch {
                if let Some(sequence) = exhausted_sequence(&pulled) {
                    self.exhausted.insert(sequence);
                }
                if self.exhausted.len() > MAX_REMEMBERED_ADVISORIES {
                    // The oldest message is nearest to its deadline, after which the sweeper finds it without a hint.
                    self.exhausted.pop_first();
                }
                job::settle_delivery(&pulled, AckAction::Done).await;
            }
        }
    }

    /// Measures the backlog of its own durable consumer and forgets advisories about work that has ended.
    async fn measure(&mut self) -> Result<(), TransportError> {
        let backend = &self.bus.inner.backend;
        if let Some(state) = backend.consumer(WORK_STREAM, SWEEPER_WORK).await? {
            self.bus
                .inner
                .metrics
                .backlog(SWEEPER_WORK, state.pending, state.ack_pending);
            // Everything up to the floor has been ended and acknowledged by this sweeper.
            self.exhausted = self.exhausted.split_off(&(state.ack_floor + 1));
        }
        Ok(())
    }

    async fn handle_message(&self, pulled: &PulledMessage, report: &mut SweepReport) {
        match self.decide(pulled).await {
            Ok(SweepVerdict::Ended) => {
                report.ended += 1;
                job::settle_delivery(pulled, AckAction::Done).await;
            }
            Ok(SweepVerdict::Reported) => {
                report.reported += 1;
                // Counted here and not at the end, which a failed sweep does not reach.
                self.bus.inner.metrics.stranded_total.add(1, &[]);
                job::settle_delivery(pulled, AckAction::Done).await;
            }
            Ok(SweepVerdict::DeadLettered) => {
                report.dead_lettered += 1;
                self.bus.inner.metrics.stranded_total.add(1, &[]);
                job::settle_delivery(pulled, AckAction::Done).await;
            }
            Ok(SweepVerdict::Waits(delay)) => {
                report.waiting += 1;
                // The next check comes periodically although the deadline is known, because an advisory or an outcome
                // may arrive earlier.
                job::retry_delivery_later(pulled, delay.min(check_delay(report.waiting))).await;
            }
            Err(error) => {
                report.waiting += 1;
                job::retry_stuck_delivery(pulled, &error).await;
            }
        }
    }

    async fn decide(&self, pulled: &PulledMessage) -> Result<SweepVerdict, JobError> {
        let Ok(envelope) = WorkEnvelope::read(&pulled.message) else {
            return self.decide_unreadable(pulled).await;
        };
        let mut job = WorkJob::new(&self.bus, &envelope);
        job.read().await?;
        let record = job.record();
        let now_ms = self.bus.now_ms();
        let time_left = self.remaining_time(pulled, now_ms, &envelope);
        match plan_sweep(&record, envelope.redrives, now_ms, time_left) {
            SweepPlan::Forget => return Ok(SweepVerdict::Ended),
            SweepPlan::Wait(delay) => return Ok(SweepVerdict::Waits(delay)),
            SweepPlan::Report => {
                job.report().await?;
                return Ok(SweepVerdict::Reported);
            }
            SweepPlan::DeadLetter => {}
        }
        let fault = stranded_fault(&record);
        let event = self.rejection(pulled, &envelope, &fault);
        job.dead_letter(
            &pulled.message,
            pulled.delivered,
            event,
            &fault,
            &self.service_version,
        )
        .await?;
        job.report().await?;
        Ok(SweepVerdict::DeadLettered)
    }

    /// Time left until a minute after the deadline; zero for a message that is no longer delivered to workers.
    fn remaining_time(
        &self,
        pulled: &PulledMessage,
        now_ms: u64,
        envelope: &WorkEnvelope,
    ) -> Duration {
        if self.exhausted.contains(&pulled.message.sequence) {
            return Duration::ZERO;
        }
        let deadline = envelope.meta.deadline.unix_ms();
        Deadline::after(deadline, STRANDED_AFTER).remaining(now_ms)
    }

    /// Decides about a message without a usable envelope. It has no deadline, so a worker has a minute to handle it.
    async fn decide_unreadable(&self, pulled: &PulledMessage) -> Result<SweepVerdict, JobError> {
        let age = self.bus.now_ms().saturating_sub(pulled.message.time_ms);
        let remaining = STRANDED_AFTER.saturating_sub(Duration::from_millis(age));
        if !remaining.is_zero() {
            return Ok(SweepVerdict::Waits(remaining));
        }
        let fault = Fault::new(FaultCode::InvalidArgument, "The message cannot be read.")
            .detail("invalid_envelope");
        poison::dead_letter_poison(&self.bus, pulled, None, &fault, &self.service_version).await?;
        Ok(SweepVerdict::Ended)
    }

    fn rejection(
        &self,
        pulled: &PulledMessage,
        envelope: &WorkEnvelope,
        fault: &Fault,
    ) -> v1::RecordedEvent {
        self.rejections
            .iter()
            .find(|known| (known.serves)(&envelope.area) && known.verb == envelope.verb)
            .and_then(|known| {
                (known.reject)(&pulled.message.payload, &envelope.meta.operation, fault)
            })
            .map_or_else(
                || poison::unreadable_event(&pulled.message, Some(envelope), fault),
                |event| event.addressed(&envelope.meta, envelope.redrives),
            )
    }
}

/// A kind of work whose rejection event is known.
#[derive(Debug)]
struct KnownWork {
    serves: fn(&str) -> bool,
    verb: &'static str,
    reject: RejectionBuilder,
}

enum SweepVerdict {
    Ended,
    Reported,
    DeadLettered,
    Waits(Duration),
}

fn rejection_event<W: Work>(
    payload: &[u8],
    operation: &OperationId,
    fault: &Fault,
) -> Option<RecordedEvent> {
    let work = W::decode(payload).ok()?;
    let event = work.rejected(operation, TerminalState::DeadLettered, fault);
    Some(RecordedEvent::new(&event))
}

/// Time until a message is checked again when `waiting` messages of the same sweep wait.
fn check_delay(waiting: u64) -> Duration {
    let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
    CHECK_DELAY.max(CHECK_DELAY_PER_MESSAGE.saturating_mul(waiting))
}

async fn fetch_batch(puller: &mut Puller) -> Result<Vec<PulledMessage>, TransportError> {
    // The wait is 200 ms, so a stop does not need to cut it short.
    let never = CancellationToken::new();
    puller.fetch(PULL_BATCH, PULL_TIMEOUT, &never).await
}

/// The work message that an advisory says has run out of deliveries.
fn exhausted_sequence(advisory: &PulledMessage) -> Option<u64> {
    let body: serde_json::Value = serde_json::from_slice(&advisory.message.payload).ok()?;
    // The stream contains advisories about every stream of the account, and about terminated messages too.
    let is_about_work = body.get("type")?.as_str()? == "io.nats.jetstream.advisory.v1.max_deliver"
        && body.get("stream")?.as_str()? == WORK_STREAM;
    is_about_work
        .then(|| body.get("stream_seq")?.as_u64())
        .flatten()
}

fn stranded_fault(record: &v1::LedgerRecord) -> Fault {
    record.last_error.clone().map_or_else(
        || {
            Fault::new(
                FaultCode::Timeout,
                "The operation was not finished in time.",
            )
            .detail("stranded")
            .advice("Try again, with more time if possible.")
        },
        Fault::from,
    )
}
