//! The bus inside one process: the behaviour of a NATS server with JetStream, in memory.
//!
//! It keeps bytes, not values, and has the server's limits. Nothing survives the process.

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

pub(crate) use self::consumer::{Acker, Puller};
use self::core::Routes;
pub(crate) use self::core::{Inbox, Subscription};
use self::faults::Faults;
#[cfg(test)]
pub(crate) use self::faults::{Fault, Plan};
use self::log::Log;
use super::{Acknowledged, KeyEntry, Outgoing, Start, Stored};
use crate::error::TransportError;
use crate::topology::{ConsumerSpec, ConsumerState, StreamSpec, StreamState};

/// The server's default `max_payload` (F-13).
const MAX_PAYLOAD: usize = 1024 * 1024;

/// A world of its own; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Local {
    world: Arc<World>,
    faults: Faults,
}

#[derive(Debug)]
struct World {
    state: Mutex<State>,
    /// Moves whenever a log grows or a delivery is given back.
    changed: watch::Sender<u64>,
    clock: Clock,
}

#[derive(Debug, Default)]
struct State {
    routes: Routes,
    logs: BTreeMap<String, Log>,
}

impl World {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        self.changed
            .send_modify(|count| *count = count.wrapping_add(1));
    }
}

impl Local {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            world: Arc::new(World {
                state: Mutex::default(),
                changed: watch::Sender::new(0),
                clock,
            }),
            faults: Faults::default(),
        }
    }

    /// Another user of the same world, who meets with the plan's faults.
    #[cfg(test)]
    pub(crate) fn faulty(&self, plan: &Arc<Plan>) -> Self {
        Self {
            world: Arc::clone(&self.world),
            faults: Faults::planned(plan),
        }
    }

    #[expect(clippy::unused_async, reason = "same shape as the other backend")]
    pub(crate) async fn publish(
        &self,
        reply: Option<&str>,
        message: &Outgoing,
    ) -> Result<(), TransportError> {
        let now_ms = self.world.clock.now_ms();
        let mut state = self.world.lock();
        let captured = state.capture(message, now_ms);
        state.routes.deliver(reply, message, captured.is_some());
        drop(state);
        self.world.wake();
        Ok(())
    }

    pub(crate) async fn store(
        &self,
        message: &Outgoing,
        _wait: Duration,
    ) -> Result<Acknowledged, TransportError> {
        self.faults.step(|| self.store_now(message)).await
    }

    fn store_now(&self, message: &Outgoing) -> Result<Acknowledged, TransportError> {
        let now_ms = self.world.clock.now_ms();
        let mut state = self.world.lock();
        let outcome = state
            .capture(message, now_ms)
            .unwrap_or_else(|| Err(TransportError::NotProvisioned(message.subject.clone())));
        state.routes.deliver(None, message, true);
        drop(state);
        self.world.wake();
        outcome
    }

    fn with_log<T>(
        &self,
        stream: &str,
        read: impl FnOnce(&mut Log, u64) -> T,
    ) -> Result<T, TransportError> {
        let now_ms = self.world.clock.now_ms();
        let mut state = self.world.lock();
        let log = state
            .logs
            .get_mut(stream)
            .ok_or_else(|| TransportError::NotProvisioned(stream.to_owned()))?;
        log.expire(now_ms);
        Ok(read(log, now_ms))
    }

    #[expect(clippy::unused_async, reason = "same shape as the other backend")]
    pub(crate) async fn read_next(
        &self,
        stream: &str,
        filter: &str,
        sequence: u64,
    ) -> Result<Option<Stored>, TransportError> {
        self.with_log(stream, |log, _| log.next(filter, sequence))
    }

    #[expect(clippy::unused_async, reason = "same shape as the other backend")]
    pub(crate) async fn read_at(
        &self,
        stream: &str,
        sequence: u64,
    ) -> Result<Option<Stored>, TransportError> {
        self.with_log(stream, |log, _| log.at(sequence))
    }

    pub(crate) fn cursor(
        &self,
        stream: &str,
        filter: &str,
        start: Start,
    ) -> Result<Cursor, TransportError> {
        let next = self.with_log(stream, |log, _| match start {
            Start::New => log.last_sequence() + 1,
            Start::Sequence(sequence) => sequence,
        })?;
        Ok(Cursor {
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
    ) -> Result<Option<Stored>, TransportError> {
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
        Ok(self
            .with_log(stream, |log, _| log.consumer_state(durable))
            .ok()
            .flatten())
    }

    #[expect(clippy::unused_async, reason = "same shape as the other backend")]
    pub(crate) async fn provision_stream(&self, spec: &StreamSpec) -> Result<(), TransportError> {
        let mut state = self.world.lock();
        match state.logs.get_mut(&spec.name) {
            Some(log) => log.reconfigure(spec.clone()),
            None => {
                state.logs.insert(spec.name.clone(), Log::new(spec.clone()));
            }
        }
        Ok(())
    }

    #[expect(clippy::unused_async, reason = "same shape as the other backend")]
    pub(crate) async fn provision_consumer(
        &self,
        spec: &ConsumerSpec,
    ) -> Result<(), TransportError> {
        self.with_log(&spec.stream, |log, _| log.add_consumer(spec.clone()))
    }

    #[expect(clippy::unused_self, reason = "same shape as the other backend")]
    pub(crate) fn max_payload(&self) -> usize {
        MAX_PAYLOAD
    }

    #[expect(clippy::unused_async, reason = "same shape as the other backend")]
    pub(crate) async fn close(&self) {
        self.world.lock().routes.close();
        self.world.wake();
    }
}

impl State {
    /// Stores the message when a stream takes its subject.
    fn capture(
        &mut self,
        message: &Outgoing,
        now_ms: u64,
    ) -> Option<Result<Acknowledged, TransportError>> {
        let log = self
            .logs
            .values_mut()
            .find(|log| log.takes(&message.subject))?;
        log.expire(now_ms);
        Some(log.append(message, now_ms))
    }

    /// Publishes what the server itself says (advisories).
    fn advise(&mut self, subject: String, body: &serde_json::Value, now_ms: u64) {
        let message = Outgoing {
            subject,
            headers: crate::headers::Headers::new(),
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

/// Reads a log from a sequence on, waiting for what is not there yet.
#[derive(Debug)]
pub(crate) struct Cursor {
    local: Local,
    stream: String,
    filter: String,
    next: u64,
}

impl Cursor {
    pub(crate) async fn next(&mut self) -> Result<Stored, TransportError> {
        let mut changed = self.local.world.changed.subscribe();
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
