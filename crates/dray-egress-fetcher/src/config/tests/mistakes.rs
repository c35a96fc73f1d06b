//! Settings that look harmless and would open or close everything.

use super::*;

#[test]
fn section_20_empty_items_do_not_pass_as_restrictions() {
    for variable in ["EXTRA_BLOCKED_CIDRS", "PRIVATE_CIDRS", "NAT64_PREFIXES"] {
        refuses(variable, &[r#"[""]"#, r#"["", ""]"#, r#"[" "]"#]);
    }
    refuses("EXTRA_BLOCKED_CIDRS", &[r#"["9.9.9.0/24",""]"#]);
    refuses("EXTRA_BLOCKED_HOSTS", &[r#"[""]"#]);
    refuses("HOST_ALLOWLIST", &[r#"["a.example.org",""]"#]);
    let nobody = Config {
        protected: vec![String::new()],
        ..Config::default()
    };
    assert!(nobody.compile().is_err());
}

#[test]
fn b_8_a_least_rate_needs_time_to_count() {
    let config = |min_rate, min_rate_after| Config {
        min_rate,
        min_rate_after,
        ..Config::default()
    };
    let problems = config(ByteSize::kib(1), Period::default()).validate();
    assert_eq!(problems[0].field, "min_rate_after");
    assert!(
        config(ByteSize::default(), Period::default())
            .validate()
            .is_empty()
    );
}
