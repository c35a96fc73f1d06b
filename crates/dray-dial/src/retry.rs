//! Tries again what may be tried again.

use std::time::Duration;

/// How often and after how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryPolicy {
    /// Wait before the first further try; doubles.
    pub(crate) base: Duration,
}

/// Further tries after the first.
const MAX_RETRIES: u32 = 2;

/// Longest wait that a peer can ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(10);

impl RetryPolicy {
    /// Waits before try `made` + 1 when there is one. `made` counts from 1; `asked` is `Retry-After`.
    pub(crate) async fn again(self, made: u32, asked: Option<Duration>) -> bool {
        if made > MAX_RETRIES {
            return false;
        }
        let own = self.base.saturating_mul(1 << (made - 1));
        tokio::time::sleep(asked.unwrap_or(own).min(MAX_RETRY_AFTER)).await;
        true
    }
}
