//! Writes the entry of this server into the configuration of a client, or removes it.
//!
//! - [`install`] does both, for one [`Client`]. Everything that it needs from the environment is in [`InstallOptions`].
//! - Other entries, comments, order, permissions and line breaks of the file are kept. A file that cannot be parsed, or
//!   cannot be edited without another change, is refused and not changed; the error contains the entry to paste.
//! - A file is replaced by a rename, so a client never reads a part of it. When another program changes the file while
//!   it is edited, the edit starts again with the new content. Concurrent calls wait for each other.
//!
//! ```
//! use std::collections::BTreeMap;
//! use dray_mcp::install::{
//!     Client, ClientDirectories, InstallAction, InstallOptions, OperatingSystem, ServerLaunch, install,
//! };
//!
//! let home = tempfile::tempdir()?;
//! let options = InstallOptions {
//!     client: Client::Cursor,
//!     scope: None,
//!     name: "drayage".to_owned(),
//!     server: ServerLaunch::Stdio {
//!         command: "/usr/local/bin/dray".to_owned(),
//!         args: vec!["mcp".to_owned()],
//!         env: BTreeMap::new(),
//!     },
//!     action: InstallAction::Install { replace: false },
//!     print_only: false,
//!     file: None,
//!     directories: ClientDirectories {
//!         home: home.path().to_owned(),
//!         current: home.path().to_owned(),
//!         config_home: None,
//!         app_data: None,
//!         system: OperatingSystem::Linux,
//!     },
//! };
//! let report = install(&options)?;
//! assert!(report.written && report.path.ends_with(".cursor/mcp.json"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! It neither starts a client nor checks whether one is installed.

pub mod bundle;
mod client;
mod edit;
mod entry;
mod error;
mod file;
mod json;
mod lock;
mod ownership;
pub mod registry;
mod report;
mod toml;
mod yaml;

use std::path::{Path, PathBuf};

use serde_json::Value;

pub use self::client::{Client, ClientDirectories, InstallScope, OperatingSystem};
pub use self::entry::ServerLaunch;
pub use self::error::InstallError;
pub use self::file::MAX_CONFIG_BYTES;
pub use self::report::{FileChange, InstallReport};

use self::edit::{EditError, EditResult, EntryChange};
use self::file::{ConfigFile, WriteOutcome};
use self::lock::{ConfigLock, LOCK_TIMEOUT};

/// The name of the entry that the command line writes.
pub const DEFAULT_NAME: &str = "drayage";

/// One sentence about the server. The MCP registry accepts at most 100 characters.
pub const SERVER_DESCRIPTION: &str = "Moves files between agents, sandboxes, the web and chats without passing them through the model";

/// How often an edit starts again when another program changes the file.
const MAX_ATTEMPTS: usize = 3;

/// The action on the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstallAction {
    /// Writes the entry.
    Install {
        /// Whether an entry of the same name with other values is overwritten. Without this it is an error.
        replace: bool,
    },
    /// Removes the entry of this name, and tables without other content, if this command could have written it. A file
    /// that is empty afterwards is deleted, unless it is reached through a symbolic link.
    Remove,
}

/// One change of one configuration.
#[derive(Clone, Debug)]
pub struct InstallOptions {
    /// The client whose configuration changes.
    pub client: Client,
    /// The scope; `None` uses [`Client::default_scope`].
    pub scope: Option<InstallScope>,
    /// The name of the entry: up to 32 of `a-z`, `0-9`, `-` and `_`. Clients show it before the names of tools.
    pub name: String,
    /// How the client reaches the server. When the entry is removed, an entry that starts this program or has this
    /// address counts as written by this command, in addition to those that [`InstallAction::Remove`] recognizes.
    pub server: ServerLaunch,
    /// The change of the entry.
    pub action: InstallAction,
    /// Reports what would happen, and writes nothing.
    pub print_only: bool,
    /// The file, where it is not the client's default: other profiles, `CODEX_HOME`, `CLAUDE_CONFIG_DIR`. A relative
    /// path begins at the current directory.
    pub file: Option<PathBuf>,
    /// The directories from which the default is found.
    pub directories: ClientDirectories,
}

/// Writes or removes the entry of one client.
///
/// # Errors
///
/// After every [`InstallError`] the file is unchanged.
pub fn install(options: &InstallOptions) -> Result<InstallReport, InstallError> {
    entry::validate_name(&options.name)?;
    if options.action != InstallAction::Remove {
        options.server.validate(options.client)?;
    }
    let scope = options.scope.unwrap_or(options.client.default_scope());
    let path = match &options.file {
        Some(file) => options.directories.current.join(file),
        None => options.client.config_path(scope, &options.directories)?,
    };
    let entry = options.server.to_entry(options.client, &options.name);
    let _lock = if options.print_only {
        None
    } else {
        Some(lock_config(&path, options.action)?)
    };
    for _ in 0..MAX_ATTEMPTS {
        let attempt = InstallAttempt {
            options,
            scope,
            path: &path,
            entry: &entry,
            file: ConfigFile::read(&path)?,
        };
        if let Some(report) = attempt.run()? {
            return Ok(report);
        }
    }
    Err(InstallError::ChangedConcurrently(path))
}

