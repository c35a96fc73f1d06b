//! Steps 3 to 5: looking at a file and opening it, in a directory that is held.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::resolve::Place;
use super::{Moment, Roots, errno};
use crate::message::cannot_read;
use crate::record::{Code, Refusal};

/// An open regular file.
#[derive(Debug)]
pub struct Opened {
    /// The handle through which everything is read.
    pub file: File,
    /// Its size in bytes, as the handle has it.
    pub size: u64,
    /// Where it lies. For the operator, not for the model.
    pub path: PathBuf,
}

const CHANGED_MESSAGE: &str = "changed while opening";

fn refuse(shown: &str, code: Code, reason: &str) -> Refusal {
    Refusal {
        code,
        output: cannot_read(shown, reason),
    }
}

/// A file that could not be looked at.
fn cannot_stat(shown: &str, error: Errno) -> Refusal {
    let code = match error {
        Errno::NOENT | Errno::NOTDIR => Code::NotFound,
        _ => Code::Unreadable,
    };
    refuse(shown, code, &format!("cannot stat: {}", errno::name(error)))
}

/// Looks at the file and opens it.
pub(super) fn open(
    roots: &Roots,
    shown: &str,
    place: &Place,
    between: &mut dyn FnMut(Moment),
) -> Result<Opened, Refusal> {
    let changed = || refuse(shown, Code::Unreadable, CHANGED_MESSAGE);
    let held = Held::hold(place).map_err(|error| match error {
        // The way was free of links a moment ago.
        Errno::LOOP | Errno::XDEV | Errno::AGAIN => changed(),
        error => cannot_stat(shown, error),
    })?;
    if !held.beneath {
        // By path, because the kernel cannot do better: so where the directory is has to be looked up again.
        contained(roots, shown, held.directory.as_fd())?;
    }
    let seen = held.look().map_err(|error| cannot_stat(shown, error))?;
    if let Some((code, word)) = unusable(&seen) {
        let reason = format!("not a regular file ({word})");
        return Err(refuse(shown, code, &reason));
    }
    between(Moment::Looked);
    let file = held.open().map_err(|error| match error {
        Errno::LOOP | Errno::NOENT | Errno::NXIO | Errno::XDEV | Errno::NOTDIR => changed(),
        error => {
            let reason = format!("io error: {}", errno::name(error));
            refuse(shown, Code::Unreadable, &reason)
        }
    })?;
    between(Moment::Opened);
    let now = rustix::fs::fstat(&file).map_err(|error| cannot_stat(shown, error))?;
    let same = |a: &Stat, b: &Stat| {
        (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
            && FileType::from_raw_mode(a.st_mode) == FileType::from_raw_mode(b.st_mode)
    };
    if !same(&seen, &now) {
        return Err(changed());
    }
    contained(roots, shown, file.as_fd())?;
    Ok(Opened {
        file: File::from(file),
        size: u64::try_from(now.st_size).unwrap_or(0),
        path: place.path.clone(),
    })
}

/// That an open file lies in a root, by where the system says it is.
fn contained(roots: &Roots, shown: &str, file: BorrowedFd<'_>) -> Result<(), Refusal> {
    if !roots.strict {
        return Ok(());
    }
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let real = std::fs::read_link(link)
        .map_err(|_| refuse(shown, Code::Unreadable, "cannot resolve realpath"))?;
    match roots.of(&real) {
        Some(_) => Ok(()),
        None => Err(roots.outside(shown)),
    }
}

/// What is not a regular file, and the word for it.
fn unusable(seen: &Stat) -> Option<(Code, &'static str)> {
    Some(match FileType::from_raw_mode(seen.st_mode) {
        FileType::RegularFile => return None,
        FileType::Symlink => (Code::Symlink, "link"),
        FileType::Directory => (Code::NotRegularFile, "directory"),
        FileType::Fifo => (Code::NotRegularFile, "fifo"),
        FileType::CharacterDevice => (Code::NotRegularFile, "characterSpecial"),
        FileType::BlockDevice => (Code::NotRegularFile, "blockSpecial"),
        FileType::Socket => (Code::NotRegularFile, "socket"),
        FileType::Unknown => (Code::NotRegularFile, "unknown"),
    })
}

/// The directory of a file, held open.
struct Held<'a> {
    directory: OwnedFd,
    /// Nothing for a root itself, and for `/`.
    name: Option<&'a OsStr>,
    /// The kernel made sure that it lies beneath its root.
    beneath: bool,
}

const DIRECTORY_FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl<'a> Held<'a> {
    fn hold(place: &'a Place) -> Result<Self, Errno> {
        let (Some(parent), Some(name)) = (place.path.parent(), place.path.file_name()) else {
            let directory = rustix::fs::open(&place.path, DIRECTORY_FLAGS, Mode::empty())?;
            return Ok(Self {
                directory,
                name: None,
                beneath: false,
            });
        };
        let Some(root) = &place.root else {
            return Ok(Self {
                directory: rustix::fs::open(parent, DIRECTORY_FLAGS, Mode::empty())?,
                name: Some(name),
                beneath: false,
            });
        };
        if place.path == *root {
            let flags = DIRECTORY_FLAGS | OFlags::NOFOLLOW;
            return Ok(Self {
                directory: rustix::fs::open(root, flags, Mode::empty())?,
                name: None,
                beneath: false,
            });
        }
        let (directory, beneath) = beneath(root, parent)?;
        Ok(Self {
            directory,
            name: Some(name),
            beneath,
        })
    }

    fn look(&self) -> Result<Stat, Errno> {
        match self.name {
            Some(name) => rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW),
            None => rustix::fs::fstat(&self.directory),
        }
    }

    fn open(&self) -> Result<OwnedFd, Errno> {
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let name = self.name.unwrap_or(OsStr::new("."));
        rustix::fs::openat(&self.directory, name, flags, Mode::empty())
    }
}

/// Opens a directory beneath a root without following any link, or, on kernels that cannot, by its path; the second
/// half of the answer says which.
fn beneath(root: &Path, directory: &Path) -> Result<(OwnedFd, bool), Errno> {
    let inside = directory.strip_prefix(root).unwrap_or(Path::new(""));
    let inside = if inside.as_os_str().is_empty() {
        Path::new(".")
    } else {
        inside
    };
    let base = rustix::fs::open(root, DIRECTORY_FLAGS | OFlags::NOFOLLOW, Mode::empty())?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(&base, inside, DIRECTORY_FLAGS, Mode::empty(), resolve) {
        // Old kernels, and seccomp profiles that are older than the call.
        Err(Errno::NOSYS | Errno::PERM) => {
            let flags = DIRECTORY_FLAGS | OFlags::NOFOLLOW;
            let held = rustix::fs::openat(CWD, directory, flags, Mode::empty())?;
            Ok((held, false))
        }
        opened => opened.map(|directory| (directory, true)),
    }
}
