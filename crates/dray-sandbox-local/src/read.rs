//! Reads a regular file that is the one that was checked.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
use dray_sandbox::backend::Follow;
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::{FileKind, Fingerprint};
use dray_sandbox::path::SandboxPath;
use dray_types::Sha256Digest;
use futures_util::stream;
use rustix::fs::OFlags;
use sha2::{Digest as _, Sha256};
use tokio::task::JoinHandle;

use super::beneath::raced;
use super::blocking::AbandonedFlag;
use super::errno::failed;
use super::file_stat::FileStat;
use super::root::Root;

/// Length of one read in bytes; two are held at most.
const CHUNK_BYTES: usize = 256 * 1024;

/// A regular file that is held open, with its metadata at that time.
#[derive(Debug)]
pub(super) struct OpenFile {
    descriptor: OwnedFd,
    stat: FileStat,
}

impl Root {
    /// Opens a regular file. `checked` is the identity that an earlier `stat` found.
    pub(super) fn open_source(
        &self,
        path: &SandboxPath,
        checked: Option<(u64, u64)>,
    ) -> Result<OpenFile, Error> {
        let found = self.resolve(path, Follow::Yes)?;
        let changed = |reason| Error::new(ErrorKind::ChangedDuringTransfer, reason);
        if checked.is_some_and(|checked| checked != found.stat.identity) {
            return Err(changed("the path is another file now"));
        }
        // A FIFO or a device must not even be opened: the first blocks, the second may act.
        self.check(&found.stat)?;
        // `NONBLOCK` in case the name became a FIFO since the check.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let descriptor = self.open(&found.names, flags).map_err(raced)?;
        let stat = FileStat::of(&descriptor).map_err(failed("examine a file"))?;
        if stat.identity != found.stat.identity {
            return Err(changed("the path became another file"));
        }
        self.check(&stat)?;
        refuse_pseudo_files(&descriptor)?;
        Ok(OpenFile { descriptor, stat })
    }

    /// Checks whether a file may be read at all.
    fn check(&self, stat: &FileStat) -> Result<(), Error> {
        match stat.kind {
            FileKind::File => {}
            FileKind::Directory => return Err(Error::new(ErrorKind::IsDirectory, "a directory")),
            kind => return Err(Error::new(ErrorKind::NotRegular, kind.as_str())),
        }
        if is_foreign_link(stat, self.stat.uid) {
            // It may be another name of a secret that the sandbox user cannot read.
            let context = "a hard link to a file of another user";
            return Err(Error::new(ErrorKind::DeniedPath, context));
        }
        Ok(())
    }
}

/// Whether a hard link may alias a file of another user (sandbox-transfer R-4).
pub(super) fn is_foreign_link(stat: &FileStat, sandbox_user: u32) -> bool {
    stat.links > 1 && stat.uid != sandbox_user
}

/// File systems whose files are generated while they are read; their sizes mean nothing.
const PSEUDO_FILE_SYSTEMS: [i128; 14] = [
    0x0000_9fa0, // proc
    0x6265_6572, // sysfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0x6265_6570, // configfs
    0xcafe_4a11, // bpf
    0x6165_676c, // pstore
    0xde5e_81e4, // efivarfs
    0x4249_4e4d, // binfmt_misc
    0xf97c_ff8c, // selinuxfs
    0x6e73_6673, // nsfs
];

fn refuse_pseudo_files(descriptor: &OwnedFd) -> Result<(), Error> {
    let system = rustix::fs::fstatfs(descriptor).map_err(failed("examine a file system"))?;
    // The field is signed on some machines: only the low 32 bits are the number.
    if PSEUDO_FILE_SYSTEMS.contains(&(i128::from(system.f_type) & 0xffff_ffff)) {
        return Err(Error::new(ErrorKind::NotRegular, "a pseudo file"));
    }
    Ok(())
}

impl OpenFile {
    /// Fails unless the file has the announced size.
    pub(super) fn check_size(&self, announced: u64) -> Result<(), Error> {
        if self.stat.size == announced {
            return Ok(());
        }
        let reason = format!("{} bytes, not {announced}", self.stat.size);
        Err(Error::new(ErrorKind::ChangedDuringTransfer, reason))
    }

