//! What an operator can set about sandboxes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use dray_sandbox::Backend;
use dray_sandbox::exec::{CommandBackend, CommandConfig};
use dray_sandbox::local::{LocalBackend, LocalOptions};
use dray_sandbox::policy::PolicyOptions;
use dray_sandbox::transfer::EngineOptions;
use dray_sandbox::tree;
use dray_sandbox_apptainer::ApptainerBackend;
use dray_sandbox_daytona::DaytonaBackend;
use dray_sandbox_docker::DockerBackend;
use dray_sandbox_e2b::E2bBackend;
use dray_sandbox_kubernetes::KubernetesBackend;
use dray_sandbox_modal::ModalBackend;
use dray_sandbox_ssh::SshBackend;
use dray_service::config::{AliasValue, ConfigProblem, Section, VariableAlias, parse};
use dray_types::{ByteSize, Clock, Period};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Section `sandbox-transfer`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Config {
    /// Kinds of sandboxes that can be reached: `apptainer`, `docker`, `exec`, `local`, `ssh`, which are the default,
    /// and `daytona`, `e2b`, `kubernetes`, `modal`, which need credentials in their sections.
    pub kinds: Vec<String>,
    /// Most bytes of one file, in either direction. Default `2GiB`.
    pub max_file: ByteSize,
    /// Most bytes of all files of a directory. Default `512MiB`.
    pub max_tree: ByteSize,
    /// Most bytes of one file in a directory; larger ones are left out. Default `100MiB`.
    pub max_tree_file: ByteSize,
    /// Most entries of a directory. Default 2000.
    pub max_tree_entries: usize,
    /// Tenants that may name sandboxes by address and bind them to sessions; `*` is every tenant. Such a tenant
    /// reaches every sandbox that this service can reach. Default `default`, the tenant of the command line.
    pub address_tenants: Vec<String>,
    /// Paths that files may come from and go to.
    pub policy: PolicyOptions,
    /// Longest time without a byte before a stream is given up. Default `30s`.
    pub idle_timeout: Period,
    /// Existing directory for what must be drained immediately. Files there have no name. Default `/tmp`.
    pub spool_folder: PathBuf,
    /// Most bytes of one transfer in the spool folder. Default `16GiB`.
    pub spool_limit: ByteSize,
    /// Largest file that is always digested in the sandbox, at any cost. Default `1024GiB`: every file. Set
    /// lower, say `2MiB`, larger files in containers and on hosts are proved by their size, inode and times before and
    /// after, when they were left alone for two seconds on a local file system; receipts say `size_mtime`, and a copy
    /// takes a fraction of the time.
    pub digest_always_up_to: ByteSize,
    /// Largest file whose digest is taken in the sandbox before the transfer as well as after. Default `1GiB`.
    pub digest_before_up_to: ByteSize,
    /// Sandboxes that are directories of this host.
    pub local: Local,
    /// Containers of a Docker Engine.
    pub docker: dray_sandbox_docker::Config,
    /// Hosts that are reached over SSH.
    pub ssh: dray_sandbox_ssh::Config,
    /// Instances of Apptainer or Singularity.
    pub apptainer: dray_sandbox_apptainer::Config,
    /// Sandboxes that a command line leads into, by name.
    pub exec: BTreeMap<String, CommandConfig>,
    /// Containers of a Kubernetes cluster.
    pub kubernetes: dray_sandbox_kubernetes::Config,
    /// Sandboxes of Modal.
    pub modal: dray_sandbox_modal::Config,
    /// Sandboxes of E2B.
    pub e2b: dray_sandbox_e2b::Config,
    /// Sandboxes of Daytona.
    pub daytona: dray_sandbox_daytona::Config,
}

/// Why a backend cannot be used as configured.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unusable(String);

/// Every kind that is known.
const BACKEND_KINDS: [&str; 9] = [
    "apptainer",
    "daytona",
    "docker",
    "e2b",
    "exec",
    "kubernetes",
    "local",
    "modal",
    "ssh",
];

/// Kinds that need no credentials of their own.
const DEFAULT_KINDS: [&str; 5] = ["apptainer", "docker", "exec", "local", "ssh"];

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
            kinds: DEFAULT_KINDS.map(str::to_owned).to_vec(),
            max_file: ByteSize::mib(2048),
            max_tree: ByteSize::mib(512),
            max_tree_file: ByteSize::mib(100),
            max_tree_entries: tree::Limits::default().entries,
            address_tenants: vec!["default".to_owned()],
            policy: PolicyOptions::default(),
            idle_timeout: Period::secs(30),
            spool_folder: engine.spool_dir,
            spool_limit: ByteSize::mib(16 * 1024),
            digest_always_up_to: ByteSize::mib(1 << 20),
            digest_before_up_to: ByteSize::mib(1024),
            local: Local::default(),
            docker: dray_sandbox_docker::Config::default(),
            ssh: dray_sandbox_ssh::Config::default(),
            apptainer: dray_sandbox_apptainer::Config::default(),
            exec: BTreeMap::new(),
            kubernetes: dray_sandbox_kubernetes::Config::default(),
            modal: dray_sandbox_modal::Config::default(),
            e2b: dray_sandbox_e2b::Config::default(),
            daytona: dray_sandbox_daytona::Config::default(),
        }
    }
}

