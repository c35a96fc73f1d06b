//! Programs of the fake: each runs until its caller drops it, and then ends when the test permits it.

use dray_sandbox::body::Body;
use dray_sandbox::command::SandboxCommand;
use futures_util::{StreamExt as _, stream};
use tokio_util::sync::{CancellationToken, DropGuard};

/// The phase in which a program of the fake remains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramPhase {
    /// The program starts, and its caller has no result yet.
    Starting,
    /// The program has written some output.
    Running,
}

/// The programs of a [`Fake`](super::Fake), for the test that scripts them. Clones share one state.
#[derive(Clone, Debug)]
pub struct FakePrograms {
    phase: ProgramPhase,
    started: CancellationToken,
    dropped: CancellationToken,
    ended: CancellationToken,
}

impl FakePrograms {
    pub(super) fn new(phase: ProgramPhase) -> Self {
        Self {
            phase,
            started: CancellationToken::new(),
            dropped: CancellationToken::new(),
            ended: CancellationToken::new(),
        }
    }

    /// Waits until a program has reached its phase.
    pub async fn wait_until_started(&self) {
        self.started.cancelled().await;
    }

    /// Waits until a caller has dropped a program.
    pub async fn wait_until_dropped(&self) {
        self.dropped.cancelled().await;
    }

    /// Lets the dropped programs end.
    pub fn end(&self) {
        self.ended.cancel();
    }

    pub(super) async fn execute(&self) -> SandboxCommand {
        let guard: DropGuard = self.dropped.clone().drop_guard();
        self.started.cancel();
        if self.phase == ProgramPhase::Starting {
            // The guard is dropped with this future.
            return std::future::pending().await;
        }
        let output = stream::iter([Ok(bytes::Bytes::from_static(b"begun\n"))]);
        let output = output.chain(stream::once(async move {
            let _running = guard;
            std::future::pending().await
        }));
        SandboxCommand {
            output: Body::new(output),
            end: Box::pin(std::future::pending()),
        }
    }

    pub(super) async fn settled(&self) {
        if self.dropped.is_cancelled() {
            self.ended.cancelled().await;
        }
    }
}
