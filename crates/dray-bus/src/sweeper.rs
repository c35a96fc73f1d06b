//! The sweeper finds work that no worker will finish any more and ends it (messaging-reliability 9).
//!
//! Messages that ran out of deliveries stay in the stream unseen (F-8); the advisory about them may be lost (F-9). The
//! sweeper reads all work with its own durable consumer, acknowledges work that has ended, and dead-letters work that
//! has not ended a minute after its deadline.

use std::collections::BTreeSet;
use std::time::Duration;

use dray_proto::Work;
use dray_proto::v1::{self, TerminalState};
use dray_types::{Deadline, Fault, FaultCode, OperationId};
use tokio_util::sync::CancellationToken;

use crate::backend::{AckAction, PulledMessage, Puller};
use crate::bus_core::Bus;
use crate::dead::{LetterFilter, LetterState};
use crate::error::TransportError;
use crate::ledger::record;
use crate::topology::{
    ADVISORY_STREAM, DEAD_LETTER_STREAM, SWEEPER_ADVISORY, SWEEPER_WORK, WORK_STREAM,
};
use crate::work::job::{self, JobError, WorkJob};
use crate::work::{RecordedEvent, WorkEnvelope, poison};

/// Pause between two sweeps.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);
/// Time after the deadline at which unfinished work counts as stranded.
const STRANDED_AFTER: Duration = Duration::from_mins(1);
/// Longest time until a message is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// Messages of one pull.
const PULL_BATCH: usize = 64;
/// How long a pull waits for available messages.
const PULL_TIMEOUT: Duration = Duration::from_millis(200);
/// Advisories that are remembered.
const MAX_REMEMBERED_ADVISORIES: usize = 10_000;

type RejectionBuilder = fn(&[u8], &OperationId, &Fault) -> Option<RecordedEvent>;

/// Ends stranded work. One per deployment is enough; several do no harm.
#[derive(Debug)]
pub struct WorkSweeper {
    bus: Bus,
    rejections: Vec<KnownWork>,
    exhausted: BTreeSet<u64>,
    /// Every dead letter before this sequence has been dealt with.
    dealt_with: u64,
    service_version: String,
}

/// What one sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Messages that had ended and were let go.
    pub ended: u64,
    /// Messages whose recorded end was published now, because their worker had not.
    pub told: u64,
    /// Messages that were dead-lettered.
    pub buried: u64,
    /// Messages that may still be worked on.
    pub waiting: u64,
}

