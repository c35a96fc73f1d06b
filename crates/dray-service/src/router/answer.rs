//! Handles one call from its arrival to its reply, in the same way for the bus and for gRPC.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use dray_bus::Meta;
use dray_types::{Clock, Deadline, Fault, FaultCode, Period, whole_millis};
use futures_util::FutureExt as _;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::admission::{Admission, AdmissionTicket, CallSlot};
use super::call_permit::hold_permit_while;
use super::flight::{CallOutcome, FlightKey, FlightLeader, FlightRole, FlightTable, follow_leader};
use super::metrics::{CallMetrics, CallTransport};
use super::{AdmissionMode, CallRoute, ChunkSender, Pending, span, work_until};
use crate::settings::LimitsSection;

/// Most bytes of an encoded reply; the rest of a message is for its headers (messaging-reliability E-3).
pub(crate) const MAX_REPLY_BYTES: usize = dray_proto::MAX_MESSAGE_BYTES - 4 * 1024;

/// Everything that the calls of one service share.
#[derive(Debug)]
pub(crate) struct CallHandling {
    service: &'static str,
    clock: Clock,
    max_call_time: Period,
    admission: Arc<Admission>,
    flights: Arc<FlightTable>,
    metrics: CallMetrics,
    stopping: AtomicBool,
}

/// One call of one running service, with its types erased.
pub(crate) struct BoundCall {
    pub(crate) subject: String,
    pub(crate) grpc_path: &'static str,
    for_tenants: bool,
    admission: AdmissionMode,
    shared: Arc<CallHandling>,
    /// Whether the call has a stream of replies.
    pub(crate) streams: bool,
    /// Whether every replica handles each request over the bus.
    pub(crate) in_every_replica: bool,
    run: Box<dyn Fn(Meta, Bytes, Option<ChunkSender>) -> Pending<CallOutcome> + Send + Sync>,
}

impl CallHandling {
    pub(crate) fn new(
        service: &'static str,
        clock: Clock,
        limits: &LimitsSection,
        metrics: CallMetrics,
    ) -> Arc<Self> {
        metrics.start_at_zero(service);
        Arc::new(Self {
            service,
            clock,
            max_call_time: limits.longest_call,
            admission: Admission::new(limits.calls, limits.calls_per_tenant),
            flights: Arc::default(),
            metrics,
            stopping: AtomicBool::new(false),
        })
    }

    /// Stops admission: new calls are answered `unavailable`.
    pub(crate) fn stop_admitting(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    fn refuse(&self, reason: &'static str, fault: Fault, meta: &Meta) -> Fault {
        self.metrics.refused(self.service, reason);
        with_trace(fault, meta)
    }
}

impl BoundCall {
    /// Ties a route to the service that runs it.
    pub(crate) fn new<S: Send + Sync + 'static>(
        route: &CallRoute<S>,
        service: &Arc<S>,
        shared: &Arc<CallHandling>,
    ) -> Self {
        let handler = Arc::clone(&route.handler);
        let service = Arc::clone(service);
        Self {
            subject: route.subject.clone(),
            grpc_path: route.grpc_path,
            for_tenants: route.for_tenants,
            admission: route.admission,
            shared: Arc::clone(shared),
            streams: route.streams,
            in_every_replica: route.in_every_replica,
            run: Box::new(move |meta, payload, chunks| {
                handler(Arc::clone(&service), meta, payload, chunks)
            }),
        }
    }

    /// Every subject on which the call is handled.
    pub(crate) fn subjects(&self) -> Vec<String> {
        let mut subjects = vec![self.subject.clone()];
        if self.for_tenants {
            subjects.push(format!("{}.*", self.subject));
        }
        subjects
    }

    /// Time until the caller's deadline, at most the longest call.
    pub(crate) fn time_left(&self, meta: &Meta) -> Duration {
        let remaining_time = meta.deadline.remaining(self.shared.clock.now_ms());
        remaining_time.min(self.shared.max_call_time.as_duration())
    }

    /// Counts a request that was refused before it became a call: `envelope`, `unauthenticated`, `forbidden` or
    /// `incomplete`.
    pub(crate) fn refused_request(&self, reason: &'static str) {
        self.shared.metrics.refused(self.shared.service, reason);
    }

