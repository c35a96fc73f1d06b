//! A durable pull consumer in process: hand out, wait for the acknowledgement, hand out again.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::{AckAction, PulledMessage};
use super::log::StreamLog;
use super::{LocalBackend, ServerState};
use crate::error::TransportError;
use crate::topology::{ConsumerSpec, ConsumerState};

/// The state of one durable consumer.
#[derive(Debug)]
pub(super) struct DurableConsumer {
    pub(super) spec: ConsumerSpec,
    next: u64,
    /// Messages that were delivered and not acknowledged, with the time of redelivery and the number of deliveries.
    pending: BTreeMap<u64, PendingDelivery>,
    last_delivery_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct PendingDelivery {
    redeliver_at: Instant,
    delivered: u64,
    /// Whether a worker still has the message. A returned message waits for its delay and cannot be extended.
    with_worker: bool,
}

impl DurableConsumer {
    pub(super) fn state(&self, log: &StreamLog) -> ConsumerState {
        let mut pending = 0;
        let mut from = self.next;
        while let Some(stored) = log.next(&self.spec.filter, from) {
            pending += 1;
            from = stored.sequence + 1;
        }
        ConsumerState {
            spec: self.spec.clone(),
            pending,
            ack_pending: self.pending.len() as u64,
            ack_floor: self
                .pending
                .first_key_value()
                // Everything up to the floor is acknowledged; messages of other filters in
                // between count as acknowledged.
                .map_or(self.next.saturating_sub(1), |(&sequence, _)| sequence - 1),
            last_delivery_ms: self.last_delivery_ms,
        }
    }

    /// When the earliest redelivery is due.
    fn wakes_at(&self) -> Option<Instant> {
        self.pending
            .values()
            .map(|pending| pending.redeliver_at)
            .min()
    }
}

impl ServerState {
    pub(super) fn add_consumer(&mut self, spec: ConsumerSpec) -> Result<(), TransportError> {
        if !self.logs.contains_key(&spec.stream) {
            return Err(TransportError::NotProvisioned(spec.stream));
        }
        let consumers = self.consumers.entry(spec.stream.clone()).or_default();
        match consumers.get_mut(&spec.durable) {
            // Creating a consumer again changes its settings and keeps its progress (F-6).
            Some(consumer) => consumer.spec = spec,
            None => {
                consumers.insert(
                    spec.durable.clone(),
                    DurableConsumer {
                        spec,
                        next: 1,
                        pending: BTreeMap::new(),
                        last_delivery_ms: None,
                    },
                );
            }
        }
        Ok(())
    }

    /// The state of a consumer; `None` where the stream or the consumer is missing.
    pub(super) fn consumer_state(
        &mut self,
        stream: &str,
        durable: &str,
        now_ms: u64,
    ) -> Option<ConsumerState> {
        let log = self.logs.get_mut(stream)?;
        log.expire(now_ms);
        let consumer = self.consumers.get(stream)?.get(durable)?;
        Some(consumer.state(log))
    }

