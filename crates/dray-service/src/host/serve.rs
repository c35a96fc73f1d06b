//! Starts the tasks of a host: responding to calls, pulling work, checking readiness.

use std::sync::Arc;

use dray_bus::WorkSettings;

use super::HostError;
use super::open::{BoundListeners, CommonSections, GrpcListener};
use super::running::{LifecycleStage, RunningHost};
use crate::ServiceContext;
use crate::grpc::{GrpcEndpoint, GrpcFileMetrics};
use crate::health::{ReadinessProbe, free_disk, run_probes};
use crate::router::{BoundCall, pull_while_ready, read_requests};

impl RunningHost {
    /// Takes the host through the stages Subscribed and Serving.
    pub(super) async fn open(
        &mut self,
        listeners: &mut BoundListeners,
        sections: &CommonSections,
    ) -> Result<(), HostError> {
        // Calls are subscribed before work: a service may call another one of this host as soon as it handles work.
        self.subscribe().await?;
        self.serve_grpc(listeners, sections)?;
        self.stages.push(LifecycleStage::Subscribed);
        self.pull(sections);
        self.check_readiness(sections);
        // The start is reported after every probe is registered, so that readiness cannot pass without them.
        self.health.set_started();
        self.stages.push(LifecycleStage::Serving);
        tracing::info!(addresses = ?self.addresses, "started");
        Ok(())
    }

    /// Listens for every call of every service.
    async fn subscribe(&mut self) -> Result<(), HostError> {
        for service in &self.services {
            for call in &service.calls {
                for subject in call.subjects() {
                    let bus = &self.context.bus;
                    let responder = if call.in_every_replica {
                        bus.respond_to_each(&subject).await?
                    } else {
                        // The queue group has the service's name, so that replicas share the calls (C-2).
                        bus.respond_to(&subject, service.name).await?
                    };
                    self.tasks.readers.spawn(read_requests(
                        responder,
                        Arc::clone(call),
                        self.tasks.handlers.clone(),
                        self.tasks.drain.clone(),
                        self.tasks.kill.clone(),
                    ));
                }
            }
        }
        Ok(())
    }

    fn serve_grpc(
        &mut self,
        listeners: &mut BoundListeners,
        sections: &CommonSections,
    ) -> Result<(), HostError> {
        let Some(GrpcListener { listener, security }) = listeners.grpc.take() else {
            return Ok(());
        };
        let calls: Vec<Arc<BoundCall>> = self
            .services
            .iter()
            .flat_map(|service| service.calls.iter().cloned())
            .collect();
        let endpoint = GrpcEndpoint::new(
            self.context.clock.clone(),
            sections.grpc.default_timeout,
            Arc::clone(&security),
            self.tasks.handlers.clone(),
            self.tasks.kill.clone(),
            &calls,
        );
        let drain = self.tasks.drain.clone();
        let server = endpoint.serve(listener, &calls, async move { drain.cancelled().await })?;
        self.tasks.grpc.spawn(async move {
            if let Err(error) = server.await {
                tracing::error!(error = %super::ErrorChain(&error), "the gRPC endpoint ended");
            }
        });
        let metrics = GrpcFileMetrics::new(&self.context.meter);
        let clock = self.context.clock.clone();
        self.tasks
            .checks
            .spawn(security.keep_current(clock, metrics));
        let (status, health) = (endpoint.clone(), self.health.clone());
        self.tasks.checks.spawn(async move {
            loop {
                // The state is read before each wait, so a change between two waits is not lost.
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
    fn pull(&mut self, sections: &CommonSections) {
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

    /// Starts the rounds of readiness checks.
    fn check_readiness(&mut self, sections: &CommonSections) {
        let bus = self.context.bus.clone();
        let store = self.context.store.clone();
        let directory = sections.state.directory.clone();
        let (percent, enough) = (
            sections.limits.free_disk_percent,
            sections.limits.free_disk_enough,
        );
        let mut probes = vec![
            ReadinessProbe::new("bus", move || {
                let bus = bus.clone();
                async move { bus.round_trip().await.map_err(|error| error.to_string()) }
            }),
            ReadinessProbe::new("store", move || {
                let store = store.clone();
                async move {
                    store
                        .probe()
                        .await
                        // The reason is served on `/ready`, which must not show an endpoint or a key.
                        .map_err(|_| "the object store does not respond".to_owned())
                }
            }),
        ];
        if sections.uses_disk() {
            probes.push(ReadinessProbe::new("disk", move || {
                let result = free_disk(&directory, percent, enough);
                async move { result }
            }));
        }
        for service in &mut self.services {
            probes.append(&mut service.probes);
        }
        for probe in &probes {
            // Each probe has to pass once, even if others are faster.
            self.health.expect(&probe.name);
        }
        let interval = sections.http.check_interval.as_duration();
        self.tasks
            .checks
            .spawn(run_probes(self.health.clone(), probes, interval));
    }
}

fn work_settings(sections: &CommonSections, context: &ServiceContext) -> WorkSettings {
    WorkSettings {
        concurrency: sections.limits.work as usize,
        // The rest of the grace is for cancelled work: it releases its lease and hands its message back.
        drain: sections.shutdown.grace.as_duration() / 8 * 7,
        owner: context.instance.clone(),
        service_version: env!("CARGO_PKG_VERSION").to_owned(),
        ..WorkSettings::default()
    }
}
