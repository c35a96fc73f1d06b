//! Quotas: how many requests and bytes a role may use for each tenant, in an hour and a day, and how many at a time.
//!
//! Hours and days are those of UTC, so that every process refills at the same time. Each process has counters of its
//! own in memory and grants its share of every quota; a restart begins at zero. Proxied connections
//! never pass more than a quota, and of a fetch the read that exceeds it is the last one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dray_guard::ruleset::RoleLimits;
use dray_guard::{Caller, RuleName, RuleSet};
use dray_types::Clock;

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;
/// Number of counters above which those of past days are removed.
const MAX_COUNTERS: usize = 10_000;

/// A quota is used up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the quota {limit} is used up")]
pub struct QuotaExceeded {
    /// The role with the name of its limit, `ROLE/LIMIT`.
    pub limit: Arc<RuleName>,
    /// Time until it refills; `None` for one that becomes free when a request ends.
    pub refills_in: Option<Duration>,
}

/// The counters of one process. Clones share them.
#[derive(Clone, Debug)]
pub struct QuotaTable {
    clock: Clock,
    /// Number of processes that share each quota.
    replicas: u64,
    counters: Arc<Mutex<HashMap<CounterKey, SharedCounters>>>,
}

/// A role and a tenant.
type CounterKey = (String, String);
type SharedCounters = Arc<Mutex<QuotaCounters>>;

/// Use of a role by a tenant, per window.
#[derive(Clone, Copy, Debug, Default)]
struct QuotaCounters {
    hour: WindowCounts,
    day: WindowCounts,
    running: u64,
}

/// Use within one window of time.
#[derive(Clone, Copy, Debug, Default)]
struct WindowCounts {
    /// Number of the window since the epoch.
    window: u64,
    requests: u64,
    bytes: u64,
}

impl WindowCounts {
    /// Starts from zero in a later window. A clock that is set back refills nothing: if it goes back by one window, the
    /// counts stay in the later window, so that they are not cleared when that window begins again; if it goes back by
    /// more, they move to the current window.
    fn roll(&mut self, window: u64) {
        if window > self.window {
            *self = Self {
                window,
                ..Self::default()
            };
        } else if self.window - window > 1 {
            // A clock that was far ahead must not keep a quota used up until that time.
            self.window = window;
        }
    }
}

impl QuotaCounters {
    fn roll(&mut self, now_ms: u64) {
        self.hour.roll(now_ms / HOUR_MS);
        self.day.roll(now_ms / DAY_MS);
    }

    /// The first limit that leaves no room for another request, by name, and when it refills.
    fn full_limit(
        &self,
        limits: &RoleLimits,
        replicas: u64,
        now_ms: u64,
    ) -> Option<(&'static str, Option<Duration>)> {
        let hour = Some(Duration::from_millis(HOUR_MS - now_ms % HOUR_MS));
        let day = Some(Duration::from_millis(DAY_MS - now_ms % DAY_MS));
        let rows = [
            // Those that refill last come first: an earlier time would not help the caller.
            (
                "requests_per_day",
                limits.requests_per_day,
                self.day.requests,
                day,
            ),
            ("bytes_per_day", limits.bytes_per_day, self.day.bytes, day),
            (
                "requests_per_hour",
                limits.requests_per_hour,
                self.hour.requests,
                hour,
            ),
            (
                "bytes_per_hour",
                limits.bytes_per_hour,
                self.hour.bytes,
                hour,
            ),
            ("concurrent", limits.concurrent, self.running, None),
        ];
        let full = rows
            .into_iter()
            .find(|(_, limit, used, _)| limit.is_some_and(|limit| *used >= share(limit, replicas)));
        full.map(|(name, _, _, refill)| (name, refill))
    }
}

/// The part of a limit that this process grants: never more than its share, and at least one.
const fn share(limit: u64, replicas: u64) -> u64 {
    let share = limit / replicas;
    if share == 0 { 1 } else { share }
}

/// The quotas of one request while it runs. Clones share them; dropping the last one ends the request for `concurrent`.
#[derive(Clone, Debug)]
pub struct QuotaLease(Arc<LeaseState>);

#[derive(Debug)]
struct LeaseState {
    clock: Clock,
    replicas: u64,
    entries: Vec<LeaseEntry>,
}

