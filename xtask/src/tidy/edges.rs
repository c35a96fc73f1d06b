//! Who may depend on whom.

use crate::metadata::{CargoMetadata, CargoPackage};

/// Our crates and which of ours each may be built from. What stands left never knows what stands right.
const ALLOWED_EDGES: &[(&str, &[&str])] = &[
    ("dray-types", &[]),
    ("dray-agent", &["dray-types"]),
    ("dray-tool", &["dray-types", "dray-agent"]),
    ("dray-dial", &["dray-types", "dray-agent", "dray-http"]),
    ("dray-tool-dial", TOOL_EDGES),
    ("dray-tool-mcp", TOOL_EDGES),
    ("dray-tool-rest", TOOL_EDGES),
    ("dray-guard", &["dray-types"]),
    ("dray-content", &["dray-types"]),
    ("dray-context", &["dray-types"]),
    ("dray-documents", &["dray-types"]),
    ("dray-http", &["dray-types"]),
    (
        "dray-reading",
        &["dray-types", "dray-documents", "dray-http"],
    ),
    ("dray-proto", &["dray-types"]),
    ("dray-bus", &["dray-types", "dray-proto"]),
    ("dray-store", &["dray-types", "dray-proto"]),
    (
        "dray-service",
        &["dray-types", "dray-proto", "dray-bus", "dray-store"],
    ),
    ("dray-sandbox", &["dray-types", "dray-content"]),
    ("dray-sandbox-apptainer", BACKEND_EDGES),
    ("dray-sandbox-daytona", BACKEND_EDGES),
    ("dray-sandbox-docker", BACKEND_EDGES),
    ("dray-sandbox-e2b", BACKEND_EDGES),
    ("dray-sandbox-kubernetes", BACKEND_EDGES),
    ("dray-sandbox-modal", BACKEND_EDGES),
    ("dray-sandbox-ssh", BACKEND_EDGES),
    (
        "dray-platform",
        &["dray-types", "dray-content", "dray-http"],
    ),
    ("dray-platform-discord", PLATFORM_EDGES),
    ("dray-platform-email", PLATFORM_EDGES),
    ("dray-platform-matrix", PLATFORM_EDGES),
    ("dray-platform-slack", PLATFORM_EDGES),
    ("dray-platform-telegram", PLATFORM_EDGES),
    ("dray-platform-webhook", PLATFORM_EDGES),
    ("dray-platform-whatsapp", PLATFORM_EDGES),
    ("dray-egress-fetcher", SERVICE_EDGES),
    ("dray-file-resolver", FILE_RESOLVER),
    ("dray-sandbox-transfer", SANDBOX_TRANSFER),
    ("dray-platform-delivery", PLATFORM_DELIVERY),
    ("dray-orchestrator", ORCHESTRATOR_EDGES),
    ("dray-testkit", &["dray-types", "dray-proto"]),
    ("dray", ALL_CRATES),
    ("dray-tests", ALL_CRATES),
    ("dray-bench", ALL_CRATES),
    ("xtask", &[]),
];

/// What one kind of sandbox is made of; another one is not among it.
const BACKEND_EDGES: &[&str] = &["dray-types", "dray-content", "dray-http", "dray-sandbox"];

/// What one chat platform is made of; another one is not among it.
const PLATFORM_EDGES: &[&str] = &["dray-types", "dray-content", "dray-http", "dray-platform"];

/// A service and all kinds of sandboxes; no platform is among it.
const SANDBOX_TRANSFER: &[&str] = &[
    "dray-types",
    "dray-content",
    "dray-proto",
    "dray-bus",
    "dray-store",
    "dray-service",
    "dray-sandbox",
    "dray-sandbox-apptainer",
    "dray-sandbox-daytona",
    "dray-sandbox-docker",
    "dray-sandbox-e2b",
    "dray-sandbox-kubernetes",
    "dray-sandbox-modal",
    "dray-sandbox-ssh",
];

