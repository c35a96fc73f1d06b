//! Tests of the output for operators: the effective values and the reference page.

use super::*;

#[test]
fn the_report_names_the_source_of_each_value_and_hides_secrets() {
    let sources = with_variables(&[
        ("PEER_FETCH_ENABLED", "true"),
        ("DRAY_EGRESS_FETCHER__LIMITS__PER_HOST", "9"),
        ("DRAY_EGRESS_FETCHER__KEY", "hunter2"),
    ])
    .set("egress-fetcher.agent", "me");
    let loaded = loader().load(&sources).unwrap();
    let text = loaded.report().to_string();
    for line in [
        "egress-fetcher.enabled = true  # variable PEER_FETCH_ENABLED",
        "egress-fetcher.limits.per_host = 9  # variable DRAY_EGRESS_FETCHER__LIMITS__PER_HOST",
        "egress-fetcher.agent = \"me\"  # flag --set egress-fetcher.agent",
        "egress-fetcher.max_bytes = \"10MiB\"  # default",
        "egress-fetcher.key = \"***\"  # variable DRAY_EGRESS_FETCHER__KEY",
        "egress-fetcher.hosts = null  # default",
    ] {
        assert!(
            text.lines().any(|have| have == line),
            "{line} is not in\n{text}"
        );
    }
    assert!(!text.contains("hunter2"));
    assert!(
        !format!("{sources:?}").contains("hunter2"),
        "the environment prints names only"
    );
}

#[test]
fn an_empty_secret_is_shown_as_empty() {
    let loaded = loader().load(&ConfigSources::default()).unwrap();
    let text = loaded.report().to_string();
    let line = "egress-fetcher.key = \"\"  # default";
    assert!(text.lines().any(|have| have == line), "{text}");
}

#[test]
fn origins_name_variables_and_neither_values_nor_files() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "[egress-fetcher]\nmax_redirects = 3").unwrap();
    let sources = with_variables(&[("PEER_FETCH_ENABLED", "true")])
        .file(file.path())
        .set("egress-fetcher.agent", "me");
    let origins = loader().load(&sources).unwrap().origins("egress-fetcher");
    for (field, origin) in [
        ("enabled", "variable PEER_FETCH_ENABLED"),
        ("agent", "option"),
        ("max_redirects", "file"),
        ("hosts", "default"),
    ] {
        assert_eq!(origins.of(field), origin, "{field}");
    }
}

#[test]
fn the_reference_page_describes_every_field() {
    let page = configuration_page(loader().sections());
    for line in [
        "## `egress-fetcher`",
        "| `max_bytes` | `DRAY_EGRESS_FETCHER__MAX_BYTES` | `10MiB` | Largest body. |",
        "| `hosts` | `DRAY_EGRESS_FETCHER__HOSTS` | unset | Patterns; unset means all \\| any. |",
        "| `limits.per_host` | `DRAY_EGRESS_FETCHER__LIMITS__PER_HOST` | `4` | Most concurrent requests to one host. |",
        "| `mode` | `DRAY_EGRESS_FETCHER__MODE` | `loose` | Strictness of a check. One of: loose, tight. |",
        "| `key` | `DRAY_EGRESS_FETCHER__KEY` | empty | Key for hashes. Secret. |",
        "| `PEER_FETCH_ENABLED` | `egress-fetcher.enabled` |",
        "Every other variable that begins with `PEER_FETCH_` is a start-up error.",
    ] {
        assert!(
            page.lines().any(|have| have == line),
            "{line} is not in\n{page}"
        );
    }
}
