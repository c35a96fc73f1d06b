//! Tests of the variables of other products that set fields.

use super::*;

#[test]
fn variables_with_a_strict_prefix_refuse_typing_errors() {
    let problems = config_problems(&[("PEER_FETCH_ENABLE", "false")]);
    assert_eq!(
        problems,
        [
            "`PEER_FETCH_ENABLE` (environment): is not a known variable; did you mean `PEER_FETCH_ENABLED`?"
        ]
    );
}

#[test]
fn aliases_set_fields_and_are_strict() {
    let loaded = load(&with_variables(&[
        ("PEER_FETCH_ENABLED", "true"),
        ("PEER_FETCH_TIMEOUT_SECONDS", "2.5"),
        ("PEER_FETCH_HOSTS", r#"["a.example"]"#),
        ("PEER_FETCH_PER_HOST", "7"),
    ]))
    .unwrap();
    assert!(loaded.enabled);
    assert_eq!(loaded.connect_timeout, Period::millis(2500));
    assert_eq!(loaded.hosts.unwrap(), ["a.example"]);
    assert_eq!(loaded.limits.per_host, 7);
    assert_eq!(
        config_problems(&[("PEER_FETCH_ENABLED", "True")]),
        [
            "`egress-fetcher.enabled` is `True` (variable PEER_FETCH_ENABLED): must be exactly `true` or `false`"
        ]
    );
}

#[test]
fn a_blank_alias_counts_as_unset_and_warns() {
    let loaded = loader()
        .load(&with_variables(&[("PEER_FETCH_HOSTS", " ")]))
        .unwrap();
    assert_eq!(
        loaded.warnings(),
        ["variable PEER_FETCH_HOSTS is blank and counts as unset"]
    );
    assert_eq!(
        loaded
            .section::<TestSection>("egress-fetcher")
            .unwrap()
            .hosts,
        None
    );
}

#[test]
fn two_names_of_one_field_must_agree() {
    let check = |alias: (&str, &str), own: (&str, &str), agree: bool| {
        let result = load(&with_variables(&[alias, own]));
        assert_eq!(result.is_ok(), agree, "{alias:?} {own:?}: {result:?}");
        if let Err(text) = result {
            assert!(
                text.contains("is set to different values")
                    && text.contains(alias.0)
                    && text.contains(own.0),
                "{text}"
            );
            assert!(!text.contains("hunter"), "{text}");
        }
    };
    let timeout = "DRAY_EGRESS_FETCHER__CONNECT_TIMEOUT";
    check(("PEER_FETCH_TIMEOUT_SECONDS", "5"), (timeout, "5s"), true);
    check(
        ("PEER_FETCH_TIMEOUT_SECONDS", "5"),
        (timeout, "5000ms"),
        true,
    );
    check(("PEER_FETCH_TIMEOUT_SECONDS", "5"), (timeout, "6s"), false);
    check(
        ("PEER_FETCH_ENABLED", "true"),
        ("DRAY_EGRESS_FETCHER__ENABLED", "false"),
        false,
    );
    check(
        ("PEER_FETCH_PER_HOST", "1"),
        ("DRAY_EGRESS_FETCHER__LIMITS__PER_HOST", "2"),
        false,
    );
    check(
        ("PEER_FETCH_KEY", "hunter2"),
        ("DRAY_EGRESS_FETCHER__KEY", "hunter2"),
        true,
    );
    check(
        ("PEER_FETCH_KEY", "hunter2"),
        ("DRAY_EGRESS_FETCHER__KEY", "hunter3"),
        false,
    );
}
