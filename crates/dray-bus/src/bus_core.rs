//! The shared state of the bus: the connection, the clock and the counters, used by all clones of a handle.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dray_types::Clock;
use opentelemetry::metrics::Meter;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::backend::{Backend, local::LocalBackend, nats::NatsBackend, nats::NatsIdentity};
use crate::call::area::CircuitBreaker;
use crate::error::ConnectError;
use crate::health::ConnectionHealth;
use crate::metrics::BusMetrics;
use crate::options::NatsOptions;

/// Publishes of one process that may await their acknowledgement concurrently (messaging-reliability 5.5).
const MAX_UNACKED_PUBLISHES: usize = 64;
/// How long the last replies may take when the bus is drained.
pub(crate) const DRAIN_WAIT: Duration = Duration::from_secs(3);

/// Calls, work, events and key-value, over NATS or inside this process. Cheap to clone; clones share everything.
#[derive(Clone, Debug)]
pub struct Bus {
    pub(crate) inner: Arc<BusInner>,
}

#[derive(Debug)]
pub(crate) struct BusInner {
    pub(crate) backend: Backend,
    pub(crate) clock: Clock,
    pub(crate) metrics: BusMetrics,
    pub(crate) health: ConnectionHealth,
    pub(crate) publishes: Semaphore,
    pub(crate) tasks: TaskTracker,
    areas: Mutex<HashMap<&'static str, Arc<CircuitBreaker>>>,
}

impl Bus {
    /// Connects to NATS. Waits until a server accepted the connection; after an outage it reconnects
    /// without a limit of attempts.
    ///
    /// # Errors
    /// An unusable option, no server, or a server that refuses the identity.
    pub async fn connect(
        options: &NatsOptions,
        clock: Clock,
        meter: &Meter,
    ) -> Result<Self, ConnectError> {
        let metrics = BusMetrics::new(meter);
        let health = ConnectionHealth::default();
        let tasks = TaskTracker::new();
        let nats = NatsBackend::connect(options, &metrics, &health).await?;
        Ok(Self::with_backend(
            Backend::Nats(Box::new(nats)),
            clock,
            metrics,
            health,
            tasks,
        ))
    }

    /// Shows another identity to the server from the next connection on. The present one stays, until the server or the
    /// network ends it. Has no effect on a bus inside the process.
    pub fn replace_identity(&self, identity: NatsIdentity) {
        if let Backend::Nats(nats) = &self.inner.backend {
            nats.replace_identity(identity);
        }
    }

    /// A separate bus inside this process, without streams or consumers. Its messages are lost when the process ends.
    pub fn in_process(clock: Clock, meter: &Meter) -> Self {
        let backend = Backend::Local(LocalBackend::new(clock.clone()));
        Self::with_backend(
            backend,
            clock,
            BusMetrics::new(meter),
            ConnectionHealth::default(),
            TaskTracker::new(),
        )
    }

    pub(crate) fn with_backend(
        backend: Backend,
        clock: Clock,
        metrics: BusMetrics,
        health: ConnectionHealth,
        tasks: TaskTracker,
    ) -> Self {
        metrics.start_at_zero();
        Self {
            inner: Arc::new(BusInner {
                backend,
                clock,
                metrics,
                health,
                publishes: Semaphore::new(MAX_UNACKED_PUBLISHES),
                tasks,
                areas: Mutex::default(),
            }),
        }
    }

    /// Waits for pending replies, flushes buffered messages and closes the connection. The last step of a stop: no
    /// message can be sent or acknowledged afterwards (messaging-reliability 15 step 5).
    pub async fn drain(&self) {
        // `wait` returns only for a closed tracker; tasks can still be spawned, and the timeout bounds them too.
        self.inner.tasks.close();
        let replies = self.inner.tasks.wait();
        if tokio::time::timeout(DRAIN_WAIT, replies).await.is_err() {
            tracing::warn!("replies were still under way when the bus was closed");
        }
        // The connection closes after the replies were sent: a draining connection cannot publish.
        self.inner.backend.close().await;
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.inner.clock.now_ms()
    }

    /// The shared state of one area's callers.
    pub(crate) fn area(&self, name: &'static str) -> Arc<CircuitBreaker> {
        let mut areas = self
            .inner
            .areas
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Arc::clone(areas.entry(name).or_default())
    }
}
