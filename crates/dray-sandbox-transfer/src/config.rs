//! The settings of sandboxes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dray_preview::PreviewConfig;
use dray_sandbox::Backend;
use dray_sandbox_apptainer::ApptainerBackend;
use dray_sandbox_daytona::DaytonaBackend;
use dray_sandbox_docker::DockerBackend;
use dray_sandbox_e2b::E2bBackend;
use dray_sandbox_exec::{CommandBackend, CommandConfig};
use dray_sandbox_kubernetes::KubernetesBackend;
use dray_sandbox_local::{LocalBackend, LocalOptions};
use dray_sandbox_modal::ModalBackend;
use dray_sandbox_ssh::SshBackend;
use dray_sandbox_tree as tree;
use dray_service::config::{
    AliasValue, ConfigProblem, FormerName, RestartSetting, Section, VariableAlias, parse,
};
use dray_service::reload::{DEFAULT_RELOAD_INTERVAL, interval_problem};
use dray_service::restart_settings;
use dray_transfer_engine::EngineOptions;
use dray_transfer_engine::policy::PolicyOptions;
use dray_types::{BackendKind, ByteSize, Clock, Period};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::commands::CommandsConfig;
use crate::egress_proxy::EgressProxyConfig;

/// Longest delay before a retry that a provider may ask for. Callers learn of a longer one while they still wait, and the
/// transfer holds no place of the sandbox meanwhile.
const MAX_PROVIDER_DELAY: Duration = Duration::from_secs(10);

/// Sandbox-transfer, which copies files into and out of sandboxes, and runs programs and serves previews there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Config {
    /// Kinds of sandboxes that can be reached: `apptainer`, `docker`, `exec`, `local` and `ssh`, which are the default,
    /// and `daytona`, `e2b`, `kubernetes` and `modal`, which need credentials in their sections.
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
    /// Existing directory, as an absolute path, for the bytes of transports that must be read without a pause. Files
    /// there have no name. Default `/tmp`.
    pub spool_directory: PathBuf,
    /// Most bytes of all transfers together in the spool directory. Default `16GiB`.
    pub spool_limit: ByteSize,
    /// Largest file whose digest is always computed in the sandbox. Default `1024GiB`: every file. With a lower value,
    /// such as `2MiB`, larger files in containers and on hosts are proved by equal size, inode and times before and
    /// after the copy, if they are on a local file system and were not written for two seconds. Their receipts say
    /// `size_mtime`, and their copy takes a fraction of the time.
    pub digest_always_up_to: ByteSize,
    /// Largest file whose digest is computed in the sandbox both before and after the transfer. Default `1GiB`.
    pub digest_before_up_to: ByteSize,
    /// Programs that callers may run in sandboxes. Off by default.
    pub commands: CommandsConfig,
    /// The forward proxy in the environment of these programs. Off by default.
    pub egress_proxy: EgressProxyConfig,
    /// Links through which people look at files directly in their sandbox.
    pub preview: PreviewConfig,
    /// Sandboxes that are directories of this host.
    pub local: Local,
    /// Containers of a Docker Engine.
    pub docker: dray_sandbox_docker::Config,
    /// Hosts that are reached over SSH.
    pub ssh: dray_sandbox_ssh::Config,
    /// Instances of Apptainer or Singularity.
    pub apptainer: dray_sandbox_apptainer::Config,
    /// Sandboxes that are entered by a command line, by name. Default none.
    pub exec: BTreeMap<String, CommandConfig>,
    /// Containers of a Kubernetes cluster.
    pub kubernetes: dray_sandbox_kubernetes::Config,
    /// Sandboxes of Modal.
    pub modal: dray_sandbox_modal::Config,
    /// Sandboxes of E2B.
    pub e2b: dray_sandbox_e2b::Config,
    /// Sandboxes of Daytona.
    pub daytona: dray_sandbox_daytona::Config,
    /// How often the configuration file and the directory of secrets are read again: `1s` to `1h`. The log names changed
    /// settings that need a restart. Default `2s`.
    pub reload_interval: Period,
}

