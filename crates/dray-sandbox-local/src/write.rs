//! Writes new files and makes directories.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use dray_sandbox::backend::Follow;
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::FileKind;
use dray_sandbox::path::SandboxPath;
use rustix::fs::{Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use tokio::task::JoinHandle;

use super::blocking;
use super::errno::failed;
use super::file_stat::FileStat;
use super::root::Root;

/// Bytes of one write; memory holds at most two such chunks.
const CHUNK_BYTES: usize = 256 * 1024;

/// A file that is being written, with mode 0600 until it is complete.
#[derive(Debug)]
pub(super) struct PartialFile {
    file: OwnedFd,
    directory: OwnedFd,
}

impl Root {
    /// Makes a file that did not exist, if its disk has room for `size` bytes.
    pub(super) fn create(&self, path: &SandboxPath, size: u64) -> Result<PartialFile, Error> {
        let (parent, name) = self.parent(path)?;
        let directory = self.directory(&parent)?;
        check_free_space(&directory, size)?;
        let flags = OFlags::WRONLY
            | OFlags::CREATE
            | OFlags::EXCL
            | OFlags::NOFOLLOW
            | OFlags::CLOEXEC
            | OFlags::NOCTTY;
        // Other users may read it only when `finish` sets its mode.
        let mode = Mode::RUSR | Mode::WUSR;
        let file =
            rustix::fs::openat(&directory, name, flags, mode).map_err(failed("create a file"))?;
        self.chown(&file)?;
        Ok(PartialFile { file, directory })
    }

    /// Opens a file that holds exactly `offset` bytes of `size`.
    pub(super) fn resume(
        &self,
        path: &SandboxPath,
        offset: u64,
        size: u64,
    ) -> Result<PartialFile, Error> {
        let (parent, name) = self.parent(path)?;
        let directory = self.directory(&parent)?;
        check_free_space(&directory, size.saturating_sub(offset))?;
        let before = FileStat::at(&directory, &name).map_err(failed("examine a partial file"))?;
        if before.kind != FileKind::File {
            return Err(Error::new(ErrorKind::NotRegular, before.kind.as_str()));
        }
        // `NONBLOCK` in case the name became a FIFO since the check.
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&directory, name, flags, Mode::empty())
            .map_err(failed("open a partial file"))?;
        let stat = FileStat::of(&file).map_err(failed("examine a partial file"))?;
        // A second link would let another name see, or change, what is written here.
        if (stat.identity, stat.size, stat.links) != (before.identity, offset, 1) {
            let reason = format!("{} bytes are there, not {offset}", stat.size);
            return Err(Error::new(ErrorKind::ChangedDuringTransfer, reason));
        }
        Ok(PartialFile { file, directory })
    }

    /// Gives a file or directory to the sandbox user, where this process is another user and is allowed to.
    fn chown(&self, descriptor: impl AsFd) -> Result<(), Error> {
        let ours = rustix::process::geteuid().as_raw();
        if ours == self.stat.uid {
            return Ok(());
        }
        let (uid, gid) = (Uid::from_raw(self.stat.uid), Gid::from_raw(self.stat.gid));
        match rustix::fs::fchown(descriptor, Some(uid), Some(gid)) {
            // Without the privilege the file keeps the user of this process as its owner.
            Ok(()) | Err(Errno::PERM) => Ok(()),
            Err(error) => Err(failed("give a file to the sandbox user")(error)),
        }
    }

    /// Makes a directory and its missing parents.
    pub(super) fn make_directory(&self, path: &SandboxPath) -> Result<(), Error> {
        let mut current = self.real.clone();
        for name in self.names(path)? {
            let next = current.join(&name)?;
            current = match self.resolve(&next, Follow::Yes) {
                Ok(found) if found.stat.kind == FileKind::Directory => self.path(&found.names)?,
                Ok(_) => return Err(Error::new(ErrorKind::NotDirectory, "part of the path")),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    self.make_one(&next)?;
                    next
                }
                Err(error) => return Err(error),
            };
        }
        Ok(())
    }

    fn make_one(&self, path: &SandboxPath) -> Result<(), Error> {
        let (parent, name) = self.parent(path)?;
        let directory = self.directory(&parent)?;
        let mode = Mode::from_raw_mode(0o755);
        match rustix::fs::mkdirat(&directory, name.as_slice(), mode) {
            Ok(()) => {}
            // Another process created it first; `check_directory` detects a file or a dangling link.
            Err(Errno::EXIST) => return self.check_directory(path),
            Err(error) => return Err(failed("make a directory")(error)),
        }
        let mut names = parent;
        names.push(name);
        let made = self.directory(&names)?;
        // Sets bits that the umask removed. Where the descriptor is only a path, the umask stays.
        match rustix::fs::fchmod(&made, mode) {
            Ok(()) | Err(Errno::BADF) => {}
            Err(error) => return Err(failed("set the mode of a directory")(error)),
        }
        self.chown(&made)?;
        sync_directory(&directory)
    }

    fn check_directory(&self, path: &SandboxPath) -> Result<(), Error> {
        let found = self.resolve(path, Follow::No)?;
        if found.stat.kind == FileKind::Directory {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::NotDirectory,
            found.stat.kind.as_str(),
        ))
    }
}

