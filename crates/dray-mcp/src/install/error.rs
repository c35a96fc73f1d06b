//! The reason why a configuration was not changed. Each message names the file and says that it is unchanged.

use std::io;
use std::path::PathBuf;

use super::client::{Client, InstallScope};

/// The reason why the configuration of a client was not changed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// No client has this name.
    #[error("`{0}` is not a client; the clients are {names}", names = client_names())]
    UnknownClient(String),
    /// The client has no file of this scope.
    #[error("{name} has no configuration of scope {scope}", name = client.display_name())]
    UnsupportedScope {
        /// The client that was named.
        client: Client,
        /// The scope that was named.
        scope: InstallScope,
    },
    /// A name, path, address or variable that cannot be written.
    #[error("{0}")]
    InvalidOption(String),
    /// A symbolic link leads to a file that does not exist, or to itself.
    #[error("cannot follow the link {path}; nothing was changed")]
    BrokenLink {
        /// The link.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The path exists, but is not a regular file.
    #[error("{0} is not a regular file; nothing was changed")]
    NotAFile(PathBuf),
    /// The file exceeds [`super::MAX_CONFIG_BYTES`].
    #[error("{0} is larger than 64 MiB; nothing was changed")]
    TooLarge(PathBuf),
    /// The file belongs to another user, and its owner cannot be kept.
    #[error("{0} belongs to another user; nothing was changed")]
    ForeignOwner(PathBuf),
    /// The file cannot be read.
    #[error("cannot read {path}; nothing was changed")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The file, or a directory for it, cannot be written.
    #[error("cannot write {path}; nothing was changed")]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The file is not valid in its format.
    #[error("cannot parse {path}: {problem}; nothing was changed")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The problem, with line and column if known.
        problem: String,
    },
    /// A different entry has the name.
    #[error(
        "{path} already has another entry `{name}`; nothing was changed. \
         Remove or replace that entry, or use another name"
    )]
    Occupied {
        /// The file.
        path: PathBuf,
        /// The name of the entry.
        name: String,
    },
    /// The entry to remove was not written by this command.
    #[error(
        "the entry `{name}` in {path} {description}, so this command did not write it; nothing was changed. \
         If it is not needed, delete it in the file"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The name of the entry.
        name: String,
        /// What the entry starts or connects to, without its arguments and other values.
        description: String,
    },
    /// The file cannot be edited without other changes.
    #[error(
        "cannot edit {path} safely: {reason}; nothing was changed. \
         Make the change by hand; the entry is:\n\n{snippet}"
    )]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The content that prevents the edit.
        reason: String,
        /// The entry in the format of the file.
        snippet: String,
    },
    /// Another program held the lock of the directory until the end of the wait.
    #[error(
        "{0} is locked by another program, which did not release it within 10 s; nothing was changed. \
         Try again when it has ended"
    )]
    Locked(PathBuf),
    /// Another program changed the file each time, between reading and writing.
    #[error("{0} was changed by another program in the meantime; its changes are kept. Try again")]
    ChangedConcurrently(PathBuf),
}

fn client_names() -> String {
    Client::ALL.map(Client::as_str).join(", ")
}
