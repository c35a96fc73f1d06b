//! Inbound messages, by a connection to the gateway whose session is resumed after a failure.
//!
//! An event counts as handled when its message is stored. Only then does its number appear in heartbeats and
//! resumptions, so that the gateway repeats events that were not stored. When a session cannot be resumed, the messages
//! that were written meanwhile are read from the channels.

mod cache;
mod catch_up;
mod close;
mod live;
mod socket;

use std::time::Duration;

use dray_platform::{ButtonPress, ErrorKind, InboundSink, PlatformError};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use rand::Rng as _;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::DiscordApi;
use crate::options::DiscordOptions;

use cache::GatewayCache;
use live::{ConnectionEnd, LiveConnection};
use socket::GatewaySocket;

/// How long a connection must last to count as stable, which resets the number of failures.
const STABLE_AFTER: Duration = Duration::from_mins(1);

/// Most button presses that are handled concurrently; as many more may wait. Further ones are dropped: their users see
/// a failure and press again.
const MAX_CONCURRENT_PRESSES: usize = 32;

/// Waits between two connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReconnectDelays {
    /// Delay after a first failure; doubles with each further one.
    pub(crate) first: Duration,
    /// Longest wait after failures.
    pub(crate) longest: Duration,
    /// Shortest wait before a new session after an invalid one; the longest is five times as long. Discord asks for one
    /// to five seconds.
    pub(crate) invalid: Duration,
}

impl Default for ReconnectDelays {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            longest: Duration::from_mins(1),
            invalid: Duration::from_secs(1),
        }
    }
}

/// The recipients of events. Messages are stored before the next event; presses are handled concurrently.
#[derive(Debug)]
pub(crate) struct GatewaySink<'a> {
    pub(crate) deliver: &'a dyn InboundSink,
    pub(crate) presses: mpsc::Sender<ButtonPress>,
}

/// The receiver of one bot, with the state that its connections share.
#[derive(Debug)]
pub(crate) struct GatewayReceiver<'a> {
    pub(crate) options: &'a DiscordOptions,
    pub(crate) api: &'a DiscordApi,
    delays: &'a ReconnectDelays,
    /// Older messages are not caught up (Unix milliseconds).
    pub(crate) since: u64,
}

impl<'a> GatewayReceiver<'a> {
    pub(crate) const fn new(
        options: &'a DiscordOptions,
        api: &'a DiscordApi,
        delays: &'a ReconnectDelays,
        since: u64,
    ) -> Self {
        Self {
            options,
            api,
            delays,
            since,
        }
    }

    /// Receives until `stop` is cancelled. Returns earlier only with an error that an operator must correct.
    pub(crate) async fn run(
        &self,
        deliver: &dyn InboundSink,
        stop: &CancellationToken,
    ) -> Result<(), PlatformError> {
        let (presses, queue) = mpsc::channel::<ButtonPress>(MAX_CONCURRENT_PRESSES);
        // Presses are handled concurrently with events: a decision may take longer than the time in which the next
        // press must be acknowledged.
        let handling = handle_presses(deliver, queue);
        let sink = GatewaySink { deliver, presses };
        let (received, ()) = tokio::join!(self.receive(sink, stop), handling);
        received
    }