/// Waits for other commands that change the same configuration.
fn lock_config(path: &Path, action: InstallAction) -> Result<ConfigLock, InstallError> {
    let target = file::resolve_target(path)?;
    if action != InstallAction::Remove {
        // The directory is created before the lock, so that the first commands of a new directory wait for each other
        // too.
        file::create_parent(&target)?;
    }
    ConfigLock::acquire(&target, LOCK_TIMEOUT)
}

/// One pass over the file as it was read.
struct InstallAttempt<'a> {
    options: &'a InstallOptions,
    scope: InstallScope,
    path: &'a Path,
    entry: &'a Value,
    file: ConfigFile,
}

impl InstallAttempt<'_> {
    /// Edits the file. `None` when another program changed the file in the meantime.
    fn run(&self) -> Result<Option<InstallReport>, InstallError> {
        let client = self.options.client;
        let format = client.format();
        let content = self.file.content.as_deref();
        let text = content.unwrap_or_else(|| client.new_file_text());
        let values =
            edit::parse_config(format, text).map_err(|error| self.edit_error(error, &[]))?;
        let keys = self.entry_path(&values);
        if self.options.action == InstallAction::Remove {
            self.check_ownership(edit::lookup_value(&values, &keys))?;
        }
        let change = match self.options.action {
            InstallAction::Install { replace } => EntryChange::Set {
                value: self.entry,
                replace,
            },
            InstallAction::Remove => EntryChange::Remove,
        };
        let result = edit::apply_change(format, text, &keys, change)
            .map_err(|error| self.edit_error(error, &keys))?;
        let outcome = match &result {
            EditResult::Unchanged => WriteOutcome::Done,
            _ if self.options.print_only => WriteOutcome::Done,
            EditResult::Emptied(_) if !self.file.is_link => self.file.delete()?,
            EditResult::Added(text)
            | EditResult::Replaced(text)
            | EditResult::Removed(text)
            | EditResult::Emptied(text) => self.file.replace(text, self.scope)?,
        };
        match outcome {
            WriteOutcome::Done => Ok(Some(self.report(&result, &keys))),
            WriteOutcome::Changed => Ok(None),
        }
    }

    /// Refuses the removal of an entry that was not installed.
    fn check_ownership(&self, entry: Option<&Value>) -> Result<(), InstallError> {
        let InstallOptions {
            client,
            name,
            server,
            ..
        } = self.options;
        match entry {
            Some(entry) if !ownership::is_installed_entry(*client, name, entry, server) => {
                Err(InstallError::Foreign {
                    path: self.file.target.clone(),
                    name: name.clone(),
                    description: ownership::describe_entry(*client, entry),
                })
            }
            _ => Ok(()),
        }
    }

    /// The keys from the root to the entry.
    fn entry_path(&self, values: &Value) -> Vec<&str> {
        let client = self.options.client;
        let mut keys = vec![client.servers_key()];
        if client == Client::OpenCode && has_nested_servers(values) {
            keys.push("servers");
        }
        keys.push(&self.options.name);
        keys
    }

    fn report(&self, result: &EditResult, keys: &[&str]) -> InstallReport {
        let change = match result {
            EditResult::Unchanged if self.options.action == InstallAction::Remove => {
                FileChange::Absent
            }
            EditResult::Unchanged => FileChange::Unchanged,
            EditResult::Added(_) if self.file.content.is_none() => FileChange::Created,
            EditResult::Added(_) => FileChange::Added,
            EditResult::Replaced(_) => FileChange::Replaced,
            EditResult::Emptied(_) if !self.file.is_link => FileChange::Deleted,
            EditResult::Removed(_) | EditResult::Emptied(_) => FileChange::Removed,
        };
        let is_change = !matches!(change, FileChange::Unchanged | FileChange::Absent);
        let written = is_change && !self.options.print_only;
        let is_install = self.options.action != InstallAction::Remove;
        let next_step = self.options.client.next_step(self.scope);
        InstallReport {
            client: self.options.client,
            scope: self.scope,
            name: self.options.name.clone(),
            path: self.path.to_owned(),
            target: self.file.target.clone(),
            change,
            written,
            snippet: self.snippet(keys),
            next_step: (written && is_install).then_some(next_step),
        }
    }

    /// Only the entry, in the format of the file.
    fn snippet(&self, keys: &[&str]) -> String {
        let format = self.options.client.format();
        edit::render_entry(format, keys, self.entry).unwrap_or_default()
    }

    fn edit_error(&self, error: EditError, keys: &[&str]) -> InstallError {
        let path = self.file.target.clone();
        match error {
            EditError::Syntax(problem) => InstallError::Syntax { path, problem },
            EditError::Occupied => InstallError::Occupied {
                path,
                name: self.options.name.clone(),
            },
            EditError::Unsupported(reason) => InstallError::Unsupported {
                path,
                reason,
                snippet: self.snippet(keys),
            },
        }
    }
}

/// Whether a configuration of opencode has the layout of version 2, with servers below `mcp.servers`. A server of
/// version 1 that is called `servers` has other fields.
fn has_nested_servers(values: &Value) -> bool {
    let servers = edit::lookup_value(values, &["mcp", "servers"]);
    servers.and_then(Value::as_object).is_some_and(|servers| {
        let is_field = |key: &str| servers.get(key).is_some_and(|value| !value.is_object());
        !["type", "command", "url", "enabled"]
            .into_iter()
            .any(is_field)
    })
}
