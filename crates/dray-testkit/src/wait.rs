//! Waiting for a condition instead of for time to pass.

use std::panic::Location;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Longest wait, whatever the condition: long enough for a busy machine, short enough to notice a hang.
const PATIENCE: Duration = Duration::from_secs(30);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// Looks again and again until there is something, at most for 30 seconds.
///
/// # Panics
/// When there is still nothing; `what` says what was awaited.
#[expect(clippy::panic, reason = "only tests call it, and it fails the test")]
#[track_caller]
pub fn eventually<T>(what: &str, look: impl AsyncFnMut() -> Option<T>) -> impl Future<Output = T> {
    let caller = Location::caller();
    async move {
        match within(PATIENCE, look).await {
            Some(found) => found,
            None => panic!("{caller}: waited {PATIENCE:?} for {what}"),
        }
    }
}

async fn within<T>(patience: Duration, mut look: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + patience;
    loop {
        if let Some(found) = look().await {
            return Some(found);
        }
        if Instant::now() >= end {
            return None;
        }
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn gives_what_it_waited_for() {
        let mut looks = 0;
        let found = eventually("the third look", async || {
            looks += 1;
            (looks == 3).then_some(looks)
        })
        .await;
        assert_eq!(found, 3);
    }

    #[tokio::test]
    async fn gives_up_in_the_end() {
        let mut looks = 0;
        let found = within(Duration::ZERO, async || {
            looks += 1;
            None::<()>
        });
        assert_eq!(found.await, None);
        assert_eq!(looks, 1);
    }
}
