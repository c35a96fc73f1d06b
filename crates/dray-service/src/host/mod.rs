//! Holds any set of services, starts them in order and stops them in order.
//!
//! Every task is owned by a handle: dropping a [`RunningHost`] ends all of its tasks immediately, without the grace
//! period of [`RunningHost::stop`]. Two hosts in one process are independent.

mod bus_certificate;
mod credentials;
mod hosted;
mod memory;
mod open;
mod running;
mod serve;
mod start;
mod stop;
mod wait;

use std::future::Future;
use std::sync::Arc;

use dray_bus::Permissions;
use dray_store::StoreAccess;
use futures_util::future::BoxFuture;

pub use dray_types::ErrorChain;
pub use hosted::ServicePlan;
pub use memory::container_memory_limit;
pub use running::{BoundAddresses, LifecycleStage, RunningHost, StopReport};

pub(crate) use hosted::{HostedService, PlannedStart};

use crate::config::{ConfigError, ConfigLoader, LoadedConfig, Section, SectionSpec};
use crate::provision::ProvisionError;
use crate::settings::{
    BusSection, GrpcSection, HttpSection, LimitsSection, Settings, ShutdownSection, StateSection,
    StoreSection, TelemetrySection,
};
use crate::telemetry::{InstrumentGroup, TelemetryError};
use crate::{Service, ServiceContext, StartError};

/// A set of services that share one bus, one store and one configuration.
///
/// # Start
/// [`LifecycleStage::Loaded`]: sources are read and checked. [`LifecycleStage::Telemetry`]: meters and exporters are
/// open.
/// [`LifecycleStage::Bound`]: listeners are bound, `/live` responds. [`LifecycleStage::Connected`]: bus and store are
/// open and the store has passed its self-test. [`LifecycleStage::Verified`]: streams and consumers match the
/// required topology.
/// [`LifecycleStage::Started`]: every service's [`Service::start`] has returned. [`LifecycleStage::Subscribed`]: calls
/// are answered, work is pulled once the process is ready. [`LifecycleStage::Serving`]: `/started` answers, and
/// readiness is up to the checks.
///
/// A failure at any stage stops all earlier stages and is returned.
///
/// # Stop
/// [`LifecycleStage::NotReady`]: readiness fails, no new work is pulled. [`LifecycleStage::Drained`]: subscriptions are
/// drained, the gRPC endpoint takes no new requests; what was sent before is still handled.
/// [`LifecycleStage::Finished`]: the last handler has returned, or was cancelled when the grace ran out.
/// [`LifecycleStage::Stopped`]: every [`Service::stop`] has returned and background tasks have ended.
/// [`LifecycleStage::BusClosed`]: the bus is flushed and closed.
/// [`LifecycleStage::TelemetryFlushed`]: the last spans and metrics were exported. [`LifecycleStage::Closed`]: `/live`
/// and `/metrics` are no longer served.
#[derive(Debug)]
pub struct Host {
    settings: Settings,
    plans: Vec<Box<dyn PlannedStart>>,
    /// Sections that belong to the program and to no service.
    program_sections: Vec<SectionSpec>,
    only: Option<Vec<String>>,
    install: bool,
}

