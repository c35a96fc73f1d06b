//! Results of reading calls (12.4).

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use super::arguments::ReadHandle;
use super::failure::{FailureCode, ReadFailure};

/// The outcome of reading a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ReadStatus {
    /// The content is its text, or a page of it.
    Ok,
    /// The file was not read; the content is the reason.
    Error,
}

/// One file of an answer. As JSON its keys are `id` (or `index`, or `url`), `name`, `content`, then the fields of R-5
/// and R-6: `status`, `code`, `offset`, `length`, `truncated`, `nextOffset`; then `warnings`, if there are any.
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
    /// Remarks of the reader about the complete text.
    pub warnings: Vec<String>,
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
            warnings: Vec::new(),
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
        if !self.warnings.is_empty() {
            map.serialize_entry("warnings", &self.warnings)?;
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
}
