//! The demo's system: every service embedded, a small DIAL Core, and the simulated outside world.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dray_bus::{Bus, EventFilter, EventStream, Meta, Observed};
use dray_egress_fetcher::{EgressFetcher, Network};
use dray_file_resolver::FileResolver;
use dray_service::config::{Environment, Sources};
use dray_service::{Host, Running, Settings, Sweeper};
use dray_store::Store;
use dray_testkit::dial::DialCore;
use dray_types::{Deadline, Fault, TenantId};

use crate::demo::outside::Outside;
use crate::outcome::Failure;
use crate::world;

/// The key of the demo's user towards the DIAL Core double.
const KEY: &str = "demo-key";
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
    tenant: TenantId,
}

impl System {
    /// Starts everything with its files in `folder`.
    pub(crate) async fn start(folder: &Path) -> Result<Self, Failure> {
        let dial = DialCore::start()
            .await
            .map_err(Failure::local("cannot start the DIAL Core double"))?;
        dial.add_key(KEY, "demo");
        let outside = Outside::new();
        let network = outside.clone();
        let running = Host::new(settings(folder, &dial))
            .with::<FileResolver>()
            .with_start::<EgressFetcher, _, _>(|config, cx| async move {
                let network = Network {
                    resolver: Arc::new(network.clone()),
                    dialer: Arc::new(network),
                };
                EgressFetcher::start_with(config, cx, network).await
            })
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

    /// Whose data the demo is about.
    pub(crate) fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// The envelope of a new operation.
    pub(crate) fn meta(&self) -> Meta {
        Meta::new(self.tenant.clone(), self.deadline())
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

/// The next event, or a failure when none comes.
pub(crate) async fn next(events: &mut EventStream) -> Result<Observed, Failure> {
    let event = tokio::time::timeout(PATIENCE, events.next())
        .await
        .map_err(|_| late("No event came."))?;
    event.map_err(|_| Fault::internal().into())
}

fn late(what: &str) -> Failure {
    Failure::Unreachable {
        what: what.to_owned(),
        advice: "Run the demo again on a less busy machine.".to_owned(),
    }
}

/// No environment and no file: the demo is the same everywhere.
fn settings(folder: &Path, dial: &DialCore) -> Settings {
    let sources = Sources::new(Environment::default())
        .set("state.folder", folder.to_string_lossy())
        .set("http.listen", "127.0.0.1:0")
        .set("grpc.listen", "127.0.0.1:0")
        .set("limits.free_disk_percent", "0")
        .set("egress-fetcher.enabled", "true")
        .set("file-resolver.dial_url", dial.url())
        .set("file-resolver.tenants.default.api_key", KEY);
    Settings::new(sources)
}
