//! Where a fault test can cut in: before or after any step that a user of the world takes.
//!
//! Outside of tests a step is just taken.

use crate::error::TransportError;

#[cfg(test)]
pub(crate) use self::plan::{Fault, Plan};

/// The faults that one user of the world meets with; none unless a test plans some.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    #[cfg(test)]
    plan: Option<std::sync::Arc<Plan>>,
}

impl Faults {
    #[cfg(test)]
    pub(super) fn planned(plan: &std::sync::Arc<Plan>) -> Self {
        Self {
            plan: Some(std::sync::Arc::clone(plan)),
        }
    }

    #[cfg(test)]
    pub(super) async fn step<T>(
        &self,
        take: impl FnOnce() -> Result<T, TransportError>,
    ) -> Result<T, TransportError> {
        match &self.plan {
            Some(plan) => plan.step(take).await,
            None => take(),
        }
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_async, reason = "a test waits here for what it planned")]
    pub(super) async fn step<T>(
        &self,
        take: impl FnOnce() -> Result<T, TransportError>,
    ) -> Result<T, TransportError> {
        take()
    }
}

#[cfg(test)]
mod plan {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use tokio_util::sync::CancellationToken;

    use crate::error::TransportError;

    /// What happens at a step.
    #[derive(Clone, Copy, Debug)]
    pub(crate) enum Fault {
        /// The process dies before the step.
        CrashBefore,
        /// The process dies after the step, before it learns of it.
        CrashAfter,
        /// The request is lost.
        LoseRequest,
        /// The request arrives and its answer is lost.
        LoseAnswer,
        /// The process stands still for so long, then takes the step.
        Pause(Duration),
    }

    /// The faults of one life of a process, by the number of the step.
    #[derive(Debug, Default)]
    pub(crate) struct Plan {
        faults: Vec<(u32, Fault)>,
        taken: AtomicU32,
        /// Fires when the process has died.
        pub(crate) dead: CancellationToken,
    }

    impl Plan {
        pub(crate) fn new(faults: Vec<(u32, Fault)>) -> Self {
            Self {
                faults,
                ..Self::default()
            }
        }

        pub(super) async fn step<T>(
            &self,
            take: impl FnOnce() -> Result<T, TransportError>,
        ) -> Result<T, TransportError> {
            let number = self.taken.fetch_add(1, Ordering::SeqCst);
            let fault = self
                .faults
                .iter()
                .find(|(at, _)| *at == number)
                .map(|(_, fault)| *fault);
            if self.dead.is_cancelled() {
                return std::future::pending().await;
            }
            match fault {
                None => take(),
                Some(Fault::LoseRequest) => Err(TransportError::TimedOut),
                Some(Fault::LoseAnswer) => {
                    drop(take());
                    Err(TransportError::TimedOut)
                }
                Some(Fault::Pause(pause)) => {
                    // paused clock
                    tokio::time::sleep(pause).await;
                    take()
                }
                Some(Fault::CrashBefore) => self.die().await,
                Some(Fault::CrashAfter) => {
                    drop(take());
                    self.die().await
                }
            }
        }

        async fn die<T>(&self) -> Result<T, TransportError> {
            self.dead.cancel();
            std::future::pending().await
        }
    }
}
