//! Conversion in a process of its own (read-attachment 9).
//!
//! Libraries that read documents can be driven into hangs, aborts and gigabytes by small files; catching panics is not
//! enough. So every conversion runs in a fresh worker: this executable started again, with the open file on its
//! standard input, nothing else inherited, an empty environment, limits on memory, time and descriptors, and no file
//! system, no network and no programs to start. What goes wrong there ends one conversion and nothing else.

mod child;
pub(crate) mod confine;
mod wire;

use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use dray_documents::formats::{ConversionHint, Converted};
use dray_documents::limits::{Limit, Limits};
use dray_documents::markdown::Selection;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

pub use child::child;

/// First argument that makes an executable a worker.
pub const WORKER_ARGUMENT: &str = "convert-worker";

/// Status of a worker whose memory does not even hold the thread that converts.
const NO_ROOM: u8 = 3;

/// What the parent waits beyond the worker's own limit of time, so that a worker can still hand over what it has.
const TIME_GRACE: Duration = Duration::from_millis(750);
/// Bytes beyond the text that an answer may have: parts and warnings.
const OVERHEAD_BYTES: u64 = 8 << 20;

/// Bytes of pictures that an answer may have besides.
const MAX_PICTURE_BYTES: u64 = 33 << 20;

/// Options for one conversion, sent to the worker as its second argument.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Media type and encoding from classification, and what the caller asked for.
    pub hint: ConversionHint,
    /// What it may use.
    pub limits: Limits,
    /// What of the document is wanted.
    pub selection: Selection,
}

/// Its outcome.
#[derive(Clone, Debug, PartialEq)]
pub enum Worked {
    /// The worker gave a whole answer; a partial conversion or a failure of its own is in there.
    Done(Converted),
    /// The worker was ended by a limit and could not hand anything over.
    Stopped(Limit),
    /// The worker could not be started, failed or answered nonsense.
    Failed,
    /// The caller no longer wanted it.
    Cancelled,
}

/// Starts a process for each conversion. Clones share one bound on concurrency.
#[derive(Clone, Debug)]
pub struct Worker {
    executable: PathBuf,
    /// Bounds how many run concurrently; each may use as much memory as its limits say.
    permits: Arc<tokio::sync::Semaphore>,
}

impl Worker {
    /// Workers of the executable that runs now; its `main` must call [`child()`] first.
    ///
    /// # Errors
    ///
    /// The system does not report which executable that is.
    pub fn this_executable() -> io::Result<Self> {
        Ok(Self::at(std::env::current_exe()?))
    }

    /// Workers of another executable whose `main` calls [`child()`] first.
    pub fn at(executable: PathBuf) -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            executable,
            permits: Arc::new(tokio::sync::Semaphore::new(cores)),
        }
    }

    /// How many run concurrently; by default as many as there are processors.
    #[must_use]
    pub fn at_once(mut self, workers: usize) -> Self {
        self.permits = Arc::new(tokio::sync::Semaphore::new(workers.max(1)));
        self
    }

    /// Converts an open file in a fresh worker.
    ///
    /// The handle is the worker's from here on: both share one offset. In every case the answer comes within
    /// the limit of time and a second, or, when cancelled, immediately.
    pub async fn convert(&self, file: File, job: &Job, cancel: &CancellationToken) -> Worked {
        let permit = tokio::select! {
            permit = self.permits.acquire() => permit,
            () = cancel.cancelled() => return Worked::Cancelled,
        };
        // Nothing closes the semaphore; an answer is still better than a panic.
        let Ok(_permit) = permit else {
            return Worked::Failed;
        };
        let mut child = match self.start(file, job) {
            Ok(child) => child,
            Err(error) => {
                tracing::warn!(error = %error, "could not start the worker");
                return Worked::Failed;
            }
        };
        // The time counts from here: waiting for a permit is not the document's fault.
        let wall = Duration::from_millis(job.limits.wall_ms) + TIME_GRACE;
        let ended = tokio::select! {
            answer = answer(&mut child, &job.limits) => WorkerEnd::Answer(answer),
            () = tokio::time::sleep(wall) => WorkerEnd::Late,
            () = cancel.cancelled() => WorkerEnd::Cancelled,
        };
        // Before the wait, in every case: a worker that closed its pipe and hangs would never end by itself.
        end(&mut child);
        let status = child.wait().await;
        match ended {
            WorkerEnd::Cancelled => Worked::Cancelled,
            WorkerEnd::Late => Worked::Stopped(Limit::Time),
            WorkerEnd::Answer(Ok(bytes)) => judge(&bytes, status),
            WorkerEnd::Answer(Err(error)) => {
                tracing::warn!(error = %error, "could not read the worker's response");
                Worked::Failed
            }
        }
    }

    /// Waits until another process may run.
    pub(crate) async fn permit(&self) -> Option<tokio::sync::SemaphorePermit<'_>> {
        self.permits.acquire().await.ok()
    }

    /// Starts this executable again for one job, with `input` as its standard input and nothing of the environment. The
    /// process leads a group of its own and ends when its handle is dropped.
    pub(crate) fn command(
        &self,
        argument: &str,
        job: &impl Serialize,
        input: File,
    ) -> io::Result<Command> {
        let mut command = Command::new(&self.executable);
        command
            .arg(argument)
            .arg(serde_json::to_string(job)?)
            // The environment may hold secrets of the service, and `LD_PRELOAD`.
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(input))
            .stdout(Stdio::piped())
            // A group of its own, so that one signal ends the worker and everything below it.
            .process_group(0)
            .kill_on_drop(true);
        Ok(command)
    }

    fn start(&self, file: File, job: &Job) -> io::Result<Child> {
        let mut command = self.command(WORKER_ARGUMENT, job, file)?;
        // Messages of libraries may quote the document, and the log must not have content (15).
        command.stderr(Stdio::null()).spawn()
    }
}

