//! Renames a file, which publishes it under its name.

use std::os::fd::OwnedFd;

use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::FileKind;
use dray_sandbox::path::SandboxPath;
use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;

use super::errno::failed;
use super::file_stat::FileStat;
use super::root::Root;
use super::write::sync_directory;

impl Root {
    /// Gives a file another name. Without `replace` the name is claimed only if it is free.
    pub(super) fn rename(
        &self,
        from: &SandboxPath,
        to: &SandboxPath,
        replace: bool,
    ) -> Result<(), Error> {
        let (parent, old) = self.parent(from)?;
        let source = self.directory(&parent)?;
        let (parent, new) = self.parent(to)?;
        let target = self.directory(&parent)?;
        if replace {
            refuse_directories(&source, &old, &target, &new)?;
            rustix::fs::renameat(&source, old, &target, new).map_err(failed("rename"))?;
        } else {
            self.rename_new(&source, &old, &target, &new)?;
        }
        // A crash after the response must not undo the rename.
        sync_directory(&target)
    }

    fn rename_new(
        &self,
        source: &OwnedFd,
        old: &[u8],
        target: &OwnedFd,
        new: &[u8],
    ) -> Result<(), Error> {
        if self.kernel.renameat2 {
            match rustix::fs::renameat_with(source, old, target, new, RenameFlags::NOREPLACE) {
                // The kernel or the file system does not support the flag.
                Err(Errno::NOSYS | Errno::INVAL | Errno::PERM) => {}
                renamed => return renamed.map_err(failed("rename")),
            }
        }
        // A link fails on an existing name just as reliably; between the two calls the file has both names.
        rustix::fs::linkat(source, old, target, new, AtFlags::empty()).map_err(failed("link"))?;
        rustix::fs::unlinkat(source, old, AtFlags::empty()).map_err(failed("unlink"))
    }
}

/// Refuses to replace a directory by a file. The kernel refuses that too, but reports it in several ways.
fn refuse_directories(
    source: &OwnedFd,
    old: &[u8],
    target: &OwnedFd,
    new: &[u8],
) -> Result<(), Error> {
    // A missing source is reported before the target is examined.
    FileStat::at(source, old).map_err(failed("examine what is renamed"))?;
    if FileStat::at(target, new).is_ok_and(|stat| stat.kind == FileKind::Directory) {
        return Err(Error::new(ErrorKind::IsDirectory, "the new name"));
    }
    Ok(())
}
