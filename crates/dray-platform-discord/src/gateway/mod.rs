//! The way in: a connection to the gateway, taken up again where it broke.
//!
//! An event counts as read when its message is stored: its number goes into heartbeats and resumptions only then, so
//! that what was not stored is sent again. A session that cannot be resumed is followed by a look at what was
//! written meanwhile.

mod catch_up;
mod close;
mod live;
mod memory;
mod socket;

use std::time::Duration;

use dray_platform::{ErrorKind, InboundSink, PlatformError};
use rand::Rng as _;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::DiscordApi;
use crate::options::DiscordOptions;

use live::{ConnectionEnd, LiveConnection};
use memory::GatewayCache;
use socket::GatewaySocket;

/// How long a connection must live to be called stable.
const STABLE_AFTER: Duration = Duration::from_mins(1);

/// Waits between connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReconnectDelays {
    /// After a failure; doubles with each further one.
    pub(crate) first: Duration,
    /// Longest of those.
    pub(crate) longest: Duration,
    /// Before a new session after an invalid one: at least this, and up to five times of it.
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

/// What a receiver works with.
#[derive(Debug)]
pub(crate) struct GatewayReceiver<'a> {
    pub(crate) options: &'a DiscordOptions,
    pub(crate) api: &'a DiscordApi,
    pauses: &'a ReconnectDelays,
    /// Older messages are not looked for, in Unix milliseconds.
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
        let mut memory = GatewayCache::default();
        let mut failures = 0;
        while !stop.is_cancelled() {
            let begun = Instant::now();
            let ended = self.connection(&mut memory, deliver, stop).await;
            if begun.elapsed() >= STABLE_AFTER {
                failures = 0;
            }
            let wait = match ended {
                Ok(ConnectionEnd::Stopped) => break,
                Ok(ConnectionEnd::Invalid) => self.after_invalid(),
                Ok(ConnectionEnd::Again(why)) => {
                    tracing::info!(why, "the gateway is connected to again");
                    self.backoff(failures)
                }
                Err(error) if error.kind() == ErrorKind::Auth => return Err(error),
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "no gateway");
                    // A host that answers no more must not be asked for ever.
                    memory.forget_address();
                    let told = error.retry_after();
                    told.unwrap_or_else(|| self.backoff(failures.max(1)))
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

    /// Nothing for the first time, then doubling, between half and all of it.
    fn backoff(&self, failures: u32) -> Duration {
        let Some(exponent) = failures.checked_sub(1) else {
            return Duration::ZERO;
        };
        let full = self.pauses.first.saturating_mul(1 << exponent.min(16));
        full.min(self.pauses.longest)
            .mul_f64(rand::rng().random_range(0.5..=1.0))
    }

    fn after_invalid(&self) -> Duration {
        let factor = rand::rng().random_range(1.0..=5.0);
        self.pauses.invalid.mul_f64(factor)
    }

    /// One connection, from its address to its end.
    async fn connection(
        &self,
        memory: &mut GatewayCache,
        deliver: &dyn InboundSink,
        stop: &CancellationToken,
    ) -> Result<ConnectionEnd, PlatformError> {
        let connecting = async {
            let url = match memory.address() {
                Some(url) => url.to_owned(),
                None => self.address(memory.resumes()).await?,
            };
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
            .run(deliver, stop)
            .await
    }

    /// Where the gateway is. A new session is begun only while the platform allows more of them.
    async fn address(&self, resumes: bool) -> Result<String, PlatformError> {
        let told = self.api.get("/gateway/bot", &[]).await?;
        let number = |pointer: &str| told.pointer(pointer).and_then(Value::as_u64);
        if !resumes && number("/session_start_limit/remaining") == Some(0) {
            let after = number("/session_start_limit/reset_after").unwrap_or_default();
            let error = PlatformError::new(
                ErrorKind::RateLimited,
                "the bot has begun too many sessions today",
            );
            return Err(error.with_retry_after(Duration::from_millis(after.max(1000))));
        }
        let url = told.get("url").and_then(Value::as_str);
        url.map(str::to_owned)
            .ok_or_else(|| PlatformError::new(ErrorKind::Transient, "no address of a gateway came"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dray_types::Secret;

    #[test]
    fn waits_grow_from_nothing_to_the_longest() {
        let options = DiscordOptions {
            token: Secret::new("t"),
            ..DiscordOptions::default()
        };
        let api = DiscordApi::new(&options).unwrap();
        let pauses = ReconnectDelays::default();
        let gateway = GatewayReceiver::new(&options, &api, &pauses, 0);
        assert_eq!(gateway.backoff(0), Duration::ZERO);
        for (failures, most) in [(1, 1), (2, 2), (4, 8), (7, 60), (u32::MAX, 60)] {
            let most = Duration::from_secs(most);
            let wait = gateway.backoff(failures);
            assert!((most / 2..=most).contains(&wait), "{failures}: {wait:?}");
        }
        let wait = gateway.after_invalid();
        assert!((1.0..=5.0).contains(&wait.as_secs_f64()), "{wait:?}");
    }
}
