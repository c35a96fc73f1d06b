//! Takes messages to handlers and back: decoding, deadline, admission, span, metrics, fault.
//!
//! The same route handles calls over the bus and over gRPC. Handlers get typed requests and return typed replies; the
//! types are erased only here.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use dray_bus::{Meta, Permissions, WorkCompleted, WorkDelivery, WorkFailure};
use dray_proto::contract::{Call, StreamingCall, Work};
use dray_types::{Deadline, Fault};
use prost::Message;

pub(crate) mod admission;
mod answer;
mod call_permit;
mod consume;
pub(crate) mod flight;
mod metrics;
mod reader;
pub(crate) mod span;
mod stream;

pub(crate) use answer::{BoundCall, CallHandling, stopping_fault};
pub use call_permit::release_permit_while;
pub(crate) use consume::{WorkPuller, WorkRoute, pull_while_ready};
pub(crate) use metrics::{CallMetrics, CallTransport};
pub(crate) use reader::read_requests;
pub use stream::ReplyChunks;
pub(crate) use stream::{ChunkSender, chunk_channel};

/// One decoded request with its envelope.
#[derive(Clone, Debug)]
pub struct Request<C> {
    /// Caller, deadline and trace. `trace` is the context of the handler's own span, ready to be passed on;
    /// `deadline` is the caller's instant, passed on unchanged (messaging-reliability C-3).
    pub meta: Meta,
    /// The body of the request.
    pub body: C,
}

impl<C> Request<C> {
    /// Makes a request as the router hands it out, for tests of handlers.
    pub fn new(meta: Meta, body: C) -> Self {
        Self { meta, body }
    }

    /// When the handler is cancelled: shortly before the caller's deadline, so that the reply still arrives.
    pub fn work_until(&self) -> Deadline {
        work_until(self.meta.deadline)
    }
}

/// The deadline of the work: earlier than the caller's, so that the reply can travel (messaging-reliability C-3).
pub(crate) fn work_until(deadline: Deadline) -> Deadline {
    deadline.earlier(dray_bus::RESPONDER_MARGIN)
}

type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;
/// A handler with its types erased: encoded request in, encoded reply out. Calls with a stream of replies get a sender
/// for those before the last one.
pub(crate) type ErasedHandler<S> =
    dyn Fn(Arc<S>, Meta, Bytes, Option<ChunkSender>) -> Pending<Result<Bytes, Fault>> + Send + Sync;

/// The party that decides when a call may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdmissionMode {
    /// The router decides: the call needs a permit of `limits.calls`, or waits for one.
    Router,
    /// The handler decides: it queues calls and refuses excess calls.
    Handler,
}

/// One call that a service handles.
pub(crate) struct CallRoute<S> {
    pub(crate) subject: String,
    pub(crate) grpc_path: &'static str,
    pub(crate) admission: AdmissionMode,
    pub(crate) handler: Arc<ErasedHandler<S>>,
    /// Whether it is also handled on the subjects of tenants.
    pub(crate) for_tenants: bool,
    /// Whether the call has a stream of replies.
    pub(crate) streams: bool,
    /// Whether every replica handles each request over the bus.
    pub(crate) in_every_replica: bool,
}

/// Collects the calls that a service handles and the work that it consumes.
pub struct Router<S> {
    pub(crate) answers: Vec<CallRoute<S>>,
    pub(crate) consumers: Vec<Arc<dyn WorkRoute<S>>>,
    pub(crate) checks: Vec<ReadinessCheck<S>>,
}

type Checking<S> = dyn Fn(Arc<S>) -> Pending<Result<(), String>> + Send + Sync;

/// A readiness check of a service.
pub(crate) struct ReadinessCheck<S> {
    pub(crate) name: &'static str,
    pub(crate) run: Arc<Checking<S>>,
}

