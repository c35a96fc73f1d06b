//! Options that callers of transfers set.

use std::path::PathBuf;
use std::time::Duration;

use crate::policy::Policy;
use crate::spool::SpoolUsage;

/// Options of an engine, for all kinds of transfers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Longest time without a byte before a stream counts as broken. Default 30 s.
    pub idle: Duration,
    /// Longest time for a response that is not a stream, such as `stat`. Default 60 s.
    pub response_timeout: Duration,
    /// First pause before a retry. The pause doubles each time, up to 30 s, and the actual wait is random between
    /// zero and the pause. Default 1 s.
    pub backoff: Duration,
    /// Longest delay before a retry that a provider may ask for. A longer one ends the transfer with that failure, so
    /// that its caller can wait. Default 10 minutes.
    pub max_provider_delay: Duration,
    /// Files of up to this many bytes are always digested in the sandbox. Larger files are digested, too, unless the
    /// sandbox can report their state without reading them ([`dray_sandbox::Sandbox::state`]) and the transport detects
    /// all damage; the receipt then says `size_mtime`. Default `u64::MAX`: a digest always.
    pub digest_always_up_to: u64,
    /// Files of up to this many bytes are digested in the sandbox before they are read as well as after. Default 1 GiB
    /// (sandbox-transfer 12).
    pub digest_before_up_to: u64,
    /// Files of more bytes than this are digested once, beside the copy, with their state compared before and after;
    /// the receipt then says `sha256_beside`. This holds only for files that have not been written for a while
    /// according to the sandbox ([`dray_sandbox::Sandbox::state`]). Smaller ones are digested twice, which costs less
    /// than the two states. Default 1 MiB.
    pub digest_twice_up_to: u64,
    /// Whether the first of two digests is computed while the copy runs, which costs no extra time. The digest after
    /// the copy proves the bytes in any case. Default true.
    pub digest_while_reading: bool,
    /// Existing directory for streams that must be drained to disk. Files there have no name. Default `/tmp`.
    pub spool_dir: PathBuf,
    /// Most bytes in the spool directory, of all transfers that share `spool_usage`. Default 16 GiB.
    pub spool_limit: u64,
    /// What transfers have in the spool directory now. Engines with clones of these options share it. Default: no other
    /// engine does.
    pub spool_usage: SpoolUsage,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(30),
            response_timeout: Duration::from_mins(1),
            backoff: Duration::from_secs(1),
            max_provider_delay: Duration::from_mins(10),
            digest_always_up_to: u64::MAX,
            digest_before_up_to: 1 << 30,
            digest_twice_up_to: 1 << 20,
            digest_while_reading: true,
            spool_dir: PathBuf::from("/tmp"),
            spool_limit: 16 << 30,
            spool_usage: SpoolUsage::default(),
        }
    }
}

/// Options of a copy out of a sandbox.
#[derive(Clone, Copy, Debug)]
pub struct GetOptions<'a> {
    /// Paths that may be read.
    pub policy: &'a Policy,
    /// Largest file that may be read, in bytes.
    pub max_bytes: u64,
}

/// Options of a copy into a sandbox.
#[derive(Clone, Copy, Debug)]
pub struct PutOptions<'a> {
    /// Paths that may be written.
    pub policy: &'a Policy,
    /// Behaviour when another file has the name.
    pub collision: Collision,
    /// Mode bits; set-id and sticky are never set. Usually 0o644.
    pub mode: u32,
    /// Part of the names of temporary files, so that no two operations share one: ASCII letters and digits, at most 40.
    pub operation: &'a str,
    /// Number of the worker on the operation, so that a late predecessor never writes the temporary file of its
    /// successor. The put removes the temporary files of the last few predecessors. From 2^32 on, the number is a time
    /// in milliseconds, which has no predecessors.
    pub epoch: u64,
}

/// Policy for a name that is taken. The same content under that name does not count as a collision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Collision {
    /// The file gets another name: `report_2.csv`, `report_3.csv`, …
    #[default]
    Rename,
    /// The put fails with [`ErrorKind::Exists`](dray_sandbox::ErrorKind::Exists).
    Fail,
    /// The other file is replaced.
    Overwrite,
}

impl Collision {
    /// The name used on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rename => "rename",
            Self::Fail => "fail",
            Self::Overwrite => "overwrite",
        }
    }
}

/// Options of a listing of a directory.
#[derive(Clone, Copy, Debug)]
pub struct ListOptions<'a> {
    /// Directories that may be listed, and the entries that are shown.
    pub policy: &'a Policy,
    /// Levels to list; 1 is the directory itself.
    pub depth: u32,
    /// Largest number of entries.
    pub limit: usize,
}
