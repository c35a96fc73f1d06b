//! Rules that the control APIs of all providers share: a key is needed, and a sandbox has an end.

use std::time::Duration;

use dray_sandbox::{Error, ErrorKind};
use dray_types::{Clock, Secret};

/// Fails without an API key, so that no request leaves without one.
///
/// # Errors
/// [`ErrorKind::Auth`].
pub fn require_key(api_key: &Secret) -> Result<(), Error> {
    if api_key.is_empty() {
        return Err(Error::new(ErrorKind::Auth, "no `api_key` is configured"));
    }
    Ok(())
}

/// The remaining lifetime of a sandbox that ends at `end_ms`, in Unix milliseconds; zero after the end.
pub fn remaining_lifetime(end_ms: i64, clock: &Clock) -> Duration {
    let end_ms = u64::try_from(end_ms).unwrap_or_default();
    Duration::from_millis(end_ms.saturating_sub(clock.now_ms()))
}

/// Fails if the remaining lifetime is shorter than a transfer needs.
///
/// # Errors
/// [`ErrorKind::SandboxGone`], because the sandbox would end during the transfer.
pub fn require_lifetime(left: Duration, needed: Duration) -> Result<(), Error> {
    if left >= needed {
        return Ok(());
    }
    let context = format!("the sandbox ends in {left:?}, and the transfer needs {needed:?}");
    Err(Error::new(ErrorKind::SandboxGone, context))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_11_the_remaining_lifetime_is_never_negative() {
        let clock = Clock::manual(1_000);
        assert_eq!(
            remaining_lifetime(1_500, &clock),
            Duration::from_millis(500)
        );
        assert_eq!(remaining_lifetime(1_000, &clock), Duration::ZERO);
        assert_eq!(remaining_lifetime(999, &clock), Duration::ZERO);
        assert_eq!(remaining_lifetime(-1, &clock), Duration::ZERO);
    }

    #[test]
    fn a_sandbox_that_ends_before_the_transfer_counts_as_gone() {
        let second = Duration::from_secs(1);
        assert!(require_lifetime(second, second).is_ok());
        let error = require_lifetime(Duration::ZERO, second).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::SandboxGone);
    }

    #[test]
    fn no_request_leaves_without_a_key() {
        assert!(require_key(&Secret::new("k")).is_ok());
        let error = require_key(&Secret::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Auth);
    }
}
