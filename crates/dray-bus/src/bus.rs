//! The handle that services hold.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use dray_proto::Call;
use dray_types::Clock;
use opentelemetry::metrics::Meter;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::backend::{Backend, local::LocalBackend, nats::NatsBackend};
use crate::call::{CallMode, CircuitBreaker};
use crate::dead::DeadLetters;
use crate::error::{CallError, ConnectError, ProbeError, SubscribeError, WorkError};
use crate::events::{EventError, EventFilter, EventStream};
use crate::health::ConnectionHealth;
use crate::key_value::KeyValue;
use crate::ledger::Ledger;
use crate::meta::Meta;
use crate::metrics::BusMetrics;
use crate::options::NatsOptions;
use crate::responder::Responder;
use crate::topology::{Topology, TopologyError, TopologyMismatch};
use crate::work::{WorkHandler, WorkSettings};

/// Publishes of one process that may await their acknowledgement concurrently (messaging-reliability 5.5).
const MAX_UNACKED_PUBLISHES: usize = 64;

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
    /// Connects to NATS. Waits until a server accepted the connection; afterwards outages are survived with
    /// unlimited reconnects.
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
        Ok(Self::over(
            Backend::Nats(Box::new(nats)),
            clock,
            metrics,
            health,
            tasks,
        ))
    }

    /// A bus of its own inside this process, with nothing provisioned. Its messages do not survive it.
    pub fn in_process(clock: Clock, meter: &Meter) -> Self {
        let backend = Backend::Local(LocalBackend::new(clock.clone()));
        Self::over(
            backend,
            clock,
            BusMetrics::new(meter),
            ConnectionHealth::default(),
            TaskTracker::new(),
        )
    }

    pub(crate) fn over(
        backend: Backend,
        clock: Clock,
        metrics: BusMetrics,
        health: ConnectionHealth,
        tasks: TaskTracker,
    ) -> Self {
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

    /// Asks and waits for the answer, at most until the deadline. Retries inside the deadline with the same
    /// operation id, so only what is idempotent may be a call (messaging-reliability 20).
    ///
    /// # Errors
    /// The responder's fault, or why no response came; see [`CallError`].
    pub async fn call<C: Call>(&self, meta: &Meta, request: &C) -> Result<C::Reply, CallError> {
        crate::call::call_with_retries(self, meta, request, CallMode::default()).await
    }

    /// The same for what may take minutes: the responder sends a heartbeat every few seconds, and one that is
    /// silent for half a minute counts as dead, so that another responder is asked long before the deadline (C-6, C-8).
    ///
    /// # Errors
    /// As [`Bus::call`].
    pub async fn call_watched<C: Call>(
        &self,
        meta: &Meta,
        request: &C,
    ) -> Result<C::Reply, CallError> {
        crate::call::call_with_retries(self, meta, request, CallMode::watched()).await
    }

    /// As [`Bus::call_watched`], for calls that the responder itself repeats when that helps: its answer is final, also
    /// a fault that says when to try again. Another responder is asked only when none took the call, or when the one
    /// that did is dead or being restarted.
    ///
    /// # Errors
    /// As [`Bus::call`].
    pub async fn call_once<C: Call>(
        &self,
        meta: &Meta,
        request: &C,
    ) -> Result<C::Reply, CallError> {
        crate::call::call_with_retries(self, meta, request, CallMode::once()).await
    }

    /// The same, with a look at the payload of every progress reply (C-8).
    ///
    /// # Errors
    /// As [`Bus::call`].
    pub async fn call_with_progress<C: Call>(
        &self,
        meta: &Meta,
        request: &C,
        observe: &mut (dyn FnMut(bytes::Bytes) + Send),
    ) -> Result<C::Reply, CallError> {
        crate::call::call_with_retries(self, meta, request, CallMode::observed(observe)).await
    }

    /// The same on the subject of the envelope's tenant, `dray.<area>.v1.<verb>.<tenant>`: for identities that may
    /// speak for one tenant only.
    ///
    /// # Errors
    /// As [`Bus::call`].
    pub async fn call_for_tenant<C: Call>(
        &self,
        meta: &Meta,
        request: &C,
    ) -> Result<C::Reply, CallError> {
        crate::call::call_with_retries(self, meta, request, CallMode::on_tenant_subject()).await
    }

    /// Listens for requests on a call subject as one of a queue group, and for cancellations of its area.
    ///
    /// # Errors
    /// The transport's refusal.
    pub async fn respond_to(
        &self,
        subject: &str,
        group: &str,
    ) -> Result<Responder, SubscribeError> {
        Responder::open(self, subject, group).await
    }

    /// Runs `handler` for every message of the durable consumer on the work stream until `stop`, then drains
    /// (messaging-reliability 6.2 and 15).
    ///
    /// # Errors
    /// The consumer is not there at the start. Later failures of the bus are survived with backoff.
    pub async fn work<W, H>(
        &self,
        durable: &str,
        settings: WorkSettings,
        handler: H,
        stop: CancellationToken,
    ) -> Result<(), WorkError>
    where
        W: dray_proto::Work,
        H: WorkHandler<W>,
    {
        crate::work::run_worker(self.clone(), durable, settings, handler, stop).await
    }

    /// The ledger of work.
    pub fn ledger(&self) -> Ledger {
        Ledger::new(self)
    }

    /// The keys of one bucket.
    pub fn key_value(&self, bucket: &str) -> KeyValue {
        KeyValue::new(self, bucket)
    }

    /// Dead letters, for an operator.
    pub fn dead_letters(&self) -> DeadLetters {
        DeadLetters::new(self)
    }

    /// Reads a stream's messages in order. On NATS this creates an ephemeral consumer, which services may not
    /// do; it is for operators and tests.
    ///
    /// # Errors
    /// A filter outside the streams of the topology, or the transport's refusal.
    pub async fn events(&self, filter: EventFilter) -> Result<EventStream, EventError> {
        EventStream::open(self, filter).await
    }

    /// Creates or updates streams and consumers and reads them back. For the provisioning job and the
    /// one-machine mode only. What still differs is returned.
    ///
    /// # Errors
    /// The bus cannot be reached or refuses.
    pub async fn apply_topology(
        &self,
        topology: &Topology,
    ) -> Result<Vec<TopologyMismatch>, TopologyError> {
        topology.apply(&self.inner.backend).await
    }

    /// Compares streams and consumers with what they must be. Changes nothing (messaging-reliability 3.3).
    ///
    /// # Errors
    /// The bus cannot be reached or refuses.
    pub async fn verify_topology(
        &self,
        topology: &Topology,
    ) -> Result<Vec<TopologyMismatch>, TopologyError> {
        let mismatches = topology.verify(&self.inner.backend).await?;
        self.inner
            .metrics
            .topology_mismatch
            .record(mismatches.len() as u64, &[]);
        Ok(mismatches)
    }

    /// One JetStream round trip and everything else that readiness asks of the bus (messaging-reliability 16).
    ///
    /// # Errors
    /// What makes this instance unready.
    pub async fn round_trip(&self) -> Result<(), ProbeError> {
        crate::health::probe_connection(self).await
    }

    /// Finishes what was begun, sends everything on its way and closes. The last step of a stop: nothing can be
    /// sent or acknowledged afterwards (messaging-reliability 15 step 5).
    pub async fn drain(&self) {
        self.inner.tasks.close();
        let replies = self.inner.tasks.wait();
        if tokio::time::timeout(crate::health::DRAIN_WAIT, replies)
            .await
            .is_err()
        {
            tracing::warn!("replies were still under way when the bus was closed");
        }
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
