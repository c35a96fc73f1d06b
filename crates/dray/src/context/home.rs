//! The directories of the user: home, and the state directory that is used where nothing sets one.

use std::path::PathBuf;

use dray_service::config::{ConfigSources, Environment};

use super::load_config;
use crate::outcome::CommandFailure;

/// Whether no source sets the state directory.
pub(super) fn is_default_state(sources: &ConfigSources) -> Result<bool, CommandFailure> {
    Ok(load_config(sources)?.is_default("state.directory"))
}

/// The home directory of the user, from `HOME`; `None` if it is not set.
pub(crate) fn home_directory() -> Option<PathBuf> {
    home_of(&Environment::from_process())
}

fn home_of(environment: &Environment) -> Option<PathBuf> {
    environment.get("HOME").map(PathBuf::from)
}

/// Puts the state directory into the user's home unless a source sets it.
pub(crate) fn with_home(sources: ConfigSources) -> Result<ConfigSources, CommandFailure> {
    let environment = &sources.environment;
    let home = environment
        // XDG Base Directory Specification: state that survives restarts, but is not a document of the user.
        .get("XDG_STATE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(home_of(environment)?.join(".local/state")));
    match home {
        // Only the default moves: a directory that was set anywhere stays as it is.
        Some(home) if is_default_state(&sources)? => {
            let directory = home.join("drayage");
            Ok(sources.set("state.directory", directory.to_string_lossy()))
        }
        _ => Ok(sources),
    }
}
