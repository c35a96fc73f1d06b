//! Continues deliveries whose wait is over. Ends deliveries that are cancelled, whose deadline has passed, or whose
//! work is a dead letter.

mod abandoned;
mod cancelled;
mod ended;

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
use crate::deliver::conclude;
use crate::delivery_log::DeliveryLog;
use crate::error::DeliveryError;
use crate::index::IndexEntry;
use crate::machine::DeliveryStep;
use crate::metrics::DeliveryMetrics;
use crate::queue::ChatQueues;
use crate::record::{DeliveryRecord, WaitingReason};
use crate::records::{self, RecordError, RevisionedRecord};

pub(crate) use self::ended::{mark_unpublished, publish_end};

/// Interval between two sweeps.
const RECONCILE_INTERVAL: Duration = Duration::from_secs(1);

/// How long after its deadline a delivery is left to its worker, in milliseconds.
const EXPIRY_GRACE_MS: u64 = 60_000;

/// Milliseconds after which work without an effect is published again.
const REPUBLISH_MS: u64 = 60_000;

/// Recent actions of this process, so that it does not repeat them with every sweep.
#[derive(Debug, Default)]
pub(crate) struct RecentPublishes {
    /// Revision and time of the last published round, by the key of the record.
    rounds: HashMap<String, (u64, u64)>,
    /// When the ledger was last read for a delivery, by the key of the record.
    work_checks: HashMap<String, u64>,
}

impl RecentPublishes {
    /// Begins without actions.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    fn forget(&mut self, now_ms: u64) {
        self.rounds
            .retain(|_, (_, checked_ms)| now_ms.saturating_sub(*checked_ms) < REPUBLISH_MS);
        self.work_checks.retain(|_, checked_ms| {
            now_ms.saturating_sub(*checked_ms) < abandoned::WORK_CHECK_INTERVAL_MS
        });
    }

    /// Whether the work of a delivery is to be checked now; records the check.
    fn is_work_check_due(&mut self, key: &str, now_ms: u64) -> bool {
        if self.work_checks.contains_key(key) {
            return false;
        }
        self.work_checks.insert(key.to_owned(), now_ms);
        true
    }
}

