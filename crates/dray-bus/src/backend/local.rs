//! The bus inside one process: the behaviour of a NATS server with JetStream, in memory.
//!
//! It stores serialized messages and applies the server's limits. All data is lost when the process ends.

mod consumer;
mod core;
mod faults;
mod log;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use dray_types::Clock;
use tokio::sync::watch;

use self::consumer::DurableConsumer;
pub(crate) use self::consumer::{LocalAcker, LocalPuller};
use self::core::SubjectRoutes;
pub(crate) use self::core::{LocalInbox, LocalSubscription};
use self::faults::FaultInjector;
#[cfg(test)]
pub(crate) use self::faults::{FaultPlan, InjectedFault};
use self::log::StreamLog;
use super::{CursorStart, KeyEntry, OutgoingMessage, StoredMessage, StreamAck};
use crate::error::TransportError;
use crate::topology::{ConsumerSpec, ConsumerState, StreamSpec, StreamState};

/// The server's default `max_payload` (F-13).
const MAX_PAYLOAD: usize = 1024 * 1024;

/// A separate bus in this process; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct LocalBackend {
    server: Arc<LocalServer>,
    faults: FaultInjector,
}

#[derive(Debug)]
struct LocalServer {
    state: Mutex<ServerState>,
    /// Changes whenever a log grows or a delivery is returned.
    changed: watch::Sender<u64>,
    clock: Clock,
}

#[derive(Debug, Default)]
struct ServerState {
    routes: SubjectRoutes,
    /// Logs by the name of the stream.
    logs: BTreeMap<String, StreamLog>,
    /// Consumers by the names of the stream and of the durable.
    consumers: BTreeMap<String, BTreeMap<String, DurableConsumer>>,
}

impl LocalServer {
    fn lock(&self) -> MutexGuard<'_, ServerState> {
        // No code under this lock calls back or awaits; a poisoned state is still the state that a server would have.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        self.changed
            .send_modify(|count| *count = count.wrapping_add(1));
    }
}

