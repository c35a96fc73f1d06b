//! Conversion in a separate process (read-attachment 9).
//!
//! Libraries that read documents can hang, abort or use gigabytes of memory because of a small file; catching panics is
//! not enough. So every conversion runs in a fresh worker: a second process of this executable. It inherits only the
//! open file, on its standard input. It has no environment of the service, limits on memory, time and descriptors, no file
//! system, no network, and may start no programs. A failure there ends only one conversion.

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

/// Exit status of a worker whose memory limit is too small for the converting thread.
const NO_MEMORY_EXIT_STATUS: u8 = 3;

/// Setting of mimalloc, the allocator of the static program: map each page of its heap when it is needed. By default it
/// reserves 1 GiB when a process starts, which counts towards the limit of a worker, so that the worker cannot start.
const ALLOCATOR_SETTING: (&str, &str) = ("MIMALLOC_DISALLOW_ARENA_ALLOC", "1");

/// Time that the parent waits after the worker's own time limit, so that a worker can still return a partial result.
const TIME_GRACE: Duration = Duration::from_millis(750);
/// Most bytes of a result in addition to the text: parts and warnings.
const MAX_OVERHEAD_BYTES: u64 = 8 << 20;

/// Most bytes of pictures in a result, in addition to text and overhead.
const MAX_PICTURE_BYTES: u64 = 33 << 20;

/// Options for one conversion, sent to the worker as its second argument.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Media type and encoding from classification, and the caller's wishes.
    pub hint: ConversionHint,
    /// The resource limits of the conversion.
    pub limits: Limits,
    /// The requested part of the document.
    pub selection: Selection,
}

/// The outcome of one conversion in a worker.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkerOutcome {
    /// The worker returned a complete result, which may contain a partial conversion or its own failure.
    Done(Box<Converted>),
    /// A limit ended the worker before it returned a result.
    Stopped(Limit),
    /// The worker could not be started, failed or returned an invalid result.
    Failed,
    /// The caller cancelled the conversion.
    Cancelled,
}

/// Starts a process for each conversion. Clones share one bound on concurrency.
#[derive(Clone, Debug)]
pub struct Worker {
    executable: PathBuf,
    /// Limits how many workers run concurrently; each may use as much memory as its limits allow.
    permits: Arc<tokio::sync::Semaphore>,
}

impl Worker {
    /// Workers of the executable that runs now; its `main` must call [`child()`] first.
    ///
    /// # Errors
    ///
    /// The system does not report the path of this executable.
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

    /// Sets how many workers run concurrently, at least one; by default one per processor.
    #[must_use]
    pub fn with_concurrency(mut self, workers: usize) -> Self {
        self.permits = Arc::new(tokio::sync::Semaphore::new(workers.max(1)));
        self
    }

    /// Converts an open file in a fresh worker.
    ///
    /// The caller must not use another handle of the file meanwhile, because they share one offset. The result arrives
    /// within the time limit plus a second, or immediately when cancelled.
    pub async fn convert(
        &self,
        file: File,
        job: &Job,
        cancel: &CancellationToken,
    ) -> WorkerOutcome {
        let permit = tokio::select! {
            permit = self.permits.acquire() => permit,
            () = cancel.cancelled() => return WorkerOutcome::Cancelled,
        };
        // The semaphore is never closed; a failure is still better than a panic.
        let Ok(_permit) = permit else {
            return WorkerOutcome::Failed;
        };
        let mut child = match self.start(file, job) {
            Ok(child) => child,
            Err(error) => {
                tracing::warn!(error = %error, "could not start the worker");
                return WorkerOutcome::Failed;
            }
        };
        // The time counts from here: waiting for a permit is not the document's fault.
        let wall = Duration::from_millis(job.limits.wall_ms) + TIME_GRACE;
        let ended = tokio::select! {
            output = read_output(&mut child, &job.limits) => WorkerEnd::Output(output),
            () = tokio::time::sleep(wall) => WorkerEnd::TimedOut,
            () = cancel.cancelled() => WorkerEnd::Cancelled,
        };
        // The group is always killed before the wait, because a worker that closed its pipe and hangs would never end.
        kill_group(&mut child);
        let status = child.wait().await;
        match ended {
            WorkerEnd::Cancelled => WorkerOutcome::Cancelled,
            WorkerEnd::TimedOut => WorkerOutcome::Stopped(Limit::Time),
            WorkerEnd::Output(Ok(bytes)) => to_outcome(&bytes, status),
            WorkerEnd::Output(Err(error)) => {
                tracing::warn!(error = %error, "could not read the worker's response");
                WorkerOutcome::Failed
            }
        }
    }

