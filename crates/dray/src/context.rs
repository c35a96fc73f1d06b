//! The context of a command: the configuration that it was given, a bus, and a store.

mod advice;
mod configuration;
mod home;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dray_bus::{Bus, Meta};
use dray_egress_fetcher::EgressFetcher;
use dray_file_resolver::FileResolver;
use dray_orchestrator::Orchestrator;
use dray_platform_delivery::PlatformDelivery;
use dray_sandbox_transfer::SandboxTransfer;
use dray_service::config::{ConfigSources, LoadedConfig};
use dray_service::host::{ErrorChain, HostError};
use dray_service::settings::{BusMode, BusSection, ShutdownSection, StoreMode, StoreSection};
use dray_service::{Host, RunningHost, Settings, SweeperService};
use dray_store::Store;
use dray_ticket::TicketServer;
use dray_types::{Clock, Deadline, Period, Secret, TenantId};

pub(crate) use self::advice::{bus_advice, start_failure};
use self::advice::{connect_failure, not_ready};
use self::configuration::without_listeners;
pub(crate) use self::configuration::{
    check_accounts, config_section, config_sources, load_config, load_service_config,
};
use self::home::is_default_state;
pub(crate) use self::home::{home_directory, named_directory, with_home};
use crate::cli::GlobalOptions;
use crate::console_section::ConsoleSection;
use crate::interruption::{self, CleanupHold, StagingDirectory};
use crate::outcome::CommandFailure;

/// Setting of the address of previews.
pub(crate) const PREVIEW_LISTEN: &str = "sandbox-transfer.preview.listen";

/// A host with every service. [`Host::only`] selects those that run.
pub(crate) fn all_services_host(sources: ConfigSources) -> Host {
    Host::new(Settings::new(sources))
        .with::<FileResolver>()
        .with::<EgressFetcher>()
        .with::<SandboxTransfer>()
        .with::<PlatformDelivery>()
        .with::<Orchestrator>()
        .with::<TicketServer>()
        .with::<SweeperService>()
        .with_section::<ConsoleSection>("console")
}

/// Access to sandboxes if the services of a command run in its own process. `None` if NATS is given: then the services
/// of a running system are used.
pub(crate) fn own_sandboxes(
    global: &GlobalOptions,
) -> Result<Option<dray_sandbox_transfer::Config>, CommandFailure> {
    let loaded = load_config(&config_sources(global)?)?;
    let bus: BusSection = config_section(&loaded, "bus")?;
    match bus.mode {
        BusMode::Embedded => config_section(&loaded, "sandbox-transfer").map(Some),
        BusMode::Nats => Ok(None),
    }
}

/// The tenant to act for.
pub(crate) fn tenant_of(global: &GlobalOptions) -> Result<TenantId, CommandFailure> {
    TenantId::new(global.tenant_name())
        .map_err(|error| CommandFailure::Usage(format!("--tenant: {error}")))
}

/// The only tenant whose messages a command reads; `None` for those of all tenants.
pub(crate) fn only_tenant(global: &GlobalOptions) -> Result<Option<TenantId>, CommandFailure> {
    global
        .tenant
        .as_ref()
        .map(|_| tenant_of(global))
        .transpose()
}

/// A bus and a store for one command. With NATS they are those of a running system; otherwise the needed services run
/// inside this process during the command.
#[derive(Debug)]
pub(crate) struct SystemConnection {
    /// The bus for calls and events.
    pub(crate) bus: Bus,
    /// The artifact store; `None` if the command does not need it.
    store: Option<Store>,
    /// The wall clock, for deadlines and the ages of events.
    pub(crate) clock: Clock,
    tenant: TenantId,
    running: Option<RunningHost>,
    /// Removed with all of its content when the command ends.
    directory: Option<StagingDirectory>,
}

/// The reason why the bus and the store cannot be opened.
#[derive(Debug)]
enum OpenError {
    /// Another process serves this directory of the embedded store.
    Served(PathBuf),
    /// Any other failure, ready to be shown.
    Failed(CommandFailure),
}

impl From<OpenError> for CommandFailure {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Failed(failure) => failure,
            OpenError::Served(directory) => Self::Unreachable {
                description: format!("{} is served by another process", directory.display()),
                advice:
                    "Name another directory with --state, or wait until the other command ends."
                        .to_owned(),
            },
        }
    }
}