    /// Decides immediately whether a request is admitted. Returns the future of the reply for an admitted request,
    /// otherwise a fault to return now. `cancel` fires when the caller no longer wants the reply (C-9). `chunks`
    /// receives the replies of a streaming call before the last one.
    pub(crate) fn admit(
        self: &Arc<Self>,
        transport: CallTransport,
        mut meta: Meta,
        payload: Bytes,
        cancel: CancellationToken,
        chunks: Option<ChunkSender>,
    ) -> Result<impl Future<Output = CallOutcome> + Send + use<>, Fault> {
        let shared = &self.shared;
        let now = shared.clock.now_ms();
        let latest_deadline = Deadline::after(now, shared.max_call_time.as_duration());
        // A caller cannot keep a permit for longer than the operator allows.
        meta.deadline = meta.deadline.min(latest_deadline);
        if shared.stopping.load(Ordering::Acquire) {
            return Err(shared.refuse("stopping", stopping_fault(), &meta));
        }
        // The deadline is checked before the call takes a permit; the caller gets a reply (C-3).
        if work_until(meta.deadline).has_passed(now) {
            return Err(shared.refuse("expired", timed_out(), &meta));
        }
        // The function is called here and not in the future, so that calls queue in the order of their arrival.
        let start = self.start_call(&meta, &payload)?;
        let this = Arc::clone(self);
        let span = span::for_call(shared.service, &self.subject, &meta);
        // The handler's own calls become children of this span.
        span::propagate_context(&span, &mut meta);
        let running = shared.metrics.running(shared.service);
        Ok(async move {
            let started = Instant::now();
            let outcome = tokio::select! {
                outcome = this.await_outcome(start, meta.clone(), payload, chunks) => outcome,
                // Dropping the handler returns its permit.
                () = cancel.cancelled() => Err(cancelled_fault()),
            };
            let outcome = outcome.map_err(|fault| with_trace(fault, &meta));
            // The outcome is logged inside the span, so that the line has the fields of the span.
            this.report(transport, &meta, &outcome, started.elapsed());
            drop(running);
            outcome
        }
        .instrument(span))
    }

    /// Joins equal requests, and queues the one that runs.
    fn start_call(&self, meta: &Meta, payload: &Bytes) -> Result<CallStart, Fault> {
        let shared = &self.shared;
        if self.streams {
            // Replies before the last one reach one caller only, so equal requests do not share an execution.
            return match shared.admission.admit(&meta.tenant) {
                AdmissionTicket::Now(permit) => {
                    Ok(CallStart::Run(None, CallAdmission::Now(permit)))
                }
                AdmissionTicket::Wait(granted) => {
                    Ok(CallStart::Run(None, CallAdmission::Later(granted)))
                }
                AdmissionTicket::Full => Err(shared.refuse("overloaded", overloaded_fault(), meta)),
            };
        }
        match shared
            .flights
            .join(FlightKey::new(&self.subject, meta, payload))
        {
            FlightRole::Lead(lead) if self.admission == AdmissionMode::Handler => {
                Ok(CallStart::Run(Some(lead), CallAdmission::ByHandler))
            }
            // Only the request that runs takes a permit; its followers need almost no resources.
            FlightRole::Lead(lead) => match shared.admission.admit(&meta.tenant) {
                AdmissionTicket::Now(permit) => {
                    Ok(CallStart::Run(Some(lead), CallAdmission::Now(permit)))
                }
                AdmissionTicket::Wait(granted) => {
                    Ok(CallStart::Run(Some(lead), CallAdmission::Later(granted)))
                }
                // Dropping `lead` makes its followers try on their own.
                AdmissionTicket::Full => Err(shared.refuse("overloaded", overloaded_fault(), meta)),
            },
            FlightRole::Follow(outcome) => Ok(CallStart::Follow(outcome)),
            FlightRole::TooManyFollowers => {
                Err(shared.refuse("overloaded", overloaded_fault(), meta))
            }
        }
    }

    async fn await_outcome(
        &self,
        mut start: CallStart,
        meta: Meta,
        payload: Bytes,
        chunks: Option<ChunkSender>,
    ) -> CallOutcome {
        // The time ends shortly before the caller's deadline, so that the fault still arrives (C-3).
        let remaining_time = work_until(meta.deadline).remaining(self.shared.clock.now_ms());
        let outcome_in_time = tokio::time::timeout(remaining_time, async {
            loop {
                match start {
                    CallStart::Run(lead, admitted) => {
                        return self.run_call(lead, admitted, (meta, payload, chunks)).await;
                    }
                    CallStart::Follow(outcome) => match follow_leader(outcome).await {
                        Some(outcome) => return outcome,
                        // The request that ran was cancelled or had less time, so this one has to run.
                        None => start = self.start_call(&meta, &payload)?,
                    },
                }
            }
        });
        outcome_in_time.await.unwrap_or_else(|_| Err(timed_out()))
    }

    async fn run_call(
        &self,
        lead: Option<FlightLeader>,
        admitted: CallAdmission,
        request: EncodedRequest,
    ) -> CallOutcome {
        let permit = match admitted {
            CallAdmission::Now(permit) => Some(permit),
            // The sender is dropped only when the service stops.
            CallAdmission::Later(granted) => Some(granted.await.map_err(|_| stopping_fault())?),
            CallAdmission::ByHandler => None,
        };
        // The handler is created after the call got its permit: a waiting handler uses no resources.
        let handler = self.run_handler(request);
        let outcome = match permit {
            Some(permit) => hold_permit_while(permit, handler).await,
            None => handler.await,
        };
        // The permit has been returned by now. Followers get the same outcome.
        if let Some(lead) = lead {
            lead.finish(&outcome);
        }
        outcome
    }

