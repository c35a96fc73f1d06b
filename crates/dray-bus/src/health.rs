//! The health of the connection, as its events report it.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::ProbeError;

/// Time between two comparisons of the clocks.
const SKEW_CHECK_INTERVAL_MS: u64 = 30_000;

/// Longest pause between two attempts to reconnect. Workers that lose their connections together are back within this
/// time of each other.
pub(crate) const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(4);

/// State of the connection as its events report it. Clones share it.
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
    ledger_revision: AtomicU64,
    connection: Mutex<ConnectionState>,
}

/// The state of the connection, and the time of the last reconnect.
#[derive(Debug, Default)]
struct ConnectionState {
    is_lost: bool,
    /// Whether the server refused the identity of a connection, and accepted none since.
    is_identity_refused: bool,
    restored_at: Option<Instant>,
}

/// How long the leases of others cannot be judged: `lost` is whether the connection is down, `restored` how long ago it
/// came back. Zero for a connection that was never lost.
pub fn lease_grace(lost: bool, restored: Option<Duration>, lease: Duration) -> Duration {
    let period = lease + MAX_RECONNECT_DELAY;
    // Messages of the restored connection can arrive before the event that reports it.
    if lost {
        return period;
    }
    restored.map_or(Duration::ZERO, |since| period.saturating_sub(since))
}

/// Refused subjects that are remembered.
const MAX_REFUSED_SUBJECTS: usize = 64;

impl ConnectionHealth {
    /// Records a permission violation. `subject` is the refused subject, or the text of the server if it names none.
    pub(crate) fn record_refusal(&self, subject: String) {
        self.shared.violations.fetch_add(1, Ordering::SeqCst);
        let mut refused = self.lock();
        // The list is bounded: a subject can contain an operation's key, so with a wrong permission every message may
        // add a new subject.
        if refused.len() < MAX_REFUSED_SUBJECTS && !refused.contains(&subject) {
            refused.push(subject);
        }
        drop(refused);
        // The count changes after the lock is released, because each woken waiter takes the lock.
        self.shared.refusals.send_modify(|count| *count += 1);
    }

    /// The highest revision of a ledger write that was confirmed.
    pub(crate) fn ledger_revision(&self) -> u64 {
        self.shared.ledger_revision.load(Ordering::SeqCst)
    }

    /// Records the revision of a ledger write. Returns whether the ledger has lost entries. Revisions count all writes,
    /// so in an intact ledger a write after `known` was confirmed has a higher revision.
    pub(crate) fn record_ledger_write(&self, known: u64, revision: u64) -> bool {
        let is_regression = revision <= known;
        if is_regression {
            // Each loss is reported once; later writes are compared with the present revision.
            self.shared
                .ledger_revision
                .store(revision, Ordering::SeqCst);
        } else {
            self.shared
                .ledger_revision
                .fetch_max(revision, Ordering::SeqCst);
        }
        is_regression
    }

    /// Returns once the server has refused `subject`.
    pub(crate) async fn refusal_of(&self, subject: &str) {
        self.first_refusal(|refused| refused == subject).await;
    }

