//! The worker process: drops its permissions, converts the standard input, writes the result.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;

use dray_documents::formats::convert;

use super::{Job, NO_MEMORY_EXIT_STATUS, WORKER_ARGUMENT, confine, wire};
use crate::ocr;

/// Stack of the converting thread. Converters limit their depth; this is space for the libraries that they call.
const STACK_BYTES: usize = 64 << 20;

/// Runs the job of a worker if the arguments start this process as one. Every `main` that starts workers calls it
/// before anything else, and returns its exit code if there is one.
///
/// `arguments` are those of the process, its name first.
pub fn child(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter().skip(1);
    let role = arguments.next()?;
    if role == ocr::LAUNCHER_ARGUMENT {
        return Some(ocr::child(arguments));
    }
    if role != WORKER_ARGUMENT {
        return None;
    }
    let job = arguments.next().and_then(|job| job.into_string().ok());
    let job = job.and_then(|job| serde_json::from_str::<Job>(&job).ok());
    Some(match job.map(work) {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(ChildFailure::NoMemory)) => ExitCode::from(NO_MEMORY_EXIT_STATUS),
        Some(Err(ChildFailure::Other)) | None => ExitCode::FAILURE,
    })
}

/// The reason why the result is missing.
enum ChildFailure {
    /// The memory limit is too small for the converting thread.
    NoMemory,
    Other,
}

impl From<io::Error> for ChildFailure {
    fn from(_: io::Error) -> Self {
        Self::Other
    }
}

fn work(job: Job) -> Result<(), ChildFailure> {
    // The message of a panic may contain content of a file, so it is not printed.
    std::panic::set_hook(Box::new(|_| {}));
    // If the parent ended before this line, the write to its closed pipe fails later.
    confine::end_with_parent()?;
    let mut file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    // The descriptor is made before the seal, whose rules name its number, and the limits are set before it,
    // since the filter refuses `prlimit64`.
    confine::set_limits(&job.limits)?;
    confine::seal(file.as_fd())?;
    // The thread starts after the seal: the filter applies to this thread and the threads that it starts. The main
    // thread's stack would depend on the shell that started the service.
    let converting = std::thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(move || {
            file.seek(SeekFrom::Start(0))?;
            let converted = convert(&mut file, &job.hint, job.limits, job.selection);
            io::stdout().lock().write_all(&wire::write(converted))
        })
        .map_err(|_| ChildFailure::NoMemory)?;
    converting
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("converter panicked")))
        .map_err(ChildFailure::from)
}
