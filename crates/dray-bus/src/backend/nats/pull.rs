//! Pulls from durables and acknowledges messages.

use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::AckKind;
use async_nats::jetstream::consumer::{Consumer, pull};
use futures_util::StreamExt as _;
use tokio_util::sync::CancellationToken;

use super::super::{AckAction, PulledMessage, StoredMessage};
use super::{NatsBackend, headers_of, unix_millis};
use crate::error::TransportError;

/// How long after a stop a delivery in transit is still received, to be returned to the server.
const STOP_LINGER: Duration = Duration::from_millis(100);
/// Longest wait for messages that are available now, and for the end of a request.
const IMMEDIATE_TIMEOUT: Duration = Duration::from_secs(2);

/// Pulls from one durable.
#[derive(Debug)]
pub(crate) struct NatsPuller {
    consumer: Consumer<pull::Config>,
}

impl NatsBackend {
    pub(crate) async fn puller(
        &self,
        stream: &str,
        durable: &str,
    ) -> Result<NatsPuller, TransportError> {
        let found = self.find_consumer(stream, durable).await?;
        let consumer =
            found.ok_or_else(|| TransportError::NotProvisioned(format!("{stream}/{durable}")))?;
        Ok(NatsPuller { consumer })
    }
}

impl NatsPuller {
    pub(crate) fn ack_wait(&self) -> Duration {
        self.consumer.cached_info().config.ack_wait
    }

    pub(crate) fn max_batch(&self) -> usize {
        match usize::try_from(self.consumer.cached_info().config.max_batch) {
            // 0 and -1 mean that the server sets no limit.
            Ok(0) | Err(_) => usize::MAX,
            Ok(limit) => limit,
        }
    }

    pub(crate) async fn fetch(
        &mut self,
        count: usize,
        wait: Duration,
        stop: &CancellationToken,
    ) -> Result<Vec<PulledMessage>, TransportError> {
        // `fetch` sets `no_wait`: the server sends the available messages and ends the request without waiting.
        let available = self
            .consumer
            .fetch()
            .max_messages(count.min(self.max_batch()))
            .messages()
            .await
            .map_err(TransportError::other)?;
        // A server whose consumer has reached `max_ack_pending` does not respond to this request.
        let pulled = match collect_batch(available, stop, IMMEDIATE_TIMEOUT).await {
            Err(TransportError::TimedOut) => Vec::new(),
            other => other?,
        };
        if !pulled.is_empty() || stop.is_cancelled() {
            return Ok(pulled);
        }
        let next = self
            .consumer
            .batch()
            // One message ends the wait; the next `fetch` gets the others that arrived with it without waiting.
            .max_messages(1)
            .expires(wait)
            .messages()
            .await
            .map_err(TransportError::other)?;
        collect_batch(next, stop, wait + IMMEDIATE_TIMEOUT).await
    }
}

async fn collect_batch(
    mut batch: pull::Batch,
    stop: &CancellationToken,
    limit: Duration,
) -> Result<Vec<PulledMessage>, TransportError> {
    let mut pulled = Vec::new();
    loop {
        let next = tokio::select! {
            // Messages that have arrived are returned first; otherwise, after a stop or a timeout, they would be
            // redelivered only after `ack_wait`.
            biased;
            next = batch.next() => next,
            () = tokio::time::sleep(limit) => return check_quiet_end(pulled),
            () = stop.cancelled() => {
                // Messages that the server has already sent are received, so that they can be returned to it
                // immediately.
                tokio::time::timeout(STOP_LINGER, batch.next()).await.ok().flatten()
            }
        };
        match next {
            Some(Ok(message)) => pulled.push(pulled_message(message)?),
            // If messages have arrived, an error is not reported: they must be handled, and the next
            // fetch gets the same error.
            Some(Err(error)) if pulled.is_empty() => return Err(TransportError::Other(error)),
            Some(Err(_)) | None => return Ok(pulled),
        }
    }
}

/// Handles a request that the server did not close: the server counts as unavailable unless messages arrived.
fn check_quiet_end(pulled: Vec<PulledMessage>) -> Result<Vec<PulledMessage>, TransportError> {
    if pulled.is_empty() {
        return Err(TransportError::TimedOut);
    }
    Ok(pulled)
}

fn pulled_message(message: jetstream::Message) -> Result<PulledMessage, TransportError> {
    let info = message.info().map_err(TransportError::Other)?;
    // A negative count is not possible by the protocol; 1 makes it a first delivery, which the ledger corrects.
    let delivered = u64::try_from(info.delivered).unwrap_or(1);
    let stored = read_stored(&message, info.stream_sequence, unix_millis(info.published));
    let (_, acker) = message.split();
    Ok(PulledMessage {
        message: stored,
        delivered,
        acker: super::super::Acker::Nats(NatsAcker {
            inner: std::sync::Arc::new(acker),
        }),
    })
}

fn read_stored(message: &jetstream::Message, sequence: u64, time_ms: u64) -> StoredMessage {
    StoredMessage {
        sequence,
        subject: message.subject.to_string(),
        headers: headers_of(message.headers.as_ref()),
        payload: message.payload.clone(),
        time_ms,
    }
}

/// Acknowledges one delivery; clones acknowledge the same one.
#[derive(Clone)]
pub(crate) struct NatsAcker {
    inner: std::sync::Arc<jetstream::message::Acker>,
}

impl std::fmt::Debug for NatsAcker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NatsAcker").finish_non_exhaustive()
    }
}

impl NatsAcker {
    pub(crate) async fn send(&self, ack: AckAction) -> Result<(), TransportError> {
        self.inner
            .ack_with(ack_kind(ack))
            .await
            .map_err(TransportError::Other)
    }

    pub(crate) async fn confirm(
        &self,
        ack: AckAction,
        wait: Duration,
    ) -> Result<(), TransportError> {
        // The confirmation proves that the server received it, not that it survives a crash of the server (F-2b).
        let confirmed = self.inner.double_ack_with(ack_kind(ack));
        match tokio::time::timeout(wait, confirmed).await {
            Ok(result) => result.map_err(TransportError::Other),
            Err(_elapsed) => Err(TransportError::TimedOut),
        }
    }
}

fn ack_kind(ack: AckAction) -> AckKind {
    match ack {
        AckAction::Done => AckKind::Ack,
        // The server delivers a message again immediately after a plain `-NAK`; the client writes every `Some` as a
        // delay in nanoseconds.
        AckAction::Redeliver(delay) if delay.is_zero() => AckKind::Nak(None),
        AckAction::Redeliver(delay) => AckKind::Nak(Some(delay)),
        AckAction::Progress => AckKind::Progress,
        AckAction::Term => AckKind::Term,
    }
}
