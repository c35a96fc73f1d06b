//! The end of a command: the router reports the status, and another command kills the command when its caller has
//! disconnected.

use std::sync::Arc;

use async_trait::async_trait;
use dray_sandbox::{Error, ErrorKind};
use dray_sandbox_exec::{CommandControl, CommandState, SupervisedCommand};
use tonic::Code;
use uuid::Uuid;

use super::start_request;
use crate::fault;
use crate::router::Router;
use crate::wire::{EmptyMessage, ExecWaitResponse, ExitStatus};

/// Controls one command through the router.
#[derive(Debug)]
pub(super) struct RouterCommand {
    pub(super) router: Arc<Router>,
    pub(super) exec_id: String,
}

#[async_trait]
impl CommandControl for RouterCommand {
    async fn run_unsupervised(&self, argv: Vec<String>) -> Result<i32, Error> {
        const KILL_CONTEXT: &str = "ending a command";
        let exec_id = Uuid::new_v4().to_string();
        let start = start_request(&self.router, &exec_id, argv);
        let path = "/modal.task_command_router.TaskCommandRouter/TaskExecStart";
        let started = self.router.ask(path, &start).await;
        let EmptyMessage {} = started.map_err(|status| fault::failed(KILL_CONTEXT, &status))?;
        status(&self.router, &exec_id, KILL_CONTEXT).await
    }

    async fn state(&self) -> Result<CommandState, Error> {
        let path = "/modal.task_command_router.TaskCommandRouter/TaskExecPoll";
        let request = self.router.exec_request(&self.exec_id);
        match self.router.ask::<_, ExecWaitResponse>(path, &request).await {
            Ok(ExecWaitResponse { exit_status: None }) => Ok(CommandState::Running),
            Ok(_) => Ok(CommandState::Ended),
            Err(status) if status.code() == Code::NotFound => Ok(CommandState::Unknown),
            Err(status) => Err(fault::failed("asking for a command", &status)),
        }
    }
}

/// Waits for the end of a supervised command.
pub(super) async fn wait(
    router: &Router,
    exec_id: &str,
    command: &SupervisedCommand,
) -> Result<i32, Error> {
    let status = status(router, exec_id, "waiting for a command").await?;
    command.set_ended(status);
    Ok(status)
}

async fn status(router: &Router, exec_id: &str, context: &'static str) -> Result<i32, Error> {
    let ended = router.wait(exec_id).await;
    let ended = ended.map_err(|status| fault::failed(context, &status))?;
    match ended.exit_status {
        Some(ExitStatus::Code(code)) => Ok(code),
        Some(ExitStatus::Signal(signal)) => Ok(signal.saturating_add(128)),
        None => Err(Error::new(ErrorKind::Protocol, "the end has no status")),
    }
}
