//! Edges of invented workspaces: which are allowed and which are reported.

use std::collections::BTreeMap;

use super::*;
use crate::metadata::DeclaredDependency;

/// A workspace from lines `crate: dependency, (dev-dependency)`; unknown names are external libraries.
fn workspace(lines: &[&str]) -> CargoMetadata {
    let mut packages = BTreeMap::new();
    for line in lines {
        let (name, rest) = line.split_once(':').unwrap();
        let declared: Vec<_> = rest
            .split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty())
            .map(|word| DeclaredDependency {
                name: word.trim_matches(['(', ')']).to_owned(),
                rename: None,
                is_dev: word.starts_with('('),
            })
            .collect();
        for other in &declared {
            packages.entry(other.name.clone()).or_insert(CargoPackage {
                name: other.name.clone(),
                ..CargoPackage::default()
            });
        }
        let normal = declared
            .iter()
            .filter(|other| !other.is_dev)
            .map(|other| other.name.clone())
            .collect();
        packages.insert(
            name.to_owned(),
            CargoPackage {
                name: name.to_owned(),
                is_member: true,
                declared,
                normal,
                ..CargoPackage::default()
            },
        );
    }
    CargoMetadata { packages }
}

fn check(lines: &[&str], expected: &[&str]) {
    assert_eq!(violations(&workspace(lines)), expected);
}

#[test]
fn a_crate_does_not_depend_on_a_crate_in_a_higher_layer() {
    check(
        &["dray-types: dray-bus", "dray-bus: dray-types"],
        &["dray-types must not depend on dray-bus"],
    );
}

#[test]
fn services_do_not_depend_on_each_other() {
    check(
        &[
            "dray-egress-fetcher:",
            "dray-file-resolver: dray-egress-fetcher",
        ],
        &["dray-file-resolver must not depend on dray-egress-fetcher"],
    );
}

#[test]
fn extensions_depend_on_their_interface_and_only_their_host_on_them() {
    check(
        &[
            "dray-sandbox:",
            "dray-platform:",
            "dray-platform-slack: dray-platform, dray-sandbox",
            "dray-platform-discord: dray-platform-slack",
            "dray-platform-delivery: dray-platform-slack",
            "dray-sandbox-transfer: dray-platform-slack",
            "dray: dray-platform-slack",
        ],
        &[
            "dray-platform-discord must not depend on dray-platform-slack",
            "dray-platform-slack must not depend on dray-sandbox",
            "dray-sandbox-transfer must not depend on dray-platform-slack",
        ],
    );
}

#[test]
fn the_testkit_is_for_tests_and_the_demo() {
    check(
        &[
            "dray-testkit:",
            "dray-store: (dray-testkit)",
            "dray: dray-testkit",
            "dray-bus: dray-testkit",
        ],
        &["dray-bus must not depend on dray-testkit"],
    );
}

#[test]
fn the_suite_of_sandboxes_is_for_their_tests() {
    check(
        &[
            "dray-sandbox-conformance:",
            "dray-sandbox-exec: (dray-sandbox-conformance)",
            "dray-sandbox-ssh: dray-sandbox-conformance",
            "dray-platform: (dray-sandbox-conformance)",
        ],
        &[
            "dray-platform must not depend on dray-sandbox-conformance",
            "dray-sandbox-ssh must not depend on dray-sandbox-conformance",
        ],
    );
}

#[test]
fn a_crate_without_a_line_is_reported() {
    check(
        &["dray-surprise:"],
        &["dray-surprise has no line in xtask/src/tidy/edges.rs: say what it may depend on"],
    );
}

#[test]
fn only_the_bus_and_the_tests_use_the_nats_client() {
    check(
        &["dray-bus: async-nats", "dray-service: async-nats"],
        &["dray-service names async-nats, which is for dray-bus, dray-tests, dray-bench alone"],
    );
}

#[test]
fn i_2_the_fetcher_has_no_client_with_a_resolver_at_any_depth() {
    check(
        &[
            "dray-service: reqwest-like",
            "dray-egress-fetcher: dray-service",
        ],
        &[],
    );
    let mut deep = workspace(&[
        "dray-service: innocent",
        "dray-egress-fetcher: dray-service",
    ]);
    let id = "innocent".to_owned();
    deep.packages
        .entry(id)
        .or_default()
        .normal
        .insert("native-tls".to_owned());
    deep.packages.insert(
        "native-tls".to_owned(),
        CargoPackage {
            name: "native-tls".to_owned(),
            ..CargoPackage::default()
        },
    );
    let violations_found = violations(&deep);
    assert_eq!(violations_found.len(), 1);
    assert!(violations_found[0].starts_with("dray-egress-fetcher is built from native-tls"));
}

#[test]
fn types_and_guard_have_no_runtime_dependencies() {
    check(
        &["dray-guard: tokio", "dray-types: prost"],
        &[
            "dray-types is built from prost: types hold only values",
            "dray-guard is built from tokio: decisions do no I/O",
        ],
    );
}