#[derive(Debug)]
struct LeaseEntry {
    role: Arc<RuleName>,
    limits: RoleLimits,
    counters: SharedCounters,
}

impl Drop for LeaseState {
    fn drop(&mut self) {
        for entry in &self.entries {
            let mut counters = lock(&entry.counters);
            counters.running = counters.running.saturating_sub(1);
        }
    }
}

fn lock(counters: &SharedCounters) -> MutexGuard<'_, QuotaCounters> {
    // Counts stay consistent when a holder panics.
    counters.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request that may run, and the report-only limit that would refuse it, if there is one.
pub type AdmittedRequest = (QuotaLease, Option<Arc<RuleName>>);

impl QuotaTable {
    /// Empty counters. `replicas` processes share every quota.
    pub fn new(clock: Clock, replicas: u32) -> Self {
        Self {
            clock,
            replicas: u64::from(replicas.max(1)),
            counters: Arc::default(),
        }
    }

    /// Counts a request of `caller` against the limits of all its roles, or refuses it and counts nothing.
    ///
    /// # Errors
    ///
    /// The limit that is used up.
    pub fn admit(
        &self,
        rules: &RuleSet,
        caller: &Caller,
    ) -> Result<AdmittedRequest, QuotaExceeded> {
        // One lock covers the check and the count: two requests cannot both use the last unit of a quota.
        let mut table = self.lock();
        let (entries, reported) = self.check_locked(&mut table, rules, caller)?;
        for entry in &entries {
            let mut counters = lock(&entry.counters);
            counters.hour.requests += 1;
            counters.day.requests += 1;
            counters.running += 1;
        }
        let lease = LeaseState {
            clock: self.clock.clone(),
            replicas: self.replicas,
            entries,
        };
        Ok((QuotaLease(Arc::new(lease)), reported))
    }

    /// Whether a request of `caller` would be admitted now; counts nothing.
    ///
    /// # Errors
    ///
    /// Those of [`Self::admit`].
    pub fn check(&self, rules: &RuleSet, caller: &Caller) -> Result<(), QuotaExceeded> {
        self.check_locked(&mut self.lock(), rules, caller)
            .map(|_| ())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CounterKey, SharedCounters>> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_locked(
        &self,
        table: &mut HashMap<CounterKey, SharedCounters>,
        rules: &RuleSet,
        caller: &Caller,
    ) -> Result<(Vec<LeaseEntry>, Option<Arc<RuleName>>), QuotaExceeded> {
        let now_ms = self.clock.now_ms();
        if table.len() > MAX_COUNTERS {
            let today = now_ms / DAY_MS;
            table.retain(|_, counters| {
                let counters = lock(counters);
                counters.running > 0 || counters.day.window >= today
            });
        }
        let (mut entries, mut reported) = (Vec::new(), None);
        for (role, limits) in rules.limits(caller) {
            let key = (role.name.clone(), caller.tenant.clone());
            let counters = Arc::clone(table.entry(key).or_default());
            let full = {
                let mut counters = lock(&counters);
                counters.roll(now_ms);
                counters.full_limit(limits, self.replicas, now_ms)
            };
            if let Some((limit, refills_in)) = full {
                let limit = limit_name(role, limit);
                if !limits.is_trial {
                    return Err(QuotaExceeded { limit, refills_in });
                }
                reported.get_or_insert(limit);
            }
            entries.push(LeaseEntry {
                role: Arc::clone(role),
                limits: limits.clone(),
                counters,
            });
        }
        Ok((entries, reported))
    }
}

fn limit_name(role: &RuleName, limit: &str) -> Arc<RuleName> {
    Arc::new(RuleName {
        name: format!("{}/{limit}", role.name),
        place: role.place.clone(),
    })
}

impl QuotaLease {
    /// Counts bytes that passed.
    ///
    /// # Errors
    ///
    /// The quota that the bytes exceed.
    pub fn charge(&self, bytes: u64) -> Result<(), QuotaExceeded> {
        let now_ms = self.0.clock.now_ms();
        let mut exceeded = None;
        for entry in &self.0.entries {
            let mut counters = lock(&entry.counters);
            counters.roll(now_ms);
            counters.add_bytes(bytes);
            let over = entry.tightest(&counters, self.0.replicas, now_ms);
            let over = over.filter(|tightest| tightest.is_over && !entry.limits.is_trial);
            exceeded = exceeded.or_else(|| over.map(|tightest| entry.exceeded(&tightest)));
        }
        exceeded.map_or(Ok(()), Err)
    }

