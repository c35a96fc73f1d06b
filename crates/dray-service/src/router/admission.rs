//! Load shedding: bounds how many calls are handled concurrently, in all and for one tenant (bulkhead), and how many
//! may wait (messaging-reliability C-5). It decides immediately; a reader of a subscription never waits here.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dray_types::TenantId;
use tokio::sync::oneshot;

/// Most calls per permit that may wait without a permit. Limits their memory.
const MAX_SUSPENDED_PER_PERMIT: usize = 8;

/// The permits of one service, and the queue for them.
#[derive(Debug)]
pub(crate) struct Admission {
    permits: usize,
    per_tenant: usize,
    state: Mutex<AdmissionState>,
}

#[derive(Debug, Default)]
struct AdmissionState {
    running: usize,
    suspended: usize,
    shares: HashMap<TenantId, TenantShare>,
    queue: VecDeque<QueuedCall>,
}

/// Counts of one tenant: permits, places in the queue, and calls without a permit.
#[derive(Debug, Default)]
struct TenantShare {
    running: usize,
    waiting: usize,
    suspended: usize,
}

#[derive(Debug)]
struct QueuedCall {
    tenant: TenantId,
    grant: oneshot::Sender<CallSlot>,
}

/// Result of a request for admission.
#[derive(Debug)]
pub(crate) enum AdmissionTicket {
    /// A permit is free; the call starts now.
    Now(CallSlot),
    /// The call starts when it gets a permit.
    Wait(oneshot::Receiver<CallSlot>),
    /// There is neither a permit nor room in the queue.
    Full,
}

/// The right to run one call; returned when dropped.
#[derive(Debug)]
pub(crate) struct CallSlot {
    admission: Arc<Admission>,
    tenant: TenantId,
}

/// A call that gave its permit back for a while; it counts until this is dropped.
#[derive(Debug)]
pub(crate) struct SuspendedCall {
    admission: Arc<Admission>,
    tenant: TenantId,
}

impl Admission {
    /// `permits` in all, of which one tenant gets at most `per_tenant`; as many of each may wait.
    pub(crate) fn new(permits: u32, per_tenant: u32) -> Arc<Self> {
        Arc::new(Self {
            permits: permits as usize,
            per_tenant: per_tenant as usize,
            state: Mutex::default(),
        })
    }

    /// Requests a permit. Never waits.
    pub(crate) fn admit(self: &Arc<Self>, tenant: &TenantId) -> AdmissionTicket {
        let mut state = self.lock();
        // Waiters that gave up are removed before the queue is measured: they must not make it look full.
        state.remove_closed_waiters();
        let (running, queued) = (state.running, state.queue.len());
        let share = state.shares.entry(tenant.clone()).or_default();
        if running < self.permits && share.running < self.per_tenant {
            share.running += 1;
            state.running += 1;
            return AdmissionTicket::Now(self.permit(tenant));
        }
        if share.waiting >= self.per_tenant || queued >= self.permits {
            // The entry above may be new.
            state.remove_idle_share(tenant);
            return AdmissionTicket::Full;
        }
        let (waiter, granted) = QueuedCall::new(tenant);
        share.waiting += 1;
        state.queue.push_back(waiter);
        AdmissionTicket::Wait(granted)
    }

    /// Gives the permit to the next call while this one waits. Returns the permit when too many calls wait already.
    pub(crate) fn suspend(self: &Arc<Self>, permit: CallSlot) -> Result<SuspendedCall, CallSlot> {
        let tenant = permit.tenant.clone();
        {
            let mut state = self.lock();
            let is_full = state.suspended >= self.permits * MAX_SUSPENDED_PER_PERMIT;
            let share = state.shares.entry(tenant.clone()).or_default();
            if is_full || share.suspended >= self.per_tenant * MAX_SUSPENDED_PER_PERMIT {
                return Err(permit);
            }
            share.suspended += 1;
            state.suspended += 1;
        }
        // The permit is dropped outside the lock, because the drop takes the lock.
        drop(permit);
        let admission = Arc::clone(self);
        Ok(SuspendedCall { admission, tenant })
    }

    /// Requests a permit for a call that was suspended. It is never refused, and has priority over calls that have not
    /// started.
    pub(crate) fn resume(self: &Arc<Self>, suspension: SuspendedCall) -> AdmissionTicket {
        let tenant = suspension.tenant.clone();
        // The suspension is dropped before the lock is taken, because the drop takes the lock.
        drop(suspension);
        let mut state = self.lock();
        let running = state.running;
        let share = state.shares.entry(tenant.clone()).or_default();
        if running < self.permits && share.running < self.per_tenant {
            share.running += 1;
            state.running += 1;
            return AdmissionTicket::Now(self.permit(&tenant));
        }
        let (waiter, granted) = QueuedCall::new(&tenant);
        share.waiting += 1;
        // Work that has begun holds memory until it ends, so it goes first.
        state.queue.push_front(waiter);
        AdmissionTicket::Wait(granted)
    }