impl WorkSweeper {
    /// A sweeper for the contracts of this crate's version.
    pub fn new(bus: Bus) -> Self {
        Self {
            bus,
            rejections: Vec::new(),
            exhausted: BTreeSet::new(),
            dealt_with: 0,
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
            let swept = tokio::select! {
                // Dropping a sweep loses no message: unacknowledged messages are redelivered after `ack_wait`.
                () = stop.cancelled() => return,
                swept = self.sweep() => swept,
            };
            match swept {
                Ok(report) if report.buried + report.told > 0 => {
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

    /// One sweep over all messages that are available now.
    ///
    /// # Errors
    /// The bus cannot be read. What was not looked at is looked at by the next sweep.
    pub async fn sweep(&mut self) -> Result<SweepReport, TransportError> {
        // First, so that a message that ran out of deliveries is ended in this sweep and not in the next.
        self.read_advisories().await?;
        self.measure().await?;
        let backend = self.bus.inner.backend.clone();
        let mut puller = backend.puller(WORK_STREAM, SWEEPER_WORK).await?;
        let mut report = SweepReport::default();
        let mut oldest = 0;
        loop {
            let batch = fetch_batch(&mut puller).await?;
            if batch.is_empty() {
                break;
            }
            for pulled in batch {
                let waiting = report.waiting;
                self.look_at(&pulled, &mut report).await;
                // Only work that is not finished counts; ended messages stay in the stream for hours.
                if report.waiting > waiting {
                    let age = self.bus.now_ms().saturating_sub(pulled.message.time_ms);
                    oldest = oldest.max(age);
                }
            }
        }
        let metrics = &self.bus.inner.metrics;
        metrics
            .oldest_unfinished_seconds
            .record(Duration::from_millis(oldest).as_secs_f64(), &[]);
        metrics.stranded_total.add(report.buried + report.told, &[]);
        self.measure_dead_letters().await;
        Ok(report)
    }

    /// Measures the age of the oldest dead letter that waits for an operator. A failure costs one measurement only.
    async fn measure_dead_letters(&mut self) {
        let waiting = LetterFilter {
            states: vec![LetterState::Open, LetterState::Unknown],
            ..LetterFilter::default()
        };
        let letters = self.bus.dead_letters();
        // Read before the letters: a letter that arrives in between has a higher sequence and is not skipped.
        let last = match self.bus.inner.backend.stream(DEAD_LETTER_STREAM).await {
            Ok(stream) => stream.map_or(0, |stream| stream.last_sequence),
            Err(_) => 0,
        };
        match letters.find(&waiting, self.dealt_with, 1).await {
            Ok(found) => {
                let oldest = found.first();
                // Without this place each sweep would read every letter of two weeks and the ledger entry of each.
                let next = oldest.map_or(last + 1, |letter| letter.sequence);
                self.dealt_with = self.dealt_with.max(next);
                let age_ms = oldest.map_or(0, |letter| {
                    self.bus.now_ms().saturating_sub(letter.last_error_ms)
                });
                let gauge = &self.bus.inner.metrics.dead_oldest_seconds;
                gauge.record(Duration::from_millis(age_ms).as_secs_f64(), &[]);
            }
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the dead letters were not measured"
            ),
        }
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
                    // The oldest is the nearest to its deadline, by which it is found anyway.
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

    async fn look_at(&self, pulled: &PulledMessage, report: &mut SweepReport) {
        match self.judge(pulled).await {
            Ok(SweepVerdict::Ended) => {
                report.ended += 1;
                job::settle_delivery(pulled, AckAction::Done).await;
            }
            Ok(SweepVerdict::Told) => {
                report.told += 1;
                job::settle_delivery(pulled, AckAction::Done).await;
            }
            Ok(SweepVerdict::Buried) => {
                report.buried += 1;
                job::settle_delivery(pulled, AckAction::Done).await;
            }
            Ok(SweepVerdict::Waits(delay)) => {
                report.waiting += 1;
                // Checked periodically although the deadline is known, because an advisory or an outcome may arrive
                // earlier.
                job::retry_delivery_later(pulled, delay.min(LOOK_AGAIN)).await;
            }
            Err(error) => {
                report.waiting += 1;
                job::retry_stuck_delivery(pulled, &error).await;
            }
        }
    }

    async fn judge(&self, pulled: &PulledMessage) -> Result<SweepVerdict, JobError> {
        let Ok(envelope) = WorkEnvelope::read(&pulled.message) else {
            return self.judge_unreadable(pulled).await;
        };
        let mut job = WorkJob::new(&self.bus, &envelope);
        job.read().await?;
        let record = job.record();
        // The most frequent case first: most of the stream is work that has ended and been reported.
        if record::is_over(&record, envelope.redrives) {
            return Ok(SweepVerdict::Ended);
        }
        let now_ms = self.bus.now_ms();
        // A live lease is respected even after the deadline: its worker is about to write the end itself.
        let lease = record::lease_left(&record, now_ms);
        if !lease.is_zero() {
            return Ok(SweepVerdict::Waits(lease));
        }
        let patience = self.remaining_time(pulled, now_ms, &envelope);
        if !patience.is_zero() {
            return Ok(SweepVerdict::Waits(patience));
        }
        // Ended, and the worker died before the event was out (between steps 6 and 8).
        if record::is_terminal(&record) && envelope.redrives == record.redrives {
            job.report().await?;
            return Ok(SweepVerdict::Told);
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
        Ok(SweepVerdict::Buried)
    }

    /// Time left until a minute after the deadline; zero for a message that is not delivered to workers any more.
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

    /// A message without a usable envelope has no deadline; a worker has a minute to see it.
    async fn judge_unreadable(&self, pulled: &PulledMessage) -> Result<SweepVerdict, JobError> {
        let age = self.bus.now_ms().saturating_sub(pulled.message.time_ms);
        let left = STRANDED_AFTER.saturating_sub(Duration::from_millis(age));
        if !left.is_zero() {
            return Ok(SweepVerdict::Waits(left));
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
    Told,
    Buried,
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

async fn fetch_batch(puller: &mut Puller) -> Result<Vec<PulledMessage>, TransportError> {
    // The wait is 200 ms, so a stop does not need to cut it short.
    let never = CancellationToken::new();
    puller.fetch(PULL_BATCH, PULL_TIMEOUT, &never).await
}

/// The work message that an advisory says has run out of deliveries.
fn exhausted_sequence(advisory: &PulledMessage) -> Option<u64> {
    let body: serde_json::Value = serde_json::from_slice(&advisory.message.payload).ok()?;
    // The stream contains advisories about every stream of the account, and about terminated messages too.
    let is_ours = body.get("type")?.as_str()? == "io.nats.jetstream.advisory.v1.max_deliver"
        && body.get("stream")?.as_str()? == WORK_STREAM;
    is_ours.then(|| body.get("stream_seq")?.as_u64()).flatten()
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
