//! Tests the generated files against the declaration, with `promtool`, and against the runbooks.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::*;
use crate::step;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_path_buf()
}

fn declared_groups() -> Vec<MetricGroup> {
    parse_page(&fs::read_to_string(root().join("docs/metrics.md")).unwrap()).unwrap()
}

/// Runs `promtool` on a file with this text.
#[track_caller]
fn promtool(arguments: &[&str], name: &str, text: &str, directory: &Path) {
    let path = directory.join(name);
    fs::write(&path, text).unwrap();
    step::program_step("promtool")
        .args(arguments)
        .arg(path)
        .inside(directory)
        .output()
        .unwrap();
}

#[test]
fn rows_become_metrics() {
    let page = "# Metrics\n\n## bus\n\n| metric | kind | meaning |\n|---|---|---|\n\
                | `dray_a_total` | counter | Calls, by way (a \\| b). |\n| `dray_b` | up/down counter | Running. |\n";
    let groups = parse_page(page).unwrap();
    assert_eq!(groups.len(), 1);
    assert_eq!(groups[0].name, "bus");
    let first = DeclaredMetric {
        name: "dray_a_total".to_owned(),
        kind: MetricKind::Counter,
        meaning: "Calls, by way (a | b).".to_owned(),
    };
    assert_eq!(groups[0].metrics[0], first);
    assert_eq!(groups[0].metrics[1].kind, MetricKind::UpDownCounter);
    for invalid_page in [
        "",
        "| `dray_a` | counter | A. |",
        "## a\n| `dray_a` | meter | A. |",
        "## a\n| `dray_a` |",
    ] {
        assert!(parse_page(invalid_page).is_err(), "{invalid_page}");
    }
}

#[test]
fn every_declared_metric_has_a_panel() {
    let groups = declared_groups();
    let text = dashboard::json(&groups).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let titles: BTreeSet<_> = panels
        .iter()
        .filter_map(|panel| panel["title"].as_str())
        .collect();
    let ids: BTreeSet<_> = panels
        .iter()
        .filter_map(|panel| panel["id"].as_u64())
        .collect();
    assert_eq!(ids.len(), panels.len());
    let count: usize = groups.iter().map(|group| group.metrics.len() + 1).sum();
    assert_eq!(panels.len(), count);
    for metric in groups.iter().flat_map(|group| &group.metrics) {
        assert!(titles.contains(metric.name.as_str()), "{}", metric.name);
    }
}

#[test]
fn panels_do_not_overlap() {
    let text = dashboard::json(&declared_groups()).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let mut cells = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let position = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        assert!(position("x") + position("w") <= 24);
        for column in position("x")..position("x") + position("w") {
            for line in position("y")..position("y") + position("h") {
                assert!(cells.insert((column, line)), "{}", panel["title"]);
            }
        }
    }
}

#[test]
fn prometheus_accepts_the_rules_and_the_queries_of_the_panels() {
    let directory = tempfile::tempdir().unwrap();
    promtool(
        &["check", "rules"],
        "alerts.yaml",
        &alerts::rule_file(),
        directory.path(),
    );
    // `promtool` checks queries as recording rules; Grafana substitutes the interval and the namespace.
    let mut rules = String::from("groups:\n  - name: panels\n    rules:\n");
    for metric in declared_groups().iter().flat_map(|group| &group.metrics) {
        for (index, (expression, _)) in dashboard::expressions(metric).into_iter().enumerate() {
            let expression = expression
                .replace("$__rate_interval", "5m")
                .replace("$namespace", ".*");
            let name = format!("panel_{index}:{}", metric.name);
            let _ = writeln!(
                rules,
                "      - record: {name}\n        expr: '{expression}'"
            );
        }
    }
    promtool(&["check", "rules"], "panels.yaml", &rules, directory.path());
}

#[test]
fn alerts_fire_only_under_their_conditions() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("alerts.yaml"), alerts::rule_file()).unwrap();
    let cases = include_str!("alert_cases.yaml");
    promtool(&["test", "rules"], "cases.yaml", cases, directory.path());
}

#[test]
fn a_rule_on_an_unknown_metric_is_refused() {
    let mut groups = declared_groups();
    alerts::check_metrics(&groups).unwrap();
    for group in &mut groups {
        group
            .metrics
            .retain(|metric| metric.name != "dray_panics_total");
    }
    let error = alerts::check_metrics(&groups).unwrap_err().to_string();
    assert!(
        error.contains("DrayPanics") && error.contains("dray_panics_total"),
        "{error}"
    );
}

#[test]
fn every_alert_has_a_runbook_and_every_runbook_an_alert() {
    let page = fs::read_to_string(root().join("docs/runbooks.md")).unwrap();
    let sections: BTreeSet<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .collect();
    let alerts: BTreeSet<_> = alerts::ALERT_RULES.iter().map(|rule| rule.name).collect();
    assert_eq!(sections, alerts);
    assert_eq!(
        alerts.len(),
        alerts::ALERT_RULES.len(),
        "two alerts have the same name"
    );
}

#[test]
fn both_rule_files_contain_the_same_rules() {
    let rules = alerts::rule_file();
    // The first line is a comment.
    let indented: Vec<_> = rules
        .lines()
        .skip(1)
        .map(|line| format!("  {line}"))
        .collect();
    let specification = format!("spec:\n{}\n", indented.join("\n"));
    assert!(alerts::operator_rule().ends_with(&specification));
}
