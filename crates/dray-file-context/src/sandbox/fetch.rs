//! `sandbox_fetch_user_file` (14). Every outcome is a text, never an exception.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::path;
use crate::catalog::FileCatalog;
use crate::generation::ContractGeneration;
use crate::limits;
use crate::model::AgentInputFile;

/// Name of the tool, as models call it.
pub const FETCH_TOOL: &str = "sandbox_fetch_user_file";

const TOOL_DESCRIPTION: &str = "Download a user-uploaded file (document or image) from the conversation and write it as a binary file into the sandbox filesystem. Use this when a skill script needs to process a raw file. Workflow: call this tool first to place the file at target_path (relative to workspace), then run skill scripts that read from that path.";

/// The description of the tool for a model. The first argument keeps its old name although it is an id now.
pub fn fetch_schema(generation: ContractGeneration) -> Value {
    let index = if generation == ContractGeneration::G0 {
        "File index from available_files (e.g. \"1\")"
    } else {
        "File id from # Input Files"
    };
    json!({"type": "function", "function": {"name": FETCH_TOOL, "description": TOOL_DESCRIPTION, "parameters": {
        "type": "object",
        "properties": {
            "file_index": {"type": "string", "description": index},
            "target_path": {"type": "string", "description": "Relative path from workspace root (e.g. \"uploads/document.pdf\"). Must not start with \"/\" or contain \"..\"."}
        },
        "required": ["file_index", "target_path"]
    }}})
}

/// Lines for the system prompt beside the tool (G1).
pub fn prompt_lines(directory: &str) -> Vec<String> {
    let directory = directory.trim_end_matches('/');
    vec![
        format!("Workspace root: {directory}"),
        "Sandbox tools are available for running commands and for reading and writing files in the workspace.".to_owned(),
        format!("If the conversation includes # Input Files, use {FETCH_TOOL} to copy files into the workspace by file id."),
        "Always use a target path relative to the workspace root.".to_owned(),
        format!("Files are placed at: {directory}/<target_path>"),
    ]
}

/// A download and a write that were checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FetchPlan {
    /// The file to download. If it has a key, read it by its key and not by its URL.
    pub file: AgentInputFile,
    /// Path as the model gave it.
    pub target: String,
    /// Path to write it to; an existing file is replaced.
    pub path: String,
    /// The directory that the path must not leave.
    pub directory: String,
    /// Most bytes of the file.
    pub max_bytes: u64,
}

/// The outcome of the download and the write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The sandbox confirmed that this number of bytes was written.
    Written(u64),
    /// The path, resolved on the disk, leaves the directory.
    Escaped,
    /// Something failed; a sentence without addresses, host paths or tokens.
    Failed(String),
}

impl FetchPlan {
    /// Checks a call, first failure first. `Err` is the tool's result.
    pub fn new(
        arguments: &Value,
        catalog: &FileCatalog,
        directory: &str,
        max_bytes: Option<u64>,
    ) -> Result<Self, String> {
        let text = |name: &str| {
            let value = arguments.get(name).and_then(Value::as_str);
            value.ok_or_else(|| format!("{name}: expected a string"))
        };
        // The steps of section 14 in their order: the first failure is the result.
        let (index, target) = (text("file_index")?, text("target_path")?);
        // Stored calls of G0 name files by number.
        let by_number = || catalog.find_number(crate::read::parse_decimal(index)?);
        let found = catalog.find(index).or_else(by_number);
        let entry = found.ok_or_else(|| {
            format!("Failed: file index \"{index}\" not found in available_files")
        })?;
        let path = path::resolve_below(directory, target).ok_or_else(|| refused_result(target))?;
        let scheme = entry.file.url.split(':').next().unwrap_or_default();
        if matches!(scheme.to_ascii_lowercase().as_str(), "ws" | "wss") {
            return Err("Failed: ws/wss protocol is not allowed for file URL".to_owned());
        }
        if entry.unavailable {
            return Err(failed_result(crate::read::FailureCode::Expired.sentence()));
        }
        Ok(Self {
            file: entry.file.clone(),
            target: target.to_owned(),
            path,
            directory: directory.trim_end_matches('/').to_owned(),
            max_bytes: max_bytes.unwrap_or(limits::MAX_FILE_BYTES),
        })
    }

    /// The tool's result (R-13: only a write that was confirmed is called one).
    pub fn report(&self, outcome: &WriteOutcome) -> String {
        match outcome {
            // The write is confirmed, but above the limit, which the sandbox does not check.
            WriteOutcome::Written(size) if *size > self.max_bytes => {
                failed_result(&self.too_large())
            }
            WriteOutcome::Written(size) => format!(
                "File written to sandbox: {} (name: {}, size: {size} bytes)",
                self.path, self.file.name
            ),
            WriteOutcome::Escaped => refused_result(&self.target),
            WriteOutcome::Failed(message) => failed_result(message),
        }
    }

    fn too_large(&self) -> String {
        let failure = crate::read::ReadFailure::too_large(self.max_bytes);
        failure.text().to_owned()
    }
}

fn refused_result(target: &str) -> String {
    format!("Failed: target_path \"{target}\" is invalid or attempts to escape workspace.")
}

/// The result of a download or write that failed.
pub fn failed_result(message: &str) -> String {
    let message = if message.is_empty() {
        "Load file error"
    } else {
        message
    };
    format!("Failed to fetch user file: {message}")
}
