//! Converts every real and hostile document below `tests/documents` and compares the result with the `expect.toml`
//! in the same directory.
//!
//! Keys of a `[[file]]`:
//!
//! | key | meaning |
//! |---|---|
//! | `name` | the file, in the same directory |
//! | `mime` | its media type, if the extension does not determine it |
//! | `order` | texts that the Markdown contains, in this order |
//! | `lacks` | texts that the Markdown does not contain |
//! | `same_as` | another file of the directory that gives identical Markdown |
//! | `pages` | the number of its parts |
//! | `failure` | why there is no text: `encrypted`, `no_text`, `corrupt:truncated`, `stopped:size` … |
//! | `stopped` | the limit that ended the conversion early with a partial text: `size` … |
//! | `warnings` | all of them, in order |
//!
//! A file without an entry fails the test, and so does an entry without a file. No test measures time: the budget ends
//! the conversion of a hostile file, and the result names the limit that was reached.

#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;
use std::path::{Path, PathBuf};

use dray_documents::formats::{ConversionHint, Converted, convert};
use dray_documents::limits::{Failure, Limits};
use dray_documents::markdown::Selection;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expectations {
    #[serde(default)]
    file: Vec<Expected>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    name: String,
    mime: Option<String>,
    #[serde(default)]
    order: Vec<String>,
    #[serde(default)]
    lacks: Vec<String>,
    same_as: Option<String>,
    pages: Option<u32>,
    failure: Option<String>,
    stopped: Option<String>,
    warnings: Option<Vec<String>>,
}

fn documents() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
        .join("tests/documents")
}

/// Directories of a family, such as `corpus/pdf`.
fn families(kind: &str) -> Vec<PathBuf> {
    let mut families: Vec<_> = std::fs::read_dir(documents().join(kind))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    families.sort();
    assert!(!families.is_empty(), "no documents in {kind}");
    families
}

fn expectations(directory: &Path) -> Vec<Expected> {
    let path = directory.join("expect.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let expectations: Expectations =
        toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let named: BTreeSet<_> = expectations
        .file
        .iter()
        .map(|file| file.name.clone())
        .collect();
    let present: BTreeSet<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "expect.toml")
        .collect();
    assert_eq!(
        named,
        present,
        "entries and files of {}",
        directory.display()
    );
    expectations.file
}

fn mime(name: &str) -> &'static str {
    match name.rsplit_once('.').unwrap().1 {
        "pdf" => "application/pdf",
        "doc" => "application/msword",
        "docx" => "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "xlsx" => "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "pptx" => "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        "odt" => "application/vnd.oasis.opendocument.text",
        "ods" => "application/vnd.oasis.opendocument.spreadsheet",
        "odp" => "application/vnd.oasis.opendocument.presentation",
        "xls" => "application/vnd.ms-excel",
        "epub" => "application/epub+zip",
        "html" => "text/html",
        "csv" => "text/csv",
        "tsv" => "text/tab-separated-values",
        "json" => "application/json",
        "xml" => "application/xml",
        "rtf" => "application/rtf",
        "eml" => "message/rfc822",
        "msg" => "application/vnd.ms-outlook",
        "ipynb" => "application/x-ipynb+json",
        "txt" => "text/plain",
        other => panic!("name the type of .{other} in expect.toml"),
    }
}

/// The limits of the product, except that the time limit is 10 minutes: a busy machine must not change a result.
/// Hostile files get smaller size limits, so that each one reaches its limit soon in an unoptimised build.
fn limits(hostile: bool) -> Limits {
    let limits = Limits {
        wall_ms: 600_000,
        ..Limits::default()
    };
    if !hostile {
        return limits;
    }
    Limits {
        max_text_bytes: 500_000,
        max_part_bytes: 8 << 20,
        max_inflated_bytes: 16 << 20,
        ..limits
    }
}

