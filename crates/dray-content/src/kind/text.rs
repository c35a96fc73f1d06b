//! Text: valid UTF-8 without NUL in its first 8 KiB; which sort, the name says.

use super::markup::{self, MarkupRoot};
use super::sniff::SniffResult;
use super::types::{ContentKind, DocumentKind, ExecutableKind};

/// How much is looked at.
const SNIFF_BYTES: usize = 8 * 1024;

/// Sorts of text by extension: what people call it, and its media type.
const TEXT_TYPES: &[(&[&str], &str, &str)] = &[
    (&["txt", "text", "log"], "text/plain", "txt"),
    (&["md", "markdown"], "text/markdown", "md"),
    (&["csv"], "text/csv", "csv"),
    (&["tsv"], "text/tab-separated-values", "tsv"),
    (
        &["json", "jsonl", "ndjson", "ipynb"],
        "application/json",
        "json",
    ),
    (&["geojson"], "application/geo+json", "geojson"),
    (&["xml", "xsd", "xsl"], "application/xml", "xml"),
    (&["gpx"], "application/gpx+xml", "gpx"),
    (&["kml"], "application/vnd.google-earth.kml+xml", "kml"),
    (&["yaml", "yml"], "application/yaml", "yaml"),
    (&["toml"], "application/toml", "toml"),
    (&["css"], "text/css", "css"),
    (&["js", "mjs", "cjs"], "text/javascript", "js"),
    (&["py"], "text/x-python", "py"),
    (&["rs"], "text/x-rust", "rs"),
    (&["c", "h"], "text/x-c", "c"),
    (&["cpp", "cc", "hpp"], "text/x-c++", "cpp"),
    (&["java"], "text/x-java", "java"),
    (&["go"], "text/x-go", "go"),
    (&["ts", "tsx", "jsx"], "text/x-typescript", "ts"),
    (&["sh", "bash"], "text/x-shellscript", "sh"),
    (&["sql"], "application/sql", "sql"),
    (&["diff", "patch"], "text/x-diff", "diff"),
    (&["tex"], "text/x-tex", "tex"),
    (&["ics"], "text/calendar", "ics"),
    (&["vcf"], "text/vcard", "vcf"),
    (&["srt"], "application/x-subrip", "srt"),
    (&["vtt"], "text/vtt", "vtt"),
    (&["eml"], "message/rfc822", "eml"),
    (&["pem", "crt", "key"], "application/x-pem-file", "pem"),
];

/// Text, or nothing when it is not. `whole` when `head` is all of the file.
pub(super) fn sniff(head: &[u8], extension: &str, whole: bool) -> Option<SniffResult> {
    let text = as_text(head, whole)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match (markup::markup_root(text), extension) {
        (Some(MarkupRoot::Svg), _) | (_, "svg") => {
            return Some(SniffResult::of(ContentKind::Document(DocumentKind::Svg)));
        }
        (Some(MarkupRoot::Html), _) | (_, "html" | "htm" | "xhtml" | "shtml") => {
            return Some(SniffResult::of(ContentKind::Document(DocumentKind::Html)));
        }
        (Some(MarkupRoot::Xml), _) if text_type(extension).is_none() => {
            return Some(SniffResult::typed(
                ContentKind::Text,
                "application/xml",
                "xml",
            ));
        }
        _ => {}
    }
    let interpreter = text
        .strip_prefix("#!")
        .map(|rest| rest.trim_start_matches([' ', '\t']));
    if interpreter.is_some_and(|path| path.starts_with('/')) {
        return Some(SniffResult::of(ContentKind::Executable(
            ExecutableKind::Script,
        )));
    }
    Some(match text_type(extension) {
        Some((media_type, extension)) => {
            SniffResult::typed(ContentKind::Text, media_type, extension)
        }
        None => SniffResult::of(ContentKind::Text),
    })
}

/// The media type and usual extension of a sort of text.
pub(super) fn text_type(extension: &str) -> Option<(&'static str, &'static str)> {
    let row = TEXT_TYPES
        .iter()
        .find(|(extensions, _, _)| extensions.contains(&extension))?;
    Some((row.1, row.2))
}

/// The start of a text. A character may be cut at the end of what is looked at, not at the end of the file.
fn as_text(head: &[u8], whole: bool) -> Option<&str> {
    let seen = head.get(..SNIFF_BYTES.min(head.len()))?;
    if seen.is_empty() || seen.contains(&0) {
        return None;
    }
    match str::from_utf8(seen) {
        Ok(text) => Some(text),
        Err(error) if error.error_len().is_none() && !(whole && seen.len() == head.len()) => {
            str::from_utf8(seen.get(..error.valid_up_to())?)
                .ok()
                .filter(|text| !text.is_empty())
        }
        Err(_) => None,
    }
}
