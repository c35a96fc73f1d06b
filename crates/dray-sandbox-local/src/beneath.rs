//! Finds and opens what lies beneath a directory, and nothing outside of it.
//!
//! [`Root::resolve`] finds where a path leads, links included, one descriptor at a time. [`Root::open`] opens a path
//! in which no part may be a link. A resolved path is opened that way, so a link that another process creates in the
//! path is an error and never followed.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use dray_sandbox::backend::Follow;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::FileKind;
use dray_sandbox::path::{SandboxPath, path_parts};
use dray_sandbox::path_walk::MAX_SYMBOLIC_LINKS;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::Kernel;
use super::errno::{self, failed};
use super::file_stat::FileStat;
use super::root::Root;

/// The end of a path, held open.
#[derive(Debug)]
pub(super) struct OpenPath {
    /// Names from the root; none of them is a link, except perhaps the last.
    pub(super) names: Vec<Vec<u8>>,
    /// A descriptor of `O_PATH`: it can be examined but not read.
    pub(super) descriptor: OwnedFd,
    /// Metadata of the inode behind the descriptor.
    pub(super) stat: FileStat,
}

impl Root {
    /// Opens the file with these names. A link in a parent component is `ELOOP`. A link as the last component is, too,
    /// except with `O_PATH`, which opens the link itself.
    pub(super) fn open(&self, names: &[Vec<u8>], flags: OFlags) -> Result<OwnedFd, Errno> {
        open_beneath(self.descriptor.as_fd(), self.kernel, names, flags)
    }

    fn or_root<'a>(&'a self, held: Option<&'a OwnedFd>) -> BorrowedFd<'a> {
        held.map_or(self.descriptor.as_fd(), OwnedFd::as_fd)
    }

    /// Finds where a path leads, with its last part followed or not.
    pub(super) fn resolve(&self, path: &SandboxPath, follow: Follow) -> Result<OpenPath, Error> {
        let names = self.names(path)?;
        let examine = |names: Vec<Vec<u8>>, descriptor: OwnedFd| {
            let stat = FileStat::of(&descriptor).map_err(failed("examine a path"))?;
            Ok::<_, Error>(OpenPath {
                names,
                descriptor,
                stat,
            })
        };
        // Most paths hold no link, and one call resolves them; only the others are walked.
        match self.open(&names, OFlags::PATH) {
            Ok(descriptor) => {
                let found = examine(names, descriptor)?;
                if found.stat.kind != FileKind::Symlink || follow == Follow::No {
                    return Ok(found);
                }
            }
            Err(Errno::LOOP) => {}
            Err(error) => return Err(failed("find a path")(error)),
        }
        let names = self.without_links(self.names(path)?.into(), follow)?;
        let descriptor = self.open(&names, OFlags::PATH).map_err(raced)?;
        let found = examine(names, descriptor)?;
        if found.stat.kind == FileKind::Symlink && follow == Follow::Yes {
            return Err(raced(Errno::LOOP));
        }
        Ok(found)
    }

    /// Replaces links by their targets. A link that leads out is [`ErrorKind::OutsideRoot`], because the top is a
    /// directory of this host. So this is not the walk of `dray_sandbox::PathWalk`, which stops at the root of the
    /// sandbox.
    fn without_links(
        &self,
        mut pending: VecDeque<Vec<u8>>,
        follow: Follow,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let outside = || Error::new(ErrorKind::OutsideRoot, "a link leads out of the sandbox");
        let mut resolved: Vec<Vec<u8>> = Vec::new();
        let mut open_directory: Option<OwnedFd> = None;
        let mut links = 0;
        while let Some(name) = pending.pop_front() {
            if name == b".." {
                resolved.pop().ok_or_else(outside)?;
                // The path is opened from the root again: the parent of the held directory may have been moved
                // meanwhile.
                open_directory = Some(self.open(&resolved, DIRECTORY_FLAGS).map_err(raced)?);
                continue;
            }
            let directory = self.or_root(open_directory.as_ref());
            let next = step(
                directory,
                &name,
                OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            )
            .map_err(failed("find a path"))?;
            let kind = FileStat::of(&next).map_err(failed("examine a path"))?.kind;
            if kind == FileKind::Symlink && (follow == Follow::Yes || !pending.is_empty()) {
                links += 1;
                if links > MAX_SYMBOLIC_LINKS {
                    return Err(Error::new(ErrorKind::Loop, "too many links"));
                }
                let target = link_target(&next)?;
                let mut target: VecDeque<Vec<u8>> =
                    self.target_parts(&target, &mut resolved, &mut open_directory)?;
                target.append(&mut pending);
                pending = target;
                continue;
            }
            resolved.push(name);
            if !pending.is_empty() && kind != FileKind::Directory {
                return Err(Error::new(ErrorKind::NotDirectory, "part of the path"));
            }
            open_directory = Some(next);
        }
        Ok(resolved)
    }

