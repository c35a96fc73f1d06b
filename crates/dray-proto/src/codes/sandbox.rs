//! Names of the codes of sandboxes, their backends and the programs that run in them.

use super::NamedCode;
use crate::v1::{BackendState, SandboxCommandStage, SandboxCommandState, SandboxEntryKind};

names!(SandboxCommandState {
    Exited => "exited",
    Signaled => "signaled",
    TimedOut => "timed_out",
    Cancelled => "cancelled",
    Failed => "failed",
});

names!(SandboxCommandStage {
    Refused => "refused",
    Started => "started",
    Ended => "ended",
});

names!(BackendState {
    Ready => "ready",
    Failed => "failed",
    Unverified => "unverified",
});

names!(SandboxEntryKind {
    File => "file",
    Directory => "dir",
    Symlink => "symlink",
    Fifo => "fifo",
    Socket => "socket",
    CharDevice => "chardev",
    BlockDevice => "blockdev",
    Other => "other",
});