    /// Waits until another process may run.
    pub(crate) async fn permit(&self) -> Option<tokio::sync::SemaphorePermit<'_>> {
        self.permits.acquire().await.ok()
    }

    /// Starts this executable again for one job, with `input` as its standard input. Its environment has a setting of the
    /// allocator alone. The process leads its own group and ends when its handle is dropped.
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
            // The environment may contain secrets of the service, and `LD_PRELOAD`.
            .env_clear()
            .env(ALLOCATOR_SETTING.0, ALLOCATOR_SETTING.1)
            .current_dir("/")
            .stdin(Stdio::from(input))
            .stdout(Stdio::piped())
            // A separate group, so that one signal ends the worker and its children.
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
    Output(io::Result<Vec<u8>>),
    TimedOut,
    Cancelled,
}

/// Reads the worker's output, up to the size of the largest valid result.
async fn read_output(child: &mut Child, limits: &Limits) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        // A worker that a document has compromised could write without end, so reading stops at the size of the largest
        // valid result.
        let max_bytes = limits
            .max_text_bytes
            .saturating_add(MAX_OVERHEAD_BYTES + MAX_PICTURE_BYTES);
        stdout.take(max_bytes).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

/// Kills the worker's process group, unless it has already ended.
pub(crate) fn kill_group(child: &mut Child) {
    // `id` is `None` once the process was waited for, so a number that the system reused is never signalled.
    if let Some(pid) = child
        .id()
        .and_then(|id| i32::try_from(id).ok())
        .and_then(Pid::from_raw)
    {
        let _ = kill_process_group(pid, Signal::KILL);
    }
}

/// A complete result counts; otherwise the exit status gives the reason.
fn to_outcome(bytes: &[u8], status: io::Result<ExitStatus>) -> WorkerOutcome {
    // The bytes count before the status: `kill_group` may have killed a worker that had written its result and was
    // about to exit.
    if let Some(converted) = wire::read(bytes) {
        return WorkerOutcome::Done(Box::new(converted));
    }
    let status = status.ok();
    if status.and_then(|status| status.code()) == Some(NO_MEMORY_EXIT_STATUS.into()) {
        return WorkerOutcome::Stopped(Limit::Memory);
    }
    match status.and_then(|status| status.signal()) {
        Some(signal) if signal == Signal::XCPU.as_raw() => WorkerOutcome::Stopped(Limit::Time),
        // A failed allocation and a stack overflow both end in this way, and so does the worker when the system is
        // short of memory.
        Some(_) => WorkerOutcome::Stopped(Limit::Memory),
        None => WorkerOutcome::Failed,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[tokio::test]
    async fn a_worker_gets_only_the_setting_of_its_allocator_as_environment() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("worker");
        // The environment as the kernel passed it; a shell adds variables of its own.
        std::fs::write(&program, "#!/bin/sh\n/bin/cat /proc/$$/environ\nexit\n").unwrap();
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&program, mode).unwrap();
        let worker = Worker::at(program);
        let input = tempfile::tempfile().unwrap();
        let mut command = worker.command(WORKER_ARGUMENT, &(), input).unwrap();
        let output = command.output().await.unwrap();
        assert_eq!(
            String::from_utf8(output.stdout).unwrap(),
            "MIMALLOC_DISALLOW_ARENA_ALLOC=1\0"
        );
    }

    #[test]
    fn a_silent_worker_is_judged_by_its_exit_status() {
        let by = |signal| to_outcome(b"", Ok(ExitStatus::from_raw(signal)));
        assert_eq!(
            by(Signal::XCPU.as_raw()),
            WorkerOutcome::Stopped(Limit::Time)
        );
        assert_eq!(
            by(Signal::ABORT.as_raw()),
            WorkerOutcome::Stopped(Limit::Memory)
        );
        assert_eq!(
            by(Signal::SEGV.as_raw()),
            WorkerOutcome::Stopped(Limit::Memory)
        );
        assert_eq!(
            to_outcome(b"{}", Ok(ExitStatus::from_raw(101 << 8))),
            WorkerOutcome::Failed
        );
        assert_eq!(
            to_outcome(b"", Ok(ExitStatus::from_raw(0))),
            WorkerOutcome::Failed
        );
        assert_eq!(
            to_outcome(
                b"",
                Ok(ExitStatus::from_raw(i32::from(NO_MEMORY_EXIT_STATUS) << 8))
            ),
            WorkerOutcome::Stopped(Limit::Memory)
        );
    }
}
