//! Leases in a bucket with compare-and-set: among all replicas, one holder at a time.
//!
//! Leases keep messages in order and avoid double work. They do not prevent duplicates, because a holder that stalls
//! may continue after its lease has ended.

use std::time::Duration;

use dray_types::whole_millis;
use serde::{Deserialize, Serialize};

/// How long a replica that crashed keeps others from sending to a chat: the lease ends after this time without a
/// renewal.
pub const CHAT_LEASE: Duration = Duration::from_secs(15);

/// How long a delivery waits for the lease of another replica before it is parked.
pub const MAX_LEASE_WAIT: Duration = Duration::from_secs(20);

/// Delay of a delivery that is parked because it got no lease.
pub const LEASE_RETRY_DELAY: Duration = Duration::from_secs(5);

/// The stored form of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRecord {
    /// Name of the process that has the lease.
    pub holder: String,
    /// Unix milliseconds at which it ends, by the clock of its holder.
    pub until_ms: u64,
}

impl LeaseRecord {
    /// A lease of this holder from `now_ms` on.
    pub fn lasting(holder: &str, now_ms: u64, lifetime: Duration) -> Self {
        let lifetime = whole_millis(lifetime);
        Self {
            holder: holder.to_owned(),
            until_ms: now_ms.saturating_add(lifetime),
        }
    }

    /// Encodes the lease as JSON, the stored form.
    pub fn encode(&self) -> Vec<u8> {
        // A name and a number can always be encoded as JSON.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// Whether `holder` may take a stored lease: it has ended, or `holder` already has it. An unreadable lease is free.
pub fn is_free(stored: &[u8], holder: &str, now_ms: u64) -> bool {
    serde_json::from_slice::<LeaseRecord>(stored).map_or(true, |held| {
        // The holder renews its own lease before its end.
        held.holder == holder || held.until_ms <= now_ms
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_free_for_its_holder_and_after_its_end() {
        let stored = LeaseRecord::lasting("one", 1_000, Duration::from_secs(10)).encode();
        assert!(is_free(&stored, "one", 2_000) && !is_free(&stored, "two", 10_999));
        assert!(is_free(&stored, "two", 11_000) && is_free(b"?", "two", 0));
    }
}
