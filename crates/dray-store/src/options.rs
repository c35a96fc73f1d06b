//! The settings of the store. Describes and checks them; does not connect.

use dray_types::{ByteSize, FileSetting, Period, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::web_links::WebLinkOutcome;

/// Where artifacts are kept and how they are reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StoreOptions {
    /// Name of this store inside claims. Every service that shares claims uses the same name for the same
    /// store. Default `main`.
    pub alias: String,
    /// Base URL of the S3 API, such as `https://minio.storage:9000`. Empty means the AWS endpoint of `region`.
    pub endpoint: String,
    /// Base URL under which clients outside (people, sandboxes) reach the store; presigned URLs use it. Empty
    /// means the same as `endpoint`.
    pub public_endpoint: String,
    /// Region that requests are signed for. Default `us-east-1`.
    pub region: String,
    /// Bucket that holds everything. Default `drayage`.
    pub bucket: String,
    /// Id of the access key. Required with mode `s3`.
    pub access_key: Secret,
    /// Secret of the access key. Required with mode `s3`.
    pub secret_key: Secret,
    /// Secret from which the services derive keys that all of their replicas must share: for turns that wait, sign-ins,
    /// names of files, login links, and the key of the tickets' endpoint. At least 32 characters, the same in all
    /// replicas of a service. Empty: `secret_key` at the start of the process, so that processes that started before
    /// and after a change of the credentials do not accept what the others made. Set it where credentials are temporary
    /// or rotated.
    pub derivation_key: Secret,
    /// The former `derivation_key` during its change, or the `secret_key` from before there was one. What was made with it is
    /// still accepted; new things are made with the current one. Empty: none.
    pub previous_derivation_key: Secret,
    /// Session token of temporary credentials. Empty for permanent ones.
    pub session_token: Secret,
    /// Unix milliseconds at which temporary credentials end; presigned URLs end a minute before. 0 for permanent
    /// credentials.
    pub credentials_expire_at_ms: u64,
    /// Puts the bucket into the path (`host/bucket/key`) instead of the host name. Most stores other than AWS need it.
    /// Default true.
    pub path_style: bool,
    /// Creates the bucket at start when it is missing. Default false.
    pub create_bucket: bool,
    /// PEM file with the authorities that sign the endpoint's certificate. Unset: those of the system.
    pub ca_file: Option<FileSetting>,
    /// How long finished content is kept. At least `15d`, so that a dead letter (14 days) can still be redriven. A
    /// lifecycle rule of the bucket has to say the same. Default `15d`.
    pub cas_lifetime: Period,
    /// How long the store remembers that content came from the web, counted from its last fetch. Copies outside the
    /// store are recognised for as long. If `cas_lifetime` is longer, it applies instead. A lifecycle rule of the
    /// bucket has to say the same. Default `90d`.
    pub origin_lifetime: Period,
    /// Whether links to content that came from the web are made for agents, tools and readers: `allow`, `report` (the
    /// link is made, and the log names the host) or `deny`. For links of deliveries, `platform-delivery.web_files`
    /// applies. Default `allow`.
    pub web_links: WebLinkOutcome,
    /// How long unfinished uploads are kept; at least `1d`. Default `1d`.
    pub stage_lifetime: Period,
    /// How long the store keeps a file in transit between a sandbox and a person after its last use, unless a delivery
    /// or a link still needs it: `15m` to `15d`. Default `1h`.
    pub cache_lifetime: Period,
    /// Most bytes of all files in transit. Above it, the store deletes the least recently used file first, but no file
    /// that a delivery or a link needs. Default `16GiB`.
    pub cache_size: ByteSize,
    /// Most concurrent requests to the store, and also most concurrent readers: 1 to 256. Default 16.
    pub concurrency: u32,
}

/// One mistake in the options.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("store.{field}: {reason}")]
pub struct OptionProblem {
    /// Name of the field within the section.
    pub field: &'static str,
    /// The problem, and what a valid value is.
    pub reason: String,
}

const DAY_SECONDS: u64 = 24 * 60 * 60;

/// Fewest bytes of [`StoreOptions::derivation_key`].
const MIN_DERIVATION_KEY_BYTES: usize = 32;

