//! Metadata of paths and of sandboxes, and the words for transports and integrity (sandbox-transfer 1.2).

use dray_types::Sha256Digest;
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};
use crate::path::SandboxPath;

/// Kind of a file system entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A regular file, the one kind that is transferred.
    File,
    /// A directory, which is transferred as a tree.
    Directory,
    /// A symbolic link that was not followed.
    Symlink,
    /// A FIFO. To open it would wait for a writer.
    Fifo,
    /// A Unix domain socket.
    Socket,
    /// A character device; some of them never end.
    CharDevice,
    /// A block device, with the bytes of a whole disk.
    BlockDevice,
    /// A kind that the backend does not know.
    Other,
}

impl FileKind {
    /// The name used on the wire, as sandbox-transfer 1.2 lists them.
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

    /// Reads the type bits of `st_mode`.
    // `S_IFMT` and its values, as in inode(7).
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

/// Metadata of one path. A value that a backend cannot determine is `None`, never a guess.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// The path that the call was given.
    pub path: SandboxPath,
    /// The path after all links were resolved inside the sandbox; equal to `path` for a link that was not followed.
    pub real_path: SandboxPath,
    /// Kind of the entry.
    pub kind: FileKind,
    /// Size in bytes; for a link the length of its text.
    pub size: u64,
    /// The 12 low mode bits: permissions, set-id and sticky.
    pub mode: u32,
    /// Numeric id of the owner, inside the sandbox.
    pub uid: Option<u32>,
    /// Numeric id of the group, inside the sandbox.
    pub gid: Option<u32>,
    /// Time of the last write in nanoseconds since the epoch, as exact as the backend has it.
    pub mtime_ns: Option<i128>,
    /// Target of a link that was not followed.
    pub link_target: Option<Vec<u8>>,
    /// Number of hard links; more than one may alias a file elsewhere.
    pub links: Option<u64>,
    /// Device and inode, when the backend reports them. They prove that the checked file and the file that was read are
    /// the same.
    pub identity: Option<(u64, u64)>,
}

/// One entry of a listing. Links are named, never followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Full path of the entry, beneath the directory that was listed.
    pub path: SandboxPath,
    /// Kind of the entry itself, links included.
    pub kind: FileKind,
    /// Size in bytes; for a link the length of its text.
    pub size: u64,
    /// The 12 low mode bits: permissions, set-id and sticky.
    pub mode: u32,
    /// Time of the last write in nanoseconds since the epoch.
    pub mtime_ns: Option<i128>,
    /// Target of a link, as it is written there.
    pub link_target: Option<Vec<u8>>,
}

/// The entries of a directory, perhaps cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The entries in the order of their paths.
    pub entries: Vec<Entry>,
    /// Whether there are more entries than the limit allowed.
    pub truncated: bool,
}

/// Capabilities of a sandbox incarnation. The holder of the handle requests it once and keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Home of the sandbox user.
    pub home: SandboxPath,
    /// The directory in which commands start and that relative paths mean.
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
    /// Milliseconds until the end of the sandbox; `None` for a sandbox without an end.
    pub life_ms: Option<u64>,
}

/// The mechanism that carries bytes between this host and a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// A descriptor on this host, without a copy over a wire.
    Direct,
    /// The archive API of a container engine.
    Archive,
    /// SFTP version 3, over a shared SSH connection.
    Sftp,
    /// The provider's own file calls.
    Files,
    /// Raw bytes over a command's stdin and stdout.
    ExecRaw,
    /// Base64 over a command, compressed when a sample says that it helps.
    ExecBase64,
}

impl Transport {
    /// The name in receipts and metrics, the same as serde writes.
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

    /// Whether a truncated or damaged stream is always noticed, in a sandbox that offers a [`FileState`]: bytes are
    /// counted against the announced size, and no decoder skips what it does not understand.
    pub const fn is_sound(self) -> bool {
        matches!(self, Self::Archive | Self::Sftp | Self::ExecRaw)
    }

