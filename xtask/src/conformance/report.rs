//! Reads the results of the conformance suite from its files, compares them with the list, and shows them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

/// File of the suite with the checks of one scenario.
const CHECKS_FILE: &str = "checks.json";
/// Length of the time at the end of a directory's name, `-2026-07-28T00-00-00-000Z`.
const TIME_SUFFIX_BYTES: usize = 25;

/// The side of the protocol that is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SuiteRole {
    Server,
    Client,
}

impl SuiteRole {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
        }
    }
}

/// A set of requirements for one role, and the scenarios that must pass.
#[derive(Clone, Debug)]
pub(super) struct RequirementSet {
    pub(super) role: SuiteRole,
    /// The version of the protocol, `2026-07-28`.
    pub(super) requirements: String,
    pass: BTreeSet<String>,
}

/// The outcome of one scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ScenarioResult {
    name: String,
    passed: usize,
    /// Checks that failed, warnings included: the suite counts a scenario with one as failed.
    failed: usize,
    /// Names of the failed checks, with the reason that the suite gives.
    failures: Vec<String>,
}

impl ScenarioResult {
    /// Whether checks passed and none failed. A scenario without checks does not pass.
    const fn has_passed(&self) -> bool {
        self.passed > 0 && self.failed == 0
    }
}

/// Reads the list: for each role a table of versions with the scenarios that have to pass.
pub(super) fn parse_list(text: &str) -> anyhow::Result<Vec<RequirementSet>> {
    let list: toml::Table = text.parse()?;
    let mut sets = Vec::new();
    for role in [SuiteRole::Server, SuiteRole::Client] {
        let versions = list.get(role.as_str()).and_then(toml::Value::as_table);
        let versions = versions.with_context(|| format!("no table `{}`", role.as_str()))?;
        for (requirements, names) in versions {
            let names = names
                .as_array()
                .context("the value of a version is not a list")?;
            let pass = names
                .iter()
                .map(|name| name.as_str().map(str::to_owned))
                .collect::<Option<BTreeSet<_>>>();
            sets.push(RequirementSet {
                role,
                requirements: requirements.clone(),
                pass: pass.context("the name of a scenario is not a string")?,
            });
        }
    }
    Ok(sets)
}

/// The results below a directory, by name. Names may have a `/`.
pub(super) fn read_results(directory: &Path) -> anyhow::Result<Vec<ScenarioResult>> {
    let mut results = Vec::new();
    let mut pending = vec![directory.to_path_buf()];
    while let Some(current) = pending.pop() {
        let checks = current.join(CHECKS_FILE);
        if checks.exists() {
            let relative = current.strip_prefix(directory)?.to_string_lossy();
            let text = fs::read_to_string(&checks)?;
            results.push(scenario_result(&relative, &serde_json::from_str(&text)?)?);
            continue;
        }
        for entry in fs::read_dir(&current)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                pending.push(entry.path());
            }
        }
    }
    results.sort_by(|left, right| left.name.cmp(&right.name));
    Ok(results)
}

fn scenario_result(directory: &str, checks: &Value) -> anyhow::Result<ScenarioResult> {
    let end = directory.len().checked_sub(TIME_SUFFIX_BYTES);
    let name = end.and_then(|end| directory.get(..end));
    let name = name.with_context(|| format!("`{directory}` does not end with a time"))?;
    let Some(checks) = checks.as_array() else {
        bail!("{directory}/{CHECKS_FILE} is not a list");
    };
    let has_status = |check: &&Value, status: &str| check["status"] == status;
    let failed: Vec<_> = checks
        .iter()
        .filter(|check| has_status(check, "FAILURE") || has_status(check, "WARNING"))
        .collect();
    let failures = failed.iter().map(|check| {
        let text = |key: &str| check[key].as_str().unwrap_or_default().to_owned();
        format!("{}: {}", text("id"), text("errorMessage"))
    });
    Ok(ScenarioResult {
        name: name.strip_prefix("server-").unwrap_or(name).to_owned(),
        passed: checks
            .iter()
            .filter(|check| has_status(check, "SUCCESS"))
            .count(),
        failed: failed.len(),
        failures: failures.collect(),
    })
}

