//! Waiting between attempts to change a record that others change as well.

use std::time::Duration;

use tokio::time::sleep;
use uuid::Uuid;

/// Longest delay before another attempt, in milliseconds.
const MAX_DELAY_MS: u64 = 100;

/// Waits after an attempt that another writer made stale. The delay is random, and longer after each attempt, so that
/// many writers do not meet again. Attempts count from 0.
pub(crate) async fn wait_after_conflict(attempt: usize) {
    let doubled = u32::try_from(attempt)
        .ok()
        .and_then(|attempt| 2_u64.checked_pow(attempt));
    let longest_ms = doubled.unwrap_or(MAX_DELAY_MS).min(MAX_DELAY_MS);
    let random = Uuid::new_v4().as_u64_pair().1;
    sleep(Duration::from_millis(random % (longest_ms + 1))).await;
}
