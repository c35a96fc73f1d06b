//! The common sections of the configuration, their defaults and their checks.

use std::net::SocketAddr;
use std::path::PathBuf;

use dray_bus::NatsOptions;
use dray_types::{ByteSize, Period};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::{ConfigProblem, FormerName, RestartSetting, Section};
use crate::restart_settings;

/// How long start-up waits for a server that cannot be reached, unless configured.
const WAIT_FOR_SERVER: Period = Period::secs(120);

/// The kind of bus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BusMode {
    /// Inside this process: nothing to install, nothing survives a crash.
    #[default]
    Embedded,
    /// NATS with `JetStream`.
    Nats,
}

/// The bus, which services use for calls, events and work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct BusSection {
    /// `embedded` (inside this process; its messages are lost when the process ends) or `nats`.
    pub mode: BusMode,
    /// Connection to NATS, with mode `nats`.
    pub nats: NatsOptions,
    /// How long start-up waits for a server that cannot be reached, before it fails.
    pub wait_for_server: Period,
    /// How long start-up waits until streams and consumers have the required settings, before it fails. `0s` does not
    /// wait.
    pub wait_for_topology: Period,
}

impl Default for BusSection {
    fn default() -> Self {
        Self {
            mode: BusMode::Embedded,
            nats: NatsOptions::default(),
            wait_for_server: WAIT_FOR_SERVER,
            wait_for_topology: Period::secs(60),
        }
    }
}

impl Section for BusSection {
    /// All fields but those of the identity. The client reads certificates for each connection.
    fn restart_settings() -> Option<&'static [RestartSetting<Self>]> {
        const RESTART_SETTINGS: &[RestartSetting<BusSection>] = restart_settings![
            BusSection: mode, wait_for_server, wait_for_topology, nats.servers, nats.name, nats.require_tls,
            nats.ca_file, nats.client_certificate_file, nats.client_key_file, nats.connect_timeout
        ];
        Some(RESTART_SETTINGS)
    }

    fn validate(&self) -> Vec<ConfigProblem> {
        if self.mode == BusMode::Nats && self.nats.servers.is_empty() {
            return vec![ConfigProblem::new(
                "nats.servers",
                "must name at least one server",
            )];
        }
        Vec::new()
    }
}

/// The kind of store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StoreMode {
    /// An S3 endpoint inside this process, on loopback, with its files in the state directory.
    #[default]
    Embedded,
    /// S3 or an S3-compatible server.
    S3,
}

/// The store for content that is too large for a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct StoreSection {
    /// `embedded` (files in the state directory, served on loopback) or `s3`.
    pub mode: StoreMode,
    /// Connection to S3, with mode `s3`.
    pub s3: dray_store::StoreOptions,
    /// How long start-up waits for a store that cannot be reached, before it fails.
    pub wait_for_server: Period,
}

impl Default for StoreSection {
    fn default() -> Self {
        Self {
            mode: StoreMode::Embedded,
            s3: dray_store::StoreOptions::default(),
            wait_for_server: WAIT_FOR_SERVER,
        }
    }
}

impl Section for StoreSection {
    /// All fields but those of the credentials.
    fn restart_settings() -> Option<&'static [RestartSetting<Self>]> {
        const RESTART_SETTINGS: &[RestartSetting<StoreSection>] = restart_settings![
            StoreSection: mode, wait_for_server, s3.alias, s3.derivation_key, s3.previous_derivation_key, s3.endpoint, s3.public_endpoint, s3.region, s3.bucket,
            s3.path_style, s3.create_bucket, s3.ca_file, s3.cas_lifetime, s3.origin_lifetime, s3.web_links,
            s3.stage_lifetime, s3.cache_lifetime, s3.cache_size, s3.concurrency
        ];
        Some(RESTART_SETTINGS)
    }

    fn validate(&self) -> Vec<ConfigProblem> {
        match self.mode {
            StoreMode::Embedded => Vec::new(),
            StoreMode::S3 => self
                .s3
                .problems()
                .into_iter()
                .map(|problem| ConfigProblem::new(format!("s3.{}", problem.field), problem.reason))
                .collect(),
        }
    }
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Log lines for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Logs, traces and metrics.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TelemetrySection {
    /// How log lines are written to standard error: `text` or `json`.
    pub format: LogFormat,
    /// Which log lines are written: a level (`info`) or directives (`info,dray=debug`).
    pub level: String,
    /// OTLP endpoint for traces and metrics over gRPC, such as `http://otel-collector:4317`. Unset: none are
    /// sent.
    pub otlp_endpoint: Option<String>,
    /// Share of the traces starting in this process that are recorded, from 0 (none) to 1 (all). For a caller's trace,
    /// the caller's decision applies.
    pub sample_ratio: f64,
    /// How often metrics are sent to the OTLP endpoint; at least `1s`.
    pub metrics_interval: Period,
}

impl Default for TelemetrySection {
    fn default() -> Self {
        Self {
            format: LogFormat::Text,
            level: "info".to_owned(),
            otlp_endpoint: None,
            sample_ratio: 1.0,
            metrics_interval: Period::secs(60),
        }
    }
}

impl Section for TelemetrySection {
    fn validate(&self) -> Vec<ConfigProblem> {
        let mut problems = Vec::new();
        if !(0.0..=1.0).contains(&self.sample_ratio) {
            problems.push(ConfigProblem::new(
                "sample_ratio",
                "must be between 0 and 1",
            ));
        }
        // Levels alone are directives as well, so one parser checks both.
        if self
            .level
            .parse::<tracing_subscriber::filter::Targets>()
            .is_err()
        {
            problems.push(ConfigProblem::new(
                "level",
                "must be a level (error, warn, info, debug, trace) or directives such as info,dray=debug",
            ));
        }
        if let Some(endpoint) = &self.otlp_endpoint
            // The exporter is built without TLS; `https://` would fail at the first export, long after the start.
            && !endpoint.starts_with("http://")
        {
            problems.push(ConfigProblem::new(
                "otlp_endpoint",
                "must be http://host:port",
            ));
        }
        if self.metrics_interval < Period::secs(1) {
            problems.push(ConfigProblem::new(
                "metrics_interval",
                "must be at least 1s",
            ));
        }
        problems
    }
}

