//! From stored files to the platform's own word that the user has them.
//!
//! `Sender::deliver` does one piece of work of a platform's queue. At every point its record says what
//! may be visible (messaging-reliability 12); the next worker continues from there.

mod confirm;
mod finish;
mod moved;
mod pace;
mod plan;
mod preview;
mod progress;
mod refused;
mod run;
mod step;
mod turns;
mod web;

use std::sync::Arc;
use std::time::Duration;

use dray_bus::{Bus, Meta};
use dray_platform::DeliveryTarget;
use dray_proto::convert::InvalidMessage;
use dray_proto::v1;
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
pub(crate) use self::pace::SendPace;
use self::run::DeliveryRun;
use self::turns::CHAT_LEASE;
pub(crate) use self::turns::ChatTurns;

/// Does the work of the platforms' queues.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) turns: ChatTurns,
    pub(crate) context: SendContext,
}

/// What one delivery in hand needs from its surroundings.
#[derive(Debug)]
pub(crate) struct SendContext {
    pub(crate) bus: Bus,
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) config: Arc<Config>,
    pub(crate) log: DeliveryLog,
    pub(crate) platform_cache: PlatformCache,
    pub(crate) pace: SendPace,
    pub(crate) metrics: DeliveryMetrics,
}

/// When a delivery is tried again whose chat another replica has.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// How a piece of work ended for now.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkEnd {
    /// The delivery is over.
    Finished(DeliveryRecord),
    /// It waits in its record, and another piece of work will continue with it.
    Waiting(DeliveryRecord),
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

impl Sender {
    /// Does one piece of work of a platform's queue.
    ///
    /// # Errors
    /// Temporary failures: the bus is unavailable, another worker has the record, the process stops. The same work comes
    /// again.
    pub(crate) async fn deliver(
        &self,
        meta: &Meta,
        work: &v1::DeliverFiles,
        cancel: &CancellationToken,
    ) -> Result<WorkEnd, DeliveryError> {
        let id = OperationId::new(work.delivery_id.as_str())
            .map_err(|error| InvalidMessage::field("delivery_id", error))?;
        let key = records::record_key(&meta.tenant, &id);
        let held = self.open(meta, work, &key).await?;
        if held.record.finished {
            return Ok(WorkEnd::Finished(held.record));
        }
        let is_ours = meta.operation == records::round_operation(&id, held.record.rounds);
        if !is_ours || held.record.due_at_ms > self.context.clock.now_ms() {
            return Ok(WorkEnd::Waiting(held.record));
        }
        let mut run = DeliveryRun::new(&self.context, meta.clone(), key, held, cancel.clone());
        let target = work.target.clone().unwrap_or_default();
        let account =
            match self
                .turns
                .places
                .accounts
                .find(&meta.tenant, &target.platform, &target.account)
            {
                Ok(account) => account,
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
        let ended = Box::pin(self.deliver_in_order(&mut run, account, chat.clone())).await;
        match &ended {
            // It keeps its place. What it waited for may have ended before its record was written.
            Ok(WorkEnd::Waiting(record)) if record.waiting == Some(WaitingReason::Queue) => {
                self.turns.places.wake_reconciler.notify_one();
            }
            Ok(_) => self.turns.places.release_place(&chat, &delivery).await,
            // It is tried again, in its place.
            Err(_) => {}
        }
        ended
    }

    /// Waits for what was requested earlier in the chat, then for the right to send, and does the work.
    async fn deliver_in_order(
        &self,
        run: &mut DeliveryRun<'_>,
        account: Arc<PlatformAccount>,
        chat: String,
    ) -> Result<WorkEnd, DeliveryError> {
        let cancel = run.cancel.clone();
        let order = (run.record().begun_at_ms, run.record().delivery_id.clone());
        if let Some(WaitingDelivery { due_ms, why }) =
            self.turns.waiting_before(&chat, &order).await?
        {
            return run.park(due_ms, why).await;
        }
        let held = self.turns.places.order.hold(&chat, &run.key, order.0).await;
        held.map_err(RecordError::Unreachable)?;
        if !self.turns.is_next(&chat, order.0, &cancel).await? {
            return run
                .park(self.context.clock.now_ms(), WaitingReason::Queue)
                .await;
        }
        // A delivery that was in hand a moment ago may have given its place back because it waits now.
        if let Some(WaitingDelivery { due_ms, why }) =
            self.turns.waiting_before(&chat, &order).await?
        {
            return run.park(due_ms, why).await;
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
        let Some(lease) = self.turns.only_replica(&chat, &order, &cancel).await? else {
            let due_ms = Deadline::after(self.context.clock.now_ms(), RETRY_DELAY).unix_ms();
            return run.park(due_ms, WaitingReason::Queue).await;
        };
        let work = Box::pin(run.go(account, chat));
        let ended = lease.during(CHAT_LEASE, work).await;
        drop(turn);
        ended
    }

    /// The record, made when there is none.
    async fn open(
        &self,
        meta: &Meta,
        work: &v1::DeliverFiles,
        key: &str,
    ) -> Result<RevisionedRecord, DeliveryError> {
        if let Some(held) = self.context.log.records.read(key).await? {
            return Ok(held);
        }
        let delivery_timeout = self.context.config.delivery_timeout.as_millis();
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