/// Free bytes of the disk on which a directory lies, for users other than root.
pub(super) fn free(directory: impl AsFd) -> Result<u64, Error> {
    let system = rustix::fs::fstatvfs(directory).map_err(failed("ask for free space"))?;
    Ok(system.f_bavail.saturating_mul(system.f_frsize))
}

fn check_free_space(directory: impl AsFd, size: u64) -> Result<(), Error> {
    let free = free(directory)?;
    if size <= free {
        return Ok(());
    }
    let reason = format!("{size} bytes are needed, {free} are free");
    Err(Error::new(ErrorKind::NoSpace, reason))
}

/// Syncs a directory, so that its names survive a power cut where the file system supports it.
pub(super) fn sync_directory(directory: &OwnedFd) -> Result<(), Error> {
    match rustix::fs::fsync(directory) {
        Ok(()) | Err(Errno::INVAL | Errno::BADF) => Ok(()),
        Err(error) => Err(failed("sync a directory")(error)),
    }
}

impl PartialFile {
    /// Writes the body from `offset` on, then sets the mode that makes the file public.
    pub(super) async fn fill(self, offset: u64, mode: u32, mut body: Body) -> Result<(), Error> {
        let target = Arc::new(self);
        let mut writing: Option<JoinHandle<Result<(), Error>>> = None;
        let mut buffer = Vec::with_capacity(CHUNK_BYTES);
        let mut offset = offset;
        loop {
            let chunk = match body.next().await.transpose() {
                Ok(chunk) => chunk,
                Err(error) => {
                    // The next transfer may continue this file immediately, and a late write would change it meanwhile.
                    if let Some(last) = writing {
                        drop(join_write(last).await);
                    }
                    return Err(error);
                }
            };
            let ended = chunk.is_none();
            buffer.extend_from_slice(&chunk.unwrap_or_default());
            if buffer.len() < CHUNK_BYTES && !ended {
                continue;
            }
            // One write at a time; the next chunk is collected while it runs.
            if let Some(before) = writing.take() {
                join_write(before).await?;
            }
            if ended {
                break;
            }
            let length = buffer.len() as u64;
            writing = Some(target.begin_write(std::mem::take(&mut buffer), offset));
            offset += length;
        }
        blocking::run(move |_| {
            write_all(&target.file, &buffer, offset)?;
            target.finish(mode)
        })
        .await
    }

    fn begin_write(self: &Arc<Self>, chunk: Vec<u8>, offset: u64) -> JoinHandle<Result<(), Error>> {
        let target = Arc::clone(self);
        tokio::task::spawn_blocking(move || write_all(&target.file, &chunk, offset))
    }

    fn finish(&self, mode: u32) -> Result<(), Error> {
        rustix::fs::fchmod(&self.file, Mode::from_raw_mode(mode & 0o777))
            .map_err(failed("set the mode of a file"))?;
        // The mode is set first, so that one sync covers content and mode.
        rustix::fs::fsync(&self.file).map_err(failed("sync a file"))?;
        sync_directory(&self.directory)
    }
}

async fn join_write(writing: JoinHandle<Result<(), Error>>) -> Result<(), Error> {
    writing.await.unwrap_or_else(|error| {
        Err(Error::new(ErrorKind::Unavailable, "a thread failed").caused_by(error))
    })
}

fn write_all(file: &OwnedFd, mut bytes: &[u8], mut offset: u64) -> Result<(), Error> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(file, bytes, offset) {
            Ok(0) => {
                return Err(Error::new(
                    ErrorKind::NoSpace,
                    "the write accepted no more bytes",
                ));
            }
            Ok(written) => {
                bytes = bytes.get(written..).unwrap_or_default();
                offset += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(failed("write a file")(error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::mpsc;

    use futures_util::{FutureExt as _, stream};

    use super::*;

    #[test]
    fn no_write_outlives_a_failed_body() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("partial");
        let target = PartialFile {
            file: File::create(&path).unwrap().into(),
            directory: File::open(directory.path()).unwrap().into(),
        };
        let failure = Error::new(ErrorKind::Unavailable, "the source is gone");
        let chunks = [Ok(vec![7; CHUNK_BYTES].into()), Err(failure)];
        runtime.block_on(async {
            // The only thread for writes is busy until the end of this block.
            let (release, released) = mpsc::channel::<()>();
            let busy = tokio::task::spawn_blocking(move || released.recv());
            let filling = target.fill(0, 0o644, Body::new(stream::iter(chunks)));
            tokio::pin!(filling);
            let outcome = filling.as_mut().now_or_never();
            assert!(outcome.is_none(), "{outcome:?} before the write ended");
            drop(release);
            assert!(busy.await.unwrap().is_err());
            let error = filling.await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
        });
        assert_eq!(path.metadata().unwrap().len(), CHUNK_BYTES as u64);
    }
}
