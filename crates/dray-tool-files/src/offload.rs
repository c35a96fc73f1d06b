//! Puts large results of tools into files; the model gets a notice with the beginning (quickapps 43.3). If the file
//! cannot be written, the result stays unchanged.

use bytes::Bytes;
use dray_agent::manifest::feature::Offload;
use dray_agent::message::Attachment;
use dray_presentation::name;
use dray_tool::{FileStorage as _, ToolFailure};
use dray_types::Sha256Digest;

use super::scope::TurnScope;
use super::storage::{STORED_NAME_FIELD, TurnStorage};

/// Folder for results that were offloaded.
pub const OFFLOAD_DIRECTORY: &str = "offloaded-responses";
/// Folder for old messages of conversations.
const COMPACTED_DIRECTORY: &str = "compacted-conversations";
/// Bytes of the beginning of a result that its notice contains.
const NOTICE_BYTES: usize = 2000;
/// Tools that read these files. Their own results are never put into files.
const READING_TOOLS: [&str; 4] = ["read_attachment", "read_files", "sandbox_get", "fetch_url"];

/// Beginnings of the names of other tools whose results are never put into files: those that read files of DIAL, and
/// tools of the orchestrator. Skills are read whole (quickapps 35.2), and later turns parse the lists of files (13, 16).
const WHOLE_RESULT_PREFIXES: [&str; 4] = [
    "internal_file_",
    "internal_skills_",
    "internal_attachments_",
    "internal_timeawareness_",
];

/// A result that was written to a file.
#[derive(Clone, Debug, PartialEq)]
pub struct OffloadedResult {
    /// The text for the model in place of the result.
    pub notice: String,
    /// The file with the complete result.
    pub attachment: Attachment,
}

/// Puts large results of tools into files.
#[derive(Clone, Copy, Debug)]
pub struct ResultOffloader<'a> {
    pub(super) scope: &'a TurnScope,
    pub(super) storage: &'a TurnStorage,
}

impl ResultOffloader<'_> {
    /// The size in bytes from which results of tools are offloaded; `None` if none is.
    pub fn offload_threshold(&self) -> Option<u64> {
        let default = self.scope.services.config.offload_threshold.as_u64();
        match self.manifest_settings() {
            Some(offload) => offload
                .enabled
                .unwrap_or(true)
                .then(|| offload.size_threshold.unwrap_or(default)),
            None => self.scope.services.config.offload.then_some(default),
        }
    }

    /// Moves a large result of `tool` into a file; `None` if the result is kept.
    pub async fn offload(
        &self,
        tool: &str,
        media_type: &str,
        result: &str,
    ) -> Option<OffloadedResult> {
        let threshold = self.offload_threshold()?;
        let size = u64::try_from(result.len()).unwrap_or(u64::MAX);
        if size < threshold || self.is_excluded(tool) {
            return None;
        }
        // The file is named by the content: the same result has the same name in a repeated turn (R16).
        let digest = Sha256Digest::of(result.as_bytes()).to_hex();
        let extension = if media_type.contains("json") {
            "json"
        } else {
            "txt"
        };
        let tool_name = name::ascii_safe(tool);
        let file = format!(
            "{OFFLOAD_DIRECTORY}/{tool_name}-{}.{extension}",
            digest.get(..12).unwrap_or_default()
        );
        let bytes = Bytes::copy_from_slice(result.as_bytes());
        match self.storage.keep(&file, media_type, bytes).await {
            Ok(attachment) => {
                let location = self.reference_for(&file, &attachment);
                let shown = result
                    .get(..result.floor_char_boundary(NOTICE_BYTES))
                    .unwrap_or_default();
                let notice = format!(
                    "The result of {tool} has {size} bytes, which is too long to show here. All of it is kept as {location}; read \
                     parts of it with {}. It begins with:\n{shown}\n…",
                    self.reading_tool()
                );
                Some(OffloadedResult { notice, attachment })
            }
            Err(failure) => {
                tracing::warn!(
                    error = &failure as &dyn std::error::Error,
                    tool,
                    "a large result stays in the conversation"
                );
                None
            }
        }
    }

    /// Stores old messages of the conversation as a file, and returns a sentence for the model with its name. The same
    /// text results in the same sentence in every turn of the conversation.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub async fn keep_messages(&self, transcript: &str) -> Result<String, ToolFailure> {
        let digest = Sha256Digest::of(transcript.as_bytes()).to_hex();
        let file = format!(
            "{COMPACTED_DIRECTORY}/{}.txt",
            digest.get(..32).unwrap_or_default()
        );
        let bytes = Bytes::copy_from_slice(transcript.as_bytes());
        let attachment = self.storage.keep_same(&file, "text/plain", bytes).await?;
        let location = if self.scope.reads_drive() {
            file
        } else {
            self.reference_for(&file, &attachment)
        };
        Ok(format!(
            "All of them are kept as {location}; read parts of it with {}.",
            self.reading_tool()
        ))
    }

    /// The settings of the manifest; the field for all agents has priority.
    fn manifest_settings(&self) -> Option<&Offload> {
        let features = &self.scope.features;
        let of_dial = features.dial_files.as_ref();
        let of_dial = of_dial.and_then(|files| files.tool_call_result_offload.as_ref());
        features.result_offload.as_ref().or(of_dial)
    }

    fn is_excluded(&self, tool: &str) -> bool {
        let settings = self.manifest_settings();
        let settings = settings.and_then(|offload| offload.excluded_tools.as_ref());
        READING_TOOLS.contains(&tool)
            || WHOLE_RESULT_PREFIXES
                .iter()
                .any(|prefix| tool.starts_with(prefix))
            || self
                .scope
                .services
                .config
                .offload_excluded
                .iter()
                .any(|name| name == tool)
            || settings.is_some_and(|names| names.iter().any(|name| name == tool))
    }

    /// The reference to the file for the model, in the form that the reading tool expects.
    fn reference_for(&self, requested: &str, attachment: &Attachment) -> String {
        if let Some(key) = attachment
            .rest
            .get(STORED_NAME_FIELD)
            .and_then(serde_json::Value::as_str)
        {
            return key.to_owned();
        }
        let title = attachment
            .title
            .as_deref()
            .and_then(|title| title.rsplit('/').next());
        match (self.scope.reads_drive(), title) {
            (true, Some(title)) => format!("{OFFLOAD_DIRECTORY}/{title}"),
            _ => attachment
                .url
                .clone()
                .unwrap_or_else(|| requested.to_owned()),
        }
    }

    fn reading_tool(&self) -> &'static str {
        if self.scope.reads_drive() {
            "internal_file_read_lines"
        } else {
            "read_attachment"
        }
    }
}
