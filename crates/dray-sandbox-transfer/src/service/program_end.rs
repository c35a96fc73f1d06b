//! The ends of programs: the time until then, and the wait for those that are killed.

use std::sync::Arc;
use std::time::Duration;

use dray_sandbox::{Error as SandboxError, ErrorKind, Sandbox};
use dray_transfer_engine::Engine;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

/// Shortest time in which a program is run.
const MIN_TIME: Duration = Duration::from_secs(1);

/// The time that a program may take: `time`, or less where the sandbox ends earlier and cannot be extended.
///
/// # Errors
///
/// [`ErrorKind::SandboxGone`] when less than a second is left, and other failures of the sandbox.
pub(super) async fn within_lifetime(
    engine: &Engine,
    time: Duration,
) -> Result<Duration, SandboxError> {
    match engine.sandbox().ensure_lifetime(time).await {
        Err(error) if error.kind() == ErrorKind::SandboxGone => {
            let life_ms = engine.probe_again().await?.life_ms;
            match life_ms.map(Duration::from_millis) {
                Some(life) if life >= MIN_TIME => Ok(time.min(life)),
                _ => Err(error),
            }
        }
        extended => extended.map(|()| time),
    }
}

/// Waits for the end of a program that is killed. When the call is dropped, a task waits, so that the service does not
/// stop before the program has ended.
pub(super) struct EndingProgram<'a> {
    /// Absent when no process of the program is left to be killed.
    sandbox: Option<Arc<dyn Sandbox>>,
    tasks: &'a TaskTracker,
}

impl<'a> EndingProgram<'a> {
    pub(super) fn new(sandbox: &Arc<dyn Sandbox>, tasks: &'a TaskTracker) -> Self {
        Self {
            sandbox: Some(Arc::clone(sandbox)),
            tasks,
        }
    }

    /// Waits until no process of a program without a report is left, at most for this time. After it, a task waits.
    pub(super) async fn settle(mut self, is_reported: bool, time: Duration) {
        if let Some(sandbox) = self.sandbox.as_ref().filter(|_| !is_reported)
            && timeout(time, sandbox.settled()).await.is_err()
        {
            return;
        }
        self.sandbox = None;
    }
}

impl Drop for EndingProgram<'_> {
    fn drop(&mut self) {
        if let Some(sandbox) = self.sandbox.take() {
            self.tasks.spawn(async move { sandbox.settled().await });
        }
    }
}

#[cfg(test)]
mod tests {
    use dray_sandbox_conformance::fake::Fake;
    use dray_transfer_engine::EngineOptions;

    use super::*;

    #[tokio::test]
    async fn a_program_may_take_as_long_as_the_sandbox_exists() {
        let fake = Fake::new();
        let engine = Engine::new(Arc::new(fake.clone()), EngineOptions::default());
        let ten_minutes = Duration::from_mins(10);
        let time = within_lifetime(&engine, ten_minutes).await.unwrap();
        assert_eq!(time, ten_minutes);
        fake.life(Duration::from_secs(90));
        let time = within_lifetime(&engine, ten_minutes).await.unwrap();
        assert_eq!(time, Duration::from_secs(90));
        fake.life(Duration::from_millis(900));
        let gone = within_lifetime(&engine, ten_minutes).await.unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::SandboxGone);
    }
}
