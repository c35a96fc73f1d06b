//! Tests of quotas: windows, shares, and bytes that pass exactly.

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
fn bytes_that_are_taken_are_those_that_fit_into_every_limit() {
    let limits = "bytes_per_hour = 10\nbytes_per_day = 15";
    let (quotas, rules, clock) = table(limits, 1);
    let (lease, _) = quotas.admit(&rules, &caller("acme")).unwrap();
    let (other, _) = quotas.admit(&rules, &caller("acme")).unwrap();
    let take = |lease: &QuotaLease, bytes| {
        let (taken, exceeded) = lease.take(bytes);
        let limit = exceeded.map(|exceeded| exceeded.limit.name.clone());
        (taken.count, limit)
    };
    let (hour, day) = ("a/bytes_per_hour".to_owned(), "a/bytes_per_day".to_owned());
    assert_eq!(take(&lease, 4), (4, None));
    let (taken, exceeded) = other.take(100);
    assert_eq!(
        (taken.count, exceeded.unwrap().limit.name.clone()),
        (6, hour.clone())
    );
    assert_eq!(take(&lease, 1), (0, Some(hour.clone())));
    // Bytes that did not pass are there for others.
    other.give_back(taken, 2);
    assert_eq!(take(&lease, 100), (2, Some(hour)));
    clock.advance(Duration::from_hours(1));
    assert_eq!(take(&lease, 5), (5, None));
    assert_eq!(take(&lease, 1), (0, Some(day)));
    assert_eq!(take(&lease, 0), (0, None));
}

#[test]
fn bytes_that_were_taken_in_an_earlier_hour_do_not_return_to_the_present_one() {
    let limits = "bytes_per_hour = 10\nbytes_per_day = 25";
    let (quotas, rules, clock) = table(limits, 1);
    let (lease, _) = quotas.admit(&rules, &caller("acme")).unwrap();
    let (other, _) = quotas.admit(&rules, &caller("acme")).unwrap();
    let (taken, _) = lease.take(6);
    assert_eq!(taken.count, 6);
    clock.advance(Duration::from_hours(1));
    assert_eq!(other.take(10).0.count, 10);
    lease.give_back(taken, 6);
    assert_eq!(other.take(1).0.count, 0, "the hour is used up");
    // The day is the same one: six of its bytes are free again.
    for (granted, limit) in [(10, "a/bytes_per_hour"), (5, "a/bytes_per_day")] {
        clock.advance(Duration::from_hours(1));
        let (taken, exceeded) = other.take(100);
        let limit_name = exceeded.unwrap().limit.name.clone();
        assert_eq!((taken.count, limit_name.as_str()), (granted, limit));
    }
}

#[test]
fn a_report_only_limit_grants_all_bytes() {
    let text = "report_only = true\n[[role]]\nname = \"a\"\n[role.limits]\nbytes_per_hour = 10\n";
    let rules = RuleSet::parse(&[PolicyText::new("policy.toml", text)]).unwrap();
    let quotas = QuotaTable::new(Clock::manual(START_MS), 1);
    let (lease, _) = quotas.admit(&rules, &caller("acme")).unwrap();
    let (taken, exceeded) = lease.take(100);
    assert_eq!((taken.count, exceeded), (100, None));
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
    // A clock that is set right refills nothing; each counter is refilled when its own time has passed.
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
fn a_report_only_limit_refuses_nothing_and_is_named() {
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