    /// Runs the handler. A panic, and a reply that cannot be sent, become faults (C-4, C-7).
    async fn run_handler(&self, (meta, payload, chunks): EncodedRequest) -> CallOutcome {
        // The handler is called inside an async block, since the closure may panic before its future exists.
        let handler = AssertUnwindSafe(async { (self.run)(meta, payload, chunks).await });
        match handler.catch_unwind().await {
            Ok(Ok(reply)) if reply.len() > MAX_REPLY_BYTES => {
                tracing::error!(subject = %self.subject, size = reply.len(), "reply is too large to send");
                Err(too_large())
            }
            Ok(outcome) => outcome,
            Err(_panic) => {
                // The panic hook logs its location. Its text may contain data of a user and is not logged.
                self.shared.metrics.panicked(self.shared.service);
                tracing::error!(subject = %self.subject, "handler panicked");
                Err(Fault::internal().detail("panic"))
            }
        }
    }

    fn report(&self, transport: CallTransport, meta: &Meta, outcome: &CallOutcome, took: Duration) {
        let code = match outcome {
            Ok(_) => "ok",
            Err(fault) => fault.code.as_str(),
        };
        self.shared
            .metrics
            .answered(self.shared.service, transport, code, took);
        // The span was created with this field empty, because a span cannot get new fields later.
        tracing::Span::current().record("dray.code", code);
        let (detail, trace) = match outcome {
            Ok(_) => ("", meta.trace.trace_id().unwrap_or_default()),
            Err(fault) => (fault.detail.as_str(), fault.trace_id.as_str()),
        };
        tracing::info!(
            subject = %self.subject,
            operation = %meta.operation,
            outcome = code,
            detail,
            trace_id = trace,
            milliseconds = whole_millis(took),
            "call answered"
        );
    }
}

impl std::fmt::Debug for BoundCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BoundCall")
            .field("subject", &self.subject)
            .finish_non_exhaustive()
    }
}

/// A request with the sender for its chunks.
type EncodedRequest = (Meta, Bytes, Option<ChunkSender>);

/// The role of a request among equal requests.
enum CallStart {
    /// The request runs. It has no leader if equal requests are not joined.
    Run(Option<FlightLeader>, CallAdmission),
    Follow(watch::Receiver<Option<CallOutcome>>),
}

/// How the request that runs gets its permit.
enum CallAdmission {
    Now(CallSlot),
    Later(oneshot::Receiver<CallSlot>),
    /// The handler queues by itself and needs no permit.
    ByHandler,
}

fn with_trace(mut fault: Fault, meta: &Meta) -> Fault {
    // A fault of another service keeps its own trace.
    if fault.trace_id.is_empty() {
        meta.trace
            .trace_id()
            .unwrap_or_default()
            .clone_into(&mut fault.trace_id);
    }
    fault
}

fn timed_out() -> Fault {
    Fault::new(FaultCode::Timeout, "The request was not finished in time.")
        .detail("deadline")
        .advice("Try again, with more time if you can.")
        .retry_after(Duration::from_secs(1))
}

fn overloaded_fault() -> Fault {
    Fault::new(FaultCode::RateLimited, "The service is busy.")
        .detail("overloaded")
        .advice("Try again a little later.")
        .retry_after(Duration::from_millis(500))
}

pub(crate) fn stopping_fault() -> Fault {
    Fault::new(FaultCode::Unavailable, "The service is being restarted.")
        .detail("stopping")
        .advice("Try again in a moment.")
        .retry_after(Duration::from_millis(250))
}

fn cancelled_fault() -> Fault {
    Fault::new(
        FaultCode::Unavailable,
        "The request was cancelled by the caller.",
    )
    .detail("cancelled")
}

fn too_large() -> Fault {
    Fault::new(FaultCode::TooLarge, "The response is too large to be sent.")
        .detail("reply_too_large")
        .advice("Request less in one message.")
}

#[cfg(test)]
mod tests {
    use dray_bus::WorkSettings;
    use dray_bus::work::MAX_RESULT_BYTES;
    use dray_proto::{MAX_INLINE_BYTES, MAX_MESSAGE_BYTES};

    use super::MAX_REPLY_BYTES;

    #[test]
    fn the_page_of_messaging_states_the_limits() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/messaging.md");
        let page = std::fs::read_to_string(page).unwrap();
        let constants = [
            ("MAX_INLINE_BYTES`", MAX_INLINE_BYTES),
            ("MAX_MESSAGE_BYTES`", MAX_MESSAGE_BYTES),
            ("MAX_REPLY_BYTES`", MAX_REPLY_BYTES),
            ("MAX_RESULT_BYTES`", MAX_RESULT_BYTES),
        ];
        for (name, bytes) in constants {
            let mut rows = page.lines().filter(|line| line.contains(name));
            let row = rows.next().unwrap_or_else(|| panic!("no row of {name}"));
            let limit = format!("| {} KiB |", bytes / 1024);
            assert!(row.contains(&limit), "{row} does not state {limit}");
        }
        let attempts = WorkSettings::default().attempts;
        let attempts = format!("Work gets {attempts} attempts");
        assert!(
            page.contains(&attempts),
            "the page does not state: {attempts}"
        );
    }
}
