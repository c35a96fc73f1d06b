//! The launcher: drops all permissions, then becomes the program.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use super::{OcrJob, confine};
use crate::worker::confine::{end_with_parent, set_limits};

/// Replaces this process by the program of the job. Returns only after a failure, with its exit status.
///
/// The first argument is the job.
pub(crate) fn child(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let job = arguments.next().and_then(|job| job.into_string().ok());
    let job = job.and_then(|job| serde_json::from_str::<OcrJob>(&job).ok());
    if let Some(job) = job {
        let _ = become_program(&job);
    }
    ExitCode::FAILURE
}

/// Returns only an error; on success it does not return.
fn become_program(job: &OcrJob) -> std::io::Result<()> {
    // This comes before the seal, which refuses `prctl`. The signal and the limits survive `exec`.
    end_with_parent()?;
    set_limits(&job.limits)?;
    confine::seal(&job.program)?;
    // The segmentation detects the orientation: scans may be upside down.
    let arguments = [
        "stdin",
        "stdout",
        "-l",
        job.languages.as_str(),
        "--psm",
        "1",
    ];
    let error = Command::new(&job.program)
        .args(arguments)
        .env_clear()
        // The filter refuses threads, and OpenMP aborts when it cannot start one.
        .env("OMP_THREAD_LIMIT", "1")
        // Tesseract 4.0 asserts the C locale, and the message about missing languages stays in English.
        .env("LC_ALL", "C")
        .exec();
    Err(error)
}
