//! Calls: one inbox for each, retries inside the deadline, a circuit breaker per area (messaging-reliability 20).

pub(crate) mod area;
mod cancel;
mod each;
mod stream;
#[cfg(test)]
mod tests;

use std::time::Duration;

use bytes::Bytes;
use dray_proto::contract::{call_subject, schema_name, tenant_call_subject};
use dray_proto::{Call, MAX_MESSAGE_BYTES, v1};
use dray_types::{Fault, FaultCode, RetryAdvice};
use prost::Message as _;
use tokio::time::Instant;
use tracing::Instrument as _;

use self::area::CircuitBreaker;
use self::cancel::CancelGuard;
pub(crate) use self::each::call_each;
use self::stream::ReceivedChunks;
pub(crate) use self::stream::call_streaming;
use crate::backend::{CONNECTION_LOST, CoreMessage, Inbox, NO_RESPONDERS, OutgoingMessage};
use crate::backoff::{Backoff, random_between};
use crate::bus_core::Bus;
use crate::error::{CallError, ReplyError, TransportError};
use crate::headers;
use crate::meta::Meta;
use crate::trace;

/// Most attempts of one call that reach a responder (C-6).
const MAX_ATTEMPTS: u32 = 3;

/// Longest delay that a call waits after an unavailable dependency. A fault with a longer one lasts too long for a
/// caller that waits, so it is returned immediately; the delay of a rate limit says when the request will be accepted.
const MAX_UNAVAILABLE_DELAY: Duration = Duration::from_secs(10);

/// Silence after which a responder that sends heartbeats counts as dead: several of them are missing.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(30);

/// Detail of the fault that a service returns while it is being restarted.
const STOPPING_DETAIL: &str = "stopping";

/// Shortest time that is left for a repeated attempt. With less, a busy machine would turn the failure of the attempt
/// before, which names the cause, into a timeout.
const MIN_RETRY_TIME: Duration = Duration::from_millis(100);

type ProgressObserver<'a> = Option<&'a mut (dyn FnMut(Bytes) + Send)>;

/// How a call is made and what its caller observes meanwhile.
#[derive(Default)]
pub(crate) struct CallMode<'a> {
    observe: ProgressObserver<'a>,
    /// Receives the replies before the final one of a streaming call.
    chunks: Option<ReceivedChunks>,
    watched: bool,
    tenant_subject: bool,
    /// Whether a fault of the first responder that accepts the request is final.
    once: bool,
}

impl<'a> CallMode<'a> {
    /// Gives the payload of every progress reply to `observe`.
    pub(crate) fn observed(observe: &'a mut (dyn FnMut(Bytes) + Send)) -> Self {
        Self {
            observe: Some(observe),
            ..Self::default()
        }
    }

    /// Requests heartbeats, so that a dead responder is noticed long before the deadline.
    pub(crate) fn watched() -> Self {
        Self {
            watched: true,
            ..Self::default()
        }
    }

    /// Publishes on the subject of the tenant.
    pub(crate) fn on_tenant_subject() -> Self {
        Self {
            tenant_subject: true,
            ..Self::default()
        }
    }

    /// A call with heartbeats, and without a retry after a responder's decision.
    pub(crate) fn once() -> Self {
        Self {
            watched: true,
            once: true,
            ..Self::default()
        }
    }

    /// Whether a responder has started to send a stream, after which the request is never repeated.
    fn is_streaming(&self) -> bool {
        self.chunks.as_ref().is_some_and(ReceivedChunks::has_begun)
    }
}

pub(crate) async fn call_with_retries<'a, C: Call>(
    bus: &'a Bus,
    meta: &'a Meta,
    request: &C,
    mode: CallMode<'a>,
) -> Result<C::Reply, CallError> {
    let started = Instant::now();
    let mut attempt = CallAttempt::new::<C>(bus, meta, request, mode)?;
    let span = attempt.span.clone();
    let result = attempt.run().instrument(span).await;
    let cancel_guard = attempt.finish(&result);
    let result = result.and_then(|payload| {
        C::Reply::decode(payload).map_err(|error| CallError::Reply(ReplyError::Decode(error)))
    });
    let label = match &result {
        Ok(_) => "ok",
        Err(CallError::Fault(_)) => "fault",
        Err(CallError::NoResponder(_)) => "no_responder",
        Err(CallError::Timeout(_)) => "timeout",
        Err(CallError::CircuitOpen(_)) => "circuit_open",
        Err(CallError::TooLarge { .. }) => "too_large",
        Err(CallError::Reply(_)) => "bad_reply",
        Err(CallError::Transport(_)) => "transport",
    };
    bus.inner
        .metrics
        .called(C::AREA, label, started.elapsed().as_secs_f64());
    // Publishes the cancellation when one is due, after the outcome was counted.
    drop(cancel_guard);
    result
}

