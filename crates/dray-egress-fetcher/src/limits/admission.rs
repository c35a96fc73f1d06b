//! Assigns free slots: by tenant, then app, then host, fairly at each level.
//!
//! Whenever a slot or an address becomes free, the next waiting hop is that of the tenant with the fewest running hops;
//! among these, of the app with the fewest; among these, that to the host with the fewest. Equals take turns, and the
//! oldest is first. Hops that cannot run, because their app, host or address is at its limit, are skipped.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::{AdmissionLimits, QueueFull};

/// The hop for which a slot is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotRequest {
    /// The tenant of the fetch.
    pub tenant: String,
    /// The app of the tenant.
    pub app: String,
    /// The host of the hop's URL.
    pub host: String,
    /// The order of arrival of the fetch, from [`super::FetchAdmission::next_turn`].
    pub turn: u64,
    /// Whether the fetch ran before and continues: it waits even when the queue is full.
    pub continues: bool,
}

/// Key of a tenant, of an app of a tenant, or of a host for an app of a tenant.
type ShareKey = (String, Option<String>, Option<String>);

type SlotGrant = (FetchSlot, Option<AddressSlot>);

/// The slots of one process.
#[derive(Debug)]
pub(super) struct SlotTable {
    state: Mutex<SlotState>,
}

#[derive(Debug, Default)]
struct SlotState {
    sizes: AdmissionLimits,
    running: usize,
    shares: HashMap<ShareKey, ShareCounts>,
    /// Hops that run, by host.
    hosts: TargetCounts<String>,
    /// Open connections, by address.
    addresses: TargetCounts<IpAddr>,
    /// Hops that wait, by their turn.
    queue: BTreeMap<u64, QueuedFetch>,
    turns: u64,
    grants: u64,
}

/// A tenant, and a host or address to which it connects.
type TargetKey<K> = (String, K);

/// Counts by target: of all tenants, and of each.
#[derive(Debug)]
struct TargetCounts<K> {
    all: HashMap<K, usize>,
    of_tenants: HashMap<TargetKey<K>, usize>,
}

impl<K> Default for TargetCounts<K> {
    fn default() -> Self {
        Self {
            all: HashMap::new(),
            of_tenants: HashMap::new(),
        }
    }
}

impl<K: Clone + Eq + Hash> TargetCounts<K> {
    /// Whether the tenant may have one more of `limit`. Where tenants share, it must hold fewer than are free.
    fn has_room(&self, key: &TargetKey<K>, limit: usize, is_shared: bool) -> bool {
        let free = limit.saturating_sub(count_of(&self.all, &key.1));
        let held = if is_shared {
            count_of(&self.of_tenants, key)
        } else {
            0
        };
        held < free
    }

    fn add_one(&mut self, key: &TargetKey<K>) {
        *self.all.entry(key.1.clone()).or_default() += 1;
        *self.of_tenants.entry(key.clone()).or_default() += 1;
    }

    fn remove_one(&mut self, key: &TargetKey<K>) {
        decrement_count(&mut self.all, &key.1);
        decrement_count(&mut self.of_tenants, key);
    }
}

/// Counts of one tenant, app or host of an app.
#[derive(Clone, Copy, Debug, Default)]
struct ShareCounts {
    running: usize,
    waiting: usize,
    /// Number of its last grant: equals take turns.
    last_grant: u64,
}

#[derive(Debug)]
struct QueuedFetch {
    claim: SlotClaim,
    grant: oneshot::Sender<SlotGrant>,
}

/// Everything that a hop needs to run, as one claim.
#[derive(Clone, Debug)]
struct SlotClaim {
    /// Keys of tenant, app and host, in the order of fairness.
    keys: [ShareKey; 3],
    host: TargetKey<String>,
    address: Option<TargetKey<IpAddr>>,
}

impl SlotClaim {
    fn new(request: SlotRequest, address: Option<IpAddr>) -> Self {
        let SlotRequest {
            tenant, app, host, ..
        } = request;
        Self {
            keys: [
                (tenant.clone(), None, None),
                (tenant.clone(), Some(app.clone()), None),
                (tenant.clone(), Some(app), Some(host.clone())),
            ],
            address: address.map(|address| (tenant.clone(), address)),
            host: (tenant, host),
        }
    }
}

/// The right to run one hop. Dropping it returns the slot.
#[derive(Debug)]
pub struct FetchSlot {
    admission: Arc<SlotTable>,
    claim: SlotClaim,
}

impl Drop for FetchSlot {
    fn drop(&mut self) {
        self.admission.release(|state| state.give_back(&self.claim));
    }
}

/// One of the connections that an address may have. Dropping it returns the slot.
#[derive(Debug)]
pub struct AddressSlot {
    admission: Arc<SlotTable>,
    key: TargetKey<IpAddr>,
}

