//! The parts of file handling that all turns share: the bus, the store and the files of DIAL.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use dray_bus::{Bus, Meta};
use dray_dial::DialPort;
use dray_proto::convert::ContentSource;
use dray_proto::{Call, MAX_INLINE_BYTES, v1};
use dray_store::{ArtifactLabel, ArtifactReader, PresignedLink, ReadError, Store};
use dray_tool::UrlClass;
use dray_types::{
    ByteSize, Claim, Clock, Deadline, OperationId, SessionId, TenantId, TraceContext,
};

use super::ask::{CallFailure, PeerService};
use super::config::Config;
use super::drive::Drive;
use super::name_key::NameKey;
use super::url_class::{classify_url, own_path};

/// Connections to all services that handle files. Cheap to clone; clones share everything.
#[derive(Clone, Debug)]
pub struct FileServices {
    /// Connection to the other services.
    pub bus: Bus,
    /// The artifact store, with the files of all services.
    pub store: Store,
    /// Wall clock of deadlines.
    pub clock: Clock,
    /// The tenant under which all files of this process are stored.
    pub tenant: TenantId,
    /// The operator's configuration.
    pub config: Arc<Config>,
    /// Files of DIAL, if it is configured.
    pub drive: Option<Drive>,
    /// Names of stored files.
    pub(super) name_key: NameKey,
    /// The trace to which calls belong where no span is recorded; empty outside a turn.
    trace: TraceContext,
    /// Unix milliseconds until which sessions are not requested.
    absent_until: Arc<AtomicU64>,
}

impl FileServices {
    /// Services over this bus and store, without DIAL.
    pub fn new(bus: Bus, store: Store, clock: Clock, tenant: TenantId, config: Config) -> Self {
        // Both keys are the same in all replicas, which check each other's names.
        let name_key = if config.name_key.is_empty() {
            NameKey::derived(&store.derive_keys("orchestrator file names"))
        } else {
            NameKey::new(config.name_key.expose().as_bytes())
        };
        Self {
            name_key,
            bus,
            store,
            clock,
            tenant,
            config: Arc::new(config),
            drive: None,
            trace: TraceContext::default(),
            absent_until: Arc::default(),
        }
    }

    /// Adds the files of DIAL.
    #[must_use]
    pub fn with_dial(mut self, dial: Arc<dyn DialPort>) -> Self {
        self.drive = Some(Drive::new(dial));
        self
    }

    /// The same services for calls in this trace.
    #[must_use]
    pub fn with_trace(mut self, trace: TraceContext) -> Self {
        self.trace = trace;
        self
    }

    /// The class of a URL, by its text alone.
    pub(super) fn classify(&self, url: &str) -> UrlClass {
        classify_url(self.drive.as_ref(), url)
    }

    /// The path of the file of DIAL that a URL names, in the form of requests to DIAL.
    pub(super) fn dial_path(&self, url: &str) -> Option<String> {
        own_path(self.drive.as_ref(), url)
    }

    /// The envelope of a new operation.
    pub(super) fn meta(&self, time: Duration, session: Option<&SessionId>) -> Meta {
        let meta = Meta::new(self.tenant.clone(), self.deadline(time));
        let meta = meta.with_trace(self.trace.clone());
        match session {
            Some(session) => meta.with_session(session.clone()),
            None => meta,
        }
    }

    pub(super) fn deadline(&self, time: Duration) -> Deadline {
        Deadline::after(self.clock.now_ms(), time)
    }

    /// Calls a service that responds within seconds.
    pub(super) async fn ask<C: Call>(
        &self,
        peer: PeerService,
        meta: &Meta,
        request: &C,
    ) -> Result<C::Reply, CallFailure> {
        let reply = self.bus.call(meta, request).await;
        reply.map_err(|error| CallFailure::of(peer, error))
    }

    /// Calls a service that may work for minutes. If it sends no heartbeats, it counts as failed long before the
    /// deadline.
    pub(super) async fn call_with_heartbeat<C: Call>(
        &self,
        peer: PeerService,
        meta: &Meta,
        request: &C,
    ) -> Result<C::Reply, CallFailure> {
        let reply = self.bus.call_watched(meta, request).await;
        reply.map_err(|error| CallFailure::of(peer, error))
    }

