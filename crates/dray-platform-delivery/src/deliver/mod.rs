//! From stored files to the platform's own word that the user has them.
//!
//! [`DeliveryService::deliver`] does one piece of work of a platform's queue. At every point its record says what
//! may be visible (messaging-reliability 12); the next worker goes on from there.

mod confirm;
mod finish;
mod moved;
mod plan;
mod progress;
mod refused;
mod run;
mod step;

use std::sync::Arc;
use std::time::Duration;

use dray_bus::{Bus, Meta};
use dray_platform::DeliveryTarget;
use dray_proto::convert::InvalidMessage;
use dray_proto::v1;
use dray_store::Store;
use dray_types::{Clock, Deadline, OperationId, TenantId};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::accounts::{AccountRegistry, PlatformAccount};
use crate::cache::GatheringNotes;
use crate::chat_order::ChatOrder;
use crate::config::Config;
use crate::error::DeliveryError;
use crate::index::{DeliveryIndex, WaitingDelivery};
use crate::lease::{Lease, LeaseStore};
use crate::metrics::DeliveryMetrics;
use crate::platform_cache::PlatformCache;
use crate::queue::{ChatQueues, Order};
use crate::rate_limit::RateLimiter;
use crate::records::{self, RecordError, RecordStore, RevisionedRecord};

pub(crate) use self::finish::conclude_report;
pub(crate) use self::plan::doubt_file;
use self::run::DeliveryRun;

/// Everything that deliveries share.
#[derive(Debug)]
pub struct DeliveryService {
    /// The bus.
    pub bus: Bus,
    /// The store.
    pub store: Store,
    /// The wall clock.
    pub clock: Clock,
    /// What the operator set.
    pub config: Config,
    /// The accounts.
    pub accounts: AccountRegistry,
    /// What became of deliveries.
    pub records: RecordStore,
    /// Which of them wait.
    pub index: DeliveryIndex,
    /// What platforms taught.
    pub platform_cache: PlatformCache,
    /// Who may send when.
    pub rate_limiter: RateLimiter,
    /// Whose turn it is in a chat.
    pub queue: ChatQueues,
    /// In which order deliveries were asked for in a chat.
    pub chat_order: ChatOrder,
    /// Makes the reconciler look for what can go on.
    pub(crate) wake_keeper: Notify,
    /// What is counted.
    pub metrics: DeliveryMetrics,
    /// What one replica does at a time.
    pub leases: LeaseStore,
    /// Who gathers files just now.
    pub(crate) gatherings: GatheringNotes,
    /// Bound of the delay before the first repetition: a second, and less in tests.
    pub(crate) second: Duration,
}

/// How long the right to send to a chat outlives a replica that died with it.
const CHAT_LEASE: Duration = Duration::from_secs(15);
/// How long a delivery waits for another replica before it is put back, and for how long then.
const LONGEST_WAIT: Duration = Duration::from_secs(20);
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// How long a delivery lets others go first that were asked for earlier.
const EARLIER_GRACE: Duration = Duration::from_secs(1);
/// Between two looks for deliveries whose files are still being copied.
const EARLIER_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Between two looks at a chat that another replica has.
const CHAT_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// How a piece of work ended for now.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkEnd {
    /// The delivery is over.
    Finished(v1::DeliveryReport),
    /// It waits in its record, and another piece of work will go on with it.
    Waiting(v1::DeliveryReport),
}

/// What a delivery waits for, as its record spells it.
pub mod waiting {
    /// The platform asked to wait.
    pub const RATE_LIMITED: &str = "rate_limited";
    /// The platform lets us write only after the user did.
    pub const WINDOW_CLOSED: &str = "window_closed";
    /// Others of the same chat go first.
    pub const QUEUE_REASON: &str = "queue";
}

/// The chat of a target, for turns and limits: threads share those of their chat.
pub fn chat_of(account: &str, target: &v1::ChatTarget) -> String {
    format!("{account}\0{}", target.chat)
}

/// A target as platforms see it.
pub fn target_of(target: &v1::ChatTarget) -> DeliveryTarget {
    let v1::ChatTarget {
        platform,
        account,
        chat,
        thread,
        reply_to,
    } = target.clone();
    DeliveryTarget {
        platform,
        account,
        chat,
        thread,
        reply_to,
    }
}

/// A target as messages carry it.
pub fn wire_target(target: DeliveryTarget) -> v1::ChatTarget {
    let DeliveryTarget {
        platform,
        account,
        chat,
        thread,
        reply_to,
    } = target;
    v1::ChatTarget {
        platform,
        account,
        chat,
        thread,
        reply_to,
    }
}

