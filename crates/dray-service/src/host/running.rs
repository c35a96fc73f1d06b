//! A host that has started, and the handles that keep it alive.

use std::net::SocketAddr;
use std::sync::Arc;

use dray_store::embedded::EmbeddedS3;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::HostedService;
use crate::ServiceContext;
use crate::config::LoadedConfig;
use crate::grpc::GrpcEndpoint;
use crate::health::ProcessHealth;
use crate::settings::ShutdownSection;
use crate::telemetry::Telemetry;

/// A stage of the start or stop of a host, documented at [`Host`](super::Host).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "documented at Host, in their order")]
pub enum LifecycleStage {
    Loaded,
    Telemetry,
    Bound,
    Connected,
    Verified,
    Started,
    Subscribed,
    Serving,
    NotReady,
    /// The listeners of the services are closed, and their requests have ended or their time is over.
    ListenersClosed,
    Drained,
    Finished,
    Stopped,
    BusClosed,
    TelemetryFlushed,
    Closed,
}

/// Addresses that were really bound; the port is never 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BoundAddresses {
    /// Address of health and metrics.
    pub http: Option<SocketAddr>,
    /// Address of the gRPC endpoint.
    pub grpc: Option<SocketAddr>,
}

/// A started host. Dropping it ends everything immediately; [`RunningHost::stop`] ends it in order.
#[derive(Debug)]
pub struct RunningHost {
    pub(super) addresses: BoundAddresses,
    pub(super) context: ServiceContext,
    pub(super) loaded: Arc<LoadedConfig>,
    pub(super) health: ProcessHealth,
    pub(super) stages: Vec<LifecycleStage>,
    pub(super) services: Vec<HostedService>,
    pub(super) telemetry: Telemetry,
    pub(super) shutdown: ShutdownSection,
    /// Whether the bus was opened here, so that it is closed here.
    pub(super) owns_bus: bool,
    pub(super) store: Option<EmbeddedS3>,
    pub(super) grpc: Option<GrpcEndpoint>,
    pub(super) tasks: HostTasks,
}

/// All running tasks, grouped by how they are stopped.
#[derive(Debug)]
pub(super) struct HostTasks {
    /// Readers of call subscriptions; end when `drain` is cancelled.
    pub(super) readers: JoinSet<()>,
    /// The gRPC server; accepts no new requests once `drain` is cancelled, and ends when its connections have ended.
    pub(super) grpc: JoinSet<()>,
    /// Pullers of work; end when `pull` is cancelled and their handlers are done.
    pub(super) pullers: JoinSet<()>,
    /// Handlers of calls, from the bus and over gRPC.
    pub(super) handlers: TaskTracker,
    /// Watchdog and readiness rounds; aborted at the end.
    pub(super) checks: JoinSet<()>,
    /// The health server, which is closed last.
    pub(super) http: HealthServer,
    pub(super) drain: CancellationToken,
    pub(super) pull: CancellationToken,
    /// Ends handlers that are still running.
    pub(super) kill: CancellationToken,
    /// Cancels the tokens above when the host is dropped.
    pub(super) _guards: Vec<DropGuard>,
}

impl HostTasks {
    /// Adopts the checks and the health server, which run already.
    pub(super) fn new(context: &ServiceContext, checks: JoinSet<()>, http: HealthServer) -> Self {
        let drain = CancellationToken::new();
        let pull = CancellationToken::new();
        let kill = CancellationToken::new();
        // A dropped token does not cancel by itself; its guard does.
        let listeners = &context.listeners;
        let tokens = [&drain, &pull, &kill, &listeners.stop, &listeners.kill];
        let guards = tokens.into_iter().chain([&context.stop]);
        let guards = guards.map(|token| token.clone().drop_guard()).collect();
        Self {
            readers: JoinSet::new(),
            grpc: JoinSet::new(),
            pullers: JoinSet::new(),
            handlers: TaskTracker::new(),
            checks,
            http,
            drain,
            pull,
            kill,
            _guards: guards,
        }
    }
}

/// The health server together with its connections.
#[derive(Debug, Default)]
pub(super) struct HealthServer {
    pub(super) tasks: JoinSet<()>,
    /// Ends the connections too, which the server's own task does not own.
    pub(super) stop: CancellationToken,
}

impl HealthServer {
    pub(super) async fn close(&mut self) {
        self.stop.cancel();
        self.tasks.shutdown().await;
    }
}

impl Drop for HealthServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Result of an orderly stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopReport {
    /// Every stage that the host reached, in order.
    pub stages: Vec<LifecycleStage>,
    /// Whether handlers were still running when the grace ran out, and were cancelled.
    pub cut_short: bool,
}

impl RunningHost {
    /// Lets other commands of the same state directory use its store without waiting for the end of this process. For
    /// processes that run until they are stopped.
    pub fn mark_long_lived(&self) {
        if let Some(store) = &self.store
            && let Err(error) = store.mark_long_lived()
        {
            // Other commands only wait longer.
            tracing::debug!(%error, "the store is not marked as long-lived");
        }
    }

    /// The addresses that were really bound.
    pub fn addresses(&self) -> BoundAddresses {
        self.addresses
    }

    /// Bus, store, clock and meter that its services share.
    pub fn context(&self) -> &ServiceContext {
        &self.context
    }

    /// The configuration in force.
    pub fn config(&self) -> &LoadedConfig {
        &self.loaded
    }

    /// Liveness, start-up and readiness of this host.
    pub fn health(&self) -> &ProcessHealth {
        &self.health
    }

    /// All metrics in the Prometheus text format.
    pub fn metrics(&self) -> Result<String, crate::telemetry::TelemetryError> {
        self.telemetry.prometheus()
    }

    /// Resolves when the host accepts work. It may become unready again later.
    pub async fn ready(&self) {
        self.health.wait_ready().await;
    }

    /// The stages reached so far, in their order.
    pub fn stages(&self) -> &[LifecycleStage] {
        &self.stages
    }

    /// Stops everything in the documented order, within the configured grace and flush times.
    pub async fn stop(self) -> StopReport {
        super::stop::stop_host(self).await
    }
}
