//! Limits on concurrent work (egress-security 15).
//!
//! A hop holds a slot from before it asks DNS until its response is received. Slots are assigned by tenant, then app,
//! then host, fairly at each level (`admission`). A hop that waits for a slot or for its address holds none.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

mod admission;
mod breaker;
pub mod quota;

use admission::SlotTable;
pub use admission::{AddressSlot, FetchSlot, SlotRequest};
pub use breaker::CircuitBreaker;
pub use quota::{QuotaExceeded, QuotaLease, QuotaTable, TakenBytes};

/// Bounds on what runs and waits concurrently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionLimits {
    /// Hops in the whole process. A tenant gets another slot while it holds fewer than are free.
    pub global: usize,
    /// Hops of one tenant, which the rule of `global` bounds too.
    pub per_tenant: usize,
    /// Hops to one host, for all tenants together.
    pub per_host: usize,
    /// Connections to one resolved address.
    pub per_address: usize,
    /// Whether a tenant gets another one of these two only while it holds fewer than are free. Connections of the proxy
    /// last for hours, and one tenant must not hold all to a host.
    pub shares_targets: bool,
    /// Hops for one app of a tenant.
    pub per_app: usize,
    /// Hops that wait for any of these.
    pub queue: usize,
}

impl Default for AdmissionLimits {
    fn default() -> Self {
        Self {
            global: 64,
            per_tenant: usize::MAX,
            per_host: 4,
            per_address: 8,
            shares_targets: false,
            per_app: 16,
            queue: 256,
        }
    }
}

/// The queue is full, or the waiter was displaced from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many fetches are waiting")]
pub struct QueueFull;

/// Slots and their holders. Clones share them.
#[derive(Clone, Debug)]
pub struct FetchAdmission {
    admission: Arc<SlotTable>,
    commands: Arc<AtomicUsize>,
    max_commands: Arc<AtomicUsize>,
    breaker: CircuitBreaker,
}

/// Counts a command from its arrival to its reply; dropping the value ends the count.
#[derive(Debug)]
pub struct CommandGuard(Arc<AtomicUsize>);

impl Drop for CommandGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl FetchAdmission {
    /// Starts with all slots free and every target allowed.
    pub fn new(sizes: AdmissionLimits) -> Self {
        Self {
            admission: SlotTable::new(sizes),
            commands: Arc::default(),
            max_commands: Arc::new(AtomicUsize::new(max_commands(sizes))),
            breaker: CircuitBreaker::default(),
        }
    }

    /// Replaces the limits. What runs or waits stays.
    pub fn set_sizes(&self, sizes: AdmissionLimits) {
        self.max_commands
            .store(max_commands(sizes), Ordering::Relaxed);
        self.admission.set_sizes(sizes);
    }

    /// Counts a command, or refuses it immediately when there are far too many.
    ///
    /// # Errors
    ///
    /// [`QueueFull`] with twice as many commands as may run and wait.
    pub fn enter(&self) -> Result<CommandGuard, QueueFull> {
        let before = self.commands.fetch_add(1, Ordering::Relaxed);
        // The guard is made before the check, so that a refused command is counted down as well.
        let guard = CommandGuard(Arc::clone(&self.commands));
        if before >= self.max_commands.load(Ordering::Relaxed) {
            return Err(QueueFull);
        }
        Ok(guard)
    }

    /// The position of a fetch in the order of arrival, which it keeps for all its hops.
    pub fn next_turn(&self) -> u64 {
        self.admission.next_turn()
    }

    /// A slot for a hop. Waits without deadline; dropping the future leaves the queue.
    ///
    /// # Errors
    ///
    /// [`QueueFull`] when it cannot wait either, or when it was displaced by a tenant or app that waits less.
    pub async fn slot(&self, request: SlotRequest) -> Result<FetchSlot, QueueFull> {
        let (slot, _) = Arc::clone(&self.admission).admit(request, None).await?;
        Ok(slot)
    }

    /// A slot together with a place among the connections to `address`.
    ///
    /// # Errors
    ///
    /// Those of [`FetchAdmission::slot`].
    pub async fn slot_with_address(
        &self,
        request: SlotRequest,
        address: IpAddr,
    ) -> Result<(FetchSlot, AddressSlot), QueueFull> {
        let admission = Arc::clone(&self.admission);
        let (slot, address_slot) = admission.admit(request, Some(address)).await?;
        Ok((slot, address_slot.ok_or(QueueFull)?))
    }

    /// Returns a place among the connections to `address`, if one is free for the tenant.
    pub fn try_address(&self, address: IpAddr, tenant: &str) -> Option<AddressSlot> {
        self.admission.try_address(address, tenant)
    }

    /// The breaker, which refuses some targets for a while.
    pub const fn breaker(&self) -> &CircuitBreaker {
        &self.breaker
    }

    /// Number of hops that wait for a slot.
    pub fn waiting(&self) -> usize {
        self.admission.waiting()
    }
}

/// Twice as many as can run and wait: commands that ended or were refused still publish their audit event.
const fn max_commands(sizes: AdmissionLimits) -> usize {
    2 * (sizes.global + sizes.queue)
}

#[cfg(test)]
mod tests;
