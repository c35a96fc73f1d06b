//! Work that remains on a host when the caller of a transfer or command is dropped.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::task::TaskTracker;

/// Background work. It is awaited only before the same files are changed.
#[derive(Clone, Debug)]
pub(crate) struct BackgroundWork {
    tasks: TaskTracker,
    left: Arc<watch::Sender<usize>>,
}

impl BackgroundWork {
    pub(crate) fn new() -> Self {
        Self {
            tasks: TaskTracker::new(),
            left: Arc::new(watch::Sender::new(0)),
        }
    }

    /// Runs the work in the background. It is dropped when the runtime ends.
    pub(crate) fn add(&self, work: impl Future<Output = ()> + Send + 'static) {
        // This function is called from `drop`, which may happen outside a runtime.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        // The task is counted before it is spawned, so that `settle` waits for it from this line on.
        let task = CountedTask::new(&self.left);
        let counted = async move {
            work.await;
            drop(task);
        };
        self.tasks.spawn_on(counted, &runtime);
    }

    /// Waits until no such work is left, so that a dropped transfer cannot undo the next change.
    pub(crate) async fn settle(&self) {
        // `self` keeps the sender alive, so waiting cannot fail.
        let _ = self.left.subscribe().wait_for(|left| *left == 0).await;
    }
}

/// Counts one unit of work until it ends, even by a panic.
struct CountedTask(Arc<watch::Sender<usize>>);

impl CountedTask {
    fn new(left: &Arc<watch::Sender<usize>>) -> Self {
        left.send_modify(|left| *left += 1);
        Self(Arc::clone(left))
    }
}

impl Drop for CountedTask {
    fn drop(&mut self) {
        self.0.send_modify(|left| *left = left.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn settling_waits_for_all_that_is_left() {
        let background_work = BackgroundWork::new();
        background_work.settle().await;
        let (done, wait) = tokio::sync::oneshot::channel::<()>();
        background_work.add(async move {
            let _ = wait.await;
        });
        assert!(background_work.settle().now_or_never().is_none());
        done.send(()).unwrap();
        background_work.settle().await;
    }

    #[tokio::test]
    async fn work_that_panics_is_not_waited_for_for_ever() {
        let background_work = BackgroundWork::new();
        background_work.add(async { panic!("on purpose") });
        background_work.settle().await;
    }
}