/// The table of a set: scenario, passed and failed checks, and differences from the list.
pub(super) fn table(set: &RequirementSet, scenarios: &[ScenarioResult]) -> String {
    let total = |count: fn(&ScenarioResult) -> usize| scenarios.iter().map(count).sum::<usize>();
    let (passed, failed) = (total(|result| result.passed), total(|result| result.failed));
    let mut text = format!(
        "\n{} {}: {passed} of {} checks, {} of {} scenarios\n",
        set.role.as_str(),
        set.requirements,
        passed + failed,
        scenarios
            .iter()
            .filter(|result| result.has_passed())
            .count(),
        scenarios.len(),
    );
    for scenario in scenarios {
        let note = match (set.pass.contains(&scenario.name), scenario.has_passed()) {
            (true, false) => "  FAILED, is on the list",
            (false, true) => "  passes, is not on the list",
            (true, true) | (false, false) => "",
        };
        let name = &scenario.name;
        let (passed, failed) = (scenario.passed, scenario.failed);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{name:<50} {passed:>4} passed {failed:>3} failed{note}"
        );
        for failure in scenario.failures.iter().filter(|_| !note.is_empty()) {
            let _ = writeln!(text, "    {failure}");
        }
    }
    text
}

/// Every set with its scenarios, for programs.
pub(super) fn json(sets: &[RequirementSet], results: &[Vec<ScenarioResult>]) -> Value {
    let sets = sets.iter().zip(results).map(|(set, scenarios)| {
        let scenarios = scenarios.iter().map(|scenario| {
            json!({
                "name": scenario.name,
                "passed": scenario.passed,
                "failed": scenario.failed,
                "listed": set.pass.contains(&scenario.name),
                "failures": scenario.failures,
            })
        });
        json!({
            "role": set.role.as_str(),
            "requirements": set.requirements,
            "scenarios": scenarios.collect::<Vec<_>>(),
        })
    });
    json!(sets.collect::<Vec<_>>())
}

/// Scenarios of the list that failed or did not run.
pub(super) fn violations(set: &RequirementSet, scenarios: &[ScenarioResult]) -> Vec<String> {
    let passed: BTreeSet<_> = scenarios
        .iter()
        .filter(|result| result.has_passed())
        .map(|result| &result.name)
        .collect();
    let failed = set.pass.iter().filter(|name| !passed.contains(name));
    failed
        .map(|name| {
            let (role, version) = (set.role.as_str(), &set.requirements);
            format!("scenario `{name}` of {role} {version} has to pass and did not")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCENARIO_LIST: &str = "[server]\n\"2026-07-28\" = [\"caching\", \"ping\"]\n[client]\n";

    fn result(directory: &str, statuses: &[&str]) -> ScenarioResult {
        let checks = statuses
            .iter()
            .map(|status| json!({"id": "a", "status": status, "errorMessage": "no"}));
        scenario_result(directory, &json!(checks.collect::<Vec<_>>())).unwrap()
    }

    #[test]
    fn a_listed_scenario_that_failed_or_did_not_run_is_a_violation() {
        let set = &parse_list(SCENARIO_LIST).unwrap()[0];
        let passing = result(
            "server-caching-2026-11-24T00-26-49-925Z",
            &["SUCCESS", "INFO"],
        );
        let count_violations = |scenarios: &[ScenarioResult]| violations(set, scenarios).len();
        let failing = result(
            "server-ping-2026-11-24T00-26-49-925Z",
            &["SUCCESS", "WARNING"],
        );
        assert_eq!(count_violations(std::slice::from_ref(&passing)), 1);
        assert_eq!(count_violations(&[passing.clone(), failing]), 1);
        let repaired = result("server-ping-2026-11-24T00-26-49-925Z", &["SUCCESS"]);
        assert_eq!(count_violations(&[passing, repaired]), 0);
    }

    #[test]
    fn a_scenario_without_a_check_does_not_pass() {
        let empty = result("auth/dpop-2026-11-24T00-26-49-925Z", &["INFO", "SKIPPED"]);
        assert_eq!(empty.name, "auth/dpop");
        assert!(!empty.has_passed());
    }

    #[test]
    fn a_passing_scenario_that_is_not_listed_is_named_in_the_table() {
        let set = &parse_list(SCENARIO_LIST).unwrap()[0];
        let passing = result("server-tools-list-2026-11-24T00-26-49-925Z", &["SUCCESS"]);
        let shown = table(set, &[passing]);
        assert!(shown.contains("passes, is not on the list"), "{shown}");
    }
}
