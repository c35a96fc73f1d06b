//! All services in this process, with an orchestrator on a free loopback port.

use std::io::ErrorKind;
use std::path::Path;

use dray_dial::DialOrigin;
use dray_service::settings::{BusMode, BusSection, StateSection, StoreMode, StoreSection};
use dray_types::Secret;
use serde_json::json;

use crate::cli::{ChatArgs, GlobalOptions};
use crate::context::{self, SystemConnection};
use crate::outcome::CommandFailure;

/// The services that an agent may need; the sweeper is not among them.
const AGENT_SERVICES: [&str; 5] = [
    "orchestrator",
    "file-resolver",
    "egress-fetcher",
    "sandbox-transfer",
    "platform-delivery",
];
/// Name of the manifest that is created if none is configured.
const DEFAULT_MANIFEST: &str = "chat";

/// Services that run for one chat. End them with [`EmbeddedServices::close`].
#[derive(Debug)]
pub(super) struct EmbeddedServices {
    /// URL of the orchestrator.
    pub(super) url: String,
    /// A key that the orchestrator accepts; `None` if it requires none.
    pub(super) key: Option<Secret>,
    /// The manifest to use if the command line has none.
    pub(super) manifest: Option<String>,
    /// Origin of the links to stored files.
    pub(super) store: Option<DialOrigin>,
    system: SystemConnection,
    /// The directory of the created manifest, which is removed when the chat ends.
    _directory: Option<tempfile::TempDir>,
}

impl EmbeddedServices {
    /// Starts the services. Options of the command line override the configuration.
    pub(super) async fn start(
        global: &GlobalOptions,
        chat: &ChatArgs,
    ) -> Result<Self, CommandFailure> {
        let mut global = global.clone();
        let mut set = |field: &str, value: &str| {
            let line = format!("orchestrator.{field}={value}");
            global.overrides.push(line);
        };
        if let Some(url) = &chat.model_url {
            set("model_url", url);
        }
        if let Some(model) = &chat.model {
            set("default_orchestrator_deployment", model);
        }
        if let Some(directory) = &chat.manifests {
            set("manifests", &directory.to_string_lossy());
        }
        // The orchestrator binds a free port itself and reports it: a port that is chosen here first could be taken by
        // another program in between, which would then get the chat and its key.
        set("listen", "127.0.0.1:0");
        let config = orchestrator_config(&global)?;
        let mut manifest = config.default_manifest.clone();
        let mut generated_directory = None;
        // No agent is configured, so this creates one that has only the model.
        if config.manifests.is_none() && config.dial_url.is_none() {
            let model = config.default_orchestrator_deployment.as_deref();
            let directory = plain_manifest(model, chat)?;
            let line = directory.path().to_string_lossy().into_owned();
            global
                .overrides
                .push(format!("orchestrator.manifests={line}"));
            manifest = Some(DEFAULT_MANIFEST.to_owned());
            generated_directory = Some(directory);
        }
        let system = SystemConnection::open(&global, &AGENT_SERVICES).await?;
        let store = store_origin(&system);
        let address = system.chat_address().ok_or_else(|| {
            let error = ErrorKind::AddrNotAvailable.into();
            CommandFailure::local("the orchestrator does not listen for chats")(error)
        })?;
        Ok(Self {
            url: format!("http://{address}"),
            key: config.clients.values().next().cloned(),
            manifest,
            store,
            system,
            _directory: generated_directory,
        })
    }

    /// Stops the services in order.
    pub(super) async fn close(self) {
        self.system.close().await;
    }
}

/// The section of the orchestrator. Refuses configurations with which an agent could not work.
fn orchestrator_config(
    global: &GlobalOptions,
) -> Result<dray_orchestrator::config::Config, CommandFailure> {
    let loaded = context::load_config(&context::config_sources(global)?)?;
    let bus: BusSection = context::config_section(&loaded, "bus")?;
    if bus.mode == BusMode::Nats {
        return Err(CommandFailure::Usage(
            "the services of a running system have an orchestrator of their own: name it with --url".to_owned(),
        ));
    }
    let config: dray_orchestrator::config::Config =
        context::config_section(&loaded, "orchestrator")?;
    if config.model_url.is_none() && config.dial_url.is_none() {
        return Err(CommandFailure::Usage(
            "no model is configured: name a running orchestrator with --url, or a model with --model-url".to_owned(),
        ));
    }
    Ok(config)
}

/// Makes a directory with a manifest that has only the model.
fn plain_manifest(
    model: Option<&str>,
    chat: &ChatArgs,
) -> Result<tempfile::TempDir, CommandFailure> {
    let Some(model) = model else {
        return Err(CommandFailure::Usage(
            "name the model with --model, or a directory of manifests with --manifests".to_owned(),
        ));
    };
    // The requested manifest cannot be the one that is generated here.
    if let Some(name) = &chat.manifest {
        return Err(CommandFailure::Usage(format!(
            "name the directory that holds the manifest {name} with --manifests"
        )));
    }
    let temporary_directory_error = || CommandFailure::local("cannot create a temporary directory");
    let directory = tempfile::tempdir().map_err(temporary_directory_error())?;
    let manifest = json!({
        "orchestrator": { "deployment": { "deployment_id": model } }, "contexts": [], "tool_sets": [],
    });
    let file = directory.path().join(format!("{DEFAULT_MANIFEST}.json"));
    std::fs::write(file, manifest.to_string()).map_err(temporary_directory_error())?;
    Ok(directory)
}

/// The origin of the store's links; `None` if it cannot be determined.
fn store_origin(system: &SystemConnection) -> Option<DialOrigin> {
    let config = system.config()?;
    let section: StoreSection = config.section("store").ok()?;
    let url = match section.mode {
        // Links use the public endpoint if there is one.
        StoreMode::S3 if section.s3.public_endpoint.is_empty() => section.s3.endpoint,
        StoreMode::S3 => section.s3.public_endpoint,
        StoreMode::Embedded => {
            let state: StateSection = config.section("state").ok()?;
            // The embedded store chooses its port, and notes it in its directory.
            let directory: &Path = &state.directory.join("store");
            dray_store::embedded::serving_options(directory)
                .ok()?
                .endpoint
        }
    };
    DialOrigin::parse(&url).ok()
}
