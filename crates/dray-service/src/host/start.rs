//! The orderly start, step by step. Whatever a step opens is owned by a value that closes it when dropped, so a
//! step that fails leaves nothing behind.

use std::sync::Arc;
use std::time::Duration;

use dray_bus::{Topology, WorkSettings};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::open::{Connections, Listeners, Sections};
use super::running::{Running, Stage, Tasks};
use super::{Common, Host, HostError, Hosting, Plan};
use crate::Context;
use crate::config::Loaded;
use crate::grpc::Endpoint;
use crate::health::{Health, Probe, free_disk, run_probes};
use crate::router::{Answering, Metrics, pull_while_ready, read};
use crate::telemetry::Telemetry;

/// How often the watchdog shows that it is scheduled.
const TICK: Duration = Duration::from_secs(1);

pub(super) async fn start(mut host: Host) -> Result<Running, HostError> {
    let loaded = Arc::new(host.load()?);
    let plans = host.chosen()?;
    let sections = Sections::read(&loaded)?;
    let mut stages = vec![Stage::Loaded];

    let instance = sections.instance();
    let telemetry = Telemetry::start(&sections.telemetry, &name_of(&plans), &instance)?;
    if host.install {
        telemetry.install()?;
    }
    announce(&loaded, &plans);
    stages.push(Stage::Telemetry);

    let mut listeners = Listeners::bind(&sections).await?;
    let health = Health::new();
    let mut running_checks = JoinSet::new();
    running_checks.spawn(watch(health.clone()));
    let http = listeners.serve_health(&health, &telemetry);
    stages.push(Stage::Bound);

    let meter = telemetry.meter();
    let connections = Connections::open(host.settings, &sections, &name_of(&plans), &meter).await?;
    stages.push(Stage::Connected);

    connections.verify_topology(&plans, &sections).await?;
    stages.push(Stage::Verified);

    let context = Context {
        bus: connections.bus.clone(),
        store: connections.store.clone(),
        clock: connections.clock.clone(),
        meter: meter.clone(),
        tasks: TaskTracker::new(),
        stop: CancellationToken::new(),
        instance,
    };
    let mut tasks = Tasks::new(&context);
    tasks.checks = running_checks;
    tasks.http = http;
    let common = Common {
        cx: context.clone(),
        limits: sections.limits.clone(),
        metrics: Metrics::new(&meter),
        loaded: Arc::clone(&loaded),
    };
    let services = start_services(plans, common).await?;
    stages.push(Stage::Started);

    let mut running = Running {
        addresses: listeners.addresses,
        context,
        loaded,
        health,
        stages,
        services,
        telemetry,
        shutdown: sections.shutdown.clone(),
        owns_bus: connections.owns_bus,
        store: connections.embedded,
        grpc: None,
        tasks,
    };
    running.subscribe().await?;
    running.serve_grpc(&mut listeners, &sections)?;
    running.stages.push(Stage::Subscribed);

    running.pull(&sections);
    running.check_readiness(&sections);
    running.health.set_started();
    running.stages.push(Stage::Serving);
    tracing::info!(addresses = ?running.addresses, "started");
    Ok(running)
}

/// What this process is called in traces: its service, or the product when it holds several.
fn name_of(plans: &[Box<dyn Plan>]) -> String {
    match plans {
        [only] => only.name().to_owned(),
        _ => "dray".to_owned(),
    }
}

/// The effective configuration goes to the log, without secrets.
fn announce(loaded: &Loaded, plans: &[Box<dyn Plan>]) {
    let services: Vec<&str> = plans.iter().map(|plan| plan.name()).collect();
    tracing::info!(?services, version = env!("CARGO_PKG_VERSION"), "starting");
    for warning in loaded.warnings() {
        tracing::warn!("{warning}");
    }
    for entry in &loaded.report().entries {
        tracing::info!(key = %entry.key, value = %entry.value, source = %entry.source, "configuration");
    }
}

/// Starts services one after the other. When one fails, those before it are stopped again.
async fn start_services(
    plans: Vec<Box<dyn Plan>>,
    common: Common,
) -> Result<Vec<Hosting>, HostError> {
    let mut services = Vec::new();
    for plan in plans {
        match plan.start(common.clone()).await {
            Ok(service) => services.push(service),
            Err(error) => {
                while let Some(service) = services.pop() {
                    service.stop().await;
                }
                return Err(error);
            }
        }
    }
    Ok(services)
}

