//! The directories of the user: home, and the state directory that is used where nothing sets one.

use std::ffi::OsStr;
use std::path::PathBuf;

use dray_service::config::{ConfigSources, Environment};

use super::load_config;
use crate::outcome::CommandFailure;

/// Whether no source sets the state directory.
pub(super) fn is_default_state(sources: &ConfigSources) -> Result<bool, CommandFailure> {
    Ok(load_config(sources)?.is_default("state.directory"))
}

/// The home directory of the user, from `HOME`; `None` if it is not set to an absolute path.
pub(crate) fn home_directory() -> Option<PathBuf> {
    directory_in(&Environment::from_process(), "HOME")
}

/// A directory that a variable of the environment names. An empty or relative path counts as unset, as the XDG Base Directory
/// Specification requires: its place would depend on the working directory.
pub(crate) fn named_directory(value: &OsStr) -> Option<PathBuf> {
    let directory = PathBuf::from(value);
    directory.is_absolute().then_some(directory)
}

fn directory_in(environment: &Environment, variable: &str) -> Option<PathBuf> {
    named_directory(environment.get(variable)?.as_ref())
}

/// The directory for state that survives restarts, but is not a document of the user (XDG Base Directory Specification).
fn state_home(environment: &Environment) -> Option<PathBuf> {
    directory_in(environment, "XDG_STATE_HOME")
        .or_else(|| Some(directory_in(environment, "HOME")?.join(".local/state")))
}

/// Puts the state directory into the user's home unless a source sets it.
pub(crate) fn with_home(sources: ConfigSources) -> Result<ConfigSources, CommandFailure> {
    match state_home(&sources.environment) {
        // Only the default moves: a directory that was set anywhere stays as it is.
        Some(home) if is_default_state(&sources)? => {
            let directory = home.join("drayage");
            Ok(sources.set("state.directory", directory.to_string_lossy()))
        }
        _ => Ok(sources),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn empty_and_relative_directories_count_as_unset() {
        for (variables, expected) in [
            (vec![], None),
            (vec![("HOME", "/home/a")], Some("/home/a/.local/state")),
            (vec![("HOME", "")], None),
            (vec![("HOME", "home/a")], None),
            (vec![("XDG_STATE_HOME", "/state")], Some("/state")),
            (
                vec![("XDG_STATE_HOME", "/state"), ("HOME", "/home/a")],
                Some("/state"),
            ),
            (
                vec![("XDG_STATE_HOME", ""), ("HOME", "/home/a")],
                Some("/home/a/.local/state"),
            ),
            (
                vec![("XDG_STATE_HOME", "state"), ("HOME", "/home/a")],
                Some("/home/a/.local/state"),
            ),
            (vec![("XDG_STATE_HOME", "./state"), ("HOME", ".")], None),
        ] {
            let environment: Environment = variables.iter().copied().collect();
            let found = state_home(&environment);
            assert_eq!(found.as_deref(), expected.map(Path::new), "{variables:?}");
        }
    }
}
