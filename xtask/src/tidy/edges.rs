//! The dependencies that are allowed between the crates of this workspace.

mod services;

use self::services::{
    FILE_RESOLVER, FILE_TOOLS, ORCHESTRATOR_EDGES, PLATFORM_DELIVERY, SANDBOX_TRANSFER,
    SERVICE_EDGES,
};
use super::libraries::{ABSENT_LIBRARIES, RESERVED_LIBRARIES};
use crate::metadata::{CargoMetadata, CargoPackage};

/// The crates of this workspace except the extensions ([`CRATE_KINDS`]), each with its allowed dependencies in the
/// workspace. The lists form layers: a crate never depends on a crate in a higher layer.
const ALLOWED_EDGES: &[(&str, &[&str])] = &[
    ("dray-types", &[]),
    ("dray-media-type", &[]),
    ("dray-agent", &["dray-types", "dray-media-type"]),
    (
        "dray-tool",
        &["dray-types", "dray-media-type", "dray-agent"],
    ),
    (
        "dray-dial",
        &["dray-types", "dray-media-type", "dray-agent", "dray-http"],
    ),
    ("dray-archive", &[]),
    ("dray-guard", &["dray-types"]),
    ("dray-presentation", &["dray-types", "dray-media-type"]),
    ("dray-file-context", &["dray-types", "dray-media-type"]),
    (
        "dray-documents",
        &["dray-types", "dray-media-type", "dray-archive"],
    ),
    ("dray-http", &["dray-types"]),
    ("dray-http-server", &["dray-presentation"]),
    ("dray-jwt", &["dray-types"]),
    (
        "dray-reading",
        &[
            "dray-types",
            "dray-documents",
            "dray-presentation",
            "dray-http",
        ],
    ),
    ("dray-proto", &["dray-types"]),
    ("dray-bus", &["dray-types", "dray-proto"]),
    (
        "dray-store",
        &[
            "dray-types",
            "dray-media-type",
            "dray-proto",
            "dray-http-server",
        ],
    ),
    (
        "dray-service",
        &[
            "dray-types",
            "dray-proto",
            "dray-bus",
            "dray-store",
            "dray-http-server",
        ],
    ),
    ("dray-conformance", &["dray-types"]),
    ("dray-sandbox", &["dray-types"]),
    ("dray-sandbox-exec", &["dray-types", "dray-sandbox"]),
    (
        "dray-sandbox-local",
        &["dray-types", "dray-sandbox", "dray-sandbox-exec"],
    ),
    (
        "dray-sandbox-tree",
        &["dray-archive", "dray-presentation", "dray-sandbox"],
    ),
    (
        "dray-transfer-engine",
        &[
            "dray-types",
            "dray-presentation",
            "dray-sandbox",
            "dray-sandbox-tree",
        ],
    ),
    (
        "dray-sandbox-conformance",
        &[
            "dray-types",
            "dray-conformance",
            "dray-sandbox",
            "dray-sandbox-tree",
            "dray-transfer-engine",
        ],
    ),
    (
        "dray-platform",
        &[
            // The dependency exists only with the feature of the same name, for tests.
            "dray-conformance",
            "dray-types",
            "dray-media-type",
            "dray-presentation",
            "dray-http",
        ],
    ),
    ("dray-delivery-rules", &["dray-types", "dray-platform"]),
    (
        "dray-simulation",
        &[
            "dray-types",
            "dray-proto",
            "dray-bus",
            "dray-platform",
            "dray-delivery-rules",
        ],
    ),
    ("dray-egress-fetcher", SERVICE_EDGES),
    ("dray-file-resolver", FILE_RESOLVER),
    (
        "dray-sandbox-hosted",
        &[
            // The two suites are dependencies only with the feature `provider-suite`, for tests.
            "dray-conformance",
            "dray-sandbox-conformance",
            "dray-types",
            "dray-http",
            "dray-sandbox",
            "dray-sandbox-exec",
        ],
    ),
    (
        "dray-preview",
        &[
            "dray-types",
            "dray-media-type",
            "dray-presentation",
            "dray-proto",
            "dray-bus",
            "dray-http-server",
            "dray-store",
            "dray-service",
            "dray-sandbox",
            "dray-sandbox-tree",
            "dray-transfer-engine",
        ],
    ),
    ("dray-sandbox-transfer", SANDBOX_TRANSFER),
    ("dray-platform-delivery", PLATFORM_DELIVERY),
    ("dray-tool-files", FILE_TOOLS),
    ("dray-orchestrator", ORCHESTRATOR_EDGES),
    (
        "dray-mcp",
        &[
            "dray-types",
            "dray-media-type",
            "dray-presentation",
            "dray-proto",
            "dray-bus",
            "dray-store",
            "dray-ticket",
            "dray-http-server",
            "dray-jwt",
        ],
    ),
    (
        "dray-console",
        &[
            "dray-types",
            "dray-jwt",
            "dray-agent",
            "dray-dial",
            "dray-guard",
            "dray-http",
            "dray-presentation",
            "dray-proto",
            "dray-bus",
            "dray-store",
            "dray-http-server",
        ],
    ),
    (
        "dray-ticket",
        &[
            "dray-types",
            "dray-guard",
            "dray-media-type",
            "dray-presentation",
            "dray-proto",
            "dray-bus",
            "dray-store",
            "dray-service",
            "dray-http-server",
        ],
    ),
    (
        "dray-testkit",
        &["dray-types", "dray-archive", "dray-proto"],
    ),
    ("dray", ALL_CRATES),
    ("dray-tests", ALL_CRATES),
    ("dray-bench", ALL_CRATES),
    ("dray-fuzz-check", ALL_CRATES),
    ("xtask", &["dray-archive"]),
];

