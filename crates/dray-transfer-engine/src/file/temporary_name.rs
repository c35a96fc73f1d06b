//! The temporary name of a file of this host.

use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempPath;

/// The temporary name of content that is not proved yet.
pub(super) enum TemporaryName {
    /// The name is removed when the sink is dropped.
    Dropped(TempPath),
    /// The name stays when the transfer is interrupted.
    Kept(PathBuf),
    /// The file has no name, and gets none.
    Unnamed,
}

impl TemporaryName {
    /// Gives the final name; a file that has it is replaced.
    pub(super) fn persist(self, target: &Path) -> io::Result<()> {
        match self {
            Self::Dropped(path) => path.persist(target).map_err(|error| error.error),
            Self::Kept(path) => std::fs::rename(path, target),
            Self::Unnamed => Ok(()),
        }
    }

    /// Gives the final name, unless it is taken.
    pub(super) fn persist_new(self, target: &Path) -> io::Result<()> {
        match self {
            Self::Dropped(path) => path.persist_noclobber(target).map_err(|error| error.error),
            Self::Kept(path) => {
                // A link fails when the target exists; a rename would replace it.
                let linked = std::fs::hard_link(&path, target);
                std::fs::remove_file(path)?;
                linked
            }
            Self::Unnamed => Ok(()),
        }
    }
}