fn convert_document(directory: &Path, expected: &Expected, limits: Limits) -> Converted {
    let bytes = std::fs::read(directory.join(&expected.name)).unwrap();
    let hint = ConversionHint {
        mime: expected
            .mime
            .clone()
            .unwrap_or_else(|| mime(&expected.name).to_owned()),
        extension: expected.name.rsplit_once('.').unwrap().1.to_owned(),
        ..ConversionHint::default()
    };
    convert(&mut Cursor::new(bytes), &hint, limits, Selection::All)
}

/// The failure as `expect.toml` writes it: `encrypted`, `corrupt:truncated`, `stopped:size`.
fn words(failure: Failure) -> String {
    let value = serde_json::to_value(failure).unwrap();
    let kind = value["failure"].as_str().unwrap();
    match value["detail"].as_str() {
        Some(detail) => format!("{kind}:{detail}"),
        None => kind.to_owned(),
    }
}

/// The differences from the expectation, one line each.
fn differences(expected: &Expected, conversion: &Converted) -> Vec<String> {
    let mut differences = Vec::new();
    let mut rest = conversion.markdown.as_str();
    for text in &expected.order {
        match rest.split_once(text.as_str()) {
            Some((_, after)) => rest = after,
            None if conversion.markdown.contains(text) => {
                differences.push(format!("out of order: {text:?}"));
            }
            None => differences.push(format!("missing: {text:?}")),
        }
    }
    for text in expected
        .lacks
        .iter()
        .filter(|text| conversion.markdown.contains(*text))
    {
        differences.push(format!("unexpected: {text:?}"));
    }
    let failure = conversion.failure.map(words);
    if failure != expected.failure {
        differences.push(format!("failure {failure:?}, not {:?}", expected.failure));
    }
    let stopped = conversion.stopped.map(|limit| limit.word().to_owned());
    if stopped != expected.stopped {
        differences.push(format!("stopped {stopped:?}, not {:?}", expected.stopped));
    }
    if expected
        .pages
        .is_some_and(|pages| pages != conversion.parts_seen)
    {
        differences.push(format!(
            "{} parts, not {:?}",
            conversion.parts_seen, expected.pages
        ));
    }
    if expected
        .warnings
        .as_ref()
        .is_some_and(|its| *its != conversion.warnings)
    {
        differences.push(format!("warnings {:?}", conversion.warnings));
    }
    differences.extend(untidy(&conversion.markdown));
    differences
}

/// The violations of the common rules of read-attachment 7, one line each.
fn untidy(markdown: &str) -> Vec<String> {
    let mut differences = Vec::new();
    if !markdown.is_empty() && (!markdown.ends_with('\n') || markdown.ends_with("\n\n")) {
        differences.push("does not end with one line end".to_owned());
    }
    let (mut fenced, mut blank) = (false, false);
    for line in markdown.lines() {
        fenced ^= line.trim_start().starts_with("```");
        if !fenced && (line != line.trim_end() || line.contains('\r')) {
            differences.push(format!("blanks at the end of {line:?}"));
        }
        if !fenced && blank && line.is_empty() {
            differences.push("two blank lines in a row".to_owned());
        }
        blank = line.is_empty();
    }
    differences.truncate(5);
    differences
}

/// Converts every file of every family and compares it with its entry.
fn check(kind: &str) {
    let mut report: Vec<String> = Vec::new();
    for directory in families(kind) {
        let mut markdown = BTreeMap::new();
        let all = expectations(&directory);
        for expected in &all {
            let conversion = convert_document(&directory, expected, limits(kind == "hostile"));
            for line in differences(expected, &conversion) {
                report.push(format!("{}: {line}", expected.name));
            }
            markdown.insert(expected.name.clone(), conversion.markdown);
        }
        for expected in &all {
            if let Some(other) = &expected.same_as
                && markdown[&expected.name] != markdown[other]
            {
                report.push(format!("{}: not the same as {other}", expected.name));
            }
        }
    }
    assert!(report.is_empty(), "\n{}", report.join("\n"));
}

#[test]
fn every_document_of_the_corpus_gives_the_expected_result() {
    check("corpus");
}

#[test]
fn every_hostile_document_ends_with_the_expected_limit_and_keeps_readable_text() {
    check("hostile");
}
