//! The check of the address of the sandbox for sessions without one.

use dray_service::config::ConfigProblem;

/// The problem of an address; `None` for a valid one. `is_shared` means that several people send requests.
pub(super) fn sandbox_problem(address: &str, is_shared: bool) -> Option<ConfigProblem> {
    let (kind, name) = address.split_once(':').unwrap_or(("", address));
    let mut letters = kind.bytes();
    let is_kind = letters.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let message = if kind.is_empty() || !is_kind || name.is_empty() {
        "must be KIND:NAME, such as docker:web or local:/srv/box"
    } else if kind == "local" && !name.starts_with('/') {
        "must have an absolute path, such as local:/srv/box"
    } else if is_shared && !address.contains("{session}") {
        "must have `{session}` in it: conversations of several people would share one sandbox"
    } else {
        return None;
    };
    Some(ConfigProblem::new("sandbox", message))
}
