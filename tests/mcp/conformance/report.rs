//! Reads the results of the conformance suite from its files, and compares them with the list.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

/// File of the suite with the checks of one scenario.
const CHECKS_FILE: &str = "checks.json";
/// Length of the time at the end of a directory's name, `-2026-07-28T00-00-00-000Z`.
const TIME_SUFFIX_BYTES: usize = 25;

/// The outcome of one scenario.
#[derive(Debug)]
pub(super) struct ScenarioResult {
    name: String,
    /// Number of checks that passed.
    passed: usize,
    /// Checks that failed, with the reason that the suite gives. Warnings are among them, because the suite counts a
    /// scenario with one as failed.
    failures: Vec<String>,
}

impl ScenarioResult {
    /// Whether checks passed and none failed. A scenario without checks does not pass.
    fn has_passed(&self) -> bool {
        self.passed > 0 && self.failures.is_empty()
    }
}

/// The names of the scenarios that have to pass, from the list: for each table the versions with their scenarios.
pub(super) fn required_scenarios(list: &str, table: &str, version: &str) -> BTreeSet<String> {
    let list: toml::Table = list.parse().unwrap();
    let names = list[table][version].as_array().unwrap();
    let names = names.iter().map(|name| name.as_str().unwrap().to_owned());
    names.collect()
}

/// The results below a directory. Names of scenarios may have a `/`.
pub(super) fn read_results(directory: &Path) -> Vec<ScenarioResult> {
    let mut results = Vec::new();
    let mut pending = vec![directory.to_path_buf()];
    while let Some(current) = pending.pop() {
        if let Ok(text) = fs::read_to_string(current.join(CHECKS_FILE)) {
            let relative = current.strip_prefix(directory).unwrap().to_str().unwrap();
            results.push(scenario_result(
                relative,
                &serde_json::from_str(&text).unwrap(),
            ));
            continue;
        }
        let entries = fs::read_dir(&current).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        pending.extend(paths.filter(|path| path.is_dir()));
    }
    results
}

fn scenario_result(directory: &str, checks: &Value) -> ScenarioResult {
    let name = &directory[..directory.len() - TIME_SUFFIX_BYTES];
    let checks = checks.as_array().unwrap();
    let has_status = |check: &&Value, status: &str| check["status"] == status;
    let failed = checks
        .iter()
        .filter(|check| has_status(check, "FAILURE") || has_status(check, "WARNING"));
    let succeeded = checks.iter().filter(|check| has_status(check, "SUCCESS"));
    ScenarioResult {
        name: name.strip_prefix("server-").unwrap_or(name).to_owned(),
        passed: succeeded.count(),
        failures: failed
            .map(|check| format!("{}: {}", check["id"], check["errorMessage"]))
            .collect(),
    }
}

/// Scenarios of the list that failed or did not run, with the failed checks.
pub(super) fn violations(required: &BTreeSet<String>, results: &[ScenarioResult]) -> Vec<String> {
    let mut violations = Vec::new();
    for name in required {
        match results.iter().find(|result| &result.name == name) {
            Some(result) if result.has_passed() => {}
            Some(result) => violations.push(format!("`{name}` failed: {:?}", result.failures)),
            None => violations.push(format!("`{name}` did not run")),
        }
    }
    violations
}

#[test]
fn a_listed_scenario_that_failed_or_did_not_run_is_a_violation() {
    let required = required_scenarios("[server]\n\"1\" = [\"caching\", \"ping\"]", "server", "1");
    let result = |name: &str, statuses: &[&str]| {
        let checks = statuses
            .iter()
            .map(|status| serde_json::json!({"id": "a", "status": status, "errorMessage": "no"}));
        scenario_result(
            &format!("server-{name}-2026-11-24T00-26-49-925Z"),
            &checks.collect(),
        )
    };
    for (ping, expected) in [
        (vec![], Some("`ping` did not run")),
        (
            vec![result("ping", &["SUCCESS", "WARNING"])],
            Some("`ping` failed"),
        ),
        (
            vec![result("ping", &["INFO", "SKIPPED"])],
            Some("`ping` failed"),
        ),
        (vec![result("ping", &["SUCCESS"])], None),
    ] {
        let mut results = vec![result("caching", &["SUCCESS", "INFO"])];
        results.extend(ping);
        let violations = violations(&required, &results);
        assert_eq!(violations.len(), usize::from(expected.is_some()));
        assert!(
            violations
                .iter()
                .all(|text| text.starts_with(expected.unwrap_or_default()))
        );
    }
}