    /// Permits in use, and calls that wait.
    #[cfg(test)]
    fn load(&self) -> (usize, usize) {
        let state = self.lock();
        (state.running, state.queue.len())
    }

    fn permit(self: &Arc<Self>, tenant: &TenantId) -> CallSlot {
        CallSlot {
            admission: Arc::clone(self),
            tenant: tenant.clone(),
        }
    }

    /// Takes back a permit and finds the call that gets the next one.
    fn release(self: &Arc<Self>, tenant: &TenantId) -> Option<(QueuedCall, CallSlot)> {
        let mut state = self.lock();
        state.running = state.running.saturating_sub(1);
        if let Some(share) = state.shares.get_mut(tenant) {
            share.running = share.running.saturating_sub(1);
        }
        state.remove_idle_share(tenant);
        state.remove_closed_waiters();
        // The oldest waiter whose tenant is below its limit: one tenant at its limit does not block the others.
        let next = state.queue.iter().position(|waiter| {
            let share = state.shares.get(&waiter.tenant);
            share.is_none_or(|share| share.running < self.per_tenant)
        })?;
        let waiter = state.queue.remove(next)?;
        let share = state.shares.entry(waiter.tenant.clone()).or_default();
        share.waiting = share.waiting.saturating_sub(1);
        share.running += 1;
        state.running += 1;
        // The permit is handed out after the lock is released: a failed send drops the permit, which takes the lock.
        let permit = self.permit(&waiter.tenant);
        Some((waiter, permit))
    }

    fn lock(&self) -> MutexGuard<'_, AdmissionState> {
        // The code under the lock does not panic. If it did, the counts would still be usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AdmissionState {
    /// Removes waiters that gave up, so that they take no room in the queue.
    fn remove_closed_waiters(&mut self) {
        let mut closed = Vec::new();
        self.queue.retain(|waiter| {
            let is_waiting = !waiter.grant.is_closed();
            if !is_waiting {
                closed.push(waiter.tenant.clone());
            }
            is_waiting
        });
        for tenant in closed {
            if let Some(share) = self.shares.get_mut(&tenant) {
                share.waiting = share.waiting.saturating_sub(1);
            }
            self.remove_idle_share(&tenant);
        }
    }

    /// Removes the counts of a tenant without calls, so the map does not grow with tenants.
    fn remove_idle_share(&mut self, tenant: &TenantId) {
        if self
            .shares
            .get(tenant)
            .is_some_and(|share| share.running + share.waiting + share.suspended == 0)
        {
            self.shares.remove(tenant);
        }
    }
}

impl QueuedCall {
    fn new(tenant: &TenantId) -> (Self, oneshot::Receiver<CallSlot>) {
        let (grant, granted) = oneshot::channel();
        let tenant = tenant.clone();
        (Self { tenant, grant }, granted)
    }
}

impl CallSlot {
    /// The admission that issued the permit.
    pub(super) fn admission(&self) -> Arc<Admission> {
        Arc::clone(&self.admission)
    }
}

impl Drop for SuspendedCall {
    fn drop(&mut self) {
        let mut state = self.admission.lock();
        state.suspended = state.suspended.saturating_sub(1);
        if let Some(share) = state.shares.get_mut(&self.tenant) {
            share.suspended = share.suspended.saturating_sub(1);
        }
        state.remove_idle_share(&self.tenant);
    }
}

impl Drop for CallSlot {
    fn drop(&mut self) {
        if let Some((waiter, permit)) = self.admission.release(&self.tenant) {
            // A waiter that has just given up hands the permit back, which drops it here and finds the next.
            drop(waiter.grant.send(permit));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl AdmissionTicket {
        fn is_now(&self) -> bool {
            matches!(self, Self::Now(_))
        }
    }

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name).unwrap()
    }

    fn now(ticket: AdmissionTicket) -> CallSlot {
        match ticket {
            AdmissionTicket::Now(permit) => permit,
            other => panic!("expected a permit, got {other:?}"),
        }
    }

    fn wait(ticket: AdmissionTicket) -> oneshot::Receiver<CallSlot> {
        match ticket {
            AdmissionTicket::Wait(granted) => granted,
            other => panic!("expected a place in the queue, got {other:?}"),
        }
    }

    #[test]
    fn calls_get_permits_then_places_in_the_queue_then_refusals() {
        let admission = Admission::new(2, 2);
        let (a, b) = (tenant("a"), tenant("b"));
        let first = now(admission.admit(&a));
        let _second = now(admission.admit(&b));
        let mut third = wait(admission.admit(&a));
        let _fourth = wait(admission.admit(&b));
        assert!(matches!(admission.admit(&a), AdmissionTicket::Full));
        assert_eq!(admission.load(), (2, 2));
        drop(first);
        assert!(
            third.try_recv().is_ok(),
            "the first in the queue gets the permit"
        );
    }

