//! The demo's system: every service embedded, a small DIAL Core, a chat platform, and the simulated outside world.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dray_bus::{Bus, EventFilter, EventStream, Meta, Observed};
use dray_egress_fetcher::{EgressFetcher, Network};
use dray_file_resolver::FileResolver;
use dray_orchestrator::Orchestrator;
use dray_platform_delivery::PlatformDelivery;
use dray_platform_telegram::double::Double;
use dray_proto::Call;
use dray_sandbox_transfer::SandboxTransfer;
use dray_service::config::{Environment, Sources};
use dray_service::{Host, Running, Settings, Sweeper};
use dray_store::Store;
use dray_testkit::dial::DialCore;
use dray_testkit::rehearsal::{Rehearsal, Script};
use dray_types::{Deadline, Fault, TenantId};

use crate::demo::agent;
use crate::demo::outside::Outside;
use crate::outcome::Failure;
use crate::world;

/// The key of the demo's user towards the DIAL Core double.
const KEY: &str = "demo-key";
/// The demo's bot.
const ACCOUNT: &str = "platform-delivery.accounts.demo.telegram";
/// How long one step may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Everything that runs.
#[derive(Debug)]
pub(crate) struct System {
    running: Running,
    /// The DIAL Core double.
    pub(crate) dial: DialCore,
    /// The outside world.
    pub(crate) outside: Outside,
    /// A Bot API server with its users.
    pub(crate) telegram: Double,
    /// The model of the demo's agent.
    pub(crate) model: Rehearsal,
    /// The folder that is the agent's sandbox.
    pub(crate) sandbox: PathBuf,
    /// A directory of the user who runs the demo.
    pub(crate) downloads: PathBuf,
    tenant: TenantId,
}