impl Host {
    /// A host without services; each is added with [`Self::with`].
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            plans: Vec::new(),
            program_sections: Vec::new(),
            only: None,
            install: false,
        }
    }

    /// Adds a service as it plans itself ([`Service::plan`]).
    #[must_use]
    pub fn with<S: Service>(self) -> Self {
        self.with_plan(S::plan())
    }

    /// Adds a service whose type is erased.
    #[must_use]
    pub fn with_plan(mut self, plan: ServicePlan) -> Self {
        self.plans.push(plan.0);
        self
    }

    /// Adds a service that is started by `start` instead of [`Service::start`]: tests and the demo inject fakes in this
    /// way. All else is the same.
    #[must_use]
    pub fn with_start<S, F, Fut>(self, start: F) -> Self
    where
        S: Service,
        F: FnOnce(S::Config, ServiceContext) -> Fut + Send + 'static,
        Fut: Future<Output = Result<S, StartError>> + Send + 'static,
    {
        self.with_plan(ServicePlan::with_start::<S, F, Fut>(start))
    }

    /// Adds a section that the program reads by itself ([`LoadedConfig::section`]), such as that of the console.
    #[must_use]
    pub fn with_section<S: Section>(mut self, name: &'static str) -> Self {
        self.program_sections.push(SectionSpec::of::<S>(name));
        self
    }

    /// Starts only these of its services. Sections of the others may be configured and are checked, too.
    #[must_use]
    pub fn only<I: IntoIterator<Item = T>, T: Into<String>>(mut self, names: I) -> Self {
        self.only = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Makes the host's subscriber the global one of the process when telemetry starts. For `main` functions.
    #[must_use]
    pub fn install_subscriber(mut self) -> Self {
        self.install = true;
        self
    }

    /// The names of its services.
    pub fn names(&self) -> Vec<&'static str> {
        self.plans.iter().map(|plan| plan.name()).collect()
    }

    /// The sections of its configuration: the common ones, then one per service.
    pub fn sections(&self) -> Vec<SectionSpec> {
        self.loader().sections().to_vec()
    }

    /// Reads and checks the configuration without opening any resource.
    pub fn load(&self) -> Result<LoadedConfig, ConfigError> {
        self.loader().load(&self.settings.sources)
    }

    /// Writes the Markdown of `docs/configuration.md`.
    pub fn config_reference(&self) -> String {
        crate::config::configuration_page(self.loader().sections())
    }

    /// Writes the Markdown of `docs/metrics.md`: the skeleton's instruments, the bus's, and each service's.
    pub fn metrics_reference(&self) -> String {
        let mut groups: Vec<InstrumentGroup<'_>> = vec![
            ("every service", |meter| {
                crate::router::CallMetrics::new(meter);
                crate::grpc::GrpcFileMetrics::new(meter);
                let health = crate::health::ProcessHealth::new();
                crate::health::observe_readiness(meter, &health, &[]);
            }),
            ("bus", |meter| {
                // A bus creates its instruments when it is made; this one is dropped again.
                dray_bus::Bus::in_process(dray_types::Clock::system(), meter);
                credentials::bus_metrics(meter);
            }),
            ("store", |meter| {
                credentials::store_metrics(meter);
            }),
        ];
        groups.extend(
            self.plans
                .iter()
                .map(|plan| (plan.name(), plan.instruments())),
        );
        crate::telemetry::metrics_reference(&groups)
    }

    /// The permissions of each service on the bus and in the store, in the order in which they were added.
    pub fn identities(&self) -> Vec<(Permissions, StoreAccess)> {
        self.plans
            .iter()
            .map(|plan| (plan.permissions(), plan.store_access()))
            .collect()
    }

    /// Starts all services in the documented order; after a failure, none of them runs.
    ///
    /// The future is boxed, so that it is compiled in this crate and not in every program and test that starts a host.
    pub fn start(self) -> BoxFuture<'static, Result<RunningHost, HostError>> {
        Box::pin(async move { start::start_host(self).await })
    }

    fn loader(&self) -> ConfigLoader {
        let common = ConfigLoader::new()
            .section::<BusSection>("bus")
            .section::<StoreSection>("store")
            .section::<TelemetrySection>("telemetry")
            .section::<HttpSection>("http")
            .section::<GrpcSection>("grpc")
            .section::<LimitsSection>("limits")
            .section::<StateSection>("state")
            .section::<ShutdownSection>("shutdown");
        self.plans
            .iter()
            // All services of the host, not only the selected ones, because several processes may share one file.
            .map(|plan| plan.section())
            .chain(self.program_sections.iter().cloned())
            .fold(common, ConfigLoader::with)
    }

    /// The services to start. An unknown or repeated name is an error.
    fn select_plans(&mut self) -> Result<Vec<Box<dyn PlannedStart>>, HostError> {
        let names = self.names();
        for (index, name) in names.iter().enumerate() {
            if names.iter().take(index).any(|other| other == name) {
                return Err(HostError::Twice((*name).to_owned()));
            }
        }
        let mut plans = std::mem::take(&mut self.plans);
        if let Some(only) = &self.only {
            if let Some(unknown) = only.iter().find(|name| !names.contains(&name.as_str())) {
                return Err(HostError::UnknownService {
                    name: unknown.clone(),
                    known: names.join(", "),
                });
            }
            plans.retain(|plan| only.iter().any(|name| name == plan.name()));
        }
        Ok(plans)
    }
}

/// The reason why a host could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The configuration is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The selection has a service that this program does not have.
    #[error("the service `{name}` does not exist; known: {known}")]
    UnknownService {
        /// The name as given.
        name: String,
        /// The names of the services in this program.
        known: String,
    },
    /// A service was added twice.
    #[error("the service `{0}` was added twice")]
    Twice(String),
    /// Two services handle the same call, or one handles it twice.
    #[error("the call `{0}` is answered twice")]
    DuplicateCallHandler(String),
    /// A service consumes two kinds of work from one durable consumer, which has only one.
    #[error("the service `{0}` consumes more than one kind of work from one consumer")]
    TwoKindsOfWork(&'static str),
    /// The memory limit is too small for the concurrency limits.
    #[error("{0}")]
    Memory(String),
    /// Telemetry could not be opened.
    #[error("telemetry could not start")]
    Telemetry(#[from] TelemetryError),
    /// An address could not be bound.
    #[error("cannot listen on {address} for {section}")]
    Bind {
        /// The section that names it: `http` or `grpc`.
        section: &'static str,
        /// The address as configured.
        address: std::net::SocketAddr,
        /// Error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The state directory cannot be used.
    #[error("could not use the state directory {directory}")]
    State {
        /// Path of the directory.
        directory: String,
        /// Error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The bus could not be reached.
    #[error("could not connect to the bus")]
    Bus(#[from] dray_bus::ConnectError),
    /// The store could not be opened or failed its self-test.
    #[error("the store could not be opened")]
    Store(#[from] dray_store::OpenError),
    /// The topology differs from the required one.
    #[error(transparent)]
    Topology(#[from] ProvisionError),
    /// A service could not start.
    #[error("the service `{service}` could not start")]
    Service {
        /// Name of the service.
        service: &'static str,
        /// The error that the service returned.
        #[source]
        source: StartError,
    },
    /// A call could not be subscribed to.
    #[error("could not subscribe to the calls")]
    Subscribe(#[from] dray_bus::SubscribeError),
    /// The gRPC endpoint could not be built.
    #[error("the gRPC endpoint could not be built")]
    Grpc(#[from] crate::grpc::ReflectionError),
    /// A certificate, a key or the identities of the gRPC endpoint cannot be used.
    #[error("the gRPC endpoint cannot be secured")]
    GrpcSecurity(#[from] crate::grpc::SecurityFileError),
    /// Signals cannot be waited for.
    #[error("could not wait for signals")]
    Signal(#[source] std::io::Error),
    /// The async runtime could not be built.
    #[error("the runtime could not be built")]
    Runtime(#[source] std::io::Error),
}

/// Everything that the services of a host share.
#[derive(Clone, Debug)]
pub(crate) struct SharedResources {
    pub(crate) cx: ServiceContext,
    pub(crate) limits: LimitsSection,
    pub(crate) metrics: crate::router::CallMetrics,
    pub(crate) loaded: Arc<LoadedConfig>,
}