/// Continues and ends unfinished deliveries that no worker has.
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
    /// Sweeps every second, and when a place is released, until `stop` is cancelled.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut published = RecentPublishes::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(RECONCILE_INTERVAL) => {}
                // A released place lets the next delivery start without waiting for the interval.
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

    /// Handles all unfinished deliveries once.
    pub(crate) async fn sweep(&self, published: &mut RecentPublishes) {
        let now_ms = self.clock.now_ms();
        let mut started_by_chat: HashMap<String, usize> = HashMap::new();
        let mut first_places: HashMap<String, u64> = HashMap::new();
        published.forget(now_ms);
        self.publish_missing_ends(now_ms).await;
        for entry in self.log.index.unfinished() {
            // The grace period lets a worker that reached the deadline write the end itself.
            if now_ms >= entry.deadline_ms.saturating_add(EXPIRY_GRACE_MS) {
                log_failure(self.expire(&entry).await);
                continue;
            }
            if entry.due_at_ms > now_ms {
                continue;
            }
            if published.is_work_check_due(&entry.key, now_ms) {
                log_failure(self.check_work(&entry).await);
            }
            if entry.due_at_ms == 0 {
                continue;
            }
            let key = entry.key.clone();
            if published
                .rounds
                .get(&key)
                // The queue has work for this revision already; the worker that takes it writes a new revision.
                .is_some_and(|(revision, _)| *revision == entry.revision)
            {
                continue;
            }
            let chat = self.chat_of_entry(&entry);
            let started_count = started_by_chat.entry(chat.clone()).or_default();
            // After an outage, a chat may have hundreds of waiting deliveries.
            if *started_count >= self.queue.free_places(&chat) {
                continue;
            }
            let first = match first_places.get(&chat) {
                Some(first) => *first,
                None => self.first_place(&chat).await,
            };
            first_places.insert(chat.clone(), first);
            // A worker would find the earlier place too, and wait.
            if first < entry.begun_at_ms {
                continue;
            }
            *started_count += 1;
            match self.resume(&entry).await {
                Ok(()) => {
                    published.rounds.insert(key, (entry.revision, now_ms));
                }
                Err(error) => log_failure(Err(error)),
            }
        }
    }

    /// The first open place of a chat; 0 if the bus is unavailable, so that no delivery starts.
    async fn first_place(&self, chat: &str) -> u64 {
        match self.places.order.first(chat).await {
            Ok(first) => first.unwrap_or(u64::MAX),
            Err(error) => {
                log_failure(Err(RecordError::Unreachable(error).into()));
                0
            }
        }
    }

    fn chat_of_entry(&self, entry: &IndexEntry) -> String {
        let tenant = entry.key.split('.').next().unwrap_or_default();
        let account = self.places.accounts.iter().find(|account| {
            account.platform.name() == entry.target.platform
                && (entry.target.account.is_empty() || account.name == entry.target.account)
                && account
                    .tenant
                    .as_ref()
                    .is_none_or(|own| own.token() == tenant)
        });
        let id = account.map(|account| account.id()).unwrap_or_default();
        chat_of(&id, &entry.target)
    }

    /// Publishes the work that continues with a delivery.
    async fn resume(&self, entry: &IndexEntry) -> Result<(), DeliveryError> {
        let Some(stored) = self.log.records.read(&entry.key).await? else {
            return Ok(());
        };
        // The index may be behind the record.
        if stored.record.finished || stored.record.due_at_ms == 0 {
            return Ok(());
        }
        let Some(meta) = round_meta(&stored.record) else {
            return Ok(());
        };
        self.bus
            // Replicas publish the same round under one message id, so the stream keeps one of them.
            .publish_work(&meta, &round_work(&stored.record))
            .await?;
        Ok(())
    }

    /// Ends a delivery whose deadline has passed. A file that was being sent may have arrived.
    async fn expire(&self, entry: &IndexEntry) -> Result<(), DeliveryError> {
        let Some(mut stored) = self.log.records.read(&entry.key).await? else {
            return Ok(());
        };
        let now_ms = self.clock.now_ms();
        let record = &mut stored.record;
        if record.finished || now_ms < record.deadline_ms.saturating_add(EXPIRY_GRACE_MS) {
            return Ok(());
        }
        give_up(record);
        self.end(&entry.key, stored).await
    }

    /// Writes and publishes the end of a delivery that no worker ends.
    async fn end(&self, key: &str, mut stored: RevisionedRecord) -> Result<(), DeliveryError> {
        let now_ms = self.clock.now_ms();
        conclude(&mut stored.record, now_ms);
        mark_unpublished(&mut stored.record, now_ms);
        let written = self.log.write(key, stored.record, stored.revision).await?;
        let platform = written.record.target.clone().unwrap_or_default().platform;
        self.metrics.finished(&platform, &written.record);
        self.publish_end(key, written).await
    }
}

pub(crate) fn log_failure(result: Result<(), DeliveryError>) {
    match result {
        // Another replica was faster.
        Ok(()) | Err(DeliveryError::Record(RecordError::Moved)) => {}
        Err(error) => error.log("a waiting delivery is left for later"),
    }
}

/// Gives every open step and its files a final state.
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

/// The work that continues a delivery; the record has everything else.
pub(crate) fn round_work(record: &DeliveryRecord) -> v1::DeliverFiles {
    let work = v1::DeliverFiles {
        delivery_id: record.delivery_id.clone(),
        session: record.session.clone(),
        target: record.target.clone(),
        ..v1::DeliverFiles::default()
    };
    work.with_task(DeliveryTask::Continue)
}