    /// Receives from one connection after the other. Consumes the sink, so that the queue of presses ends with it.
    async fn receive(
        &self,
        sink: GatewaySink<'_>,
        stop: &CancellationToken,
    ) -> Result<(), PlatformError> {
        // The cache is kept for all connections of this process. After a restart, messages are caught up from `since`.
        let mut cache = GatewayCache::default();
        let mut failures = 0;
        while !stop.is_cancelled() {
            let connected_at = Instant::now();
            let ended = self.connection(&mut cache, &sink, stop).await;
            if connected_at.elapsed() >= STABLE_AFTER {
                failures = 0;
            }
            let wait = match ended {
                Ok(ConnectionEnd::Stopped) => break,
                Ok(ConnectionEnd::Invalid) => self.after_invalid(),
                Ok(ConnectionEnd::Reconnect(reason)) => {
                    tracing::info!(reason, "reconnecting to the gateway");
                    self.backoff(failures)
                }
                // The token is wrong or an intent is missing: connecting again would only use up the starts of
                // sessions.
                Err(error) if error.kind() == ErrorKind::Auth => return Err(error),
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "could not receive from the gateway"
                    );
                    // The address for resuming may have caused the failure, so the next attempt requests a new one.
                    cache.forget_address();
                    let retry_after = error.retry_after();
                    // Unlike after a lost connection, there is always a wait after an error.
                    retry_after.unwrap_or_else(|| self.backoff(failures.max(1)))
                }
            };
            failures = failures.saturating_add(1);
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = stop.cancelled() => break,
            }
        }
        Ok(())
    }

    /// The wait after a number of failures: zero at first, then between half and all of a time that doubles.
    fn backoff(&self, failures: u32) -> Duration {
        let Some(exponent) = failures.checked_sub(1) else {
            return Duration::ZERO;
        };
        // `min` keeps the shift inside 32 bits.
        let full = self.delays.first.saturating_mul(1 << exponent.min(16));
        full.min(self.delays.longest)
            .mul_f64(rand::rng().random_range(0.5..=1.0))
    }

    /// A random wait after an invalid session, so that many bots do not identify at the same time.
    fn after_invalid(&self) -> Duration {
        let factor = rand::rng().random_range(1.0..=5.0);
        self.delays.invalid.mul_f64(factor)
    }

    /// Connects and handles events until the connection ends. Cancelling `stop` also stops connecting.
    async fn connection(
        &self,
        cache: &mut GatewayCache,
        sink: &GatewaySink<'_>,
        stop: &CancellationToken,
    ) -> Result<ConnectionEnd, PlatformError> {
        let connecting = async {
            let url = match cache.address() {
                Some(url) => url.to_owned(),
                None => self.request_address(cache.has_session()).await?,
            };
            // The URL is checked here for both sources: the address in `READY` comes from the network as well.
            let url = self.api.gateway(&url)?;
            let mut socket = GatewaySocket::open(self.api, &url).await?;
            let interval = socket.hello().await?;
            Ok::<_, PlatformError>((socket, interval))
        };
        let (socket, interval) = tokio::select! {
            connected = connecting => connected?,
            () = stop.cancelled() => return Ok(ConnectionEnd::Stopped),
        };
        LiveConnection::new(self, cache, socket, interval)
            .run(sink, stop)
            .await
    }

    /// Requests the address of the gateway. Fails, with the delay to wait, when no further session may begin today.
    async fn request_address(&self, has_session: bool) -> Result<String, PlatformError> {
        let response = self.api.get("/gateway/bot", &[]).await?;
        let number = |pointer: &str| response.pointer(pointer).and_then(Value::as_u64);
        // Resuming does not count as a start.
        if !has_session && number("/session_start_limit/remaining") == Some(0) {
            let after = number("/session_start_limit/reset_after").unwrap_or_default();
            let error = PlatformError::new(
                ErrorKind::RateLimited,
                "the bot has used up its session starts of today",
            );
            return Err(error.with_retry_after(Duration::from_millis(after.max(1000))));
        }
        let url = response.get("url").and_then(Value::as_str);
        url.map(str::to_owned).ok_or_else(|| {
            PlatformError::new(ErrorKind::Transient, "the response has no gateway URL")
        })
    }
}

/// Handles presses concurrently until the sender is dropped and all presses that arrived are handled.
async fn handle_presses(deliver: &dyn InboundSink, mut queue: mpsc::Receiver<ButtonPress>) {
    let mut running = FuturesUnordered::new();
    let mut is_open = true;
    loop {
        tokio::select! {
            press = queue.recv(), if is_open && running.len() < MAX_CONCURRENT_PRESSES => match press {
                Some(press) => running.push(deliver.press(press)),
                None => is_open = false,
            },
            Some(()) = running.next() => {}
            else => break,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dray_types::Secret;

    #[test]
    fn the_wait_doubles_with_each_failure_up_to_the_longest() {
        let options = DiscordOptions {
            token: Secret::new("t"),
            ..DiscordOptions::default()
        };
        let api = DiscordApi::new(&options).unwrap();
        let delays = ReconnectDelays::default();
        let gateway = GatewayReceiver::new(&options, &api, &delays, 0);
        assert_eq!(gateway.backoff(0), Duration::ZERO);
        for (failures, limit) in [(1, 1), (2, 2), (4, 8), (7, 60), (u32::MAX, 60)] {
            let limit = Duration::from_secs(limit);
            let wait = gateway.backoff(failures);
            assert!((limit / 2..=limit).contains(&wait), "{failures}: {wait:?}");
        }
        let wait = gateway.after_invalid();
        assert!((1.0..=5.0).contains(&wait.as_secs_f64()), "{wait:?}");
    }
}
