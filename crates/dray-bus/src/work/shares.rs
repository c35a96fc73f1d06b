//! Fair shares of the tenants of one work loop: which message starts, which one is held, which one is returned.
//!
//! Pure decisions, without a bus. The tenant with the least running work starts next; tenants with equally much take
//! turns. Some slots are reserved for tenants without running work, so that a tenant with slow work cannot use all
//! slots.

use std::collections::{HashMap, VecDeque};

/// Most held messages per slot. Limits their memory: a message has at most 128 KiB.
const MAX_HELD_PER_SLOT: usize = 4;
/// One of this many slots is reserved for tenants without running work.
const SLOTS_PER_RESERVED: usize = 6;

/// The slots of one loop, and the messages that wait for one in this process.
#[derive(Debug)]
pub(super) struct TenantShares<M> {
    slots: usize,
    running: usize,
    held: usize,
    starts: u64,
    tenants: HashMap<String, TenantWork<M>>,
}

#[derive(Debug)]
struct TenantWork<M> {
    running: usize,
    /// Messages in the order of arrival.
    held: VecDeque<M>,
    /// Number of the last start of this tenant's work. Among tenants with equally much running work, the lowest number
    /// starts next.
    last_start: u64,
}

impl<M> Default for TenantWork<M> {
    fn default() -> Self {
        Self {
            running: 0,
            held: VecDeque::new(),
            last_start: 0,
        }
    }
}

impl<M> TenantShares<M> {
    /// Uses at least one slot: with none, the loop would wait forever and seem healthy.
    pub(super) fn new(slots: usize) -> Self {
        Self {
            slots: slots.max(1),
            running: 0,
            held: 0,
            starts: 0,
            tenants: HashMap::new(),
        }
    }

    /// Messages of any tenant that could start now; 0 while some wait here.
    pub(super) fn startable(&self) -> usize {
        if self.held > 0 {
            return 0;
        }
        self.free().saturating_sub(self.reserved())
    }

    /// Queues a message. If the queue is full, returns the message that goes back to the server: this one, or the
    /// newest message of a tenant that has more of them in the queue.
    pub(super) fn hold(&mut self, tenant: &str, message: M) -> Option<M> {
        let free = self.free();
        let (running, held) = self.counts(tenant);
        let starts_now = running == 0 && held == 0 && free > 0;
        if held >= self.slots {
            return Some(message);
        }
        let displaced = if starts_now || self.held < self.slots * MAX_HELD_PER_SLOT {
            None
        } else {
            match self.displace(held) {
                Some(displaced) => Some(displaced),
                None => return Some(message),
            }
        };
        let work = self.tenants.entry(tenant.to_owned()).or_default();
        work.held.push_back(message);
        self.held += 1;
        displaced
    }

    /// The next message that starts, with its tenant. Its slot is in use until [`Self::finish`].
    pub(super) fn start_next(&mut self) -> Option<(String, M)> {
        let free = self.free();
        let (tenant, running) = self
            .tenants
            .iter()
            .filter(|(_, work)| !work.held.is_empty())
            .min_by_key(|(_, work)| (work.running, work.last_start))
            .map(|(tenant, work)| (tenant.clone(), work.running))?;
        // This tenant has the least running work: if it may not start, no other tenant may.
        let kept_free = if running == 0 { 0 } else { self.reserved() };
        if free <= kept_free {
            return None;
        }
        self.starts += 1;
        let work = self.tenants.get_mut(&tenant)?;
        let message = work.held.pop_front()?;
        work.running += 1;
        work.last_start = self.starts;
        self.running += 1;
        self.held -= 1;
        Some((tenant, message))
    }

    /// Frees the slot of a started message that has ended.
    pub(super) fn finish(&mut self, tenant: &str) {
        self.running = self.running.saturating_sub(1);
        if let Some(work) = self.tenants.get_mut(tenant) {
            work.running = work.running.saturating_sub(1);
        }
        self.forget_idle(tenant);
    }

    /// The messages that wait here.
    pub(super) fn held(&self) -> impl Iterator<Item = &M> {
        self.tenants.values().flat_map(|work| &work.held)
    }

    /// Removes and returns the messages that wait here.
    pub(super) fn take_held(&mut self) -> Vec<M> {
        let messages = self
            .tenants
            .values_mut()
            .flat_map(|work| work.held.drain(..))
            .collect();
        self.held = 0;
        self.tenants.retain(|_, work| work.running > 0);
        messages
    }

    fn free(&self) -> usize {
        self.slots.saturating_sub(self.running)
    }

    fn reserved(&self) -> usize {
        match self.slots {
            1 => 0,
            slots => (slots / SLOTS_PER_RESERVED).max(1),
        }
    }

    fn counts(&self, tenant: &str) -> (usize, usize) {
        self.tenants
            .get(tenant)
            .map_or((0, 0), |work| (work.running, work.held.len()))
    }

    /// Removes and returns the newest message of the tenant that holds the most messages, if that tenant then still
    /// holds more than `newcomer_held`.
    fn displace(&mut self, newcomer_held: usize) -> Option<M> {
        let (tenant, work) = self
            .tenants
            .iter_mut()
            .max_by_key(|(_, work)| work.held.len())?;
        if work.held.len() <= newcomer_held + 1 {
            return None;
        }
        let displaced = work.held.pop_back()?;
        self.held -= 1;
        let tenant = tenant.clone();
        self.forget_idle(&tenant);
        Some(displaced)
    }

