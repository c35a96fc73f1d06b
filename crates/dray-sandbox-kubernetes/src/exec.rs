//! Commands in a container (sandbox-transfer 6.1).
//!
//! The API does not promise that a command ends when its stream is closed; [`Supervisor`] ends it.

mod argument;
mod end;
mod streams;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use dray_sandbox::{Body, Error, ErrorKind};
use dray_sandbox_exec::{
    Channel, CommandExit, Exec, IncarnationGuard, KillGuard, RunningCommand, StderrTail,
    SupervisedCommand, Supervisor, new_mark,
};
use futures_util::stream;

use crate::cluster::Cluster;
use crate::target::Target;

use streams::CommandStreams;

/// Most bytes of all arguments: they are part of a request line of at most 64 KiB, in which a byte may take three.
const MAX_ARGUMENT_BYTES: usize = 19 << 10;

/// Status of a command that was killed.
const KILLED_STATUS: i32 = 137;

/// The statuses of commands that a signal ended.
const KILLED_BY_FIRST_SIGNAL: i32 = 129;
const KILLED_BY_LAST_SIGNAL: i32 = 192;

/// A container of one incarnation of a pod.
#[derive(Debug)]
pub(crate) struct PodContainer {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) target: Target,
    /// The container of the sandbox.
    pub(crate) container: String,
    /// Identity of this start of the container; a restart changes it.
    pub(crate) incarnation: String,
}

#[async_trait]
impl IncarnationGuard for PodContainer {
    async fn check(&self) -> Result<(), Error> {
        let pod = self.cluster.pod(&self.target).await?;
        if pod.incarnation(&self.container)? == self.incarnation {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::SandboxGone,
            "the name means another container now",
        ))
    }
}

/// Runs commands in one container of the pod: that of the sandbox, or an ephemeral one beside it.
#[derive(Clone, Debug)]
pub(crate) struct PodExec {
    container_ref: Arc<PodContainer>,
    container: String,
    /// Whether the end of stdin can be signalled.
    half_close: Arc<AtomicBool>,
    supervisor: Supervisor,
}

impl PodExec {
    /// Runs an empty script to check whether commands run, and whether the end of stdin can be signalled.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ToolMissing`] for a container without a shell.
    pub(crate) async fn open(
        container_ref: Arc<PodContainer>,
        container: &str,
    ) -> Result<Self, Error> {
        let exec = Self {
            supervisor: Supervisor::new(container_ref.cluster.tasks().clone()),
            container_ref,
            container: container.to_owned(),
            half_close: Arc::new(AtomicBool::new(true)),
        };
        let argv: [&[u8]; 3] = [b"sh", b"-c", b":"];
        let mut running = exec.run(argv.map(<[u8]>::to_vec).to_vec(), None).await?;
        while let Some(chunk) = running.stdout.next().await {
            chunk?;
        }
        match running.end.await?.status {
            0 => Ok(exec),
            // Status 128 + n is signal n, often of a container without memory: it has a shell.
            KILLED_BY_FIRST_SIGNAL..=KILLED_BY_LAST_SIGNAL => Err(Error::new(
                ErrorKind::Unavailable,
                "the shell of the container was killed",
            )),
            status => Err(Error::new(
                ErrorKind::ToolMissing,
                format!("an empty script ended with status {status}"),
            )),
        }
    }

    async fn connect(
        &self,
        argv: &[String],
        stdin: bool,
    ) -> Result<streams::StreamConnection, Error> {
        let container_ref = &self.container_ref;
        let cluster = &container_ref.cluster;
        let accepted = cluster
            .exec(&container_ref.target, &self.container, argv, stdin)
            .await?;
        let idle = cluster.config().idle_timeout.as_duration();
        Ok(streams::StreamConnection { accepted, idle })
    }
}

#[async_trait]
impl Exec for PodExec {
    fn channel(&self) -> Channel {
        Channel {
            input_end: self.half_close.load(Ordering::SeqCst),
            longest_arguments: MAX_ARGUMENT_BYTES,
            ..Channel::PIPE_CAPABILITIES
        }
    }

    /// Waits for commands that are being killed: they may still create files that the next request looks for.
    async fn ready(&self) -> Result<(), Error> {
        self.supervisor.settle().await;
        Ok(())
    }

    async fn run(&self, argv: Vec<Vec<u8>>, stdin: Option<Body>) -> Result<RunningCommand, Error> {
        self.supervisor.settle().await;
        let mark = new_mark();
        let counted = self.half_close.load(Ordering::SeqCst);
        // From here on a process may run.
        let command = self.supervisor.watch(&mark, self.clone());
        let guard = command.guard();
        let words = argument::marked(&mark, &argv);
        let connection = self.connect(&words, stdin.is_some()).await;
        let connection = connection.inspect_err(|error| {
            if !may_run(error.kind()) {
                command.set_over();
            }
        })?;
        if counted && !connection.accepted.half_close {
            // The server changed to an older version: from now on commands must be given the length of their input.
            self.half_close.store(false, Ordering::SeqCst);
            if stdin.is_some() {
                let other = "the server speaks an older protocol than before";
                return Err(Error::new(ErrorKind::Unavailable, other));
            }
        }
        let streams = CommandStreams::new(connection, stdin, Arc::clone(&command));
        let stderr = streams.stderr();
        let stdout = body(streams, command.guard());
        let container_ref = Arc::clone(&self.container_ref);
        Ok(RunningCommand {
            stdout,
            end: Box::pin(exit_of(container_ref, command, guard, stderr)),
        })
    }
}

/// Whether a command may run although its stream did not open: the response was lost or malformed.
fn may_run(failure: ErrorKind) -> bool {
    matches!(
        failure,
        ErrorKind::Timeout | ErrorKind::Unavailable | ErrorKind::Protocol
    )
}

/// Standard output. Reading it also drives the other streams.
fn body(streams: CommandStreams, guard: KillGuard) -> Body {
    Body::new(stream::unfold(
        Some((streams, guard)),
        async |state| match state {
            Some((mut streams, guard)) => match streams.next().await {
                Ok(Some(chunk)) => Some((Ok(chunk), Some((streams, guard)))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            },
            None => None,
        },
    ))
}

/// The result of a command whose output was read. A killed command may have ended with its container.
async fn exit_of(
    container_ref: Arc<PodContainer>,
    command: Arc<SupervisedCommand>,
    _guard: KillGuard,
    stderr: StderrTail,
) -> Result<CommandExit, Error> {
    let status = command.status()?;
    if status == KILLED_STATUS {
        container_ref.check().await?;
    }
    Ok(CommandExit {
        status,
        stderr: stderr.text(),
    })
}