/// As the Docker command line reads it: any text means yes.
fn any_text(text: &str) -> Result<AliasValue, String> {
    Ok(AliasValue::Value((!text.is_empty()).into()))
}

impl Section for Config {
    fn aliases() -> &'static [VariableAlias] {
        const VARIABLE_ALIASES: [VariableAlias; 3] = [
            VariableAlias {
                variable: "DOCKER_HOST",
                field: "docker.endpoint",
                parse: parse::parse_text,
            },
            VariableAlias {
                variable: "DOCKER_TLS_VERIFY",
                field: "docker.tls_verify",
                parse: any_text,
            },
            VariableAlias {
                variable: "DOCKER_CERT_PATH",
                field: "docker.cert_path",
                parse: parse::parse_text,
            },
        ];
        &VARIABLE_ALIASES
    }

    fn validate(&self) -> Vec<ConfigProblem> {
        let mut problems = Vec::new();
        for kind in &self.kinds {
            if !BACKEND_KINDS.contains(&kind.as_str()) {
                let message = format!("`{kind}` is none of {}", BACKEND_KINDS.join(", "));
                problems.push(ConfigProblem::new("kinds", &message));
            } else if let Err(error) = self.backend(kind, &Clock::system()) {
                problems.push(ConfigProblem::new(kind, error.to_string()));
            }
        }
        if self.max_file == ByteSize::default() {
            problems.push(ConfigProblem::new("max_file", "must be above 0"));
        }
        if self.idle_timeout == Period::default() {
            problems.push(ConfigProblem::new("idle_timeout", "must be above 0"));
        }
        if !self.spool_folder.is_absolute() {
            problems.push(ConfigProblem::new(
                "spool_folder",
                "must be an absolute path",
            ));
        }
        if let Some(problem) = self.policy.problem() {
            problems.push(ConfigProblem::new("policy", &problem));
        }
        if self.local.roots.iter().any(|root| !root.is_absolute()) {
            problems.push(ConfigProblem::new("local.roots", "must be absolute paths"));
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
            digest_always_up_to: self.digest_always_up_to.as_u64(),
            digest_before_up_to: self.digest_before_up_to.as_u64(),
            ..EngineOptions::default()
        }
    }

    /// How much of a directory is taken, at most `asked` bytes of it unless that is 0.
    pub fn tree(&self, asked: u64) -> tree::Limits {
        let most = self.max_tree.as_u64();
        tree::Limits {
            entries: self.max_tree_entries,
            total: if asked == 0 { most } else { asked.min(most) },
            file: self.max_tree_file.as_u64(),
            ..tree::Limits::default()
        }
    }

    /// Every backend of a kind that is set up.
    ///
    /// # Errors
    ///
    /// Settings that a backend cannot work with.
    pub fn backends(&self, clock: &Clock) -> Result<Vec<Arc<dyn Backend>>, Unusable> {
        self.kinds
            .iter()
            .map(|kind| self.backend(kind, clock))
            .collect()
    }

    fn backend(&self, kind: &str, clock: &Clock) -> Result<Arc<dyn Backend>, Unusable> {
        Ok(match kind {
            "apptainer" => Arc::new(ApptainerBackend::new(self.apptainer.clone())),
            "docker" => {
                Arc::new(DockerBackend::new(&self.docker, clock.clone()).map_err(unusable)?)
            }
            "exec" => Arc::new(CommandBackend::new(self.exec.clone()).map_err(unusable)?),
            "daytona" => {
                let backend = DaytonaBackend::new(&self.daytona, clock.clone());
                Arc::new(backend.map_err(unusable)?)
            }
            "e2b" => {
                let backend = E2bBackend::new(&self.e2b, clock.clone());
                Arc::new(backend.map_err(unusable)?)
            }
            "kubernetes" => {
                Arc::new(KubernetesBackend::new(self.kubernetes.clone()).map_err(unusable)?)
            }
            "modal" => {
                let backend = ModalBackend::new(&self.modal, clock.clone());
                Arc::new(backend.map_err(unusable)?)
            }
            "local" => Arc::new(LocalBackend::new(LocalOptions {
                roots: self.local.roots.clone(),
            })),
            "ssh" => Arc::new(SshBackend::new(self.ssh.clone()).map_err(unusable)?),
            other => return Err(Unusable(format!("there is no backend `{other}`"))),
        })
    }
}

fn unusable(error: impl std::error::Error) -> Unusable {
    Unusable(error.to_string())
}