/// The record that a delivery begins with.
pub fn new_record(
    meta: &Meta,
    work: &v1::DeliverFiles,
    begun_at_ms: u64,
    patience_ms: u64,
) -> v1::DeliveryReport {
    v1::DeliveryReport {
        delivery_id: work.delivery_id.clone(),
        session: work.session.clone(),
        target: work.target.clone(),
        files: work.files.clone(),
        begun_at_ms,
        turn: work.turn.clone(),
        message: work.message.clone(),
        flags: work.flags,
        tenant: meta.tenant.to_string(),
        deadline_ms: begun_at_ms.saturating_add(patience_ms),
        traceparent: meta.trace.traceparent.clone(),
        ..v1::DeliveryReport::default()
    }
}

impl DeliveryService {
    /// Does one piece of work of a platform's queue.
    ///
    /// # Errors
    /// Temporary failures: the bus is away, another worker has the record, the process stops. The same work comes
    /// again.
    pub async fn deliver(
        &self,
        meta: &Meta,
        work: &v1::DeliverFiles,
        cancel: &CancellationToken,
    ) -> Result<WorkEnd, DeliveryError> {
        let id = OperationId::new(work.delivery_id.as_str())
            .map_err(|error| InvalidMessage::field("delivery_id", error))?;
        let key = records::record_key(&meta.tenant, &id);
        let held = self.open(meta, work, &key).await?;
        if held.report.finished {
            return Ok(WorkEnd::Finished(held.report));
        }
        let is_ours = meta.operation == records::round_operation(&id, held.report.rounds);
        if !is_ours || held.report.due_at_ms > self.clock.now_ms() {
            return Ok(WorkEnd::Waiting(held.report));
        }
        let mut run = DeliveryRun::new(self, meta.clone(), key, held, cancel.clone());
        let target = work.target.clone().unwrap_or_default();
        let account = match self
            .accounts
            .find(&meta.tenant, &target.platform, &target.account)
        {
            Ok(account) => account,
            Err(error) => {
                error.log("a delivery has no account");
                return run
                    .refuse_all("no_account", &dray_types::Fault::from(error))
                    .await;
            }
        };
        let chat_id = self.current_chat(&account, &target.chat).await;
        let chat = chat_of(
            &account.id(),
            &v1::ChatTarget {
                chat: chat_id.clone(),
                ..target
            },
        );
        if let Some(target) = &mut run.report_mut().target {
            target.chat = chat_id;
        }
        let delivery = run.key.clone();
        let ended = Box::pin(self.deliver_in_order(&mut run, account, chat.clone())).await;
        match &ended {
            // It keeps its place. What it waited for may have ended before its record was written.
            Ok(WorkEnd::Waiting(report)) if report.waiting == waiting::QUEUE_REASON => {
                self.wake_keeper.notify_one();
            }
            Ok(_) => self.release_place(&chat, &delivery).await,
            // It is tried again, in its place.
            Err(_) => {}
        }
        ended
    }

    /// Waits for what was asked for earlier in the chat, then for the right to send, and does the work.
    async fn deliver_in_order(
        &self,
        run: &mut DeliveryRun<'_>,
        account: Arc<PlatformAccount>,
        chat: String,
    ) -> Result<WorkEnd, DeliveryError> {
        let cancel = run.cancel.clone();
        let order = (run.report().begun_at_ms, run.report().delivery_id.clone());
        if let Some(WaitingDelivery { due_ms, why }) = self.waiting_before(&chat, &order).await? {
            return run.park(due_ms, why).await;
        }
        let held = self.chat_order.hold(&chat, &run.key, order.0).await;
        held.map_err(RecordError::Unreachable)?;
        if !self.is_next(&chat, order.0, &cancel).await? {
            return run.park(self.clock.now_ms(), waiting::QUEUE_REASON).await;
        }
        // A delivery that was in hand a moment ago may have given its place back because it waits now.
        if let Some(WaitingDelivery { due_ms, why }) = self.waiting_before(&chat, &order).await? {
            return run.park(due_ms, why).await;
        }
        let turn = tokio::select! {
            turn = self.queue.enter(&chat, order.clone()) => turn,
            () = cancel.cancelled() => return Err(DeliveryError::Interrupted),
        };
        let Some(turn) = turn else {
            return run.park(self.clock.now_ms(), waiting::QUEUE_REASON).await;
        };
        let Some(lease) = self.only_replica(&chat, &order, &cancel).await? else {
            let due_ms = Deadline::after(self.clock.now_ms(), RETRY_DELAY).unix_ms();
            return run.park(due_ms, waiting::QUEUE_REASON).await;
        };
        let work = Box::pin(run.go(account, chat));
        let ended = lease.during(CHAT_LEASE, work).await;
        drop(turn);
        ended
    }

    /// The first delivery of the chat that was asked for earlier and waits in its record, on any replica.
    async fn waiting_before(
        &self,
        chat: &str,
        order: &Order,
    ) -> Result<Option<WaitingDelivery>, DeliveryError> {
        self.index
            .refresh()
            .await
            .map_err(RecordError::Unreachable)?;
        Ok(self.index.waiting_before(chat, order))
    }

