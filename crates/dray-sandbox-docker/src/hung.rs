//! Remembers that the shell of a container cannot be used now.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long a shell that hung is not used.
const HUNG_TIME: Duration = Duration::from_mins(1);

/// The time at which the shell last gave no response in time, or could not be started.
#[derive(Debug, Default)]
pub(crate) struct HungShell(Mutex<Option<Instant>>);

impl HungShell {
    /// Records that the shell hangs.
    pub(crate) fn set(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether the shell hung less than a minute ago.
    pub(crate) fn is_set(&self) -> bool {
        let hung = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        hung.is_some_and(|since| since.elapsed() < HUNG_TIME)
    }
}