/// One call under way.
struct CallAttempt<'a> {
    bus: &'a Bus,
    area_name: &'static str,
    area: std::sync::Arc<CircuitBreaker>,
    message: OutgoingMessage,
    /// The span that sends the message; its headers name it.
    span: tracing::Span,
    inbox: Inbox,
    mode: CallMode<'a>,
    until: Instant,
    total: Duration,
    cancel_guard: CancelGuard<'a>,
}

/// The outcome of one attempt.
enum AttemptResult {
    Payload(Bytes),
    Fault(Fault),
    NoResponders,
    Silence,
}

impl<'a> CallAttempt<'a> {
    fn new<C: Call>(
        bus: &'a Bus,
        meta: &'a Meta,
        request: &C,
        mode: CallMode<'a>,
    ) -> Result<Self, CallError> {
        let mut request_headers = meta.headers(&schema_name::<C>());
        if mode.watched {
            request_headers.set(headers::HEARTBEAT_HEADER, "1");
        }
        let mut message = OutgoingMessage {
            subject: if mode.tenant_subject {
                tenant_call_subject::<C>(&meta.tenant)
            } else {
                call_subject::<C>()
            },
            headers: request_headers,
            payload: request.encode_to_vec().into(),
        };
        let span = request_span(&message);
        // All attempts share the span: they are one request to the trace (C-13).
        trace::join_trace(&span, &mut message.headers);
        // The size includes the headers of the trace: the responder measures them too.
        let size = message.size();
        if size > MAX_MESSAGE_BYTES {
            return Err(CallError::TooLarge {
                size,
                limit: MAX_MESSAGE_BYTES,
            });
        }
        let total = meta.deadline.remaining(bus.now_ms());
        if total.is_zero() {
            return Err(CallError::Timeout(message.subject));
        }
        let area = bus.area(C::AREA);
        // This check is last: it may take the only probe of an open circuit, and only the outcome of a call returns it.
        if !area.admit_call() {
            return Err(CallError::CircuitOpen(C::AREA.to_owned()));
        }
        Ok(Self {
            bus,
            area_name: C::AREA,
            area,
            inbox: bus.inner.backend.inbox(),
            cancel_guard: CancelGuard {
                bus,
                area: C::AREA,
                meta,
                armed: false,
                outcome_reported: false,
            },
            message,
            span,
            mode,
            until: Instant::now() + total,
            total,
        })
    }

    /// Repeats the attempt until the outcome is final or the time is used up.
    async fn run(&mut self) -> Result<Bytes, CallError> {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
        let mut attempts = 0;
        loop {
            attempts += 1;
            let last = attempts >= MAX_ATTEMPTS;
            let result = self.send_attempt(last).await?;
            let last = last || self.mode.is_streaming();
            let (delay, failure) = match result {
                AttemptResult::Payload(payload) => return Ok(payload),
                AttemptResult::Fault(fault) => match retry_delay(&fault) {
                    Some(delay) if !last && self.may_repeat(&fault) => {
                        (delay, CallError::Fault(fault))
                    }
                    _ => return Err(CallError::Fault(fault)),
                },
                AttemptResult::NoResponders => {
                    // No responder was reached, so this does not count as an attempt.
                    attempts -= 1;
                    let subject = self.message.subject.clone();
                    (backoff.next_delay(), CallError::NoResponder(subject))
                }
                AttemptResult::Silence => {
                    let failure = CallError::Timeout(self.message.subject.clone());
                    // A responder that should send heartbeats and does not is dead. A responder without heartbeats may
                    // only be slow, so another attempt is made only with at least half of the time left (C-6).
                    if last || (!self.mode.watched && self.remaining() < self.total / 2) {
                        return Err(failure);
                    }
                    (Duration::ZERO, failure)
                }
            };
            // A silent attempt named no cause that could be lost, so another one may use any remaining time.
            let needed = if delay.is_zero() {
                Duration::ZERO
            } else {
                delay + MIN_RETRY_TIME
            };
            if self.remaining() <= needed || !self.area.admit_retry() {
                return Err(failure);
            }
            self.bus.inner.metrics.retried(self.area_name);
            if let Some(payload) = self.pause_before_retry(delay).await? {
                return Ok(payload);
            }
        }
    }

