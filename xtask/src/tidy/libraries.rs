//! External libraries that only some crates of this workspace may name or contain.

/// External libraries, each with the crates that may name it.
pub(super) const RESERVED_LIBRARIES: &[(&str, &[&str])] = &[
    // Tests access the server without the bus, and the measurements compare with the plain client.
    ("async-nats", &["dray-bus", "dray-tests", "dray-bench"]),
    ("aws-sdk-s3", &["dray-store", "dray-tests", "dray-bench"]),
    // This client is only for trusted endpoints: code that connects to addresses from outside must not use it.
    ("reqwest", &["dray-http", "dray-tests", "dray-bench"]),
];

/// Libraries that a crate must not depend on, directly or indirectly.
pub(super) const ABSENT_LIBRARIES: &[(&str, &[&str], &str)] = &[
    ("dray-types", &["tokio", "prost"], "types hold only values"),
    ("dray-guard", &["tokio", "prost"], "decisions do no I/O"),
    ("dray-guard", HTTP_CLIENTS, "decisions do no I/O"),
    (
        "dray-egress-fetcher",
        HTTP_CLIENTS,
        "the judged address must be the dialled one, and this library can dial another",
    ),
];

/// HTTP clients and TLS stacks with their own resolver or connector.
const HTTP_CLIENTS: &[&str] = &["reqwest", "ureq", "isahc", "curl", "native-tls"];
