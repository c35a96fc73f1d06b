//! Tests of settings that look harmless and would permit or refuse everything.

use super::*;

#[test]
fn section_20_empty_items_do_not_pass_as_restrictions() {
    for variable in ["EXTRA_BLOCKED_CIDRS", "PRIVATE_CIDRS", "NAT64_PREFIXES"] {
        refuses(variable, &[r#"[""]"#, r#"["", ""]"#, r#"[" "]"#]);
    }
    refuses("EXTRA_BLOCKED_CIDRS", &[r#"["9.9.9.0/24",""]"#]);
    refuses("EXTRA_BLOCKED_HOSTS", &[r#"[""]"#]);
    refuses("HOST_ALLOWLIST", &[r#"["a.example.org",""]"#]);
    let without_name = Config {
        protected: vec![String::new()],
        ..Config::default()
    };
    assert!(without_name.compile().is_err());
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

#[test]
fn a_credential_needs_one_location_one_host_and_its_tenants() {
    use crate::config::CredentialConfig;

    type Change = fn(&mut CredentialConfig);

    let valid = CredentialConfig {
        name: "files".to_owned(),
        host: "files.example.org".to_owned(),
        header: Some("authorization".to_owned()),
        secret: dray_types::Secret::new("s3cret"),
        tenants: vec!["acme".to_owned()],
        ..CredentialConfig::default()
    };
    let problems = |credential: CredentialConfig| -> Vec<String> {
        let mut config = Config::default();
        config.credentials.push(credential);
        let problems = config.compile().err().unwrap_or_default();
        problems.into_iter().map(|problem| problem.field).collect()
    };
    assert_eq!(problems(valid.clone()), Vec::<String>::new());
    for tenant in ["*", "acme-*", "a b"] {
        // A pattern would match no tenant.
        let mut credential = valid.clone();
        credential.tenants.push(tenant.to_owned());
        assert_eq!(problems(credential), ["credentials.0.tenants"], "{tenant}");
    }
    let rows: [(Change, &str); 9] = [
        (|credential| credential.name.clear(), "name"),
        (
            |credential| credential.host = "*.example.org".to_owned(),
            "host",
        ),
        (
            |credential| credential.host = "Files.example.org".to_owned(),
            "host",
        ),
        (|credential| credential.tenants.clear(), "tenants"),
        (
            |credential| credential.secret = dray_types::Secret::default(),
            "secret",
        ),
        (
            |credential| credential.secret = dray_types::Secret::new("a\nb"),
            "secret",
        ),
        (
            |credential| credential.header = Some("host".to_owned()),
            "header",
        ),
        (
            |credential| credential.query = Some("key".to_owned()),
            "header",
        ),
        (|credential| credential.header = None, "header"),
    ];
    for (change, field) in rows {
        let mut credential = valid.clone();
        change(&mut credential);
        let found = problems(credential);
        assert!(
            found.contains(&format!("credentials.0.{field}")),
            "{field} {found:?}"
        );
    }
}

#[test]
fn two_credentials_for_one_host_port_and_tenant_are_a_problem() {
    use crate::config::CredentialConfig;

    let credential = |name: &str, port: Option<u16>, tenants: &[&str]| CredentialConfig {
        name: name.to_owned(),
        host: "files.example.org".to_owned(),
        port,
        header: Some("authorization".to_owned()),
        secret: dray_types::Secret::new("s3cret"),
        tenants: tenants.iter().map(|tenant| (*tenant).to_owned()).collect(),
        ..CredentialConfig::default()
    };
    for (second, is_problem) in [
        (credential("b", Some(443), &["beta", "acme"]), true),
        (credential("b", None, &["acme"]), true),
        (credential("b", Some(8443), &["acme"]), false),
        (credential("b", None, &["beta"]), false),
    ] {
        let config = Config {
            credentials: vec![credential("a", None, &["acme"]), second],
            ..Config::default()
        };
        let problems = config.compile().err().unwrap_or_default();
        let fields: Vec<_> = problems.iter().map(|problem| &problem.field).collect();
        let expected: &[&str] = if is_problem {
            &["credentials.1.tenants"]
        } else {
            &[]
        };
        assert_eq!(fields, expected);
    }
}