    /// Calls a service that retries by itself, so that its error is final.
    pub(super) async fn call_once<C: Call>(
        &self,
        peer: PeerService,
        meta: &Meta,
        request: &C,
    ) -> Result<C::Reply, CallFailure> {
        let reply = self.bus.call_once(meta, request).await;
        reply.map_err(|error| CallFailure::of(peer, error))
    }

    /// Whether a request for sessions failed recently.
    pub(super) fn sessions_are_absent(&self) -> bool {
        // A hint that guards no other data, so relaxed ordering is enough.
        self.clock.now_ms() < self.absent_until.load(Ordering::Relaxed)
    }

    /// Records that requests for sessions fail.
    pub(super) fn note_absence(&self) {
        let until = self
            .clock
            .now_ms()
            .saturating_add(self.config.absence.as_millis());
        self.absent_until.store(until, Ordering::Relaxed);
    }

    /// Content for a message: inline, or as a claim if it is large.
    pub(super) async fn content(
        &self,
        bytes: Bytes,
        media_type: &str,
    ) -> Result<v1::Content, CallFailure> {
        // A message of the bus has a limit; larger content is sent as a claim check.
        if bytes.len() <= MAX_INLINE_BYTES {
            return Ok(ContentSource::Inline(bytes).into());
        }
        let claim = self.store_bytes(bytes, media_type, "").await?;
        Ok(ContentSource::Claim(claim).into())
    }

    /// The content in a message, or the stored file that it claims; fails when it has more than `limit` bytes.
    pub(super) async fn read(
        &self,
        peer: PeerService,
        content: Option<v1::Content>,
        limit: ByteSize,
        time: Duration,
    ) -> Result<Bytes, CallFailure> {
        let content = content.map(ContentSource::try_from);
        match content {
            Some(Ok(ContentSource::Inline(bytes))) => {
                let (size, limit) = (
                    u64::try_from(bytes.len()).unwrap_or(u64::MAX),
                    limit.as_u64(),
                );
                if size > limit {
                    return Err(CallFailure::store(ReadError::TooLarge { size, limit }));
                }
                Ok(bytes)
            }
            Some(Ok(ContentSource::Claim(claim))) => {
                let reader = self.open(&claim, time).await?;
                reader.read_all(limit).await.map_err(CallFailure::store)
            }
            Some(Err(_)) | None => Err(CallFailure::Malformed(peer)),
        }
    }

    /// Opens a stored file; its digest is checked while it is read.
    pub(super) async fn open(
        &self,
        claim: &Claim,
        time: Duration,
    ) -> Result<ArtifactReader, CallFailure> {
        let deadline = self.deadline(time);
        let reader = self.store.read(&self.tenant, claim, deadline).await;
        reader.map_err(CallFailure::store)
    }

    /// The first bytes of a stored file.
    pub(super) async fn head(&self, claim: &Claim, max_bytes: usize) -> Result<Bytes, CallFailure> {
        let time = self.config.call_timeout.as_duration();
        let reader = self.open(claim, time).await?;
        reader
            .read_head(max_bytes)
            .await
            .map_err(CallFailure::store)
    }

    /// Stores bytes that are in memory.
    pub(super) async fn store_bytes(
        &self,
        bytes: Bytes,
        media_type: &str,
        name: &str,
    ) -> Result<Claim, CallFailure> {
        let label = ArtifactLabel::new(media_type, name);
        let operation = OperationId::mint();
        let stored = self.store.put(&self.tenant, &operation, bytes, label);
        let time = self.config.transfer_timeout.as_duration();
        match tokio::time::timeout(time, stored).await {
            Ok(stored) => stored.map_err(CallFailure::store),
            Err(_elapsed) => Err(CallFailure::TimedOut(PeerService::Store)),
        }
    }

    /// A link to a stored file.
    pub(super) async fn link(&self, claim: &Claim) -> Result<PresignedLink, CallFailure> {
        let lifetime = self.config.link_lifetime.as_duration();
        let link = self.store.presign_get(&self.tenant, claim, lifetime).await;
        link.map_err(CallFailure::store)
    }
}