impl AddressSlot {
    /// The tenant of the connection.
    pub fn tenant(&self) -> &str {
        &self.key.0
    }
}

impl Drop for AddressSlot {
    fn drop(&mut self) {
        self.admission
            .release(|state| state.addresses.remove_one(&self.key));
    }
}

/// Leaves the queue when it is dropped, even by cancellation.
struct QueueGuard<'a> {
    admission: &'a SlotTable,
    turn: u64,
}

impl Drop for QueueGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.admission.lock();
        if let Some(waiter) = state.queue.remove(&self.turn) {
            state.left_queue(&waiter.claim);
        }
    }
}

impl SlotTable {
    pub(super) fn new(sizes: AdmissionLimits) -> Arc<Self> {
        let state = SlotState {
            sizes,
            ..SlotState::default()
        };
        Arc::new(Self {
            state: Mutex::new(state),
        })
    }

    /// Replaces the limits. Hops that exceed the new limits keep their slots, and waiting hops that fit into them get
    /// slots.
    pub(super) fn set_sizes(self: &Arc<Self>, sizes: AdmissionLimits) {
        self.release(|state| state.sizes = sizes);
    }

    pub(super) fn next_turn(&self) -> u64 {
        let mut state = self.lock();
        state.turns += 1;
        state.turns
    }

    pub(super) fn waiting(&self) -> usize {
        self.lock().queue.len()
    }

    /// Returns a slot now, or when the turn comes. Dropping the future leaves the queue.
    pub(super) async fn admit(
        self: Arc<Self>,
        request: SlotRequest,
        address: Option<IpAddr>,
    ) -> Result<SlotGrant, QueueFull> {
        let (turn, continues) = (request.turn, request.continues);
        let claim = SlotClaim::new(request, address);
        let (grant, granted) = oneshot::channel();
        let displaced = {
            // One lock covers the check and the entry: a slot that becomes free in between finds this waiter in the
            // queue.
            let mut state = self.lock();
            if state.is_admissible(&claim) {
                state.take(&claim);
                drop(state);
                return Ok(self.grant(claim));
            }
            let displaced = if continues {
                None
            } else {
                state.make_room(&claim)?
            };
            state.enter_queue(&claim);
            state.queue.insert(turn, QueuedFetch { claim, grant });
            displaced
        };
        // The displaced entry is dropped outside the lock. Dropping its sender refuses the hop that waits on it.
        drop(displaced);
        let _guard = QueueGuard {
            admission: &self,
            turn,
        };
        granted.await.map_err(|_| QueueFull)
    }

    pub(super) fn try_address(
        self: &Arc<Self>,
        address: IpAddr,
        tenant: &str,
    ) -> Option<AddressSlot> {
        let key = (tenant.to_owned(), address);
        let mut state = self.lock();
        if !state.has_room_at(&key) {
            return None;
        }
        state.addresses.add_one(&key);
        Some(self.address_slot(key))
    }

    fn grant(self: &Arc<Self>, claim: SlotClaim) -> SlotGrant {
        let address_slot = claim.address.clone().map(|key| self.address_slot(key));
        let slot = FetchSlot {
            admission: Arc::clone(self),
            claim,
        };
        (slot, address_slot)
    }

    fn address_slot(self: &Arc<Self>, key: TargetKey<IpAddr>) -> AddressSlot {
        AddressSlot {
            admission: Arc::clone(self),
            key,
        }
    }

