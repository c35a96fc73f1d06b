//! The configuration of reading the text of pictures.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use dray_reading::ocr::OcrSettings;
use dray_service::config::ConfigProblem;
use dray_types::Period;

/// The text of scans and pictures, recognised by Tesseract (the Debian packages `tesseract-ocr` and
/// `tesseract-ocr-LANGUAGE`). Without the program, the result says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct OcrConfig {
    /// When the text of pictures is recognised: `auto` (if the program is installed) or `off` (never). Default `auto`.
    pub mode: OcrMode,
    /// Languages of the text as the program names them, joined by `+`: `deu+eng`. Default `eng`.
    pub languages: String,
    /// Program that recognises text. Unset: `tesseract` in `/usr/local/bin` or `/usr/bin`.
    pub program: Option<PathBuf>,
    /// Most pages of one document whose pictures are read, at least 1; requests with a range of pages reach later ones.
    /// Default 20.
    pub max_pictures: u32,
    /// Longest time for all pictures of one document, at most `10m`. Default `30s`.
    pub timeout: Period,
}

/// When the text of pictures is recognised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OcrMode {
    /// When the program is installed.
    #[default]
    Auto,
    /// Never.
    Off,
}

impl Default for OcrConfig {
    fn default() -> Self {
        let settings = OcrSettings::default();
        Self {
            mode: OcrMode::Auto,
            languages: settings.languages,
            program: settings.program,
            max_pictures: settings.max_pictures,
            timeout: Period::secs(settings.timeout.as_secs()),
        }
    }
}

impl OcrConfig {
    /// Options for the reader; `None` when it is off.
    pub fn settings(&self) -> Option<OcrSettings> {
        (self.mode == OcrMode::Auto).then(|| OcrSettings {
            program: self.program.clone(),
            languages: self.languages.clone(),
            max_pictures: self.max_pictures,
            timeout: self.timeout.as_duration(),
        })
    }

    /// All mistakes in the section.
    pub(super) fn problems(&self) -> Vec<ConfigProblem> {
        let mut problems = Vec::new();
        if self
            .settings()
            // The names become arguments of a program.
            .is_some_and(|ocr| !ocr.has_valid_languages())
        {
            problems.push(ConfigProblem::new(
                "reading.ocr.languages",
                "must be names of languages joined by `+`, such as `deu+eng`",
            ));
        }
        if self.timeout == Period::default() || self.timeout > Period::secs(600) {
            problems.push(ConfigProblem::new(
                "reading.ocr.timeout",
                "must be above 0 and at most 10m",
            ));
        }
        if self.max_pictures == 0 {
            problems.push(ConfigProblem::new(
                "reading.ocr.max_pictures",
                "must be above 0",
            ));
        }
        problems
    }
}