impl System {
    /// Starts everything with its files in `folder`. Containers are those of the engine at `docker`.
    pub(crate) async fn start(folder: &Path, docker: &Path) -> Result<Self, Failure> {
        let dial = DialCore::start()
            .await
            .map_err(Failure::local("cannot start the DIAL Core double"))?;
        dial.add_key(KEY, "demo");
        let telegram = Double::start()
            .await
            .map_err(Failure::local("cannot start the chat platform"))?;
        let model = rehearsal()
            .await
            .map_err(Failure::local("cannot start the rehearsed model"))?;
        let (sandbox, downloads) = (made(folder, "sandbox")?, made(folder, "downloads")?);
        let sources = settings(folder, &dial)
            .set("sandbox-transfer.local.roots", list(&sandbox))
            .set(
                "sandbox-transfer.docker.endpoint",
                format!("unix://{}", docker.display()),
            )
            .set("platform-delivery.cli", "true")
            .set("platform-delivery.allowed_targets", "cli:*")
            .set(format!("{ACCOUNT}.base_url"), telegram.url())
            .set(format!("{ACCOUNT}.token"), telegram.token().expose());
        let sources = agent_settings(sources, &manifests(folder)?, &model, &sandbox);
        let outside = Outside::new();
        let network = outside.clone();
        let running = Host::new(Settings::new(sources))
            .with::<FileResolver>()
            .with_start::<EgressFetcher, _, _>(|config, cx| async move {
                let network = Network {
                    resolver: Arc::new(network.clone()),
                    dialer: Arc::new(network),
                };
                EgressFetcher::start_with(config, cx, network).await
            })
            .with::<SandboxTransfer>()
            .with::<PlatformDelivery>()
            .with::<Orchestrator>()
            .with::<Sweeper>()
            .start()
            .await
            .map_err(|error| world::refused(&error))?;
        tokio::time::timeout(PATIENCE, running.ready())
            .await
            .map_err(|_| late("The system did not become ready."))?;
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

    /// The bus.
    pub(crate) fn bus(&self) -> &Bus {
        &self.running.context().bus
    }

    /// The store.
    pub(crate) fn store(&self) -> &Store {
        &self.running.context().store
    }

    /// Where chats are answered.
    pub(crate) fn chat(&self) -> Option<SocketAddr> {
        self.running.context().doors.find("chat")
    }

    /// Whose data the demo is about.
    pub(crate) fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// The envelope of a new operation.
    pub(crate) fn meta(&self) -> Meta {
        Meta::new(self.tenant.clone(), self.deadline())
    }

    /// Asks a service, as a new operation.
    pub(crate) async fn ask<C: Call>(&self, request: &C) -> Result<C::Reply, Failure> {
        let reply = self.bus().call(&self.meta(), request).await;
        Ok(reply.map_err(Fault::from)?)
    }

    /// The end of one step.
    pub(crate) fn deadline(&self) -> Deadline {
        Deadline::after(self.running.context().clock.now_ms(), PATIENCE)
    }

    /// What the demo's user shows DIAL Core.
    pub(crate) fn credentials() -> dray_proto::v1::DialCredentials {
        dray_proto::v1::DialCredentials {
            api_key: KEY.to_owned(),
            authorization: String::new(),
        }
    }

    /// Events from the beginning.
    pub(crate) async fn events(&self, filter: &str) -> Result<EventStream, Failure> {
        let filter = EventFilter::new(filter).from_start();
        self.bus()
            .events(filter)
            .await
            .map_err(|_| Fault::internal().into())
    }

    /// Ends everything in order.
    pub(crate) async fn stop(self) {
        self.running.stop().await;
    }
}

/// A folder with the manifest of the demo's agent.
fn manifests(folder: &Path) -> Result<PathBuf, Failure> {
    let manifests = made(folder, "manifests")?;
    std::fs::write(manifests.join("clerk.json"), agent::manifest().to_string())
        .map_err(Failure::local("cannot write the demo's manifest"))?;
    Ok(manifests)
}

/// The model of the demo's agent.
async fn rehearsal() -> std::io::Result<Rehearsal> {
    let script = Script::from_json(&agent::script().to_string())?;
    Rehearsal::start(script).await
}

/// The next event, or a failure when none comes.
pub(crate) async fn next(events: &mut EventStream) -> Result<Observed, Failure> {
    let event = tokio::time::timeout(PATIENCE, events.next())
        .await
        .map_err(|_| late("No event came."))?;
    event.map_err(|_| Fault::internal().into())
}

pub(crate) fn late(what: &str) -> Failure {
    Failure::Unreachable {
        what: what.to_owned(),
        advice: "Run the demo again on a less busy machine.".to_owned(),
    }
}

/// No environment and no file: the demo is the same everywhere.
fn settings(folder: &Path, dial: &DialCore) -> Sources {
    Sources::new(Environment::default())
        .set("state.folder", folder.to_string_lossy())
        .set("http.listen", "127.0.0.1:0")
        .set("grpc.listen", "127.0.0.1:0")
        .set("limits.free_disk_percent", "0")
        .set("egress-fetcher.enabled", "true")
        .set("file-resolver.dial_url", dial.url())
        .set("file-resolver.tenants.default.api_key", KEY)
}

/// Where the agent's manifest, model and sandbox are.
fn agent_settings(
    sources: Sources,
    manifests: &Path,
    model: &Rehearsal,
    sandbox: &Path,
) -> Sources {
    sources
        .set("orchestrator.listen", "127.0.0.1:0")
        .set("orchestrator.manifests", manifests.to_string_lossy())
        .set("orchestrator.model_url", format!("{}/v1", model.url()))
        .set(
            "orchestrator.sandbox",
            format!("local:{}", sandbox.display()),
        )
}

/// A new folder within the demo's, under its real path.
fn made(folder: &Path, name: &str) -> Result<PathBuf, Failure> {
    let path = folder.join(name);
    std::fs::create_dir(&path)
        .and_then(|()| path.canonicalize())
        .map_err(Failure::local("cannot make a folder for the demo"))
}

/// A configured list of one path, with any characters in it.
fn list(path: &Path) -> String {
    serde_json::json!([path.to_string_lossy()]).to_string()
}
