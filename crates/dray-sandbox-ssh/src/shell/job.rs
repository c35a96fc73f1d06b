//! A running command. The caller has two handles, for the output and for the end. Dropping either ends the command.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::{Bytes, BytesMut};
use dray_sandbox::{Body, Error, ErrorKind};
use dray_sandbox_exec::{CommandExit, RunningCommand};
use futures_util::{FutureExt as _, stream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::task::JoinSet;

use super::group::ProcessGroup;
use crate::fault;
use crate::session::Session;

/// Most bytes of one chunk of output.
const CHUNK_BYTES: usize = 128 * 1024;

/// A running command, shared by its two handles and its input.
pub(super) struct RemoteJob {
    state: Mutex<JobState>,
}

struct JobState {
    /// `None` after the command was given up.
    group: Option<ProcessGroup>,
    /// `None` while the end is awaited, and after the command was given up.
    session: Option<Session>,
    /// The task that writes the input of the command.
    input: JoinSet<()>,
    /// The end of the command. An error is stored as its kind and context, because both handles report it.
    end: Option<Result<CommandExit, (ErrorKind, String)>>,
}

impl RemoteJob {
    pub(super) fn new(group: ProcessGroup, session: Session) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(JobState {
                group: Some(group),
                session: Some(session),
                input: JoinSet::new(),
                end: None,
            }),
        })
    }

    /// Starts a task that writes `body` to the command until the body or the command ends.
    pub(super) fn feed(self: &Arc<Self>, pipe: ChildStdin, body: Body) {
        // A weak reference, because the job owns the task: with a strong one neither would ever be dropped.
        let feeding = feed(Arc::downgrade(self), pipe, body);
        self.state().input.spawn(feeding);
    }

    /// Returns the two handles for the caller. `first_output` has the bytes that were already read from `stdout`.
    pub(super) fn into_running_command(
        self: Arc<Self>,
        stdout: ChildStdout,
        first_output: Bytes,
    ) -> RunningCommand {
        let output = JobOutput {
            job: JobHandle(Arc::clone(&self)),
            stdout,
            first_output,
        };
        let end_handle = JobHandle(self);
        RunningCommand {
            stdout: Body::new(stream::try_unfold(Some(output), |state| async {
                let Some(mut output) = state else {
                    return Ok(None);
                };
                Ok(output.next().await?.map(|chunk| (chunk, Some(output))))
            })),
            end: async move { end_handle.0.wait().await }.boxed(),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, JobState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the end of the command. When the channel broke, the master reports no exit status, and a client
    /// program exits with 255. A status of 255 from the master is that of the command.
    async fn wait(&self) -> Result<CommandExit, Error> {
        // The session is moved out of the state, so that the lock is not held while the end is awaited.
        let session = self.state().session.take();
        if let Some(session) = session {
            let has_client = session.has_client();
            let end = match session.wait().await {
                Ok((Some(status), stderr)) if status != 255 || !has_client => {
                    Ok(CommandExit { status, stderr })
                }
                Ok((_, text)) => {
                    let error = fault::failure("the channel broke", &text);
                    Err((ErrorKind::Unavailable, error.context().to_owned()))
                }
                Err(error) => Err((error.kind(), error.context().to_owned())),
            };
            let may_run_on = matches!(end, Err((ErrorKind::Timeout, _)));
            let mut state = self.state();
            // If the body failed, its error stays: it is the cause of this end.
            state.end.get_or_insert(end);
            // A command may close its output and run on. A command whose channel broke is not killed, because that
            // would connect again; a shell ends by itself then.
            if !may_run_on && let Some(group) = &mut state.group {
                group.set_ended();
            }
        }
        match self.state().end.clone() {
            Some(end) => end.map_err(|(kind, context)| Error::new(kind, context)),
            None => Err(Error::new(
                ErrorKind::Unavailable,
                "the command was given up",
            )),
        }
    }

    /// Ends the command unless it has ended. The end is not awaited.
    fn give_up(&self) {
        let mut state = self.state();
        let given_up = (
            ErrorKind::Unavailable,
            "the command was given up".to_owned(),
        );
        state.end.get_or_insert(Err(given_up));
        state.input.abort_all();
        // Both are dropped after the lock is released: closing the session and killing the group take other locks.
        let (session, group) = (state.session.take(), state.group.take());
        drop(state);
        drop((session, group));
    }

    /// Kills the command because reading its input failed. The handle that waits for the end reports `cause`.
    async fn fail(&self, cause: &Error) {
        let killing = {
            let mut state = self.state();
            state
                .end
                .get_or_insert(Err((cause.kind(), cause.context().to_owned())));
            // The group is killed before the pipe closes: otherwise the command sees a normal end of its input and
            // keeps half a file.
            state.group.as_ref().map(ProcessGroup::kill)
        };
        if let Some(killing) = killing {
            killing.await;
        }
    }
}

/// One of the two handles that a caller holds.
struct JobHandle(Arc<RemoteJob>);

impl Drop for JobHandle {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

/// The standard output of a command.
struct JobOutput {
    job: JobHandle,
    stdout: ChildStdout,
    /// Bytes that come before those of `stdout`.
    first_output: Bytes,
}

impl JobOutput {
    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        if !self.first_output.is_empty() {
            return Ok(Some(std::mem::take(&mut self.first_output)));
        }
        let mut chunk = BytesMut::with_capacity(CHUNK_BYTES);
        let read = self.stdout.read_buf(&mut chunk).await;
        let count = read.map_err(|error| {
            Error::new(ErrorKind::Unavailable, "the channel broke").caused_by(error)
        })?;
        if count > 0 {
            return Ok(Some(chunk.freeze()));
        }
        // The end of the pipe does not show whether the command succeeded; the exit status does.
        self.job.0.wait().await.map(|_| None)
    }
}

/// Writes a body to the input of a command. A failed body must not look like the end of the body to the command.
async fn feed(job: Weak<RemoteJob>, mut pipe: ChildStdin, mut body: Body) {
    while let Some(chunk) = body.next().await {
        match chunk {
            Ok(chunk) => {
                if pipe.write_all(&chunk).await.is_err() {
                    // The command closed its input; its exit status shows whether it succeeded.
                    return;
                }
            }
            Err(error) => {
                if let Some(job) = job.upgrade() {
                    job.fail(&error).await;
                }
                return;
            }
        }
    }
}
