//! Polls platforms that do not push messages. For each account, only the replica with the lease in the bus polls
//! (leader election by a lease).

use std::time::Duration;

use bytes::Bytes;
use dray_bus::KeyError;
use dray_platform::ErrorKind;
use dray_types::whole_millis;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::DurableInboundSink;

/// How long a lease lasts without renewal.
pub(super) const LEASE_DURATION: Duration = Duration::from_secs(30);
/// Time between two renewals, and between two attempts to take the lease.
const RENEW_INTERVAL: Duration = Duration::from_secs(10);
/// Least duration of a real poll: one that returns earlier without an error shows that the platform pushes messages.
const MIN_POLL_DURATION: Duration = Duration::from_secs(1);
/// Longest delay after failures.
const MAX_RETRY_DELAY: Duration = Duration::from_mins(1);
/// Delay after the platform refused the credentials, which only an operator can change.
const REFUSED_DELAY: Duration = Duration::from_mins(5);

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct PollLease {
    owner: String,
    until_ms: u64,
}

impl DurableInboundSink {
    /// Polls while this replica has the lease, until `stop`.
    pub async fn poll(self, instance: String, stop: CancellationToken) {
        let mut retry_delay = Duration::from_secs(1);
        while !stop.is_cancelled() {
            if !self.take_lease(&instance).await {
                wait_or_stop(&stop, RENEW_INTERVAL).await;
                continue;
            }
            let started = Instant::now();
            match self.poll_with_lease(&instance, &stop).await {
                Some(Ok(())) if started.elapsed() < MIN_POLL_DURATION => {
                    // This platform pushes messages, so there is nothing to poll.
                    self.release_lease(&instance).await;
                    return;
                }
                Some(Ok(())) | None => retry_delay = Duration::from_secs(1),
                Some(Err(ErrorKind::Auth)) => wait_or_stop(&stop, REFUSED_DELAY).await,
                Some(Err(_)) => {
                    wait_or_stop(&stop, retry_delay).await;
                    retry_delay = (retry_delay * 2).min(MAX_RETRY_DELAY);
                }
            }
        }
        self.release_lease(&instance).await;
    }

    /// Polls once; `None` when the lease was lost meanwhile.
    async fn poll_with_lease(
        &self,
        instance: &str,
        stop: &CancellationToken,
    ) -> Option<Result<(), ErrorKind>> {
        let inbox = self.account.inbox.as_ref()?;
        let round = stop.child_token();
        let polling = inbox.poll(self, round.clone());
        tokio::pin!(polling);
        let mut renew = tokio::time::interval_at(Instant::now() + RENEW_INTERVAL, RENEW_INTERVAL);
        loop {
            tokio::select! {
                polled = &mut polling => {
                    return Some(polled.map_err(|error| {
                        tracing::warn!(
                            account = %self.account.name,
                            error = &error as &dyn std::error::Error,
                            "could not fetch messages of the platform"
                        );
                        error.kind()
                    }));
                }
                _ = renew.tick() => {
                    if !self.take_lease(instance).await {
                        // Two pollers would take each other's messages; the poll may end by itself before it is
                        // dropped.
                        round.cancel();
                        let _ = tokio::time::timeout(RENEW_INTERVAL, &mut polling).await;
                        return None;
                    }
                }
            }
        }
    }

    fn lease_key(&self) -> String {
        let digest = dray_types::Sha256Digest::of(self.account.id().as_bytes()).to_hex();
        format!("poll.{digest}")
    }

    /// Takes or renews the lease. A replica that cannot reach the bus does not have it.
    pub(crate) async fn take_lease(&self, instance: &str) -> bool {
        match self.try_lease(instance, LEASE_DURATION).await {
            Ok(taken) => taken,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "could not take the lease to poll"
                );
                false
            }
        }
    }

    async fn release_lease(&self, instance: &str) {
        // A lease that cannot be released expires.
        let _ = self.try_lease(instance, Duration::ZERO).await;
    }

    async fn try_lease(&self, instance: &str, lifetime: Duration) -> Result<bool, KeyError> {
        let keys = self.service.platform_cache.keys();
        let key = self.lease_key();
        let now_ms = self.service.clock.now_ms();
        let found = keys.get(&key).await?;
        let current = found
            .as_ref()
            .and_then(|entry| serde_json::from_slice::<PollLease>(&entry.value).ok());
        // A lease of this replica is renewed even if it has expired.
        if current.is_some_and(|lease| lease.owner != instance && lease.until_ms > now_ms) {
            return Ok(false);
        }
        let lifetime = whole_millis(lifetime);
        let lease = PollLease {
            owner: instance.to_owned(),
            until_ms: now_ms.saturating_add(lifetime),
        };
        let value = Bytes::from(serde_json::to_vec(&lease).unwrap_or_default());
        let written = match found {
            Some(entry) => keys.update(&key, value, entry.revision).await,
            None => keys.create(&key, value).await,
        };
        match written {
            Ok(_) => Ok(true),
            // Another replica wrote first: it has the lease now.
            Err(KeyError::Stale | KeyError::Exists) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

async fn wait_or_stop(stop: &CancellationToken, delay: Duration) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = tokio::time::sleep(delay) => {}
    }
}
