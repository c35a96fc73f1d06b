//! The demo's system: every service embedded, a small DIAL Core, a chat platform, and the simulated outside world.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dray_bus::{Bus, EventFilter, EventStream, Meta, ObservedEvent};
use dray_egress_fetcher::{EgressFetcher, NetworkAccess};
use dray_file_resolver::FileResolver;
use dray_orchestrator::Orchestrator;
use dray_platform_delivery::PlatformDelivery;
use dray_platform_telegram::fake_server::FakeTelegram;
use dray_proto::Call;
use dray_sandbox_transfer::SandboxTransfer;
use dray_service::config::{ConfigSources, Environment};
use dray_service::{Host, RunningHost, Settings, SweeperService};
use dray_store::Store;
use dray_testkit::dial::DialCore;
use dray_testkit::rehearsal::{RehearsalServer, Script};
use dray_types::{Deadline, Fault, TenantId};

use crate::context;
use crate::demo::agent;
use crate::demo::public_hosts::FakeInternet;
use crate::outcome::CommandFailure;

/// The key of the demo's user at the fake DIAL Core.
const DIAL_KEY: &str = "demo-key";
/// Configuration section of the demo's bot.
const BOT_ACCOUNT: &str = "platform-delivery.accounts.demo.telegram";
/// Longest duration of one step.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// The services and the fake servers around them. Stop it with [`DemoSystem::stop`].
#[derive(Debug)]
pub(crate) struct DemoSystem {
    running: RunningHost,
    /// A fake DIAL Core with the files of the demo's user.
    pub(crate) dial: DialCore,
    /// The outside world that the egress fetcher dials.
    pub(crate) outside: FakeInternet,
    /// A fake Bot API server with its users.
    pub(crate) telegram: FakeTelegram,
    /// The scripted model of the demo's agent.
    pub(crate) model: RehearsalServer,
    /// The directory that is the agent's sandbox.
    pub(crate) sandbox: PathBuf,
    /// A directory of the user who runs the demo, for copies.
    pub(crate) downloads: PathBuf,
    tenant: TenantId,
}

impl DemoSystem {
    /// Starts the system with its files in `directory`. `docker` is the socket of the container engine.
    pub(crate) async fn start(directory: &Path, docker: &Path) -> Result<Self, CommandFailure> {
        let dial = DialCore::start()
            .await
            .map_err(CommandFailure::local("cannot start the fake DIAL Core"))?;
        dial.add_key(DIAL_KEY, "demo");
        let telegram = FakeTelegram::start()
            .await
            .map_err(CommandFailure::local("cannot start the chat platform"))?;
        let model = scripted_model()
            .await
            .map_err(CommandFailure::local("cannot start the scripted model"))?;
        let (sandbox, downloads) = (
            make_directory(directory, "sandbox")?,
            make_directory(directory, "downloads")?,
        );
        let sources = demo_settings(directory, &dial)
            .set("sandbox-transfer.local.roots", one_path_list(&sandbox))
            .set(
                "sandbox-transfer.docker.endpoint",
                format!("unix://{}", docker.display()),
            )
            .set("platform-delivery.cli", "true")
            .set("platform-delivery.allowed_targets", "cli:*")
            .set(format!("{BOT_ACCOUNT}.base_url"), telegram.url())
            .set(format!("{BOT_ACCOUNT}.token"), telegram.token().expose());
        let sources = agent_settings(sources, &manifest_directory(directory)?, &model, &sandbox);
        let outside = FakeInternet::new();
        // The product's fetcher with another resolver and dialer.
        let network = NetworkAccess {
            resolver: Arc::new(outside.clone()),
            dialer: Arc::new(outside.clone()),
        };
        let running = Host::new(Settings::new(sources))
            .with::<FileResolver>()
            .with_plan(EgressFetcher::plan_with(network))
            .with::<SandboxTransfer>()
            .with::<PlatformDelivery>()
            .with::<Orchestrator>()
            .with::<SweeperService>()
            .start()
            .await
            .map_err(|error| context::start_failure(&error))?;
        tokio::time::timeout(STEP_TIMEOUT, running.ready())
            .await
            .map_err(|_| late_event_failure("The system did not become ready."))?;
        Ok(Self {
            running,
            dial,
            outside,
            telegram,
            model,
            sandbox,
            downloads,
            tenant: TenantId::default(),
        })
    }

    /// The bus of the running services.
    pub(crate) fn bus(&self) -> &Bus {
        &self.running.context().bus
    }

    /// The store of the running services.
    pub(crate) fn store(&self) -> &Store {
        &self.running.context().store
    }

