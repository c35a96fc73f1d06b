//! The one closed list of what can go wrong with a file in a sandbox on all backends (sandbox-transfer 1.3).

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use dray_types::UnreachableCause;

/// Kind of failure. A backend maps every failure to one of these and never adds its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The path or its parent is missing.
    NotFound,
    /// A directory where a file was expected.
    IsDirectory,
    /// Another kind of entry where a directory was expected.
    NotDirectory,
    /// FIFO, socket, device or pseudo file.
    NotRegular,
    /// The sandbox user may not read or write it.
    PermissionDenied,
    /// The root or the mount is read-only.
    ReadOnly,
    /// The resolved path leaves the permitted roots.
    OutsideRoot,
    /// Credential or system path, refused by policy.
    DeniedPath,
    /// The file or tree is over a configured limit; [`Error::numbers`] returns the size and the limit.
    TooLarge,
    /// Disk or quota of the sandbox or of the host is full.
    NoSpace,
    /// The destination exists and the policy is to fail.
    Exists,
    /// Symlink loop, or too many links.
    Loop,
    /// NUL, empty, `.`, `..`, over 255 bytes, or not representable on this wire.
    InvalidName,
    /// Size or digest differs before and after: another process changed the file between check and use (TOCTOU).
    ChangedDuringTransfer,
    /// Bytes arrived, but digest or length is wrong while the source is stable.
    Corrupted,
    /// The stream ended without an error before all bytes arrived.
    Truncated,
    /// A program that is needed is absent in the sandbox.
    ToolMissing,
    /// Deleted, expired, evicted, or replaced by another incarnation.
    SandboxGone,
    /// The sandbox exists, but is stopped.
    SandboxStopped,
    /// The sandbox exists, but is paused.
    SandboxPaused,
    /// The credential was refused, or the host key changed.
    Auth,
    /// Rate limited; [`Error::retry_after`] says for how long.
    RateLimited,
    /// Connect error, 5xx, channel dropped.
    Unavailable,
    /// No progress within the idle timeout, or the time limit of the whole request passed.
    Timeout,
    /// A response that the peer's protocol does not allow.
    Protocol,
}

/// The way in which a failed request may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryMode {
    /// Never: the same request fails the same way.
    Never,
    /// At most this many times, each after a back-off.
    BackOff(u32),
    /// Only over another transport.
    OtherTransport,
    /// Only after the handle was resolved again.
    Resolve,
}

impl ErrorKind {
    /// Every kind, in the order of the specification.
    pub const ALL: [Self; 25] = [
        Self::NotFound,
        Self::IsDirectory,
        Self::NotDirectory,
        Self::NotRegular,
        Self::PermissionDenied,
        Self::ReadOnly,
        Self::OutsideRoot,
        Self::DeniedPath,
        Self::TooLarge,
        Self::NoSpace,
        Self::Exists,
        Self::Loop,
        Self::InvalidName,
        Self::ChangedDuringTransfer,
        Self::Corrupted,
        Self::Truncated,
        Self::ToolMissing,
        Self::SandboxGone,
        Self::SandboxStopped,
        Self::SandboxPaused,
        Self::Auth,
        Self::RateLimited,
        Self::Unavailable,
        Self::Timeout,
        Self::Protocol,
    ];

