//! Goes on with deliveries whose wait is over, ends those whose time is over, and corrects what a platform takes back.

mod abandoned;
mod cancelled;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use dray_bus::{Bus, Meta};
use dray_platform::ErrorKind;
use dray_proto::codes::DeliveryTask;
use dray_proto::v1;
use dray_types::{Clock, Deadline, OperationId, SessionId, TraceContext};
use tokio_util::sync::CancellationToken;

use crate::chat_positions::{ChatPositions, chat_of};
use crate::deliver::{audit, conclude};
use crate::delivery_log::DeliveryLog;
use crate::error::DeliveryError;
use crate::index::IndexEntry;
use crate::machine::DeliveryStep;
use crate::metrics::DeliveryMetrics;
use crate::queue::ChatQueues;
use crate::record::{DeliveryRecord, WaitingReason};
use crate::records::{self, RecordError, RevisionedRecord};
use crate::report;

/// Between two looks.
const RECONCILE_INTERVAL: Duration = Duration::from_secs(1);

/// How long after its end a delivery is left to the worker that has it.
const GRACE_MS: u64 = 60_000;

/// When work that was published for a delivery is published once more, if it had no effect.
const AGAIN_MS: u64 = 60_000;

/// What was done for deliveries of late.
#[derive(Debug, Default)]
pub(crate) struct RecentPublishes {
    /// Rounds that were published, by revision, with the time.
    rounds: HashMap<String, (u64, u64)>,
    /// When the work of a delivery was looked at.
    looked: HashMap<String, u64>,
}

impl RecentPublishes {
    /// Nothing yet.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    fn forget(&mut self, now_ms: u64) {
        self.rounds
            .retain(|_, (_, at)| now_ms.saturating_sub(*at) < AGAIN_MS);
        self.looked
            .retain(|_, at| now_ms.saturating_sub(*at) < abandoned::LOOK_MS);
    }

    /// Whether it is time to look at the work of a delivery again.
    fn may_look(&mut self, key: &str, now_ms: u64) -> bool {
        if self.looked.contains_key(key) {
            return false;
        }
        self.looked.insert(key.to_owned(), now_ms);
        true
    }
}

/// Looks through what is not over.
#[derive(Debug)]
pub(crate) struct Reconciler {
    pub(crate) bus: Bus,
    pub(crate) clock: Clock,
    pub(crate) log: DeliveryLog,
    pub(crate) places: ChatPositions,
    pub(crate) queue: ChatQueues,
    pub(crate) metrics: DeliveryMetrics,
}

impl Reconciler {
    /// Looks again and again until `stop`.
    pub(crate) async fn keep(self: Arc<Self>, stop: CancellationToken) {
        let mut published = RecentPublishes::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(RECONCILE_INTERVAL) => {}
                // A place that was given back lets the next delivery start without waiting for the interval.
                () = self.places.wake_reconciler.notified() => {}
            }
            if let Err(error) = self.log.index.refresh().await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "could not read the index of deliveries"
                );
                continue;
            }
            self.sweep(&mut published).await;
        }
    }

    /// Looks once through what is not over.
    pub(crate) async fn sweep(&self, published: &mut RecentPublishes) {
        let now_ms = self.clock.now_ms();
        let mut started: HashMap<String, usize> = HashMap::new();
        let mut first_places: HashMap<String, u64> = HashMap::new();
        published.forget(now_ms);
        for line in self.log.index.unfinished() {
            // The grace lets a worker that is at the deadline write the end itself.
            if now_ms >= line.deadline_ms.saturating_add(GRACE_MS) {
                log_failure(self.expire(&line).await);
                continue;
            }
            if line.due_at_ms > now_ms {
                continue;
            }
            if published.may_look(&line.key, now_ms) {
                log_failure(self.look_at_work(&line).await);
            }
            if line.due_at_ms == 0 {
                continue;
            }
            let key = line.key.clone();
            if published
                .rounds
                .get(&key)
                // Work for this state of the record is in the queue already; a worker writes a new revision when it
                // takes it.
                .is_some_and(|(revision, _)| *revision == line.revision)
            {
                continue;
            }
            let chat = self.chat_of_line(&line);
            let begun = started.entry(chat.clone()).or_default();
            // A chat that just came back may have hundreds of waiting deliveries.
            if *begun >= self.queue.room(&chat) {
                continue;
            }
            let first = match first_places.get(&chat) {
                Some(first) => *first,
                None => self.first_place(&chat).await,
            };
            first_places.insert(chat.clone(), first);
            // Work for it would find the same, and wait in a worker.
            if first < line.begun_at_ms {
                continue;
            }
            *begun += 1;
            match self.resume(&line).await {
                Ok(()) => {
                    published.rounds.insert(key, (line.revision, now_ms));
                }
                Err(error) => log_failure(Err(error)),
            }
        }
    }

    /// The first open place of a chat; before all others while the bus is unavailable.
    async fn first_place(&self, chat: &str) -> u64 {
        match self.places.order.first(chat).await {
            Ok(first) => first.unwrap_or(u64::MAX),
            Err(error) => {
                log_failure(Err(RecordError::Unreachable(error).into()));
                0
            }
        }
    }

    fn chat_of_line(&self, line: &IndexEntry) -> String {
        let tenant = line.key.split('.').next().unwrap_or_default();
        let account = self.places.accounts.iter().find(|account| {
            account.platform.name() == line.target.platform
                && (line.target.account.is_empty() || account.name == line.target.account)
                && account
                    .tenant
                    .as_ref()
                    .is_none_or(|own| own.token() == tenant)
        });
        let id = account.map(|account| account.id()).unwrap_or_default();
        chat_of(&id, &line.target)
    }

    /// Publishes the work that continues with a delivery.
    async fn resume(&self, line: &IndexEntry) -> Result<(), DeliveryError> {
        let Some(held) = self.log.records.read(&line.key).await? else {
            return Ok(());
        };
        // The index may be behind the record.
        if held.record.finished || held.record.due_at_ms == 0 {
            return Ok(());
        }
        let Some(meta) = round_meta(&held.record) else {
            return Ok(());
        };
        self.bus
            // Replicas publish the same round under one message id, so the stream keeps one of them.
            .publish_work(&meta, &round_work(&held.record))
            .await?;
        Ok(())
    }

    /// Ends a delivery that was not ended in time. What was on its way may have arrived.
    async fn expire(&self, line: &IndexEntry) -> Result<(), DeliveryError> {
        let Some(mut held) = self.log.records.read(&line.key).await? else {
            return Ok(());
        };
        let now_ms = self.clock.now_ms();
        let record = &mut held.record;
        if record.finished || now_ms < record.deadline_ms.saturating_add(GRACE_MS) {
            return Ok(());
        }
        give_up(record);
        self.end(&line.key, held, "expired").await
    }

    /// Writes and publishes the end of a delivery that no worker ends.
    async fn end(
        &self,
        key: &str,
        mut held: RevisionedRecord,
        part: &str,
    ) -> Result<(), DeliveryError> {
        conclude(&mut held.record, self.clock.now_ms());
        let written = self.log.write(key, held.record, held.revision).await?;
        let record = written.record;
        self.places.release_place_of(key, &record).await;
        let Some(meta) = round_meta(&record) else {
            return Ok(());
        };
        let platform = record.target.clone().unwrap_or_default().platform;
        audit(&self.bus, &meta, &platform, &record).await;
        self.metrics.finished(&platform, &record);
        let done = v1::DeliveryDone {
            report: Some(report::for_event(&record)),
        };
        self.bus.publish_event_part(&meta, part, &done).await?;
        Ok(())
    }
}

