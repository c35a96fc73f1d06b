//! One delivery of one kind of work, from the parsed envelope to the acknowledgement (messaging-reliability 6.2).

use std::sync::Arc;
use std::time::Duration;

use dray_proto::Work;
use dray_proto::v1::{self, TerminalState};
use dray_types::{Fault, FaultCode};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::delivery::{RecordedEvent, WorkCompleted, WorkDelivery, WorkFailure, WorkHandler};
use super::envelope::is_schema;
use super::job::{self, JobError, WorkJob};
use super::plan::{DeliveryPlan, PANIC_DETAIL, is_last_panic, plan_delivery};
use super::retry::{FailedAttempt, NextStep};
use super::supervise::{HandlerEnd, supervise_handler};
use super::verdicts::{expiry_fault, last_fault, unknown_outcome_fault};
use super::{MAX_RESULT_BYTES, PoisonMessage, WorkEnvelope, WorkerContext, poison};
use crate::backend::{AckAction, PulledMessage};
use crate::backoff::work_delay;
use crate::headers;
use crate::ledger::LedgerError;
use crate::ledger::record;

/// Delay of messages that are returned at the end of a drain.
const STOP_DELAY: Duration = Duration::from_secs(1);
/// Most reads of a ledger entry that changes concurrently.
pub const MAX_LEDGER_READS: u32 = 5;

/// Processes one delivery. It never fails: work that cannot be done now is redelivered.
pub(super) async fn process_delivery<W: Work, H: WorkHandler<W>>(
    context: &Arc<WorkerContext<H>>,
    pulled: PulledMessage,
) {
    let started = Instant::now();
    if pulled.delivered > 1 {
        context.bus.inner.metrics.redelivered_total.add(1, &[]);
    }
    let span = process_span(&context.durable, &pulled);
    let outcome = deliver_to_handler::<W, H>(context, &pulled)
        .instrument(span.clone())
        .await;
    let label = match outcome {
        Ok(label) => label,
        Err(error) => {
            job::retry_stuck_delivery(&pulled, &error)
                .instrument(span.clone())
                .await;
            "stuck"
        }
    };
    span.in_scope(|| {
        tracing::info!(
            outcome = label,
            delivered = pulled.delivered,
            "delivery ended"
        );
    });
    context
        .bus
        .inner
        .metrics
        .processed(label, started.elapsed().as_secs_f64());
}

async fn deliver_to_handler<W: Work, H: WorkHandler<W>>(
    context: &Arc<WorkerContext<H>>,
    pulled: &PulledMessage,
) -> Result<&'static str, JobError> {
    let message = &pulled.message;
    let envelope = match WorkEnvelope::read(message) {
        Ok(envelope) => envelope,
        Err(poison) => return handle_poison(context, pulled, None, &poison).await,
    };
    // The declared schema is checked before decoding: protobuf reads one message type as another without an error.
    if !is_schema(message.headers.get(headers::SCHEMA_HEADER), &W::full_name())
        || !W::serves(&envelope.area)
        || envelope.verb != W::VERB
    {
        return handle_poison(context, pulled, Some(&envelope), &PoisonMessage::Schema).await;
    }
    let Ok(work) = W::decode(message.payload.clone()) else {
        return handle_poison(
            context,
            pulled,
            Some(&envelope),
            &PoisonMessage::Undecodable,
        )
        .await;
    };
    let mut task = DeliveryTask {
        context,
        pulled,
        work: &work,
        job: WorkJob::new(&context.bus, &envelope),
    };
    match task.claim().await? {
        ClaimOutcome::Claimed => task.work().await,
        // This does not count as an attempt; the message is redelivered when the other lease may have expired (7.1).
        ClaimOutcome::Held(left) => {
            job::retry_delivery_later(pulled, left).await;
            Ok("held")
        }
        ClaimOutcome::Late => {
            task.release(None, STOP_DELAY, false).await?;
            Ok("late")
        }
        ClaimOutcome::Ended(label) => {
            task.job.report().await?;
            task.job.finish(pulled).await;
            Ok(label)
        }
        ClaimOutcome::Reported => {
            task.job.finish(pulled).await;
            Ok("repeated")
        }
    }
}