enum WorkerEnd {
    Answer(io::Result<Vec<u8>>),
    Late,
    Cancelled,
}

/// Reads what the worker writes, and no more than an honest one would.
async fn answer(child: &mut Child, limits: &Limits) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        // A worker that a document took over could write without end; reading stops where an honest answer
        // does.
        let max_bytes = limits
            .max_text_bytes
            .saturating_add(OVERHEAD_BYTES + MAX_PICTURE_BYTES);
        stdout.take(max_bytes).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

/// Ends the worker's whole group; one that has ended already is not there any more.
pub(crate) fn end(child: &mut Child) {
    // `id` is `None` once the process was waited for, so a number that the system reused is never signalled.
    if let Some(pid) = child
        .id()
        .and_then(|id| i32::try_from(id).ok())
        .and_then(Pid::from_raw)
    {
        let _ = kill_process_group(pid, Signal::KILL);
    }
}

/// An answer counts when it is whole; otherwise the way the worker ended explains why.
fn judge(bytes: &[u8], status: io::Result<ExitStatus>) -> Worked {
    // Bytes before status: `end` may have killed a worker that had answered and was about to exit.
    if let Some(converted) = wire::read(bytes) {
        return Worked::Done(converted);
    }
    let status = status.ok();
    if status.and_then(|status| status.code()) == Some(NO_ROOM.into()) {
        return Worked::Stopped(Limit::Memory);
    }
    match status.and_then(|status| status.signal()) {
        Some(signal) if signal == Signal::XCPU.as_raw() => Worked::Stopped(Limit::Time),
        // A failed allocation and a stack that ran over both end so, and so does the system when memory is short.
        Some(_) => Worked::Stopped(Limit::Memory),
        None => Worked::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_worker_is_judged_by_its_exit_status() {
        let by = |signal| judge(b"", Ok(ExitStatus::from_raw(signal)));
        assert_eq!(by(Signal::XCPU.as_raw()), Worked::Stopped(Limit::Time));
        assert_eq!(by(Signal::ABORT.as_raw()), Worked::Stopped(Limit::Memory));
        assert_eq!(by(Signal::SEGV.as_raw()), Worked::Stopped(Limit::Memory));
        assert_eq!(
            judge(b"{}", Ok(ExitStatus::from_raw(101 << 8))),
            Worked::Failed
        );
        assert_eq!(judge(b"", Ok(ExitStatus::from_raw(0))), Worked::Failed);
        assert_eq!(
            judge(b"", Ok(ExitStatus::from_raw(i32::from(NO_ROOM) << 8))),
            Worked::Stopped(Limit::Memory)
        );
    }
}
