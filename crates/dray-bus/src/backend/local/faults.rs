//! Lets tests inject faults before or after any request of a process to the in-process server. Each request is a
//! numbered step.
//!
//! Outside of tests a step only runs the request.

use crate::error::TransportError;

#[cfg(test)]
pub(crate) use self::plan::{FaultPlan, InjectedFault};

/// The planned faults of one process that uses the server; empty unless a test sets a plan.
#[derive(Clone, Debug, Default)]
pub(super) struct FaultInjector {
    #[cfg(test)]
    plan: Option<std::sync::Arc<FaultPlan>>,
}

impl FaultInjector {
    #[cfg(test)]
    pub(super) fn planned(plan: &std::sync::Arc<FaultPlan>) -> Self {
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
    #[expect(
        clippy::unused_async,
        reason = "a test waits here for its planned fault"
    )]
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

    /// The fault at a step.
    #[derive(Clone, Copy, Debug)]
    pub(crate) enum InjectedFault {
        /// The process crashes before the step.
        CrashBefore,
        /// The process crashes after the step, before it gets the response.
        CrashAfter,
        /// The request is lost.
        LoseRequest,
        /// The request arrives, but its response is lost.
        LoseResponse,
        /// The process is paused for this long, then continues with the step.
        Pause(Duration),
    }

    /// The faults of one run of a process, by the number of the step.
    #[derive(Debug, Default)]
    pub(crate) struct FaultPlan {
        faults: Vec<(u32, InjectedFault)>,
        steps_taken: AtomicU32,
        /// Fires when the process has crashed.
        pub(crate) crashed: CancellationToken,
    }

    impl FaultPlan {
        pub(crate) fn new(faults: Vec<(u32, InjectedFault)>) -> Self {
            Self {
                faults,
                ..Self::default()
            }
        }

        pub(super) async fn step<T>(
            &self,
            take: impl FnOnce() -> Result<T, TransportError>,
        ) -> Result<T, TransportError> {
            let number = self.steps_taken.fetch_add(1, Ordering::SeqCst);
            let fault = self
                .faults
                .iter()
                .find(|(step, _)| *step == number)
                .map(|(_, fault)| *fault);
            if self.crashed.is_cancelled() {
                return std::future::pending().await;
            }
            match fault {
                None => take(),
                Some(InjectedFault::LoseRequest) => Err(TransportError::TimedOut),
                Some(InjectedFault::LoseResponse) => {
                    drop(take());
                    Err(TransportError::TimedOut)
                }
                Some(InjectedFault::Pause(pause)) => {
                    // paused clock: leases expire during the pause, and no real time passes.
                    tokio::time::sleep(pause).await;
                    take()
                }
                Some(InjectedFault::CrashBefore) => self.crash().await,
                Some(InjectedFault::CrashAfter) => {
                    drop(take());
                    self.crash().await
                }
            }
        }

        async fn crash<T>(&self) -> Result<T, TransportError> {
            self.crashed.cancel();
            std::future::pending().await
        }
    }
}
