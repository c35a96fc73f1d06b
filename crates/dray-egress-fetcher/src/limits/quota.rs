//! Quotas: how many requests and bytes a role may use for each tenant, in an hour and a day, and how many at a time.
//!
//! Hours and days are those of UTC, so that every process refills at the same time. Each process has counters of its
//! own in memory and grants its share of every quota; a restart begins at zero. Bytes are counted as they pass; the
//! read or write that exceeds a quota is the last one.

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
    /// Starts from zero in a later window. A clock that is set back refills nothing. If it goes back by less than a
    /// window, the same window would begin again. If it goes back by more, the counts belong to the window that is
    /// current now.
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
        // One lock from the check to the count: two requests cannot both use the last unit of a quota.
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
    /// As [`Self::admit`].
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
    /// The quota that the bytes exceed. Exactly as many bytes as the quota may pass.
    pub fn charge(&self, bytes: u64) -> Result<(), QuotaExceeded> {
        let now_ms = self.0.clock.now_ms();
        let mut exceeded = None;
        for entry in &self.0.entries {
            let mut guard = lock(&entry.counters);
            let counters = &mut *guard;
            counters.roll(now_ms);
            for window in [&mut counters.hour.bytes, &mut counters.day.bytes] {
                *window = window.saturating_add(bytes);
            }
            let refill = |window: u64| Some(Duration::from_millis(window - now_ms % window));
            let rows = [
                (
                    "bytes_per_day",
                    entry.limits.bytes_per_day,
                    counters.day.bytes,
                    DAY_MS,
                ),
                (
                    "bytes_per_hour",
                    entry.limits.bytes_per_hour,
                    counters.hour.bytes,
                    HOUR_MS,
                ),
            ];
            for (name, limit, used, window) in rows {
                let is_over = limit.is_some_and(|limit| used > share(limit, self.0.replicas));
                if is_over && !entry.limits.is_trial && exceeded.is_none() {
                    exceeded = Some(QuotaExceeded {
                        limit: limit_name(&entry.role, name),
                        refills_in: refill(window),
                    });
                }
            }
        }
        exceeded.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use dray_guard::ruleset::PolicyText;

    use super::*;

    const START_MS: u64 = 1_000 * DAY_MS;

    fn table(limits: &str, replicas: u32) -> (QuotaTable, RuleSet, Clock) {
        let text = format!("[[role]]\nname = \"a\"\n[role.limits]\n{limits}\n");
        let rules = RuleSet::parse(&[PolicyText::new("policy.toml", &text)]).unwrap();
        let clock = Clock::manual(START_MS + HOUR_MS / 2);
        (QuotaTable::new(clock.clone(), replicas), rules, clock)
    }

    fn caller(tenant: &str) -> Caller {
        Caller {
            tenant: tenant.to_owned(),
            ..Caller::default()
        }
    }

    #[test]
    fn requests_of_a_tenant_are_counted_until_the_hour_refills() {
        let (quotas, rules, clock) = table("requests_per_hour = 2", 1);
        for _ in 0..2 {
            assert!(quotas.admit(&rules, &caller("acme")).is_ok());
        }
        let refused = quotas.admit(&rules, &caller("acme")).unwrap_err();
        assert_eq!(
            refused.limit.to_string(),
            "a/requests_per_hour (policy.toml:1)"
        );
        assert_eq!(refused.refills_in, Some(Duration::from_mins(30)));
        assert!(quotas.check(&rules, &caller("acme")).is_err());
        // Another tenant has a separate quota.
        assert!(quotas.admit(&rules, &caller("umbrella")).is_ok());
        clock.advance(Duration::from_mins(30));
        assert!(quotas.admit(&rules, &caller("acme")).is_ok());
    }

    #[test]
    fn a_day_outlasts_its_hours_and_the_later_refill_is_named() {
        let (quotas, rules, clock) = table("requests_per_hour = 1\nrequests_per_day = 2", 1);
        quotas.admit(&rules, &caller("acme")).unwrap();
        clock.advance(Duration::from_hours(1));
        quotas.admit(&rules, &caller("acme")).unwrap();
        let refused = quotas.admit(&rules, &caller("acme")).unwrap_err();
        assert_eq!(refused.limit.name, "a/requests_per_day");
        assert_eq!(
            refused.refills_in,
            Some(Duration::from_millis(DAY_MS - HOUR_MS / 2 - HOUR_MS))
        );
    }

    #[test]
    fn exactly_the_bytes_of_a_quota_pass() {
        let (quotas, rules, clock) = table("bytes_per_hour = 10", 1);
        let (lease, _) = quotas.admit(&rules, &caller("acme")).unwrap();
        assert_eq!(lease.charge(10), Ok(()));
        let exceeded = lease.charge(1).unwrap_err();
        assert_eq!(exceeded.limit.name, "a/bytes_per_hour");
        assert!(quotas.admit(&rules, &caller("acme")).is_err());
        clock.advance(Duration::from_hours(1));
        // A connection that lasts into the next hour counts there.
        assert_eq!(lease.charge(10), Ok(()));
        assert!(lease.charge(u64::MAX).is_err());
    }

    #[test]
    fn a_concurrent_request_ends_with_the_last_clone_of_its_lease() {
        let (quotas, rules, _clock) = table("concurrent = 1", 1);
        let (lease, _) = quotas.admit(&rules, &caller("acme")).unwrap();
        let other = lease.clone();
        drop(lease);
        let refused = quotas.admit(&rules, &caller("acme")).unwrap_err();
        assert_eq!(
            (refused.limit.name.as_str(), refused.refills_in),
            ("a/concurrent", None)
        );
        drop(other);
        assert!(quotas.admit(&rules, &caller("acme")).is_ok());
    }

    #[test]
    fn a_process_grants_its_share_and_at_least_one() {
        for (limit, replicas, granted) in [(10, 3, 3), (2, 3, 1), (6, 3, 2)] {
            let (quotas, rules, _clock) = table(&format!("requests_per_day = {limit}"), replicas);
            let admitted = (0..limit).filter(|_| quotas.admit(&rules, &caller("acme")).is_ok());
            assert_eq!(admitted.count(), granted, "{limit} {replicas}");
        }
    }

    #[test]
    fn a_clock_that_is_set_back_refills_nothing() {
        let (_, rules, _) = table("requests_per_hour = 1", 1);
        let mut counters = QuotaCounters::default();
        counters.roll(START_MS);
        counters.hour.requests = 1;
        counters.roll(START_MS - HOUR_MS);
        assert_eq!(counters.hour.requests, 1);
        let acme = caller("acme");
        let (_, limits) = rules.limits(&acme).next().unwrap();
        assert!(counters.full_limit(limits, 1, START_MS).is_some());
    }

    #[test]
    fn a_clock_that_was_far_ahead_refills_once_and_then_with_the_hours_again() {
        let mut counters = QuotaCounters::default();
        let ahead_ms = START_MS + 365 * DAY_MS;
        counters.roll(START_MS);
        counters.hour.requests = 1;
        counters.day.requests = 1;
        counters.roll(ahead_ms);
        assert_eq!((counters.hour.requests, counters.day.requests), (0, 0));
        counters.hour.requests = 1;
        counters.day.requests = 1;
        // Set right: nothing is refilled by that, and everything in its own time.
        counters.roll(START_MS);
        assert_eq!((counters.hour.requests, counters.day.requests), (1, 1));
        counters.roll(START_MS + HOUR_MS);
        assert_eq!((counters.hour.requests, counters.day.requests), (0, 1));
        counters.roll(START_MS + DAY_MS);
        assert_eq!(counters.day.requests, 0);
        // A clock that moves to and fro over the end of an hour refills once.
        counters.hour.requests = 1;
        for ms in [START_MS + DAY_MS - 1, START_MS + DAY_MS] {
            counters.roll(ms);
            assert_eq!(counters.hour.requests, 1);
        }
    }

    #[test]
    fn a_limit_that_is_only_tried_refuses_nothing_and_is_named() {
        let text = "report_only = true\n[[role]]\nname = \"a\"\n[role.limits]\nrequests_per_hour = 1\nbytes_per_day = 1\n";
        let rules = RuleSet::parse(&[PolicyText::new("policy.toml", text)]).unwrap();
        let quotas = QuotaTable::new(Clock::manual(START_MS), 1);
        let (lease, reported) = quotas.admit(&rules, &caller("acme")).unwrap();
        assert_eq!((reported, lease.charge(100)), (None, Ok(())));
        let (_, reported) = quotas.admit(&rules, &caller("acme")).unwrap();
        assert_eq!(reported.unwrap().name, "a/bytes_per_day");
    }

    #[test]
    fn counters_of_past_days_are_forgotten_when_there_are_many() {
        let (quotas, rules, clock) = table("requests_per_day = 1", 1);
        let (_held, _) = quotas.admit(&rules, &caller("held")).unwrap();
        for index in 0..=MAX_COUNTERS {
            quotas.admit(&rules, &caller(&format!("t{index}"))).unwrap();
        }
        clock.advance(Duration::from_hours(24));
        quotas.admit(&rules, &caller("acme")).unwrap();
        assert_eq!(quotas.lock().len(), 2);
    }
}
