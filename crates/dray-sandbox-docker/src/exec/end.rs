//! The end of a command: the engine reports the status, and another command kills the command when its caller has
//! disconnected.

use std::sync::Arc;

use async_trait::async_trait;
use bollard::models::ExecConfig;
use dray_sandbox::Error;
use dray_sandbox_exec::{
    CommandControl, CommandExit, CommandState, KillGuard, StderrTail, SupervisedCommand,
};
use futures_util::StreamExt as _;

use super::{await_status, create, start};
use crate::client::Client;
use crate::fault;

/// Controls one command through the engine.
#[derive(Debug)]
pub(super) struct EngineCommand {
    pub(super) client: Arc<Client>,
    pub(super) container: String,
    pub(super) id: String,
}

#[async_trait]
impl CommandControl for EngineCommand {
    async fn run_unsupervised(&self, argv: Vec<String>) -> Result<i32, Error> {
        // The command is attached, although it prints nothing: Podman never notices the end of a detached command.
        let config = ExecConfig {
            attach_stdout: Some(true),
            cmd: Some(argv),
            ..ExecConfig::default()
        };
        let id = create(&self.client, &self.container, config).await?;
        let (mut output, _input) = start(&self.client, &id).await?;
        while let Some(chunk) = output.next().await {
            chunk.map_err(|error| fault::failed("ending a command", error))?;
        }
        await_status(&self.client, &id).await
    }

    /// A failed request counts as an end: a container that went away has no commands either.
    async fn state(&self) -> Result<CommandState, Error> {
        let found = self.client.docker().await?.inspect_exec(&self.id).await;
        Ok(match found {
            Ok(found) if found.running == Some(true) => CommandState::Running,
            _ => CommandState::Ended,
        })
    }
}

/// A supervised command of the engine.
#[derive(Clone, Debug)]
pub(super) struct SupervisedEnd {
    client: Arc<Client>,
    id: String,
    command: Arc<SupervisedCommand>,
}

impl SupervisedEnd {
    pub(super) fn new(client: Arc<Client>, id: String, command: Arc<SupervisedCommand>) -> Self {
        Self {
            client,
            id,
            command,
        }
    }

    /// Waits until the command has ended. Its output has ended before.
    pub(super) async fn status(&self) -> Result<i32, Error> {
        let status = await_status(&self.client, &self.id).await?;
        self.command.set_ended(status);
        Ok(status)
    }

    pub(super) fn guard(&self) -> KillGuard {
        self.command.guard()
    }

    /// Waits for the end of the command, which is killed when this future is dropped before the end.
    pub(super) async fn wait(
        self,
        mut guard: KillGuard,
        stderr: StderrTail,
    ) -> Result<CommandExit, Error> {
        let status = self.status().await?;
        guard.disarm();
        Ok(CommandExit {
            status,
            stderr: stderr.text(),
        })
    }
}