/// How long to wait for another command that uses the same directory: commands are short, `dray up` is not.
const SHORT_COMMAND_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval between two attempts to open the directory.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long the services of one command may take to be ready.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

impl SystemConnection {
    /// Opens the system that the command line selects. `services` run in this process unless NATS is given.
    pub(crate) async fn open(
        global: &GlobalOptions,
        services: &[&str],
    ) -> Result<Self, CommandFailure> {
        // Without services the command uses only the bus.
        Self::open_with(global, services, !services.is_empty()).await
    }

    /// Like [`Self::open`], for a command that reads and writes no content itself: it needs only the bus of a running
    /// system.
    pub(crate) async fn open_to_ask(
        global: &GlobalOptions,
        services: &[&str],
    ) -> Result<Self, CommandFailure> {
        Self::open_with(global, services, false).await
    }

    /// Opens the running system, or the services of sandboxes and documents in this process, which then shows previews
    /// on `listen`.
    pub(crate) async fn open_previews(
        global: &GlobalOptions,
        listen: SocketAddr,
    ) -> Result<Self, CommandFailure> {
        let sources = config_sources(global)?;
        let loaded = load_config(&sources)?;
        let bus: BusSection = config_section(&loaded, "bus")?;
        let tenant = tenant_of(global)?;
        match bus.mode {
            BusMode::Embedded => {
                let sources = Self::as_operator(sources);
                let sources = sources.set(PREVIEW_LISTEN, listen.to_string());
                Self::for_once(sources, &["sandbox-transfer", "file-resolver"], tenant).await
            }
            BusMode::Nats => Self::remote(&loaded, &bus, tenant, false).await,
        }
    }

    async fn open_with(
        global: &GlobalOptions,
        services: &[&str],
        needs_store: bool,
    ) -> Result<Self, CommandFailure> {
        let tenant = tenant_of(global)?;
        let sources = config_sources(global)?;
        let loaded = load_config(&sources)?;
        let bus: BusSection = config_section(&loaded, "bus")?;
        match bus.mode {
            BusMode::Embedded => Self::for_once(Self::as_operator(sources), services, tenant).await,
            BusMode::Nats => Self::remote(&loaded, &bus, tenant, needs_store).await,
        }
    }

    /// Opens the store alone, as the artifact commands need it. Where `dray up` serves the state directory, its
    /// endpoint is used.
    pub(crate) async fn open_store(global: &GlobalOptions) -> Result<Self, CommandFailure> {
        let sources = config_sources(global)?;
        let loaded = load_config(&sources)?;
        let bus: BusSection = config_section(&loaded, "bus")?;
        // The store of the home directory is not that of a system whose bus is named; a named directory may be.
        if bus.mode == BusMode::Nats && is_default_state(&sources)? {
            refuse_embedded_store(&config_section(&loaded, "store")?)?;
        }
        Self::open_store_alone(global, false).await
    }

    /// Like [`Self::open_store`], for a command that only derives keys. It does not wait until the process that serves
    /// the state directory has ended.
    pub(crate) async fn open_keys(global: &GlobalOptions) -> Result<Self, CommandFailure> {
        Self::open_store_alone(global, true).await
    }