    /// Returns a slot by `give_back`, and grants slots to all waiters that can run now.
    fn release(self: &Arc<Self>, give_back: impl FnOnce(&mut SlotState)) {
        let mut granted = Vec::new();
        // The lock ends with this block, because a grant without a receiver is dropped below, which locks again.
        {
            let mut state = self.lock();
            give_back(&mut state);
            while let Some(waiter) = state.next() {
                granted.push(waiter);
            }
        }
        for QueuedFetch { claim, grant } in granted {
            // If the waiting hop has just given up, its slot is returned and finds the next hop.
            drop(grant.send(self.grant(claim)));
        }
    }

    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotState {
    /// Whether the claim fits into every limit. A tenant gets another slot while it holds fewer than are free, so that
    /// the next tenant finds one.
    fn is_admissible(&self, claim: &SlotClaim) -> bool {
        let sizes = &self.sizes;
        let [tenant, app, _] = claim.keys.each_ref().map(|key| self.share(key).running);
        let free = sizes.global.saturating_sub(self.running);
        tenant < free.min(sizes.per_tenant)
            && app < sizes.per_app
            && self
                .hosts
                .has_room(&claim.host, sizes.per_host, sizes.shares_targets)
            && claim
                .address
                .as_ref()
                .is_none_or(|key| self.has_room_at(key))
    }

    /// Whether a tenant may have another connection to an address.
    fn has_room_at(&self, key: &TargetKey<IpAddr>) -> bool {
        let sizes = &self.sizes;
        self.addresses
            .has_room(key, sizes.per_address, sizes.shares_targets)
    }

    /// Removes the next hop that can run from the queue, and counts it as running.
    fn next(&mut self) -> Option<QueuedFetch> {
        let turn = self
            .queue
            .iter()
            .filter(|(_, waiter)| self.is_admissible(&waiter.claim))
            .min_by_key(|(turn, waiter)| {
                let shares = waiter.claim.keys.each_ref().map(|key| self.share(key));
                (
                    shares.map(|share| (share.running, share.last_grant)),
                    **turn,
                )
            })
            .map(|(turn, _)| *turn)?;
        let waiter = self.queue.remove(&turn)?;
        self.take(&waiter.claim);
        self.left_queue(&waiter.claim);
        Some(waiter)
    }

    /// Makes room for one more hop in a full queue. The candidate for removal is the newest waiting hop of the tenant
    /// with the most waiting hops, and within one tenant of the app with the most. It is removed only if its tenant (or
    /// app, within one tenant) then still has as many waiting hops as that of the new hop.
    fn make_room(&mut self, claim: &SlotClaim) -> Result<Option<QueuedFetch>, QueueFull> {
        if self.queue.len() < self.sizes.queue {
            return Ok(None);
        }
        let waiting = |claim: &SlotClaim| {
            let [tenant, app, _] = claim.keys.each_ref().map(|key| self.share(key).waiting);
            (tenant, app)
        };
        // The scan is as long as the queue, which is bounded.
        let (turn, heaviest) = self
            .queue
            .iter()
            .map(|(turn, waiter)| (waiting(&waiter.claim), *turn, &waiter.claim))
            .max_by_key(|(waiting, turn, _)| (*waiting, *turn))
            .map(|(_, turn, claim)| (turn, claim))
            .ok_or(QueueFull)?;
        let ((their_tenant, their_app), (tenant, app)) = (waiting(heaviest), waiting(claim));
        let is_same_tenant = heaviest.keys.first() == claim.keys.first();
        let is_fairer = if is_same_tenant {
            their_app > app + 1
        } else {
            their_tenant > tenant + 1
        };
        if !is_fairer {
            return Err(QueueFull);
        }
        let displaced = self.queue.remove(&turn);
        if let Some(waiter) = &displaced {
            self.left_queue(&waiter.claim);
        }
        Ok(displaced)
    }

    fn take(&mut self, claim: &SlotClaim) {
        self.running += 1;
        self.grants += 1;
        for key in &claim.keys {
            let share = self.shares.entry(key.clone()).or_default();
            share.running += 1;
            share.last_grant = self.grants;
        }
        self.hosts.add_one(&claim.host);
        if let Some(key) = &claim.address {
            self.addresses.add_one(key);
        }
    }

    /// Returns the slot, but not the address, which has a guard of its own.
    fn give_back(&mut self, claim: &SlotClaim) {
        self.running = self.running.saturating_sub(1);
        self.hosts.remove_one(&claim.host);
        self.change(claim, |share| {
            share.running = share.running.saturating_sub(1);
        });
    }

    fn enter_queue(&mut self, claim: &SlotClaim) {
        for key in &claim.keys {
            self.shares.entry(key.clone()).or_default().waiting += 1;
        }
    }

    fn left_queue(&mut self, claim: &SlotClaim) {
        self.change(claim, |share| {
            share.waiting = share.waiting.saturating_sub(1);
        });
    }

    /// Changes the shares of a claim and removes unused ones.
    fn change(&mut self, claim: &SlotClaim, change: impl Fn(&mut ShareCounts)) {
        for key in &claim.keys {
            if let Some(share) = self.shares.get_mut(key) {
                change(share);
                // Hosts are named by agents: kept shares would grow with every host ever fetched.
                if share.running == 0 && share.waiting == 0 {
                    self.shares.remove(key);
                }
            }
        }
    }

    fn share(&self, key: &ShareKey) -> ShareCounts {
        self.shares.get(key).copied().unwrap_or_default()
    }
}

fn count_of<K: Eq + Hash>(counts: &HashMap<K, usize>, key: &K) -> usize {
    counts.get(key).copied().unwrap_or_default()
}

fn decrement_count<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
impl super::FetchAdmission {
    /// Whether no count and no waiter is left.
    pub(super) fn is_empty(&self) -> bool {
        let state = self.admission.lock();
        state.running == 0
            && state.shares.is_empty()
            && state.hosts.all.is_empty()
            && state.hosts.of_tenants.is_empty()
            && state.addresses.all.is_empty()
            && state.addresses.of_tenants.is_empty()
            && state.queue.is_empty()
    }
}
