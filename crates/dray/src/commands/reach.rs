//! Folders of this machine as sandboxes of one command.
//!
//! Services that run inside a command serve nobody but whoever typed it, so a folder that is named may be reached
//! without being configured. Services of a running system have their own configuration and are not changed by this.

use std::path::PathBuf;

use crate::cli::Global;

/// What the address of a folder begins with.
const LOCAL: &str = "local:";

/// The folder that an address of this machine names, with its whole path.
fn folder(sandbox: &str) -> Option<PathBuf> {
    let named = sandbox
        .strip_prefix(LOCAL)
        .filter(|named| !named.is_empty())?;
    Some(std::env::current_dir().ok()?.join(named))
}

/// The address with the whole path of its folder; any other address as it is.
pub(crate) fn absolute(sandbox: &str) -> String {
    let folder = folder(sandbox);
    let folder = folder.as_deref().and_then(|folder| folder.to_str());
    folder.map_or_else(|| sandbox.to_owned(), |folder| format!("{LOCAL}{folder}"))
}

/// The options of a command that names this sandbox. What `--set` says of local sandboxes has precedence.
pub(crate) fn allowed(global: &Global, sandbox: &str) -> Global {
    let mut global = global.clone();
    if let Some(folder) = folder(sandbox) {
        let roots = serde_json::json!([folder.to_string_lossy()]);
        let root = format!("sandbox-transfer.local.roots={roots}");
        global.overrides.insert(0, root);
    }
    global
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_named_may_be_reached_and_what_is_set_wins() {
        let given = Global {
            overrides: vec!["sandbox-transfer.local.roots=/other".to_owned()],
            ..Global::default()
        };
        let allowed = allowed(&given, "local:/srv/a, b");
        assert_eq!(
            allowed.overrides,
            [
                "sandbox-transfer.local.roots=[\"/srv/a, b\"]",
                "sandbox-transfer.local.roots=/other"
            ]
        );
    }

    #[test]
    fn a_relative_folder_begins_where_the_command_was_typed() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(
            absolute("local:box"),
            format!("local:{}", here.join("box").display())
        );
        assert_eq!(absolute("local:/srv/box"), "local:/srv/box");
    }

    #[test]
    fn other_sandboxes_are_left_alone() {
        for sandbox in ["docker:web", "ssh:me@host", "local:", "nonsense"] {
            assert_eq!(absolute(sandbox), sandbox);
            assert!(allowed(&Global::default(), sandbox).overrides.is_empty());
        }
    }
}
