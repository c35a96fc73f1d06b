//! The orderly start, step by step. Resources that a step opens are owned by a value that closes them when dropped, so
//! a failed step leaks none.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use dray_bus::Topology;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::open::{BoundListeners, CommonSections, OpenConnections};
use super::running::{HealthServer, HostTasks, LifecycleStage, RunningHost};
use super::{Host, HostError, HostedService, PlannedStart, SharedResources, credentials, memory};
use crate::config::{LoadedConfig, ReportEntry, SectionReader, ValueOrigins};
use crate::health::{ProcessHealth, observe_readiness};
use crate::provision;
use crate::router::CallMetrics;
use crate::settings::{BusMode, Settings};
use crate::telemetry::Telemetry;
use crate::{ListenAddresses, ListenerTasks, ServiceContext};

/// Time between two ticks of the watchdog.
const WATCHDOG_INTERVAL: Duration = Duration::from_secs(1);

pub(super) async fn start_host(mut host: Host) -> Result<RunningHost, HostError> {
    let loaded = Arc::new(host.load()?);
    let plans = host.select_plans()?;
    let names: Vec<&str> = plans.iter().map(|plan| plan.name()).collect();
    let mut bootstrap = Bootstrap::prepare(loaded, names, host.install).await?;
    match bootstrap.connect_and_start(host.settings, plans).await {
        Ok(started) => bootstrap.finish(started).await,
        Err(error) => {
            bootstrap.close().await;
            Err(error)
        }
    }
}

/// The state of a host before it connects to any server.
struct Bootstrap {
    loaded: Arc<LoadedConfig>,
    /// Names of the services that start.
    names: Vec<&'static str>,
    sections: CommonSections,
    instance: String,
    telemetry: Telemetry,
    listeners: BoundListeners,
    health: ProcessHealth,
    checks: JoinSet<()>,
    http: HealthServer,
    stages: Vec<LifecycleStage>,
}

impl Bootstrap {
    /// Takes the host through the stages Loaded, Telemetry and Bound.
    async fn prepare(
        loaded: Arc<LoadedConfig>,
        names: Vec<&'static str>,
        install: bool,
    ) -> Result<Self, HostError> {
        let sections = CommonSections::read(&loaded)?;
        let mut stages = vec![LifecycleStage::Loaded];
        let instance = sections.instance();
        let telemetry = Telemetry::start(&sections.telemetry, &name_of(&names), &instance)?;
        // The subscriber is installed before the settings are logged, so that they appear in the log.
        if install {
            telemetry.install()?;
        }
        log_settings(&loaded, &names);
        stages.push(LifecycleStage::Telemetry);
        let mut listeners = BoundListeners::bind(&sections).await?;
        let health = ProcessHealth::new();
        observe_readiness(&telemetry.meter(), &health, &names);
        let mut checks = JoinSet::new();
        checks.spawn(run_watchdog(health.clone()));
        // `/live` answers while the host waits for the bus, so that the platform does not restart the process.
        let http = listeners.serve_health(&health, &telemetry);
        stages.push(LifecycleStage::Bound);
        Ok(Self {
            loaded,
            names,
            sections,
            instance,
            telemetry,
            listeners,
            health,
            checks,
            http,
            stages,
        })
    }

    /// Takes the host through Connected, Verified and Started. If a later step fails, the connections are closed again.
    async fn connect_and_start(
        &mut self,
        settings: Settings,
        plans: Vec<Box<dyn PlannedStart>>,
    ) -> Result<StartedServices, HostError> {
        let meter = self.telemetry.meter();
        let name = name_of(&self.names);
        let connections = OpenConnections::open(settings, &self.sections, &name, &meter).await?;
        self.stages.push(LifecycleStage::Connected);
        match self.start_all(&connections, plans).await {
            Ok((common, services)) => Ok(StartedServices {
                connections,
                common,
                services,
            }),
            Err(error) => {
                connections.close().await;
                Err(error)
            }
        }
    }

    async fn start_all(
        &mut self,
        connections: &OpenConnections,
        plans: Vec<Box<dyn PlannedStart>>,
    ) -> Result<(SharedResources, Vec<HostedService>), HostError> {
        let topology = topology_of(&plans);
        connections
            .verify_topology(&topology, &self.sections)
            .await?;
        self.stages.push(LifecycleStage::Verified);
        let common = self.shared_resources(connections);
        let services = start_services(plans, common.clone()).await?;
        // The services are checked before anything is accepted: each consumer and each call has exactly one handler.
        if let Err(error) = self.check_services(&services) {
            stop_all(services).await;
            return Err(error);
        }
        self.stages.push(LifecycleStage::Started);
        let bus = common.cx.bus.clone();
        self.checks.spawn(provision::verify_regularly(
            bus,
            topology,
            provision::VERIFY_INTERVAL,
        ));
        credentials::follow(
            connections,
            &self.sections,
            (&self.loaded, &common.cx.meter),
            (&mut self.checks, &common.cx.stop),
        );
        Ok((common, services))
    }