pub(crate) fn log_failure(result: Result<(), DeliveryError>) {
    match result {
        // Another replica was faster.
        Ok(()) | Err(DeliveryError::Record(RecordError::Moved)) => {}
        Err(error) => error.log("a waiting delivery is left for later"),
    }
}

/// Says of every file why it has no other end.
fn give_up(record: &mut DeliveryRecord) {
    let kind = match record.waiting {
        Some(WaitingReason::WindowClosed) => ErrorKind::WindowClosed,
        Some(WaitingReason::RateLimited) => ErrorKind::RateLimited,
        Some(WaitingReason::Queue) | None => ErrorKind::Transient,
    };
    for step in std::mem::take(&mut record.steps) {
        match &step {
            DeliveryStep::Sending(step) => {
                for index in &step.files {
                    if let Some(file) = record.file_mut(*index) {
                        // The request may be visible, so the file counts as unknown and not as failed.
                        file.mark_unknown(&step.platform_code);
                    }
                }
            }
            DeliveryStep::Ready(step) => {
                for index in &step.files {
                    if let Some(file) = record.file_mut(*index)
                        && !file.state.is_final()
                    {
                        let code = file.platform_code.clone();
                        file.give_up(kind, &code);
                    }
                }
            }
            DeliveryStep::Done(_) | DeliveryStep::Unknown(_) | DeliveryStep::Failed(_) => {}
        }
        record.steps.push(step.give_up());
    }
}

/// The envelope of the work that continues with a delivery.
pub(crate) fn round_meta(record: &DeliveryRecord) -> Option<Meta> {
    let delivery = OperationId::new(record.delivery_id.as_str()).ok()?;
    let deadline = Deadline::from_unix_ms(record.deadline_ms);
    let mut meta = Meta::new(record.tenant_id(), deadline)
        .with_operation(records::round_operation(&delivery, record.rounds));
    if let Ok(session) = SessionId::new(record.session.as_str()) {
        meta = meta.with_session(session);
    }
    if !record.traceparent.is_empty() {
        meta = meta.with_trace(TraceContext::new(&record.traceparent, ""));
    }
    Some(meta)
}

/// The work itself: everything else is in the record.
pub(crate) fn round_work(record: &DeliveryRecord) -> v1::DeliverFiles {
    let work = v1::DeliverFiles {
        delivery_id: record.delivery_id.clone(),
        session: record.session.clone(),
        target: record.target.clone(),
        ..v1::DeliverFiles::default()
    };
    work.with_task(DeliveryTask::Continue)
}
