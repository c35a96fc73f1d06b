//! Runs a program for a caller: its output as it comes, its standard error up to a limit, and its status.
//!
//! A channel carries one stream of output, and channels differ in how they report standard error and the status.
//! Therefore a script runs the program, keeps the beginning of its standard error, and prints both after the output,
//! after a line with a nonce. Where the channel has input, variables and arguments reach the script through it, so that
//! they appear in no list of processes and count towards no limit on arguments.

mod output;
mod plan;

use std::sync::Arc;

use async_trait::async_trait;
use dray_sandbox::command::{CommandRequest, SandboxCommand};
use dray_sandbox::error::{Error, ErrorKind};
use futures_util::FutureExt as _;
use tokio::sync::oneshot;

use self::output::ProgramOutput;
use self::plan::ProgramPlan;
use super::channel::Exec;
use super::files::ExecFiles;
use super::reply::Nonce;
use super::supervisor::CommandControl;

/// Ends the programs of a dropped caller by another command on the same channel.
#[derive(Debug)]
struct ChannelControl<E>(Arc<E>);

#[async_trait]
impl<E: Exec + 'static> CommandControl for ChannelControl<E> {
    async fn run_unsupervised(&self, argv: Vec<String>) -> Result<i32, Error> {
        let argv = argv.into_iter().map(String::into_bytes).collect();
        let mut running = self.0.run(argv, None).await?;
        while let Some(piece) = running.stdout.next().await {
            piece?;
        }
        Ok(running.end.await?.status)
    }
}

impl<E: Exec + 'static> ExecFiles<E> {
    /// See [`dray_sandbox::Sandbox::execute`]. Needs `sh`, `env`, `head`, `cat` and a program that encodes; without
    /// `/proc` no child that has left its process group is found. A program finds itself marked by the variable
    /// `DRAY_COMMAND`; a child that removes it and leaves the process group is not ended.
    pub async fn execute(&self, request: CommandRequest) -> Result<SandboxCommand, Error> {
        let channel = self.exec.channel();
        let nonce = Nonce::new();
        let plan = ProgramPlan::new(&channel, &nonce, request).await?;
        let limits = plan.limits;
        let mark = format!(".{}", nonce.as_str());
        // From here on a process may run.
        let control = ChannelControl(Arc::clone(&self.exec));
        let command = self.supervisor.watch_text(mark, control);
        let end_guard = command.guard();
        let running = self.exec.run(plan.argv, plan.input).await;
        let running = running.inspect_err(|error| {
            if !may_run(error.kind()) {
                command.set_over();
            }
        })?;
        let (result, told) = oneshot::channel();
        let output = ProgramOutput::begin(running, nonce, limits, command, result).await?;
        let supervisor = self.supervisor.clone();
        Ok(SandboxCommand {
            output: output.into_body(),
            end: async move {
                let end = told.await.map_err(|_| {
                    Error::new(ErrorKind::Unavailable, "the output was not read to its end")
                });
                // After the end nothing is left to kill, and the command has recorded that.
                drop(end_guard);
                end
            }
            .boxed(),
            settled: async move { supervisor.settle().await }.boxed(),
        })
    }
}

/// Whether a command may run although its start failed: the response was lost or malformed.
const fn may_run(failure: ErrorKind) -> bool {
    matches!(
        failure,
        ErrorKind::Timeout | ErrorKind::Unavailable | ErrorKind::Protocol
    )
}
