//! The bus over NATS: the only place that names `async_nats`.
//!
//! Uses exactly the subjects of messaging-reliability 18; docs/messaging.md lists them.

mod admin;
mod connect;
mod cursor;
mod identity;
mod inbox;
mod pull;
mod store;

use std::time::Duration;

use async_nats::client::FlushErrorKind;
use async_nats::jetstream;
use futures_util::StreamExt as _;
use tokio::sync::watch;

pub(crate) use self::cursor::NatsCursor;
pub use self::identity::NatsIdentity;
use self::identity::SharedIdentity;
use self::inbox::InboxMux;
pub(crate) use self::inbox::NatsInbox;
pub(crate) use self::pull::{NatsAcker, NatsPuller};
use super::{CoreMessage, OutgoingMessage};
use crate::error::{ConnectError, TransportError};
use crate::headers::MessageHeaders;
use crate::health::ConnectionHealth;
use crate::metrics::BusMetrics;
use crate::options::NatsOptions;

/// Longest wait until all buffered messages are written to the connection (messaging-reliability 15 step 5).
const FLUSH_WAIT: Duration = Duration::from_secs(3);
/// Longest wait for the connection to close.
const CLOSE_WAIT: Duration = Duration::from_secs(2);
/// Longest wait for one JetStream request.
const API_WAIT: Duration = Duration::from_secs(5);

/// A connection. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct NatsBackend {
    client: async_nats::Client,
    context: jetstream::Context,
    mux: InboxMux,
    health: ConnectionHealth,
    identity: SharedIdentity,
    closed: watch::Receiver<bool>,
}

impl NatsBackend {
    pub(crate) async fn connect(
        options: &NatsOptions,
        metrics: &BusMetrics,
        health: &ConnectionHealth,
    ) -> Result<Self, ConnectError> {
        let mux = InboxMux::default();
        // The client's `drain` returns before the connection has ended; its `Closed` event is
        // the only sign of the end.
        let (closing, closed) = watch::channel(false);
        let watcher = connect::ConnectionWatcher {
            metrics: metrics.clone(),
            health: health.clone(),
            // Weak: the client owns the watcher, and a strong reference would keep the client's
            // inboxes alive through itself.
            mux: mux.downgrade(),
            closing,
        };
        let identity = SharedIdentity::new(options.into());
        let client = connect::connect_client(options, identity.clone(), watcher).await?;
        let mux = mux
            .start(&client, metrics)
            .await
            .map_err(ConnectError::Inbox)?;
        let context = jetstream::context::ContextBuilder::new()
            .timeout(API_WAIT)
            .build(client.clone());
        Ok(Self {
            client,
            context,
            mux,
            health: health.clone(),
            identity,
            closed,
        })
    }

    /// Shows another identity from the next connection on.
    pub(crate) fn replace_identity(&self, identity: NatsIdentity) {
        self.identity.replace(identity);
    }

    pub(crate) async fn publish(
        &self,
        reply: Option<&str>,
        message: &OutgoingMessage,
    ) -> Result<(), TransportError> {
        let headers = to_nats(&message.headers)?;
        let subject = message.subject.clone();
        let payload = message.payload.clone();
        let published = match reply {
            Some(reply) => {
                self.client
                    .publish_with_reply_and_headers(subject, reply.to_owned(), headers, payload)
                    .await
            }
            None => {
                self.client
                    .publish_with_headers(subject, headers, payload)
                    .await
            }
        };
        published.map_err(TransportError::other)
    }

    pub(crate) async fn subscribe(
        &self,
        subject: &str,
        group: Option<&str>,
    ) -> Result<NatsSubscription, TransportError> {
        let subject = subject.to_owned();
        let subscriber = match group {
            Some(group) => self.client.queue_subscribe(subject, group.to_owned()).await,
            None => self.client.subscribe(subject).await,
        }
        .map_err(TransportError::other)?;
        // The caller announces itself as ready after this. Without this round trip, requests could reach a server that
        // has not processed the subscription yet (`NoResponders`).
        self.flush(API_WAIT).await?;
        Ok(NatsSubscription { subscriber })
    }

    pub(crate) fn inbox(&self) -> NatsInbox {
        self.mux.open()
    }

