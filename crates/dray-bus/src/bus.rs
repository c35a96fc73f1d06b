//! The operations of the handle that services hold. Each operation is implemented in a module that depends only on the
//! core.

use std::time::Duration;

use dray_proto::{Call, StreamingCall};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::backend::Backend;
pub use crate::bus_core::Bus;
use crate::call::{CallMode, call_each, call_streaming, call_with_retries};
use crate::dead::DeadLetters;
use crate::error::{CallError, ProbeError, SubscribeError, TransportError, WorkError};
use crate::events::{EventError, EventFilter, EventStream};
use crate::key_value::KeyValue;
use crate::ledger::Ledger;
use crate::meta::Meta;
use crate::readiness::probe_connection;
use crate::responder::Responder;
use crate::topology::{
    ConsumerState, StreamSizing, Topology, TopologyError, TopologyInspection, TopologyMismatch,
    TopologyUpdate, TopologyUpdateError,
};
use crate::work::{WorkHandler, WorkSettings, run_worker};

impl Bus {
    /// Sends a request and waits for its response, at most until the deadline. Retries inside the deadline with the
    /// same operation id, so only idempotent requests may be calls (messaging-reliability 20).
    ///
    /// # Errors
    /// The responder's fault, or why no response came; see [`CallError`].
    pub async fn call<C: Call>(&self, meta: &Meta, request: &C) -> Result<C::Reply, CallError> {
        call_with_retries(self, meta, request, CallMode::default()).await
    }

    /// Like [`Bus::call`], for requests that may take minutes: the responder sends a heartbeat every few seconds. A
    /// responder without a heartbeat for half a minute counts as dead, so the request goes to another responder long
    /// before the deadline (C-6, C-8).
    ///
    /// # Errors
    /// Those of [`Bus::call`].
    pub async fn call_watched<C: Call>(
        &self,
        meta: &Meta,
        request: &C,
    ) -> Result<C::Reply, CallError> {
        call_with_retries(self, meta, request, CallMode::watched()).await
    }

    /// Like [`Bus::call_watched`], for requests that the responder itself retries when that helps: its response is
    /// final, even a fault with retry advice. The request goes to another responder only when none accepted it, or when
    /// the one that accepted it is dead or restarting.
    ///
    /// # Errors
    /// Those of [`Bus::call`].
    pub async fn call_once<C: Call>(
        &self,
        meta: &Meta,
        request: &C,
    ) -> Result<C::Reply, CallError> {
        call_with_retries(self, meta, request, CallMode::once()).await
    }

    /// Like [`Bus::call`], and passes the payload of every progress reply to `observe` (C-8).
    ///
    /// # Errors
    /// Those of [`Bus::call`].
    pub async fn call_with_progress<C: Call>(
        &self,
        meta: &Meta,
        request: &C,
        observe: &mut (dyn FnMut(bytes::Bytes) + Send),
    ) -> Result<C::Reply, CallError> {
        call_with_retries(self, meta, request, CallMode::observed(observe)).await
    }

    /// Like [`Bus::call`], on the subject of the envelope's tenant, `dray.<area>.v1.<verb>.<tenant>`: for identities
    /// that may speak for one tenant only.
    ///
    /// # Errors
    /// Those of [`Bus::call`].
    pub async fn call_for_tenant<C: Call>(
        &self,
        meta: &Meta,
        request: &C,
    ) -> Result<C::Reply, CallError> {
        call_with_retries(self, meta, request, CallMode::on_tenant_subject()).await
    }

    /// Like [`Bus::call_once`], for calls with a stream of replies: all but the final one go to `chunks`, in order and
    /// without a gap. A receiver that does not read delays the responder; a dropped one cancels the call. Once the
    /// first reply has come, the request is never repeated.
    ///
    /// # Errors
    /// Those of [`Bus::call`]; [`ReplyError::Missing`](crate::error::ReplyError::Missing) when replies were lost.
    pub async fn call_streaming<C: StreamingCall>(
        &self,
        meta: &Meta,
        request: &C,
        chunks: mpsc::Sender<C::Reply>,
    ) -> Result<C::Reply, CallError> {
        call_streaming(self, meta, request, chunks).await
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
        Responder::open(self, subject, Some(group)).await
    }

    /// Listens for every request on a call subject, with or without other listeners, and for cancellations of its area:
    /// the requests of [`Bus::call_each`].
    ///
    /// # Errors
    /// The transport's refusal.
    pub async fn respond_to_each(&self, subject: &str) -> Result<Responder, SubscribeError> {
        Responder::open(self, subject, None).await
    }

