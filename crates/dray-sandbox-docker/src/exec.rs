//! Commands in a container, as its user (sandbox-transfer 4.5).
//!
//! The engine never ends a command whose stream was closed; [`Supervisor`] does.

mod argument;
mod end;
mod output;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bollard::exec::{StartExecOptions, StartExecResults};
use bollard::models::ExecConfig;
use dray_sandbox::{Body, Error, ErrorKind};
use dray_sandbox_exec::{Channel, Exec, MARK_VARIABLE, RunningCommand, Supervisor, new_mark};
use tokio::time::{Instant, sleep};

use crate::client::Client;
use crate::fault;

use end::{EngineCommand, SupervisedEnd};
use output::CommandStreams;

/// Capacity of the buffer for output, in bytes.
const PIPE_CAPACITY_BYTES: usize = 256 * 1024;

/// First pause between two requests whether a command has ended; each pause is twice as long as the last one.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// Longest pause.
const MAX_DELAY: Duration = Duration::from_millis(100);

/// Context of the error when the container has no such program, not even a shell.
pub(crate) const NOT_STARTED: &str = "a program cannot be started";
/// Context of the error when the engine could not start a program for another reason, which may pass.
pub(crate) const START_FAILED: &str = "the engine could not start a program";

/// Runs commands in one container.
#[derive(Clone, Debug)]
pub(crate) struct DockerExec {
    client: Arc<Client>,
    container: String,
    supervisor: Supervisor,
}

impl DockerExec {
    pub(crate) fn new(client: Arc<Client>, container: String) -> Self {
        Self {
            supervisor: Supervisor::new(client.tasks().clone()),
            client,
            container,
        }
    }

    /// Waits for the end of abandoned commands: until then they may still create the files that the caller looks for.
    pub(crate) async fn settle(&self) {
        self.supervisor.settle().await;
    }
}

#[async_trait]
impl Exec for DockerExec {
    fn channel(&self) -> Channel {
        Channel::PIPE_CAPABILITIES
    }

    /// Checked first, because the shell of a paused container answers only when the container continues.
    async fn ready(&self) -> Result<(), Error> {
        self.supervisor.settle().await;
        let known = self.client.inspect(&self.container).await?;
        let state = known.state.unwrap_or_default();
        if state.paused == Some(true) {
            return Err(Error::new(
                ErrorKind::SandboxPaused,
                "the container is paused",
            ));
        }
        if state.running != Some(true) {
            let stopped = "the container is not running";
            return Err(Error::new(ErrorKind::SandboxStopped, stopped));
        }
        Ok(())
    }

    /// A running shell belongs to this container, because its full id is in every path. No killed command may still be
    /// ending, because it could still change files.
    fn sends_before_ready(&self) -> bool {
        self.supervisor.is_settled()
    }

    async fn run(&self, argv: Vec<Vec<u8>>, stdin: Option<Body>) -> Result<RunningCommand, Error> {
        self.supervisor.settle().await;
        let mark = new_mark();
        let config = ExecConfig {
            attach_stdin: Some(stdin.is_some()),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            tty: Some(false),
            env: Some(vec![format!("{MARK_VARIABLE}={mark}")]),
            cmd: Some(argument::text(&argv)),
            ..ExecConfig::default()
        };
        let id = create(&self.client, &self.container, config).await?;
        // From here on a process may run.
        let control = EngineCommand {
            client: Arc::clone(&self.client),
            container: self.container.clone(),
            id: id.clone(),
        };
        let command = self.supervisor.watch(&mark, control);
        let end = SupervisedEnd::new(Arc::clone(&self.client), id.clone(), command);
        let guard = end.guard();
        let (output, input) = start(&self.client, &id).await?;
        let streams = CommandStreams::new(output, input, stdin, end.clone());
        let stderr = streams.stderr();
        let stdout = streams.into_body(end.guard());
        Ok(RunningCommand {
            stdout,
            end: Box::pin(end.wait(guard, stderr)),
        })
    }
}

/// Prepares a command.
async fn create(client: &Client, container: &str, config: ExecConfig) -> Result<String, Error> {
    const ACTIVITY_NAME: &str = "preparing a command";
    let docker = client.docker().await?;
    let made = async {
        let made = docker.create_exec(container, config).await;
        made.map_err(|error| fault::failed(ACTIVITY_NAME, error))
    };
    Ok(client.head(made).await?.id)
}

type Output = std::pin::Pin<
    Box<
        dyn futures_util::Stream<
                Item = Result<bollard::container::LogOutput, bollard::errors::Error>,
            > + Send,
    >,
>;
type Input = std::pin::Pin<Box<dyn tokio::io::AsyncWrite + Send>>;

/// Waits until a command has ended and returns its status. Its output has ended, or is not read.
async fn await_status(client: &Client, id: &str) -> Result<i32, Error> {
    let docker = client.docker().await?;
    let until = Instant::now() + client.response_timeout();
    let mut pause = FIRST_PAUSE;
    loop {
        let exit_code = async {
            let exit_code = docker.inspect_exec(id).await;
            exit_code.map_err(|error| fault::failed("asking how a command ended", error))
        };
        let exit_code = client.head(exit_code).await?;
        if exit_code.running == Some(false) {
            let status = exit_code
                .exit_code
                .and_then(|code| i32::try_from(code).ok());
            let none = || Error::new(ErrorKind::Protocol, "the engine reports no exit status");
            return status.ok_or_else(none);
        }
        if Instant::now() > until {
            let still = "a command does not end after its output";
            return Err(Error::new(ErrorKind::Timeout, still));
        }
        sleep(pause).await;
        pause = (pause * 2).min(MAX_DELAY);
    }
}

/// Starts a command and takes its streams.
async fn start(client: &Client, id: &str) -> Result<(Output, Input), Error> {
    const ACTIVITY_NAME: &str = "starting a command";
    let docker = client.docker().await?;
    let options = StartExecOptions {
        detach: false,
        tty: false,
        output_capacity: Some(PIPE_CAPACITY_BYTES),
    };
    let started = async {
        let started = docker.start_exec(id, Some(options)).await;
        started.map_err(|error| fault::failed(ACTIVITY_NAME, error))
    };
    match client.head(started).await? {
        StartExecResults::Attached { output, input } => Ok((output, input)),
        StartExecResults::Detached => Err(Error::new(
            ErrorKind::Protocol,
            "the engine did not attach the streams of a command",
        )),
    }
}

#[cfg(test)]
mod tests;
