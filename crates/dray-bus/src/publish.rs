//! Publishes into streams: one id per message, retries until the deadline, backpressure (messaging-reliability 5).

use std::time::Duration;

use bytes::Bytes;
use dray_proto::contract::{
    audit_subject, event_step, event_subject, schema_name, work_step, work_subject,
};
use dray_proto::{Audit, Event, MAX_MESSAGE_BYTES, Work};
use dray_types::Deadline;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::backend::{OutgoingMessage, StreamAck};
use crate::backoff::{Backoff, random_between};
use crate::bus_core::Bus;
use crate::cloud_event;
use crate::error::{PublishError, TransportError};
use crate::headers::{self, MessageHeaders};
use crate::ids;
use crate::meta::Meta;
use crate::topology::{AUDIT_STREAM, EVENT_STREAM, WORK_STREAM};
use crate::trace;

/// Longest wait for one acknowledgement.
const ACK_WAIT: Duration = Duration::from_secs(5);
/// How long a publish is repeated on a full or missing stream before the failure is reported.
const FULL_STREAM_TIMEOUT: Duration = Duration::from_secs(15);
/// Shortest time for a publish, even when the deadline is near or has passed.
const MIN_PUBLISH_TIMEOUT: Duration = Duration::from_secs(10);

/// Acknowledgement of the stream: the message is stored, but a loss of power may still lose it (F-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishReceipt {
    /// Whether the stream had the same id already and kept the first.
    pub duplicate: bool,
    /// Sequence of the stored message in the stream.
    pub sequence: u64,
}

impl Bus {
    /// Publishes work. The same operation published again within the stream's window is the same message.
    ///
    /// # Errors
    /// See [`PublishError`]; after `Unconfirmed` the message may be stored or not, and publishing again with the
    /// same operation id is safe.
    pub async fn publish_work<W: Work>(
        &self,
        meta: &Meta,
        work: &W,
    ) -> Result<PublishReceipt, PublishError> {
        let subject = work_subject(work, &meta.tenant);
        let id = ids::message_id(&meta.tenant.token(), &meta.operation, &work_step(work), 0);
        self.publish_encoded(
            WORK_STREAM,
            meta,
            subject,
            &schema_name::<W>(),
            &id,
            work.encode_to_vec().into(),
        )
        .await
    }

    /// Publishes an event. One operation has at most one event of a kind; see [`Bus::publish_event_part`].
    ///
    /// # Errors
    /// See [`PublishError`].
    pub async fn publish_event<E: Event>(
        &self,
        meta: &Meta,
        event: &E,
    ) -> Result<PublishReceipt, PublishError> {
        self.publish_event_part(meta, "", event).await
    }

    /// Publishes one of several events of a kind of one operation; `part` distinguishes them, in printable ASCII
    /// without blanks.
    ///
    /// # Errors
    /// See [`PublishError`].
    pub async fn publish_event_part<E: Event>(
        &self,
        meta: &Meta,
        part: &str,
        event: &E,
    ) -> Result<PublishReceipt, PublishError> {
        let subject = event_subject::<E>(&meta.tenant);
        let step = match part {
            "" => event_step::<E>(),
            part => format!("{}.{part}", event_step::<E>()),
        };
        let id = ids::message_id(&meta.tenant.token(), &meta.operation, &step, 0);
        self.publish_encoded(
            EVENT_STREAM,
            meta,
            subject,
            &schema_name::<E>(),
            &id,
            event.encode_to_vec().into(),
        )
        .await
    }

    /// Publishes an audit event. Every call of this method is a separate event; an operation may have several.
    ///
    /// # Errors
    /// See [`PublishError`].
    pub async fn publish_audit<A: Audit>(
        &self,
        meta: &Meta,
        audit: &A,
    ) -> Result<PublishReceipt, PublishError> {
        // This is the only id with a random part: equal audit events are separate facts and must not be merged. Retries
        // of one publish keep the id.
        let step = format!(
            "{}.{}.{:032x}",
            A::AREA,
            A::PAST_PARTICIPLE,
            rand::random::<u128>()
        );
        self.publish_audit_step(meta, audit, &step).await
    }

    /// Publishes an audit event that several processes may publish: under one operation, one of them is stored within
    /// the duplicate window of the stream, half an hour.
    ///
    /// # Errors
    /// See [`PublishError`].
    pub async fn publish_audit_once<A: Audit>(
        &self,
        meta: &Meta,
        audit: &A,
    ) -> Result<PublishReceipt, PublishError> {
        let step = format!("{}.{}", A::AREA, A::PAST_PARTICIPLE);
        self.publish_audit_step(meta, audit, &step).await
    }