/// A kind of extension: its crates implement the same interface and do not depend on each other.
struct CrateKind {
    /// The prefix of the names of its crates.
    prefix: &'static str,
    /// The kind's crates, without the prefix.
    names: &'static [&'static str],
    /// The allowed dependencies of each of them.
    edges: &'static [&'static str],
    /// The crate that depends on all of them, besides the program, the tests and the measurements.
    host: &'static str,
}

impl CrateKind {
    /// Whether a crate is one of this kind.
    fn contains(&self, name: &str) -> bool {
        name.strip_prefix(self.prefix)
            .is_some_and(|name| self.names.contains(&name))
    }
}

/// The crates of every kind of extension. `cargo xtask new` adds a name.
const CRATE_KINDS: &[CrateKind] = &[BACKEND_CRATES, PLATFORM_CRATES, TOOL_CRATES];

const BACKEND_CRATES: CrateKind = CrateKind {
    prefix: "dray-sandbox-",
    names: &[
        "apptainer",
        "daytona",
        "docker",
        "e2b",
        "kubernetes",
        "modal",
        "ssh",
    ],
    edges: &[
        "dray-types",
        "dray-archive",
        "dray-presentation",
        "dray-http",
        "dray-sandbox",
        "dray-sandbox-exec",
        "dray-sandbox-hosted",
        "dray-sandbox-local",
        "dray-sandbox-tree",
    ],
    host: "dray-sandbox-transfer",
};

const PLATFORM_CRATES: CrateKind = CrateKind {
    prefix: "dray-platform-",
    names: &[
        "discord", "email", "matrix", "slack", "telegram", "webhook", "whatsapp",
    ],
    edges: &[
        "dray-types",
        "dray-media-type",
        "dray-presentation",
        "dray-http",
        "dray-platform",
    ],
    host: "dray-platform-delivery",
};

const TOOL_CRATES: CrateKind = CrateKind {
    prefix: "dray-tool-",
    names: &["dial", "mcp", "rest"],
    edges: &[
        "dray-types",
        "dray-media-type",
        "dray-agent",
        "dray-http",
        "dray-dial",
        "dray-tool",
    ],
    host: "dray-orchestrator",
};

/// The allowed dependencies of the highest crates, in addition to every extension.
const ALL_CRATES: &[&str] = &[
    "dray-types",
    "dray-media-type",
    "dray-archive",
    "dray-agent",
    "dray-dial",
    "dray-orchestrator",
    "dray-mcp",
    "dray-console",
    "dray-ticket",
    "dray-tool",
    "dray-tool-files",
    "dray-guard",
    "dray-proto",
    "dray-bus",
    "dray-store",
    "dray-service",
    "dray-egress-fetcher",
    "dray-file-resolver",
    "dray-presentation",
    "dray-file-context",
    "dray-documents",
    "dray-http",
    "dray-reading",
    "dray-sandbox",
    "dray-sandbox-conformance",
    "dray-sandbox-exec",
    "dray-sandbox-hosted",
    "dray-sandbox-local",
    "dray-sandbox-transfer",
    "dray-sandbox-tree",
    "dray-transfer-engine",
    "dray-preview",
    "dray-platform",
    "dray-platform-delivery",
    "dray-testkit",
    "dray",
    "dray-http-server",
    "dray-jwt",
];

