//! What is known about a path in a sandbox (sandbox-transfer 1.2).

use dray_types::Sha256Digest;
use serde::{Deserialize, Serialize};

use crate::path::SandboxPath;

/// What a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// Something else.
    Other,
}

impl FileKind {
    /// The name used on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Directory => "dir",
            Self::Symlink => "symlink",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
            Self::CharDevice => "chardev",
            Self::BlockDevice => "blockdev",
            Self::Other => "other",
        }
    }

    /// From the type bits of `st_mode`.
    pub const fn from_st_mode(mode: u32) -> Self {
        match mode & 0o170_000 {
            0o100_000 => Self::File,
            0o040_000 => Self::Directory,
            0o120_000 => Self::Symlink,
            0o010_000 => Self::Fifo,
            0o140_000 => Self::Socket,
            0o020_000 => Self::CharDevice,
            0o060_000 => Self::BlockDevice,
            _ => Self::Other,
        }
    }
}

/// What a backend knows of a path. What it cannot know is `None`, never invented.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// As asked for.
    pub path: SandboxPath,
    /// After all links were resolved inside the sandbox; equal to `path` for a link that was not followed.
    pub real_path: SandboxPath,
    /// What it is.
    pub kind: FileKind,
    /// Bytes; for a link the length of its text.
    pub size: u64,
    /// The 12 low mode bits.
    pub mode: u32,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Nanoseconds since the epoch, as exact as the backend has it.
    pub mtime_ns: Option<i128>,
    /// Target of a link that was not followed.
    pub link_target: Option<Vec<u8>>,
    /// Number of hard links.
    pub links: Option<u64>,
    /// Device and inode, when the backend reports them: what was checked is what was read.
    pub identity: Option<(u64, u64)>,
}

/// One entry of a listing. Links are named, never followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The path.
    pub path: SandboxPath,
    /// What it is.
    pub kind: FileKind,
    /// Bytes.
    pub size: u64,
    /// The 12 low mode bits.
    pub mode: u32,
    /// Nanoseconds since the epoch.
    pub mtime_ns: Option<i128>,
    /// Target of a link.
    pub link_target: Option<Vec<u8>>,
}

/// What a directory holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// In the order of their paths.
    pub entries: Vec<Entry>,
    /// Whether the limit cut it.
    pub truncated: bool,
}

/// What a sandbox incarnation offers; asked once and remembered by the holder of the handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Home of the sandbox user.
    pub home: SandboxPath,
    /// Its working directory.
    pub working_directory: SandboxPath,
    /// User id that files belong to.
    pub uid: u32,
    /// Group id that files belong to.
    pub gid: u32,
    /// Bytes free in the working directory, when it can be known.
    pub free: Option<u64>,
    /// Transports that can be used, best first.
    pub transports: Vec<Transport>,
    /// Programs found that transfers use (`sha256sum`, `gzip`, `base64` …).
    pub tools: Vec<String>,
    /// Milliseconds of life that the sandbox has left, when it has an end.
    pub life_ms: Option<u64>,
}

/// A way for bytes to travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// A descriptor on this host.
    Direct,
    /// The archive API of a container engine.
    Archive,
    /// SFTP.
    Sftp,
    /// The provider's own file calls.
    Files,
    /// Raw bytes over a command's stdin and stdout.
    ExecRaw,
    /// Base64 over a command, compressed when a sample says that it helps.
    ExecBase64,
}

impl Transport {
    /// The name in receipts and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Archive => "archive",
            Self::Sftp => "sftp",
            Self::Files => "files",
            Self::ExecRaw => "exec_raw",
            Self::ExecBase64 => "exec_base64",
        }
    }

    /// Whether a short end and damage on the way cannot pass unseen, where the sandbox offers a
    /// [`State`]: bytes are counted against what was announced, and only text is decoded by tools that skip what
    /// they do not understand.
    pub const fn is_sound(self) -> bool {
        matches!(self, Self::Archive | Self::Sftp | Self::ExecRaw)
    }
}

/// How sure a receipt is that what arrived is what was there (sandbox-transfer 12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Integrity {
    /// No digest in the sandbox: size and times, and inode where it is reported, were the same before and after. For a
    /// written file: every byte was acknowledged and the size is right.
    SizeMtime,
    /// A checksum weaker than SHA-256 (POSIX `cksum`) and the size.
    Weak,
    /// SHA-256 computed once in the sandbox, beside the copy, equal to ours. A file that was read had the same size,
    /// times and inode before and after; of a file that was written, the digest is of the bytes as they went into it,
    /// and its size is right.
    Sha256Beside,
    /// SHA-256 in the sandbox after the transfer only (large files, or written files).
    Sha256After,
    /// SHA-256 in the sandbox before and after, equal to ours.
    Sha256,
}

impl Integrity {
    /// The name in receipts.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SizeMtime => "size_mtime",
            Self::Weak => "weak",
            Self::Sha256Beside => "sha256_beside",
            Self::Sha256After => "sha256_after",
            Self::Sha256 => "sha256",
        }
    }
}

/// Seconds that a file must have been left alone for a later write to show in its times, at any granularity.
const SETTLED_S: i64 = 2;
/// Nanoseconds of a second.
const SECOND_NS: i128 = 1_000_000_000;

/// What the sandbox says of a regular file that changes whenever its content does, known without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// What it is.
    pub kind: FileKind,
    /// Device and inode.
    pub identity: (u64, u64),
    /// Bytes.
    pub size: u64,
    /// When its content was written last, in nanoseconds since the epoch, as exact as the sandbox says it.
    pub modified_ns: i128,
    /// When its content or attributes changed last, which a process in a sandbox cannot set.
    pub changed_s: i64,
    /// The time in the sandbox when this was read.
    pub now_s: i64,
    /// All of it as the sandbox said it, fractions of seconds included.
    pub said: String,
}

impl State {
    /// Whether a write from now on must show: both times are clearly past.
    pub fn is_settled(&self) -> bool {
        let since = self.now_s.saturating_sub(SETTLED_S);
        self.changed_s <= since && self.modified_ns <= i128::from(since) * SECOND_NS
    }

    /// Whether nothing happened to the file in between.
    pub fn is_same(&self, later: &Self) -> bool {
        self.said == later.said
    }
}

/// What a digest command in the sandbox said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fingerprint {
    /// SHA-256 and bytes.
    Sha256(Sha256Digest, u64),
    /// POSIX `cksum` and bytes, where nothing better is installed.
    Cksum(u32, u64),
}
