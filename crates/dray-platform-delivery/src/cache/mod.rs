//! Sweeps of the cache (platform-delivery 12), which holds files on their way between sandboxes and people.
//!
//! An object stays while an unfinished delivery has it, as long as a link to it lives, and for its lifetime after its
//! last use. Above the cache's size the least recently used objects go first. The records of deliveries decide who
//! needs an object, without another index that could be wrong.
//!
//! One replica sweeps at a time; several would be harmless, because a missing object is not an error.

mod claims;
mod clock_jump;
mod gathering;
mod metrics;
mod need;
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
pub(crate) use self::need::{ObjectNeeds, Uses};
use self::plan::{SweepConditions, plan_sweep};
use crate::index::DeliveryIndex;
use crate::lease::LeaseStore;

/// Time between two sweeps.
const SWEEP_INTERVAL: Duration = Duration::from_mins(5);
/// How long one replica sweeps without the others: two intervals and some time for the sweep itself.
const SWEEP_LEASE: Duration = Duration::from_mins(11);

/// The result of one sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SweepReport {
    /// Number of objects past their time.
    pub(crate) expired: u64,
    /// Number of objects that went because the cache was above its size.
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
    /// The records cannot be read, so the needs are unknown: nothing was removed.
    #[error("what deliveries need cannot be read")]
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
    /// Which replica sweeps.
    pub(crate) leases: LeaseStore,
    /// Files that are gathered at the moment and in no record yet.
    pub(crate) gatherings: GatheringNotes,
    pub(crate) metrics: CacheMetrics,
}

impl CacheSweeper {
    /// Sweeps at the start and after each interval, until `stop`.
    pub(crate) async fn keep_cache(self: Arc<Self>, stop: CancellationToken) {
        let mut jumps = ClockJumpDetector::default();
        loop {
            let may = jumps.may_sweep(Instant::now(), self.clock.now_ms());
            if may {
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
                self.metrics.failed();
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "whose turn it is to sweep the cache cannot be known"
                );
                return;
            }
        }
        match self.sweep_cache().await {
            Ok(swept) => tracing::info!(?swept, "the cache was swept"),
            Err(error) => {
                self.metrics.failed();
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a sweep of the cache is left to the next one"
                );
            }
        }
    }

    /// Sweeps once, regardless of the lease.
    pub(crate) async fn sweep_cache(&self) -> Result<SweepReport, SweepError> {
        // In this order: an object that is in the list and not young is in a record by now, if it is needed.
        let objects = self.store.cached().await?;
        let gathering_since_ms = self.gatherings.since_ms().await?;
        // Records may have changed on other replicas since the last look.
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
        self.metrics.holds(&swept);
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
        why: &'static str,
        swept: &mut SweepReport,
    ) -> Result<(), RequestError> {
        self.store.evict(object).await?;
        // After the removal: a failed one is neither counted as freed nor as removed.
        swept.freed = swept.freed.saturating_add(object.bytes);
        self.metrics.removed(why, object.bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
