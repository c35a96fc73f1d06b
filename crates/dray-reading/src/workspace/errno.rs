//! Names of system errors, as they are shown.

use rustix::io::Errno;

/// The name of an error number, such as `ENOENT`; the number itself if it is not in the table.
pub(crate) fn name(error: Errno) -> String {
    let name = match error {
        Errno::PERM => "EPERM",
        Errno::NOENT => "ENOENT",
        Errno::INTR => "EINTR",
        Errno::IO => "EIO",
        Errno::NXIO => "ENXIO",
        Errno::BADF => "EBADF",
        Errno::AGAIN => "EAGAIN",
        Errno::NOMEM => "ENOMEM",
        Errno::ACCESS => "EACCES",
        Errno::BUSY => "EBUSY",
        Errno::NODEV => "ENODEV",
        Errno::NOTDIR => "ENOTDIR",
        Errno::ISDIR => "EISDIR",
        Errno::INVAL => "EINVAL",
        Errno::NFILE => "ENFILE",
        Errno::MFILE => "EMFILE",
        Errno::TXTBSY => "ETXTBSY",
        Errno::FBIG => "EFBIG",
        Errno::NOSPC => "ENOSPC",
        Errno::SPIPE => "ESPIPE",
        Errno::ROFS => "EROFS",
        Errno::NAMETOOLONG => "ENAMETOOLONG",
        Errno::LOOP => "ELOOP",
        Errno::OVERFLOW => "EOVERFLOW",
        Errno::XDEV => "EXDEV",
        Errno::STALE => "ESTALE",
        Errno::TIMEDOUT => "ETIMEDOUT",
        Errno::NOTCONN => "ENOTCONN",
        Errno::HOSTDOWN => "EHOSTDOWN",
        Errno::REMOTEIO => "EREMOTEIO",
        Errno::OPNOTSUPP => "EOPNOTSUPP",
        Errno::NOSYS => "ENOSYS",
        Errno::DQUOT => "EDQUOT",
        Errno::NOKEY => "ENOKEY",
        other => return format!("errno {}", other.raw_os_error()),
    };
    name.to_owned()
}

/// The name of the system error behind an error of the standard library; `EIO` without one.
pub(crate) fn of_io(error: &std::io::Error) -> String {
    name(Errno::from_io_error(error).unwrap_or(Errno::IO))
}