impl LocalBackend {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            server: Arc::new(LocalServer {
                state: Mutex::default(),
                changed: watch::Sender::new(0),
                clock,
            }),
            faults: FaultInjector::default(),
        }
    }

    /// A client of the same bus whose requests fail as the plan says.
    #[cfg(test)]
    pub(crate) fn faulty(&self, plan: &Arc<FaultPlan>) -> Self {
        Self {
            server: Arc::clone(&self.server),
            faults: FaultInjector::planned(plan),
        }
    }

    #[expect(clippy::unused_async, reason = "same shape as the other backend")]
    pub(crate) async fn publish(
        &self,
        reply: Option<&str>,
        message: &OutgoingMessage,
    ) -> Result<(), TransportError> {
        let now_ms = self.server.clock.now_ms();
        let mut state = self.server.lock();
        let captured = state.capture(message, now_ms);
        // A stream that captures the subject counts as a listener, as on the server: the caller gets no 503 notice
        // (F-17).
        state.routes.deliver(reply, message, captured.is_some());
        drop(state);
        self.server.wake();
        Ok(())
    }

    pub(crate) async fn store(
        &self,
        message: &OutgoingMessage,
        _wait: Duration,
    ) -> Result<StreamAck, TransportError> {
        self.faults.step(|| self.store_now(message)).await
    }

    fn store_now(&self, message: &OutgoingMessage) -> Result<StreamAck, TransportError> {
        let now_ms = self.server.clock.now_ms();
        let mut state = self.server.lock();
        let outcome = state
            .capture(message, now_ms)
            .unwrap_or_else(|| Err(TransportError::NotProvisioned(message.subject.clone())));
        // Core subscribers see a message even when its stream refuses it, as on the server.
        state.routes.deliver(None, message, true);
        // Woken waiters take the lock themselves.
        drop(state);
        self.server.wake();
        outcome
    }

    fn with_log<T>(
        &self,
        stream: &str,
        read: impl FnOnce(&mut StreamLog, u64) -> T,
    ) -> Result<T, TransportError> {
        let now_ms = self.server.clock.now_ms();
        let mut state = self.server.lock();
        let log = state
            .logs
            .get_mut(stream)
            .ok_or_else(|| TransportError::NotProvisioned(stream.to_owned()))?;
        // No timer removes old messages; each access drops the messages that a server would have dropped by then.
        log.expire(now_ms);
        Ok(read(log, now_ms))
    }

    #[expect(clippy::unused_async, reason = "same shape as the other backend")]
    pub(crate) async fn read_next(
        &self,
        stream: &str,
        filter: &str,
        sequence: u64,
    ) -> Result<Option<StoredMessage>, TransportError> {
        self.with_log(stream, |log, _| log.next(filter, sequence))
    }

    #[expect(clippy::unused_async, reason = "same shape as the other backend")]
    pub(crate) async fn read_at(
        &self,
        stream: &str,
        sequence: u64,
    ) -> Result<Option<StoredMessage>, TransportError> {
        self.with_log(stream, |log, _| log.message_at(sequence))
    }

    pub(crate) fn cursor(
        &self,
        stream: &str,
        filter: &str,
        start: CursorStart,
    ) -> Result<LocalCursor, TransportError> {
        let next = self.with_log(stream, |log, _| match start {
            // The position is fixed here, so messages between this call and the first `next` are not missed.
            CursorStart::New => log.last_sequence() + 1,
            CursorStart::Sequence(sequence) => sequence,
        })?;
        Ok(LocalCursor {
            local: self.clone(),
            stream: stream.to_owned(),
            filter: filter.to_owned(),
            next,
        })
    }

    pub(crate) async fn key_get(
        &self,
        bucket: &str,
        key: &str,
    ) -> Result<Option<KeyEntry>, TransportError> {
        let subject = format!("$KV.{bucket}.{key}");
        let read = || {
            self.with_log(&format!("KV_{bucket}"), |log, _| {
                log.last_on(&subject).map(KeyEntry::from)
            })
        };
        self.faults.step(read).await
    }

    pub(crate) async fn key_next(
        &self,
        bucket: &str,
        filter: &str,
        from: u64,
    ) -> Result<Option<StoredMessage>, TransportError> {
        let read = || self.with_log(&format!("KV_{bucket}"), |log, _| log.next(filter, from));
        self.faults.step(read).await
    }

    #[expect(clippy::unused_async, reason = "same shape as the other backend")]
    pub(crate) async fn stream(&self, name: &str) -> Result<Option<StreamState>, TransportError> {
        Ok(self.with_log(name, |log, _| log.state()).ok())
    }

    #[expect(clippy::unused_async, reason = "same shape as the other backend")]
    pub(crate) async fn consumer(
        &self,
        stream: &str,
        durable: &str,
    ) -> Result<Option<ConsumerState>, TransportError> {
        Ok(self.consumer_now(stream, durable))
    }

    fn consumer_now(&self, stream: &str, durable: &str) -> Option<ConsumerState> {
        let now_ms = self.server.clock.now_ms();
        self.server.lock().consumer_state(stream, durable, now_ms)
    }

    #[expect(clippy::unused_async, reason = "same shape as the other backend")]
    pub(crate) async fn provision_stream(&self, spec: &StreamSpec) -> Result<(), TransportError> {
        let mut state = self.server.lock();
        match state.logs.get_mut(&spec.name) {
            // An update keeps the messages; a new configuration applies to messages that are appended later.
            Some(log) => log.reconfigure(spec.clone()),
            None => {
                state
                    .logs
                    .insert(spec.name.clone(), StreamLog::new(spec.clone()));
            }
        }
        Ok(())
    }

    #[expect(clippy::unused_async, reason = "same shape as the other backend")]
    pub(crate) async fn provision_consumer(
        &self,
        spec: &ConsumerSpec,
    ) -> Result<(), TransportError> {
        self.server.lock().add_consumer(spec.clone())
    }

    #[expect(clippy::unused_self, reason = "same shape as the other backend")]
    pub(crate) fn max_payload(&self) -> usize {
        MAX_PAYLOAD
    }

    #[expect(clippy::unused_async, reason = "same shape as the other backend")]
    pub(crate) async fn close(&self) {
        self.server.lock().routes.close();
        self.server.wake();
    }
}

impl ServerState {
    /// Stores the message if a stream captures its subject.
    fn capture(
        &mut self,
        message: &OutgoingMessage,
        now_ms: u64,
    ) -> Option<Result<StreamAck, TransportError>> {
        let log = self
            .logs
            .values_mut()
            // At most one stream captures a subject, because the server refuses streams whose subjects overlap.
            .find(|log| log.captures(&message.subject))?;
        log.expire(now_ms);
        Some(log.append(message, now_ms))
    }

    /// Publishes an advisory of the server.
    fn advise(&mut self, subject: String, body: &serde_json::Value, now_ms: u64) {
        let message = OutgoingMessage {
            subject,
            headers: crate::headers::MessageHeaders::new(),
            payload: Bytes::from(body.to_string()),
        };
        if let Some(Err(error)) = self.capture(&message, now_ms) {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "advisory was not stored"
            );
        }
        self.routes.deliver(None, &message, true);
    }
}

/// Reads a log from a given sequence, and waits for new messages at its end.
#[derive(Debug)]
pub(crate) struct LocalCursor {
    local: LocalBackend,
    stream: String,
    filter: String,
    next: u64,
}

impl LocalCursor {
    /// Sequence of the stream at which the cursor begins; call it before the first message.
    pub(crate) fn begins_at(&self) -> u64 {
        self.next
    }

    pub(crate) async fn next(&mut self) -> Result<StoredMessage, TransportError> {
        // The subscription begins before the log is read: a message between the two wakes the wait below instead of
        // being missed.
        let mut changed = self.local.server.changed.subscribe();
        loop {
            let found = self
                .local
                .with_log(&self.stream, |log, _| log.next(&self.filter, self.next))?;
            if let Some(stored) = found {
                self.next = stored.sequence + 1;
                return Ok(stored);
            }
            if changed.changed().await.is_err() {
                return Err(TransportError::Disconnected);
            }
        }
    }
}
