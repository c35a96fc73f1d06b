//! Removes files and directories, without ever following a link.

use std::os::fd::OwnedFd;

use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::FileKind;
use dray_sandbox::path::SandboxPath;
use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;

use super::blocking::AbandonedFlag;
use super::errno::failed;
use super::file_stat::FileStat;
use super::root::Root;

/// Directories that are held open at the same time; deeper ones are first moved up.
const MAX_OPEN_DIRECTORIES: usize = 64;

impl Root {
    /// Removes a file or link, or with `recursive` a directory.
    pub(super) fn remove(
        &self,
        path: &SandboxPath,
        recursive: bool,
        abandoned: &AbandonedFlag,
    ) -> Result<(), Error> {
        let (parent, name) = self.parent(path)?;
        let directory = self.directory(&parent)?;
        let stat = FileStat::at(&directory, &name).map_err(failed("examine what is removed"))?;
        if stat.kind != FileKind::Directory {
            return rustix::fs::unlinkat(&directory, name, AtFlags::empty())
                .map_err(failed("remove a file"));
        }
        if !recursive {
            return Err(Error::new(
                ErrorKind::IsDirectory,
                "the path is a directory, and removing directories was not requested",
            ));
        }
        let top = open_directory(&directory, &name).map_err(failed("open a directory"))?;
        DirectoryRemoval {
            top,
            moved: 0,
            abandoned,
        }
        .run()?;
        rustix::fs::unlinkat(&directory, name, AtFlags::REMOVEDIR)
            .map_err(failed("remove a directory"))
    }
}

struct DirectoryRemoval<'a> {
    top: OwnedFd,
    moved: u64,
    abandoned: &'a AbandonedFlag,
}

impl DirectoryRemoval<'_> {
    /// Empties the top directory, and repeats this while deep directories are moved into it.
    fn run(&mut self) -> Result<(), Error> {
        loop {
            let moved = self.moved;
            let top = self.top.try_clone().map_err(|error| {
                Error::new(ErrorKind::Unavailable, "hold a directory twice").caused_by(error)
            })?;
            self.empty_directory(&top, 1)?;
            if self.moved == moved {
                return Ok(());
            }
        }
    }

    fn empty_directory(&mut self, directory: &OwnedFd, depth: usize) -> Result<(), Error> {
        let entries = Dir::read_from(directory).map_err(failed("read a directory"))?;
        for entry in entries {
            self.abandoned.check()?;
            let entry = entry.map_err(failed("read a directory"))?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
                // Another process may have removed it meanwhile.
                Ok(()) | Err(Errno::NOENT) => {}
                // Some file systems report a directory with the second number.
                Err(Errno::ISDIR | Errno::PERM) => self.remove_directory(directory, name, depth)?,
                Err(error) => return Err(failed("remove a file")(error)),
            }
        }
        Ok(())
    }

    fn remove_directory(
        &mut self,
        parent: &OwnedFd,
        name: &[u8],
        depth: usize,
    ) -> Result<(), Error> {
        if depth >= MAX_OPEN_DIRECTORIES {
            // A chain of descriptors must not grow with the depth that a sandbox makes.
            self.moved += 1;
            let new_name = format!(".dray-removing-{}-{}", std::process::id(), self.moved);
            return rustix::fs::renameat(parent, name, &self.top, new_name)
                .map_err(failed("move a deep directory up"));
        }
        let directory = open_directory(parent, name).map_err(failed("open a directory"))?;
        self.empty_directory(&directory, depth + 1)?;
        // The descriptor is closed before the directory is removed, so that no more are open than the depth.
        drop(directory);
        match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(failed("remove a directory")(error)),
        }
    }
}

fn open_directory(parent: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}