    /// Returns the first refused subject that `is_meant`, once there is one.
    pub(crate) async fn first_refusal(&self, is_meant: impl Fn(&str) -> bool) -> String {
        // The subscription begins before the first check; otherwise a refusal between the two would be missed.
        let mut refusals = self.shared.refusals.subscribe();
        loop {
            let found = self
                .lock()
                .iter()
                .find(|refused| is_meant(refused))
                .cloned();
            if let Some(found) = found {
                return found;
            }
            if refusals.changed().await.is_err() {
                // The sender lives as long as `self`, so this is not reached. If it were, waiting would be correct: no
                // refusal can follow.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Records that the server refused the identity of the connection.
    pub(crate) fn record_refused_identity(&self) {
        self.connection().is_identity_refused = true;
    }

    /// Records that the connection was lost.
    pub(crate) fn record_disconnected(&self) {
        self.connection().is_lost = true;
    }

    /// Records that the connection is up, for the first time or again.
    pub(crate) fn record_connected(&self) {
        let mut connection = self.connection();
        // The identity can be replaced while the process runs; permissions of subjects are not asked for again.
        connection.is_identity_refused = false;
        // No grace period follows the first connection, because no lease was lost before it.
        if std::mem::take(&mut connection.is_lost) {
            connection.restored_at = Some(Instant::now());
        }
    }

    /// How long the leases of others cannot be judged, after an outage of the bus. Other workers probably lost their
    /// connections too: each needs up to [`MAX_RECONNECT_DELAY`] to come back, and less than `lease` to renew.
    pub(crate) fn remaining_lease_grace(&self, lease: Duration) -> Duration {
        let connection = self.connection();
        let restored = connection.restored_at.map(|time| time.elapsed());
        lease_grace(connection.is_lost, restored, lease)
    }

    fn connection(&self) -> std::sync::MutexGuard<'_, ConnectionState> {
        self.shared
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the clocks should be compared now: at most every 30 s. If so, records that the check has begun.
    pub(crate) fn begin_skew_check(&self, now_ms: u64) -> bool {
        let last = self.shared.skew_measured_ms.load(Ordering::SeqCst);
        let is_due = now_ms.saturating_sub(last) >= SKEW_CHECK_INTERVAL_MS;
        if is_due {
            // Two concurrent tasks may both measure, which is harmless.
            self.shared.skew_measured_ms.store(now_ms, Ordering::SeqCst);
        }
        is_due
    }

    /// Records the difference between a time written by the server just now and the local clock.
    pub(crate) fn record_skew(&self, server_ms: u64, local_ms: u64) {
        let difference = i128::from(server_ms) - i128::from(local_ms);
        self.shared.skew_ms.store(
            i64::try_from(difference).unwrap_or(i64::MAX),
            Ordering::SeqCst,
        );
    }

    /// Whether the server has refused a subject since start, or the identity now: no work is pulled then (16).
    pub(crate) fn is_refused(&self) -> bool {
        self.shared.violations.load(Ordering::SeqCst) > 0 || self.connection().is_identity_refused
    }

    /// Milliseconds by which the server's clock is ahead of the local one, as last measured.
    pub(crate) fn skew_ms(&self) -> i64 {
        self.shared.skew_ms.load(Ordering::SeqCst)
    }

    /// The refusals since the start, or that of the identity now, if any.
    pub(crate) fn violation(&self) -> Option<ProbeError> {
        if self.connection().is_identity_refused {
            return Some(ProbeError::Denied {
                count: 1,
                first: "authorization violation".to_owned(),
            });
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_identity_counts_until_the_server_accepts_one() {
        let health = ConnectionHealth::default();
        health.record_refused_identity();
        assert!(health.is_refused() && health.violation().is_some());
        health.record_connected();
        assert!(!health.is_refused() && health.violation().is_none());
        // A refused subject is one of the permissions, which need a restart.
        health.record_refusal("dray.event.x".to_owned());
        health.record_connected();
        assert!(health.is_refused() && health.violation().is_some());
    }

    #[test]
    fn clocks_are_compared_at_most_every_half_minute() {
        let health = ConnectionHealth::default();
        assert!(health.begin_skew_check(1_000_000));
        assert!(!health.begin_skew_check(1_000_000 + SKEW_CHECK_INTERVAL_MS - 1));
        assert!(health.begin_skew_check(1_000_000 + SKEW_CHECK_INTERVAL_MS));
    }

    #[test]
    fn a_ledger_that_lost_entries_shows_by_its_revisions() {
        let health = ConnectionHealth::default();
        let before_both = health.ledger_revision();
        assert!(!health.record_ledger_write(before_both, 8));
        assert!(
            !health.record_ledger_write(before_both, 7),
            "confirmed late"
        );
        let known = health.ledger_revision();
        assert_eq!(known, 8);
        assert!(health.record_ledger_write(known, 5), "6 to 8 are gone");
        assert!(
            !health.record_ledger_write(health.ledger_revision(), 6),
            "reported once"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_connection_that_was_lost_is_being_restored() {
        let health = ConnectionHealth::default();
        let lease = Duration::from_secs(6);
        let period = lease + MAX_RECONNECT_DELAY;
        health.record_connected();
        assert_eq!(health.remaining_lease_grace(lease), Duration::ZERO);
        health.record_disconnected();
        health.record_connected();
        assert_eq!(health.remaining_lease_grace(lease), period);
        tokio::time::advance(Duration::from_secs(4)).await;
        assert_eq!(health.remaining_lease_grace(lease), Duration::from_secs(6));
        tokio::time::advance(Duration::from_secs(6)).await;
        assert_eq!(health.remaining_lease_grace(lease), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_connection_extends_leases_of_others_before_its_return_is_reported() {
        let health = ConnectionHealth::default();
        let lease = Duration::from_secs(6);
        health.record_connected();
        health.record_disconnected();
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(
            health.remaining_lease_grace(lease),
            lease + MAX_RECONNECT_DELAY
        );
    }

    #[tokio::test]
    async fn a_refusal_is_reported_to_the_waiter_for_that_subject() {
        let health = ConnectionHealth::default();
        let waiting = health.refusal_of("dray.event.x");
        tokio::pin!(waiting);
        assert!(futures_util::poll!(&mut waiting).is_pending());
        health.record_refusal("dray.event.y".to_owned());
        assert!(futures_util::poll!(&mut waiting).is_pending());
        health.record_refusal("dray.event.x".to_owned());
        waiting.await;
        assert!(matches!(
            health.violation(),
            Some(ProbeError::Denied { count: 2, first }) if first == "dray.event.y"
        ));
    }
}