/// The result of a claim in the ledger.
enum ClaimOutcome {
    Claimed,
    Held(Duration),
    /// The lease of the claim ended before this worker learned of the claim.
    Late,
    Ended(&'static str),
    Reported,
}

/// One delivery of decoded work.
struct DeliveryTask<'a, W, H> {
    context: &'a Arc<WorkerContext<H>>,
    pulled: &'a PulledMessage,
    work: &'a W,
    job: WorkJob<'a>,
}

impl<W: Work, H: WorkHandler<W>> DeliveryTask<'_, W, H> {
    /// Claims the work, or finds out why this worker does not do it (steps 2 and 3).
    async fn claim(&mut self) -> Result<ClaimOutcome, JobError> {
        for _ in 0..MAX_LEDGER_READS {
            self.job.read().await?;
            match self.try_claim().await {
                // Another worker wrote between the read and the claim; the entry is read again.
                Err(JobError::Ledger(LedgerError::Moved)) => {}
                other => return other,
            }
        }
        Err(LedgerError::Moved.into())
    }

    async fn try_claim(&mut self) -> Result<ClaimOutcome, JobError> {
        let now_ms = self.context.bus.now_ms();
        let expired = self.job.envelope.meta.deadline.has_passed(now_ms);
        match plan_delivery(self.job.decide(&self.context.settings), expired) {
            DeliveryPlan::Wait(left) => Ok(ClaimOutcome::Held(left)),
            DeliveryPlan::Report => Ok(ClaimOutcome::Ended("reported")),
            DeliveryPlan::Finish => Ok(ClaimOutcome::Reported),
            DeliveryPlan::End(TerminalState::Unknown) => {
                self.end(TerminalState::Unknown, &unknown_outcome_fault(), None)
                    .await?;
                Ok(ClaimOutcome::Ended("unknown"))
            }
            DeliveryPlan::End(terminal) => {
                self.end(terminal, &expiry_fault(), None).await?;
                Ok(ClaimOutcome::Ended("expired"))
            }
            DeliveryPlan::DeadLetter => {
                let fault = last_fault(&self.job.record());
                self.dead_letter(&fault).await?;
                Ok(ClaimOutcome::Ended("dead"))
            }
            DeliveryPlan::Work(record) => {
                let is_new = self.job.entry.is_none();
                self.job.write(*record).await?;
                if is_new {
                    self.compare_clocks().await;
                }
                if self.has_live_lease().await? {
                    Ok(ClaimOutcome::Claimed)
                } else {
                    Ok(ClaimOutcome::Late)
                }
            }
        }
    }

    /// Whether the claim excludes other workers. The response to a claim can come after the end of its lease; such a
    /// claim is renewed once, which fails if another worker has taken over.
    async fn has_live_lease(&mut self) -> Result<bool, JobError> {
        let lease = self.context.settings.lease;
        let is_live = |record: &v1::LedgerRecord, now_ms| record.lease_until_ms > now_ms;
        let now_ms = self.context.bus.now_ms();
        let record = self.job.record();
        if is_live(&record, now_ms) {
            return Ok(true);
        }
        self.job
            .write(record::renewed_record(&record, now_ms, lease))
            .await?;
        Ok(is_live(&self.job.record(), self.context.bus.now_ms()))
    }

    /// Compares the clocks on the entry that was written just now (7.1).
    async fn compare_clocks(&self) {
        if !self
            .context
            .bus
            .inner
            .health
            .begin_skew_check(self.context.bus.now_ms())
        {
            return;
        }
        let measured = self.job.ledger.server_time(&self.job.envelope.key).await;
        if let Some((server_ms, local_ms)) = measured {
            self.context
                .bus
                .inner
                .health
                .record_skew(server_ms, local_ms);
        }
    }

    /// Runs the handler and ends the work (steps 4 to 9).
    async fn work(&mut self) -> Result<&'static str, JobError> {
        let record = self.job.record();
        tracing::Span::current().record("dray.attempt", record.attempts);
        let delivery = WorkDelivery {
            meta: self.job.envelope.meta.clone(),
            work: self.work_copy(),
            epoch: record.epoch,
            attempt: record.attempts,
            is_last_attempt: record.attempts >= self.context.settings.attempts,
            redrives: record.redrives,
            delivered: self.pulled.delivered,
            cancel: CancellationToken::new(),
        };
        let ended = supervise_handler(self.context, &mut self.job, self.pulled, delivery).await;
        let label = match ended {
            HandlerEnd::Completed(completed) => self.complete(completed).await,
            HandlerEnd::Failed(failure) => self.fail(failure).await,
            HandlerEnd::Panicked => self.end_after_panic().await,
            HandlerEnd::Expired => self
                .end(TerminalState::Expired, &expiry_fault(), None)
                .await
                .map(|()| Some("expired")),
            HandlerEnd::Stopped => self.release(None, STOP_DELAY, false).await.map(|()| None),
            HandlerEnd::LeaseLost => Err(LedgerError::Moved.into()),
        };
        match label {
            Ok(Some(label)) => {
                let attempts = u64::from(self.job.record().attempts);
                self.context
                    .bus
                    .inner
                    .metrics
                    .attempts
                    .record(attempts, &[]);
                self.job.report().await?;
                self.job.finish(self.pulled).await;
                Ok(label)
            }
            Ok(None) => Ok("again"),
            // Another worker has taken over: this one sends no message, not even an acknowledgement.
            Err(JobError::Ledger(LedgerError::Moved)) => {
                self.context.bus.inner.metrics.lease_lost_total.add(1, &[]);
                Ok("lease_lost")
            }
            Err(error) => Err(error),
        }
    }

    /// The work decoded a second time: messages are not `Clone` by contract.
    fn work_copy(&self) -> W {
        W::decode(self.pulled.message.payload.clone()).unwrap_or_default()
    }

    async fn complete(
        &mut self,
        completed: WorkCompleted,
    ) -> Result<Option<&'static str>, JobError> {
        if completed.event.len() > MAX_RESULT_BYTES {
            tracing::error!(size = completed.event.len(), "a result event is too large");
            let fault = Fault::new(FaultCode::TooLarge, "The result is too large to be sent.")
                .detail("result_too_large")
                .advice("Ask for less, or for the result by reference.");
            self.end(TerminalState::Failed, &fault, None).await?;
            return Ok(Some("failed"));
        }
        let event = self.address_event(completed.event);
        self.job.end(TerminalState::Done, event, None).await?;
        Ok(Some("done"))
    }

    async fn fail(&mut self, failure: WorkFailure) -> Result<Option<&'static str>, JobError> {
        let WorkFailure { fault, event } = failure;
        tracing::Span::current().record("dray.code", fault.code.as_str());
        let deadline = self.job.envelope.meta.deadline;
        let attempt = FailedAttempt {
            fault: &fault,
            attempts: self.job.record().attempts,
            max_attempts: self.context.settings.attempts,
            delivered: self.pulled.delivered,
            remaining: deadline.remaining(self.context.bus.now_ms()),
        };
        let step = attempt.next_step(&mut rand::rng());
        match step {
            NextStep::Release { delay, counted } => {
                self.release(Some(&fault), delay, counted).await?;
                Ok(None)
            }
            NextStep::DeadLetter => {
                self.dead_letter(&fault).await?;
                Ok(Some("dead"))
            }
            NextStep::Fail => {
                self.end(TerminalState::Failed, &fault, event).await?;
                Ok(Some("failed"))
            }
        }
    }

    async fn end_after_panic(&mut self) -> Result<Option<&'static str>, JobError> {
        tracing::error!("a handler panicked");
        let record = self.job.record();
        if is_last_panic(&record, self.context.settings.attempts) {
            self.dead_letter(&Fault::from(&PoisonMessage::Panicked))
                .await?;
            return Ok(Some("dead"));
        }
        let fault = Fault::internal().detail(PANIC_DETAIL);
        let delay = work_delay(record.attempts, &mut rand::rng());
        self.release(Some(&fault), delay, true).await?;
        Ok(None)
    }

    async fn release(
        &mut self,
        fault: Option<&Fault>,
        delay: Duration,
        counted: bool,
    ) -> Result<(), JobError> {
        let released = record::released_record(
            &self.job.record(),
            fault,
            self.context.bus.now_ms(),
            counted,
        );
        // The lease is released first: the next worker may get the message immediately after it is returned.
        self.job.write(released).await?;
        job::retry_delivery_later(self.pulled, delay).await;
        Ok(())
    }

    async fn end(
        &mut self,
        terminal: TerminalState,
        fault: &Fault,
        own: Option<RecordedEvent>,
    ) -> Result<(), JobError> {
        // If a handler's own event is too large, the default event replaces it, so that the failure is always reported.
        let event = match own.filter(|event| event.len() <= MAX_RESULT_BYTES) {
            Some(event) => self.address_event(event),
            None => self.rejection_event(terminal, fault),
        };
        self.job.end(terminal, event, Some(fault)).await?;
        Ok(())
    }

    async fn dead_letter(&mut self, fault: &Fault) -> Result<(), JobError> {
        let event = self.rejection_event(TerminalState::DeadLettered, fault);
        let version = &self.context.settings.service_version;
        self.job
            .dead_letter(
                &self.pulled.message,
                self.pulled.delivered,
                event,
                fault,
                version,
            )
            .await
    }

    fn rejection_event(&self, terminal: TerminalState, fault: &Fault) -> v1::RecordedEvent {
        let operation = &self.job.envelope.meta.operation;
        let event = self.work.rejected(operation, terminal, fault);
        self.address_event(RecordedEvent::new(&event))
    }

    fn address_event(&self, event: RecordedEvent) -> v1::RecordedEvent {
        event.addressed(&self.job.envelope.meta, self.job.envelope.redrives)
    }
}

