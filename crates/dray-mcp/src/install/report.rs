//! The report of a change: what was written, and where.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use super::client::{Client, InstallScope};

/// The change of the file, which was made or would be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileChange {
    /// The file did not exist.
    Created,
    /// The entry was added to the file.
    Added,
    /// An entry of the same name was overwritten.
    Replaced,
    /// The file already had this entry.
    Unchanged,
    /// The entry was removed, and the rest was kept.
    Removed,
    /// The file had no other content and was deleted.
    Deleted,
    /// The file, or the entry to remove, does not exist.
    Absent,
}

/// The outcome for one client. It is printed as sentences, or serialized for scripts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InstallReport {
    /// The client whose configuration was read or written.
    pub client: Client,
    /// The scope of the file.
    pub scope: InstallScope,
    /// The name of the entry.
    pub name: String,
    /// The file as the client opens it.
    pub path: PathBuf,
    /// The file behind symbolic links.
    pub target: PathBuf,
    /// The change that was made, or would be made.
    pub change: FileChange,
    /// Whether anything was written.
    pub written: bool,
    /// The entry in the format of the file, complete with the keys above it.
    pub snippet: String,
    /// The next step of the user, so that the client uses a new entry; `None` if no entry was written.
    pub next_step: Option<&'static str>,
}

impl fmt::Display for InstallReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        let path = self.path.display();
        let verb = |done: &'static str, planned: &'static str| {
            if self.written { done } else { planned }
        };
        match self.change {
            FileChange::Created => {
                let verb = verb("created", "would create");
                write!(formatter, "{verb} {path} with the entry `{name}`")
            }
            FileChange::Added => {
                let verb = verb("added", "would add");
                write!(formatter, "{verb} the entry `{name}` to {path}")
            }
            FileChange::Replaced => {
                let verb = verb("replaced", "would replace");
                write!(formatter, "{verb} the entry `{name}` in {path}")
            }
            FileChange::Removed => {
                let verb = verb("removed", "would remove");
                write!(formatter, "{verb} the entry `{name}` from {path}")
            }
            FileChange::Deleted => {
                let verb = verb("deleted", "would delete");
                write!(
                    formatter,
                    "{verb} {path}, because it has only the entry `{name}`"
                )
            }
            FileChange::Unchanged => write!(formatter, "{path} already has the entry `{name}`"),
            FileChange::Absent => write!(formatter, "{path} has no entry `{name}`"),
        }?;
        if self.target != self.path {
            write!(formatter, " (a link to {})", self.target.display())?;
        }
        match self.next_step {
            Some(next_step) => write!(formatter, "\n{next_step}"),
            None => Ok(()),
        }
    }
}
