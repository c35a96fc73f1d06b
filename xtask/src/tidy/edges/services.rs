//! The allowed dependencies of the services, and of crates that only they use.

/// The allowed dependencies of `dray-sandbox-transfer`, in addition to all kinds of sandboxes. No platform is among
/// them.
pub(super) const SANDBOX_TRANSFER: &[&str] = &[
    "dray-types",
    "dray-guard",
    "dray-media-type",
    "dray-presentation",
    "dray-proto",
    "dray-bus",
    "dray-store",
    "dray-service",
    "dray-sandbox",
    "dray-sandbox-exec",
    "dray-sandbox-local",
    "dray-sandbox-tree",
    "dray-transfer-engine",
    "dray-preview",
];

/// The allowed dependencies of `dray-platform-delivery`, in addition to all platforms. No sandbox is among them.
pub(super) const PLATFORM_DELIVERY: &[&str] = &[
    "dray-types",
    "dray-guard",
    "dray-media-type",
    "dray-presentation",
    "dray-proto",
    "dray-bus",
    "dray-store",
    "dray-service",
    "dray-platform",
    "dray-delivery-rules",
    "dray-http-server",
];

/// The allowed dependencies of `dray-egress-fetcher`, which do not include other services.
pub(super) const SERVICE_EDGES: &[&str] = &[
    "dray-types",
    "dray-guard",
    "dray-proto",
    "dray-bus",
    "dray-store",
    "dray-service",
];

/// The allowed dependencies of `dray-file-resolver`, with the crates for documents and for the files of an agent.
pub(super) const FILE_RESOLVER: &[&str] = &[
    "dray-types",
    "dray-guard",
    "dray-proto",
    "dray-bus",
    "dray-store",
    "dray-service",
    "dray-http",
    "dray-agent",
    "dray-dial",
    "dray-documents",
    "dray-reading",
    "dray-file-context",
];

/// The allowed dependencies of `dray-tool-files`. It calls services over the bus, so the list contains no service.
pub(super) const FILE_TOOLS: &[&str] = &[
    "dray-types",
    "dray-media-type",
    "dray-guard",
    "dray-agent",
    "dray-presentation",
    "dray-proto",
    "dray-bus",
    "dray-store",
    "dray-http",
    "dray-dial",
    "dray-tool",
];

/// The allowed dependencies of `dray-orchestrator`, in addition to all kinds of tools. No reader, sandbox or platform
/// is among them.
pub(super) const ORCHESTRATOR_EDGES: &[&str] = &[
    "dray-types",
    "dray-media-type",
    "dray-guard",
    "dray-agent",
    "dray-proto",
    "dray-bus",
    "dray-store",
    "dray-service",
    "dray-http",
    "dray-dial",
    "dray-tool",
    "dray-tool-files",
    "dray-http-server",
];