impl<S: Send + Sync + 'static> Router<S> {
    pub(crate) fn new() -> Self {
        Self {
            answers: Vec::new(),
            consumers: Vec::new(),
            checks: Vec::new(),
        }
    }

    /// Answers a call, over the bus and over gRPC. Subject and reply type follow from the request type.
    ///
    /// The handler is dropped when its deadline passes or its caller cancels, so correctness must not depend on its
    /// completion. Concurrent identical requests with one operation id run the handler once.
    #[must_use]
    pub fn answer<C, H, F, E>(self, handler: H) -> Self
    where
        C: Call,
        H: Fn(Arc<S>, Request<C>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<C::Reply, E>> + Send + 'static,
        E: Into<Fault> + Send + 'static,
    {
        self.add_call(AdmissionMode::Router, handler)
    }

    /// Handles a call whose handler does its own admission, so the call needs no permit of `limits.calls`.
    ///
    /// For handlers that wait for external parties, such as a slow host: with a permit, waiting calls would block other
    /// tenants. The handler limits both running and waiting calls, and refuses further ones with `RateLimited`.
    /// Otherwise as [`Router::answer`].
    #[must_use]
    pub fn answer_self_admitted<C, H, F, E>(self, handler: H) -> Self
    where
        C: Call,
        H: Fn(Arc<S>, Request<C>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<C::Reply, E>> + Send + 'static,
        E: Into<Fault> + Send + 'static,
    {
        self.add_call(AdmissionMode::Handler, handler)
    }

    fn add_call<C, H, F, E>(mut self, admission: AdmissionMode, handler: H) -> Self
    where
        C: Call,
        H: Fn(Arc<S>, Request<C>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<C::Reply, E>> + Send + 'static,
        E: Into<Fault> + Send + 'static,
    {
        self.answers.push(CallRoute {
            subject: dray_proto::contract::call_subject::<C>(),
            grpc_path: C::GRPC_PATH,
            admission,
            handler: erase_handler::<S, C, H, F, E>(handler),
            for_tenants: false,
            streams: false,
            in_every_replica: false,
        });
        self
    }

    /// Answers a call with a stream of replies: first the replies that the handler sends, then its result. Over the bus
    /// and over gRPC.
    ///
    /// Like [`Router::answer`], except that equal requests are not joined: each runs the handler.
    #[must_use]
    pub fn answer_streaming<C, H, F, E>(mut self, handler: H) -> Self
    where
        C: StreamingCall,
        H: Fn(Arc<S>, Request<C>, ReplyChunks<C::Reply>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<C::Reply, E>> + Send + 'static,
        E: Into<Fault> + Send + 'static,
    {
        self.answers.push(CallRoute {
            subject: dray_proto::contract::call_subject::<C>(),
            grpc_path: C::GRPC_PATH,
            admission: AdmissionMode::Router,
            handler: stream::erase_streaming_handler::<S, C, H, F, E>(handler),
            for_tenants: false,
            streams: true,
            in_every_replica: false,
        });
        self
    }

    /// Handles a call as [`Router::answer`] does, and on `dray.<area>.v1.<verb>.<tenant>` as well. The server's
    /// permissions bind an identity to its tenant there, and a request whose envelope names another tenant is refused
    /// before it reaches the handler.
    #[must_use]
    pub fn answer_for_tenants<C, H, F, E>(self, handler: H) -> Self
    where
        C: Call,
        H: Fn(Arc<S>, Request<C>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<C::Reply, E>> + Send + 'static,
        E: Into<Fault> + Send + 'static,
    {
        let mut router = self.answer(handler);
        if let Some(answer) = router.answers.last_mut() {
            answer.for_tenants = true;
        }
        router
    }

    /// Handles a call as [`Router::answer`] does, in every replica instead of one of them: callers collect the replies
    /// ([`dray_bus::Bus::call_each`]). Over gRPC the replica that is connected replies alone.
    #[must_use]
    pub fn answer_in_every_replica<C, H, F, E>(self, handler: H) -> Self
    where
        C: Call,
        H: Fn(Arc<S>, Request<C>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<C::Reply, E>> + Send + 'static,
        E: Into<Fault> + Send + 'static,
    {
        let mut router = self.answer(handler);
        if let Some(answer) = router.answers.last_mut() {
            answer.in_every_replica = true;
        }
        router
    }

    /// Consumes work from the durable consumer that has the service's name. It is provisioned, not created here, and
    /// has one filter; further kinds of work need further consumers, see [`Router::consume_as`].
    ///
    /// The handler's outcome is final for this attempt: the bus records it in the ledger before the message is
    /// acknowledged (messaging-reliability 6.2).
    #[must_use]
    pub fn consume<W, H, F>(mut self, handler: H) -> Self
    where
        W: Work,
        H: Fn(Arc<S>, WorkDelivery<W>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<WorkCompleted, WorkFailure>> + Send + 'static,
    {
        self.consumers
            .push(Arc::new(consume::TypedWorkRoute::new(None, handler)));
        self
    }

    /// Consumes work from the durable consumer `durable`, as [`Router::consume`] does.
    #[must_use]
    pub fn consume_as<W, H, F>(mut self, durable: impl Into<String>, handler: H) -> Self
    where
        W: Work,
        H: Fn(Arc<S>, WorkDelivery<W>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<WorkCompleted, WorkFailure>> + Send + 'static,
    {
        self.consumers.push(Arc::new(consume::TypedWorkRoute::new(
            Some(durable.into()),
            handler,
        )));
        self
    }

    /// Adds the permissions for the routes to those of the service.
    pub(crate) fn permit(&self, permissions: Permissions) -> Permissions {
        let answering = self.answers.iter().fold(permissions, |all, answer| {
            if answer.for_tenants {
                all.responds_for_tenants_to(&answer.subject)
            } else if answer.streams {
                all.responds_streaming_to(&answer.subject)
            } else if answer.in_every_replica {
                all.responds_in_every_replica_to(&answer.subject)
            } else {
                all.responds_to(&answer.subject)
            }
        });
        self.consumers
            .iter()
            .fold(answering, |all, consumer| consumer.permit(all))
    }

    /// Adds a condition of readiness. While it fails, `/ready` fails and no work is pulled. The error is one sentence
    /// for the operator, without secrets.
    #[must_use]
    pub fn ready<H, F>(mut self, name: &'static str, check: H) -> Self
    where
        H: Fn(Arc<S>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        self.checks.push(ReadinessCheck {
            name,
            run: Arc::new(move |service| Box::pin(check(service))),
        });
        self
    }
}

impl<S> fmt::Debug for Router<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router")
            .field(
                "answers",
                &self
                    .answers
                    .iter()
                    .map(|answer| &answer.subject)
                    .collect::<Vec<_>>(),
            )
            .field("consumers", &self.consumers.len())
            .finish_non_exhaustive()
    }
}

fn erase_handler<S, C, H, F, E>(handler: H) -> Arc<ErasedHandler<S>>
where
    S: Send + Sync + 'static,
    C: Call,
    H: Fn(Arc<S>, Request<C>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<C::Reply, E>> + Send + 'static,
    E: Into<Fault> + Send + 'static,
{
    let handler = Arc::new(handler);
    Arc::new(move |service, meta, payload, _chunks| {
        // A clone for each request, because a request outlives this call.
        let handler = Arc::clone(&handler);
        Box::pin(async move {
            // The error of the decoder may quote the message, so it is not passed on.
            let body = C::decode(payload).map_err(|_| undecodable_fault())?;
            let reply = handler(service, Request::new(meta, body)).await;
            reply
                .map(|reply| reply.encode_to_vec().into())
                .map_err(Into::into)
        })
    })
}

fn undecodable_fault() -> Fault {
    Fault::new(
        dray_types::FaultCode::InvalidArgument,
        "The request could not be decoded.",
    )
    .detail("undecodable")
    .advice("Send a message of the documented type.")
}