    /// Up to `count` messages that may be handed out now.
    fn hand_out(
        &mut self,
        stream: &str,
        durable: &str,
        count: usize,
        now_ms: u64,
    ) -> Result<Vec<(super::StoredMessage, u64)>, TransportError> {
        let missing = || TransportError::NotProvisioned(format!("{stream}/{durable}"));
        let log = self.logs.get_mut(stream).ok_or_else(missing)?;
        log.expire(now_ms);
        let consumers = self.consumers.get_mut(stream);
        let consumer = consumers.and_then(|consumers| consumers.get_mut(durable));
        let consumer = consumer.ok_or_else(missing)?;
        let (handed, exhausted) = consumer.next_batch(log, count);
        if !handed.is_empty() {
            consumer.last_delivery_ms = Some(now_ms);
        }
        for (sequence, deliveries) in exhausted {
            let subject = format!("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{stream}.{durable}");
            self.advise(
                subject,
                &json!({
                    "type": "io.nats.jetstream.advisory.v1.max_deliver",
                    "stream": stream,
                    "consumer": durable,
                    "stream_seq": sequence,
                    "deliveries": deliveries,
                }),
                now_ms,
            );
        }
        Ok(handed)
    }
}

type DeliveredMessages = Vec<(super::StoredMessage, u64)>;
type ExhaustedMessages = Vec<(u64, u64)>;

impl DurableConsumer {
    /// Due redeliveries first, then messages that were never delivered, as long as `max_ack_pending` allows.
    fn next_batch(
        &mut self,
        log: &StreamLog,
        count: usize,
    ) -> (DeliveredMessages, ExhaustedMessages) {
        let now = Instant::now();
        let mut handed = Vec::new();
        let mut exhausted = Vec::new();
        let due: Vec<_> = self
            .pending
            .iter()
            .filter(|(_, pending)| pending.redeliver_at <= now)
            .map(|(&sequence, pending)| (sequence, pending.delivered))
            .collect();
        for (sequence, delivered) in due {
            if handed.len() >= count {
                return (handed, exhausted);
            }
            // The stream dropped the message by age or size; the server forgets its delivery as well.
            let Some(stored) = log.message_at(sequence) else {
                self.pending.remove(&sequence);
                continue;
            };
            // The server notices that the limit is reached only when the next delivery would be made (F-9). 0 and -1
            // mean no limit.
            if self.spec.max_deliver > 0 && delivered >= self.spec.max_deliver.unsigned_abs() {
                self.pending.remove(&sequence);
                exhausted.push((sequence, delivered));
                continue;
            }
            handed.push((stored, self.record_delivery(sequence, delivered + 1, now)));
        }
        while handed.len() < count && (self.pending.len() as u64) < self.spec.max_ack_pending {
            let Some(stored) = log.next(&self.spec.filter, self.next) else {
                break;
            };
            self.next = stored.sequence + 1;
            let delivered = self.record_delivery(stored.sequence, 1, now);
            handed.push((stored, delivered));
        }
        (handed, exhausted)
    }

    fn record_delivery(&mut self, sequence: u64, delivered: u64, now: Instant) -> u64 {
        self.pending.insert(
            sequence,
            PendingDelivery {
                redeliver_at: now + self.spec.ack_wait,
                delivered,
                with_worker: true,
            },
        );
        delivered
    }

    fn acknowledge(&mut self, sequence: u64, ack: AckAction) {
        let Some(pending) = self.pending.get_mut(&sequence) else {
            return;
        };
        match ack {
            AckAction::Done | AckAction::Term => {
                self.pending.remove(&sequence);
            }
            AckAction::Redeliver(delay) => {
                pending.redeliver_at = Instant::now() + delay;
                pending.with_worker = false;
            }
            // A heartbeat of a worker that gave the message back already must not shorten or lengthen its delay.
            AckAction::Progress if pending.with_worker => {
                pending.redeliver_at = Instant::now() + self.spec.ack_wait;
            }
            AckAction::Progress => {}
        }
    }
}

/// Pulls from one durable.
#[derive(Debug)]
pub(crate) struct LocalPuller {
    local: LocalBackend,
    stream: String,
    spec: ConsumerSpec,
}

impl LocalBackend {
    pub(crate) fn puller(
        &self,
        stream: &str,
        durable: &str,
    ) -> Result<LocalPuller, TransportError> {
        let spec = self
            .consumer_now(stream, durable)
            .ok_or_else(|| TransportError::NotProvisioned(format!("{stream}/{durable}")))?
            .spec;
        Ok(LocalPuller {
            local: self.clone(),
            stream: stream.to_owned(),
            spec,
        })
    }
}

impl LocalPuller {
    pub(crate) const fn ack_wait(&self) -> Duration {
        self.spec.ack_wait
    }

    pub(crate) fn max_batch(&self) -> usize {
        usize::try_from(self.spec.max_batch).unwrap_or(usize::MAX)
    }