    /// The address of the chat endpoint; `None` when it does not listen.
    pub(crate) fn chat(&self) -> Option<SocketAddr> {
        self.running.context().listen_addresses.find("chat")
    }

    /// The tenant of the demo.
    pub(crate) fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// The envelope of a new operation, with the deadline of one step.
    pub(crate) fn meta(&self) -> Meta {
        Meta::new(self.tenant.clone(), self.deadline())
    }

    /// Calls a service as a new operation.
    pub(crate) async fn ask<C: Call>(&self, request: &C) -> Result<C::Reply, CommandFailure> {
        let reply = self.bus().call(&self.meta(), request).await;
        Ok(reply.map_err(Fault::from)?)
    }

    /// The deadline of a step that begins now.
    pub(crate) fn deadline(&self) -> Deadline {
        Deadline::after(self.running.context().clock.now_ms(), STEP_TIMEOUT)
    }

    /// The credentials that the demo's user shows to DIAL Core.
    pub(crate) fn credentials() -> dray_proto::v1::DialCredentials {
        dray_proto::v1::DialCredentials {
            api_key: DIAL_KEY.to_owned(),
            authorization: String::new(),
        }
    }

    /// Events of this subject, from the beginning of the stream.
    pub(crate) async fn events(&self, filter: &str) -> Result<EventStream, CommandFailure> {
        let filter = EventFilter::new(filter).from_start();
        self.bus()
            .events(filter)
            .await
            .map_err(|_| Fault::internal().into())
    }

    /// Stops all services in order.
    pub(crate) async fn stop(self) {
        self.running.stop().await;
    }
}

/// Makes a directory with the manifest of the demo's agent.
fn manifest_directory(directory: &Path) -> Result<PathBuf, CommandFailure> {
    let manifests = make_directory(directory, "manifests")?;
    std::fs::write(
        manifests.join("clerk.json"),
        agent::agent_manifest().to_string(),
    )
    .map_err(CommandFailure::local("cannot write the demo's manifest"))?;
    Ok(manifests)
}

/// Starts the scripted model of the demo's agent.
async fn scripted_model() -> std::io::Result<RehearsalServer> {
    let script = Script::from_json(&agent::model_script().to_string())?;
    RehearsalServer::start(script).await
}

/// The next event, or a failure if none arrives in time.
pub(crate) async fn next_event(events: &mut EventStream) -> Result<ObservedEvent, CommandFailure> {
    let event = tokio::time::timeout(STEP_TIMEOUT, events.next())
        .await
        .map_err(|_| late_event_failure("No event came."))?;
    event.map_err(|_| Fault::internal().into())
}

pub(crate) fn late_event_failure(description: &str) -> CommandFailure {
    CommandFailure::Unreachable {
        description: description.to_owned(),
        advice: "Run the demo again on a less busy machine.".to_owned(),
    }
}

/// Settings without the environment and without a file: the demo is the same everywhere.
fn demo_settings(directory: &Path, dial: &DialCore) -> ConfigSources {
    ConfigSources::new(Environment::default())
        .set("state.directory", directory.to_string_lossy())
        .set("http.listen", "127.0.0.1:0")
        .set("grpc.listen", "127.0.0.1:0")
        // A full disk must not keep the demo from starting.
        .set("limits.free_disk_percent", "0")
        .set("egress-fetcher.enabled", "true")
        .set("file-resolver.dial_url", dial.url())
        .set("file-resolver.tenants.default.api_key", DIAL_KEY)
}

/// Adds the settings of the agent: its manifest, model and sandbox.
fn agent_settings(
    sources: ConfigSources,
    manifests: &Path,
    model: &RehearsalServer,
    sandbox: &Path,
) -> ConfigSources {
    sources
        .set("orchestrator.listen", "127.0.0.1:0")
        .set("orchestrator.manifests", manifests.to_string_lossy())
        .set("orchestrator.model_url", format!("{}/v1", model.url()))
        .set(
            "orchestrator.sandbox",
            format!("local:{}", sandbox.display()),
        )
}

/// Makes a directory within the demo's, and returns its real path: sandboxes compare resolved paths.
fn make_directory(directory: &Path, name: &str) -> Result<PathBuf, CommandFailure> {
    let path = directory.join(name);
    std::fs::create_dir(&path)
        .and_then(|()| path.canonicalize())
        .map_err(CommandFailure::local(
            "cannot make a directory for the demo",
        ))
}

/// A configured list of one path, as JSON: a path may contain any characters.
fn one_path_list(path: &Path) -> String {
    serde_json::json!([path.to_string_lossy()]).to_string()
}