/// The reason for which a backend cannot be used as configured.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UnusableBackend(String);

/// Sandboxes that are directories of this host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Local {
    /// Directories of this host, as absolute paths, that are sandboxes or contain them. Empty: none is allowed. Default
    /// none.
    pub roots: Vec<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        let engine = EngineOptions::default();
        Self {
            kinds: BackendKind::ALL
                .iter()
                .filter(|kind| kind.is_default())
                .map(|kind| kind.as_str().to_owned())
                .collect(),
            max_file: ByteSize::mib(2048),
            max_tree: ByteSize::mib(512),
            max_tree_file: ByteSize::mib(100),
            max_tree_entries: tree::Limits::default().entries,
            address_tenants: vec!["default".to_owned()],
            policy: PolicyOptions::default(),
            idle_timeout: Period::secs(30),
            spool_directory: engine.spool_dir,
            spool_limit: ByteSize::mib(16 * 1024),
            digest_always_up_to: ByteSize::mib(1 << 20),
            digest_before_up_to: ByteSize::mib(1024),
            commands: CommandsConfig::default(),
            egress_proxy: EgressProxyConfig::default(),
            preview: PreviewConfig::default(),
            local: Local::default(),
            docker: dray_sandbox_docker::Config::default(),
            ssh: dray_sandbox_ssh::Config::default(),
            apptainer: dray_sandbox_apptainer::Config::default(),
            exec: BTreeMap::new(),
            kubernetes: dray_sandbox_kubernetes::Config::default(),
            modal: dray_sandbox_modal::Config::default(),
            e2b: dray_sandbox_e2b::Config::default(),
            daytona: dray_sandbox_daytona::Config::default(),
            reload_interval: DEFAULT_RELOAD_INTERVAL,
        }
    }
}

/// Reads a variable as the Docker command line does: any text means yes.
#[expect(
    clippy::unnecessary_wraps,
    reason = "the signature of `VariableAlias::parse`; no text is refused"
)]
fn any_text(text: &str) -> Result<AliasValue, String> {
    Ok(AliasValue::Value((!text.is_empty()).into()))
}

impl Section for Config {
    /// The listener of previews, and the reload itself.
    fn restart_settings() -> Option<&'static [RestartSetting<Self>]> {
        const RESTART_SETTINGS: &[RestartSetting<Config>] =
            restart_settings![Config: preview, reload_interval];
        Some(RESTART_SETTINGS)
    }

    fn former_names() -> &'static [FormerName] {
        const FORMER_NAMES: [FormerName; 6] = [
            FormerName::new("spool_folder", "spool_directory"),
            FormerName::below("docker", "answer_timeout", "response_timeout"),
            FormerName::below("kubernetes", "answer_timeout", "response_timeout"),
            FormerName::below("modal", "answer_timeout", "response_timeout"),
            FormerName::below("e2b", "answer_timeout", "response_timeout"),
            FormerName::below("daytona", "answer_timeout", "response_timeout"),
        ];
        &FORMER_NAMES
    }

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
        for name in &self.kinds {
            let opened = known_kind(name).and_then(|kind| {
                // Making a backend connects to nothing; it only checks the settings.
                self.backend(kind, &Clock::system())
                    .map_err(|error| ConfigProblem::new(name, error.to_string()))
            });
            problems.extend(opened.err());
        }
        if self.max_file == ByteSize::default() {
            problems.push(ConfigProblem::new("max_file", "must be above 0"));
        }
        if self.idle_timeout == Period::default() {
            problems.push(ConfigProblem::new("idle_timeout", "must be above 0"));
        }
        if !self.spool_directory.is_absolute() {
            problems.push(ConfigProblem::new(
                "spool_directory",
                "must be an absolute path",
            ));
        }
        if let Some(problem) = self.policy.problem() {
            problems.push(ConfigProblem::new("policy", &problem));
        }
        if let Some((field, problem)) = self.commands.problem() {
            problems.push(ConfigProblem::new(format!("commands.{field}"), problem));
        }
        if let Some((field, problem)) = self.egress_proxy.problem() {
            problems.push(ConfigProblem::new(format!("egress_proxy.{field}"), problem));
        }
        if let Some((field, problem)) = self.preview.problem() {
            problems.push(ConfigProblem::new(format!("preview.{field}"), problem));
        }
        if self.local.roots.iter().any(|root| !root.is_absolute()) {
            problems.push(ConfigProblem::new("local.roots", "must be absolute paths"));
        }
        problems.extend(interval_problem(self.reload_interval));
        problems
    }
}