/// Health and metrics over HTTP.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HttpSection {
    /// Address of `/live`, `/started`, `/ready` and `/metrics`. Port 0 takes a free port. Unset: none of them is
    /// served.
    pub listen: Option<SocketAddr>,
    /// How often readiness is checked: `10ms` to `10s`. After three failures in a row the process is not ready, after
    /// one success it is ready again.
    pub check_interval: Period,
}

impl Default for HttpSection {
    fn default() -> Self {
        Self {
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 9464))),
            check_interval: Period::secs(5),
        }
    }
}

impl Section for HttpSection {
    fn validate(&self) -> Vec<ConfigProblem> {
        if (Period::millis(10)..=Period::secs(10)).contains(&self.check_interval) {
            return Vec::new();
        }
        vec![ConfigProblem::new("check_interval", "must be 10ms to 10s")]
    }
}

/// Limits on concurrent work of a service.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LimitsSection {
    /// Most concurrent calls of one service in this process: 1 to 10000. As many again may wait; further ones are
    /// refused immediately with `rate_limited`. Calls that wait for the egress-fetcher do not count, up to eight times
    /// this number.
    pub calls: u32,
    /// Most of these concurrent calls for one tenant: 1 to `calls`.
    pub calls_per_tenant: u32,
    /// Most concurrent work messages of one service in this process: 1 to 256. A sixth of these slots, but at least one
    /// unless there is only one, is reserved for tenants without running work. A container needs about 13 MiB of memory
    /// for each call and each work message.
    pub work: u32,
    /// Longest time limit that a caller may set for a call, at least `1s`; a longer one is shortened to it.
    pub longest_call: Period,
    /// Percentage of the state directory's volume that must be free: 0 to 99, where 0 requires nothing. With less, the
    /// process is not ready and pulls no work. Applies only to a process that keeps files.
    pub free_disk_percent: u8,
    /// Free bytes that are always enough, for any size of the volume.
    pub free_disk_enough: ByteSize,
}

impl Default for LimitsSection {
    fn default() -> Self {
        Self {
            calls: 64,
            calls_per_tenant: 32,
            work: 12,
            longest_call: Period::secs(600),
            free_disk_percent: 20,
            free_disk_enough: ByteSize::mib(4 * 1024),
        }
    }
}

impl Section for LimitsSection {
    fn validate(&self) -> Vec<ConfigProblem> {
        let mut problems = Vec::new();
        // Each check adds its own problem, so that one start reports all of them.
        let mut unless = |right: bool, field: &str, message: &str| {
            if !right {
                problems.push(ConfigProblem::new(field, message));
            }
        };
        unless(
            (1..=10_000).contains(&self.calls),
            "calls",
            "must be 1 to 10000",
        );
        unless(
            (1..=self.calls).contains(&self.calls_per_tenant),
            "calls_per_tenant",
            "must be 1 to `limits.calls`",
        );
        unless((1..=256).contains(&self.work), "work", "must be 1 to 256");
        unless(
            self.longest_call >= Period::secs(1),
            "longest_call",
            "must be at least 1s",
        );
        unless(
            self.free_disk_percent < 100,
            "free_disk_percent",
            "must be 0 to 99",
        );
        problems
    }
}

/// The state directory and the name of this process.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct StateSection {
    /// Directory for everything this process keeps on disk, such as the files of the embedded store. Created at start.
    /// If no source sets it, `dray` uses `drayage` in `$XDG_STATE_HOME` or in `~/.local/state`; the default applies to
    /// a process without `HOME`. An empty or relative path in one of these variables counts
    /// as unset.
    pub directory: PathBuf,
    /// Name of this process or replica, unique among those that share a bus: 1 to 64 of a-z, 0-9, _ and -. Unset: a new
    /// name at each start.
    pub instance: Option<String>,
}

impl Default for StateSection {
    fn default() -> Self {
        Self {
            directory: PathBuf::from("drayage-state"),
            instance: None,
        }
    }
}

impl Section for StateSection {
    fn former_names() -> &'static [FormerName] {
        const FORMER_NAMES: [FormerName; 1] = [FormerName::new("folder", "directory")];
        &FORMER_NAMES
    }

    fn validate(&self) -> Vec<ConfigProblem> {
        match &self.instance {
            // The name becomes part of subjects, keys and staging paths.
            Some(instance) if !dray_types::id::is_subject_token(instance) => {
                vec![ConfigProblem::new(
                    "instance",
                    "must be 1 to 64 of a-z, 0-9, _ and -",
                )]
            }
            _ => Vec::new(),
        }
    }
}

/// How long each part of an orderly stop may take. The grace period of the cluster must be longer than all together.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ShutdownSection {
    /// How long connections are still accepted after the signal, while `/ready` already fails and no more work is pulled:
    /// the time in which load balancers learn that this process ends.
    pub linger: Period,
    /// How long running handlers may continue afterwards. Requests over HTTP, such as chats, may continue for
    /// seven eighths of this time.
    pub grace: Period,
    /// How long flushing and draining the bus may take afterwards.
    pub flush: Period,
}

impl Default for ShutdownSection {
    fn default() -> Self {
        Self {
            linger: Period::secs(0),
            grace: Period::secs(40),
            flush: Period::secs(5),
        }
    }
}

impl Section for ShutdownSection {}