/// A service and all platforms; no sandbox is among it.
const PLATFORM_DELIVERY: &[&str] = &[
    "dray-types",
    "dray-content",
    "dray-proto",
    "dray-bus",
    "dray-store",
    "dray-service",
    "dray-platform",
    "dray-platform-discord",
    "dray-platform-email",
    "dray-platform-matrix",
    "dray-platform-slack",
    "dray-platform-telegram",
    "dray-platform-webhook",
    "dray-platform-whatsapp",
];

/// What a service is made of; another service is not among it.
const SERVICE_EDGES: &[&str] = &[
    "dray-types",
    "dray-guard",
    "dray-proto",
    "dray-bus",
    "dray-store",
    "dray-service",
];

/// A service, and what reads documents and names files for an agent.
const FILE_RESOLVER: &[&str] = &[
    "dray-types",
    "dray-guard",
    "dray-proto",
    "dray-bus",
    "dray-store",
    "dray-service",
    "dray-http",
    "dray-documents",
    "dray-reading",
    "dray-context",
];

/// What one kind of tool is made of; another one is not among it.
const TOOL_EDGES: &[&str] = &[
    "dray-types",
    "dray-agent",
    "dray-http",
    "dray-dial",
    "dray-tool",
];

/// A service and all kinds of tools; no reader, sandbox or platform is among it.
const ORCHESTRATOR_EDGES: &[&str] = &[
    "dray-types",
    "dray-guard",
    "dray-agent",
    "dray-content",
    "dray-proto",
    "dray-bus",
    "dray-store",
    "dray-service",
    "dray-http",
    "dray-dial",
    "dray-tool",
    "dray-tool-dial",
    "dray-tool-mcp",
    "dray-tool-rest",
];

/// What stands at the right end.
const ALL_CRATES: &[&str] = &[
    "dray-types",
    "dray-agent",
    "dray-dial",
    "dray-orchestrator",
    "dray-tool",
    "dray-tool-dial",
    "dray-tool-mcp",
    "dray-tool-rest",
    "dray-guard",
    "dray-proto",
    "dray-bus",
    "dray-store",
    "dray-service",
    "dray-egress-fetcher",
    "dray-file-resolver",
    "dray-content",
    "dray-context",
    "dray-documents",
    "dray-http",
    "dray-reading",
    "dray-sandbox",
    "dray-sandbox-apptainer",
    "dray-sandbox-daytona",
    "dray-sandbox-docker",
    "dray-sandbox-e2b",
    "dray-sandbox-kubernetes",
    "dray-sandbox-modal",
    "dray-sandbox-ssh",
    "dray-sandbox-transfer",
    "dray-platform",
    "dray-platform-discord",
    "dray-platform-email",
    "dray-platform-matrix",
    "dray-platform-slack",
    "dray-platform-telegram",
    "dray-platform-webhook",
    "dray-platform-whatsapp",
    "dray-platform-delivery",
    "dray-testkit",
    "dray",
];

/// Every crate may test itself with this one.
const TESTKIT_CRATE: &str = "dray-testkit";

/// Libraries of others that only some of ours may name.
const RESERVED_LIBRARIES: &[(&str, &[&str])] = &[
    // Tests look at the server behind the bus's back, the measurements compare with the bare client.
    ("async-nats", &["dray-bus", "dray-tests", "dray-bench"]),
    ("aws-sdk-s3", &["dray-store", "dray-tests", "dray-bench"]),
    // Trusted endpoints only; nothing that dials what others chose may have it.
    (
        "reqwest",
        &[
            "dray-file-resolver",
            "dray-http",
            "dray-tests",
            "dray-bench",
        ],
    ),
];

/// Libraries that must not be in what a crate is built from, at any depth.
const ABSENT_LIBRARIES: &[(&str, &[&str], &str)] = &[
    ("dray-types", &["tokio", "prost"], "types hold no machinery"),
    ("dray-guard", &["tokio", "prost"], "decisions do no I/O"),
    ("dray-guard", HTTP_CLIENTS, "decisions do no I/O"),
    (
        "dray-egress-fetcher",
        HTTP_CLIENTS,
        "the judged address must be the dialled one, so no client that resolves names by itself",
    ),
];

