//! The result record of one call (read-attachment 2).

use dray_documents::classify::Kind;
use serde::Serialize;

use crate::message;
use crate::reader::UnframedMarkdown;

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The text, in its frame.
    Inline,
    /// A summary, in its frame.
    Summary,
    /// A sentence about the text instead of the text, in its frame.
    Note,
    /// Other ways to read the file.
    Hint,
    /// The file is not read.
    Refuse,
    /// The caller cancelled the call.
    Cancelled,
}

impl Outcome {
    /// The value in results and logs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Summary => "summary",
            Self::Note => "note",
            Self::Hint => "hint",
            Self::Refuse => "refuse",
            Self::Cancelled => "cancelled",
        }
    }
}

/// The reason why the result is not simply the text (read-attachment 3), in the order of the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// No path was given.
    FilePathRequired,
    /// The path contains NUL or is too long.
    FilePathInvalid,
    /// The range cannot be parsed. Ranges and this code extend read-attachment 3.
    RangeInvalid,
    /// The path is in none of the roots.
    OutsideWorkspace,
    /// The file does not exist.
    NotFound,
    /// The file cannot be examined with stat, opened or read, or it changed meanwhile.
    Unreadable,
    /// The path is a symbolic link.
    Symlink,
    /// A directory, a pipe, a device or a socket.
    NotRegularFile,
    /// The file is larger than the policy allows.
    TooLarge,
    /// An image, a binary, an archive of a type that is not read, or a kind that is not allowed here.
    KindNotAllowed,
    /// A member was requested from a file that is not an archive.
    NotAnArchive,
    /// The archive has no such file.
    MemberNotFound,
    /// The file is empty or has only white space.
    Empty,
    /// A password is needed.
    Encrypted,
    /// Damaged or incomplete; with a partial text, the outcome is the one for text.
    Corrupt,
    /// A limit ended the conversion before it had any text.
    LimitExceeded,
    /// A document without text, such as a scan.
    NoText,
    /// No converter for the type.
    UnsupportedFormat,
    /// An internal failure of this program.
    Internal,
    /// Too large, and no summary was available: an excerpt instead.
    SummaryFailed,
}

impl Code {
    /// The value in results and logs.
    pub fn word(self) -> &'static str {
        match self {
            Self::FilePathRequired => "file_path_required",
            Self::FilePathInvalid => "file_path_invalid",
            Self::RangeInvalid => "range_invalid",
            Self::OutsideWorkspace => "outside_workspace",
            Self::NotFound => "not_found",
            Self::Unreadable => "unreadable",
            Self::Symlink => "symlink",
            Self::NotRegularFile => "not_regular_file",
            Self::TooLarge => "too_large",
            Self::KindNotAllowed => "kind_not_allowed",
            Self::NotAnArchive => "not_an_archive",
            Self::MemberNotFound => "member_not_found",
            Self::Empty => "empty",
            Self::Encrypted => "encrypted",
            Self::Corrupt => "corrupt",
            Self::LimitExceeded => "limit_exceeded",
            Self::NoText => "no_text",
            Self::UnsupportedFormat => "unsupported_format",
            Self::Internal => "internal",
            Self::SummaryFailed => "summary_failed",
        }
    }
}

/// The result of one call. Serialises to the object that callers see.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Record {
    /// The text for the model. Never empty, without NUL.
    pub output: String,
    /// How the call ended; [`Record::error_code`] has the reason where one is needed.
    pub outcome: Outcome,
    /// The reason why the result is not simply the text.
    pub error_code: Option<Code>,
    /// Sizes of the converted text, in words for people.
    pub metrics: String,
    /// Kind, when it was found out.
    pub kind: Option<Kind>,
    /// Media type, when it was found out.
    pub mime: Option<String>,
    /// The path as the caller wrote it, escaped; when the file was classified.
    pub path: Option<String>,
    /// Size of the file in bytes; when it was classified.
    pub size_bytes: Option<u64>,
    /// Name of the converter that ran.
    pub converter: Option<String>,
    /// Duration in milliseconds.
    pub elapsed_ms: u64,
    /// Whether text is missing at the end.
    pub truncated: bool,
    /// Remarks: texts of this crate, never of the file.
    pub warnings: Vec<String>,
    /// The outcome of the worker. For the log.
    #[serde(skip)]
    pub(crate) worker: Option<&'static str>,
}