    /// The parts that a link adds. An absolute target must begin with the root, and is walked from there.
    fn target_parts(
        &self,
        target: &[u8],
        resolved: &mut Vec<Vec<u8>>,
        held: &mut Option<OwnedFd>,
    ) -> Result<VecDeque<Vec<u8>>, Error> {
        let mut rest = path_parts(target);
        if target.first() == Some(&b'/') {
            for wanted in path_parts(self.real.as_bytes()) {
                if rest.next() != Some(wanted) {
                    let context = "a link leads out of the sandbox";
                    return Err(Error::new(ErrorKind::OutsideRoot, context));
                }
            }
            resolved.clear();
            *held = None;
        }
        Ok(rest.map(<[u8]>::to_vec).collect())
    }

    /// The real directory in which a path lies, and its name there.
    pub(super) fn parent(&self, path: &SandboxPath) -> Result<(Vec<Vec<u8>>, Vec<u8>), Error> {
        if self.names(path)?.is_empty() {
            let context = "the path is the sandbox directory itself";
            return Err(Error::new(ErrorKind::OutsideRoot, context));
        }
        let parent = self.resolve(&path.parent(), Follow::Yes)?;
        if parent.stat.kind != FileKind::Directory {
            return Err(Error::new(ErrorKind::NotDirectory, "part of the path"));
        }
        Ok((parent.names, path.name().to_vec()))
    }

    /// Opens a real directory for work in it and for `fsync`.
    pub(super) fn directory(&self, names: &[Vec<u8>]) -> Result<OwnedFd, Error> {
        match self.open(names, OFlags::RDONLY | OFlags::DIRECTORY) {
            // A directory that may be entered but not read.
            Err(Errno::ACCESS) => self.open(names, DIRECTORY_FLAGS),
            opened => opened,
        }
        .map_err(raced)
    }
}

/// Opens the file with these names beneath a directory, without following any link.
pub(super) fn open_beneath(
    base: BorrowedFd<'_>,
    kernel: Kernel,
    names: &[Vec<u8>],
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if kernel.openat2 {
        let path = if names.is_empty() {
            b".".to_vec()
        } else {
            names.join(&b'/')
        };
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(base, path.as_slice(), flags, Mode::empty(), resolve) {
            // Old kernels, and seccomp profiles that are older than the call. A real EPERM comes again below.
            Err(Errno::NOSYS | Errno::PERM) => {}
            opened => return opened,
        }
    }
    walk_to(base, names, flags)
}

/// Does the same without `openat2`, one part at a time.
fn walk_to(base: BorrowedFd<'_>, names: &[Vec<u8>], flags: OFlags) -> Result<OwnedFd, Errno> {
    let Some((last, before)) = names.split_last() else {
        return rustix::fs::openat(base, ".", flags, Mode::empty());
    };
    let mut open_directory: Option<OwnedFd> = None;
    for name in before {
        let directory = open_directory.as_ref().map_or(base, OwnedFd::as_fd);
        open_directory = Some(step(directory, name, DIRECTORY_FLAGS)?);
    }
    step(
        open_directory.as_ref().map_or(base, OwnedFd::as_fd),
        last,
        flags,
    )
}

const DIRECTORY_FLAGS: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Opens one part. A link where a directory was wanted is distinguished from a file there.
fn step(directory: BorrowedFd<'_>, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    match rustix::fs::openat(directory, name, flags, Mode::empty()) {
        // With `O_DIRECTORY` the kernel reports a link that is not followed as `ENOTDIR`.
        Err(Errno::NOTDIR)
            if FileStat::at(directory, name).is_ok_and(|stat| stat.kind == FileKind::Symlink) =>
        {
            Err(Errno::LOOP)
        }
        opened => opened,
    }
}

/// Text of a link that is held with `O_PATH`.
pub(super) fn link_target(link: &OwnedFd) -> Result<Vec<u8>, Error> {
    rustix::fs::readlinkat(link, "", Vec::new())
        .map(std::ffi::CString::into_bytes)
        .map_err(failed("read a link"))
}

/// Converts an error after a path was resolved. The path contains no links then, so any link on it is new.
pub(super) fn raced(error: Errno) -> Error {
    let kind = match error {
        Errno::LOOP => ErrorKind::ChangedDuringTransfer,
        error => errno::kind(error),
    };
    Error::new(kind, "open what was resolved").caused_by(error)
}