    /// The name used on the wire, in receipts, logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::IsDirectory => "is_directory",
            Self::NotDirectory => "not_directory",
            Self::NotRegular => "not_regular",
            Self::PermissionDenied => "permission_denied",
            Self::ReadOnly => "read_only",
            Self::OutsideRoot => "outside_root",
            Self::DeniedPath => "denied_path",
            Self::TooLarge => "too_large",
            Self::NoSpace => "no_space",
            Self::Exists => "exists",
            Self::Loop => "loop",
            Self::InvalidName => "invalid_name",
            Self::ChangedDuringTransfer => "changed_during_transfer",
            Self::Corrupted => "corrupted",
            Self::Truncated => "truncated",
            Self::ToolMissing => "tool_missing",
            Self::SandboxGone => "sandbox_gone",
            Self::SandboxStopped => "sandbox_stopped",
            Self::SandboxPaused => "sandbox_paused",
            Self::Auth => "auth",
            Self::RateLimited => "rate_limited",
            Self::Unavailable => "unavailable",
            Self::Timeout => "timeout",
            Self::Protocol => "protocol",
        }
    }

    /// One sentence for an agent or a user. No path, address or token is ever part of it.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::NotFound => "The file does not exist in the sandbox.",
            Self::IsDirectory => "This is a directory, not a file.",
            Self::NotDirectory => "Part of this path is not a directory.",
            Self::NotRegular => "This is not a regular file.",
            Self::PermissionDenied => "The sandbox user may not access this path.",
            Self::ReadOnly => "This part of the sandbox is read-only.",
            Self::OutsideRoot => {
                "This path is outside the directories that files may come from or go to."
            }
            Self::DeniedPath => "This path may hold credentials or system data and is not allowed.",
            Self::TooLarge => "The file is larger than the limit.",
            Self::NoSpace => "The sandbox has no space left for the file.",
            Self::Exists => "A file of this name exists already.",
            Self::Loop => "The path leads through a loop of links.",
            Self::InvalidName => "This name cannot be used for a file here.",
            Self::ChangedDuringTransfer => "The file changed while it was being read.",
            Self::Corrupted => "The file arrived damaged.",
            Self::Truncated => "The file arrived incomplete.",
            Self::ToolMissing => "The sandbox lacks a program that this transfer needs.",
            Self::SandboxGone => "The sandbox no longer exists.",
            Self::SandboxStopped => "The sandbox is stopped.",
            Self::SandboxPaused => "The sandbox is paused.",
            Self::Auth => "The sandbox refused our credentials.",
            Self::RateLimited => "The sandbox provider asks to wait.",
            Self::Unavailable => "The sandbox cannot be reached right now.",
            Self::Timeout => "The transfer made no progress in time.",
            Self::Protocol => "The sandbox returned an invalid response.",
        }
    }

    /// The way in which the same request may be repeated (the column `retry` of sandbox-transfer 1.3).
    pub const fn retry_mode(self) -> RetryMode {
        match self {
            Self::ChangedDuringTransfer => RetryMode::BackOff(3),
            Self::Corrupted => RetryMode::BackOff(2),
            Self::Truncated | Self::RateLimited | Self::Unavailable | Self::Timeout => {
                RetryMode::BackOff(5)
            }
            Self::ToolMissing => RetryMode::OtherTransport,
            Self::SandboxGone | Self::SandboxStopped | Self::SandboxPaused => RetryMode::Resolve,
            Self::NotFound
            | Self::IsDirectory
            | Self::NotDirectory
            | Self::NotRegular
            | Self::PermissionDenied
            | Self::ReadOnly
            | Self::OutsideRoot
            | Self::DeniedPath
            | Self::TooLarge
            | Self::NoSpace
            | Self::Exists
            | Self::Loop
            | Self::InvalidName
            | Self::Auth
            | Self::Protocol => RetryMode::Never,
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A failure: its kind for programs and agents, its cause for the operator's log only.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    context: String,
    numbers: Option<(u64, u64)>,
    counts_entries: bool,
    retry_after: Option<Duration>,
    on_this_host: bool,
    works_in_root: bool,
    unreachable_cause: Option<UnreachableCause>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// A failure of this kind. `context` is for the operator's log; it may hold text from the sandbox.
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self {
            kind,
            context: context.into(),
            numbers: None,
            counts_entries: false,
            retry_after: None,
            on_this_host: false,
            works_in_root: false,
            unreachable_cause: None,
            source: None,
        }
    }

    /// Keeps the cause, for the chain in the operator's log.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// A file over a limit: bytes found and bytes allowed.
    pub fn too_large(found: u64, allowed: u64) -> Self {
        Self {
            numbers: Some((found, allowed)),
            ..Self::new(ErrorKind::TooLarge, "over the limit")
        }
    }

    /// A directory over a limit: entries found and entries allowed.
    pub fn too_many_entries(found: u64, allowed: u64) -> Self {
        Self {
            counts_entries: true,
            ..Self::too_large(found, allowed)
        }
    }

    /// Adds the delay after which the provider accepts requests again.
    #[must_use]
    pub const fn with_retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }

    /// Says that a file of this host failed, and not the sandbox.
    #[must_use]
    pub const fn of_this_host(mut self) -> Self {
        self.on_this_host = true;
        self
    }

    /// Adds that the working directory is `/`, so the paths in it are not permitted.
    #[must_use]
    pub const fn with_root_as_working_directory(mut self) -> Self {
        self.works_in_root = true;
        self
    }

    /// Adds why the sandbox cannot be reached, if that is known.
    #[must_use]
    pub const fn unreachable_because(mut self, cause: Option<UnreachableCause>) -> Self {
        self.unreachable_cause = cause;
        self
    }

    /// Why the sandbox cannot be reached, with [`ErrorKind::Unavailable`] and where the connection shows it.
    pub const fn unreachable_cause(&self) -> Option<UnreachableCause> {
        self.unreachable_cause
    }

    /// Whether a path was refused because the working directory is `/`.
    pub const fn works_in_root(&self) -> bool {
        self.works_in_root
    }

    /// Whether a file of this host failed, and not the sandbox.
    pub const fn is_of_this_host(&self) -> bool {
        self.on_this_host
    }

    /// The kind, on which callers branch.
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Describes the failure for the operator's log. Never for an agent, since it may hold paths and text from the
    /// sandbox.
    pub fn context(&self) -> &str {
        &self.context
    }

    /// The found and the allowed number, with [`ErrorKind::TooLarge`]: entries if [`Self::counts_entries`], otherwise
    /// bytes.
    pub const fn numbers(&self) -> Option<(u64, u64)> {
        self.numbers
    }

    /// Whether [`Self::numbers`] are entries of a directory.
    pub const fn counts_entries(&self) -> bool {
        self.counts_entries
    }

    /// Delay that the provider asked for.
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}

/// The form for the operator's log.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.context)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source
            .as_deref()
            .map(|source| source as &(dyn StdError + 'static))
    }
}
