//! Sweeps of the cache (platform-delivery 12), which stores files during their transfer between sandboxes and people.
//!
//! An object stays while an unfinished delivery needs it, while a link to it is valid, and for its lifetime after its
//! last use. If the cache is larger than its limit, the least recently used objects are removed first. The records of
//! deliveries decide which objects are needed; a separate index could disagree with them.
//!
//! One replica sweeps at a time. Concurrent sweeps would be harmless, because removing a missing object is not an
//! error.

mod claims;
mod clock_jump;
mod gathering;
mod metrics;
mod object_needs;
mod plan;

use std::sync::Arc;
use std::time::Duration;

use dray_bus::KeyError;
use dray_store::{CachedObject, RequestError, Store};
use dray_types::Clock;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) use self::claims::{ClaimFailure, ClaimKeeper};
use self::clock_jump::ClockJumpDetector;
pub(crate) use self::gathering::GatheringNotes;
pub(crate) use self::metrics::CacheMetrics;
pub(crate) use self::object_needs::{ObjectNeeds, ObjectUses};
use self::plan::{SweepConditions, plan_sweep};
use crate::index::DeliveryIndex;
use crate::lease::LeaseStore;

/// Time between two sweeps.
const SWEEP_INTERVAL: Duration = Duration::from_mins(5);
/// How long one replica has the right to sweep: two intervals and some time for the sweep itself.
const SWEEP_LEASE: Duration = Duration::from_mins(11);

/// The result of one sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SweepReport {
    /// Number of objects that were removed because their lifetime had passed.
    pub(crate) expired: u64,
    /// Number of objects that were removed because the cache was above its size.
    pub(crate) evicted: u64,
    /// Bytes of the removed objects.
    pub(crate) freed: u64,
    /// Number of objects that stay.
    pub(crate) objects: u64,
    /// Bytes of the objects that stay.
    pub(crate) bytes: u64,
    /// Bytes that stay because they are needed, or may be.
    pub(crate) held: u64,
}

/// The error of a sweep that was not finished; the next one continues.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SweepError {
    /// The records cannot be read, so the needs are unknown, and no object was removed.
    #[error("the needs of deliveries cannot be read")]
    Records(#[from] KeyError),
    /// The store failed. Objects before the failure were removed.
    #[error("the cache cannot be listed or cleaned")]
    Store(#[from] RequestError),
}

/// Sweeps the cache of one store.
#[derive(Debug)]
pub(crate) struct CacheSweeper {
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) index: Arc<DeliveryIndex>,
    /// Leases that decide which replica sweeps.
    pub(crate) leases: LeaseStore,
    /// Deliveries whose files are being gathered and are in no record yet.
    pub(crate) gatherings: GatheringNotes,
    pub(crate) metrics: CacheMetrics,
}

impl CacheSweeper {
    /// Sweeps at the start and after each interval, until `stop`.
    pub(crate) async fn run_sweeps(self: Arc<Self>, stop: CancellationToken) {
        let mut clock_jumps = ClockJumpDetector::default();
        loop {
            let is_clock_trusted = clock_jumps.may_sweep(Instant::now(), self.clock.now_ms());
            if is_clock_trusted {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = self.take_turn() => {}
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(SWEEP_INTERVAL) => {}
            }
        }
    }

    /// Sweeps, unless another replica has the lease.
    async fn take_turn(&self) {
        match self.leases.take("cache", SWEEP_LEASE).await {
            Ok(Some(_ends_by_itself)) => {}
            Ok(None) => return,
            Err(error) => {
                self.metrics.record_failure();
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "could not take the lease for a sweep of the cache"
                );
                return;
            }
        }
        match self.sweep_cache().await {
            Ok(swept) => tracing::info!(?swept, "the cache was swept"),
            Err(error) => {
                self.metrics.record_failure();
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a sweep of the cache is left to the next one"
                );
            }
        }
    }

    /// Sweeps once, regardless of the lease.
    pub(crate) async fn sweep_cache(&self) -> Result<SweepReport, SweepError> {
        // The objects are listed before the records are read: a listed object that is needed and not young is in a
        // record by then.
        let objects = self.store.cached().await?;
        let gathering_since_ms = self.gatherings.since_ms().await?;
        // Other replicas may have changed records since the last read.
        while !self.index.refresh().await? {}
        let now_ms = self.clock.now_ms();
        let lifetime = self.store.cache_lifetime();
        let uses = self.index.uses(now_ms, lifetime);
        let now = SweepConditions {
            at_ms: now_ms,
            gathering_since_ms,
            lifetime,
            size: self.store.cache_size(),
        };
        let planned = plan_sweep(objects, &uses, now);
        let mut swept = SweepReport {
            objects: planned.objects,
            bytes: planned.bytes,
            held: planned.held,
            ..SweepReport::default()
        };
        self.metrics.record_sizes(&swept);
        for object in &planned.expired {
            self.remove(object, "expired", &mut swept).await?;
            swept.expired += 1;
        }
        for object in &planned.evicted {
            self.remove(object, "evicted", &mut swept).await?;
            swept.evicted += 1;
        }
        if swept.bytes > now.size.as_u64() {
            tracing::warn!(
                bytes = swept.bytes,
                size = now.size.as_u64(),
                "the cache is above its size: deliveries and links need all of it"
            );
        }
        Ok(swept)
    }

    async fn remove(
        &self,
        object: &CachedObject,
        reason: &'static str,
        swept: &mut SweepReport,
    ) -> Result<(), RequestError> {
        self.store.evict(object).await?;
        // The bytes are counted after the removal, so that a failed removal counts neither as freed nor as removed.
        swept.freed = swept.freed.saturating_add(object.bytes);
        self.metrics.record_removal(reason, object.bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
