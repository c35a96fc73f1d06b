//! Commands that are being ended.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// How long the next command waits for the end of those before it.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Counts ends under way. A command that was dropped may still be starting, and what it makes must not come after
/// what follows.
#[derive(Debug)]
pub(super) struct Pending(watch::Sender<usize>);

impl Pending {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    pub(super) fn begin(&self) {
        self.0.send_modify(|count| *count += 1);
    }

    pub(super) fn end(&self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }

    /// Waits until none is under way, though not for ever: a server that hangs shows that by itself.
    pub(super) async fn settle(&self) {
        let mut seen = self.0.subscribe();
        drop(timeout(END_TIMEOUT, seen.wait_for(|count| *count == 0)).await);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn settling_waits_for_every_end_but_not_for_ever() {
        // paused clock
        let pending = Pending::new();
        pending.settle().await;
        pending.begin();
        pending.begin();
        pending.end();
        let before = tokio::time::Instant::now();
        pending.settle().await;
        assert_eq!(before.elapsed(), END_TIMEOUT);
        pending.end();
        let before = tokio::time::Instant::now();
        pending.settle().await;
        assert_eq!(before.elapsed(), Duration::ZERO);
    }
}
