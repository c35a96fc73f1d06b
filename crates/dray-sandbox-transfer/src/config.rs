//! What an operator can set about sandboxes.

use std::path::PathBuf;
use std::sync::Arc;

use dray_sandbox::Backend;
use dray_sandbox::local::{LocalBackend, LocalOptions};
use dray_sandbox::policy::PolicyOptions;
use dray_sandbox::transfer::EngineOptions;
use dray_service::config::{Problem, Section};
use dray_types::{ByteSize, Period};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Section `sandbox-transfer`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Config {
    /// Most bytes of one file, in either direction. Default `2GiB`.
    pub max_file: ByteSize,
    /// Tenants that may name sandboxes by address and bind them to sessions; `*` is every tenant. Default `*`.
    pub address_tenants: Vec<String>,
    /// Paths that files may come from and go to.
    pub policy: PolicyOptions,
    /// Longest time without a byte before a stream is given up. Default `30s`.
    pub idle_timeout: Period,
    /// Existing directory for what must be drained at once. Files there have no name. Default `/tmp`.
    pub spool_folder: PathBuf,
    /// Most bytes of one transfer in the spool folder. Default `16GiB`.
    pub spool_limit: ByteSize,
    /// Largest file whose digest is taken in the sandbox before the transfer as well as after. Default `1GiB`.
    pub digest_before_up_to: ByteSize,
    /// Sandboxes that are directories of this host.
    pub local: Local,
}

/// Sandboxes that are directories of this host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Local {
    /// Directories that are, or hold, sandboxes. Without any, none is allowed. Default none.
    pub roots: Vec<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        let engine = EngineOptions::default();
        Self {
            max_file: ByteSize::mib(2048),
            address_tenants: vec!["*".to_owned()],
            policy: PolicyOptions::default(),
            idle_timeout: Period::secs(30),
            spool_folder: engine.spool_dir,
            spool_limit: ByteSize::mib(16 * 1024),
            digest_before_up_to: ByteSize::mib(1024),
            local: Local::default(),
        }
    }
}

impl Section for Config {
    fn validate(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if self.max_file == ByteSize::default() {
            problems.push(Problem::new("max_file", "must be above 0"));
        }
        if self.idle_timeout == Period::default() {
            problems.push(Problem::new("idle_timeout", "must be above 0"));
        }
        if !self.spool_folder.is_absolute() {
            problems.push(Problem::new("spool_folder", "must be an absolute path"));
        }
        if let Some(problem) = self.policy.problem() {
            problems.push(Problem::new("policy", &problem));
        }
        if self.local.roots.iter().any(|root| !root.is_absolute()) {
            problems.push(Problem::new("local.roots", "must be absolute paths"));
        }
        problems
    }
}

impl Config {
    /// How engines work.
    pub fn engine(&self) -> EngineOptions {
        EngineOptions {
            idle: self.idle_timeout.as_duration(),
            spool_dir: self.spool_folder.clone(),
            spool_limit: self.spool_limit.as_u64(),
            digest_before_up_to: self.digest_before_up_to.as_u64(),
            ..EngineOptions::default()
        }
    }

    /// Every backend that is set up.
    pub fn backends(&self) -> Vec<Arc<dyn Backend>> {
        let local = LocalBackend::new(LocalOptions {
            roots: self.local.roots.clone(),
        });
        vec![Arc::new(local)]
    }
}