impl Config {
    /// The options for engines. Options that the section does not have keep their defaults.
    pub fn engine(&self) -> EngineOptions {
        EngineOptions {
            max_provider_delay: MAX_PROVIDER_DELAY,
            idle: self.idle_timeout.as_duration(),
            spool_dir: self.spool_directory.clone(),
            spool_limit: self.spool_limit.as_u64(),
            digest_always_up_to: self.digest_always_up_to.as_u64(),
            digest_before_up_to: self.digest_before_up_to.as_u64(),
            ..EngineOptions::default()
        }
    }

    /// Limits for a directory: at most `requested` bytes, or the configured limit for 0.
    pub fn tree(&self, requested: u64) -> tree::Limits {
        let limit = self.max_tree.as_u64();
        tree::Limits {
            entries: self.max_tree_entries,
            total: if requested == 0 {
                limit
            } else {
                requested.min(limit)
            },
            file: self.max_tree_file.as_u64(),
            ..tree::Limits::default()
        }
    }

    /// Makes the backend of every kind that is configured.
    ///
    /// # Errors
    ///
    /// [`UnusableBackend`] for settings that a backend cannot work with.
    pub fn backends(&self, clock: &Clock) -> Result<Vec<Arc<dyn Backend>>, UnusableBackend> {
        self.kinds
            .iter()
            .map(|name| self.backend_named(name, clock))
            .collect()
    }

    pub(crate) fn backend_named(
        &self,
        name: &str,
        clock: &Clock,
    ) -> Result<Arc<dyn Backend>, UnusableBackend> {
        match BackendKind::from_name(name) {
            Some(kind) => self.backend(kind, clock),
            None => Err(UnusableBackend(format!(
                "the backend `{name}` does not exist"
            ))),
        }
    }

    /// Whether the settings of a backend are the same in `other`.
    pub(crate) fn has_equal_backend(&self, other: &Self, kind: BackendKind) -> bool {
        match kind {
            BackendKind::Apptainer => self.apptainer == other.apptainer,
            BackendKind::Daytona => self.daytona == other.daytona,
            BackendKind::Docker => self.docker == other.docker,
            BackendKind::E2b => self.e2b == other.e2b,
            BackendKind::Exec => self.exec == other.exec,
            BackendKind::Kubernetes => self.kubernetes == other.kubernetes,
            BackendKind::Local => self.local == other.local,
            BackendKind::Modal => self.modal == other.modal,
            BackendKind::Ssh => self.ssh == other.ssh,
        }
    }

    fn backend(
        &self,
        kind: BackendKind,
        clock: &Clock,
    ) -> Result<Arc<dyn Backend>, UnusableBackend> {
        Ok(match kind {
            BackendKind::Apptainer => Arc::new(ApptainerBackend::new(self.apptainer.clone())),
            BackendKind::Docker => {
                Arc::new(DockerBackend::new(&self.docker, clock.clone()).map_err(unusable)?)
            }
            BackendKind::Exec => {
                Arc::new(CommandBackend::new(self.exec.clone()).map_err(unusable)?)
            }
            BackendKind::Daytona => {
                let backend = DaytonaBackend::new(&self.daytona, clock.clone());
                Arc::new(backend.map_err(unusable)?)
            }
            BackendKind::E2b => {
                let backend = E2bBackend::new(&self.e2b, clock.clone());
                Arc::new(backend.map_err(unusable)?)
            }
            BackendKind::Kubernetes => {
                Arc::new(KubernetesBackend::new(self.kubernetes.clone()).map_err(unusable)?)
            }
            BackendKind::Modal => {
                let backend = ModalBackend::new(&self.modal, clock.clone());
                Arc::new(backend.map_err(unusable)?)
            }
            BackendKind::Local => Arc::new(LocalBackend::new(LocalOptions {
                roots: self.local.roots.clone(),
            })),
            BackendKind::Ssh => Arc::new(SshBackend::new(self.ssh.clone()).map_err(unusable)?),
        })
    }
}

