//! Checks of `deploy/` with Checkov, which finds unsafe settings. Every finding is in the table of `deploy/README.md`,
//! with its reason, and every row of the table is still a finding.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::kubernetes::RENDERED_BASE;
use super::{helm, read};
use crate::support::python_environment::environment;

/// Checkov has dependencies that conflict with those of the other tests.
const CHECKOV_PACKAGE: &str = "checkov==3.3.30";

/// Objects by the id of a check that they fail.
type Findings = BTreeMap<String, BTreeSet<String>>;

/// The report of Checkov about the files of a directory: a list with one part for each kind of files.
fn report(directory: &Path) -> Vec<Value> {
    let python = environment("python-checkov", Path::new("python3"), &[CHECKOV_PACKAGE]);
    let output = Command::new(python.with_file_name("checkov"))
        .args(["--directory", "."])
        .args(["--framework", "kubernetes", "dockerfile"])
        // No request is made: policies and databases of its makers are not downloaded.
        .args([
            "--skip-download",
            "--quiet",
            "--compact",
            "--soft-fail",
            "--output",
            "json",
        ])
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    match serde_json::from_slice(&output.stdout).unwrap() {
        Value::Array(parts) => parts,
        part => vec![part],
    }
}

/// The findings in one part of a report, which must have `least` passed checks.
fn findings(parts: &[Value], kind: &str, least: u64) -> Findings {
    let part = parts.iter().find(|part| part["check_type"] == kind);
    let part = part.unwrap_or_else(|| panic!("no {kind} in {parts:?}"));
    let summary = &part["summary"];
    assert!(summary["passed"].as_u64().unwrap() >= least, "{summary}");
    assert_eq!(summary["parsing_errors"], 0, "{summary}");
    let mut findings = Findings::new();
    for failed in part["results"]["failed_checks"].as_array().unwrap() {
        let text = |field: &str| failed[field].as_str().unwrap().to_owned();
        let objects = findings.entry(text("check_id")).or_default();
        objects.insert(text("resource"));
    }
    findings
}

/// The ids of the checks in the table of the README.
fn accepted_checks() -> BTreeSet<String> {
    let page = read("deploy/README.md");
    let rows = page.lines().filter(|line| line.starts_with("| `CKV"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert!(
            cells.len() == 5 && cells.iter().skip(1).take(3).all(|cell| !cell.is_empty()),
            "a row has a check, what it asks for, and a reason: {row}"
        );
        cells[1].trim_matches('`').to_owned()
    })
    .collect()
}

/// The expected findings: each pod template fails the accepted checks.
fn expected_findings(objects: &[Value]) -> Findings {
    let names: BTreeSet<String> = objects
        .iter()
        .filter(|object| matches!(object["kind"].as_str(), Some("Deployment" | "Job")))
        .map(|object| {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            format!(
                "{}.dray.{}",
                text(&object["kind"]),
                text(&object["metadata"]["name"])
            )
        })
        .collect();
    assert_eq!(names.len(), 7, "{names:?}");
    let checks = accepted_checks().into_iter();
    checks.map(|check| (check, names.clone())).collect()
}

#[test]
fn checkov_finds_in_the_base_and_the_image_what_the_readme_leaves_to_the_operator() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    write("base.yaml", &RENDERED_BASE);
    write("Dockerfile", &read("deploy/Dockerfile"));
    let parts = report(directory.path());
    let expected = expected_findings(&super::yaml(&RENDERED_BASE));
    assert_eq!(findings(&parts, "kubernetes", 600), expected);
    assert_eq!(findings(&parts, "dockerfile", 30), Findings::new());
}

#[test]
fn checkov_finds_nothing_else_in_the_chart_with_all_its_parts() {
    let values = json!({
        "egressProxy": { "enabled": true },
        "keda": { "enabled": true },
        "monitoring": { "enabled": true },
        "preview": { "enabled": true },
    });
    let mut objects = helm::chart_objects(&values);
    for object in &mut objects {
        // As `helm install --namespace dray` does.
        object["metadata"]["namespace"] = json!("dray");
    }
    let directory = tempfile::tempdir().unwrap();
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
    std::fs::write(directory.path().join("chart.json"), list.to_string()).unwrap();
    let parts = report(directory.path());
    let expected = expected_findings(&objects);
    assert_eq!(findings(&parts, "kubernetes", 600), expected);
}

#[test]
fn checkov_reports_a_container_that_may_gain_privileges() {
    let directory = tempfile::tempdir().unwrap();
    let setting = "allowPrivilegeEscalation: ";
    let unsafe_base = RENDERED_BASE.replace(&format!("{setting}false"), &format!("{setting}true"));
    std::fs::write(directory.path().join("base.yaml"), unsafe_base).unwrap();
    let parts = report(directory.path());
    assert!(findings(&parts, "kubernetes", 500).contains_key("CKV_K8S_20"));
}