    async fn publish_audit_step<A: Audit>(
        &self,
        meta: &Meta,
        audit: &A,
        step: &str,
    ) -> Result<PublishReceipt, PublishError> {
        let subject = audit_subject::<A>(&meta.tenant);
        let id = ids::message_id(&meta.tenant.token(), &meta.operation, step, 0);
        self.publish_encoded(
            AUDIT_STREAM,
            meta,
            subject,
            &schema_name::<A>(),
            &id,
            audit.encode_to_vec().into(),
        )
        .await
    }

    pub(crate) async fn publish_encoded(
        &self,
        stream: &'static str,
        meta: &Meta,
        subject: String,
        schema: &str,
        id: &str,
        payload: Bytes,
    ) -> Result<PublishReceipt, PublishError> {
        let mut message_headers = MessageHeaders::new();
        message_headers.append(headers::MESSAGE_ID, id);
        for (name, value) in meta.headers(schema).iter() {
            message_headers.append(name, value);
        }
        if stream == EVENT_STREAM {
            cloud_event::append_attributes(
                &mut message_headers,
                schema,
                id,
                &meta.tenant,
                &meta.operation,
            );
        }
        let message = OutgoingMessage {
            subject,
            headers: message_headers,
            payload,
        };
        self.publish_message(stream, message, MAX_MESSAGE_BYTES, meta.deadline)
            .await
    }

    /// Publishes a finished message, whose id is in its headers, until it is acknowledged or the deadline passed.
    pub(crate) async fn publish_message(
        &self,
        stream: &'static str,
        mut message: OutgoingMessage,
        limit: usize,
        deadline: Deadline,
    ) -> Result<PublishReceipt, PublishError> {
        let span = send_span(&message);
        // This comes before the size is measured, because it may add headers.
        trace::join_trace(&span, &mut message.headers);
        let size = message.size();
        if size > limit {
            return Err(PublishError::TooLarge {
                size,
                limit: Some(limit),
            });
        }
        let started = Instant::now();
        let wait = deadline.remaining(self.now_ms()).max(MIN_PUBLISH_TIMEOUT);
        let result = self
            .publish_until(stream, message, started + wait)
            .instrument(span)
            .await;
        let label = match &result {
            Ok(published) if published.duplicate => "duplicate",
            Ok(_) => "ok",
            Err(PublishError::Unconfirmed { .. }) => "timeout",
            Err(PublishError::Busy(_)) => "full",
            Err(
                PublishError::TooLarge { .. }
                | PublishError::NoStream(_)
                | PublishError::WrongStream { .. }
                | PublishError::Denied(_)
                | PublishError::Refused { .. },
            ) => "error",
        };
        self.inner
            .metrics
            .published(label, started.elapsed().as_secs_f64());
        result
    }

    async fn publish_until(
        &self,
        stream: &'static str,
        message: OutgoingMessage,
        until: Instant,
    ) -> Result<PublishReceipt, PublishError> {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        let mut retry_limit = RetryLimit::new(until);
        loop {
            let error = match self.publish_once(&message, until).await {
                Ok(acknowledged) => return accepted_receipt(stream, acknowledged),
                Err(error) => error,
            };
            let delay = match &error {
                // Longer pauses than after a timeout: a full stream recovers when messages expire or an operator
                // acts, not through retries (5.3).
                TransportError::Full => {
                    random_between(Duration::from_secs(1), Duration::from_secs(10))
                }
                TransportError::NoResponders
                | TransportError::NotProvisioned(_)
                | TransportError::TimedOut
                | TransportError::Disconnected
                // The message may have been stored; because of its id, a second copy is a duplicate.
                | TransportError::Other(_) => backoff.next_delay(),
                TransportError::Denied(_)
                | TransportError::TooLarge { .. }
                | TransportError::WrongRevision
                | TransportError::Header(_) => return Err(publish_error(&message, error)),
            };
            let now = Instant::now();
            if now + delay >= retry_limit.after(&error, now) {
                return Err(publish_error(&message, error));
            }
            tracing::warn!(
                subject = %message.subject,
                error = &error as &dyn std::error::Error,
                "publish is repeated with the same id"
            );
            tokio::time::sleep(delay).await;
        }
    }

    async fn publish_once(
        &self,
        message: &OutgoingMessage,
        until: Instant,
    ) -> Result<StreamAck, TransportError> {
        let attempt = async {
            // The semaphore is never closed, so that a failure to acquire cannot happen.
            let _permit = self.inner.publishes.acquire().await;
            self.inner.backend.store(message, ACK_WAIT).await
        };
        // The timeout includes the wait for the permit, which counts towards the deadline.
        match tokio::time::timeout_at(until, attempt).await {
            Ok(result) => result,
            Err(_elapsed) => Err(TransportError::TimedOut),
        }
    }
}

