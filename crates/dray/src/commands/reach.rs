//! Folders of this machine as sandboxes of one command.
//!
//! Services that run inside a command serve only the user who typed it, so a folder that is named may be reached
//! without being configured. Services of a running system have their own configuration and are not changed by this.

use std::path::PathBuf;

use dray_content::name;

use crate::cli::GlobalOptions;
use crate::outcome::CommandFailure;

/// What the address of a folder begins with.
const LOCAL_PREFIX: &str = "local:";

/// The folder that an address of this machine names, with its whole path.
fn local_directory(sandbox: &str) -> Option<PathBuf> {
    let named = sandbox
        .strip_prefix(LOCAL_PREFIX)
        .filter(|named| !named.is_empty())?;
    let folder = std::env::current_dir().ok()?.join(named);
    Some(folder.canonicalize().unwrap_or(folder))
}

/// Refuses what is not a sandbox address before anything is asked.
pub(crate) fn check_address(sandbox: &str) -> Result<(), CommandFailure> {
    let kind = sandbox
        .split_once(':')
        .and_then(|(kind, name)| (!name.is_empty()).then_some(kind));
    let is_word = |kind: &str| {
        let mut bytes = kind.bytes();
        !kind.is_empty() && bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    if kind.is_some_and(is_word) {
        return Ok(());
    }
    Err(CommandFailure::Usage(format!(
        "`{}` is no sandbox; write KIND:NAME, for example docker:web, ssh:me@host or local:/srv/box",
        name::shown_text(sandbox, 200)
    )))
}

/// The address with the whole path of its folder; any other address as it is.
pub(crate) fn absolute_address(sandbox: &str) -> String {
    let folder = local_directory(sandbox);
    let folder = folder.as_deref().and_then(|folder| folder.to_str());
    folder.map_or_else(
        || sandbox.to_owned(),
        |folder| format!("{LOCAL_PREFIX}{folder}"),
    )
}

/// The options of a command that names this sandbox. What `--set` says of local sandboxes has precedence.
pub(crate) fn allow_local_sandbox(global: &GlobalOptions, sandbox: &str) -> GlobalOptions {
    allowed_all(global, [sandbox])
}

/// The same for a command that names several.
pub(crate) fn allowed_all<'a>(
    global: &GlobalOptions,
    sandboxes: impl IntoIterator<Item = &'a str>,
) -> GlobalOptions {
    let mut global = global.clone();
    let folders = sandboxes.into_iter().filter_map(local_directory);
    let roots: Vec<_> = folders
        .map(|folder| folder.to_string_lossy().into_owned())
        .collect();
    if !roots.is_empty() {
        let roots = serde_json::json!(roots);
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
        let given = GlobalOptions {
            overrides: vec!["sandbox-transfer.local.roots=/other".to_owned()],
            ..GlobalOptions::default()
        };
        let allowed = allow_local_sandbox(&given, "local:/srv/a, b");
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
            absolute_address("local:box"),
            format!("local:{}", here.join("box").display())
        );
        let above = here.parent().unwrap().canonicalize().unwrap();
        assert_eq!(
            absolute_address("local:.."),
            format!("local:{}", above.display())
        );
        assert_eq!(absolute_address("local:/srv/box"), "local:/srv/box");
    }

    #[test]
    fn what_is_no_sandbox_is_refused_with_what_would_be_one() {
        for sandbox in ["docker:web", "ssh:me@host:22", "local:/srv/box"] {
            assert!(check_address(sandbox).is_ok(), "{sandbox}");
        }
        for sandbox in ["", "web", "docker:", ":web", "Docker:web", "/srv/box"] {
            let said = check_address(sandbox).unwrap_err().to_string();
            assert!(said.contains("write KIND:NAME"), "{said}");
        }
    }

    #[test]
    fn other_sandboxes_are_left_alone() {
        for sandbox in ["docker:web", "ssh:me@host", "local:", "nonsense"] {
            assert_eq!(absolute_address(sandbox), sandbox);
            assert!(
                allow_local_sandbox(&GlobalOptions::default(), sandbox)
                    .overrides
                    .is_empty()
            );
        }
    }
}