async fn watch(health: Health) {
    let mut ticks = tokio::time::interval(TICK);
    loop {
        ticks.tick().await;
        health.tick();
    }
}

impl Running {
    /// Listens for every call of every service.
    async fn subscribe(&mut self) -> Result<(), HostError> {
        for service in &self.services {
            for call in &service.calls {
                let responder = self
                    .context
                    .bus
                    .respond_to(&call.subject, service.name)
                    .await?;
                self.tasks.readers.spawn(read(
                    responder,
                    Arc::clone(call),
                    self.tasks.handlers.clone(),
                    self.tasks.drain.clone(),
                    self.tasks.kill.clone(),
                ));
            }
        }
        Ok(())
    }

    fn serve_grpc(
        &mut self,
        listeners: &mut Listeners,
        sections: &Sections,
    ) -> Result<(), HostError> {
        let Some(listener) = listeners.grpc.take() else {
            return Ok(());
        };
        let calls: Vec<Arc<Answering>> = self
            .services
            .iter()
            .flat_map(|service| service.calls.iter().cloned())
            .collect();
        let clock = self.context.clock.clone();
        let endpoint = Endpoint::new(clock, sections.grpc.default_timeout, &calls);
        let drain = self.tasks.drain.clone();
        let server = endpoint.serve(listener, &calls, async move { drain.cancelled().await })?;
        self.tasks.readers.spawn(async move {
            if let Err(error) = server.await {
                tracing::error!(error = %super::Chain(&error), "the gRPC endpoint ended");
            }
        });
        let (status, health) = (endpoint.clone(), self.health.clone());
        self.tasks.checks.spawn(async move {
            loop {
                status.set_serving(health.is_ready()).await;
                if health.is_ready() {
                    health.wait_unready().await;
                } else {
                    health.wait_ready().await;
                }
            }
        });
        self.grpc = Some(endpoint);
        Ok(())
    }

    /// Pulls work of every service that consumes some, whenever the process is ready.
    fn pull(&mut self, sections: &Sections) {
        for service in &mut self.services {
            for work in service.work.drain(..) {
                self.tasks.pullers.spawn(pull_while_ready(
                    work,
                    self.context.bus.clone(),
                    work_settings(sections, &self.context),
                    self.health.clone(),
                    self.tasks.pull.clone(),
                ));
            }
        }
    }

    /// Begins the rounds of readiness checks.
    fn check_readiness(&mut self, sections: &Sections) {
        let bus = self.context.bus.clone();
        let store = self.context.store.clone();
        let folder = sections.state.folder.clone();
        let percent = sections.limits.free_disk_percent;
        let mut probes = vec![
            Probe::new("bus", move || {
                let bus = bus.clone();
                async move { bus.round_trip().await.map_err(|error| error.to_string()) }
            }),
            Probe::new("store", move || {
                let store = store.clone();
                async move {
                    store
                        .probe()
                        .await
                        .map_err(|_| "the object store does not answer".to_owned())
                }
            }),
        ];
        if sections.uses_disk() {
            probes.push(Probe::new("disk", move || {
                let result = free_disk(&folder, percent);
                async move { result }
            }));
        }
        for service in &mut self.services {
            probes.append(&mut service.probes);
        }
        for probe in &probes {
            self.health.expect(&probe.name);
        }
        let interval = sections.http.check_interval.as_duration();
        self.tasks
            .checks
            .spawn(run_probes(self.health.clone(), probes, interval));
    }
}

fn work_settings(sections: &Sections, context: &Context) -> WorkSettings {
    WorkSettings {
        concurrency: sections.limits.work as usize,
        drain: sections.shutdown.grace.as_duration(),
        owner: context.instance.clone(),
        service_version: env!("CARGO_PKG_VERSION").to_owned(),
        ..WorkSettings::default()
    }
}

/// The part of the topology that these services rely on.
pub(super) fn topology_of(plans: &[Box<dyn Plan>]) -> Topology {
    let mut all = Topology {
        streams: Vec::new(),
        consumers: Vec::new(),
    };
    for plan in plans {
        let part = Topology::used_by(plan.name());
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