    /// Whether no earlier place of the chat is open, now or after a second: a delivery that waits longer holds no
    /// worker.
    async fn is_next(
        &self,
        chat: &str,
        place: u64,
        cancel: &CancellationToken,
    ) -> Result<bool, DeliveryError> {
        let begun = tokio::time::Instant::now();
        loop {
            if !self.is_blocked(chat, place).await? {
                return Ok(true);
            }
            if begun.elapsed() >= self.second {
                return Ok(false);
            }
            tokio::select! {
                () = tokio::time::sleep(EARLIER_POLL_INTERVAL) => {}
                () = cancel.cancelled() => return Err(DeliveryError::Interrupted),
            }
        }
    }

    /// Whether an earlier place of the chat is open.
    pub(crate) async fn is_blocked(&self, chat: &str, place: u64) -> Result<bool, DeliveryError> {
        let first = self.chat_order.first(chat).await;
        let first = first.map_err(RecordError::Unreachable)?;
        Ok(first.is_some_and(|first| first < place))
    }

    /// The right to send to a chat, among all replicas; `None` when another one has it for too long. Deliveries that
    /// were asked for earlier and are in other hands get the time to go first.
    async fn only_replica(
        &self,
        chat: &str,
        order: &Order,
        cancel: &CancellationToken,
    ) -> Result<Option<Lease>, DeliveryError> {
        let begun = tokio::time::Instant::now();
        let name = format!("chat\0{chat}");
        loop {
            let waited = begun.elapsed();
            if waited >= EARLIER_GRACE || !self.index.is_in_hand_before(chat, order) {
                let taken = self.leases.take(&name, CHAT_LEASE).await;
                let taken = taken.map_err(RecordError::Unreachable)?;
                if taken.is_some() || waited >= LONGEST_WAIT {
                    return Ok(taken);
                }
            }
            tokio::select! {
                () = tokio::time::sleep(CHAT_POLL_INTERVAL) => {}
                () = cancel.cancelled() => return Err(DeliveryError::Interrupted),
            }
        }
    }

    /// The record, made when there is none.
    async fn open(
        &self,
        meta: &Meta,
        work: &v1::DeliverFiles,
        key: &str,
    ) -> Result<RevisionedRecord, DeliveryError> {
        if let Some(held) = self.records.read(key).await? {
            return Ok(held);
        }
        let patience = self.config.patience.as_millis();
        let target = work.target.clone().unwrap_or_default();
        let place = self.place_of(&meta.tenant, key, &target).await?;
        let report = new_record(meta, work, place, patience);
        Ok(self.records.write(key, report, 0).await?)
    }

    /// The account and the chat of a target, for turns and limits; `None` when no account serves it.
    pub(crate) async fn chat_of(
        &self,
        tenant: &TenantId,
        target: &v1::ChatTarget,
    ) -> Option<(Arc<PlatformAccount>, String)> {
        let account = self
            .accounts
            .find(tenant, &target.platform, &target.account)
            .ok()?;
        let target = v1::ChatTarget {
            chat: self.current_chat(&account, &target.chat).await,
            ..target.clone()
        };
        let chat = chat_of(&account.id(), &target);
        Some((account, chat))
    }

    /// The place of a delivery in its chat, taken now when it has none. Where no account serves the chat no order has
    /// to keep.
    pub(crate) async fn place_of(
        &self,
        tenant: &TenantId,
        key: &str,
        target: &v1::ChatTarget,
    ) -> Result<u64, DeliveryError> {
        let Some((_, chat)) = self.chat_of(tenant, target).await else {
            return Ok(self.clock.now_ms());
        };
        let place = self.chat_order.take(&chat, key).await;
        Ok(place.map_err(RecordError::Unreachable)?.number)
    }

    /// Gives the place of a delivery back that ended without a worker of its platform.
    pub(crate) async fn release_place_of(&self, key: &str, report: &v1::DeliveryReport) {
        let target = report.target.clone().unwrap_or_default();
        if let Some((_, chat)) = self.chat_of(&Self::tenant_of(report), &target).await {
            self.release_place(&chat, key).await;
        }
    }

    /// Full jitter below a bound that doubles with every try (platform-delivery 10.2).
    pub(crate) fn backoff(&self, tries: u32) -> Duration {
        let bound = self.second * (1 << tries.saturating_sub(1).min(5));
        rand::random_range(Duration::ZERO..=bound)
    }

    /// What is added to a delay that a platform asked for.
    pub(crate) fn jitter(&self) -> Duration {
        rand::random_range(Duration::ZERO..=self.second / 4)
    }

    /// The tenant of a record.
    pub(crate) fn tenant_of(report: &v1::DeliveryReport) -> TenantId {
        TenantId::new(report.tenant.as_str()).unwrap_or_default()
    }
}
