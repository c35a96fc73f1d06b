//! The worker as a process: its results, and its isolation from other processes.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]

use std::fs::File;
use std::io::{BufRead, Seek, Write};
use std::path::PathBuf;

use dray_documents::formats::ConversionHint;
use dray_documents::limits::{Limit, Limits};
use dray_documents::markdown::Selection;
use dray_reading::worker::{Job, Worker, WorkerOutcome};
use tokio_util::sync::CancellationToken;

fn worker() -> Worker {
    Worker::at(PathBuf::from(env!("CARGO_BIN_EXE_dray-convert")))
}

fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    file
}

fn job(mime: &str) -> Job {
    Job {
        hint: ConversionHint {
            mime: mime.to_owned(),
            ..ConversionHint::default()
        },
        limits: Limits::default(),
        selection: Selection::All,
    }
}

#[tokio::test]
async fn the_worker_returns_the_output_of_the_converter() {
    let worked = worker()
        .convert(
            file(b"hello"),
            &job("application/x-nothing"),
            &CancellationToken::new(),
        )
        .await;
    let WorkerOutcome::Done(converted) = worked else {
        panic!("{worked:?}");
    };
    assert_eq!(
        converted.failure,
        Some(dray_documents::limits::Failure::Unsupported)
    );
}

#[tokio::test]
async fn a_program_that_is_not_a_worker_is_a_failure() {
    let cancel = CancellationToken::new();
    for other in ["/bin/true", "/bin/false", "/nowhere/at/all"] {
        let worked = Worker::at(other.into())
            .convert(file(b""), &job("text/plain"), &cancel)
            .await;
        assert_eq!(worked, WorkerOutcome::Failed, "{other}");
    }
}

/// A program that ignores its task and does something else.
fn impostor(script: &str) -> (tempfile::TempDir, Worker) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("impostor");
    // Another process writes the file. If this process wrote it, a process that another test starts meanwhile could
    // inherit the open descriptor, and the file could not be executed (`ETXTBSY`).
    let written = std::process::Command::new("/bin/sh")
        .args([
            "-c",
            "printf '#!/bin/sh\n%s\n' \"$1\" > \"$2\" && chmod 755 \"$2\"",
            "sh",
        ])
        .arg(script)
        .arg(&path)
        .status();
    assert!(written.unwrap().success());
    (directory, Worker::at(path))
}

#[tokio::test]
async fn a_silent_worker_ends_at_the_time_limit_with_its_process_group() {
    let (directory, worker) =
        impostor("/bin/sleep 1000 & echo $! > \"$(dirname \"$0\")/pid\"; wait");
    let mut job = job("text/plain");
    job.limits.wall_ms = 200;
    let worked = worker
        .convert(file(b""), &job, &CancellationToken::new())
        .await;
    assert_eq!(worked, WorkerOutcome::Stopped(Limit::Time));
    let pid = std::fs::read_to_string(directory.path().join("pid")).unwrap();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while is_alive(pid.trim()) && std::time::Instant::now() < until {
        tokio::task::yield_now().await;
    }
    assert!(!is_alive(pid.trim()));
}

#[tokio::test]
async fn cancelling_ends_a_waiting_call_immediately() {
    let (_directory, worker) = impostor("exec /bin/sleep 1000");
    let worker = worker.with_concurrency(1);
    let cancel = CancellationToken::new();
    let job = job("text/plain");
    let both = async {
        tokio::join!(
            worker.convert(file(b""), &job, &cancel),
            worker.convert(file(b""), &job, &cancel),
        )
    };
    let (outcomes, ()) = tokio::join!(both, async { cancel.cancel() });
    assert_eq!(
        outcomes,
        (WorkerOutcome::Cancelled, WorkerOutcome::Cancelled)
    );
}

#[tokio::test]
async fn endless_and_incomplete_output_is_refused() {
    let (_directory, worker) = impostor("exec /bin/cat /dev/zero");
    let worked = worker
        .convert(file(b""), &job("text/plain"), &CancellationToken::new())
        .await;
    assert!(
        matches!(worked, WorkerOutcome::Failed | WorkerOutcome::Stopped(_)),
        "{worked:?}"
    );
    let (_directory, worker) = impostor("printf drayconv");
    let worked = worker
        .convert(file(b""), &job("text/plain"), &CancellationToken::new())
        .await;
    assert_eq!(worked, WorkerOutcome::Failed);
}

#[tokio::test]
async fn a_worker_without_room_to_work_is_stopped_by_memory() {
    for bytes in [1, 1000, 1 << 20, 32 << 20, 64 << 20] {
        let mut job = job("text/plain");
        job.limits.memory_bytes = bytes;
        let worked = worker()
            .convert(file(b"x"), &job, &CancellationToken::new())
            .await;
        assert_eq!(worked, WorkerOutcome::Stopped(Limit::Memory), "{bytes}");
    }
}

/// Whether a process exists and has not ended (a zombie has).
fn is_alive(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn a_worker_ends_with_the_parent_that_was_killed() {
    // The parent is a shell that is killed while its worker writes more than a pipe can buffer, and no process reads
    // it.
    let directory = tempfile::tempdir().unwrap();
    let document = directory.path().join("document");
    std::fs::write(&document, "words\n".repeat(500_000)).unwrap();
    let job = serde_json::to_string(&job("text/plain")).unwrap();
    let mut shell = std::process::Command::new("/bin/sh")
        .args(["-c", "\"$0\" convert-worker \"$1\" <\"$2\" & echo $!; wait"])
        .args([env!("CARGO_BIN_EXE_dray-convert"), &job])
        .arg(&document)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut pid = String::new();
    let mut stdout = std::io::BufReader::new(shell.stdout.take().unwrap());
    stdout.read_line(&mut pid).unwrap();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    let sealed = || {
        std::fs::read_to_string(format!("/proc/{}/status", pid.trim()))
            .is_ok_and(|status| status.contains("Seccomp:\t2"))
    };
    while !sealed() && is_alive(pid.trim()) && std::time::Instant::now() < until {
        std::thread::yield_now();
    }
    assert!(sealed());
    shell.kill().unwrap();
    shell.wait().unwrap();
    while is_alive(pid.trim()) && std::time::Instant::now() < until {
        std::thread::yield_now();
    }
    assert!(!is_alive(pid.trim()));
}