/// Dead-letters a message that no worker can read, and terminates its delivery.
async fn handle_poison<H>(
    context: &Arc<WorkerContext<H>>,
    pulled: &PulledMessage,
    envelope: Option<&WorkEnvelope>,
    poison: &PoisonMessage,
) -> Result<&'static str, JobError> {
    tracing::error!(
        error = poison as &dyn std::error::Error,
        "a message is poison"
    );
    poison::dead_letter_poison(
        &context.bus,
        pulled,
        envelope,
        &Fault::from(poison),
        &context.settings.service_version,
    )
    .await?;
    job::settle_delivery(pulled, AckAction::Term).await;
    Ok("poison")
}

fn process_span(durable: &str, pulled: &PulledMessage) -> tracing::Span {
    let header = |name| pulled.message.headers.get(name).unwrap_or_default();
    let subject = &pulled.message.subject;
    let template = subject
        .rsplit_once('.')
        .map_or(subject.as_str(), |(template, _)| template);
    tracing::info_span!(
        "process",
        otel.name = %format_args!("process {template}"),
        otel.kind = "consumer",
        messaging.system = "nats",
        messaging.destination.name = template,
        messaging.message.id = header(headers::MESSAGE_ID),
        messaging.consumer.group.name = durable,
        messaging.message.delivery_count = pulled.delivered,
        dray.operation_id = header(headers::OPERATION_HEADER),
        dray.tenant = header(headers::TENANT_HEADER),
        // The 32 hexadecimal digits after `00-`, for log lines without a tracing backend.
        trace_id = header(headers::TRACEPARENT_HEADER).get(3..35).unwrap_or_default(),
        dray.attempt = tracing::field::Empty,
        dray.code = tracing::field::Empty,
    )
}