    /// Up to [`CHUNK_BYTES`] bytes from `offset`; fewer only at the size that the file had when it was opened.
    fn next_chunk(&self, offset: u64) -> Result<Vec<u8>, Error> {
        let remaining =
            usize::try_from(self.stat.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let wanted = remaining.min(CHUNK_BYTES);
        let mut chunk = Vec::with_capacity(wanted);
        while chunk.len() < wanted {
            let at = offset + chunk.len() as u64;
            let spare = rustix::buffer::spare_capacity(&mut chunk);
            match rustix::io::pread(&self.descriptor, spare, at) {
                Ok(0) => {
                    // A writer that first truncates the file must cause the same error as a writer that does not.
                    self.check_unchanged()?;
                    let reason = format!("the file ended at {at} of {} bytes", self.stat.size);
                    return Err(Error::new(ErrorKind::Truncated, reason));
                }
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(failed("read a file")(error)),
            }
        }
        chunk.truncate(wanted);
        Ok(chunk)
    }

    /// Fails when size or time differ from those at opening.
    fn check_unchanged(&self) -> Result<(), Error> {
        let now = FileStat::of(&self.descriptor).map_err(failed("examine a file"))?;
        if (now.size, now.mtime_ns) == (self.stat.size, self.stat.mtime_ns) {
            return Ok(());
        }
        let context = "its size or time changed";
        Err(Error::new(ErrorKind::ChangedDuringTransfer, context))
    }

    /// The bytes from `offset`. The next chunk is read while the last one is in use.
    pub(super) fn into_body(self, offset: u64) -> Body {
        let state = FileRead {
            source: Arc::new(self),
            offset,
            next: None,
        };
        Body::new(stream::unfold(Some(state), |state| async move {
            let mut state = state?;
            match state.next_chunk().await {
                Ok(chunk) if chunk.is_empty() => None,
                Ok(chunk) => Some((Ok(Bytes::from(chunk)), Some(state))),
                Err(error) => Some((Err(error), None)),
            }
        }))
    }

    /// Digest of the whole file, which must not change meanwhile.
    pub(super) fn fingerprint(&self, abandoned: &AbandonedFlag) -> Result<Fingerprint, Error> {
        let mut digest = Sha256::new();
        let mut offset = 0;
        loop {
            abandoned.check()?;
            let chunk = self.next_chunk(offset)?;
            if chunk.is_empty() {
                break;
            }
            offset += chunk.len() as u64;
            digest.update(&chunk);
        }
        self.check_unchanged()?;
        let digest = Sha256Digest::from_bytes(digest.finalize().into());
        Ok(Fingerprint::Sha256(digest, offset))
    }
}

/// A file that is being read: the position, and the chunk that is read ahead.
struct FileRead {
    source: Arc<OpenFile>,
    offset: u64,
    next: Option<JoinHandle<Result<Vec<u8>, Error>>>,
}

impl FileRead {
    /// The next chunk; empty at the end.
    async fn next_chunk(&mut self) -> Result<Vec<u8>, Error> {
        let reading = match self.next.take() {
            Some(reading) => reading,
            None => self.read_ahead(),
        };
        let chunk = reading.await.unwrap_or_else(|error| {
            Err(Error::new(ErrorKind::Unavailable, "a thread failed").caused_by(error))
        })?;
        self.offset += chunk.len() as u64;
        if !chunk.is_empty() {
            self.next = Some(self.read_ahead());
        }
        Ok(chunk)
    }

    fn read_ahead(&self) -> JoinHandle<Result<Vec<u8>, Error>> {
        let (source, offset) = (Arc::clone(&self.source), self.offset);
        tokio::task::spawn_blocking(move || {
            let chunk = source.next_chunk(offset)?;
            // The file is compared only at its end: an earlier change shows in size or time there too.
            if chunk.is_empty() {
                source.check_unchanged()?;
            }
            Ok(chunk)
        })
    }
}
