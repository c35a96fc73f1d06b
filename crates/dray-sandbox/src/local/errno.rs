//! What the kernel says, in the words that all backends share.

use rustix::io::Errno;

use crate::error::{Error, ErrorKind};

/// The kind of an error number.
pub(super) const fn kind(errno: Errno) -> ErrorKind {
    match errno {
        Errno::NOENT => ErrorKind::NotFound,
        Errno::NOTDIR => ErrorKind::NotDirectory,
        Errno::ISDIR => ErrorKind::IsDirectory,
        Errno::EXIST | Errno::NOTEMPTY => ErrorKind::Exists,
        Errno::LOOP | Errno::MLINK => ErrorKind::Loop,
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

/// An error of the kernel, with what was tried.
pub(super) fn failed(what: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::new(kind(errno), what).caused_by(errno)
}
