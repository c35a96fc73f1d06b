//! Kills a command whose caller has disconnected.

use async_trait::async_trait;
use dray_sandbox::Error;
use dray_sandbox_exec::CommandControl;

use super::PodExec;
use super::streams::CommandStreams;

/// Runs the command that kills. The API reports no commands, so the state of the killed command stays unknown.
#[async_trait]
impl CommandControl for PodExec {
    async fn run_unsupervised(&self, argv: Vec<String>) -> Result<i32, Error> {
        let connection = self.connect(&argv, false).await?;
        // The killing command has no mark, so no other command kills it.
        let command = self.supervisor.watch("", self.clone());
        command.set_over();
        let mut streams = CommandStreams::new(connection, None, command.clone());
        while streams.next().await?.is_some() {}
        command.status()
    }
}
