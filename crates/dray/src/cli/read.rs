//! `dray read` and `dray classify`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser as _};

/// `dray read`
#[derive(Debug, Args)]
pub(crate) struct ReadArgs {
    /// Files, directories (the regular files in them and below), http(s) URLs (fetched by the egress-fetcher),
    /// `artifact:SHA256` for stored files, or `-` for standard input. Write `--` before a name that begins with a dash,
    /// and `./-` for a file of that name.
    #[arg(
        value_name = "FILE|DIR|URL|ARTIFACT",
        required = true,
        value_parser = OsStringValueParser::new().map(lossy_name)
    )]
    pub(crate) documents: Vec<String>,
    /// A part: `pages 3-5`, `slides 2`, `sheet Budget rows 1001-2000`, `chapter 4`, `lines 1-200`, `bytes 100000-`.
    #[arg(long, value_name = "RANGE")]
    pub(crate) range: Option<String>,
    /// Print only the places where this text occurs.
    #[arg(long, value_name = "TEXT", conflicts_with = "markdown")]
    pub(crate) find: Option<String>,
    /// A file of an archive (ZIP, tar), by its path in the listing.
    #[arg(long, value_name = "PATH")]
    pub(crate) member: Option<String>,
    #[command(flatten)]
    pub(crate) summary: SummaryArgs,
    /// Show what a person who opens the document does not see: hidden text, rows, columns and elements.
    #[arg(long)]
    pub(crate) hidden: bool,
    #[command(flatten)]
    pub(crate) ocr: OcrArgs,
    /// Print the conversion without its frame. Fails with the reason when the document cannot be converted.
    #[arg(long, conflicts_with = "json")]
    pub(crate) markdown: bool,
    #[command(flatten)]
    pub(crate) place: ReadLocation,
    #[command(flatten)]
    pub(crate) limits: ReadLimitArgs,
}

/// When a text is summarized, and by what.
#[derive(Debug, Args)]
pub(crate) struct SummaryArgs {
    /// Summarise even documents that would fit.
    #[arg(long, conflicts_with = "markdown")]
    pub(crate) summarize: bool,
    /// Topics that a summary must preserve.
    #[arg(long, value_name = "TEXT")]
    pub(crate) focus: Option<String>,
    /// Summarise without a model, always the same for the same text.
    #[arg(long)]
    pub(crate) stub_summarizer: bool,
}

/// Recognition of the text of scans and pictures.
#[derive(Debug, Args)]
pub(crate) struct OcrArgs {
    /// Do not recognise the text of scans and pictures, regardless of the configuration.
    #[arg(long)]
    pub(crate) no_ocr: bool,
    /// Languages of the text of scans and pictures as Tesseract names them: `deu+eng`.
    #[arg(long, value_name = "LANGUAGES", conflicts_with = "no_ocr")]
    pub(crate) ocr_languages: Option<String>,
}

/// `dray classify`
#[derive(Debug, Args)]
pub(crate) struct ClassifyArgs {
    /// Files to classify; `-` is standard input.
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) place: ReadLocation,
    #[command(flatten)]
    pub(crate) limits: ReadLimitArgs,
}

/// The directories from which files may be read.
#[derive(Debug, Args)]
pub(crate) struct ReadLocation {
    /// A directory whose files may be read, the primary one first. Can be given several times. Default: the current
    /// directory and, without `--json`, the directory of the file itself. With `--json`, the command behaves like the
    /// tool of agents.
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Vec<PathBuf>,
    /// Read files outside the roots too.
    #[arg(long)]
    pub(crate) no_workspace_strict: bool,
}

/// The limits of read-attachment 6, in its own words. A value that makes no sense leaves the default.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct ReadLimitArgs {
    /// Largest file in bytes. Default 26214400.
    // `-1` is a value here, not a flag: an invalid number leaves the default, it does not refuse the command.
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true)]
    pub(crate) max_file_bytes: Option<String>,
    /// Largest Markdown in bytes that is returned whole; more is summarised. Default 100000.
    #[arg(
        long,
        value_name = "BYTES",
        allow_negative_numbers = true,
        visible_alias = "inline-text-budget-bytes"
    )]
    pub(crate) inline_budget: Option<String>,
    /// Kinds that may be read: text, document, image, archive, binary, separated by commas. Default all;
    /// binaries are refused anyway, images unless their text can be recognised.
    #[arg(long, value_name = "KINDS")]
    pub(crate) allow_kinds: Option<String>,
    /// Most paragraphs, rows, pages, slides and chapters. Default 50000.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) convert_max_elements: Option<String>,
    /// Most bytes of extracted text. Default 5000000.
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true)]
    pub(crate) convert_max_decompressed_bytes: Option<String>,
    /// Most seconds for a whole conversion. Default 15.0.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub(crate) convert_wall_clock_seconds: Option<String>,
    /// Most decompressed bytes of all parts together. Default 268435456.
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true)]
    pub(crate) convert_max_inflated_bytes: Option<String>,
    /// Most entries of a ZIP container. Default 10000.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) convert_max_entries: Option<String>,
    /// Most levels of nesting. Default 256.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) convert_max_depth: Option<String>,
    /// Most memory of a conversion in bytes. Default 1073741824.
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true)]
    pub(crate) convert_memory_bytes: Option<String>,
}

/// A name in the JSON that the tool gets: invalid UTF-8 is written as U+FFFD.
fn lossy_name(name: OsString) -> String {
    name.into_string()
        .unwrap_or_else(|name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct ReadLine {
        #[command(flatten)]
        read: ReadArgs,
        #[arg(long)]
        json: bool,
    }

    fn read(words: &[&str]) -> ReadArgs {
        ReadLine::try_parse_from(words).unwrap().read
    }

    #[test]
    fn limits_below_zero_are_values_and_no_flags() {
        let read = read(&[
            "read",
            "a",
            "--max-file-bytes",
            "-1",
            "--inline-budget",
            "-5",
            "--convert-wall-clock-seconds",
            "-0.5",
        ]);
        assert_eq!(read.limits.max_file_bytes.as_deref(), Some("-1"));
        assert_eq!(read.limits.inline_budget.as_deref(), Some("-5"));
        assert_eq!(
            read.limits.convert_wall_clock_seconds.as_deref(),
            Some("-0.5")
        );
    }

    #[test]
    fn names_may_begin_with_a_dash_and_be_no_utf_8() {
        assert_eq!(read(&["read", "--", "--json"]).documents, ["--json"]);
        let name = OsString::from_vec(b"\xff.txt".to_vec());
        let line = ReadLine::try_parse_from([OsString::from("read"), "--".into(), name]).unwrap();
        assert_eq!(line.read.documents, ["\u{fffd}.txt"]);
    }
}
