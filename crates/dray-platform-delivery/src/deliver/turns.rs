//! Decides which delivery may send to a chat next, among earlier requests and among all replicas.

use std::sync::Arc;
use std::time::Duration;

use dray_delivery_rules::chat_lease::{CHAT_LEASE, MAX_LEASE_WAIT};
use tokio_util::sync::CancellationToken;

use crate::accounts::PlatformAccount;
use crate::chat_positions::ChatPositions;
use crate::error::DeliveryError;
use crate::index::{DeliveryIndex, WaitingDelivery};
use crate::lease::{Lease, LeaseStore};
use crate::poll_delay::PollDelay;
use crate::queue::{ChatQueues, Order};
use crate::records::RecordError;

/// How long a delivery waits for earlier deliveries of the chat.
const EARLIER_GRACE: Duration = Duration::from_secs(1);
/// Interval between two checks for earlier deliveries whose files are still being copied.
const EARLIER_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Gives deliveries of one chat their turns in the order of their requests, on this replica and among replicas.
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
    /// The first delivery of the chat of this account that was requested earlier and waits in its record, on any
    /// replica.
    pub(super) async fn waiting_before(
        &self,
        account: &PlatformAccount,
        chat: &str,
        order: &Order,
    ) -> Result<Option<WaitingDelivery>, DeliveryError> {
        self.index
            .refresh()
            .await
            .map_err(RecordError::Unreachable)?;
        let owner = account.tenant.as_ref();
        Ok(self.index.waiting_before(chat, owner, order))
    }

    /// Whether no earlier place of the chat is open, now or within `turn_wait`. A longer wait would block a worker.
    pub(super) async fn is_next(
        &self,
        chat: &str,
        position: u64,
        cancel: &CancellationToken,
    ) -> Result<bool, DeliveryError> {
        let started = tokio::time::Instant::now();
        loop {
            if !self.places.is_blocked(chat, position).await? {
                return Ok(true);
            }
            if started.elapsed() >= self.turn_wait {
                return Ok(false);
            }
            tokio::select! {
                () = tokio::time::sleep(EARLIER_POLL_INTERVAL) => {}
                () = cancel.cancelled() => return Err(DeliveryError::Interrupted),
            }
        }
    }

    /// Takes the lease of a chat among all replicas; `None` if another replica has it for more than [`MAX_LEASE_WAIT`].
    /// Earlier deliveries that other workers have get [`EARLIER_GRACE`] to take it first.
    pub(super) async fn take_chat_lease(
        &self,
        account: &PlatformAccount,
        chat: &str,
        order: &Order,
        cancel: &CancellationToken,
    ) -> Result<Option<Lease>, DeliveryError> {
        let started = tokio::time::Instant::now();
        let name = format!("chat\0{chat}");
        let owner = account.tenant.as_ref();
        // Another replica may have the lease of the chat.
        let mut delay = PollDelay::new();
        loop {
            let waited = started.elapsed();
            if waited >= EARLIER_GRACE || !self.index.has_active_before(chat, owner, order) {
                let lease = self.leases.take(&name, CHAT_LEASE).await;
                let lease = lease.map_err(RecordError::Unreachable)?;
                if lease.is_some() || waited >= MAX_LEASE_WAIT {
                    return Ok(lease);
                }
            }
            tokio::select! {
                () = tokio::time::sleep(delay.next_delay()) => {}
                () = cancel.cancelled() => return Err(DeliveryError::Interrupted),
            }
        }
    }
}
