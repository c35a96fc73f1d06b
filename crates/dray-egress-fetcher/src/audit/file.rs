//! Audit events as lines of a file that is rotated. Files have mode 0600.
//!
//! Several processes may write to the same file, such as a service and a command with its configuration. Each writes
//! under a lock of the file, and opens the file again when another process, or an operator, has replaced it. The next
//! file belongs to the owner of the one before. The first file of root belongs to the owner of its directory, so that a
//! command of root does not take the file from the user of the service.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use dray_types::file_lock::{FileLockError, lock_within};

use super::queue::{AuditQueue, EventWriter, PlacedEvent, QueueTerms, UnwrittenFrames};
use crate::config::AuditFileSettings;
use crate::metrics::{AuditDestination, EgressMetrics};

/// Longest wait for another process when the file is opened at the start: a start is not delayed further.
const START_LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest wait for another process in one attempt to write. Later lines wait in the queue meanwhile.
const WRITE_LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes of a line that a killed process left unfinished. A line is far shorter.
const MAX_TORN_BYTES: u64 = 1 << 20;
/// Mode of the files: their events are about people.
const FILE_MODE: u32 = 0o600;
/// The user whose new files are given to the owner of their directory.
const ROOT_USER: u32 = 0;
/// Most attempts to open a file that other processes replace.
const MAX_REOPENS: u32 = 16;

impl AuditQueue {
    /// Opens the file and starts the thread.
    ///
    /// # Errors
    ///
    /// A file that cannot be opened for writing, is not a regular one, or is locked by another process for longer than
    /// 2 s.
    pub fn to_file(settings: &AuditFileSettings, metrics: EgressMetrics) -> io::Result<Self> {
        let writer = RotatedFile::open(&settings.path, settings.max_bytes, settings.max_files)?;
        let terms = QueueTerms {
            place: AuditDestination::File,
            format: settings.format,
            sample_percent: settings.sample_percent,
        };
        Self::start(writer, terms, metrics)
    }
}

impl EventWriter for RotatedFile {
    fn frame(_event: &dyn PlacedEvent, text: &str) -> Vec<u8> {
        let mut line = Vec::with_capacity(text.len() + 1);
        line.extend_from_slice(text.as_bytes());
        line.push(b'\n');
        line
    }

    fn write_frame(&mut self, frame: &[u8]) -> io::Result<()> {
        self.with_lock(WRITE_LOCK_TIMEOUT, |file| file.write_line(frame))
    }

    const KEEPS_UNWRITTEN: bool = true;

    fn write_frames(&mut self, frames: &[Vec<u8>]) -> Result<(), UnwrittenFrames> {
        let mut written = 0;
        let result = self.with_lock(WRITE_LOCK_TIMEOUT, |file| {
            file.write_lines(frames, &mut written)
        });
        result.map_err(|error| UnwrittenFrames {
            indexes: (written..frames.len()).collect(),
            error,
        })
    }
}

