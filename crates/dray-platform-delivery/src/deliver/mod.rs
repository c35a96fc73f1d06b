//! Sends stored files to a platform until it confirms them.
//!
//! `Sender::deliver` handles one message of a platform's queue. At every point the record says what may be visible
//! (messaging-reliability 12), so that the next worker can continue from there.

mod confirm;
mod finish;
mod migrated_chats;
mod plan;
mod preview;
mod progress;
mod refused;
mod run;
mod send_delay;
mod step;
mod store;
mod turns;
mod web;

use std::sync::Arc;

use dray_bus::{Bus, Meta};
use dray_delivery_rules::chat_lease::{CHAT_LEASE, LEASE_RETRY_DELAY};
use dray_platform::DeliveryTarget;
use dray_proto::convert::InvalidMessage;
use dray_proto::v1;
use dray_service::ReplaceableValue;
use dray_store::Store;
use dray_types::{Clock, Deadline, OperationId};
use tokio_util::sync::CancellationToken;

use crate::accounts::PlatformAccount;
use crate::chat_positions::chat_of;
use crate::config::Config;
use crate::delivery_log::DeliveryLog;
use crate::error::DeliveryError;
use crate::index::WaitingDelivery;
use crate::metrics::DeliveryMetrics;
use crate::platform_cache::PlatformCache;
use crate::record::{DeliveryRecord, DeliveryStart, FileFailureKind, WaitingReason};
use crate::records::{self, RecordError, RevisionedRecord};

pub(crate) use self::finish::{audit, conclude};
use self::run::DeliveryRun;
pub(crate) use self::send_delay::SendDelays;
pub(crate) use self::turns::ChatTurns;

/// How long after its start a delivery or a message is left to replicas that have its account, in milliseconds. A
/// mounted configuration reaches the pods of a deployment within about two minutes.
pub(crate) const ACCOUNT_GRACE_MS: u64 = 180_000;

/// Handles the work of the platforms' queues.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) turns: ChatTurns,
    pub(crate) context: SendContext,
}

/// Handles that a running delivery uses.
#[derive(Debug)]
pub(crate) struct SendContext {
    pub(crate) bus: Bus,
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) config: ReplaceableValue<Config>,
    pub(crate) log: DeliveryLog,
    pub(crate) platform_cache: PlatformCache,
    pub(crate) send_delays: SendDelays,
    pub(crate) metrics: DeliveryMetrics,
}

/// How the handling of one message of a queue ended.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkEnd {
    /// The delivery is over.
    Finished(DeliveryRecord),
    /// The delivery waits in its record; a later message of the queue continues it.
    Waiting(DeliveryRecord),
}

/// Converts a target of a message to that of a platform.
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

/// Converts a target of a platform to that of a message.
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

impl Sender {
    /// Handles one message of a platform's queue.
    ///
    /// # Errors
    /// Temporary failures: the bus is unavailable, another worker has the record, the process stops. The message is
    /// then delivered again.
    pub(crate) async fn deliver(
        &self,
        meta: &Meta,
        work: &v1::DeliverFiles,
        cancel: &CancellationToken,
    ) -> Result<WorkEnd, DeliveryError> {
        let id = OperationId::new(work.delivery_id.as_str())
            .map_err(|error| InvalidMessage::field("delivery_id", error))?;
        let key = records::record_key(&meta.tenant, &id);
        let stored = self.open(meta, work, &key).await?;
        if stored.record.finished {
            // A worker that died right after its last write has not released the place, which blocks the chat.
            let places = &self.turns.places;
            places.release_place_of(&key, &stored.record).await;
            return Ok(WorkEnd::Finished(stored.record));
        }
        let is_current_round =
            meta.operation == records::round_operation(&id, stored.record.rounds);
        if !is_current_round || stored.record.due_at_ms > self.context.clock.now_ms() {
            return Ok(WorkEnd::Waiting(stored.record));
        }
        let mut run = DeliveryRun::new(&self.context, meta.clone(), key, stored, cancel.clone());
        let target = work.target.clone().unwrap_or_default();
        let accounts = &self.turns.places.accounts;
        let found = accounts.find(&meta.tenant, &target.platform, &target.account);
        let account = match found.map_err(DeliveryError::from) {
            Ok(account) => account,
            Err(error) if self.may_have_account_elsewhere(run.record()) => {
                return Err(DeliveryError::OtherReplica(Box::new(error)));
            }
            Err(error) => {
                error.log("a delivery has no account");
                return run
                    .refuse_all(FileFailureKind::NoAccount, &dray_types::Fault::from(error))
                    .await;
            }
        };
        let chat_id = self.turns.places.current_chat(&account, &target.chat).await;
        let chat = chat_of(
            &account.id(),
            &v1::ChatTarget {
                chat: chat_id.clone(),
                ..target
            },
        );
        if let Some(target) = &mut run.record_mut().target {
            target.chat = chat_id;
        }
        let delivery = run.key.clone();
        let work = self.deliver_in_order(&mut run, Arc::clone(&account), chat.clone());
        let ended = Box::pin(work).await;
        let ended = run.continue_if_user_wrote(&account, ended).await;
        match &ended {
            // The delivery keeps its place. The one before it may have ended before this record was written.
            Ok(WorkEnd::Waiting(record)) if record.waiting == Some(WaitingReason::Queue) => {
                self.turns.places.wake_reconciler.notify_one();
            }
            Ok(_) => self.turns.places.release_place(&chat, &delivery).await,
            // The delivery is tried again and keeps its place.
            Err(_) => {}
        }
        ended
    }

