//! Who may depend on whom.

use crate::metadata::{Metadata, Package};

/// Our crates and which of ours each may be built from. What stands left never knows what stands right.
const EDGES: &[(&str, &[&str])] = &[
    ("dray-types", &[]),
    ("dray-agent", &["dray-types"]),
    ("dray-tool", &["dray-types", "dray-agent"]),
    ("dray-dial", &["dray-types", "dray-agent", "dray-http"]),
    ("dray-tool-dial", TOOL),
    ("dray-tool-mcp", TOOL),
    ("dray-tool-rest", TOOL),
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
    ("dray-sandbox-apptainer", BACKEND),
    ("dray-sandbox-daytona", BACKEND),
    ("dray-sandbox-docker", BACKEND),
    ("dray-sandbox-e2b", BACKEND),
    ("dray-sandbox-kubernetes", BACKEND),
    ("dray-sandbox-modal", BACKEND),
    ("dray-sandbox-ssh", BACKEND),
    (
        "dray-platform",
        &["dray-types", "dray-content", "dray-http"],
    ),
    ("dray-platform-discord", PLATFORM),
    ("dray-platform-email", PLATFORM),
    ("dray-platform-matrix", PLATFORM),
    ("dray-platform-slack", PLATFORM),
    ("dray-platform-telegram", PLATFORM),
    ("dray-platform-webhook", PLATFORM),
    ("dray-platform-whatsapp", PLATFORM),
    ("dray-egress-fetcher", SERVICE),
    ("dray-file-resolver", FILE_RESOLVER),
    ("dray-sandbox-transfer", SANDBOX_TRANSFER),
    ("dray-platform-delivery", PLATFORM_DELIVERY),
    ("dray-orchestrator", ORCHESTRATOR),
    ("dray-testkit", &["dray-types", "dray-proto"]),
    ("dray", EVERYTHING),
    ("dray-tests", EVERYTHING),
    ("dray-bench", EVERYTHING),
    ("xtask", &[]),
];

/// What one kind of sandbox is made of; another one is not among it.
const BACKEND: &[&str] = &["dray-types", "dray-content", "dray-http", "dray-sandbox"];

/// What one chat platform is made of; another one is not among it.
const PLATFORM: &[&str] = &["dray-types", "dray-content", "dray-http", "dray-platform"];

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
const SERVICE: &[&str] = &[
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
const TOOL: &[&str] = &[
    "dray-types",
    "dray-agent",
    "dray-http",
    "dray-dial",
    "dray-tool",
];

/// A service and all kinds of tools; no reader, sandbox or platform is among it.
const ORCHESTRATOR: &[&str] = &[
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
const EVERYTHING: &[&str] = &[
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
const TESTKIT: &str = "dray-testkit";

/// Libraries of others that only some of ours may name.
const RESERVED: &[(&str, &[&str])] = &[
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
const ABSENT: &[(&str, &[&str], &str)] = &[
    ("dray-types", &["tokio", "prost"], "types hold no machinery"),
    ("dray-guard", &["tokio", "prost"], "decisions do no I/O"),
    ("dray-guard", CLIENTS, "decisions do no I/O"),
    (
        "dray-egress-fetcher",
        CLIENTS,
        "the judged address must be the dialled one, so no client that resolves names by itself",
    ),
];

/// HTTP clients and TLS stacks that bring a resolver or a connector of their own.
const CLIENTS: &[&str] = &["reqwest", "ureq", "isahc", "curl", "native-tls"];

/// Every edge that is not allowed.
pub(crate) fn breaches(metadata: &Metadata) -> Vec<String> {
    let mut breaches = Vec::new();
    for package in metadata.members() {
        breaches.extend(own_edges(metadata, package));
        breaches.extend(reserved(package));
    }
    for (name, absent, reason) in ABSENT {
        let tree = metadata.normal_tree(name);
        for library in absent.iter().filter(|library| tree.contains(**library)) {
            breaches.push(format!("{name} is built from {library}: {reason}"));
        }
    }
    breaches
}

/// Edges between our own crates.
fn own_edges(metadata: &Metadata, package: &Package) -> Vec<String> {
    let Some((_, allowed)) = EDGES.iter().find(|(name, _)| *name == package.name) else {
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
        .filter(|declared| !(declared.dev && declared.name == TESTKIT))
        .map(|declared| format!("{} must not depend on {}", package.name, declared.name))
        .collect()
}

/// Libraries that belong to other crates.
fn reserved(package: &Package) -> Vec<String> {
    let mut breaches = Vec::new();
    for (library, owners) in RESERVED {
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
    use crate::metadata::Declared;

    /// A workspace from lines `crate: dependency, (dev-dependency)`; unknown names are others' libraries.
    fn workspace(lines: &[&str]) -> Metadata {
        let mut packages = BTreeMap::new();
        for line in lines {
            let (name, rest) = line.split_once(':').unwrap();
            let declared: Vec<_> = rest
                .split(',')
                .map(str::trim)
                .filter(|word| !word.is_empty())
                .map(|word| Declared {
                    name: word.trim_matches(['(', ')']).to_owned(),
                    rename: None,
                    dev: word.starts_with('('),
                })
                .collect();
            for other in &declared {
                packages.entry(other.name.clone()).or_insert(Package {
                    name: other.name.clone(),
                    ..Package::default()
                });
            }
            let normal = declared
                .iter()
                .filter(|other| !other.dev)
                .map(|other| other.name.clone())
                .collect();
            packages.insert(
                name.to_owned(),
                Package {
                    name: name.to_owned(),
                    member: true,
                    declared,
                    normal,
                    ..Package::default()
                },
            );
        }
        Metadata { packages }
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
            Package {
                name: "native-tls".to_owned(),
                ..Package::default()
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
