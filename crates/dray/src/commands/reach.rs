//! Directories of this machine as sandboxes of one command.
//!
//! Services that run inside a command serve only the user who typed it, so a directory on the command line may be used
//! without being configured. Services of a running system have their own configuration, which this does not change.

use std::path::PathBuf;

use dray_presentation::name;

use crate::cli::GlobalOptions;
use crate::outcome::CommandFailure;

/// Prefix of the address of a directory.
pub(super) const LOCAL_PREFIX: &str = "local:";

/// The absolute path in a local address; `None` for other addresses.
fn local_directory(sandbox: &str) -> Option<PathBuf> {
    let named = sandbox
        .strip_prefix(LOCAL_PREFIX)
        .filter(|named| !named.is_empty())?;
    let directory = std::env::current_dir().ok()?.join(named);
    // A missing directory keeps its path: the service reports it.
    Some(directory.canonicalize().unwrap_or(directory))
}

/// Refuses anything that is not a sandbox address before a service is called.
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
        "`{}` is not a sandbox address; write KIND:NAME, for example docker:web, ssh:me@host or local:/srv/box",
        name::shown_text(sandbox, 200)
    )))
}

/// The address with the absolute path of its directory; any other address unchanged.
pub(crate) fn absolute_address(sandbox: &str) -> String {
    let directory = local_directory(sandbox);
    let directory = directory
        .as_deref()
        .and_then(|directory| directory.to_str());
    directory.map_or_else(
        || sandbox.to_owned(),
        |directory| format!("{LOCAL_PREFIX}{directory}"),
    )
}

/// The options of a command that names this sandbox. `--set` for local sandboxes has precedence.
pub(crate) fn allow_local_sandbox(global: &GlobalOptions, sandbox: &str) -> GlobalOptions {
    allow_local_sandboxes(global, [sandbox])
}

/// Like [`allow_local_sandbox`], for a command that names several.
pub(crate) fn allow_local_sandboxes<'a>(
    global: &GlobalOptions,
    sandboxes: impl IntoIterator<Item = &'a str>,
) -> GlobalOptions {
    let mut global = global.clone();
    let directories = sandboxes.into_iter().filter_map(local_directory);
    let roots: Vec<_> = directories
        .map(|directory| directory.to_string_lossy().into_owned())
        .collect();
    if !roots.is_empty() {
        let roots = serde_json::json!(roots);
        let root = format!("sandbox-transfer.local.roots={roots}");
        // The override is inserted first, so that a later `--set` of the user overrides it.
        global.overrides.insert(0, root);
    }
    global
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_directory_becomes_reachable_and_settings_win() {
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
    fn a_relative_directory_begins_at_the_working_directory() {
        let current_directory = std::env::current_dir().unwrap();
        assert_eq!(
            absolute_address("local:box"),
            format!("local:{}", current_directory.join("box").display())
        );
        let above = current_directory.parent().unwrap().canonicalize().unwrap();
        assert_eq!(
            absolute_address("local:.."),
            format!("local:{}", above.display())
        );
        assert_eq!(absolute_address("local:/srv/box"), "local:/srv/box");
    }

    #[test]
    fn an_invalid_sandbox_is_refused_with_an_example() {
        for sandbox in ["docker:web", "ssh:me@host:22", "local:/srv/box"] {
            assert!(check_address(sandbox).is_ok(), "{sandbox}");
        }
        for sandbox in ["", "web", "docker:", ":web", "Docker:web", "/srv/box"] {
            let message = check_address(sandbox).unwrap_err().to_string();
            assert!(message.contains("write KIND:NAME"), "{message}");
        }
    }

    #[test]
    fn other_sandboxes_are_not_changed() {
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
