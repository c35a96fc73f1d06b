//! The product's rules hold in small runs, one seed is one run, and a rule that is switched off is noticed.

#![expect(clippy::panic, reason = "a helper that finds no report fails the test")]

use std::time::Duration;

use dray_simulation::{BrokenRule, FaultSettings, SimulationOptions, SimulationReport, simulate};

/// A run of a second or less in a debug build, with faults often enough for its size.
fn small_run(seed: u64) -> SimulationOptions {
    let often = Duration::from_secs(40);
    SimulationOptions {
        seed,
        operations: 1_500,
        replicas: 12,
        rate: 25.0,
        delivery_share: 0.5,
        faults: FaultSettings {
            kill_every: often,
            partition_every: often,
            pause_every: often,
            outage_every: often,
            lost_request: 0.005,
            republished: 0.1,
            platform_fault: 0.03,
            ..FaultSettings::default()
        },
        broken_rule: None,
    }
}

/// The smallest share of deliveries that arrive in a small run, whose faults are frequent.
const MIN_DELIVERED_SHARE: f64 = 0.5;

/// Whether the report shows a broken rule.
fn shows_fault(report: &SimulationReport) -> bool {
    let delivered = report.delivered_share();
    !report.is_clean() || delivered.is_none_or(|share| share < MIN_DELIVERED_SHARE)
}

fn run_broken(rule: BrokenRule) -> SimulationReport {
    let reports = (1..=4).map(|seed| {
        simulate(SimulationOptions {
            broken_rule: Some(rule),
            ..small_run(seed)
        })
    });
    reports
        .into_iter()
        .find(shows_fault)
        .unwrap_or_else(|| panic!("{rule:?} was not noticed"))
}

#[test]
fn nothing_is_lost_duplicated_or_falsely_reported() {
    for seed in 1..=4 {
        let report = simulate(small_run(seed));
        assert!(!shows_fault(&report), "{report}");
        assert_eq!(report.settled, report.operations);
        for kind in [
            "kills of a replica",
            "partitions of a replica",
            "pauses of a replica",
        ] {
            assert!(report.faults.contains_key(kind), "{report}");
        }
        assert!(report.redeliveries > 0, "{report}");
    }
}

#[test]
fn a_seed_repeats_its_run() {
    let run = |seed| serde_json::to_string(&simulate(small_run(seed))).unwrap();
    let first = run(9);
    assert_eq!(first, run(9));
    assert_ne!(first, run(10));
}

#[test]
fn a_write_without_its_revision_is_noticed_as_a_duplicate() {
    let report = run_broken(BrokenRule::IgnoreRevision);
    assert!(report.duplicated > 0, "{report}");
}

#[test]
fn an_acknowledgement_before_the_recorded_end_is_noticed_as_a_loss() {
    let report = run_broken(BrokenRule::AcknowledgeFirst);
    assert!(report.lost > 0, "{report}");
}

#[test]
fn a_repeated_ambiguous_send_is_noticed_as_a_duplicate_with_its_trace() {
    let report = run_broken(BrokenRule::RepeatAmbiguousSend);
    assert!(report.duplicated > 0, "{report}");
    let failed = report.failed.first().unwrap();
    let trace = failed.trace.join("\n");
    assert!(trace.contains("visible messages 2"), "{trace}");
    assert!(report.to_string().contains("--seed"), "{report}");
}

#[test]
fn a_request_before_its_record_is_noticed_as_a_duplicate() {
    let report = run_broken(BrokenRule::SendBeforeRecord);
    assert!(report.duplicated > 0, "{report}");
}

#[test]
fn a_lost_response_that_counts_as_confirmed_is_noticed_as_a_false_report() {
    let report = run_broken(BrokenRule::BelieveLostResponse);
    assert!(report.falsely_reported > 0, "{report}");
}

#[test]
fn deliveries_that_all_end_as_unknown_are_noticed_although_no_report_is_false() {
    let report = run_broken(BrokenRule::AlwaysUnknown);
    assert!(report.is_clean(), "{report}");
    assert!(report.ends["delivery unknown"] > 0, "{report}");
}

#[test]
fn without_faults_every_delivery_arrives_and_every_call_is_done() {
    for seed in 1..=2 {
        let report = simulate(SimulationOptions {
            faults: FaultSettings::none(),
            ..small_run(seed)
        });
        assert!(report.is_clean(), "{report}");
        let ends: Vec<_> = report.ends.keys().copied().collect();
        assert_eq!(ends, ["delivery delivered", "tool call done"], "{report}");
        assert_eq!(report.ends.values().sum::<u64>(), report.operations);
    }
}

#[test]
fn every_rule_that_can_be_switched_off_is_noticed() {
    for rule in BrokenRule::ALL {
        assert!(shows_fault(&run_broken(rule)));
    }
}

#[test]
fn operations_without_faults_cost_a_fixed_number_of_requests() {
    let report = simulate(SimulationOptions {
        delivery_share: 0.0,
        faults: FaultSettings::none(),
        ..small_run(1)
    });
    assert!(report.is_clean(), "{report}");
    // The claim, the end and the report; longer calls renew their claim as well.
    let writes = report.requests_per_operation["ledger_write"];
    assert!((3.0..3.2).contains(&writes), "{report}");
    for (kind, expected) in [("publish", 2.0), ("ledger_read", 1.0), ("acknowledge", 1.0)] {
        let found = report.requests_per_operation[kind];
        assert!((found - expected).abs() < 1e-9, "{kind}: {report}");
    }
}
