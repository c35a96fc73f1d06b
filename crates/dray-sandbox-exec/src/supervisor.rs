//! Ends remote commands whose caller has disconnected, because they may outlive their connection.
//!
//! Docker, Kubernetes and Modal promise nothing about a command whose stream was closed. Each command therefore carries
//! a mark in its environment, which its children inherit, and a second command kills every process that carries it. A
//! process that clears its own environment is found by a second mark, where the command has one.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use dray_sandbox::error::{Error, ErrorKind};
use rand::Rng as _;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::task::TaskTracker;

/// Name of the variable that holds the mark of a command.
pub const MARK_VARIABLE: &str = "DRAY_TRANSFER";

/// Kills every process that carries one of the marks, until a round finds none. Status 0 when any was found, 1 when
/// none was.
const KILL_SCRIPT: &str = concat!(
    "exec 2>/dev/null\n",
    include_str!("script/marked.sh"),
    "dray_kill_all \"$1\" \"$2\"\n"
);

/// Most attempts to kill a command that its system still reports as running.
const MAX_KILLS: usize = 20;
/// Most searches for a command on a system that does not report it: it may not have been started yet.
const MAX_SEARCHES: usize = 3;
/// Delay after a search that found no process.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How long an operation waits for kills of earlier commands.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

/// State of a command as its system reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandState {
    /// The command runs.
    Running,
    /// The command has ended. Its children may run.
    Ended,
    /// The system does not know the command: it was never started, or its start is still under way.
    Unknown,
    /// The system never reports the state of commands.
    Unreported,
}

/// Operations that the supervisor needs from the system that runs a command.
#[async_trait]
pub trait CommandControl: Debug + Send + Sync + 'static {
    /// Runs another command beside the supervised one, without a mark and without waiting for [`Supervisor::settle`],
    /// and returns its exit status.
    async fn run_unsupervised(&self, argv: Vec<String>) -> Result<i32, Error>;

    /// The state of the command, as its system reports it.
    async fn state(&self) -> Result<CommandState, Error> {
        Ok(CommandState::Unreported)
    }
}

/// A mark that no other command has.
pub fn new_mark() -> String {
    format!("{:032x}", rand::rng().random::<u128>())
}

/// Supervises the commands of one sandbox, and counts those that are being killed.
#[derive(Clone, Debug)]
pub struct Supervisor {
    /// Number of commands that are being killed. A dropped command may still be starting; the next operation must not
    /// overlap with it.
    kills: Arc<watch::Sender<usize>>,
    tasks: TaskTracker,
}

impl Supervisor {
    /// Kills run as tasks of this tracker.
    pub fn new(tasks: TaskTracker) -> Self {
        Self {
            kills: Arc::new(watch::Sender::new(0)),
            tasks,
        }
    }

    /// Whether no command is being killed.
    pub fn is_settled(&self) -> bool {
        *self.kills.borrow() == 0
    }

    /// Waits until no command is being killed, for at most ten seconds: if the system hangs, the next operation fails
    /// anyway.
    pub async fn settle(&self) {
        let mut kills = self.kills.subscribe();
        drop(timeout(SETTLE_TIMEOUT, kills.wait_for(|count| *count == 0)).await);
    }

    /// Supervises a command from the moment before it is started. Must be called within a runtime.
    pub fn watch(&self, mark: &str, control: impl CommandControl) -> Arc<SupervisedCommand> {
        self.watch_marks(
            CommandMarks::text(format!("{MARK_VARIABLE}={mark}")),
            control,
        )
    }

    /// Like [`Self::watch`], for a command whose processes have other marks.
    pub(crate) fn watch_marks(
        &self,
        marks: CommandMarks,
        control: impl CommandControl,
    ) -> Arc<SupervisedCommand> {
        Arc::new(SupervisedCommand {
            control: Box::new(control),
            marks,
            is_over: AtomicBool::new(false),
            start_failed: AtomicBool::new(false),
            status: Mutex::new(None),
            supervisor: self.clone(),
            runtime: Handle::current(),
        })
    }
}

/// Marks that the processes of a command inherit from it.
#[derive(Clone, Debug)]
pub(crate) struct CommandMarks {
    /// A text somewhere in the environment.
    pub(crate) text: String,
    /// The limit on file locks, if the command sets one.
    pub(crate) lock_limit: Option<u64>,
}

impl CommandMarks {
    const fn text(text: String) -> Self {
        Self {
            text,
            lock_limit: None,
        }
    }
}

