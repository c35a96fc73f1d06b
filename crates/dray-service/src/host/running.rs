//! A host that has started, and the handles that keep it alive.

use std::net::SocketAddr;
use std::sync::Arc;

use dray_store::embedded::EmbeddedS3;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::Hosting;
use crate::Context;
use crate::config::Loaded;
use crate::grpc::Endpoint;
use crate::health::Health;
use crate::settings::ShutdownSection;
use crate::telemetry::Telemetry;

/// A milestone of a host's life, documented at [`Host`](super::Host).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "documented at Host, in their order")]
pub enum Stage {
    Loaded,
    Telemetry,
    Bound,
    Connected,
    Verified,
    Started,
    Subscribed,
    Serving,
    NotReady,
    Drained,
    Finished,
    Stopped,
    BusClosed,
    TelemetryFlushed,
    Closed,
}

/// Addresses that were really bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Health and metrics.
    pub http: Option<SocketAddr>,
    /// The gRPC endpoint.
    pub grpc: Option<SocketAddr>,
}

/// A started host. Dropping it ends everything immediately; [`Running::stop`] ends it in order.
#[derive(Debug)]
pub struct Running {
    pub(super) addresses: Addresses,
    pub(super) context: Context,
    pub(super) loaded: Arc<Loaded>,
    pub(super) health: Health,
    pub(super) stages: Vec<Stage>,
    pub(super) services: Vec<Hosting>,
    pub(super) telemetry: Telemetry,
    pub(super) shutdown: ShutdownSection,
    /// Whether the bus was opened here, so that it is closed here.
    pub(super) owns_bus: bool,
    pub(super) store: Option<EmbeddedS3>,
    pub(super) grpc: Option<Endpoint>,
    pub(super) tasks: Tasks,
}

/// Everything that runs, by who stops it when.
#[derive(Debug)]
pub(super) struct Tasks {
    /// Readers of call subscriptions; end when `drain` is cancelled.
    pub(super) readers: JoinSet<()>,
    /// The gRPC server; takes nothing new once `drain` is cancelled, and ends when its connections have.
    pub(super) grpc: JoinSet<()>,
    /// Pullers of work; end when `pull` is cancelled and their handlers are done.
    pub(super) pullers: JoinSet<()>,
    /// Handlers of calls, over both ways.
    pub(super) handlers: TaskTracker,
    /// Watchdog and readiness rounds; aborted at the end.
    pub(super) checks: JoinSet<()>,
    /// The health server; last to go.
    pub(super) http: Http,
    pub(super) drain: CancellationToken,
    pub(super) pull: CancellationToken,
    /// Ends handlers that are still running.
    pub(super) kill: CancellationToken,
    /// Cancels all of the above when the host is dropped.
    pub(super) _guards: Vec<DropGuard>,
}

impl Tasks {
    /// Adopts what runs already.
    pub(super) fn new(context: &Context, checks: JoinSet<()>, http: Http) -> Self {
        let drain = CancellationToken::new();
        let pull = CancellationToken::new();
        let kill = CancellationToken::new();
        let guards = [&drain, &pull, &kill, &context.stop]
            .map(|token| token.clone().drop_guard())
            .into();
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

/// The health server with its connections.
#[derive(Debug, Default)]
pub(super) struct Http {
    pub(super) tasks: JoinSet<()>,
    /// Ends connections too, which the server's own task does not own.
    pub(super) stop: CancellationToken,
}

impl Http {
    pub(super) async fn close(&mut self) {
        self.stop.cancel();
        self.tasks.shutdown().await;
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// How a stop went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Every stage of the host's life, in the order it was reached.
    pub stages: Vec<Stage>,
    /// Whether handlers were still running when the grace ran out, and were cancelled.
    pub cut_short: bool,
}

impl Running {
    /// The addresses that were really bound.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Bus, store, clock and meter that its services share.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The configuration in force.
    pub fn config(&self) -> &Loaded {
        &self.loaded
    }

    /// Whether it lives, has started and is ready.
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// All metrics in the Prometheus text format.
    pub fn metrics(&self) -> Result<String, crate::telemetry::TelemetryError> {
        self.telemetry.prometheus()
    }

    /// Resolves when it takes on work.
    pub async fn ready(&self) {
        self.health.wait_ready().await;
    }

    /// The stages reached so far.
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// Stops everything in the documented order.
    pub async fn stop(self) -> Stopped {
        super::stop::stop(self).await
    }
}
