//! Tests of refused settings and their messages.

use super::*;

#[test]
fn an_error_names_the_key_the_value_the_source_and_the_valid_values() {
    for (variable, value, expected) in [
        (
            "ENABLED",
            "yes",
            "`egress-fetcher.enabled` is `yes` (variable DRAY_EGRESS_FETCHER__ENABLED): must be `true` or `false`",
        ),
        (
            "MAX_REDIRECTS",
            "many",
            "`egress-fetcher.max_redirects` is `many` (variable DRAY_EGRESS_FETCHER__MAX_REDIRECTS): must be a whole number",
        ),
        (
            "MAX_REDIRECTS",
            "11",
            "`egress-fetcher.max_redirects` is `11` (variable DRAY_EGRESS_FETCHER__MAX_REDIRECTS): must be 0 to 10",
        ),
        (
            "MODE",
            "mid",
            "`egress-fetcher.mode` is `mid` (variable DRAY_EGRESS_FETCHER__MODE): must be one of: loose, tight",
        ),
        (
            "KEY",
            "short",
            "`egress-fetcher.key` is `***` (variable DRAY_EGRESS_FETCHER__KEY): must be at least 16 characters",
        ),
        (
            "REDIRECTS",
            "1",
            "`egress-fetcher.redirects` (variable DRAY_EGRESS_FETCHER__REDIRECTS): is not a known field",
        ),
        (
            "MAX_REDIRECT",
            "1",
            "`egress-fetcher.max_redirect` (variable DRAY_EGRESS_FETCHER__MAX_REDIRECT): is not a known field; did you mean `max_redirects`?",
        ),
        (
            "LIMITS__PER_HOSTS",
            "1",
            "`egress-fetcher.limits.per_hosts` (variable DRAY_EGRESS_FETCHER__LIMITS__PER_HOSTS): is not a known field; did you mean `per_host`?",
        ),
    ] {
        let problems = config_problems(&[(&format!("DRAY_EGRESS_FETCHER__{variable}"), value)]);
        assert!(
            problems.len() == 1 && problems[0].starts_with(expected),
            "{variable}: {problems:#?}"
        );
    }
}

#[test]
fn an_unset_value_is_shown_as_empty_even_if_it_is_secret() {
    use crate::config::check::display_value;
    for secret in [true, false] {
        for value in [serde_json::Value::Null, "".into()] {
            let shown = display_value(&value, secret);
            assert_eq!(shown.as_deref(), Some(""), "{secret} {value}");
        }
    }
    let shown = display_value(&"hunter2".into(), true);
    assert_eq!(shown.as_deref(), Some("***"));
}

#[test]
fn a_table_is_not_shown_because_its_fields_may_be_secret() {
    use crate::config::check::display_value;

    let account = serde_json::json!({ "token": "hunter2" });
    let list = serde_json::json!([account]);
    assert_eq!(display_value(&account, false), None);
    assert_eq!(display_value(&list, false), None);
}

#[test]
fn a_value_that_its_type_cannot_read_is_reported_with_its_field() {
    let problems = config_problems(&[("DRAY_EGRESS_FETCHER__MAX_BYTES", "ten")]);
    assert!(
        problems[0].starts_with("`egress-fetcher.max_bytes`"),
        "{problems:?}"
    );
    assert!(
        problems[0].contains("variable DRAY_EGRESS_FETCHER__MAX_BYTES"),
        "{problems:?}"
    );
    let problems = config_problems(&[("DRAY_EGRESS_FETCHER__CONNECT_TIMEOUT", "5")]);
    assert!(
        problems[0].contains("`5` is not a length of time"),
        "{problems:?}"
    );
    let problems = config_problems(&[("DRAY_EGRESS_FETCHER__PORTS", "80,70000")]);
    assert!(
        problems[0].starts_with("`egress-fetcher.ports"),
        "{problems:?}"
    );
}

#[test]
fn all_problems_are_reported_together() {
    let problems = config_problems(&[
        ("DRAY_EGRESS_FETCHER__ENABLED", "1"),
        ("DRAY_EGRESS_FETCHER__MAX_REDIRECTS", "x"),
        ("DRAY_OTHER__FIELD", "1"),
    ]);
    assert_eq!(problems.len(), 3, "{problems:#?}");
}

#[test]
fn variables_that_nothing_reads_are_refused() {
    let problems = config_problems(&[("DRAY_EGRESS_FETCHER_MAX_BYTES", "1")]);
    assert!(problems[0].contains("two underscores"), "{problems:?}");
    let problems = config_problems(&[("DRAY_EGRES_FETCHER__MAX_BYTES", "1")]);
    assert!(
        problems[0].contains("did you mean `egress-fetcher`?"),
        "{problems:?}"
    );
}

#[test]
fn variables_of_other_programs_with_the_prefix_are_ignored_with_a_warning() {
    let loaded = loader()
        .load(&with_variables(&[
            ("DRAY_BIN", "/usr/bin/dray"),
            ("DRAY_EGRESS_FETCHER__AGENT", "me"),
        ]))
        .unwrap();
    let section: TestSection = loaded.section("egress-fetcher").unwrap();
    assert_eq!(section.agent, "me");
    let [warning] = loaded.warnings() else {
        panic!("{:?}", loaded.warnings());
    };
    assert!(
        warning.starts_with("the variable DRAY_BIN is ignored"),
        "{warning}"
    );
}

#[test]
fn files_are_checked_as_variables_are() {
    let check = |text: &str, expected: &str| {
        let toml = file(text);
        let error = load(&ConfigSources::default().file(toml.path())).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
        assert!(
            error.contains(&format!("file {}", toml.path().display())),
            "{error}"
        );
    };
    check(
        "[egress-fetcher]\nmax_redirect = 1\n",
        "did you mean `max_redirects`?",
    );
    check("[egress]\nx = 1\n", "`egress`");
    check(
        "[egress-fetcher]\nenabled = 'yes'\n",
        "`egress-fetcher.enabled`",
    );
    check(
        "[egress-fetcher]\nports = [1, 'x']\n",
        "`egress-fetcher.ports",
    );
    check("[egress-fetcher]\n\nenabled = \n", "in line 3");
    check("egress-fetcher = 1\n", "`egress-fetcher`");
    let error = load(&ConfigSources::default().file("/nowhere/dray.toml")).unwrap_err();
    assert!(error.contains("must be a readable TOML file"), "{error}");
}

#[test]
fn flags_are_checked_as_variables_are() {
    let check = |key: &str, value: &str, expected: &str| {
        let error = load(&ConfigSources::default().set(key, value)).unwrap_err();
        assert!(error.contains(expected), "{error}");
        assert!(error.contains(&format!("flag --set {key}")), "{error}");
    };
    check("egress-fetcher.enabled", "on", "must be `true` or `false`");
    check("egress-fetcher.nothing", "1", "is not a known field");
    check("nothing.enabled", "1", "is not a known section");
    for wrong in ["a", "a.b", "a=b"] {
        assert!(wrong.parse::<FieldOverride>().is_err(), "{wrong}");
    }
    let flag: FieldOverride = "a.b=c=d".parse().unwrap();
    assert_eq!((flag.key.as_str(), flag.value.as_str()), ("a.b", "c=d"));
}
