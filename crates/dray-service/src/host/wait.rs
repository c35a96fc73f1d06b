//! Waits at start for servers that are not available yet, because the services of a deployment start in any order. The
//! error types of the connections define which failures are temporary.

use std::error::Error;
use std::time::Duration;

use tokio::time::Instant;

use super::ErrorChain;

/// Time between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Calls `open` repeatedly while its error is temporary, at most for `limit`. Every failure is logged; the
/// last one is returned.
pub(super) async fn retry_while_temporary<T, E, F>(
    description: &'static str,
    limit: Duration,
    is_temporary: fn(&E) -> bool,
    mut open: impl FnMut() -> F,
) -> Result<T, E>
where
    E: Error + 'static,
    F: Future<Output = Result<T, E>>,
{
    let end = Instant::now() + limit;
    loop {
        let error = match open().await {
            Err(error) if is_temporary(&error) => error,
            other => return other,
        };
        let remaining = end.saturating_duration_since(Instant::now());
        // The time is checked after an attempt, so that a limit of zero still allows one.
        if remaining.is_zero() {
            return Err(error);
        }
        tracing::warn!(
            error = %ErrorChain(&error),
            seconds_left = remaining.as_secs(),
            "waiting for {description}"
        );
        tokio::time::sleep(RETRY_INTERVAL.min(remaining)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::*;

    fn is_temporary(error: &Error) -> bool {
        error.kind() == ErrorKind::ConnectionRefused
    }

    #[tokio::test(start_paused = true)]
    async fn retries_until_the_server_is_available() {
        let mut attempts = 0;
        let opened =
            retry_while_temporary("a server", Duration::from_mins(2), is_temporary, || {
                attempts += 1;
                std::future::ready(if attempts < 4 {
                    Err(Error::from(ErrorKind::ConnectionRefused))
                } else {
                    Ok(attempts)
                })
            });
        assert_eq!(opened.await.unwrap(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn fails_when_the_limit_has_passed() {
        let started = Instant::now();
        let opened =
            retry_while_temporary("a server", Duration::from_mins(2), is_temporary, || {
                std::future::ready(Err::<(), _>(Error::from(ErrorKind::ConnectionRefused)))
            });
        assert!(opened.await.is_err());
        assert_eq!(started.elapsed(), Duration::from_mins(2));
    }

    #[tokio::test(start_paused = true)]
    async fn does_not_retry_permanent_errors() {
        let started = Instant::now();
        let opened =
            retry_while_temporary("a server", Duration::from_mins(2), is_temporary, || {
                std::future::ready(Err::<(), _>(Error::from(ErrorKind::PermissionDenied)))
            });
        assert!(opened.await.is_err());
        assert!(started.elapsed().is_zero());
    }
}
