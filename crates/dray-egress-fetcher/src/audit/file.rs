//! Audit events as lines of a file that is rotated.
//!
//! A thread of its own writes, so that a slow or full disk delays no decision. What it cannot write in time, or at all, is
//! dropped and counted; log and stream have the event as well. Files have mode 0600.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use dray_proto::v1;
use dray_types::Sha256Digest;
use tokio::sync::oneshot;

use super::line::event_json;
use super::ocsf::ocsf_json;
use crate::config::{AuditFileSettings, AuditFormat};
use crate::metrics::EgressMetrics;

/// Mode of the files: their events are about people.
const FILE_MODE: u32 = 0o600;
/// Most lines that wait for the disk.
const MAX_QUEUED_LINES: usize = 4096;
/// Most bytes of them.
const MAX_QUEUED_BYTES: usize = 8 * 1024 * 1024;

/// What the thread is to do.
enum FileTask {
    Write(Vec<u8>),
    /// Everything before it is written or counted when the sender is dropped.
    Flush(oneshot::Sender<()>),
}

/// The file of audit events. Clones share it; the thread ends with the last one.
#[derive(Clone, Debug)]
pub struct AuditFile {
    format: AuditFormat,
    sample_percent: u32,
    tasks: SyncSender<FileTask>,
    queued_bytes: Arc<AtomicUsize>,
    metrics: EgressMetrics,
}

impl AuditFile {
    /// Opens the file and starts the thread.
    ///
    /// # Errors
    ///
    /// A file that cannot be opened for writing, or is not a regular one.
    pub fn open(settings: &AuditFileSettings, metrics: EgressMetrics) -> io::Result<Self> {
        let writer = RotatedFile::open(&settings.path, settings.max_bytes, settings.max_files)?;
        let (tasks, received) = sync_channel(MAX_QUEUED_LINES);
        let queued_bytes = Arc::new(AtomicUsize::new(0));
        let worker = FileWorker {
            writer,
            queued_bytes: Arc::clone(&queued_bytes),
            metrics: metrics.clone(),
        };
        thread::Builder::new()
            .name("audit-file".to_owned())
            .spawn(move || worker.run(&received))?;
        Ok(Self {
            format: settings.format,
            sample_percent: settings.sample_percent,
            tasks,
            queued_bytes,
            metrics,
        })
    }

    /// Hands the event to the thread, without a wait. Refusals are never left out by sampling.
    pub(super) fn record(&self, event: &v1::EgressAudit) {
        if event.verdict != "deny" && !is_sampled(&event.operation_id, self.sample_percent) {
            return;
        }
        let value = match self.format {
            AuditFormat::Json => event_json(event),
            AuditFormat::Ocsf => ocsf_json(event),
        };
        let mut line = value.to_string().into_bytes();
        line.push(b'\n');
        let size = line.len();
        // Counted before the check, so that two threads cannot both take the last place.
        let queued = self.queued_bytes.fetch_add(size, Ordering::Relaxed);
        let is_taken =
            queued + size <= MAX_QUEUED_BYTES && self.tasks.try_send(FileTask::Write(line)).is_ok();
        if !is_taken {
            self.queued_bytes.fetch_sub(size, Ordering::Relaxed);
            self.metrics.audit_file_dropped("queue_full");
        }
    }

    /// Ends with an error when everything that was recorded before is written or counted, or immediately when the queue is
    /// full: nothing is ever sent.
    pub fn flush(&self) -> oneshot::Receiver<()> {
        let (done, waiting) = oneshot::channel();
        // Where it is not taken, the other end is dropped here.
        let _ = self.tasks.try_send(FileTask::Flush(done));
        waiting
    }
}

/// Whether an event of this operation is among `percent` of all. The same operation always gives the same answer, so both
/// events of a connection are there or none.
fn is_sampled(operation: &str, percent: u32) -> bool {
    let digest = Sha256Digest::of(operation.as_bytes());
    let mut number = 0_u32;
    for byte in digest.as_bytes().iter().take(4) {
        number = (number << 8) | u32::from(*byte);
    }
    number % 100 < percent
}

struct FileWorker {
    writer: RotatedFile,
    queued_bytes: Arc<AtomicUsize>,
    metrics: EgressMetrics,
}

impl FileWorker {
    fn run(mut self, tasks: &Receiver<FileTask>) {
        // The first failure of several is logged; the metric counts all.
        let mut has_failed = false;
        while let Ok(task) = tasks.recv() {
            let line = match task {
                FileTask::Write(line) => line,
                FileTask::Flush(done) => {
                    drop(done);
                    continue;
                }
            };
            self.queued_bytes.fetch_sub(line.len(), Ordering::Relaxed);
            let written = self.writer.write_line(&line);
            if let Err(error) = &written {
                self.metrics.audit_file_dropped("write_failed");
                if !has_failed {
                    tracing::error!(%error, "the file of audit events cannot be written");
                }
            }
            has_failed = written.is_err();
        }
    }
}

/// A file that is replaced when it is full: `FILE` becomes `FILE.1`, that one `FILE.2`, and the oldest is removed.
#[derive(Debug)]
struct RotatedFile {
    path: PathBuf,
    max_bytes: u64,
    /// Files that are kept, the one that is written to included.
    max_files: u32,
    file: File,
    size: u64,
}

impl RotatedFile {
    fn open(path: &Path, max_bytes: u64, max_files: u32) -> io::Result<Self> {
        let (file, size) = open_private(path)?;
        Ok(Self {
            path: path.to_owned(),
            max_bytes,
            max_files,
            file,
            size,
        })
    }

    /// Writes a whole line or nothing.
    fn write_line(&mut self, line: &[u8]) -> io::Result<()> {
        let length = line.len() as u64;
        if self.size > 0 && self.size + length > self.max_bytes {
            self.rotate()?;
        }
        match self.file.write_all(line) {
            Ok(()) => {
                self.size += length;
                Ok(())
            }
            Err(error) => {
                // The part of a line that fitted a full disk is taken back.
                self.file.set_len(self.size)?;
                Err(error)
            }
        }
    }

    fn rotate(&mut self) -> io::Result<()> {
        // From the oldest on, so that each name is free when the next file takes it.
        for number in (1..self.max_files).rev() {
            let from = match number {
                1 => self.path.clone(),
                number => self.numbered(number - 1),
            };
            match fs::rename(from, self.numbered(number)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        // With one file nothing was renamed.
        if self.max_files == 1 {
            self.file.set_len(0)?;
        }
        (self.file, self.size) = open_private(&self.path)?;
        Ok(())
    }

    fn numbered(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }
}

/// Opens a regular file for appending, for this user alone; its size.
fn open_private(path: &Path) -> io::Result<(File, u64)> {
    // A pipe or a device would block the thread.
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(io::Error::other("it is not a regular file"));
    }
    // Appending, so that a restart continues the file.
    let mut options = OpenOptions::new();
    let file = options
        .append(true)
        .create(true)
        .mode(FILE_MODE)
        .open(path)?;
    // One that was there before may have another mode.
    file.set_permissions(fs::Permissions::from_mode(FILE_MODE))?;
    let size = file.metadata()?.len();
    Ok((file, size))
}

#[cfg(test)]
mod tests;
