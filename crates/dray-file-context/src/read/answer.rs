//! Results of reading calls (12.4).

use serde::ser::SerializeMap as _;
use serde::{Deserialize, Serialize, Serializer};

use super::arguments::ReadHandle;
use super::failure::{FailureCode, ReadFailure};
use crate::escape::escape_xml;
use crate::limits;

/// The outcome of reading a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReadStatus {
    /// The content is its text, or a page of it.
    Ok,
    /// The file was not read; the content is the reason.
    Error,
}

/// One file of an answer. As JSON its keys are `id` (or `index`, or `url`), `name`, `content`, then the fields of R-5
/// and R-6: `status`, `code`, `offset`, `length`, `truncated`, `nextOffset`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileAnswer {
    /// The kind of name that the call used.
    pub handle: ReadHandle,
    /// The name that was requested.
    pub requested: String,
    /// Name of the file; empty after some failures.
    pub file_name: String,
    /// The file's text, or the reason why there is none.
    pub content: String,
    /// The outcome of reading the file.
    pub status: ReadStatus,
    /// The reason why it was not read; `None` after success.
    pub code: Option<FailureCode>,
    /// The first character of the content within the text.
    pub offset: Option<usize>,
    /// Characters of the complete text.
    pub length: Option<usize>,
    /// Whether text follows this page, or the reader omitted text.
    pub truncated: bool,
    /// Offset of the next page; `None` at the end.
    pub next_offset: Option<usize>,
}

impl FileAnswer {
    pub(super) fn of(handle: ReadHandle, requested: &str) -> Self {
        Self {
            handle,
            requested: requested.to_owned(),
            file_name: String::new(),
            content: String::new(),
            status: ReadStatus::Error,
            code: None,
            offset: None,
            length: None,
            truncated: false,
            next_offset: None,
        }
    }

    pub(super) fn failed(self, file_name: &str, failure: &ReadFailure) -> Self {
        Self {
            file_name: file_name.to_owned(),
            content: failure.text().to_owned(),
            code: Some(failure.code),
            ..self
        }
    }

    fn key(&self) -> &'static str {
        match self.handle {
            ReadHandle::Id => "id",
            ReadHandle::Index => "index",
            ReadHandle::Url => "url",
        }
    }
}

impl Serialize for FileAnswer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        // The order of the keys is part of the contract (12.4).
        map.serialize_entry(self.key(), &self.requested)?;
        map.serialize_entry("name", &self.file_name)?;
        map.serialize_entry("content", &self.content)?;
        map.serialize_entry("status", &self.status)?;
        if let Some(code) = self.code {
            map.serialize_entry("code", &code)?;
        }
        if let Some(length) = self.length {
            map.serialize_entry("offset", &self.offset.unwrap_or(0))?;
            map.serialize_entry("length", &length)?;
            map.serialize_entry("truncated", &self.truncated)?;
        }
        if let Some(next) = self.next_offset {
            map.serialize_entry("nextOffset", &next)?;
        }
        map.end()
    }
}

/// The complete answer, with one file for each name in the call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ReadAnswer {
    /// Answers in the order of the call.
    pub files: Vec<FileAnswer>,
}

impl ReadAnswer {
    /// The tool's result: compact JSON, with status and paging.
    pub fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|_| "[]".to_owned())
    }

    /// The tool's result in the form of older generations: three keys, no status.
    pub fn plain_json(&self) -> String {
        let files: Vec<_> = self.files.iter().map(PlainAnswer).collect();
        serde_json::to_string(&files).unwrap_or_else(|_| "[]".to_owned())
    }

    /// The tool-call node's form: `<id>` and `<content>`, escaped.
    pub fn blocks(&self) -> String {
        let block = |file: &FileAnswer| {
            // The peer does not escape this, so a document could close its block (17.2).
            let (id, content) = (escape_xml(&file.requested), escape_xml(&file.content));
            format!("<file>\n<id>{id}</id>\n<content>{content}</content>\n</file>")
        };
        let blocks: Vec<_> = self.files.iter().map(block).collect();
        blocks.join("\n")
    }

    /// The tool-call node's later form: `<url>`, `<name>` and `<content>`, escaped. A file without a name has the
    /// handle of the call as its name.
    pub fn named_blocks(&self) -> String {
        let block = |file: &FileAnswer| {
            let (url, name) = (escape_xml(&file.requested), escape_xml(display_name(file)));
            let content = escape_xml(&file.content);
            format!(
                "<file>\n<url>{url}</url>\n<name>{name}</name>\n<content>{content}</content>\n</file>"
            )
        };
        let blocks: Vec<_> = self.files.iter().map(block).collect();
        blocks.join("\n")
    }

    /// The preview in the record of a node: each file's name, beginning and end.
    pub fn preview(&self) -> String {
        let file_preview = |file: &FileAnswer| {
            format!("## {}\n{}", display_name(file), preview_ends(&file.content))
        };
        let files: Vec<_> = self.files.iter().map(file_preview).collect();
        files.join("\n\n")
    }
}

fn display_name(file: &FileAnswer) -> &str {
    if file.file_name.is_empty() {
        &file.requested
    } else {
        &file.file_name
    }
}

/// The first and the last characters; the complete text if they overlap.
fn preview_ends(content: &str) -> String {
    let length = content.chars().count();
    if length <= limits::MAX_PREVIEW_CHARS * 2 {
        return content.to_owned();
    }
    let head: String = content.chars().take(limits::MAX_PREVIEW_CHARS).collect();
    let tail = content.chars().skip(length - limits::MAX_PREVIEW_CHARS);
    head.chars().chain(tail).collect()
}

/// The form of the older generations: three keys, no status.
struct PlainAnswer<'a>(&'a FileAnswer);

impl Serialize for PlainAnswer<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(3))?;
        map.serialize_entry(self.0.key(), &self.0.requested)?;
        map.serialize_entry("name", &self.0.file_name)?;
        map.serialize_entry("content", &self.0.content)?;
        map.end()
    }
}

/// The tool's result when reading failed as a whole, not for one file.
pub fn reading_failed(message: &str) -> String {
    format!("Failed to read file: {message}")
}

/// The entry for a call in the record of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRecord {
    /// The kind of node.
    pub module_type: &'static str,
    /// The key of its name.
    pub module_name: &'static str,
    /// Duration in seconds, rounded to two decimals.
    pub running_time: f64,
    /// Always empty: reading is not billed.
    pub usages: [(); 0],
}

impl NodeRecord {
    /// The entry for a call of this duration.
    pub fn of(duration: std::time::Duration) -> Self {
        Self {
            module_type: "readFiles",
            module_name: "chat:read_file",
            running_time: (duration.as_secs_f64() * 100.0).round() / 100.0,
            // An empty array of unit values is written as `[]` (12.4).
            usages: [],
        }
    }
}
