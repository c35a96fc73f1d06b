//! Plain text, code, CSV, JSON, notebooks (read-attachment 7.1 to 7.3).

mod csv;
mod json;
mod notebook;
pub(crate) mod payload;
mod plain;
pub(crate) mod source;
#[cfg(test)]
pub(crate) mod testing;

use super::{ConversionHint, Convert, Converter};

/// Types of text whose name does not begin with `text/`.
const TEXT_APPLICATION_TYPES: &[&str] = &[
    "application/ecmascript",
    "application/graphql",
    "application/javascript",
    "application/sql",
    "application/toml",
    "application/typescript",
    "application/x-httpd-php",
    "application/x-javascript",
    "application/x-sh",
    "application/x-yaml",
    "application/yaml",
];

/// Types whose name begins with `text/` and that belong to another family.
const NON_TEXT_FAMILY_TYPES: &[&str] = &["text/html", "text/xml", "text/rtf", "text/richtext"];

/// One media type for each converter, with its extension.
pub(super) const SAMPLES: &[(&str, &str)] = &[
    ("text/plain", "txt"),
    ("text/markdown", "md"),
    ("text/csv", "csv"),
    ("application/json", "json"),
    ("application/x-ndjson", "jsonl"),
    ("application/x-ipynb+json", "ipynb"),
];

/// The converter of this family for a media type.
pub(super) fn converter(hint: &ConversionHint) -> Option<Converter> {
    let (name, convert): (_, Convert) = match hint.mime.as_str() {
        "text/csv" | "text/tab-separated-values" => ("csv", csv::convert),
        "application/x-ndjson" | "application/ndjson" | "application/jsonl" => {
            ("jsonl", json::write_json_lines)
        }
        "application/x-ipynb+json" => ("notebook", notebook::convert),
        "text/markdown" | "text/x-markdown" => ("markdown", plain::convert_markdown),
        "application/json" | "text/json" => ("json", json::convert),
        mime if mime.ends_with("+json") => ("json", json::convert),
        mime if NON_TEXT_FAMILY_TYPES.contains(&mime) || mime.ends_with("+xml") => return None,
        // This arm is the last, since nearly every type of the families above begins so as well.
        mime if mime.starts_with("text/")
            || mime.ends_with("+yaml")
            || TEXT_APPLICATION_TYPES.contains(&mime) =>
        {
            ("text", plain::convert)
        }
        _ => return None,
    };
    Some(Converter { name, convert })
}
