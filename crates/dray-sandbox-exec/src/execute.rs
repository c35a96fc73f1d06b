//! Runs a program for a caller. It returns the output while the program writes it, the standard error up to a limit,
//! and the status.
//!
//! A channel carries one stream of output, and channels differ in how they report standard error and the status.
//! Therefore a script runs the program, keeps the beginning of its standard error, and prints both after the output,
//! after a line with a nonce. Where the channel has input, variables and arguments reach the script through it, so that
//! they appear in no list of processes and count towards no limit on arguments.

mod live_stderr;
mod output;
mod plan;

use std::sync::Arc;

use async_trait::async_trait;
use dray_sandbox::command::{CommandRequest, SandboxCommand};
use dray_sandbox::error::{Error, ErrorKind};
use futures_util::FutureExt as _;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::output::ProgramOutput;
use self::plan::ProgramPlan;
use super::channel::Exec;
use super::files::ExecFiles;
use super::reply::Nonce;
use super::supervisor::{CommandControl, CommandMarks, SupervisedCommand};

/// Ends the programs of a dropped caller by another command on the same channel.
#[derive(Debug)]
struct ChannelControl<E>(Arc<E>);

#[async_trait]
impl<E: Exec + 'static> CommandControl for ChannelControl<E> {
    async fn run_unsupervised(&self, argv: Vec<String>) -> Result<i32, Error> {
        let argv = argv.into_iter().map(String::into_bytes).collect();
        let mut running = self.0.run(argv, None).await?;
        while let Some(chunk) = running.stdout.next().await {
            chunk?;
        }
        Ok(running.end.await?.status)
    }
}

impl<E: Exec + 'static> ExecFiles<E> {
    /// See [`dray_sandbox::Sandbox::execute`]. Needs `sh`, `env`, `head`, `cat` and a program that encodes; without
    /// `/proc` no child that has left its process group is found. Two marks identify the program and its children: the
    /// variable `DRAY_COMMAND` and a limit on file locks. A child that removes the first, changes the second and leaves
    /// the process group is not ended.
    pub async fn execute(&self, request: CommandRequest) -> Result<SandboxCommand, Error> {
        let channel = self.exec.channel();
        let nonce = Nonce::new();
        let (stop, stderr) = (request.stop.clone(), request.stderr.clone());
        let plan = ProgramPlan::new(&channel, &nonce, request).await?;
        let limits = plan.limits;
        let lock_limit = Some(nonce.lock_limit());
        let marks = |text: String| CommandMarks { text, lock_limit };
        // From here on the command may run, even when its start fails.
        let control = ChannelControl(Arc::clone(&self.exec));
        let command = self
            .supervisor
            .watch_marks(marks(format!(".{}", nonce.as_str())), control);
        let end_guard = command.guard();
        // Only the program is ended: the script continues and reports what the program has written.
        let program = marks(format!("DRAY_COMMAND=run.{}", nonce.as_str()));
        let stopper = ProgramStopper::start(stop, Arc::clone(&command), program);
        let running = self.exec.run(plan.argv, plan.input).await;
        let running = running.inspect_err(|error| {
            if !may_run(error.kind()) {
                command.set_over();
            }
        })?;
        let (result, receiver) = oneshot::channel();
        let output = ProgramOutput::begin(running, nonce, limits, command, stderr, result).await?;
        Ok(SandboxCommand {
            output: output.into_body(),
            end: async move {
                let end = receiver.await.map_err(|_| {
                    Error::new(ErrorKind::Unavailable, "the output was not read to its end")
                });
                // Once the program has ended, no process has to be killed, and the command has recorded its end.
                drop(end_guard);
                drop(stopper);
                end
            }
            .boxed(),
        })
    }

    /// See [`dray_sandbox::Sandbox::settled`].
    pub async fn settled(&self) {
        self.supervisor.settle().await;
    }
}

/// A task that ends the program when the caller requests it. The task is cancelled when this value is dropped.
#[derive(Debug)]
struct ProgramStopper {
    _task: JoinSet<()>,
}

impl ProgramStopper {
    fn start(
        stop: CancellationToken,
        command: Arc<SupervisedCommand>,
        program: CommandMarks,
    ) -> Self {
        let mut task = JoinSet::new();
        task.spawn(async move {
            stop.cancelled().await;
            if let Err(error) = command.kill_part(&program).await {
                // The caller waits for a limited time and then drops the command.
                tracing::debug!(%error, "a program could not be ended");
            }
        });
        Self { _task: task }
    }
}

/// Whether a command may run although its start failed: the response was lost or malformed.
const fn may_run(failure: ErrorKind) -> bool {
    matches!(
        failure,
        ErrorKind::Timeout | ErrorKind::Unavailable | ErrorKind::Protocol
    )
}