    /// Sends one request to every replica that listens without a queue group, and collects the replies, in the order of
    /// their arrival, until none has come for `quiet_time` or until the deadline. The replies of slower replicas are missing.
    /// The request is sent once.
    ///
    /// # Errors
    /// No replica listens, none replied in time, or the request was not sent. A fault of one replica is in the list.
    pub async fn call_each<C: Call>(
        &self,
        meta: &Meta,
        request: &C,
        quiet_time: Duration,
    ) -> Result<Vec<Result<C::Reply, CallError>>, CallError> {
        call_each(self, meta, request, quiet_time).await
    }

    /// Runs `handler` for every message of the durable consumer on the work stream until `stop`, then drains
    /// (messaging-reliability 6.2 and 15).
    ///
    /// # Errors
    /// The consumer does not exist at the start. After later failures of the bus, the loop retries with backoff.
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
        run_worker(self.clone(), durable, settings, handler, stop).await
    }

    /// Whether the bus is inside this process, so that no other process is on it.
    pub fn is_in_process(&self) -> bool {
        matches!(self.inner.backend, Backend::Local(_))
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

    /// The state of a durable consumer; `None` where the stream or the consumer is missing. For operators and tests.
    ///
    /// # Errors
    /// The bus cannot be reached or refuses.
    pub async fn consumer_state(
        &self,
        stream: &str,
        durable: &str,
    ) -> Result<Option<ConsumerState>, TransportError> {
        self.inner.backend.consumer(stream, durable).await
    }

    /// Creates or updates streams and consumers and reads them back, with exactly the copies and sizes of `topology`: for
    /// an empty bus, as in the one-machine mode. Returns the differences that remain.
    ///
    /// # Errors
    /// The bus cannot be reached or refuses.
    pub async fn apply_topology(
        &self,
        topology: &Topology,
    ) -> Result<Vec<TopologyMismatch>, TopologyError> {
        topology.apply(&self.inner.backend).await
    }

    /// Creates or updates streams and consumers and reads them back. Existing streams keep the copies and the size that
    /// `sizing` does not name, and are not reduced without permission.
    ///
    /// # Errors
    /// The bus cannot be reached or refuses, or a stream would lose copies or messages.
    pub async fn update_topology(
        &self,
        topology: &Topology,
        sizing: &StreamSizing,
    ) -> Result<TopologyUpdate, TopologyUpdateError> {
        topology.update(&self.inner.backend, sizing).await
    }

    /// Like [`Self::compare_topology`], and compares the copies and sizes that `sizing` names.
    ///
    /// # Errors
    /// The bus cannot be reached or refuses.
    pub async fn compare_topology_sizing(
        &self,
        topology: &Topology,
        sizing: &StreamSizing,
    ) -> Result<Vec<TopologyMismatch>, TopologyError> {
        let mut mismatches = topology.verify(&self.inner.backend).await?;
        mismatches.extend(topology.compare_sizing(&self.inner.backend, sizing).await?);
        Ok(mismatches)
    }

    /// Compares streams and consumers with the required configuration. Changes nothing (messaging-reliability 3.3).
    ///
    /// # Errors
    /// The bus cannot be reached or refuses.
    pub async fn compare_topology(
        &self,
        topology: &Topology,
    ) -> Result<Vec<TopologyMismatch>, TopologyError> {
        topology.verify(&self.inner.backend).await
    }

    /// Like [`Self::compare_topology`], and returns how full the streams are.
    ///
    /// # Errors
    /// The bus cannot be reached or refuses.
    pub async fn inspect_topology(
        &self,
        topology: &Topology,
    ) -> Result<TopologyInspection, TopologyError> {
        topology.inspect(&self.inner.backend).await
    }

    /// Like [`Self::compare_topology`], and records the number of differences in `dray_topology_mismatch`, and in
    /// `dray_stream_used_ratio` how full the streams are: for all that the services of this process need, because the
    /// next verification replaces the number.
    ///
    /// # Errors
    /// The bus cannot be reached or refuses.
    pub async fn verify_topology(
        &self,
        topology: &Topology,
    ) -> Result<Vec<TopologyMismatch>, TopologyError> {
        let found = self.inspect_topology(topology).await?;
        let metrics = &self.inner.metrics;
        metrics
            .topology_mismatch
            .record(found.mismatches.len() as u64, &[]);
        for usage in &found.usage {
            metrics.used(usage);
        }
        Ok(found.mismatches)
    }

    /// One JetStream round trip and all other checks of the bus for readiness (messaging-reliability 16).
    ///
    /// # Errors
    /// The reason why this instance is not ready.
    pub async fn round_trip(&self) -> Result<(), ProbeError> {
        probe_connection(self).await
    }

    /// Waits until the server has refused the inbox of this process, and returns its subject. No reply comes after
    /// that: the name in [`NatsOptions`](crate::NatsOptions) is not that of the identity.
    pub async fn refused_inbox(&self) -> String {
        let refused = self
            .inner
            .health
            .first_refusal(|subject| subject.starts_with("_INBOX"));
        refused.await
    }
}
