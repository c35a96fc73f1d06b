//! The only place that reads the wall clock, so that tests can set the time for all other code.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::period::whole_millis;

/// Wall-clock time as a value, so that tests can move it.
///
/// Cheap to clone. Clones of a manual clock move together.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    manual: Option<Arc<AtomicU64>>,
}

impl Clock {
    /// The clock of the machine, which may jump when it is set.
    pub fn system() -> Self {
        Self::default()
    }

    /// A clock that is at `unix_ms` until it is set.
    pub fn manual(unix_ms: u64) -> Self {
        Self {
            manual: Some(Arc::new(AtomicU64::new(unix_ms))),
        }
    }

    /// Milliseconds since the Unix epoch.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the clock that everything else uses"
    )]
    pub fn now_ms(&self) -> u64 {
        match &self.manual {
            Some(manual) => manual.load(Ordering::SeqCst),
            None => SystemTime::now()
                // A clock before 1970 reads as zero: deadlines are then far in the future, and no call fails because of
                // the clock.
                .duration_since(UNIX_EPOCH)
                .map_or(0, whole_millis),
        }
    }

    /// Moves a manual clock forward; the system clock cannot be moved and stays as it is.
    pub fn advance(&self, by: Duration) {
        if let Some(manual) = &self.manual {
            manual.fetch_add(whole_millis(by), Ordering::SeqCst);
        }
    }
}
