//! How a command ends, by itself or because its caller is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dray_sandbox::{Error, ErrorKind};
use tokio::runtime::Handle;
use tonic::{Code, Status};
use uuid::Uuid;

use super::{MARK_VARIABLE, start};
use crate::fault;
use crate::router::Router;
use crate::wire::{Empty, Ended, ExitStatus};

/// How often a command is killed that does not end.
const MOST_KILLS: usize = 10;

/// Kills every process that carries the mark. Twice, for those that were being made meanwhile.
const KILL_SCRIPT: &str = r#"
for round in 1 2; do
  for file in $(grep -lF -e "$1" /proc/[0-9]*/environ 2>/dev/null); do
    process=${file#/proc/}
    kill -9 "${process%/environ}"
  done
done 2>/dev/null
"#;

/// A command that was made.
#[derive(Debug)]
pub(super) struct End {
    router: Arc<Router>,
    exec_id: String,
    /// Whether it has ended, or is being ended.
    over: AtomicBool,
    runtime: Handle,
}

impl End {
    pub(super) fn new(router: Arc<Router>, exec_id: String) -> Arc<Self> {
        Arc::new(Self {
            router,
            exec_id,
            over: AtomicBool::new(false),
            runtime: Handle::current(),
        })
    }

    /// Has it killed unless it has ended.
    fn kill(self: &Arc<Self>) {
        if self.over.swap(true, Ordering::SeqCst) {
            return;
        }
        self.router.pending().begin();
        let end = Arc::clone(self);
        let killing = async move {
            if let Err(status) = end.kill_all().await {
                // A sandbox that is gone has no commands either.
                tracing::debug!(code = ?status.code(), "a command could not be ended");
            }
            end.router.pending().end();
        };
        drop(self.router.tracker().spawn_on(killing, &self.runtime));
    }

    /// Kills until the router says that it has ended, or never began: one that is only starting carries no mark yet.
    async fn kill_all(&self) -> Result<(), Status> {
        let path = "/modal.task_command_router.TaskCommandRouter/TaskExecPoll";
        let which = self.router.which(&self.exec_id);
        for _ in 0..MOST_KILLS {
            match self.router.ask::<_, Ended>(path, &which).await {
                Ok(Ended { exit_status: None }) => self.kill_once().await?,
                Err(status) if status.code() != Code::NotFound => return Err(status),
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    async fn kill_once(&self) -> Result<(), Status> {
        let exec_id = Uuid::new_v4().to_string();
        let mark = format!("{MARK_VARIABLE}={}", self.exec_id);
        let argv = ["sh", "-c", KILL_SCRIPT, "sh", &mark].map(str::to_owned);
        let start = start(&self.router, &exec_id, argv.to_vec());
        let path = "/modal.task_command_router.TaskCommandRouter/TaskExecStart";
        let Empty {} = self.router.ask(path, &start).await?;
        self.router.wait(&exec_id).await.map(drop)
    }
}

/// Dropping one before it is done kills the command.
#[derive(Debug)]
pub(super) struct Ending {
    end: Arc<End>,
    armed: bool,
}

impl Ending {
    pub(super) fn new(end: &Arc<End>) -> Self {
        Self {
            end: Arc::clone(end),
            armed: true,
        }
    }

    /// Nothing needs to be killed for this.
    pub(super) fn done(&mut self) {
        self.armed = false;
    }

    /// Waits for the end of the command.
    pub(super) async fn status(&self) -> Result<i32, Error> {
        let ended = self.end.router.wait(&self.end.exec_id).await;
        let ended = ended.map_err(|status| fault::failed("waiting for a command", &status))?;
        let status = match ended.exit_status {
            Some(ExitStatus::Code(code)) => code,
            Some(ExitStatus::Signal(signal)) => signal.saturating_add(128),
            None => return Err(Error::new(ErrorKind::Protocol, "an end without a status")),
        };
        self.end.over.store(true, Ordering::SeqCst);
        Ok(status)
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if self.armed {
            self.end.kill();
        }
    }
}
