//! `dray policy explain`: the verdict of a fetch, its steps, and an exit code for scripts.

use serde_json::Value;

use super::{CliHome, check, line};

#[test]
fn the_steps_name_the_setting_that_decides_and_where_its_value_comes_from() {
    let home = CliHome::new();
    let url = "https://files.example.org/a.pdf";
    let off = home.run(&["policy", "explain", url, "--json"]);
    assert_eq!(off.status.code(), Some(1), "{off:?}");
    let explained = line(&off);
    assert_eq!(explained["verdict"], "refused");
    assert_eq!(explained["fault"]["detail"], "disabled_by_admin");
    let first = &explained["steps"][0];
    assert_eq!(first["step"], "operator_switch");
    assert_eq!(first["setting"], "egress-fetcher.enabled");
    assert_eq!(first["origin"], "default");
    assert_eq!(explained["steps"].as_array().unwrap().len(), 11);

    let mut enabled = home.dray(&["policy", "explain", url, "--json"]);
    let enabled = enabled
        .env("EXTERNAL_URL_FETCH_ENABLED", "true")
        .output()
        .unwrap();
    assert!(enabled.status.success(), "{enabled:?}");
    let explained = line(&enabled);
    assert_eq!(explained["verdict"], "allowed");
    assert_eq!(explained["complete"], false, "the name was not looked up");
    assert_eq!(
        explained["steps"][0]["origin"],
        "variable EXTERNAL_URL_FETCH_ENABLED"
    );
    assert_eq!(explained["steps"][9]["verdict"], "not_judged");
}

#[test]
fn an_app_narrows_and_the_fault_is_that_of_a_fetch() {
    let home = CliHome::new();
    let on = ["--set", "egress-fetcher.enabled=true"];
    let explain = |arguments: &[&str]| {
        let command: Vec<&str> = ["policy", "explain"]
            .iter()
            .chain(arguments)
            .chain(&on)
            .copied()
            .collect();
        home.run(&command)
    };
    let url = "https://files.example.org/";
    for (host, code) in [("*.example.org", 0), ("other.example.org", 1)] {
        let explained = explain(&[url, "--allow", host]);
        assert_eq!(explained.status.code(), Some(code), "{explained:?}");
    }
    for url in [
        "http://169.254.169.254/",
        "http://localhost/",
        "file:///etc/passwd",
        "http://a.example:25/",
    ] {
        let explained = explain(&[url, "--json"]);
        assert_eq!(explained.status.code(), Some(1), "{explained:?}");
        let fetched = home.run(&["fetch", url, "--json", on[0], on[1]]);
        let mut faults = [line(&explained), line(&fetched)].map(|mut one| one["fault"].take());
        for fault in &mut faults {
            // Each call has a trace of its own.
            fault["trace_id"] = Value::Null;
        }
        assert_eq!(faults[0], faults[1], "{url}");
    }
    let usage = home.run(&["policy", "explain"]);
    check(&usage, 2, "");
}
