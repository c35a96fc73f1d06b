//! What a command works with: the configuration it was given, and a bus and a store to talk to.

use std::path::PathBuf;
use std::time::Duration;

use dray_bus::{Bus, Meta};
use dray_egress_fetcher::EgressFetcher;
use dray_file_resolver::FileResolver;
use dray_service::config::{Environment, Loaded, Override, Sources};
use dray_service::host::{Chain, HostError};
use dray_service::settings::{BusMode, BusSection, StoreMode, StoreSection};
use dray_service::{Host, Running, Settings, Sweeper};
use dray_store::Store;
use dray_types::{Clock, Deadline, TenantId};

use crate::cli::Global;
use crate::outcome::Failure;

/// A host that knows every service. Which of them run is said with [`Host::only`].
pub(crate) fn host(sources: Sources) -> Host {
    Host::new(Settings::new(sources))
        .with::<FileResolver>()
        .with::<EgressFetcher>()
        .with::<Sweeper>()
}

/// The sources of configuration that the command line names.
pub(crate) fn sources(global: &Global) -> Result<Sources, Failure> {
    let mut sources = Sources::new(Environment::from_process());
    if let Some(file) = &global.config {
        sources = sources.file(file);
    }
    if let Some(url) = &global.nats {
        sources = sources.set("bus.mode", "nats").set("bus.nats.servers", url);
    }
    if let Some(url) = &global.s3 {
        sources = sources
            .set("store.mode", "s3")
            .set("store.s3.endpoint", url);
    }
    if let Some(folder) = &global.state {
        sources = sources.set("state.folder", folder.to_string_lossy());
    }
    for text in &global.overrides {
        let flag: Override = text
            .parse()
            .map_err(|error| Failure::Usage(format!("--set: {error}")))?;
        sources.overrides.push(flag);
    }
    with_home(sources)
}

/// Puts the state folder into the user's home unless it was set anywhere.
fn with_home(sources: Sources) -> Result<Sources, Failure> {
    let loaded = load(&sources)?;
    let is_default = loaded
        .report()
        .entries
        .iter()
        .any(|entry| entry.key == "state.folder" && entry.source == "default");
    let environment = &sources.environment;
    let home = environment
        .get("XDG_STATE_HOME")
        .map(PathBuf::from)
        .or_else(|| {
            environment
                .get("HOME")
                .map(|home| PathBuf::from(home).join(".local/state"))
        });
    match home {
        Some(home) if is_default => {
            let folder = home.join("drayage");
            Ok(sources.set("state.folder", folder.to_string_lossy()))
        }
        _ => Ok(sources),
    }
}

/// Reads and checks the configuration.
pub(crate) fn load(sources: &Sources) -> Result<Loaded, Failure> {
    host(sources.clone())
        .load()
        .map_err(|error| Failure::Configuration(error.to_string()))
}

/// The tenant that the command line names.
pub(crate) fn tenant(global: &Global) -> Result<TenantId, Failure> {
    TenantId::new(&global.tenant).map_err(|error| Failure::Usage(format!("--tenant: {error}")))
}

/// A bus and a store for one command: those of a running system when NATS is named, otherwise the needed
/// services run inside this process for as long as the command does.
#[derive(Debug)]
pub(crate) struct World {
    /// Where calls and events go.
    pub(crate) bus: Bus,
    /// Where content is; `None` when the command said that it needs none.
    store: Option<Store>,
    /// The wall clock.
    pub(crate) clock: Clock,
    tenant: TenantId,
    running: Option<Running>,
}

impl World {
    /// Opens what the command line names. `services` run here when there is no NATS to ask.
    pub(crate) async fn open(global: &Global, services: &[&str]) -> Result<Self, Failure> {
        let tenant = tenant(global)?;
        let sources = sources(global)?;
        let loaded = load(&sources)?;
        let bus: BusSection = section(&loaded, "bus")?;
        match bus.mode {
            BusMode::Embedded => Self::embedded(sources, services, tenant).await,
            BusMode::Nats => Self::remote(&loaded, &bus, tenant, !services.is_empty()).await,
        }
    }

    /// Opens the store alone, as the artifact commands need it.
    pub(crate) async fn open_store(global: &Global) -> Result<Self, Failure> {
        Self::embedded(
            sources(global)?.set("bus.mode", "embedded"),
            &[],
            tenant(global)?,
        )
        .await
    }

