//! A running command. Its output and its end are two handles, and either may be dropped at any time.

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

/// Bytes of one piece of output.
const CHUNK_BYTES: usize = 128 * 1024;

/// A running command, shared by its two handles and its input.
pub(super) struct RemoteJob {
    state: Mutex<JobState>,
}

struct JobState {
    /// `None` once the command has ended or was given up.
    group: Option<ProcessGroup>,
    /// `None` once the end is awaited or the command was given up.
    session: Option<Session>,
    /// The task that feeds it.
    input: JoinSet<()>,
    /// The end; an error is kept in parts, because both handles report it.
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

    /// Feeds it until it ends.
    pub(super) fn feed(self: &Arc<Self>, pipe: ChildStdin, body: Body) {
        // Weak, because the job owns the task: otherwise neither would ever be dropped.
        let feeding = feed(Arc::downgrade(self), pipe, body);
        self.state().input.spawn(feeding);
    }

    /// The two handles for the caller. `first` came before the rest of `stdout`.
    pub(super) fn running(self: Arc<Self>, stdout: ChildStdout, first: Bytes) -> RunningCommand {
        let output = JobOutput {
            job: JobHandle(Arc::clone(&self)),
            stdout,
            first,
        };
        let half = JobHandle(self);
        RunningCommand {
            stdout: Body::new(stream::try_unfold(Some(output), |state| async {
                let Some(mut output) = state else {
                    return Ok(None);
                };
                Ok(output.next().await?.map(|piece| (piece, Some(output))))
            })),
            end: async move { half.0.end().await }.boxed(),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, JobState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Awaits the end; 255 is how `ssh` says that the channel broke.
    async fn end(&self) -> Result<CommandExit, Error> {
        // Taken out, so that the lock is not held while the end is awaited.
        let session = self.state().session.take();
        if let Some(session) = session {
            let end = match session.end().await {
                Ok((Some(status), stderr)) if status != 255 => Ok(CommandExit { status, stderr }),
                Ok((_, text)) => {
                    let error = fault::failure("the channel broke", &text);
                    Err((ErrorKind::Unavailable, error.context().to_owned()))
                }
                Err(error) => Err((error.kind(), error.context().to_owned())),
            };
            let mut state = self.state();
            // A body that failed says why better than the end that it caused.
            state.end.get_or_insert(end);
            if let Some(group) = &mut state.group {
                group.is_over();
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
        let why = (
            ErrorKind::Unavailable,
            "the command was given up".to_owned(),
        );
        state.end.get_or_insert(Err(why));
        state.input.abort_all();
        // Dropped after the lock: closing the session and killing the group run code that takes other locks.
        let (session, group) = (state.session.take(), state.group.take());
        drop(state);
        drop((session, group));
    }

    /// Ends the command because its input failed. The handle that waits for the end reports the reason.
    async fn fail(&self, why: &Error) {
        let killing = {
            let mut state = self.state();
            state
                .end
                .get_or_insert(Err((why.kind(), why.context().to_owned())));
            // Killed before the pipe closes, or the command would see a clean end of its input and keep half a file.
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
    first: Bytes,
}

impl JobOutput {
    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        if !self.first.is_empty() {
            return Ok(Some(std::mem::take(&mut self.first)));
        }
        let mut piece = BytesMut::with_capacity(CHUNK_BYTES);
        let read = self.stdout.read_buf(&mut piece).await;
        let count = read.map_err(|error| {
            Error::new(ErrorKind::Unavailable, "the channel broke").caused_by(error)
        })?;
        if count > 0 {
            return Ok(Some(piece.freeze()));
        }
        // A clean end of the pipe says nothing; how the client ended does.
        self.job.0.end().await.map(|_| None)
    }
}

/// Feeds a command. A body that fails must not look like one that ends.
async fn feed(job: Weak<RemoteJob>, mut pipe: ChildStdin, mut body: Body) {
    while let Some(piece) = body.next().await {
        match piece {
            Ok(piece) => {
                if pipe.write_all(&piece).await.is_err() {
                    // The command wants no more, and says at its end whether that is well.
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
