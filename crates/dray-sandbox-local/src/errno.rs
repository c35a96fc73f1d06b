//! Error numbers of the kernel, as the kinds that all backends share.

use dray_sandbox::error::{Error, ErrorKind};
use rustix::io::Errno;

/// Converts an error number to its kind.
pub(super) const fn kind(errno: Errno) -> ErrorKind {
    match errno {
        Errno::NOENT => ErrorKind::NotFound,
        Errno::NOTDIR => ErrorKind::NotDirectory,
        Errno::ISDIR => ErrorKind::IsDirectory,
        Errno::EXIST | Errno::NOTEMPTY => ErrorKind::Exists,
        Errno::LOOP | Errno::MLINK => ErrorKind::Loop,
        // `RESOLVE_BENEATH` reports an escape with it (openat2(2)), and `rename` a target on another file system.
        Errno::XDEV => ErrorKind::OutsideRoot,
        Errno::NAMETOOLONG | Errno::INVAL | Errno::ILSEQ => ErrorKind::InvalidName,
        Errno::ACCESS | Errno::PERM | Errno::TXTBSY => ErrorKind::PermissionDenied,
        Errno::ROFS => ErrorKind::ReadOnly,
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => ErrorKind::NoSpace,
        Errno::NXIO | Errno::NODEV => ErrorKind::NotRegular,
        Errno::STALE => ErrorKind::SandboxGone,
        _ => ErrorKind::Unavailable,
    }
}

/// Makes an error of the kernel, with the operation that was tried.
pub(super) fn failed(description: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::new(kind(errno), description).caused_by(errno)
}