/// Crates that may depend on every extension.
const EXTENSION_USERS: &[&str] = &["dray", "dray-tests", "dray-bench", "dray-fuzz-check"];

/// The crate that every crate may use in its tests.
const TESTKIT_CRATE: &str = "dray-testkit";

/// The allowed development dependencies of all sandbox crates. The conformance suite is in a higher layer than the
/// crates that it tests, which include the engine.
const SANDBOX_TEST_CRATES: &[&str] = &[
    "dray-sandbox-conformance",
    "dray-sandbox-local",
    "dray-transfer-engine",
];

/// Every edge that is not allowed.
pub(crate) fn violations(metadata: &CargoMetadata) -> Vec<String> {
    let mut violations = Vec::new();
    for package in metadata.members() {
        violations.extend(own_edges(metadata, package));
        violations.extend(reserved_violations(package));
    }
    for (name, absent, reason) in ABSENT_LIBRARIES {
        // Dependencies count at any depth, because a library may depend on a client with a resolver.
        let tree = metadata.normal_tree(name);
        for library in absent.iter().filter(|library| tree.contains(**library)) {
            violations.push(format!("{name} is built from {library}: {reason}"));
        }
    }
    violations
}

/// Edges between the crates of this workspace.
fn own_edges(metadata: &CargoMetadata, package: &CargoPackage) -> Vec<String> {
    let Some(allowed) = allowed_edges(&package.name) else {
        return vec![format!(
            "{} has no line in xtask/src/tidy/edges.rs: say what it may depend on",
            package.name
        )];
    };
    let is_member = |name: &str| metadata.members().any(|member| member.name == name);
    package
        .declared
        .iter()
        // A crate may depend on itself under `[dev-dependencies]`, to test with one of its features.
        .filter(|declared| is_member(&declared.name) && declared.name != package.name)
        .filter(|declared| {
            !allowed.contains(&declared.name.as_str())
                && !may_collect(&package.name, &declared.name)
        })
        // A development dependency is permitted: the product is never built from it.
        .filter(|declared| !(declared.is_dev && may_test_with(&package.name, &declared.name)))
        .map(|declared| format!("{} must not depend on {}", package.name, declared.name))
        .collect()
}

/// Whether the tests of `user` may use the crate `name`.
fn may_test_with(user: &str, name: &str) -> bool {
    let is_sandbox_crate = user.starts_with("dray-sandbox") || user == "dray-transfer-engine";
    name == TESTKIT_CRATE || (is_sandbox_crate && SANDBOX_TEST_CRATES.contains(&name))
}

/// The allowed dependencies of a crate, without the extensions that it collects.
fn allowed_edges(name: &str) -> Option<&'static [&'static str]> {
    let extension = CRATE_KINDS.iter().find(|kind| kind.contains(name));
    let listed = ALLOWED_EDGES.iter().find(|(listed, _)| *listed == name);
    extension
        .map(|kind| kind.edges)
        .or_else(|| listed.map(|(_, allowed)| *allowed))
}

/// Whether `user` may depend on the extension `name`, because it collects all extensions of the kind.
fn may_collect(user: &str, name: &str) -> bool {
    CRATE_KINDS
        .iter()
        .any(|kind| kind.contains(name) && (user == kind.host || EXTENSION_USERS.contains(&user)))
}

/// Libraries in the manifest of a package that only other crates may name.
fn reserved_violations(package: &CargoPackage) -> Vec<String> {
    let mut violations = Vec::new();
    for (library, owners) in RESERVED_LIBRARIES {
        let is_declared = package
            .declared
            .iter()
            .any(|declared| declared.name == *library);
        if is_declared && !owners.contains(&package.name.as_str()) {
            violations.push(format!(
                "{} names {library}, which is for {} alone",
                package.name,
                owners.join(", ")
            ));
        }
    }
    violations
}

#[cfg(test)]
mod tests;
