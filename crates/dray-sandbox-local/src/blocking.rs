//! Blocking work on threads outside the runtime, cancelled when its caller has disconnected.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dray_sandbox::error::{Error, ErrorKind};

/// Signals that the caller has disconnected.
#[derive(Clone, Debug, Default)]
pub(super) struct AbandonedFlag(Arc<AtomicBool>);

impl AbandonedFlag {
    /// Fails when the caller has disconnected; long work calls it at every step.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.0.load(Ordering::Relaxed) {
            return Err(Error::new(
                ErrorKind::Unavailable,
                "the caller no longer waits",
            ));
        }
        Ok(())
    }
}

struct AbandonGuard(AbandonedFlag);

impl Drop for AbandonGuard {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `work` on a thread that may block. When the future is dropped the work is cancelled.
pub(super) async fn run<T: Send + 'static>(
    work: impl FnOnce(&AbandonedFlag) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let abandoned = AbandonedFlag::default();
    let guard = AbandonGuard(abandoned.clone());
    // A thread cannot be stopped from outside; dropping this future only sets the flag.
    let result = tokio::task::spawn_blocking(move || work(&abandoned)).await;
    drop(guard);
    result.unwrap_or_else(|error| {
        Err(Error::new(ErrorKind::Unavailable, "a thread failed").caused_by(error))
    })
}