    /// Whether bytes travel as text. A damaged character decodes to another byte, which only a digest detects.
    pub const fn is_text(self) -> bool {
        matches!(self, Self::ExecBase64)
    }
}

/// The integrity proof of a copy: the evidence that the bytes that arrived are those of the source, weakest first
/// (sandbox-transfer 12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Integrity {
    /// For a directory that was read: every file had the size that its archive announced. A file that was rewritten
    /// with the same size while the sandbox packed it can be a mixture of both contents.
    Sizes,
    /// No digest in the sandbox: size and times, and inode where it is reported, were the same before and after. For a
    /// written file: every byte was acknowledged and the size is right.
    SizeMtime,
    /// A checksum weaker than SHA-256 (POSIX `cksum`) and the size.
    Weak,
    /// SHA-256 computed once in the sandbox, beside the copy, equal to that of this host. For a file that was read: its
    /// size, times and inode were the same before and after. For a file that was written: the digest is of the bytes as
    /// they were written, and the size is right.
    Sha256Beside,
    /// SHA-256 in the sandbox after the transfer only: of large files, of written files, and of files whose digest
    /// beside the copy failed.
    Sha256After,
    /// SHA-256 in the sandbox before and after, equal to that of this host.
    Sha256,
}

impl Integrity {
    /// The name in receipts, the same as serde writes.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sizes => "sizes",
            Self::SizeMtime => "size_mtime",
            Self::Weak => "weak",
            Self::Sha256Beside => "sha256_beside",
            Self::Sha256After => "sha256_after",
            Self::Sha256 => "sha256",
        }
    }
}

/// Age in seconds from which the times of a file are trusted: a later write then changes them, even on a file system
/// that stores times in whole seconds.
const SETTLED_S: i64 = 2;
/// Nanoseconds in a second.
const SECOND_NS: i128 = 1_000_000_000;

/// The metadata witness of a regular file: data that changes whenever its content does, known without reading the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileState {
    /// Kind of the file; only regular files have states.
    pub kind: FileKind,
    /// Device and inode, which a replacement of the file changes.
    pub identity: (u64, u64),
    /// Size in bytes.
    pub size: u64,
    /// When the content was written last, in nanoseconds since the epoch, as exact as the sandbox reports it.
    pub modified_ns: i128,
    /// Seconds since the epoch when content or attributes changed last (`ctime`), which a process in a sandbox cannot
    /// set.
    pub changed_s: i64,
    /// The sandbox's own time when this was read, so that a wrong clock of the sandbox does not matter.
    pub now_s: i64,
    /// The whole text as the sandbox sent it, fractions of seconds included.
    pub text: String,
}

impl FileState {
    /// Whether every write from now on changes this state: both times are clearly past.
    pub fn is_settled(&self) -> bool {
        // A second write within one tick of the file system's clock would leave the same times behind.
        let since = self.now_s.saturating_sub(SETTLED_S);
        // Both are needed: a process can set `mtime` into the past, but not `ctime`.
        self.changed_s <= since && self.modified_ns <= i128::from(since) * SECOND_NS
    }

    /// Returns the text of [`crate::Sandbox::change_marker`] from the result of reading a state. `None` if the sandbox
    /// cannot report states.
    ///
    /// # Errors
    ///
    /// The errors of the reading, except [`ErrorKind::ToolMissing`].
    pub fn change_marker(read: Result<Self, Error>) -> Result<Option<String>, Error> {
        match read {
            Ok(state) => Ok(Some(state.text)),
            Err(error) if error.kind() == ErrorKind::ToolMissing => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the file stayed untouched between the two readings.
    pub fn is_same(&self, later: &Self) -> bool {
        // The text, not the fields: it holds fractions of seconds that the fields dropped.
        self.text == later.text
    }
}

/// Result of a digest command in the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fingerprint {
    /// SHA-256 and size in bytes.
    Sha256(Sha256Digest, u64),
    /// CRC of POSIX `cksum` and size in bytes, where no better program is installed.
    Cksum(u32, u64),
}