    /// Checks whether the started services can be served together.
    fn check_services(&self, services: &[HostedService]) -> Result<(), HostError> {
        let mut subjects = BTreeSet::new();
        let mut durables = BTreeSet::new();
        for service in services {
            for work in &service.work {
                if !durables.insert(work.durable()) {
                    return Err(HostError::TwoKindsOfWork(service.name));
                }
            }
            for call in &service.calls {
                if !subjects.insert(&call.subject) {
                    return Err(HostError::DuplicateCallHandler(call.subject.clone()));
                }
            }
        }
        let operations = memory::max_operations(services, &self.sections.limits);
        match memory::check_memory(memory::container_memory_limit(), operations) {
            // On one machine the operator may try with less memory; a deployment must not be killed under load.
            Err(problem) if self.sections.bus.mode == BusMode::Nats => {
                Err(HostError::Memory(problem))
            }
            Err(problem) => {
                tracing::warn!("{problem}");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Takes the host through Subscribed and Serving.
    async fn finish(self, started: StartedServices) -> Result<RunningHost, HostError> {
        let Self {
            sections,
            mut listeners,
            ..
        } = self;
        let mut running = RunningHost {
            addresses: listeners.addresses,
            tasks: HostTasks::new(&started.common.cx, self.checks, self.http),
            context: started.common.cx,
            loaded: self.loaded,
            health: self.health,
            stages: self.stages,
            services: started.services,
            telemetry: self.telemetry,
            shutdown: sections.shutdown.clone(),
            owns_bus: started.connections.owns_bus,
            store: started.connections.embedded,
            grpc: None,
        };
        match running.open(&mut listeners, &sections).await {
            Ok(()) => Ok(running),
            Err(error) => {
                // The orderly stop, since calls may have been accepted already.
                running.stop().await;
                Err(error)
            }
        }
    }

    /// Closes everything that [`Bootstrap::prepare`] opened.
    async fn close(mut self) {
        self.checks.shutdown().await;
        self.telemetry.shutdown().await;
        // The health pages are closed last, as in every stop (section 15).
        self.http.close().await;
    }

    fn shared_resources(&self, connections: &OpenConnections) -> SharedResources {
        let meter = self.telemetry.meter();
        SharedResources {
            metrics: CallMetrics::new(&meter),
            limits: self.sections.limits.clone(),
            loaded: Arc::clone(&self.loaded),
            cx: ServiceContext {
                bus: connections.bus.clone(),
                store: connections.store.clone(),
                clock: connections.clock.clone(),
                meter,
                tasks: TaskTracker::new(),
                stop: CancellationToken::new(),
                listeners: ListenerTasks::default(),
                instance: self.instance.clone(),
                peers: self.sections.peers(),
                listen_addresses: ListenAddresses::default(),
                // Both are filled in per service, for its own section.
                origins: ValueOrigins::default(),
                section: SectionReader::default(),
            },
        }
    }
}

/// Services that have started, and their connections, before anything is accepted.
struct StartedServices {
    connections: OpenConnections,
    common: SharedResources,
    services: Vec<HostedService>,
}

/// Name of this process in traces: its service, or the product if it has several.
fn name_of(names: &[&str]) -> String {
    match names {
        [only] => (*only).to_owned(),
        _ => "dray".to_owned(),
    }
}

/// Logs the values that were set, without secrets; compiled defaults only at the level `debug`.
fn log_settings(loaded: &LoadedConfig, names: &[&str]) {
    tracing::info!(services = ?names, version = env!("CARGO_PKG_VERSION"), "starting");
    for warning in loaded.warnings() {
        tracing::warn!("{warning}");
    }
    // The report builds the schemas of all sections, which takes milliseconds.
    if !tracing::enabled!(tracing::Level::INFO) {
        return;
    }
    for ReportEntry { key, value, source } in loaded.report().entries {
        if loaded.is_default(&key) {
            tracing::debug!(%key, %value, source, "configuration");
        } else {
            tracing::info!(%key, %value, source, "configuration");
        }
    }
}

/// Starts services one after the other. When a service fails, the services that were started before it are stopped.
async fn start_services(
    plans: Vec<Box<dyn PlannedStart>>,
    common: SharedResources,
) -> Result<Vec<HostedService>, HostError> {
    let mut services = Vec::new();
    for plan in plans {
        match plan.start(common.clone()).await {
            Ok(service) => services.push(service),
            Err(error) => {
                stop_all(services).await;
                return Err(error);
            }
        }
    }
    Ok(services)
}

/// Stops services in the reverse order of their start.
pub(super) async fn stop_all(mut services: Vec<HostedService>) {
    while let Some(service) = services.pop() {
        service.stop().await;
    }
}

/// Ticks for as long as the runtime schedules tasks. A blocked runtime fails the liveness check.
async fn run_watchdog(health: ProcessHealth) {
    let mut ticks = tokio::time::interval(WATCHDOG_INTERVAL);
    loop {
        ticks.tick().await;
        health.tick();
    }
}

/// The part of the topology that these services rely on.
fn topology_of(plans: &[Box<dyn PlannedStart>]) -> Topology {
    let mut all = Topology {
        streams: Vec::new(),
        consumers: Vec::new(),
    };
    for plan in plans {
        let part = plan.permissions().topology();
        for stream in part.streams {
            if !all.streams.contains(&stream) {
                all.streams.push(stream);
            }
        }
        for consumer in part.consumers {
            if !all.consumers.contains(&consumer) {
                all.consumers.push(consumer);
            }
        }
    }
    all
}
