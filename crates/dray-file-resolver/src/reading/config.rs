//! The configuration of reading documents.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ocr::OcrConfig;
use dray_documents::classify::Kind;
use dray_documents::limits::Limits;
use dray_reading::policy::Policy;
use dray_reading::summary::{Endpoint, OpenAi, Summarizer, SummaryLimits};
use dray_service::StartError;
use dray_service::config::ConfigProblem;
use dray_types::{ByteSize, FileSetting, Period, Secret};

/// Reading documents (read-attachment 6 and 12).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ReadingConfig {
    /// Whether documents are read. Default true.
    pub enabled: bool,
    /// Directories whose files may be read by path, the primary one first. Empty: no file is read by path, only stored
    /// files and those of sandboxes, of DIAL and of the web.
    pub roots: Vec<PathBuf>,
    /// Whether paths outside `roots` are refused. Default true.
    pub workspace_strict: bool,
    /// Largest file that is read. Default `25MiB`.
    pub max_file_size: ByteSize,
    /// Largest Markdown that is returned whole; a longer one is summarised. Default `100000B`.
    pub inline_budget: ByteSize,
    /// Kinds that may be read: `text`, `document`, `archive`, `image` (for its text). Other kinds are refused. Default
    /// all four.
    pub allow_kinds: Vec<String>,
    /// Most paragraphs, rows, pages, slides and chapters of one conversion. Default 50000.
    pub max_elements: u64,
    /// Most bytes of text of one conversion. Default `5000000B`.
    pub max_text: ByteSize,
    /// Longest time of one conversion, at most `10m`. Default `15s`.
    pub max_time: Period,
    /// Most bytes that one conversion decompresses. Default `256MiB`.
    pub max_inflated: ByteSize,
    /// Most entries of one ZIP container. Default 10000.
    pub max_entries: u64,
    /// Most levels of nesting in one document. Default 256.
    pub max_depth: u32,
    /// Most memory of one conversion, at least `128MiB`. Default `1GiB`.
    pub max_memory: ByteSize,
    /// Most bytes of the JSON of a conversation; it is held in memory. Default `16MiB`.
    pub max_context: ByteSize,
    /// How long a downloaded document of the web is kept for the next read in the same conversation, at most `1h`. With
    /// `0s` each read downloads it again. Default `5m`.
    pub download_lifetime: Period,
    /// Most downloaded documents that are kept; at least 1. Default 1024.
    pub download_entries: usize,
    /// Most concurrent conversions. 0 means one for each processor, but only as many as fit, with `max_memory` each,
    /// into the memory of the container beside 1 GiB for the service. Default 0.
    pub workers: usize,
    /// Program that converts documents. Unset: the program of this process.
    pub worker: Option<PathBuf>,
    /// The text of scans and pictures.
    pub ocr: OcrConfig,
    /// The model that summarises what is too large.
    pub summary: SummaryConfig,
}

/// An OpenAI-compatible model for summaries. Without a URL large documents are shown as an excerpt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SummaryConfig {
    /// Base URL of the API of the model, such as `https://api.example/v1`; `/chat/completions` is appended. Unset:
    /// large documents are shown as an excerpt.
    pub url: Option<String>,
    /// Name of the model; required with `url`.
    pub model: String,
    /// Bearer token for the API. Empty: none is sent.
    pub key: Secret,
    /// PEM file with additional certificate authorities. Unset: none.
    pub ca_file: Option<FileSetting>,
    /// Longest wait for one response of the model. Default `5m`.
    pub timeout: Period,
    /// Most calls of the model for one document; at least 1. Default 64.
    pub max_calls: usize,
    /// Most concurrent calls of the model for one document; at least 1. Default 4.
    pub parallel: usize,
    /// Approximate words of a merged summary, 50 to 4000. Default 500.
    pub max_words: usize,
    /// Most bytes of text in one call of the model. Default `96000B`.
    pub window: ByteSize,
}

impl Default for ReadingConfig {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            enabled: true,
            roots: Vec::new(),
            workspace_strict: true,
            max_file_size: ByteSize::mib(25),
            inline_budget: ByteSize::bytes(100_000),
            allow_kinds: ["text", "document", "archive", "image"]
                .map(str::to_owned)
                .to_vec(),
            max_elements: limits.max_elements,
            max_text: ByteSize::bytes(limits.max_text_bytes),
            max_time: Period::secs(15),
            max_inflated: ByteSize::bytes(limits.max_inflated_bytes),
            max_entries: limits.max_entries,
            max_depth: limits.max_depth,
            max_memory: ByteSize::bytes(limits.memory_bytes),
            max_context: ByteSize::mib(16),
            download_lifetime: Period::secs(300),
            download_entries: 1024,
            workers: 0,
            worker: None,
            ocr: OcrConfig::default(),
            summary: SummaryConfig::default(),
        }
    }
}