impl Record {
    /// The record of a document that is not read, for callers that had to fetch it first.
    pub fn refused(code: Code, output: String) -> Self {
        Self::new(Outcome::Refuse, Some(code), output)
    }

    /// The record of a cancelled call, for callers that fetch the document first. `display_path` is the name that the
    /// model uses.
    pub fn cancelled(display_path: &str) -> Self {
        Self::new(Outcome::Cancelled, None, message::cancelled(display_path))
    }

    /// The record of a conversion without a frame, for people and programs: its text, or the reason for its absence.
    pub fn of_plain(read: Result<UnframedMarkdown, Box<Self>>) -> Self {
        match read {
            Ok(UnframedMarkdown {
                text,
                truncated,
                warnings,
            }) => Self {
                metrics: converted(text.len()),
                truncated,
                warnings,
                ..Self::new(Outcome::Inline, None, text)
            },
            Err(record) => *record,
        }
    }

    /// A record with this output, without data about the file.
    pub(crate) fn new(outcome: Outcome, code: Option<Code>, output: String) -> Self {
        Self {
            output,
            outcome,
            error_code: code,
            metrics: converted(0),
            kind: None,
            mime: None,
            path: None,
            size_bytes: None,
            converter: None,
            elapsed_ms: 0,
            truncated: false,
            warnings: Vec::new(),
            worker: None,
        }
    }
}

/// Metrics of a text that was returned.
pub(crate) fn converted(bytes: usize) -> String {
    format!("{bytes} bytes converted")
}

/// Metrics of a text that was summarised.
pub(crate) fn summarized(bytes: usize) -> String {
    format!("{bytes} bytes -> summary")
}

/// The file is not read: why, and the message for the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The step that failed, as a word for programs.
    pub code: Code,
    /// The sentence for the model.
    pub output: String,
}

impl From<Refusal> for Record {
    fn from(refusal: Refusal) -> Self {
        Self::new(Outcome::Refuse, Some(refusal.code), refusal.output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_their_wire_names() {
        for outcome in [
            Outcome::Inline,
            Outcome::Summary,
            Outcome::Note,
            Outcome::Hint,
            Outcome::Refuse,
            Outcome::Cancelled,
        ] {
            assert_eq!(serde_json::to_value(outcome).unwrap(), outcome.word());
        }
        for code in [
            Code::FilePathRequired,
            Code::FilePathInvalid,
            Code::RangeInvalid,
            Code::OutsideWorkspace,
            Code::NotFound,
            Code::Unreadable,
            Code::Symlink,
            Code::NotRegularFile,
            Code::TooLarge,
            Code::KindNotAllowed,
            Code::NotAnArchive,
            Code::MemberNotFound,
            Code::Empty,
            Code::Encrypted,
            Code::Corrupt,
            Code::LimitExceeded,
            Code::NoText,
            Code::UnsupportedFormat,
            Code::Internal,
            Code::SummaryFailed,
        ] {
            assert_eq!(serde_json::to_value(code).unwrap(), code.word());
        }
    }

    #[test]
    fn the_record_has_exactly_the_fields_of_the_tool() {
        let record = Record::new(Outcome::Cancelled, None, "x".to_owned());
        let value = serde_json::to_value(&record).unwrap();
        let names: Vec<&String> = value.as_object().unwrap().keys().collect();
        assert_eq!(
            names,
            [
                "output",
                "outcome",
                "error_code",
                "metrics",
                "kind",
                "mime",
                "path",
                "size_bytes",
                "converter",
                "elapsed_ms",
                "truncated",
                "warnings"
            ]
        );
        assert_eq!(value["metrics"], "0 bytes converted");
        let cancelled = Record::cancelled("a\nb");
        assert_eq!(cancelled.outcome, Outcome::Cancelled);
        assert_eq!(cancelled.output, "Reading a\\u{a}b was cancelled.");
        assert!(value["kind"].is_null() && value["error_code"].is_null());
    }
}
