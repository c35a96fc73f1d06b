//! Manifests of agents: the usual one of tests, and the directory from which an orchestrator reads them.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// An agent whose model `lead` has these tool sets and a short system prompt. Without the timestamps of messages, so
/// that a test can compare requests with a fixed text.
pub fn agent_manifest(tool_sets: &Value) -> Value {
    json!({
        "orchestrator": {
            "deployment": {"deployment_id": "lead"},
            "system_prompt": {"type": "custom", "content": "You help."},
        },
        "contexts": [],
        "tool_sets": tool_sets,
        "features": {"timestamp": null},
    })
}

/// Creates the directory `manifests` in `parent` with one file for each agent, and returns its path, the value of
/// `orchestrator.manifests`.
///
/// # Errors
/// The directory exists already or a file cannot be written.
pub fn write_manifests(parent: &Path, agents: &[(&str, &Value)]) -> io::Result<PathBuf> {
    let directory = parent.join("manifests");
    std::fs::create_dir(&directory)?;
    for (name, manifest) in agents {
        std::fs::write(directory.join(format!("{name}.json")), manifest.to_string())?;
    }
    Ok(directory)
}
