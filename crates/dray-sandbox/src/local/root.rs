//! The directory that is the sandbox.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};

use super::Kernel;
use super::beneath::open_beneath;
use super::errno::failed;
use super::seen::Seen;
use crate::error::{Error, ErrorKind};
use crate::path::SandboxPath;

/// A directory held open.
#[derive(Debug)]
pub(super) struct Root {
    pub(super) descriptor: OwnedFd,
    /// Without links in it.
    pub(super) real: SandboxPath,
    /// As the address has it.
    pub(super) said: SandboxPath,
    /// What it was when it was opened. Its owner is the sandbox user.
    pub(super) seen: Seen,
    pub(super) kernel: Kernel,
}

impl Root {
    /// Opens the directory `real`, known to the agent as `said`.
    pub(super) fn hold(real: &Path, said: &Path, kernel: Kernel) -> Result<Self, Error> {
        let path = SandboxPath::new(real.as_os_str().as_bytes())?;
        let said = SandboxPath::new(said.as_os_str().as_bytes())?;
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let gone = |errno| Error::new(ErrorKind::SandboxGone, "no such directory").caused_by(errno);
        // `real` was found to be allowed a moment ago. From the top and without links, so that it still is that.
        let top = rustix::fs::openat(CWD, "/", flags | OFlags::CLOEXEC, Mode::empty());
        let names: Vec<_> = parts(path.as_bytes()).map(<[u8]>::to_vec).collect();
        let descriptor =
            open_beneath(top.map_err(gone)?.as_fd(), kernel, &names, flags).map_err(gone)?;
        let seen = Seen::of(&descriptor).map_err(failed("look at the directory"))?;
        Ok(Self {
            descriptor,
            real: path,
            said,
            seen,
            kernel,
        })
    }

    /// Its identity, different also from that of a later directory of the same name.
    pub(super) fn incarnation(&self) -> String {
        let (device, inode) = self.seen.identity;
        let born = self.seen.born_ns.unwrap_or_default();
        format!("{}#{device:x}.{inode:x}.{born:x}", self.real)
    }

    /// Fails when its name means something else now, or nothing.
    pub(super) fn still_there(&self) -> Result<(), Error> {
        let gone = || {
            Error::new(
                ErrorKind::SandboxGone,
                "the directory was removed or replaced",
            )
        };
        let now = Seen::at(CWD, self.real.as_bytes()).map_err(|errno| gone().caused_by(errno))?;
        if (now.identity, now.born_ns) == (self.seen.identity, self.seen.born_ns) {
            Ok(())
        } else {
            Err(gone())
        }
    }

    /// The names that lead from it to a path.
    pub(super) fn names(&self, path: &SandboxPath) -> Result<Vec<Vec<u8>>, Error> {
        let ancestor = [&self.real, &self.said]
            .into_iter()
            .find(|ancestor| path.is_beneath(ancestor))
            .ok_or_else(|| {
                Error::new(ErrorKind::OutsideRoot, "not beneath the sandbox directory")
            })?;
        Ok(parts(path.as_bytes())
            .skip(parts(ancestor.as_bytes()).count())
            .map(<[u8]>::to_vec)
            .collect())
    }

    /// The path that these names lead to.
    pub(super) fn path(&self, names: &[Vec<u8>]) -> Result<SandboxPath, Error> {
        let mut path = self.real.as_bytes().to_vec();
        for name in names {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        SandboxPath::new(path)
    }
}

/// The parts of a path that are names, with `..` among them.
pub(super) fn parts(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
}
