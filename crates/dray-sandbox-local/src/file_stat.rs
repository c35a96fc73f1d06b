//! Metadata of one inode, as the kernel reports it.

use std::os::fd::AsFd;

use dray_sandbox::metadata::{FileKind, Metadata};
use dray_sandbox::path::SandboxPath;
use rustix::fs::{AtFlags, Statx, StatxFlags};
use rustix::io::Errno;

/// The result of one `statx`.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileStat {
    pub(super) kind: FileKind,
    pub(super) size: u64,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) links: u64,
    pub(super) mtime_ns: i128,
    /// Time of the last change of content or attributes, which no process can set.
    pub(super) ctime_ns: i128,
    pub(super) born_ns: Option<i128>,
    pub(super) identity: (u64, u64),
}

impl FileStat {
    /// Metadata of an open descriptor.
    pub(super) fn of(descriptor: impl AsFd) -> Result<Self, Errno> {
        Self::stat_at(descriptor, b"", AtFlags::EMPTY_PATH)
    }

    /// Metadata of a name in a directory; a link is not followed.
    pub(super) fn at(directory: impl AsFd, name: &[u8]) -> Result<Self, Errno> {
        Self::stat_at(directory, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn stat_at(descriptor: impl AsFd, name: &[u8], flags: AtFlags) -> Result<Self, Errno> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        // Reading metadata must not mount a network file system, which may hang.
        let flags = flags | AtFlags::NO_AUTOMOUNT;
        Ok(Self::from_kernel(&rustix::fs::statx(
            descriptor, name, flags, wanted,
        )?))
    }

    fn from_kernel(statx: &Statx) -> Self {
        let nanoseconds =
            |seconds: i64, rest: u32| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
        let born = StatxFlags::from_bits_retain(statx.stx_mask).contains(StatxFlags::BTIME);
        // The number has the form of `st_dev`, so that a command in a sandbox prints the same number for the file.
        let device = rustix::fs::makedev(statx.stx_dev_major, statx.stx_dev_minor);
        Self {
            kind: FileKind::from_st_mode(u32::from(statx.stx_mode)),
            size: statx.stx_size,
            mode: u32::from(statx.stx_mode) & 0o7777,
            uid: statx.stx_uid,
            gid: statx.stx_gid,
            links: u64::from(statx.stx_nlink),
            mtime_ns: nanoseconds(statx.stx_mtime.tv_sec, statx.stx_mtime.tv_nsec),
            ctime_ns: nanoseconds(statx.stx_ctime.tv_sec, statx.stx_ctime.tv_nsec),
            born_ns: born.then(|| nanoseconds(statx.stx_btime.tv_sec, statx.stx_btime.tv_nsec)),
            identity: (device, statx.stx_ino),
        }
    }

    /// Converts to the type of the interface.
    pub(super) fn describe(
        &self,
        path: SandboxPath,
        real_path: SandboxPath,
        link_target: Option<Vec<u8>>,
    ) -> Metadata {
        Metadata {
            path,
            real_path,
            kind: self.kind,
            size: self.size,
            mode: self.mode,
            uid: Some(self.uid),
            gid: Some(self.gid),
            mtime_ns: Some(self.mtime_ns),
            link_target,
            links: Some(self.links),
            identity: Some(self.identity),
        }
    }
}