impl Default for SummaryConfig {
    fn default() -> Self {
        let limits = SummaryLimits::default();
        Self {
            url: None,
            model: String::new(),
            key: Secret::default(),
            ca_file: None,
            timeout: Period::secs(300),
            max_calls: limits.max_calls,
            parallel: limits.parallel,
            max_words: limits.max_words,
            window: ByteSize::bytes(96_000),
        }
    }
}

impl ReadingConfig {
    /// All mistakes in the section, with the field's path.
    pub(crate) fn problems(&self) -> Vec<ConfigProblem> {
        let mut problems = Vec::new();
        let mut require = |is_valid: bool, field: &str, message: &str| {
            if !is_valid {
                problems.push(ConfigProblem::new(format!("reading.{field}"), message));
            }
        };
        let is_at_least = |size: ByteSize, least: u64| size.as_u64() >= least;
        require(
            is_at_least(self.max_file_size, 1),
            "max_file_size",
            "must be above 0",
        );
        require(is_at_least(self.max_text, 1), "max_text", "must be above 0");
        require(
            is_at_least(self.max_inflated, 1),
            "max_inflated",
            "must be above 0",
        );
        require(
            is_at_least(self.max_memory, 128 << 20),
            "max_memory",
            "must be at least 128MiB: the program itself needs some",
        );
        require(
            self.max_time > Period::default() && self.max_time <= Period::secs(600),
            "max_time",
            "must be above 0 and at most 10m",
        );
        require(
            self.download_lifetime <= Period::secs(3600),
            "download_lifetime",
            "must be at most 1h",
        );
        require(
            self.download_entries > 0,
            "download_entries",
            "must be above 0",
        );
        require(
            self.allow_kinds
                .iter()
                .all(|kind| matches!(kind.as_str(), "text" | "document" | "archive" | "image")),
            "allow_kinds",
            "may hold `text`, `document`, `archive` and `image`",
        );
        require(
            self.summary.url.is_none() || !self.summary.model.is_empty(),
            "summary.model",
            "must be set when summary.url is",
        );
        require(
            self.summary.max_calls >= 1 && self.summary.parallel >= 1,
            "summary.max_calls",
            "the numbers of calls and of concurrent calls must be above 0",
        );
        problems.extend(self.ocr.problems());
        problems
    }

    /// The policy of the reader, from these settings.
    pub(crate) fn policy(&self) -> Policy {
        Policy {
            max_file_bytes: self.max_file_size.as_u64(),
            inline_text_budget_bytes: self.inline_budget.as_usize(),
            allow_kinds: Kind::ALL
                .into_iter()
                .filter(|kind| {
                    self.allow_kinds
                        .iter()
                        .any(|allowed| allowed == kind.word())
                })
                .collect(),
            convert_max_elements: self.max_elements,
            convert_max_decompressed_bytes: self.max_text.as_u64(),
            convert_wall_clock_seconds: self.max_time.as_duration().as_secs_f64(),
            convert_max_inflated_bytes: self.max_inflated.as_u64(),
            convert_max_entries: self.max_entries,
            convert_max_depth: self.max_depth,
            convert_memory_bytes: self.max_memory.as_u64(),
        }
    }
}

impl SummaryConfig {
    /// The model for summaries; `None` when none is configured.
    ///
    /// # Errors
    ///
    /// The file with its authorities cannot be read.
    pub fn model(&self) -> Result<Option<Arc<dyn Summarizer>>, StartError> {
        let Some(url) = &self.url else {
            return Ok(None);
        };
        let endpoint = Endpoint {
            key: (!self.key.expose().is_empty()).then(|| self.key.clone()),
            timeout: self.timeout.as_duration(),
            window_bytes: self.window.as_usize(),
            authorities: self.ca_file.as_deref().map(Path::to_path_buf),
            ..Endpoint::new(url, &self.model)
        };
        let model = OpenAi::new(endpoint)
            .map_err(|error| StartError::with_source("reading.summary cannot be used", error))?;
        Ok(Some(Arc::new(model)))
    }

    /// The bounds on model calls for one document.
    pub fn limits(&self) -> SummaryLimits {
        SummaryLimits {
            max_calls: self.max_calls,
            parallel: self.parallel,
            max_words: self.max_words,
            ..SummaryLimits::default()
        }
    }
}
