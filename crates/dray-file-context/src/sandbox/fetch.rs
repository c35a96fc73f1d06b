//! `sandbox_fetch_user_file` (14). Every outcome is a text, never an exception.

use serde_json::Value;

use super::path;
use crate::catalog::FileCatalog;
use crate::model::AgentInputFile;

/// A download and a write that were checked.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Checks a call, first failure first. The limit is in bytes. `Err` is the tool's result.
    pub fn new(
        arguments: &Value,
        catalog: &FileCatalog,
        directory: &str,
        max_bytes: u64,
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
            max_bytes,
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
fn failed_result(message: &str) -> String {
    let message = if message.is_empty() {
        "Load file error"
    } else {
        message
    };
    format!("Failed to fetch user file: {message}")
}
