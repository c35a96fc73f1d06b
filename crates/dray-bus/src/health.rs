//! What readiness asks of the bus (messaging-reliability 16).

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::bus::Bus;
use crate::error::ProbeError;
use crate::topology::LEDGER_STREAM;

/// Smallest `max_payload` of a server that is usable (E-3).
const MIN_PAYLOAD: usize = 256 * 1024;
/// Largest difference between the local clock and the server's (7.1).
const MAX_SKEW_MS: i64 = 2_000;
/// How often the clocks are compared.
const SKEW_EVERY_MS: u64 = 30_000;
/// How long the last replies may take when the bus is drained.
pub(crate) const DRAIN_WAIT: Duration = Duration::from_secs(3);

/// What events of the connection reported. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionHealth {
    shared: Arc<HealthState>,
}

#[derive(Debug, Default)]
struct HealthState {
    violations: AtomicU64,
    refused: Mutex<Vec<String>>,
    refusals: watch::Sender<u64>,
    skew_ms: AtomicI64,
    skew_measured_ms: AtomicU64,
    connection: Mutex<ConnectionState>,
}

/// Whether the connection is up, and since when if it was lost before.
#[derive(Debug, Default)]
struct ConnectionState {
    is_lost: bool,
    restored_at: Option<Instant>,
}

/// Refused subjects that are remembered.
const MAX_REFUSED_SUBJECTS: usize = 64;

impl ConnectionHealth {
    /// Notes a permission violation; `subject` is the refused one or the server's words.
    pub(crate) fn refused(&self, subject: String) {
        self.shared.violations.fetch_add(1, Ordering::SeqCst);
        let mut refused = self.lock();
        if refused.len() < MAX_REFUSED_SUBJECTS && !refused.contains(&subject) {
            refused.push(subject);
        }
        drop(refused);
        self.shared.refusals.send_modify(|count| *count += 1);
    }

    /// Returns once the server has refused `subject`.
    pub(crate) async fn refusal_of(&self, subject: &str) {
        let mut refusals = self.shared.refusals.subscribe();
        while !self.lock().iter().any(|refused| refused == subject) {
            if refusals.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Notes that the connection was lost.
    pub(crate) fn disconnected(&self) {
        self.connection().is_lost = true;
    }

    /// Notes that there is a connection, the first or another one.
    pub(crate) fn connected(&self) {
        let mut connection = self.connection();
        if std::mem::take(&mut connection.is_lost) {
            connection.restored_at = Some(Instant::now());
        }
    }

    /// What is left of `period` since a lost connection was restored. The other workers lost theirs too, most likely,
    /// and need that time to renew their leases.
    pub(crate) fn restoring(&self, period: Duration) -> Duration {
        self.connection()
            .restored_at
            .map_or(Duration::ZERO, |at| period.saturating_sub(at.elapsed()))
    }

    fn connection(&self) -> std::sync::MutexGuard<'_, ConnectionState> {
        self.shared
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the clocks should be compared again; at most once in a while.
    pub(crate) fn wants_skew(&self, now_ms: u64) -> bool {
        let last = self.shared.skew_measured_ms.load(Ordering::SeqCst);
        let is_due = now_ms.saturating_sub(last) >= SKEW_EVERY_MS;
        if is_due {
            self.shared.skew_measured_ms.store(now_ms, Ordering::SeqCst);
        }
        is_due
    }

    /// Notes the difference between a time written by the server just now and the local clock.
    pub(crate) fn skew(&self, server_ms: u64, local_ms: u64) {
        let difference = i128::from(server_ms) - i128::from(local_ms);
        self.shared.skew_ms.store(
            i64::try_from(difference).unwrap_or(i64::MAX),
            Ordering::SeqCst,
        );
    }

    /// Whether the server has refused anything since start: no work is pulled then (16).
    pub(crate) fn is_refused(&self) -> bool {
        self.shared.violations.load(Ordering::SeqCst) > 0
    }

    fn violation(&self) -> Option<ProbeError> {
        let count = self.shared.violations.load(Ordering::SeqCst);
        (count > 0).then(|| ProbeError::Denied {
            count,
            first: self.lock().first().cloned().unwrap_or_default(),
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.shared
            .refused
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) async fn probe_connection(bus: &Bus) -> Result<(), ProbeError> {
    let inner = &bus.inner;
    if let Some(violation) = inner.health.violation() {
        return Err(violation);
    }
    let limit = inner.backend.max_payload();
    if limit < MIN_PAYLOAD {
        return Err(ProbeError::PayloadLimit { limit });
    }
    let milliseconds = inner.health.shared.skew_ms.load(Ordering::SeqCst);
    if milliseconds.abs() > MAX_SKEW_MS {
        return Err(ProbeError::ClockSkew { milliseconds });
    }
    inner
        .backend
        .stream(LEDGER_STREAM)
        .await
        .map_err(ProbeError::Transport)?
        .map(|_| ())
        .ok_or_else(|| {
            ProbeError::Transport(crate::error::TransportError::NotProvisioned(
                LEDGER_STREAM.to_owned(),
            ))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_clock_that_is_off_by_more_than_two_seconds_makes_the_service_unready() {
        let clock = dray_types::Clock::system();
        let bus = Bus::in_process(clock, &crate::conformance::noop_meter());
        bus.apply_topology(&crate::conformance::small_topology(|_| {}))
            .await
            .unwrap();
        for (server_ms, local_ms, ready) in [
            (10_000, 12_000, true),
            (10_000, 12_001, false),
            (12_001, 10_000, false),
            (10_000, 10_000, true),
        ] {
            bus.inner.health.skew(server_ms, local_ms);
            assert_eq!(
                bus.round_trip().await.is_ok(),
                ready,
                "{server_ms} {local_ms}"
            );
        }
    }

    #[test]
    fn clocks_are_compared_now_and_then() {
        let health = ConnectionHealth::default();
        assert!(health.wants_skew(1_000_000));
        assert!(!health.wants_skew(1_000_000 + SKEW_EVERY_MS - 1));
        assert!(health.wants_skew(1_000_000 + SKEW_EVERY_MS));
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_connection_that_was_lost_is_being_restored() {
        let health = ConnectionHealth::default();
        let period = Duration::from_secs(6);
        health.connected();
        assert_eq!(health.restoring(period), Duration::ZERO);
        health.disconnected();
        health.connected();
        assert_eq!(health.restoring(period), period);
        tokio::time::advance(Duration::from_secs(4)).await;
        assert_eq!(health.restoring(period), Duration::from_secs(2));
        tokio::time::advance(Duration::from_secs(4)).await;
        assert_eq!(health.restoring(period), Duration::ZERO);
    }

    #[tokio::test]
    async fn a_refusal_is_seen_by_whoever_waits_for_that_subject() {
        let health = ConnectionHealth::default();
        let waiting = health.refusal_of("dray.event.x");
        tokio::pin!(waiting);
        assert!(futures_util::poll!(&mut waiting).is_pending());
        health.refused("dray.event.y".to_owned());
        assert!(futures_util::poll!(&mut waiting).is_pending());
        health.refused("dray.event.x".to_owned());
        waiting.await;
        assert!(matches!(
            health.violation(),
            Some(ProbeError::Denied { count: 2, first }) if first == "dray.event.y"
        ));
    }
}
