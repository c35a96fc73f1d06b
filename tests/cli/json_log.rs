//! Standard error of `dray up` and `dray topology` with `telemetry.format = json`, as a collector reads it.

use serde_json::Value;

use super::CliHome;

/// The lines of standard error of a command that fails.
fn failed_records(arguments: &[&str]) -> Vec<Value> {
    let home = CliHome::new();
    let mut command = home.dray(arguments);
    let output = command.env("DRAY_TELEMETRY__FORMAT", "json").output();
    let output = output.unwrap();
    assert!(!output.status.success(), "{output:?}");
    let errors = String::from_utf8_lossy(&output.stderr);
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("{errors}"));
    errors.lines().map(parse).collect()
}

#[test]
fn a_failed_start_is_one_record_with_its_advice() {
    for arguments in [
        // A configuration that cannot be loaded, and a server that does not run.
        &["up", "--only", "sweeper", "--set", "limits.calls=0"][..],
        &["topology", "apply", "--nats", "nats://127.0.0.1:1"],
    ] {
        let records = failed_records(arguments);
        let failures: Vec<_> = records
            .iter()
            .filter(|record| record["level"] == "ERROR")
            .collect();
        let [failure] = failures.as_slice() else {
            panic!("{arguments:?}: {records:?}");
        };
        for field in ["message", "code", "detail", "timestamp"] {
            assert!(failure[field].is_string(), "{arguments:?}: {failure}");
        }
    }
}