/// Until when a publish is repeated.
struct RetryLimit {
    until: Instant,
    /// Since when the stream has been full or missing. Another failure ends this time, because it says nothing about the
    /// stream: a server that was away for long may accept connections before its streams.
    refused_since: Option<Instant>,
}

impl RetryLimit {
    fn new(until: Instant) -> Self {
        Self {
            until,
            refused_since: None,
        }
    }

    /// The end of the retries after this failure.
    fn after(&mut self, error: &TransportError, now: Instant) -> Instant {
        match error {
            // A missing stream is a mistake of the configuration, but it may be provisioned in these seconds.
            TransportError::Full
            | TransportError::NoResponders
            | TransportError::NotProvisioned(_) => {
                let since = *self.refused_since.get_or_insert(now);
                self.until.min(since + FULL_STREAM_TIMEOUT)
            }
            _ => {
                self.refused_since = None;
                self.until
            }
        }
    }
}

fn accepted_receipt(
    stream: &'static str,
    acknowledged: StreamAck,
) -> Result<PublishReceipt, PublishError> {
    // Another stream covers the subject: the message is stored where its readers do not look.
    if acknowledged.stream != stream {
        return Err(PublishError::WrongStream {
            expected: stream,
            found: acknowledged.stream,
        });
    }
    Ok(PublishReceipt {
        duplicate: acknowledged.duplicate,
        sequence: acknowledged.sequence,
    })
}

fn publish_error(message: &OutgoingMessage, error: TransportError) -> PublishError {
    let subject = message.subject.clone();
    match error {
        TransportError::Full => PublishError::Busy(subject),
        TransportError::NoResponders | TransportError::NotProvisioned(_) => {
            PublishError::NoStream(subject)
        }
        TransportError::Denied(_) => PublishError::Denied(subject),
        TransportError::TooLarge { size, limit } => PublishError::TooLarge { size, limit },
        source @ (TransportError::WrongRevision | TransportError::Header(_)) => {
            PublishError::Refused { subject, source }
        }
        source @ (TransportError::TimedOut
        | TransportError::Disconnected
        | TransportError::Other(_)) => PublishError::Unconfirmed { subject, source },
    }
}

fn send_span(message: &OutgoingMessage) -> tracing::Span {
    let header = |name| message.headers.get(name).unwrap_or_default();
    // The last token, the tenant, is removed: span names must come from a small set (17).
    let template = message
        .subject
        .rsplit_once('.')
        .map_or(message.subject.as_str(), |(template, _)| template);
    tracing::info_span!(
        "send",
        otel.name = %format_args!("send {template}"),
        otel.kind = "producer",
        messaging.system = "nats",
        messaging.destination.name = template,
        messaging.message.id = header(headers::MESSAGE_ID),
        dray.operation_id = header(headers::OPERATION_HEADER),
    )
}

#[cfg(test)]
mod tests {
    use dray_types::{Fault, FaultCode};

    use super::*;

    #[test]
    fn a_stream_counts_as_missing_only_from_its_first_refusal() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut limit = RetryLimit::new(at(120));
        // The server is away for longer than a missing stream is waited for.
        assert_eq!(limit.after(&TransportError::Disconnected, at(20)), at(120));
        assert_eq!(limit.after(&TransportError::NoResponders, at(21)), at(36));
        assert_eq!(limit.after(&TransportError::Full, at(30)), at(36));
        assert_eq!(limit.after(&TransportError::TimedOut, at(35)), at(120));
        assert_eq!(limit.after(&TransportError::Full, at(110)), at(120));
    }

    #[test]
    fn only_a_message_that_may_be_stored_is_unconfirmed() {
        let message = OutgoingMessage {
            subject: "dray.event.toolcall.v1.done.acme".to_owned(),
            headers: MessageHeaders::new(),
            payload: Bytes::new(),
        };
        for (error, code) in [
            (TransportError::TimedOut, FaultCode::Unavailable),
            (TransportError::Disconnected, FaultCode::Unavailable),
            (TransportError::other("odd"), FaultCode::Unavailable),
            (TransportError::WrongRevision, FaultCode::Internal),
            (
                TransportError::Header("Dray-Step".to_owned()),
                FaultCode::Internal,
            ),
        ] {
            let text = error.to_string();
            let fault = Fault::from(publish_error(&message, error));
            assert_eq!(fault.code, code, "{text}");
        }
    }
}