/// A command that may run.
#[derive(Debug)]
pub struct SupervisedCommand {
    control: Box<dyn CommandControl>,
    marks: CommandMarks,
    /// Whether the command has ended, or is being killed.
    is_over: AtomicBool,
    start_failed: AtomicBool,
    status: Mutex<Option<i32>>,
    supervisor: Supervisor,
    runtime: Handle,
}

impl SupervisedCommand {
    /// A guard that kills the command when it is dropped before the command has ended.
    pub fn guard(self: &Arc<Self>) -> KillGuard {
        KillGuard {
            command: Some(Arc::clone(self)),
        }
    }

    /// Records that the command no longer runs, or never ran.
    pub fn set_over(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// Records that the start failed. The command may run anyway, if a repeated request failed after the first one
    /// succeeded.
    pub fn set_start_failed(&self) {
        self.start_failed.store(true, Ordering::SeqCst);
    }

    /// Records that the command ended with this status.
    pub fn set_ended(&self, status: i32) {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
        self.set_over();
    }

    /// The exit status of the command.
    ///
    /// # Errors
    /// [`ErrorKind::Protocol`] when it has none.
    pub fn status(&self) -> Result<i32, Error> {
        let status = *self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.ok_or_else(|| Error::new(ErrorKind::Protocol, "the command has no exit status"))
    }

    fn kill(self: &Arc<Self>) {
        if self.is_over.swap(true, Ordering::SeqCst) {
            return;
        }
        let kills = Arc::clone(&self.supervisor.kills);
        kills.send_modify(|count| *count += 1);
        let command = Arc::clone(self);
        let killing = async move {
            if let Err(error) = command.kill_all().await {
                // A sandbox that stopped or went away has no commands either.
                tracing::debug!(%error, "a command could not be ended");
            }
            kills.send_modify(|count| *count = count.saturating_sub(1));
        };
        drop(self.supervisor.tasks.spawn_on(killing, &self.runtime));
    }

    /// Kills first and asks for the state afterwards. A command that has ended may have left children, and a command
    /// that is only starting has no mark yet.
    async fn kill_all(&self) -> Result<(), Error> {
        let start_failed = self.start_failed.load(Ordering::SeqCst);
        if start_failed && self.control.state().await? == CommandState::Unknown {
            return Ok(());
        }
        for attempt in 1..=MAX_KILLS {
            let found = self.kill_once(&self.marks).await?;
            match self.control.state().await? {
                CommandState::Ended => break,
                CommandState::Unknown | CommandState::Unreported
                    if found || attempt >= MAX_SEARCHES =>
                {
                    break;
                }
                CommandState::Running | CommandState::Unknown | CommandState::Unreported => {}
            }
            if !found {
                sleep(POLL_INTERVAL).await;
            }
        }
        Ok(())
    }

    /// Kills the processes of the command that carry these marks, as soon as one exists. The other processes continue.
    ///
    /// # Errors
    /// The failure to run a command.
    pub(crate) async fn kill_part(&self, marks: &CommandMarks) -> Result<(), Error> {
        for _ in 0..MAX_SEARCHES {
            if self.is_over.load(Ordering::SeqCst) || self.kill_once(marks).await? {
                break;
            }
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Kills the processes that carry the marks. Returns whether any was found.
    async fn kill_once(&self, marks: &CommandMarks) -> Result<bool, Error> {
        let limit = marks.lock_limit.map(|limit| limit.to_string());
        let limit = limit.unwrap_or_default();
        let argv = ["sh", "-c", KILL_SCRIPT, "sh", &marks.text, &limit].map(str::to_owned);
        match self.control.run_unsupervised(argv.to_vec()).await? {
            0 => Ok(true),
            1 => Ok(false),
            status => Err(Error::new(
                ErrorKind::ToolMissing,
                format!("the script that kills ended with status {status}"),
            )),
        }
    }
}

/// Kills its command when it is dropped, unless the command has ended or the guard is disarmed.
#[derive(Debug)]
pub struct KillGuard {
    command: Option<Arc<SupervisedCommand>>,
}

impl KillGuard {
    /// The command no longer has to be killed on behalf of this guard.
    pub fn disarm(&mut self) {
        self.command = None;
    }
}

impl Drop for KillGuard {
    fn drop(&mut self) {
        if let Some(command) = &self.command {
            command.kill();
        }
    }
}

#[cfg(test)]
mod tests;
