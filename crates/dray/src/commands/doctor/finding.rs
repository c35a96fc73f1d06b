//! The result of a check, for people and for scripts.

use anstyle::AnsiColor;
use serde_json::{Value, json};

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FindingLevel {
    /// The checked part is as required.
    Good,
    /// The check does not apply, because the configuration does not use its subject.
    Skipped,
    /// The checked part works, but may fail under load or after a change.
    Warning,
    /// A configured part cannot work.
    Problem,
}

impl FindingLevel {
    /// The word in `--json` and in the first column.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Skipped => "skipped",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }

    const fn color(self) -> AnsiColor {
        match self {
            Self::Good => AnsiColor::Green,
            Self::Skipped => AnsiColor::BrightBlack,
            Self::Warning => AnsiColor::Yellow,
            Self::Problem => AnsiColor::Red,
        }
    }
}

/// The result of one check. It contains no secret: only addresses and paths of the configuration appear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The checked subject in one or two words: `bus`, `name server`.
    pub(crate) subject: String,
    /// The severity.
    pub(crate) level: FindingLevel,
    /// The finding.
    pub(crate) text: String,
    /// The advice; empty if no action is needed.
    pub(crate) advice: String,
}

impl Finding {
    /// A finding that needs no action.
    pub(crate) fn good(subject: impl Into<String>, text: impl Into<String>) -> Self {
        Self::new(subject, FindingLevel::Good, text, "")
    }

    /// A check that the configuration makes unnecessary, with the reason.
    pub(crate) fn skipped(subject: impl Into<String>, text: impl Into<String>) -> Self {
        Self::new(subject, FindingLevel::Skipped, text, "")
    }

    /// A finding that an operator should know, and its remedy.
    pub(crate) fn warning(
        subject: impl Into<String>,
        text: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self::new(subject, FindingLevel::Warning, text, advice)
    }

    /// A finding about a failure, and its remedy.
    pub(crate) fn problem(
        subject: impl Into<String>,
        text: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self::new(subject, FindingLevel::Problem, text, advice)
    }

    fn new(
        subject: impl Into<String>,
        level: FindingLevel,
        text: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            subject: subject.into(),
            level,
            text: text.into(),
            advice: advice.into(),
        }
    }

    /// The finding for scripts.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "subject": self.subject,
            "level": self.level.name(),
            "text": self.text,
            "advice": self.advice,
        })
    }

    /// The finding for people: one line, and one with the remedy.
    pub(crate) fn to_text(&self) -> String {
        let style = self.level.color().on_default();
        let level = self.level.name();
        let mut text = format!("{style}{level:<8}{style:#} {}: {}", self.subject, self.text);
        if !self.advice.is_empty() {
            text.push_str("\n         do: ");
            text.push_str(&self.advice);
        }
        text
    }
}
