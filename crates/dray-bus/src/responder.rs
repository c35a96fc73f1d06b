//! Responds to the requests of one queue group. Each request always gets a reply (C-4).

mod origin;
mod stream;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use dray_proto::{Call, MAX_MESSAGE_BYTES, v1};
use dray_types::{Fault, FaultCode, OperationId, TenantId};
use prost::Message as _;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::backend::{CoreMessage, OutgoingMessage, Subscription};
use crate::bus_core::Bus;
use crate::error::{SubscribeError, TransportError};
use crate::headers::{self, MessageHeaders};
use crate::meta::Meta;
use crate::subject;

use origin::{CancellationReader, check_origin, foreign_request};
pub use stream::{CallerGone, ReplyStream};

/// The part of the caller's deadline that a responder reserves for sending its reply (C-3).
pub const RESPONDER_MARGIN: Duration = Duration::from_millis(250);

/// Longest wait to hand a reply to the connection.
const REPLY_WAIT: Duration = Duration::from_secs(5);

/// Requests on one call subject, shared with the other members of the queue group where there is one.
///
/// The reading task must only admit requests (C-5). If it also handled them, the subscription would fill up.
#[derive(Debug)]
pub struct Responder {
    bus: Bus,
    /// What the requests' subscription names; may have wildcards.
    subject: String,
    requests: Subscription,
    cancellations: CancellationReader,
    cancellable: CancellableOperations,
}

impl Responder {
    pub(crate) async fn open(
        bus: &Bus,
        name: &str,
        group: Option<&str>,
    ) -> Result<Self, SubscribeError> {
        let backend = &bus.inner.backend;
        let failed = |source| SubscribeError {
            subject: name.to_owned(),
            source,
        };
        let area = subject::call_area(name)
            .ok_or_else(|| failed(TransportError::NotProvisioned(name.to_owned())))?;
        // The subscription begins before the requests, because a cancellation may follow its request immediately.
        let cancellations = CancellationReader::open(bus, area).await.map_err(failed)?;
        let requests = backend.subscribe(name, group).await.map_err(failed)?;
        Ok(Self {
            bus: bus.clone(),
            subject: name.to_owned(),
            requests,
            cancellations,
            cancellable: CancellableOperations::default(),
        })
    }

    /// The next request; `None` after [`Responder::drain`] once everything delivered was handed out.
    pub async fn next(&mut self) -> Option<IncomingRequest> {
        loop {
            tokio::select! {
                // Requests are read first: a cancellation that is read before its request would find nothing to cancel,
                // and the request would run although its caller no longer waits.
                biased;
                request = self.requests.next() => {
                    let origin = check_origin(&self.subject, request.as_ref()?);
                    return Some(IncomingRequest::new(&self.bus, request?, origin, &self.cancellable));
                }
                Some(headers) = self.cancellations.next() => self.cancellable.cancel(&headers),
            }
        }
    }

    /// Stops new requests; [`Responder::next`] still returns those that the server has already sent.
    pub async fn drain(&mut self) {
        self.requests.drain().await;
    }

    /// Passes on cancellations until every request that was handed out has been handled. Call it after the drain,
    /// when [`Responder::next`] has returned `None`: a caller that gives up while this instance stops must not keep it
    /// busy until the end of the grace period (C-9).
    pub async fn finish(mut self) {
        while !self.cancellable.is_idle() {
            tokio::select! {
                Some(headers) = self.cancellations.next() => self.cancellable.cancel(&headers),
                () = self.cancellable.idle.notified() => {}
            }
        }
    }
}

type OperationKey = (TenantId, OperationId);

type RunningOperations = HashMap<OperationKey, Vec<(u64, CancellationToken)>>;

/// Running operations that a caller may cancel.
#[derive(Clone, Debug, Default)]
struct CancellableOperations {
    running: Arc<Mutex<RunningOperations>>,
    /// Notified when the last running operation has ended.
    idle: Arc<Notify>,
}

impl CancellableOperations {
    fn register(&self, key: OperationKey) -> RunningOperation {
        let token = CancellationToken::new();
        // A request that is repeated while the first one is being handled has the same key; the id ensures that each
        // removes only its own token.
        let id = rand::random();
        self.lock()
            .entry(key.clone())
            .or_default()
            .push((id, token.clone()));
        RunningOperation {
            cancellable: self.clone(),
            key,
            id,
            token,
        }
    }

    fn is_idle(&self) -> bool {
        self.lock().is_empty()
    }