    /// Counts as many of `bytes` that are about to pass as fit into every quota. Returns them, and the quota that has
    /// no room for the others. Never more bytes than a quota pass, however many requests share it; a request that finds
    /// no room while another one has taken bytes that it will give back is ended too.
    pub fn take(&self, bytes: u64) -> (TakenBytes, Option<QuotaExceeded>) {
        let now_ms = self.0.clock.now_ms();
        let (mut granted, mut exceeded) = (bytes, None);
        for (index, entry) in self.0.entries.iter().enumerate() {
            let mut counters = lock(&entry.counters);
            counters.roll(now_ms);
            let tightest = entry.tightest(&counters, self.0.replicas, now_ms);
            let tightest = tightest.filter(|_| !entry.limits.is_trial);
            let room = tightest.as_ref().map_or(granted, |tightest| tightest.room);
            let fitting = granted.min(room);
            counters.add_bytes(fitting);
            drop(counters);
            // Only one lock is held at a time, because two leases may name the same roles in another order.
            for earlier in self.0.entries.get(..index).unwrap_or_default() {
                lock(&earlier.counters).remove_bytes(granted - fitting, now_ms);
            }
            if let Some(tightest) = tightest.filter(|_| fitting < granted) {
                exceeded = Some(entry.exceeded(&tightest));
            }
            granted = fitting;
        }
        let taken = TakenBytes {
            count: granted,
            at_ms: now_ms,
        };
        (taken, exceeded)
    }

    /// Returns `bytes` of those that were taken, which did not pass. They return to the hour and the day in which they
    /// were taken: once that is over, nothing is removed.
    pub fn give_back(&self, taken: TakenBytes, bytes: u64) {
        for entry in &self.0.entries {
            lock(&entry.counters).remove_bytes(bytes.min(taken.count), taken.at_ms);
        }
    }
}

/// Bytes that were counted against quotas before they passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenBytes {
    /// Their number.
    pub count: u64,
    /// When they were counted, in Unix milliseconds.
    at_ms: u64,
}

/// The limit of bytes with the least room.
struct TightestLimit {
    name: &'static str,
    /// Bytes that still fit.
    room: u64,
    /// Whether more bytes were counted than the limit.
    is_over: bool,
    refills_in: Duration,
}

impl LeaseEntry {
    /// The tightest limit of bytes; `None` where the role has none. Of equal ones the one that refills last.
    fn tightest(
        &self,
        counters: &QuotaCounters,
        replicas: u64,
        now_ms: u64,
    ) -> Option<TightestLimit> {
        let day = (
            "bytes_per_day",
            self.limits.bytes_per_day,
            counters.day.bytes,
            DAY_MS,
        );
        let hour = (
            "bytes_per_hour",
            self.limits.bytes_per_hour,
            counters.hour.bytes,
            HOUR_MS,
        );
        let limits = [day, hour]
            .into_iter()
            .filter_map(|(name, limit, used, window)| {
                let limit = share(limit?, replicas);
                Some(TightestLimit {
                    name,
                    room: limit.saturating_sub(used),
                    is_over: used > limit,
                    refills_in: Duration::from_millis(window - now_ms % window),
                })
            });
        limits.min_by_key(|limit| (!limit.is_over, limit.room))
    }

    fn exceeded(&self, limit: &TightestLimit) -> QuotaExceeded {
        QuotaExceeded {
            limit: limit_name(&self.role, limit.name),
            refills_in: Some(limit.refills_in),
        }
    }
}

impl QuotaCounters {
    fn add_bytes(&mut self, bytes: u64) {
        for window in [&mut self.hour, &mut self.day] {
            window.bytes = window.bytes.saturating_add(bytes);
        }
    }

    /// Removes bytes that were counted at `counted_ms`, from the windows that were current then and still are. After a
    /// clock was set back they stay counted: too few bytes pass, never too many.
    fn remove_bytes(&mut self, bytes: u64, counted_ms: u64) {
        let windows = [(&mut self.hour, HOUR_MS), (&mut self.day, DAY_MS)];
        for (window, window_ms) in windows {
            if window.window == counted_ms / window_ms {
                window.bytes = window.bytes.saturating_sub(bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests;