    /// Removes the counts of a tenant without messages, so that the map does not grow with tenants.
    fn forget_idle(&mut self, tenant: &str) {
        if self.counts(tenant) == (0, 0) {
            self.tenants.remove(tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn start_all(shares: &mut TenantShares<u32>) -> Vec<String> {
        std::iter::from_fn(|| shares.start_next())
            .map(|(tenant, _)| tenant)
            .collect()
    }

    fn hold_many(shares: &mut TenantShares<u32>, tenant: &str, count: u32) -> usize {
        (0..count)
            .filter(|number| shares.hold(tenant, *number).is_none())
            .count()
    }

    #[test]
    fn a_tenant_alone_leaves_a_slot_for_the_next_one() {
        let mut shares = TenantShares::new(12);
        assert_eq!(hold_many(&mut shares, "a", 30), 12);
        assert_eq!(start_all(&mut shares).len(), 10);
        assert_eq!(shares.startable(), 0);
        assert_eq!(shares.hold("b", 0), None);
        assert_eq!(shares.hold("b", 1), None);
        assert_eq!(start_all(&mut shares), ["b"], "its second one waits");
        assert_eq!(shares.hold("c", 0), None);
        assert_eq!(start_all(&mut shares), ["c"]);
    }

    #[test]
    fn a_slot_that_becomes_free_goes_to_the_tenant_that_runs_least() {
        let mut shares = TenantShares::new(6);
        hold_many(&mut shares, "a", 6);
        assert_eq!(start_all(&mut shares).len(), 5);
        hold_many(&mut shares, "b", 6);
        assert_eq!(start_all(&mut shares), ["b"]);
        let mut order = Vec::new();
        for _ in 0..4 {
            shares.finish("a");
            order.extend(start_all(&mut shares));
        }
        // The first free slot is reserved again; tenants with equally much running work get the others in turn.
        assert_eq!(order, ["b", "a", "b"]);
    }

    #[test]
    fn messages_of_one_tenant_start_in_the_order_in_which_they_came() {
        let mut shares = TenantShares::new(2);
        hold_many(&mut shares, "a", 2);
        assert_eq!(shares.start_next(), Some(("a".to_owned(), 0)));
        assert_eq!(shares.start_next(), None, "the other slot is reserved");
        shares.finish("a");
        assert_eq!(shares.start_next(), Some(("a".to_owned(), 1)));
    }

    #[test]
    fn a_newcomer_displaces_the_newest_message_of_the_tenant_that_holds_most() {
        let mut shares = TenantShares::new(2);
        for tenant in ["a", "b", "c", "d", "e"] {
            hold_many(&mut shares, tenant, 2);
            while shares.start_next().is_some() {}
        }
        assert_eq!(shares.held().count(), 2 * MAX_HELD_PER_SLOT);
        assert_eq!(shares.hold("f", 7), Some(1), "the newest of another tenant");
        assert_eq!(
            shares.hold("f", 8),
            Some(8),
            "no tenant holds more than two"
        );
        assert_eq!(shares.take_held().len(), 2 * MAX_HELD_PER_SLOT);
        shares.finish("a");
        shares.finish("b");
        assert!(shares.tenants.is_empty(), "idle tenants are forgotten");
    }

    /// A step of the sequence that a loop goes through.
    #[derive(Clone, Debug)]
    enum LoopStep {
        Arrive(u8),
        /// A running message, by index modulo their number, ends.
        End(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<LoopStep>> {
        let step = prop_oneof![
            3 => (0..6_u8).prop_map(LoopStep::Arrive),
            2 => any::<usize>().prop_map(LoopStep::End),
        ];
        prop::collection::vec(step, 0..200)
    }

    proptest! {
        #[test]
        fn no_message_is_lost_and_no_tenant_waits_while_a_slot_is_free_for_it(slots in 1..9_usize, steps in steps()) {
            let mut shares = TenantShares::new(slots);
            let mut running: Vec<String> = Vec::new();
            let (mut arrived, mut returned, mut ended) = (0_usize, 0, 0);
            for step in steps {
                match step {
                    LoopStep::Arrive(tenant) => {
                        arrived += 1;
                        returned += usize::from(shares.hold(&tenant.to_string(), arrived).is_some());
                    }
                    LoopStep::End(index) if !running.is_empty() => {
                        let tenant = running.swap_remove(index % running.len());
                        shares.finish(&tenant);
                        ended += 1;
                    }
                    LoopStep::End(_) => {}
                }
                running.extend(std::iter::from_fn(|| shares.start_next()).map(|(tenant, _)| tenant));
                prop_assert!(running.len() <= slots);
                prop_assert!(shares.held().count() <= slots * MAX_HELD_PER_SLOT);
                prop_assert_eq!(running.len() + shares.held().count() + returned + ended, arrived);
                for (tenant, work) in &shares.tenants {
                    prop_assert!(
                        work.held.is_empty() || work.running > 0 || running.len() == slots,
                        "{tenant} waits although a slot is free"
                    );
                }
            }
        }
    }
}