    async fn open_store_alone(
        global: &GlobalOptions,
        only_keys: bool,
    ) -> Result<Self, CommandFailure> {
        // The bus is not used, so no connection to a configured server is made.
        let sources = with_home(config_sources(global)?)?.set("bus.mode", "embedded");
        let end = Instant::now() + SHORT_COMMAND_TIMEOUT;
        loop {
            let busy = match Self::embedded(sources.clone(), &[], tenant_of(global)?).await {
                Ok(system) => return Ok(system),
                Err(OpenError::Served(directory)) => directory,
                Err(OpenError::Failed(failure)) => return Err(failure),
            };
            // Another command may use the directory for a moment; servers use it for longer, and mark it as long-lived.
            let is_last = Instant::now() >= end;
            if only_keys || is_last || dray_store::embedded::is_long_lived(&busy) {
                let opened = Self::beside(sources.clone(), &busy, tenant_of(global)?).await;
                if is_last || opened.is_ok() {
                    return opened;
                }
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Opens the store through the process that serves the state directory.
    async fn beside(
        sources: ConfigSources,
        store: &Path,
        tenant: TenantId,
    ) -> Result<Self, CommandFailure> {
        // That process may have ended since: its address stays in the directory.
        let found = dray_store::embedded::serving_options(store).map_err(CommandFailure::local(
            format!("cannot reach the process that serves {}", store.display()),
        ))?;
        let sources = sources
            .set("store.mode", "s3")
            .set("store.s3.endpoint", found.endpoint)
            .set("store.s3.access_key", found.access_key.expose())
            .set("store.s3.secret_key", found.secret_key.expose());
        Ok(Self::embedded(sources, &[], tenant).await?)
    }

    /// Runs the services for one command. Without a state directory, no data is kept, and any number of such commands
    /// may run concurrently.
    async fn for_once(
        sources: ConfigSources,
        services: &[&str],
        tenant: TenantId,
    ) -> Result<Self, CommandFailure> {
        // The user names a directory to find content in it, or to keep content there.
        if !is_default_state(&sources)? {
            return Ok(Self::embedded(sources, services, tenant).await?);
        }
        let directory = StagingDirectory::new()
            .map_err(CommandFailure::local("cannot create a temporary directory"))?;
        let sources = sources.set("state.directory", directory.path().to_string_lossy());
        let mut system = Self::embedded(sources, services, tenant).await?;
        system.directory = Some(directory);
        Ok(system)
    }

    /// Opens the bus of a running system. The bus of a new process would be empty.
    pub(crate) async fn open_bus(global: &GlobalOptions) -> Result<Self, CommandFailure> {
        Self::open_attached(global, false).await
    }

    /// Opens the bus and the store of a running system.
    pub(crate) async fn open_running(global: &GlobalOptions) -> Result<Self, CommandFailure> {
        Self::open_attached(global, true).await
    }

    async fn open_attached(
        global: &GlobalOptions,
        needs_store: bool,
    ) -> Result<Self, CommandFailure> {
        let sources = config_sources(global)?;
        let loaded = load_config(&sources)?;
        let bus: BusSection = config_section(&loaded, "bus")?;
        if bus.mode == BusMode::Embedded {
            return Err(CommandFailure::Usage(
                "this command looks at a running system: name its server, for example --nats nats://127.0.0.1:4222 \
                 (the in-process bus of `dray up` cannot be reached from outside)"
                    .to_owned(),
            ));
        }
        Self::remote(&loaded, &bus, tenant_of(global)?, needs_store).await
    }

    /// Settings for a command: its user may name any chat and any sandbox, and gets files in a directory of this
    /// machine.
    pub(crate) fn as_operator(sources: ConfigSources) -> ConfigSources {
        sources
            .set("platform-delivery.allow_targets", "true")
            .set("platform-delivery.cli", "true")
            // The running system receives the messages of users; a command must not receive them in its place.
            .set("platform-delivery.poll", "false")
            .set("platform-delivery.listen", "")
            .set(PREVIEW_LISTEN, "")
    }

    async fn embedded(
        sources: ConfigSources,
        services: &[&str],
        tenant: TenantId,
    ) -> Result<Self, OpenError> {
        // A command reports a missing store immediately; only `dray up` waits for it. Free space is only a condition
        // for accepting work of others: a command fails with `no_space` if there is too little.
        let sources = without_listeners(sources)
            .set("limits.free_disk_percent", "0")
            .set("store.wait_for_server", "0s");
        let started = all_services_host(sources)
            .only(services.iter().copied())
            .start()
            .await;
        let running = started.map_err(|error| match error {
            // Another process holds the lock of the state directory.
            HostError::State { directory, source } if source.kind() == ErrorKind::ResourceBusy => {
                OpenError::Served(PathBuf::from(directory))
            }
            other => OpenError::Failed(start_failure(&other)),
        })?;
        if let Ok(shutdown) = running.config().section::<ShutdownSection>("shutdown") {
            let parts = [shutdown.linger, shutdown.grace, shutdown.flush];
            let stop = parts.map(Period::as_duration).iter().sum();
            interruption::set_stop_timeout(stop);
        }
        if tokio::time::timeout(READY_TIMEOUT, running.ready())
            .await
            .is_err()
        {
            return Err(OpenError::Failed(not_ready(
                &running.health().readiness().failing,
            )));
        }
        let context = running.context();
        Ok(Self {
            bus: context.bus.clone(),
            store: Some(context.store.clone()),
            clock: context.clock.clone(),
            tenant,
            running: Some(running),
            directory: None,
        })
    }

    async fn remote(
        loaded: &LoadedConfig,
        bus: &BusSection,
        tenant: TenantId,
        needs_store: bool,
    ) -> Result<Self, CommandFailure> {
        let clock = Clock::system();
        let meter = dray_service::telemetry::no_meter();
        let bus = Bus::connect(&bus.nats, clock.clone(), &meter)
            .await
            .map_err(|error| connect_failure(&error, ErrorChain(&error).to_string()))?;
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
            directory: None,
        })
    }

    /// Marks the services that run here as running until they are stopped ([`RunningHost::mark_long_lived`]).
    pub(crate) fn mark_long_lived(&self) {
        if let Some(running) = &self.running {
            running.mark_long_lived();
        }
    }

    /// The store, or a usage error for a command that was opened without one.
    pub(crate) fn store(&self) -> Result<&Store, CommandFailure> {
        self.store.as_ref().ok_or_else(|| {
            CommandFailure::Usage("this command needs a store: add --s3 URL".to_owned())
        })
    }

    /// The configuration of the services that run here; `None` with a running system.
    pub(crate) fn config(&self) -> Option<&LoadedConfig> {
        self.running.as_ref().map(RunningHost::config)
    }

    /// Address of the orchestrator that runs here; `None` if none runs in this process.
    pub(crate) fn chat_address(&self) -> Option<SocketAddr> {
        let running = self.running.as_ref()?;
        running.context().listen_addresses.find("chat")
    }

    /// The tenant whose data the command is about.
    pub(crate) fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// The envelope of a new operation, which may take this long.
    pub(crate) fn meta(&self, time: Duration) -> Meta {
        Meta::new(self.tenant.clone(), self.deadline(time))
    }

    /// The deadline that is this far from now.
    pub(crate) fn deadline(&self, time: Duration) -> Deadline {
        Deadline::after(self.clock.now_ms(), time)
    }

    /// Stops the services that run here, in order, or flushes the connection to the bus.
    pub(crate) async fn close(self) {
        match self.running {
            Some(running) => {
                // A signal that ended the work of the command must not cut off what the services still do.
                let _hold = CleanupHold::new();
                running.stop().await;
            }
            None => self.bus.drain().await,
        }
        if let Some(directory) = self.directory {
            directory.remove();
        }
    }
}

/// The key that a file holds. Files often end with a line break, which is not part of it.
pub(crate) fn read_key_file(file: &Path) -> Result<Secret, CommandFailure> {
    let text = std::fs::read_to_string(file).map_err(CommandFailure::local(format!(
        "cannot read {}",
        file.display()
    )))?;
    match text.trim() {
        "" => Err(CommandFailure::Usage(format!(
            "{} holds no key",
            file.display()
        ))),
        key => Ok(Secret::new(key)),
    }
}

/// The content of a running system is in a store that the command line must name: an embedded one belongs to one
/// process.
fn refuse_embedded_store(store: &StoreSection) -> Result<(), CommandFailure> {
    match store.mode {
        StoreMode::Embedded => Err(CommandFailure::Usage(
            "services behind NATS keep content in their own store: name it with --s3 URL (and its credentials in \
             DRAY_STORE__S3__ACCESS_KEY and DRAY_STORE__S3__SECRET_KEY)"
                .to_owned(),
        )),
        StoreMode::S3 => Ok(()),
    }
}

async fn remote_store(loaded: &LoadedConfig, clock: &Clock) -> Result<Store, CommandFailure> {
    let store: StoreSection = config_section(loaded, "store")?;
    refuse_embedded_store(&store)?;
    Store::open(&store.s3, clock.clone())
        .await
        .map_err(|error| CommandFailure::Unreachable {
            description: format!("{}", ErrorChain(&error)),
            advice: "Check the URL given with --s3, the bucket and the credentials.".to_owned(),
        })
}