    /// Whether the request may go to another responder after this fault. A call with `once` is repeated only when the
    /// responder is being restarted, because that responder has not handled it.
    fn may_repeat(&self, fault: &Fault) -> bool {
        !self.mode.once || fault.detail == STOPPING_DETAIL
    }

    /// Sends the request once and waits for a reply, to this attempt or an earlier one.
    async fn send_attempt(&mut self, last: bool) -> Result<AttemptResult, CallError> {
        let until = Instant::now() + self.attempt_timeout(last);
        let address = self.inbox.address().to_owned();
        let sent = self
            .bus
            .inner
            .backend
            .publish(Some(&address), &self.message);
        match tokio::time::timeout_at(until, sent).await {
            // From here on a responder may be working on it, so a caller that stops waiting has to send a cancellation
            // (C-9).
            Ok(Ok(())) => self.cancel_guard.arm(),
            // A request that was not sent does not count as an attempt. If it was sent after all, the operation id
            // identifies both as the same (C-1).
            Ok(Err(error)) if error.is_temporary() => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "request was not sent"
                );
                return Ok(AttemptResult::NoResponders);
            }
            Ok(Err(TransportError::TooLarge {
                size,
                limit: Some(limit),
            })) => return Err(CallError::TooLarge { size, limit }),
            Ok(Err(error)) => return Err(CallError::Transport(error)),
            Err(_elapsed) => return Ok(AttemptResult::Silence),
        }
        let result = self.await_reply(until).await?;
        let is_silent = matches!(result, AttemptResult::Silence);
        if is_silent && !self.mode.watched && self.remaining() < self.total / 2 {
            // A busy machine noticed the end of the attempt late. No other attempt follows, so the rest of the time
            // belongs to the reply to this one.
            return self.await_reply(self.until).await;
        }
        Ok(result)
    }

    async fn await_reply(&mut self, until: Instant) -> Result<AttemptResult, CallError> {
        // The server reports a refused publish as an event and not to the publisher, who would wait
        // for the deadline.
        let refused = self.bus.inner.health.refusal_of(&self.message.subject);
        tokio::pin!(refused);
        let mut silence_deadline = self.heartbeat_deadline(until);
        loop {
            let reply = tokio::select! {
                reply = self.inbox.next() => reply,
                () = &mut refused => {
                    let subject = self.message.subject.clone();
                    return Err(CallError::Transport(TransportError::Denied(subject)));
                }
                () = tokio::time::sleep_until(silence_deadline) => return Ok(AttemptResult::Silence),
            };
            let Some(reply) = reply else {
                return Err(CallError::Transport(TransportError::Disconnected));
            };
            if reply.headers.get(headers::PROGRESS_HEADER).is_some() {
                if let Some(chunks) = &mut self.mode.chunks
                    && !chunks.accept(self.bus, &reply, until).await?
                {
                    return Ok(AttemptResult::Silence);
                }
                // Progress extends the wait for the next heartbeat, never the deadline (C-8).
                silence_deadline = self.heartbeat_deadline(until);
                if let Some(observe) = &mut self.mode.observe {
                    observe(reply.payload);
                }
                continue;
            }
            if let Some(chunks) = &self.mode.chunks {
                chunks.check_end(&reply)?;
            }
            return read_reply(reply).map_err(CallError::Reply);
        }
    }

    /// The instant at which the responder counts as dead: when no heartbeat has arrived, or the time of this attempt is
    /// over.
    fn heartbeat_deadline(&self, until: Instant) -> Instant {
        if self.mode.watched {
            until.min(Instant::now() + HEARTBEAT_TIMEOUT)
        } else {
            until
        }
    }

    /// Waits before the next attempt; a result of an earlier one ends the wait.
    async fn pause_before_retry(&mut self, delay: Duration) -> Result<Option<Bytes>, CallError> {
        if delay.is_zero() {
            return Ok(None);
        }
        let until = Instant::now() + delay;
        loop {
            match self.await_reply(until).await? {
                AttemptResult::Payload(payload) => return Ok(Some(payload)),
                AttemptResult::Silence => return Ok(None),
                // The failure of an earlier attempt is already recorded; only a result ends the wait early.
                AttemptResult::Fault(_) | AttemptResult::NoResponders => {}
            }
        }
    }

    /// Time for the next attempt: two fifths of the total if another attempt may follow, the area usually responds well
    /// within that time, the responder sends no heartbeats, and at least half of the total remains for another attempt
    /// (C-6). Otherwise all remaining time.
    fn attempt_timeout(&self, last: bool) -> Duration {
        let remaining_time = self.remaining();
        let share = self.total * 2 / 5;
        if last
            || self.mode.watched
            || remaining_time.saturating_sub(share) < self.total / 2
            || !self.area.responds_well_within(share)
        {
            remaining_time
        } else {
            share
        }
    }

    fn remaining(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Reports the outcome to the circuit breaker. The returned guard cancels responders that may
    /// still work on the request.
    fn finish(self, result: &Result<Bytes, CallError>) -> CancelGuard<'a> {
        let is_settled = match result {
            Ok(_) => {
                self.area
                    .record_response(self.total.saturating_sub(self.remaining()));
                true
            }
            // The area is alive, but such failures arrive faster than results, so they must not shorten the next first
            // attempt. A subject without responders fails fast by itself and needs no circuit.
            Err(CallError::Fault(_) | CallError::NoResponder(_) | CallError::Reply(_)) => {
                self.area.record_response(Duration::ZERO);
                true
            }
            Err(CallError::Timeout(_)) => {
                self.area.record_timeout();
                false
            }
            Err(
                CallError::CircuitOpen(_) | CallError::TooLarge { .. } | CallError::Transport(_),
            ) => {
                self.area.release_probe();
                true
            }
        };
        let mut cancel_guard = self.cancel_guard;
        cancel_guard.outcome_reported = true;
        if is_settled {
            cancel_guard.disarm();
        }
        cancel_guard
    }
}