    pub(crate) async fn fetch(
        &mut self,
        count: usize,
        wait: Duration,
        stop: &CancellationToken,
    ) -> Result<Vec<PulledMessage>, TransportError> {
        let mut changed = self.local.server.changed.subscribe();
        let until = Instant::now() + wait;
        loop {
            // The state is marked before the fetch, so that `changed` below reports a change during the fetch, and the
            // loop fetches again.
            changed.mark_unchanged();
            let fetched = self.local.faults.step(|| self.try_fetch(count)).await;
            let (pulled, wakes_at) = fetched?;
            if !pulled.is_empty() || stop.is_cancelled() || Instant::now() >= until {
                return Ok(pulled);
            }
            // A redelivery becomes due by time alone, without a change of the log.
            let next = wakes_at.map_or(until, |at| at.min(until));
            tokio::select! {
                // One more fetch follows; the loop then ends with its messages.
                () = stop.cancelled() => {}
                () = tokio::time::sleep_until(next) => {}
                result = changed.changed() => {
                    if result.is_err() {
                        return Err(TransportError::Disconnected);
                    }
                }
            }
        }
    }

    fn try_fetch(
        &self,
        count: usize,
    ) -> Result<(Vec<PulledMessage>, Option<Instant>), TransportError> {
        let durable = &self.spec.durable;
        let now_ms = self.local.server.clock.now_ms();
        let mut state = self.local.server.lock();
        let handed = state.hand_out(&self.stream, durable, count.min(self.max_batch()), now_ms)?;
        let wakes_at = state
            .consumers
            .get(&self.stream)
            .and_then(|consumers| consumers.get(durable))
            .and_then(DurableConsumer::wakes_at);
        drop(state);
        let pulled = handed
            .into_iter()
            .map(|(message, delivered)| PulledMessage {
                acker: super::super::Acker::Local(LocalAcker {
                    local: self.local.clone(),
                    stream: self.stream.clone(),
                    durable: durable.clone(),
                    sequence: message.sequence,
                    delivered,
                }),
                message,
                delivered,
            })
            .collect();
        Ok((pulled, wakes_at))
    }
}

/// Acknowledges one delivery, also one that was handed out again meanwhile.
#[derive(Clone, Debug)]
pub(crate) struct LocalAcker {
    local: LocalBackend,
    stream: String,
    durable: String,
    sequence: u64,
    delivered: u64,
}

impl LocalAcker {
    pub(crate) async fn send(&self, ack: AckAction) -> Result<(), TransportError> {
        self.local
            .faults
            .step(|| {
                self.send_now(ack);
                Ok(())
            })
            .await
    }

    fn send_now(&self, ack: AckAction) {
        let now_ms = self.local.server.clock.now_ms();
        let mut state = self.local.server.lock();
        let consumer = state
            .consumers
            .get_mut(&self.stream)
            .and_then(|consumers| consumers.get_mut(&self.durable));
        if let Some(consumer) = consumer {
            consumer.acknowledge(self.sequence, ack);
        }
        // The server publishes this advisory for every `+TERM`, and a stream keeps it for the sweeper (F-9).
        if ack == AckAction::Term {
            let subject = format!(
                "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.{}.{}",
                self.stream, self.durable
            );
            state.advise(
                subject,
                &json!({
                    "type": "io.nats.jetstream.advisory.v1.terminated",
                    "stream": self.stream,
                    "consumer": self.durable,
                    "stream_seq": self.sequence,
                    "deliveries": self.delivered,
                }),
                now_ms,
            );
        }
        drop(state);
        // Waiting pulls can continue when a message is returned without a delay, or when the pending count falls below
        // `max_ack_pending`.
        self.local.server.wake();
    }

    pub(crate) async fn confirm(
        &self,
        ack: AckAction,
        _wait: Duration,
    ) -> Result<(), TransportError> {
        self.send(ack).await
    }
}