    fn cancel(&self, headers: &MessageHeaders) {
        let Ok(meta) = Meta::from_headers(headers) else {
            tracing::debug!("a cancellation without a usable envelope is ignored");
            return;
        };
        // Cancels all requests of the operation: its caller no longer waits for any of them.
        for (_, token) in self
            .lock()
            .get(&(meta.tenant, meta.operation))
            .into_iter()
            .flatten()
        {
            token.cancel();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, RunningOperations> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One entry of [`CancellableOperations`], removed when the request has been handled.
#[derive(Debug)]
struct RunningOperation {
    cancellable: CancellableOperations,
    key: OperationKey,
    id: u64,
    token: CancellationToken,
}

impl Drop for RunningOperation {
    fn drop(&mut self) {
        let mut running = self.cancellable.lock();
        if let Some(tokens) = running.get_mut(&self.key) {
            tokens.retain(|(id, _)| *id != self.id);
            if tokens.is_empty() {
                running.remove(&self.key);
            }
        }
        if running.is_empty() {
            // Stores a permit, so that a responder that has checked and not yet begun to wait is woken too.
            self.cancellable.idle.notify_one();
        }
    }
}

/// One request. If it is dropped without a response, the caller gets an internal fault.
#[derive(Debug)]
pub struct IncomingRequest {
    bus: Bus,
    subject: String,
    headers: MessageHeaders,
    payload: Bytes,
    pub(crate) reply: Option<String>,
    meta: Result<Meta, Fault>,
    running_operation: Option<RunningOperation>,
}

impl IncomingRequest {
    /// A request whose origin was refused has no reply subject and a fault for its envelope, so it is neither handled nor
    /// replied to.
    fn new(
        bus: &Bus,
        message: CoreMessage,
        origin: Result<(), &'static str>,
        cancellable: &CancellableOperations,
    ) -> Self {
        let size = message.headers.wire_size() + message.payload.len();
        let meta = if let Err(reason) = origin {
            tracing::warn!(
                subject = %message.subject,
                reply = message.reply.as_deref().unwrap_or_default(),
                reason,
                "a request is refused without a reply"
            );
            Err(foreign_request())
        } else if size > MAX_MESSAGE_BYTES {
            Err(request_too_large())
        } else {
            Meta::from_headers(&message.headers)
                .map_err(Fault::from)
                .and_then(|meta| check_tenant(&message.subject, meta))
        };
        // The operation is registered here and not by the service, so that a cancellation that arrives before the
        // service handles the request is not lost.
        let running_operation = meta
            .as_ref()
            .ok()
            .map(|meta| cancellable.register((meta.tenant.clone(), meta.operation.clone())));
        Self {
            bus: bus.clone(),
            subject: message.subject,
            headers: message.headers,
            payload: message.payload,
            reply: message.reply.filter(|_| origin.is_ok()),
            meta,
            running_operation,
        }
    }

    /// The subject on which the request arrived.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Headers of the request as received, including reserved ones; [`IncomingRequest::meta`] has checked them.
    pub const fn headers(&self) -> &MessageHeaders {
        &self.headers
    }

    /// The encoded request, not decoded and not checked beyond its size.
    pub const fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// The envelope of the request.
    ///
    /// # Errors
    /// The fault to return: the request is too large, its headers are invalid, or no caller sent it as this call.
    pub fn meta(&self) -> Result<Meta, Fault> {
        self.meta.clone()
    }

    /// The request itself.
    ///
    /// # Errors
    /// The fault to return: the payload does not match the contract of the subject.
    pub fn decode<C: Call>(&self) -> Result<C, Fault> {
        C::decode(self.payload.clone()).map_err(|error| {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "request does not decode"
            );
            Fault::new(FaultCode::InvalidArgument, "The request cannot be read.")
                .detail("undecodable")
                .advice("Send the message type that belongs to the subject.")
        })
    }

    /// Fires when the caller no longer waits (C-9). Best effort: correctness must not depend on it.
    pub fn cancelled(&self) -> CancellationToken {
        self.running_operation
            .as_ref()
            .map_or_else(CancellationToken::new, |running_operation| {
                running_operation.token.clone()
            })
    }

    /// Sends the final reply. If it is too large for the bus, the caller gets a fault instead (C-7).
    pub async fn answer<M: prost::Message>(mut self, result: Result<M, Fault>) {
        let message = outcome_reply(result);
        // The reply address is taken, so that dropping the request afterwards sends nothing.
        if let Some(reply) = self.reply.take() {
            send_reply(&self.bus, &reply, message).await;
        }
    }

    /// Sends a progress reply. Send at most 4 per second and at least one per 5 s (C-8).
    pub async fn progress<M: prost::Message>(&self, message: &M) {
        if let Some(reply) = &self.reply {
            let message = reply_envelope(
                headers::PROGRESS_HEADER,
                "1",
                message.encode_to_vec().into(),
            );
            send_reply(&self.bus, reply, message).await;
        }
    }

    /// Whether the caller wants heartbeats.
    pub fn is_watched(&self) -> bool {
        self.headers.get(headers::HEARTBEAT_HEADER).is_some()
    }

    /// Sends a heartbeat: the request is still being handled (C-8). For callers that want heartbeats.
    pub async fn send_heartbeat(&self) {
        self.progress(&()).await;
    }

    /// Turns the request into the replies of a streaming call.
    pub fn into_stream(self) -> ReplyStream {
        ReplyStream::new(self)
    }

    /// Drops the request without a reply, like a process that crashes. For fault tests.
    pub fn abandon(mut self) {
        self.reply = None;
    }
}

impl Drop for IncomingRequest {
    fn drop(&mut self) {
        // A panic or a code path without a reply ends here. The caller would otherwise wait for its deadline (C-4).
        let (Some(reply), Ok(runtime)) = (self.reply.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        tracing::error!(subject = %self.subject, "a request was dropped without an answer");
        let bus = self.bus.clone();
        let message = outcome_reply::<v1::Fault>(Err(Fault::internal()));
        self.bus.inner.tasks.spawn_on(
            async move { send_reply(&bus, &reply, message).await },
            &runtime,
        );
    }
}

fn outcome_reply<M: prost::Message>(result: Result<M, Fault>) -> EncodedReply {
    let fault = match result {
        Ok(message) => {
            let reply = reply_envelope(
                headers::OUTCOME_HEADER,
                "ok",
                message.encode_to_vec().into(),
            );
            // The client refuses a reply above the server's limit locally, and the caller would get no reply.
            if reply.size() <= MAX_MESSAGE_BYTES {
                return reply;
            }
            tracing::error!(size = reply.size(), "a reply is too large for the bus");
            Fault::new(
                FaultCode::TooLarge,
                "The result is too large to be sent inside a message.",
            )
            .detail("reply_too_large")
            .advice("Ask for the result by reference.")
        }
        Err(fault) => fault,
    };
    let reply = reply_envelope(
        headers::OUTCOME_HEADER,
        "fault",
        encode_fault(fault.clone()),
    );
    if reply.size() <= MAX_MESSAGE_BYTES {
        return reply;
    }
    // A fault may quote a response of a platform or a web server of any length. Code and retry advice are kept.
    let short = Fault {
        message: "The operation failed; its explanation is too large to be sent.".to_owned(),
        advice: String::new(),
        ..fault
    };
    reply_envelope(headers::OUTCOME_HEADER, "fault", encode_fault(short))
}

fn encode_fault(fault: Fault) -> Bytes {
    v1::Fault::from(fault).encode_to_vec().into()
}

/// A reply before it has an address.
#[derive(Debug)]
struct EncodedReply {
    headers: MessageHeaders,
    payload: Bytes,
}

impl EncodedReply {
    fn size(&self) -> usize {
        self.headers.wire_size() + self.payload.len()
    }
}

fn reply_envelope(name: &str, value: &str, payload: Bytes) -> EncodedReply {
    EncodedReply {
        headers: [
            (name, value),
            (headers::CONTENT_TYPE, headers::PROTOBUF_CONTENT_TYPE),
        ]
        .into_iter()
        .collect(),
        payload,
    }
}

async fn send_reply(bus: &Bus, reply: &str, message: EncodedReply) {
    let message = OutgoingMessage {
        subject: reply.to_owned(),
        headers: message.headers,
        payload: message.payload,
    };
    // During an outage the client buffers some 2,000 commands and then blocks, hence the timeout.
    let sent = bus.inner.backend.publish(None, &message);
    match tokio::time::timeout(REPLY_WAIT, sent).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "a reply was not sent"
            );
        }
        Err(_elapsed) => tracing::error!("a reply was not sent in time"),
    }
}

/// The server has checked that the caller may speak for the tenant of the subject, so the
/// envelope must name the same one.
fn check_tenant(subject_name: &str, meta: Meta) -> Result<Meta, Fault> {
    match subject::call_tenant(subject_name) {
        Some(tenant) if tenant != meta.tenant.token() => Err(Fault::new(
            FaultCode::Denied,
            "The request names another tenant than its subject.",
        )
        .detail("tenant_mismatch")
        .advice("Send the tenant of the subject in the `Dray-Tenant` header.")),
        _ => Ok(meta),
    }
}

fn request_too_large() -> Fault {
    Fault::new(FaultCode::TooLarge, "The request is too large for the bus.")
        .detail("message_too_large")
        .advice("Send large content by reference instead of inside the message.")
}