    pub(crate) fn max_payload(&self) -> usize {
        self.client.max_payload()
    }

    async fn flush(&self, wait: Duration) -> Result<(), TransportError> {
        // Without a timeout a flush waits until the outage ends.
        match tokio::time::timeout(wait, self.client.flush()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(match error.kind() {
                FlushErrorKind::SendError | FlushErrorKind::FlushError => {
                    TransportError::Disconnected
                }
            }),
            Err(_elapsed) => Err(TransportError::TimedOut),
        }
    }

    pub(crate) async fn close(&self) {
        // The flush comes first: after the drain has begun, acknowledgements fail with "channel closed".
        if let Err(error) = self.flush(FLUSH_WAIT).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the bus was not flushed"
            );
        }
        if self.client.drain().await.is_err() {
            return;
        }
        let mut closed = self.closed.clone();
        let ended = async {
            // An error means that the client dropped the sender: the connection is closed as well.
            let _ = closed.wait_for(|closed| *closed).await;
            self.mux.wait_until_ended().await;
        };
        if tokio::time::timeout(CLOSE_WAIT, ended).await.is_err() {
            tracing::warn!("the connection to the bus did not close in time");
        }
    }
}

/// The receiving end of a subscription; dropping it unsubscribes.
#[derive(Debug)]
pub(crate) struct NatsSubscription {
    subscriber: async_nats::Subscriber,
}

impl NatsSubscription {
    pub(crate) async fn next(&mut self) -> Option<CoreMessage> {
        self.subscriber.next().await.map(from_nats)
    }

    pub(crate) async fn drain(&mut self) {
        if let Err(error) = self.subscriber.drain().await {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "subscription is gone already"
            );
        }
    }
}

/// Header values go through `parse`, because inserting text with a line break panics.
fn to_nats(headers: &MessageHeaders) -> Result<async_nats::HeaderMap, TransportError> {
    let mut map = async_nats::HeaderMap::new();
    for (name, value) in headers.iter() {
        let refused = || TransportError::Header(name.to_owned());
        // `insert` and `append` take text too, and panic on CR or LF.
        let parsed: async_nats::HeaderName = name.parse().map_err(|_| refused())?;
        let value: async_nats::HeaderValue = value.parse().map_err(|_| refused())?;
        map.append(parsed, value);
    }
    Ok(map)
}

fn headers_of(map: Option<&async_nats::HeaderMap>) -> MessageHeaders {
    let mut headers = MessageHeaders::new();
    for (name, values) in map.into_iter().flat_map(async_nats::HeaderMap::iter) {
        for value in values {
            headers.append(name.as_ref(), value.as_str());
        }
    }
    headers
}

fn from_nats(message: async_nats::Message) -> CoreMessage {
    CoreMessage {
        headers: headers_of(message.headers.as_ref()),
        subject: message.subject.to_string(),
        reply: message.reply.map(|reply| reply.to_string()),
        payload: message.payload,
        status: message.status.map(|status| status.as_u16()),
    }
}

/// Unix milliseconds of the server's time.
fn unix_millis(time: async_nats::datetime::DateTime) -> u64 {
    // A time before 1970 can only be an error of the server; it counts as 0.
    u64::try_from(time.unix_timestamp_nanos() / 1_000_000).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use dray_testkit::nats::NatsServer;
    use dray_types::Clock;
    use opentelemetry::metrics::MeterProvider as _;

    use super::*;
    use crate::bus_core::Bus;

    /// A drain waits for tracked tasks, so a task that lives as long as the connection would delay every stop.
    #[tokio::test]
    async fn a_drain_of_an_idle_bus_waits_for_no_task() {
        let server = NatsServer::start();
        let meter = opentelemetry::metrics::noop::NoopMeterProvider::new().meter("test");
        let bus = Bus::connect(&NatsOptions::at(server.url()), Clock::system(), &meter)
            .await
            .unwrap();
        assert!(bus.inner.tasks.is_empty());
        let crate::backend::Backend::Nats(nats) = &bus.inner.backend else {
            panic!("the backend must be NATS");
        };
        assert!(nats.mux.is_reading());
        bus.drain().await;
        assert!(!nats.mux.is_reading());
    }
}
