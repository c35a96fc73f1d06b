//! Steps 3 to 5: stat and open of a file, relative to an open directory.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::resolve::ResolvedPath;
use super::{OpenStep, Roots, errno};
use crate::message::cannot_read;
use crate::record::{Code, Refusal};

/// An open regular file.
#[derive(Debug)]
pub struct OpenedFile {
    /// The handle through which everything is read.
    pub file: File,
    /// The file's size in bytes, from the open handle.
    pub size: u64,
    /// The file's real path. For the operator, not for the model.
    pub path: PathBuf,
}

const CHANGED_MESSAGE: &str = "changed while opening";

fn refuse(display_path: &str, code: Code, reason: &str) -> Refusal {
    Refusal {
        code,
        output: cannot_read(display_path, reason),
    }
}

/// The refusal for a file whose stat failed.
fn cannot_stat(display_path: &str, error: Errno) -> Refusal {
    let code = match error {
        Errno::NOENT | Errno::NOTDIR => Code::NotFound,
        _ => Code::Unreadable,
    };
    refuse(
        display_path,
        code,
        &format!("cannot stat: {}", errno::name(error)),
    )
}

/// Checks the file with stat and opens it.
pub(super) fn open(
    roots: &Roots,
    display_path: &str,
    resolved: &ResolvedPath,
    on_step: &mut dyn FnMut(OpenStep),
) -> Result<OpenedFile, Refusal> {
    let changed = || refuse(display_path, Code::Unreadable, CHANGED_MESSAGE);
    let parent = ParentDirectory::open_of(resolved).map_err(|error| match error {
        // The path was free of links when it was resolved.
        Errno::LOOP | Errno::XDEV | Errno::AGAIN => changed(),
        error => cannot_stat(display_path, error),
    })?;
    if !parent.beneath {
        // The directory is opened by its path, because the kernel has no `openat2`; so the real path of the directory
        // is checked again.
        require_inside_root(roots, display_path, parent.directory.as_fd())?;
    }
    // The file is examined before it is opened, because opening a FIFO or a device has effects.
    let status = parent
        .stat()
        .map_err(|error| cannot_stat(display_path, error))?;
    if let Some((code, word)) = non_regular_type(&status) {
        let reason = format!("not a regular file ({word})");
        return Err(refuse(display_path, code, &reason));
    }
    on_step(OpenStep::Examined);
    let file = parent.open().map_err(|error| match error {
        Errno::LOOP | Errno::NOENT | Errno::NXIO | Errno::XDEV | Errno::NOTDIR => changed(),
        error => {
            let reason = format!("io error: {}", errno::name(error));
            refuse(display_path, Code::Unreadable, &reason)
        }
    })?;
    on_step(OpenStep::Opened);
    // Between stat and open, the name may have been given to another file (TOCTOU, CWE-367).
    let opened_status =
        rustix::fs::fstat(&file).map_err(|error| cannot_stat(display_path, error))?;
    let is_same_file = |left: &Stat, right: &Stat| {
        (left.st_dev, left.st_ino) == (right.st_dev, right.st_ino)
            && FileType::from_raw_mode(left.st_mode) == FileType::from_raw_mode(right.st_mode)
    };
    if !is_same_file(&status, &opened_status) {
        return Err(changed());
    }
    // A directory that was renamed meanwhile may have moved the open file out of its root.
    require_inside_root(roots, display_path, file.as_fd())?;
    Ok(OpenedFile {
        file: File::from(file),
        // A file of size 0 is read up to the limit, so a false size does not hide content.
        size: u64::try_from(opened_status.st_size).unwrap_or(0),
        path: resolved.path.clone(),
    })
}

/// Checks that an open file is inside a root, by the path that the system reports.
fn require_inside_root(
    roots: &Roots,
    display_path: &str,
    file: BorrowedFd<'_>,
) -> Result<(), Refusal> {
    if !roots.strict {
        return Ok(());
    }
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let real = std::fs::read_link(link)
        .map_err(|_| refuse(display_path, Code::Unreadable, "cannot resolve realpath"))?;
    match roots.root_of(&real) {
        Some(_) => Ok(()),
        None => Err(roots.outside(display_path)),
    }
}

/// The refusal and the name of the type for a file that is not regular; `None` for a regular file.
fn non_regular_type(status: &Stat) -> Option<(Code, &'static str)> {
    Some(match FileType::from_raw_mode(status.st_mode) {
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

/// The open directory of a file.
struct ParentDirectory<'a> {
    directory: OwnedFd,
    /// `None` for a root itself, and for `/`.
    name: Option<&'a OsStr>,
    /// Whether the kernel ensured that it is beneath its root.
    beneath: bool,
}

// `O_PATH` opens directories that may be passed through but not listed.
const DIRECTORY_FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl<'a> ParentDirectory<'a> {
    fn open_of(resolved: &'a ResolvedPath) -> Result<Self, Errno> {
        let (Some(parent), Some(name)) = (resolved.path.parent(), resolved.path.file_name()) else {
            let directory = rustix::fs::open(&resolved.path, DIRECTORY_FLAGS, Mode::empty())?;
            return Ok(Self {
                directory,
                name: None,
                beneath: false,
            });
        };
        let Some(root) = &resolved.root else {
            return Ok(Self {
                directory: rustix::fs::open(parent, DIRECTORY_FLAGS, Mode::empty())?,
                name: Some(name),
                beneath: false,
            });
        };
        if resolved.path == *root {
            let flags = DIRECTORY_FLAGS | OFlags::NOFOLLOW;
            return Ok(Self {
                directory: rustix::fs::open(root, flags, Mode::empty())?,
                name: None,
                beneath: false,
            });
        }
        let (directory, beneath) = open_beneath(root, parent)?;
        Ok(Self {
            directory,
            name: Some(name),
            beneath,
        })
    }

    fn stat(&self) -> Result<Stat, Errno> {
        match self.name {
            Some(name) => rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW),
            None => rustix::fs::fstat(&self.directory),
        }
    }

    fn open(&self) -> Result<OwnedFd, Errno> {
        // `NONBLOCK`: the open of a file that became a FIFO after the stat would wait for a writer without end.
        // `NOCTTY`: a terminal must not become the controlling terminal of this process.
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let name = self.name.unwrap_or(OsStr::new("."));
        rustix::fs::openat(&self.directory, name, flags, Mode::empty())
    }
}

/// Opens a directory beneath a root without following any link, or by its path on kernels without `openat2`; the second
/// value is whether the kernel checked it.
fn open_beneath(root: &Path, directory: &Path) -> Result<(OwnedFd, bool), Errno> {
    let inside = directory.strip_prefix(root).unwrap_or(Path::new(""));
    let inside = if inside.as_os_str().is_empty() {
        Path::new(".")
    } else {
        inside
    };
    let base = rustix::fs::open(root, DIRECTORY_FLAGS | OFlags::NOFOLLOW, Mode::empty())?;
    // The path was already resolved, so a link in it was created in between and is refused.
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(&base, inside, DIRECTORY_FLAGS, Mode::empty(), resolve) {
        // Old kernels, and seccomp profiles that are older than the call.
        Err(Errno::NOSYS | Errno::PERM) => {
            let flags = DIRECTORY_FLAGS | OFlags::NOFOLLOW;
            let parent = rustix::fs::openat(CWD, directory, flags, Mode::empty())?;
            Ok((parent, false))
        }
        opened => opened.map(|directory| (directory, true)),
    }
}