/// HTTP clients and TLS stacks that bring a resolver or a connector of their own.
const HTTP_CLIENTS: &[&str] = &["reqwest", "ureq", "isahc", "curl", "native-tls"];

/// Every edge that is not allowed.
pub(crate) fn breaches(metadata: &CargoMetadata) -> Vec<String> {
    let mut breaches = Vec::new();
    for package in metadata.members() {
        breaches.extend(own_edges(metadata, package));
        breaches.extend(reserved_breaches(package));
    }
    for (name, absent, reason) in ABSENT_LIBRARIES {
        let tree = metadata.normal_tree(name);
        for library in absent.iter().filter(|library| tree.contains(**library)) {
            breaches.push(format!("{name} is built from {library}: {reason}"));
        }
    }
    breaches
}

/// Edges between our own crates.
fn own_edges(metadata: &CargoMetadata, package: &CargoPackage) -> Vec<String> {
    let Some((_, allowed)) = ALLOWED_EDGES.iter().find(|(name, _)| *name == package.name) else {
        return vec![format!(
            "{} has no line in xtask/src/tidy/edges.rs: say what it may depend on",
            package.name
        )];
    };
    let is_ours = |name: &str| metadata.members().any(|member| member.name == name);
    package
        .declared
        .iter()
        .filter(|declared| is_ours(&declared.name) && declared.name != package.name)
        .filter(|declared| !allowed.contains(&declared.name.as_str()))
        .filter(|declared| !(declared.dev && declared.name == TESTKIT_CRATE))
        .map(|declared| format!("{} must not depend on {}", package.name, declared.name))
        .collect()
}

/// Libraries that belong to other crates.
fn reserved_breaches(package: &CargoPackage) -> Vec<String> {
    let mut breaches = Vec::new();
    for (library, owners) in RESERVED_LIBRARIES {
        let named = package
            .declared
            .iter()
            .any(|declared| declared.name == *library);
        if named && !owners.contains(&package.name.as_str()) {
            breaches.push(format!(
                "{} names {library}, which is for {} alone",
                package.name,
                owners.join(", ")
            ));
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::metadata::DeclaredDependency;

    /// A workspace from lines `crate: dependency, (dev-dependency)`; unknown names are others' libraries.
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
                    dev: word.starts_with('('),
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
                .filter(|other| !other.dev)
                .map(|other| other.name.clone())
                .collect();
            packages.insert(
                name.to_owned(),
                CargoPackage {
                    name: name.to_owned(),
                    member: true,
                    declared,
                    normal,
                    ..CargoPackage::default()
                },
            );
        }
        CargoMetadata { packages }
    }

    fn check(lines: &[&str], expected: &[&str]) {
        assert_eq!(breaches(&workspace(lines)), expected);
    }

    #[test]
    fn left_never_knows_right() {
        check(
            &["dray-types: dray-bus", "dray-bus: dray-types"],
            &["dray-types must not depend on dray-bus"],
        );
    }

    #[test]
    fn the_services_do_not_know_each_other() {
        check(
            &[
                "dray-egress-fetcher:",
                "dray-file-resolver: dray-egress-fetcher",
            ],
            &["dray-file-resolver must not depend on dray-egress-fetcher"],
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
    fn a_new_crate_must_say_where_it_stands() {
        check(
            &["dray-surprise:"],
            &["dray-surprise has no line in xtask/src/tidy/edges.rs: say what it may depend on"],
        );
    }

    #[test]
    fn the_nats_client_has_one_home() {
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
        let found = breaches(&deep);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("dray-egress-fetcher is built from native-tls"));
    }

    #[test]
    fn types_and_guard_hold_no_machinery() {
        check(
            &["dray-guard: tokio", "dray-types: prost"],
            &[
                "dray-types is built from prost: types hold no machinery",
                "dray-guard is built from tokio: decisions do no I/O",
            ],
        );
    }
}