/// A file that is replaced when it is full: `FILE` becomes `FILE.1`, `FILE.1` becomes `FILE.2`, and the oldest is
/// removed.
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
        let (file, size) = open_private(path, None)?;
        let mut opened = Self {
            path: path.to_owned(),
            max_bytes,
            max_files,
            file,
            size,
        };
        // The last line is ended under the lock, so that a line which another process is writing does not count as
        // unfinished.
        opened.with_lock(START_LOCK_TIMEOUT, |opened| {
            opened.size = end_last_line(&mut opened.file, &opened.path, opened.size)?;
            Ok(())
        })?;
        Ok(opened)
    }

    /// Runs `write` under the lock of the file, for which it waits at most `limit`.
    fn with_lock<T>(
        &mut self,
        limit: Duration,
        write: impl FnOnce(&mut Self) -> io::Result<T>,
    ) -> io::Result<T> {
        self.lock_current(limit)?;
        let written = write(self);
        // Where it fails, closing the file releases the lock.
        let _ = self.file.unlock();
        written
    }

    /// Locks the file that has the name now, and reads its size, which other processes change.
    fn lock_current(&mut self, limit: Duration) -> io::Result<()> {
        for _ in 0..MAX_REOPENS {
            lock_file(&self.file, limit)?;
            let own = self.file.metadata()?;
            let is_current = fs::metadata(&self.path)
                .is_ok_and(|named| (named.dev(), named.ino()) == (own.dev(), own.ino()));
            if is_current {
                let size = own.len();
                // Another process may have been killed in the middle of a line, to which the next one would be added.
                let is_own_end = size == self.size;
                self.size = if is_own_end {
                    size
                } else {
                    end_last_line(&mut self.file, &self.path, size)?
                };
                return Ok(());
            }
            (self.file, self.size) = open_private(&self.path, Some(&own))?;
        }
        Err(io::Error::other(
            "other programs replaced the file in every attempt to open it",
        ))
    }

    /// Writes lines in their order, each wholly or not at all, up to the first that fails. `written` counts them.
    fn write_lines(&mut self, lines: &[Vec<u8>], written: &mut usize) -> io::Result<()> {
        while let Some(rest) = lines.get(*written..).filter(|rest| !rest.is_empty()) {
            let (together, _) = rest.split_at(self.count_fitting(rest));
            // All of them are written together; if that fails, as many lines as fit are kept.
            if self.write_line(&together.concat()).is_ok() {
                *written += together.len();
                continue;
            }
            for line in together {
                self.write_line(line)?;
                *written += 1;
            }
        }
        Ok(())
    }

    /// The number of lines, at least one, that go into the file without a rotation between them.
    fn count_fitting(&self, lines: &[Vec<u8>]) -> usize {
        let is_first_fitting = |line: &Vec<u8>| self.size + line.len() as u64 <= self.max_bytes;
        let mut size = match lines.first() {
            Some(first) if is_first_fitting(first) => self.size,
            // The lines begin a new file.
            _ => 0,
        };
        let fitting = lines.iter().take_while(|line| {
            size += line.len() as u64;
            size <= self.max_bytes
        });
        fitting.count().max(1)
    }

    /// Writes whole lines or nothing.
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
                // The part of the line that still fitted on a full disk is removed.
                self.file.set_len(self.size)?;
                Err(error)
            }
        }
    }

    /// Replaces the full file. The next file is opened first. If that fails, for example without a free descriptor, no
    /// file is renamed, since every further attempt would remove the oldest one.
    fn rotate(&mut self) -> io::Result<()> {
        if self.max_files == 1 {
            self.file.set_len(0)?;
            self.size = 0;
            return Ok(());
        }
        let next_path = self.with_suffix("new");
        // A killed process may have left this file.
        remove_if_present(&next_path)?;
        let next = create_private(&next_path, Some(&self.file.metadata()?))?;
        // The file is locked, because other processes can open it by its name before this write is complete.
        lock_file(&next, WRITE_LOCK_TIMEOUT)?;
        // Files are renamed from the oldest on, so that each name is free when the next file takes it.
        for number in (2..self.max_files).rev() {
            match fs::rename(self.numbered(number - 1), self.numbered(number)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let first = self.numbered(1);
        remove_if_present(&first)?;
        // The link keeps the file under its name until the rename. Without it, another process could create a file
        // there, and the rename would remove that file with its lines.
        match fs::hard_link(&self.path, &first) {
            // An operator has moved the file away meanwhile.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::rename(next_path, &self.path)?;
        (self.file, self.size) = (next, 0);
        Ok(())
    }

    fn numbered(&self, number: u32) -> PathBuf {
        self.with_suffix(&number.to_string())
    }

    fn with_suffix(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{suffix}"));
        name.into()
    }
}

/// Removes the last line if a process was killed while it wrote the line, so that every line can be read. Any other
/// last line, such as a whole event, only gets a line end. Returns the size afterwards.
fn end_last_line(file: &mut File, path: &Path, size: u64) -> io::Result<u64> {
    let Some(last) = size.checked_sub(1) else {
        return Ok(size);
    };
    // `file` can only append.
    let mut reader = File::open(path)?;
    // The last byte is read first: it nearly always ends a line, and each process checks it after the writes of another
    // one.
    let mut last_byte = [0];
    reader.seek(SeekFrom::Start(last))?;
    reader.read_exact(&mut last_byte)?;
    if last_byte == *b"\n" {
        return Ok(size);
    }
    let start = size.saturating_sub(MAX_TORN_BYTES);
    let mut tail = Vec::new();
    reader.seek(SeekFrom::Start(start))?;
    reader.take(size - start).read_to_end(&mut tail)?;
    let last_line = match tail.iter().rposition(|byte| *byte == b'\n') {
        Some(end) => tail.get(end + 1..).unwrap_or_default(),
        None if start == 0 => &tail,
        None => &[],
    };
    // A whole event only lacks its line end.
    let is_whole = serde_json::from_slice::<serde::de::IgnoredAny>(last_line).is_ok();
    if last_line.starts_with(b"{") && !is_whole {
        let whole = size - last_line.len() as u64;
        file.set_len(whole)?;
        tracing::warn!(
            bytes = last_line.len(),
            "removed the unfinished last line of the audit file"
        );
        return Ok(whole);
    }
    file.write_all(b"\n")?;
    Ok(size + 1)
}

/// Opens a regular file for appending, or creates it for the owner of `previous`. Also returns its size.
fn open_private(path: &Path, previous: Option<&fs::Metadata>) -> io::Result<(File, u64)> {
    let found = fs::metadata(path);
    // A pipe or a device would block the thread.
    if found.as_ref().is_ok_and(|found| !found.is_file()) {
        return Err(io::Error::other("it is not a regular file"));
    }
    match create_private(path, previous) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        created => return Ok((created?, 0)),
    }
    // `append` lets a restart continue the file. `create` is for a link whose target does not exist.
    let mut options = OpenOptions::new();
    let opened = options.append(true).create(true).mode(FILE_MODE).open(path);
    let file = opened.map_err(|error| match (error.kind(), found) {
        (io::ErrorKind::PermissionDenied, Ok(found)) => {
            let message = format!("{error}; it belongs to user {}", found.uid());
            io::Error::new(error.kind(), message)
        }
        _ => error,
    })?;
    // A file that existed before may have another mode.
    file.set_permissions(fs::Permissions::from_mode(FILE_MODE))?;
    let size = file.metadata()?.len();
    Ok((file, size))
}

/// Creates a file for the owner of `previous`. Without one it is for the user of this process, or, where that is root,
/// for the owner of the directory. It never follows a link, so that the owner of a directory cannot choose which file
/// root gives away.
fn create_private(path: &Path, previous: Option<&fs::Metadata>) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options
        .append(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(path)?;
    let directory = match previous {
        None if file.metadata()?.uid() == ROOT_USER => {
            path.parent().map(fs::metadata).transpose()?
        }
        _ => None,
    };
    if let Some(owner) = previous.or(directory.as_ref())
        && let Err(error) = keep_owner(&file, owner)
    {
        // If the file stayed there, it would keep the user of the service from its own file.
        let _ = fs::remove_file(path);
        return Err(error);
    }
    Ok(file)
}

/// Gives a new file to the owner of the one before it, or of its directory.
fn keep_owner(created: &File, previous: &fs::Metadata) -> io::Result<()> {
    let own = created.metadata()?;
    if (own.uid(), own.gid()) == (previous.uid(), previous.gid()) {
        return Ok(());
    }
    match fchown(created, Some(previous.uid()), Some(previous.gid())) {
        // The mode gives the group no right, so another group changes nothing.
        Err(_) if own.uid() == previous.uid() => Ok(()),
        Err(error) => {
            let owner = previous.uid();
            let message = format!(
                "the file cannot be given to user {owner}, who owns the one before or the directory: {error}"
            );
            Err(io::Error::new(error.kind(), message))
        }
        Ok(()) => Ok(()),
    }
}

/// Takes the lock of a file, or gives up after `limit` with `TimedOut`. It takes no lock on a file system without
/// locks, where only one process may use the file.
fn lock_file(file: &File, limit: Duration) -> io::Result<()> {
    match lock_within(file, limit) {
        Ok(()) | Err(FileLockError::Unsupported(_)) => Ok(()),
        Err(error @ FileLockError::Held { .. }) => {
            Err(io::Error::new(io::ErrorKind::TimedOut, error))
        }
        Err(FileLockError::Failed(error)) => {
            let kind = error.kind();
            Err(io::Error::new(kind, FileLockError::Failed(error)))
        }
    }
}

fn remove_if_present(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
