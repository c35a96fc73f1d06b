//! Whose turn it is in a chat: among the deliveries that were requested earlier, and among all replicas.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::chat_positions::ChatPositions;
use crate::error::DeliveryError;
use crate::index::{DeliveryIndex, WaitingDelivery};
use crate::lease::{Lease, LeaseStore};
use crate::poll_delay::PollDelay;
use crate::queue::{ChatQueues, Order};
use crate::records::RecordError;

/// How long the right to send to a chat outlives a replica that died with it.
pub(super) const CHAT_LEASE: Duration = Duration::from_secs(15);
/// How long a delivery waits for another replica before it is put back.
const MAX_WAIT: Duration = Duration::from_secs(20);
/// How long a delivery lets others go first that were requested earlier.
const EARLIER_GRACE: Duration = Duration::from_secs(1);
/// Between two looks for deliveries whose files are still being copied.
const EARLIER_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The turns of all chats.
#[derive(Debug)]
pub(crate) struct ChatTurns {
    pub(crate) places: ChatPositions,
    pub(crate) index: Arc<DeliveryIndex>,
    /// Turns on this replica.
    pub(crate) queue: ChatQueues,
    /// Turns among replicas.
    pub(crate) leases: LeaseStore,
    /// How long a worker waits for an earlier delivery: a second, and less in tests.
    pub(crate) turn_wait: Duration,
}

impl ChatTurns {
    /// The first delivery of the chat that was requested earlier and waits in its record, on any replica.
    pub(super) async fn waiting_before(
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
    pub(super) async fn is_next(
        &self,
        chat: &str,
        position: u64,
        cancel: &CancellationToken,
    ) -> Result<bool, DeliveryError> {
        let begun = tokio::time::Instant::now();
        loop {
            if !self.places.is_blocked(chat, position).await? {
                return Ok(true);
            }
            if begun.elapsed() >= self.turn_wait {
                return Ok(false);
            }
            tokio::select! {
                () = tokio::time::sleep(EARLIER_POLL_INTERVAL) => {}
                () = cancel.cancelled() => return Err(DeliveryError::Interrupted),
            }
        }
    }

    /// The right to send to a chat, among all replicas; `None` when another one has it for too long. Deliveries that
    /// were requested earlier and are in other hands get the time to go first.
    pub(super) async fn only_replica(
        &self,
        chat: &str,
        order: &Order,
        cancel: &CancellationToken,
    ) -> Result<Option<Lease>, DeliveryError> {
        let begun = tokio::time::Instant::now();
        let name = format!("chat\0{chat}");
        // Another replica may have the chat.
        let mut delay = PollDelay::new();
        loop {
            let waited = begun.elapsed();
            if waited >= EARLIER_GRACE || !self.index.is_in_hand_before(chat, order) {
                let taken = self.leases.take(&name, CHAT_LEASE).await;
                let taken = taken.map_err(RecordError::Unreachable)?;
                if taken.is_some() || waited >= MAX_WAIT {
                    return Ok(taken);
                }
            }
            tokio::select! {
                () = tokio::time::sleep(delay.next_delay()) => {}
                () = cancel.cancelled() => return Err(DeliveryError::Interrupted),
            }
        }
    }
}