/// As long as dead letters are kept (messaging-reliability 3.1) and one more day (K-6).
const SHORTEST_CAS_LIFETIME: Period = Period::secs(15 * DAY_SECONDS);

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            alias: "main".to_owned(),
            endpoint: String::new(),
            public_endpoint: String::new(),
            region: "us-east-1".to_owned(),
            bucket: "drayage".to_owned(),
            access_key: Secret::default(),
            secret_key: Secret::default(),
            derivation_key: Secret::default(),
            previous_derivation_key: Secret::default(),
            session_token: Secret::default(),
            credentials_expire_at_ms: 0,
            path_style: true,
            create_bucket: false,
            ca_file: None,
            cas_lifetime: SHORTEST_CAS_LIFETIME,
            origin_lifetime: Period::secs(90 * DAY_SECONDS),
            web_links: WebLinkOutcome::default(),
            stage_lifetime: Period::secs(DAY_SECONDS),
            cache_lifetime: Period::secs(60 * 60),
            cache_size: ByteSize::mib(16 << 10),
            concurrency: 16,
        }
    }
}

impl StoreOptions {
    /// Everything that is wrong, contradictions between fields included; empty when the options can be used.
    pub fn problems(&self) -> Vec<OptionProblem> {
        let mut problems = Vec::new();
        // Each check adds its own problem, so that one start reports all of them.
        let mut require = |is_valid: bool, field, reason: &str| {
            if !is_valid {
                problems.push(OptionProblem {
                    field,
                    reason: reason.to_owned(),
                });
            }
        };
        require(
            // The alias has no dot, which separates alias and slot in claims of the cache.
            dray_types::id::is_subject_token(&self.alias),
            "alias",
            "must be 1 to 64 of a-z, 0-9, _ and -",
        );
        require(
            is_bucket(&self.bucket),
            "bucket",
            "must be 3 to 63 of a-z, 0-9, . and -",
        );
        require(!self.region.is_empty(), "region", "must not be empty");
        for (field, key) in [
            ("access_key", &self.access_key),
            ("secret_key", &self.secret_key),
        ] {
            require(!key.is_empty(), field, "must not be empty");
        }
        let derivation_key = self.derivation_key.expose();
        require(
            derivation_key.is_empty() || derivation_key.len() >= MIN_DERIVATION_KEY_BYTES,
            "derivation_key",
            "must have at least 32 characters",
        );
        for (field, origin) in [
            ("endpoint", &self.endpoint),
            ("public_endpoint", &self.public_endpoint),
        ] {
            require(
                origin.is_empty() || is_origin(origin),
                field,
                "must be http://host[:port] or https://host[:port]",
            );
        }
        for (is_valid, field, reason) in self.lifetime_checks() {
            require(is_valid, field, reason);
        }
        require(
            (1..=256).contains(&self.concurrency),
            "concurrency",
            "must be 1 to 256",
        );
        problems
    }

    /// Whether each lifetime is valid, its field, and what it must be.
    fn lifetime_checks(&self) -> [(bool, &'static str, &'static str); 3] {
        let cache_lifetimes = Period::secs(15 * 60)..=Period::secs(15 * DAY_SECONDS);
        [
            (
                self.cas_lifetime >= SHORTEST_CAS_LIFETIME,
                "cas_lifetime",
                "must be at least 15d",
            ),
            (
                self.stage_lifetime >= Period::secs(DAY_SECONDS),
                "stage_lifetime",
                "must be at least 1d",
            ),
            (
                cache_lifetimes.contains(&self.cache_lifetime),
                "cache_lifetime",
                "must be 15m to 15d",
            ),
        ]
    }
}

fn is_bucket(name: &str) -> bool {
    (3..=63).contains(&name.len())
        && name
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-'))
}

/// Accepts scheme, host and port alone: a path or query would end up before every key.
fn is_origin(text: &str) -> bool {
    let Ok(uri) = text.parse::<http::Uri>() else {
        return false;
    };
    matches!(uri.scheme_str(), Some("http" | "https"))
        && uri
            .authority()
            // Credentials have their own fields, which are secret.
            .is_some_and(|authority| !authority.as_str().contains('@'))
        && uri.path_and_query().is_none_or(|rest| rest.as_str() == "/")
}
