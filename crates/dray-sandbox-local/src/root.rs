//! The directory that is the sandbox, held open.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::path::{SandboxPath, path_parts};
use rustix::fs::{CWD, Mode, OFlags};

use super::Kernel;
use super::beneath::open_beneath;
use super::errno::failed;
use super::file_stat::FileStat;

/// The opened directory with its names.
#[derive(Debug)]
pub(super) struct Root {
    pub(super) descriptor: OwnedFd,
    /// The path without links.
    pub(super) real: SandboxPath,
    /// The path as the address has it, under which the agent may know it.
    pub(super) written_path: SandboxPath,
    /// Metadata at opening. The owner of the directory is the sandbox user.
    pub(super) stat: FileStat,
    pub(super) kernel: Kernel,
}

impl Root {
    /// Opens the directory `real`, known to the agent as `written_path`.
    pub(super) fn open_at(real: &Path, written_path: &Path, kernel: Kernel) -> Result<Self, Error> {
        let path = SandboxPath::new(real.as_os_str().as_bytes())?;
        let written_path = SandboxPath::new(written_path.as_os_str().as_bytes())?;
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let gone_error =
            |errno| Error::new(ErrorKind::SandboxGone, "no such directory").caused_by(errno);
        // `real` was checked a moment ago. Opening it from `/` without following links makes sure that it is still that
        // directory.
        let top = rustix::fs::openat(CWD, "/", flags | OFlags::CLOEXEC, Mode::empty());
        let names: Vec<_> = path_parts(path.as_bytes()).map(<[u8]>::to_vec).collect();
        let descriptor = open_beneath(top.map_err(gone_error)?.as_fd(), kernel, &names, flags)
            .map_err(gone_error)?;
        let stat = FileStat::of(&descriptor).map_err(failed("examine the directory"))?;
        Ok(Self {
            descriptor,
            real: path,
            written_path,
            stat,
            kernel,
        })
    }

    /// The identity, which differs from that of a later directory with the same name.
    pub(super) fn incarnation(&self) -> String {
        let (device, inode) = self.stat.identity;
        // Inode numbers are used again, so the time of birth is part of the identity.
        let born = self.stat.born_ns.unwrap_or_default();
        format!("{}#{device:x}.{inode:x}.{born:x}", self.real)
    }

    /// Fails when the name belongs to another directory now, or to none.
    pub(super) fn check_not_replaced(&self) -> Result<(), Error> {
        let gone_error = || {
            Error::new(
                ErrorKind::SandboxGone,
                "the directory was removed or replaced",
            )
        };
        let now = FileStat::at(CWD, self.real.as_bytes())
            .map_err(|errno| gone_error().caused_by(errno))?;
        if (now.identity, now.born_ns) == (self.stat.identity, self.stat.born_ns) {
            Ok(())
        } else {
            Err(gone_error())
        }
    }

    /// The names that lead from the directory to a path.
    pub(super) fn names(&self, path: &SandboxPath) -> Result<Vec<Vec<u8>>, Error> {
        let ancestor = [&self.real, &self.written_path]
            .into_iter()
            .find(|ancestor| path.is_beneath(ancestor))
            .ok_or_else(|| {
                Error::new(ErrorKind::OutsideRoot, "not beneath the sandbox directory")
            })?;
        Ok(path_parts(path.as_bytes())
            .skip(path_parts(ancestor.as_bytes()).count())
            .map(<[u8]>::to_vec)
            .collect())
    }

    /// The path of the file with these names.
    pub(super) fn path(&self, names: &[Vec<u8>]) -> Result<SandboxPath, Error> {
        let mut path = self.real.as_bytes().to_vec();
        for name in names {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        SandboxPath::new(path)
    }
}
