//! Waits for a condition instead of a fixed time.

use std::panic::Location;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Longest wait for any condition: long enough for a busy machine, short enough to notice a hang.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Delay between two checks: short, so that a test waits hardly longer than necessary.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Delay between two checks of slow conditions.
const SLOW_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Repeats `check` until it returns a value, at most for 30 seconds.
///
/// # Panics
/// When no value is available in time; the message says that it waited for `what`.
#[track_caller]
pub fn eventually<T>(
    description: &str,
    check: impl AsyncFnMut() -> Option<T>,
) -> impl Future<Output = T> {
    wait_for(
        Location::caller(),
        description,
        WAIT_TIMEOUT,
        POLL_INTERVAL,
        check,
    )
}

/// Like [`eventually`] for slow conditions, such as the start of a complete deployment: waits at most `limit`, with
/// fewer checks.
///
/// # Panics
/// When no value is available in time; the message says that it waited for `what`.
#[track_caller]
pub fn eventually_within<T>(
    limit: Duration,
    description: &str,
    check: impl AsyncFnMut() -> Option<T>,
) -> impl Future<Output = T> {
    wait_for(
        Location::caller(),
        description,
        limit,
        SLOW_POLL_INTERVAL,
        check,
    )
}

#[expect(clippy::panic, reason = "only tests call it, and it fails the test")]
async fn wait_for<T>(
    caller: &Location<'_>,
    description: &str,
    limit: Duration,
    pause: Duration,
    check: impl AsyncFnMut() -> Option<T>,
) -> T {
    match poll_within(limit, pause, check).await {
        Some(value) => value,
        None => panic!("{caller}: waited {limit:?} for {description}"),
    }
}

async fn poll_within<T>(
    limit: Duration,
    pause: Duration,
    mut check: impl AsyncFnMut() -> Option<T>,
) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(value) = check().await {
            return Some(value);
        }
        // The time is checked after the condition, so that it is evaluated at least once even with a limit of zero.
        if Instant::now() >= end {
            return None;
        }
        sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn returns_the_awaited_value() {
        let mut checks = 0;
        let value = eventually("the third check", async || {
            checks += 1;
            (checks == 3).then_some(checks)
        })
        .await;
        assert_eq!(value, 3);
    }

    #[tokio::test]
    async fn gives_up_after_its_timeout() {
        let mut checks = 0;
        let value = poll_within(Duration::ZERO, POLL_INTERVAL, async || {
            checks += 1;
            None::<()>
        });
        assert_eq!(value.await, None);
        assert_eq!(checks, 1);
    }
}