    #[test]
    fn one_tenant_cannot_fill_the_queue_of_others() {
        let admission = Admission::new(3, 1);
        let (a, b) = (tenant("a"), tenant("b"));
        let permit = now(admission.admit(&a));
        let mut waiting = wait(admission.admit(&a));
        assert!(
            matches!(admission.admit(&a), AdmissionTicket::Full),
            "its share of the queue is full too"
        );
        let other = now(admission.admit(&b));
        drop(other);
        assert!(waiting.try_recv().is_err(), "a does not get b's permit");
        drop(permit);
        assert!(waiting.try_recv().is_ok());
    }

    #[test]
    fn a_suspended_call_leaves_its_permit_to_others_and_resumes_before_new_calls() {
        let admission = Admission::new(1, 1);
        let (slow, other) = (tenant("slow"), tenant("other"));
        let suspension = admission.suspend(now(admission.admit(&slow))).unwrap();
        let running = now(admission.admit(&other));
        let mut queued = wait(admission.admit(&tenant("queued")));
        let mut resumed = wait(admission.resume(suspension));
        drop(running);
        assert!(queued.try_recv().is_err());
        drop(resumed.try_recv().unwrap());
        drop(queued.try_recv().unwrap());
        assert_eq!(admission.load(), (0, 0));
        assert!(admission.lock().shares.is_empty());
    }

    #[test]
    fn a_call_keeps_its_permit_when_too_many_are_suspended() {
        let admission = Admission::new(1, 1);
        let slow = tenant("slow");
        let suspended: Vec<_> = (0..MAX_SUSPENDED_PER_PERMIT)
            .map(|_| admission.suspend(now(admission.admit(&slow))).unwrap())
            .collect();
        let permit = admission.suspend(now(admission.admit(&slow))).unwrap_err();
        assert_eq!(admission.load(), (1, 0));
        drop(suspended);
        drop(admission.suspend(permit).unwrap());
        assert!(admission.lock().shares.is_empty());
    }

    #[test]
    fn a_waiter_that_gave_up_uses_no_place_and_no_permit() {
        let admission = Admission::new(1, 1);
        let (a, b) = (tenant("a"), tenant("b"));
        let permits = now(admission.admit(&a));
        drop(wait(admission.admit(&a)));
        let mut next = wait(admission.admit(&b));
        drop(permits);
        let permit = next.try_recv().unwrap();
        assert_eq!(admission.load(), (1, 0));
        drop(permit);
        assert_eq!(admission.load(), (0, 0));
        assert!(
            admission.lock().shares.is_empty(),
            "idle tenants are forgotten"
        );
    }

    /// One step of a random sequence of requests.
    #[derive(Clone, Debug)]
    enum LoadStep {
        Arrive(u8),
        /// A holder of a permit, by index modulo their number, returns it.
        Finish(usize),
        /// A waiter stops waiting; its index is taken modulo their number.
        GiveUp(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<LoadStep>> {
        let step = prop_oneof![
            3 => (0..4_u8).prop_map(LoadStep::Arrive),
            2 => any::<usize>().prop_map(LoadStep::Finish),
            1 => any::<usize>().prop_map(LoadStep::GiveUp),
        ];
        prop::collection::vec(step, 0..80)
    }

    fn take<T>(from: &mut Vec<T>, index: usize) -> Option<T> {
        (!from.is_empty()).then(|| from.swap_remove(index % from.len()))
    }

    proptest! {
        #[test]
        fn limits_hold_and_no_call_waits_beside_a_free_permit(permits in 1..6_u32, share in 1..6_u32, steps in steps()) {
            let admission = Admission::new(permits, share);
            let mut held_permits = Vec::new();
            let mut waiting = Vec::new();
            for step in steps {
                match step {
                    LoadStep::Arrive(name) => match admission.admit(&tenant(&name.to_string())) {
                        AdmissionTicket::Now(permit) => held_permits.push(permit),
                        AdmissionTicket::Wait(granted) => waiting.push((name, granted)),
                        AdmissionTicket::Full => {}
                    },
                    LoadStep::Finish(index) => drop(take(&mut held_permits, index)),
                    LoadStep::GiveUp(index) => drop(take(&mut waiting, index)),
                }
                let mut still_waiting = Vec::new();
                for (name, mut granted) in waiting {
                    match granted.try_recv() {
                        Ok(permit) => held_permits.push(permit),
                        Err(_) => still_waiting.push((name, granted)),
                    }
                }
                waiting = still_waiting;
                let of = |name: u8| held_permits.iter().filter(|permit| permit.tenant.as_str() == name.to_string()).count();
                prop_assert!(held_permits.len() <= permits as usize);
                prop_assert!(waiting.len() <= permits as usize);
                prop_assert_eq!(admission.load().0, held_permits.len());
                for name in 0..4 {
                    prop_assert!(of(name) <= share as usize);
                }
                for (name, _) in &waiting {
                    let full = held_permits.len() == permits as usize || of(*name) == share as usize;
                    prop_assert!(full, "{name} waits although a permit is free");
                }
            }
            drop((held_permits, waiting));
            prop_assert!(admission.admit(&tenant("last")).is_now());
            let state = admission.lock();
            prop_assert!(state.running == 0 && state.queue.is_empty());
        }
    }
}