fn request_span(message: &OutgoingMessage) -> tracing::Span {
    tracing::info_span!(
        "request",
        otel.name = %format_args!("request {}", message.subject),
        otel.kind = "client",
        messaging.system = "nats",
        messaging.operation.r#type = "request",
        messaging.destination.name = message.subject,
        dray.operation_id = message.headers.get(headers::OPERATION_HEADER).unwrap_or_default(),
    )
}

/// Reads a final reply.
fn read_reply(reply: CoreMessage) -> Result<AttemptResult, ReplyError> {
    // After a lost connection the request or its reply may be lost; a repetition is safe,
    // because calls are idempotent.
    if matches!(reply.status, Some(NO_RESPONDERS | CONNECTION_LOST)) {
        return Ok(AttemptResult::NoResponders);
    }
    match reply.headers.get(headers::OUTCOME_HEADER) {
        Some("ok") => Ok(AttemptResult::Payload(reply.payload)),
        Some("fault") => v1::Fault::decode(reply.payload)
            .map(|fault| AttemptResult::Fault(fault.into()))
            .map_err(ReplyError::Decode),
        _ => Err(ReplyError::Outcome),
    }
}

/// The delay before another attempt after a fault; `None` without retry advice in it, and after a failure that lasts
/// longer than [`MAX_UNAVAILABLE_DELAY`] (C-6).
fn retry_delay(fault: &Fault) -> Option<Duration> {
    match (fault.code, fault.retry) {
        (FaultCode::Unavailable, RetryAdvice::After(delay)) if delay > MAX_UNAVAILABLE_DELAY => {
            None
        }
        (FaultCode::RateLimited | FaultCode::Unavailable, RetryAdvice::After(delay)) => {
            // Jitter, so that callers that were refused together do not retry together.
            Some(delay + random_between(Duration::ZERO, Duration::from_millis(50)))
        }
        _ => None,
    }
}