    /// Opens the bus of a running system; there is nothing to see on the bus of a process that just began.
    pub(crate) async fn open_bus(global: &Global) -> Result<Self, Failure> {
        let sources = sources(global)?;
        let loaded = load(&sources)?;
        let bus: BusSection = section(&loaded, "bus")?;
        if bus.mode == BusMode::Embedded {
            return Err(Failure::Usage(
                "this command looks at a running system: name its server, for example --nats nats://127.0.0.1:4222 \
                 (the in-process bus of `dray up` cannot be reached from outside)"
                    .to_owned(),
            ));
        }
        Self::remote(&loaded, &bus, tenant(global)?, false).await
    }

    async fn embedded(
        sources: Sources,
        services: &[&str],
        tenant: TenantId,
    ) -> Result<Self, Failure> {
        let sources = sources.set("http.listen", "").set("grpc.listen", "");
        let running = host(sources)
            .only(services.iter().copied())
            .start()
            .await
            .map_err(|error| refused(&error))?;
        running.ready().await;
        let context = running.context();
        Ok(Self {
            bus: context.bus.clone(),
            store: Some(context.store.clone()),
            clock: context.clock.clone(),
            tenant,
            running: Some(running),
        })
    }

    async fn remote(
        loaded: &Loaded,
        bus: &BusSection,
        tenant: TenantId,
        needs_store: bool,
    ) -> Result<Self, Failure> {
        let clock = Clock::system();
        let meter = dray_service::telemetry::no_meter();
        let bus = Bus::connect(&bus.nats, clock.clone(), &meter)
            .await
            .map_err(|error| Failure::Unreachable {
                what: format!("{}", Chain(&error)),
                advice: "Check the URL given with --nats and that the server runs.".to_owned(),
            })?;
        let store = if needs_store {
            Some(remote_store(loaded, &clock).await?)
        } else {
            None
        };
        Ok(Self {
            bus,
            store,
            clock,
            tenant,
            running: None,
        })
    }

    /// The store.
    pub(crate) fn store(&self) -> Result<&Store, Failure> {
        self.store
            .as_ref()
            .ok_or_else(|| Failure::Usage("this command needs a store: add --s3 URL".to_owned()))
    }

    /// Whose data the command is about.
    pub(crate) fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// The envelope of a new operation with this much time.
    pub(crate) fn meta(&self, time: Duration) -> Meta {
        Meta::new(self.tenant.clone(), self.deadline(time))
    }

    /// The instant this far from now.
    pub(crate) fn deadline(&self, time: Duration) -> Deadline {
        Deadline::after(self.clock.now_ms(), time)
    }

    /// Ends what runs here, in order.
    pub(crate) async fn close(self) {
        match self.running {
            Some(running) => {
                running.stop().await;
            }
            None => self.bus.drain().await,
        }
    }
}

fn section<S: dray_service::config::Section>(loaded: &Loaded, name: &str) -> Result<S, Failure> {
    loaded
        .section(name)
        .map_err(|error| Failure::Configuration(error.to_string()))
}

async fn remote_store(loaded: &Loaded, clock: &Clock) -> Result<Store, Failure> {
    let store: StoreSection = section(loaded, "store")?;
    if store.mode == StoreMode::Embedded {
        return Err(Failure::Usage(
            "services behind NATS keep content in their own store: name it with --s3 URL (and its credentials in \
             DRAY_STORE__S3__ACCESS_KEY and DRAY_STORE__S3__SECRET_KEY)"
                .to_owned(),
        ));
    }
    Store::open(&store.s3, clock.clone())
        .await
        .map_err(|error| Failure::Unreachable {
            what: format!("{}", Chain(&error)),
            advice: "Check the URL given with --s3, the bucket and the credentials.".to_owned(),
        })
}

/// What a host that did not start means for the exit code.
pub(crate) fn refused(error: &HostError) -> Failure {
    let text = format!("{}", Chain(error));
    match error {
        HostError::Config(_) | HostError::Service { .. } => Failure::Configuration(text),
        HostError::UnknownService { .. } | HostError::Twice(_) => Failure::Usage(text),
        HostError::Bus(_) => Failure::Unreachable {
            what: text,
            advice: "Check `bus.nats` (or --nats) and that the server runs.".to_owned(),
        },
        HostError::Store(_) => Failure::Unreachable {
            what: text,
            advice: "Check `store.s3` (or --s3), the bucket and the credentials.".to_owned(),
        },
        HostError::Topology(_) => Failure::Unreachable {
            what: text,
            advice: "Run `dray topology apply` with an identity that may manage streams."
                .to_owned(),
        },
        _ => Failure::Unreachable {
            what: text,
            advice: "Free the address or name another one.".to_owned(),
        },
    }
}
