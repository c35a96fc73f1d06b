//! The pipes and the group of a process: stdin is fed, the end of stderr is kept, and the group is killed when its
//! result is no longer needed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dray_sandbox::body::Body;
use dray_sandbox::error::Error;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStderr, ChildStdin};
use tokio::task::JoinSet;

/// Length of the end of stderr that is kept, in bytes.
const STDERR_TAIL_BYTES: usize = 4096;

/// The process group of a command.
#[derive(Debug)]
pub(super) struct ProcessGroup {
    leader: Option<Pid>,
    /// Whether the leader was reaped; after that its number may belong to another group.
    reaped: AtomicBool,
}

impl ProcessGroup {
    /// The group of a child that leads it.
    pub(super) fn of(child: &Child) -> Self {
        let leader = child.id().and_then(|id| i32::try_from(id).ok());
        Self {
            leader: leader.and_then(Pid::from_raw),
            reaped: AtomicBool::new(false),
        }
    }

    /// Records that the leader was reaped.
    pub(super) fn set_reaped(&self) {
        self.reaped.store(true, Ordering::SeqCst);
    }

    fn kill(&self) {
        if let Some(leader) = self.leader
            && !self.reaped.load(Ordering::SeqCst)
        {
            // The group may have ended by itself in the meantime.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

/// Kills a group when it is dropped, unless it was disarmed.
#[derive(Debug)]
pub(super) struct GroupKiller {
    group: Arc<ProcessGroup>,
    armed: bool,
}

impl GroupKiller {
    pub(super) fn new(group: Arc<ProcessGroup>) -> Self {
        Self { group, armed: true }
    }

    pub(super) fn group(&self) -> &ProcessGroup {
        &self.group
    }

    pub(super) fn disarm(&mut self) {
        self.armed = false;
    }
}

impl Drop for GroupKiller {
    fn drop(&mut self) {
        if self.armed {
            self.group.kill();
        }
    }
}

/// Tasks for stdin and stderr of a process, which end with this value.
#[derive(Debug)]
pub(super) struct ProcessPipes {
    feeding: JoinSet<()>,
    stderr_task: JoinSet<()>,
    kept: Arc<Mutex<Vec<u8>>>,
    failure: Arc<Mutex<Option<Error>>>,
}

impl ProcessPipes {
    /// Starts the tasks. `close` is whether the end of the input closes stdin.
    pub(super) fn start(
        child: &mut Child,
        input: Option<Body>,
        close: bool,
        group: &Arc<ProcessGroup>,
    ) -> Self {
        let mut pipes = Self {
            feeding: JoinSet::new(),
            stderr_task: JoinSet::new(),
            kept: Arc::default(),
            failure: Arc::default(),
        };
        if let (Some(stdin), Some(input)) = (child.stdin.take(), input) {
            let failure = Arc::clone(&pipes.failure);
            let group = Arc::clone(group);
            pipes.feeding.spawn(async move {
                if let Err(error) = feed(stdin, input, close).await {
                    *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    // A command that waits for the rest of its input would never end.
                    group.kill();
                }
            });
        }
        if let Some(stderr) = child.stderr.take() {
            pipes
                .stderr_task
                .spawn(keep_tail(stderr, Arc::clone(&pipes.kept)));
        }
        pipes
    }

    /// The end of stderr, after the process has ended. Another process may still hold the pipe, so the wait is
    /// limited to `linger`.
    pub(super) async fn stderr(&mut self, linger: Duration) -> String {
        let tail_complete = async { while self.stderr_task.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(linger, tail_complete).await;
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&kept).into_owned()
    }

    /// The failure that ended the input early.
    pub(super) fn source_failure(&self) -> Option<Error> {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.take()
    }
}

/// Writes the input to stdin. Fails only when the source does: a process may close its stdin at any time.
async fn feed(mut stdin: ChildStdin, mut input: Body, close: bool) -> Result<(), Error> {
    while let Some(chunk) = input.next().await {
        if stdin.write_all(&chunk?).await.is_err() {
            return Ok(());
        }
    }
    if !close {
        // Stdin stays open if its end cannot be signalled; this task ends with `ProcessPipes`.
        std::future::pending::<()>().await;
    }
    Ok(())
}

async fn keep_tail(mut stderr: ChildStderr, kept: Arc<Mutex<Vec<u8>>>) {
    let mut chunk = vec![0; STDERR_TAIL_BYTES];
    while let Ok(read) = stderr.read(&mut chunk).await {
        if read == 0 {
            return;
        }
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(chunk.get(..read).unwrap_or_default());
        let surplus = kept.len().saturating_sub(STDERR_TAIL_BYTES);
        kept.drain(..surplus);
    }
}
