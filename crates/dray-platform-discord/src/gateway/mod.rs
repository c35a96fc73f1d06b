//! Inbound messages: a connection to the gateway, which is resumed where it broke.
//!
//! An event counts as read when its message is stored. Only then its number goes into heartbeats and resumptions, so
//! that the gateway sends again what was not stored. When a session cannot be resumed, the messages that were written
//! meanwhile are read from the channels.

mod catch_up;
mod close;
mod live;
mod memory;
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

use live::{ConnectionEnd, LiveConnection};
use memory::GatewayCache;
use socket::GatewaySocket;

/// How long a connection must live to count as stable, which resets the count of failures.
const STABLE_AFTER: Duration = Duration::from_mins(1);

/// Most presses of buttons that are handled concurrently, and as many more that wait. Further ones are dropped: their people
/// see a failure and press again.
const MAX_CONCURRENT_PRESSES: usize = 32;

/// Waits between two connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReconnectDelays {
    /// After a failure; doubles with each further one.
    pub(crate) first: Duration,
    /// Longest wait after failures.
    pub(crate) longest: Duration,
    /// Before a new session after an invalid one: at least this, and up to five times as long. Discord asks for one
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

/// Where events go: messages are stored before the next event, presses are handled beside them.
#[derive(Debug)]
pub(crate) struct GatewaySink<'a> {
    pub(crate) deliver: &'a dyn InboundSink,
    pub(crate) presses: mpsc::Sender<ButtonPress>,
}

/// The receiver of one bot, with what all of its connections share.
#[derive(Debug)]
pub(crate) struct GatewayReceiver<'a> {
    pub(crate) options: &'a DiscordOptions,
    pub(crate) api: &'a DiscordApi,
    pauses: &'a ReconnectDelays,
    /// Older messages are not caught up. In Unix milliseconds.
    pub(crate) since: u64,
}

impl<'a> GatewayReceiver<'a> {
    pub(crate) const fn new(
        options: &'a DiscordOptions,
        api: &'a DiscordApi,
        pauses: &'a ReconnectDelays,
        since: u64,
    ) -> Self {
        Self {
            options,
            api,
            pauses,
            since,
        }
    }

    /// Receives until `stop`. Ends by itself only when an operator has to do something.
    pub(crate) async fn run(
        &self,
        deliver: &dyn InboundSink,
        stop: &CancellationToken,
    ) -> Result<(), PlatformError> {
        let (presses, waiting) = mpsc::channel::<ButtonPress>(MAX_CONCURRENT_PRESSES);
        // Beside the events: a decision takes longer than a person may wait for the acknowledgement of the next press.
        let handled = handle_presses(deliver, waiting);
        let sink = GatewaySink { deliver, presses };
        let (received, ()) = tokio::join!(self.receive(sink, stop), handled);
        received
    }

    /// Receives from one connection after the other. Consumes the sink: its presses end with it.
    async fn receive(
        &self,
        sink: GatewaySink<'_>,
        stop: &CancellationToken,
    ) -> Result<(), PlatformError> {
        // Kept over connections, lost with the process: a restart catches up from `since`.
        let mut memory = GatewayCache::default();
        let mut failures = 0;
        while !stop.is_cancelled() {
            let begun = Instant::now();
            let ended = self.connection(&mut memory, &sink, stop).await;
            if begun.elapsed() >= STABLE_AFTER {
                failures = 0;
            }
            let wait = match ended {
                Ok(ConnectionEnd::Stopped) => break,
                Ok(ConnectionEnd::Invalid) => self.after_invalid(),
                Ok(ConnectionEnd::Again(why)) => {
                    tracing::info!(why, "reconnecting to the gateway");
                    self.backoff(failures)
                }
                // A wrong token or a missing intent: connecting again would only use up the starts of sessions.
                Err(error) if error.kind() == ErrorKind::Auth => return Err(error),
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "no gateway");
                    // The resume address may be down permanently; the next attempt asks for a new one.
                    memory.forget_address();
                    let retry_after = error.retry_after();
                    // At least the first wait: an error, unlike a lost connection, never leads to a reconnection
                    // without one.
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

    /// Zero at first, then doubling, between half and all of the full wait.
    fn backoff(&self, failures: u32) -> Duration {
        let Some(exponent) = failures.checked_sub(1) else {
            return Duration::ZERO;
        };
        // The bound keeps the shift inside 32 bits.
        let full = self.pauses.first.saturating_mul(1 << exponent.min(16));
        full.min(self.pauses.longest)
            .mul_f64(rand::rng().random_range(0.5..=1.0))
    }

    /// A random wait, so that many bots do not identify together.
    fn after_invalid(&self) -> Duration {
        let factor = rand::rng().random_range(1.0..=5.0);
        self.pauses.invalid.mul_f64(factor)
    }

    /// One connection, from its address to its end. Connecting stops when `stop` is cancelled.
    async fn connection(
        &self,
        memory: &mut GatewayCache,
        sink: &GatewaySink<'_>,
        stop: &CancellationToken,
    ) -> Result<ConnectionEnd, PlatformError> {
        let connecting = async {
            let url = match memory.address() {
                Some(url) => url.to_owned(),
                None => self.address(memory.resumes()).await?,
            };
            // Checked here for both sources: the address of `READY` comes over the network as well.
            let url = self.api.gateway(&url)?;
            let mut socket = GatewaySocket::open(self.api, &url).await?;
            let interval = socket.hello().await?;
            Ok::<_, PlatformError>((socket, interval))
        };
        let (socket, interval) = tokio::select! {
            connected = connecting => connected?,
            () = stop.cancelled() => return Ok(ConnectionEnd::Stopped),
        };
        LiveConnection::new(self, memory, socket, interval)
            .run(sink, stop)
            .await
    }

    /// The address of the gateway. Fails with the delay to wait when no further session may be begun today.
    async fn address(&self, resumes: bool) -> Result<String, PlatformError> {
        let response = self.api.get("/gateway/bot", &[]).await?;
        let number = |pointer: &str| response.pointer(pointer).and_then(Value::as_u64);
        // Resuming does not count as a start.
        if !resumes && number("/session_start_limit/remaining") == Some(0) {
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

/// Handles presses concurrently until their sender is gone, and those that arrived to their end.
async fn handle_presses(deliver: &dyn InboundSink, mut waiting: mpsc::Receiver<ButtonPress>) {
    let mut running = FuturesUnordered::new();
    let mut is_open = true;
    loop {
        tokio::select! {
            press = waiting.recv(), if is_open && running.len() < MAX_CONCURRENT_PRESSES => match press {
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
    fn waits_grow_to_the_longest() {
        let options = DiscordOptions {
            token: Secret::new("t"),
            ..DiscordOptions::default()
        };
        let api = DiscordApi::new(&options).unwrap();
        let pauses = ReconnectDelays::default();
        let gateway = GatewayReceiver::new(&options, &api, &pauses, 0);
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