/// The kind with this name, or the problem with the name.
fn known_kind(name: &str) -> Result<BackendKind, ConfigProblem> {
    BackendKind::from_name(name).ok_or_else(|| {
        let names: Vec<_> = BackendKind::ALL.iter().map(|kind| kind.as_str()).collect();
        let message = format!("`{name}` is not one of {}", names.join(", "));
        ConfigProblem::new("kinds", message)
    })
}

fn unusable(error: impl std::error::Error) -> UnusableBackend {
    UnusableBackend(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use dray_service::config::{ConfigLoader, ConfigSources};

    use super::*;

    /// Pages of `docs/backends` that are about no single kind.
    const SHARED_PAGES: [&str; 1] = ["transfers"];

    fn kind_names() -> BTreeSet<String> {
        let names = BackendKind::ALL.iter().map(|kind| kind.as_str().to_owned());
        names.collect()
    }

    #[test]
    fn every_kind_of_sandbox_opens_under_its_own_name() {
        // Kubernetes is the only kind whose settings must name the place of its API.
        let mut config = Config::default();
        config.kubernetes.in_cluster = true;
        for kind in BackendKind::ALL {
            let backend = config.backend(*kind, &Clock::system()).unwrap();
            assert_eq!(backend.name(), kind.as_str());
        }
    }

    #[test]
    fn every_kind_of_sandbox_has_a_section_a_page_and_a_word_in_the_reference() {
        let sections = serde_json::to_value(Config::default()).unwrap();
        let schema = serde_json::to_value(schemars::schema_for!(Config)).unwrap();
        let described = schema["properties"]["kinds"]["description"]
            .as_str()
            .unwrap();
        for name in kind_names() {
            assert!(sections.get(&name).is_some(), "no section {name}");
            assert!(described.contains(&format!("`{name}`")), "{described}");
        }
        let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/backends");
        let mut pages: BTreeSet<_> = std::fs::read_dir(pages)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        pages.retain(|page| !SHARED_PAGES.contains(&page.as_str()));
        assert_eq!(pages, kind_names());
    }

    #[test]
    fn every_response_timeout_of_a_kind_may_still_have_its_former_name() {
        let sections = serde_json::to_value(Config::default()).unwrap();
        let mut kinds = kind_names();
        kinds.retain(|kind| sections[kind].get("response_timeout").is_some());
        assert!(kinds.contains("docker"), "{kinds:?}");
        let sources = kinds
            .iter()
            .fold(ConfigSources::default(), |sources, kind| {
                sources.set(format!("sandbox-transfer.{kind}.answer_timeout"), "7s")
            });
        let loader = ConfigLoader::new().section::<Config>("sandbox-transfer");
        let loaded = loader.load(&sources).unwrap();
        let config: Config = loaded.section("sandbox-transfer").unwrap();
        let sections = serde_json::to_value(config).unwrap();
        for kind in &kinds {
            assert_eq!(sections[kind]["response_timeout"], "7s", "{kind}");
        }
        assert_eq!(loaded.warnings().len(), kinds.len());
    }

    #[test]
    fn an_unknown_kind_is_refused_with_the_list() {
        let config = Config {
            kinds: vec!["box".to_owned()],
            ..Config::default()
        };
        let [problem] = &config.validate()[..] else {
            panic!("there must be one problem");
        };
        assert_eq!(problem.field, "kinds");
        assert!(
            problem.message.ends_with("modal, ssh"),
            "{}",
            problem.message
        );
    }
}
