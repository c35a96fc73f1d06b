//! Lets tests inject faults into the writes of records: a lost request, a lost response, a pause, and writers that
//! interleave.
//!
//! Outside of tests a write only runs.

use super::{RecordError, RecordKind};

#[cfg(test)]
pub(crate) use self::plan::{FaultPlan, RecordFault};

/// The planned faults of one process; empty unless a test plans some. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct FaultInjector {
    #[cfg(test)]
    pub(super) plan: std::sync::Arc<FaultPlan>,
}

impl FaultInjector {
    #[cfg(test)]
    pub(super) async fn write<T: Send>(
        &self,
        kind: RecordKind,
        write: impl Future<Output = Result<T, RecordError>> + Send,
    ) -> Result<T, RecordError> {
        self.plan.write(kind, write).await
    }

    #[cfg(not(test))]
    pub(super) async fn write<T: Send>(
        &self,
        _: RecordKind,
        write: impl Future<Output = Result<T, RecordError>> + Send,
    ) -> Result<T, RecordError> {
        write.await
    }
}

#[cfg(test)]
mod plan {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex};

    use tokio::sync::Notify;

    use super::{RecordError, RecordKind};
    use crate::records::unavailable_failure;

    /// The fault of a write.
    #[derive(Clone, Debug)]
    pub(crate) enum RecordFault {
        /// The write is applied.
        None,
        /// The request is lost.
        LoseRequest,
        /// The write is applied, but its response is lost.
        LoseResponse,
        /// The write waits until it is notified.
        Hold(Arc<Notify>),
    }

    #[derive(Debug)]
    struct PlannedFault {
        kind: RecordKind,
        /// Number of writes that still get the fault.
        writes: usize,
        fault: RecordFault,
    }

    /// The faults of the writes of one process.
    #[derive(Debug, Default)]
    pub(crate) struct FaultPlan {
        planned: Mutex<Vec<PlannedFault>>,
        interleaves: AtomicBool,
    }

    impl FaultPlan {
        /// Plans a fault for the next writes of a kind.
        pub(crate) fn add(&self, kind: RecordKind, writes: usize, fault: RecordFault) {
            let planned = PlannedFault {
                kind,
                writes,
                fault,
            };
            self.planned.lock().unwrap().push(planned);
        }

        /// Removes all faults.
        pub(crate) fn clear(&self) {
            self.planned.lock().unwrap().clear();
        }

        /// From now on other tasks run before each write, so that concurrent writers read the same revision.
        pub(crate) fn interleave(&self) {
            self.interleaves.store(true, Ordering::SeqCst);
        }

        fn take(&self, kind: RecordKind) -> Option<RecordFault> {
            let mut planned = self.planned.lock().unwrap();
            let found = planned
                .iter_mut()
                .find(|planned| planned.kind == kind && planned.writes > 0)?;
            found.writes -= 1;
            Some(found.fault.clone())
        }

        pub(super) async fn write<T: Send>(
            &self,
            kind: RecordKind,
            write: impl Future<Output = Result<T, RecordError>> + Send,
        ) -> Result<T, RecordError> {
            if self.interleaves.load(Ordering::SeqCst) {
                tokio::task::yield_now().await;
            }
            match self.take(kind) {
                None | Some(RecordFault::None) => write.await,
                Some(RecordFault::LoseRequest) => Err(RecordError::Failed(unavailable_failure())),
                Some(RecordFault::LoseResponse) => {
                    drop(write.await);
                    Err(RecordError::Failed(unavailable_failure()))
                }
                Some(RecordFault::Hold(permitted)) => {
                    permitted.notified().await;
                    write.await
                }
            }
        }
    }
}
