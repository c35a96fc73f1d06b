//! Directories of a listing that may have more in them than the listing says.

use std::collections::HashSet;

use dray_sandbox::backend::Sandbox;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::Entry;
use dray_sandbox::path::SandboxPath;

use super::SkipReason;

/// The directories of a listing in which it has entries.
#[derive(Debug)]
pub struct ListedParents(HashSet<SandboxPath>);

impl ListedParents {
    /// Takes the entries of a listing that reaches down to all levels.
    pub fn new(entries: &[Entry]) -> Self {
        Self(entries.iter().map(|entry| entry.path.parent()).collect())
    }

    /// Whether the entries of a listed directory are missing because it cannot be read. A listing shows such a
    /// directory like an empty one, so a directory without entries is listed once more, alone.
    ///
    /// # Errors
    ///
    /// Failures of the sandbox that are not about this directory.
    pub async fn is_unreadable(
        &self,
        sandbox: &dyn Sandbox,
        directory: &SandboxPath,
    ) -> Result<bool, Error> {
        if self.0.contains(directory) {
            return Ok(false);
        }
        match sandbox.list(directory, 1, 1).await {
            Ok(_) => Ok(false),
            // Its parent was listed without a command, which does not see what lies behind a mount.
            Err(error) if needs_commands(error.kind()) => Ok(true),
            Err(error) => skip_reason(error).map(|_| true),
        }
    }
}

const fn needs_commands(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ToolMissing | ErrorKind::SandboxStopped | ErrorKind::SandboxPaused
    )
}

/// The reason for which one entry is skipped after a failure that concerns it alone. Other failures are returned.
pub(super) fn skip_reason(error: Error) -> Result<SkipReason, Error> {
    match error.kind() {
        ErrorKind::DeniedPath | ErrorKind::OutsideRoot => Ok(SkipReason::Denied),
        ErrorKind::NotFound
        | ErrorKind::IsDirectory
        | ErrorKind::NotDirectory
        | ErrorKind::NotRegular
        | ErrorKind::PermissionDenied
        | ErrorKind::Loop
        | ErrorKind::InvalidName
        | ErrorKind::ChangedDuringTransfer => Ok(SkipReason::Unreadable),
        _ => Err(error),
    }
}