    /// Whether the replica that accepted a delivery may have its account, which this replica has not read yet.
    fn may_have_account_elsewhere(&self, record: &DeliveryRecord) -> bool {
        let until_ms = record.begun_at_ms.saturating_add(ACCOUNT_GRACE_MS);
        self.context.clock.now_ms() < until_ms
    }

    /// Waits for earlier deliveries to the chat, then for the right to send, and runs the steps.
    async fn deliver_in_order(
        &self,
        run: &mut DeliveryRun<'_>,
        account: Arc<PlatformAccount>,
        chat: String,
    ) -> Result<WorkEnd, DeliveryError> {
        let cancel = run.cancel.clone();
        let order = (run.record().begun_at_ms, run.record().delivery_id.clone());
        if let Some(WaitingDelivery { due_ms, reason }) =
            self.turns.waiting_before(&account, &chat, &order).await?
        {
            return run.park(due_ms, reason).await;
        }
        let renewed = self.turns.places.order.hold(&chat, &run.key, order.0).await;
        renewed.map_err(RecordError::Unreachable)?;
        if !self.turns.is_next(&chat, order.0, &cancel).await? {
            return run
                .park(self.context.clock.now_ms(), WaitingReason::Queue)
                .await;
        }
        // The due time is checked again, because a delivery that held a place may wait in its record by now.
        if let Some(WaitingDelivery { due_ms, reason }) =
            self.turns.waiting_before(&account, &chat, &order).await?
        {
            return run.park(due_ms, reason).await;
        }
        let turn = tokio::select! {
            turn = self.turns.queue.enter(&chat, order.clone()) => turn,
            () = cancel.cancelled() => return Err(DeliveryError::Interrupted),
        };
        let Some(turn) = turn else {
            return run
                .park(self.context.clock.now_ms(), WaitingReason::Queue)
                .await;
        };
        let Some(lease) = self
            .turns
            .take_chat_lease(&account, &chat, &order, &cancel)
            .await?
        else {
            let due_ms = Deadline::after(self.context.clock.now_ms(), LEASE_RETRY_DELAY).unix_ms();
            return run.park(due_ms, WaitingReason::Queue).await;
        };
        let work = Box::pin(run.run_steps(account, chat));
        let ended = lease.during(CHAT_LEASE, work).await;
        drop(turn);
        ended
    }

    /// Reads the record, or creates it.
    async fn open(
        &self,
        meta: &Meta,
        work: &v1::DeliverFiles,
        key: &str,
    ) -> Result<RevisionedRecord, DeliveryError> {
        if let Some(stored) = self.context.log.records.read(key).await? {
            return Ok(stored);
        }
        let delivery_timeout = self.context.config.get().delivery_timeout.as_millis();
        let target = work.target.clone().unwrap_or_default();
        let position = self
            .turns
            .places
            .position_of(&meta.tenant, key, &target)
            .await?;
        let start = DeliveryStart::of_work(work);
        let record = DeliveryRecord::begin(meta, start, position, delivery_timeout);
        Ok(self.context.log.records.write(key, record, 0).await?)
    }
}
