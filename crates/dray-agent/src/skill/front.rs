//! The front matter of a skill: YAML between two lines of three dashes.

use serde_json::{Map, Value};

const NO_FRONT_MATTER: &str = "No YAML frontmatter found";
const NO_MAP: &str = "YAML frontmatter is not a dictionary";

/// The fields before the text.
#[derive(Debug)]
pub(super) struct FrontMatter {
    pub(super) fields: Map<String, Value>,
    /// Whether values had to be quoted first.
    pub(super) repaired: bool,
}

/// Reads the front matter of a document. With `repairs`, unquoted values with colons are read as text.
pub(super) fn read_front_matter(markdown: &str, repairs: bool) -> Result<FrontMatter, String> {
    let (before, yaml) = split_front_matter(markdown).ok_or_else(|| NO_FRONT_MATTER.to_owned())?;
    let (value, repaired) = match parse_yaml(yaml) {
        Ok(value) => (value, false),
        Err(location) => {
            let repaired_yaml = if repairs {
                quote_colon_values(yaml)
            } else {
                None
            };
            let value = repaired_yaml.and_then(|yaml| parse_yaml(&yaml).ok());
            (
                value.ok_or_else(|| broken_yaml_message(location, before))?,
                true,
            )
        }
    };
    match value {
        Value::Object(fields) => Ok(FrontMatter { fields, repaired }),
        _ => Err(NO_MAP.to_owned()),
    }
}

/// The position of an error in YAML: line and column from 1, if it is known.
type YamlLocation = Option<(u64, u64)>;

fn parse_yaml(yaml: &str) -> Result<Value, YamlLocation> {
    // `y`, `no` and similar words are text and not booleans.
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(yaml, options)
        .map_err(|error| error.location().map(|at| (at.line(), at.column())))
}

/// `before` is the number of lines before the YAML.
fn broken_yaml_message(location: YamlLocation, before: u64) -> String {
    match location {
        Some((line, column)) => {
            let line = line.saturating_add(before);
            format!("Failed to parse YAML frontmatter: line {line}, column {column}")
        }
        None => "Failed to parse YAML frontmatter: it is malformed".to_owned(),
    }
}

/// The YAML, and how many lines are before it.
fn split_front_matter(markdown: &str) -> Option<(u64, &str)> {
    // Some editors write a byte order mark.
    let text = markdown.trim_start_matches('\u{feff}').trim_start();
    let (first, rest) = text.split_once('\n')?;
    if first.trim_end() != "---" {
        return None;
    }
    let mut end = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == "---" {
            let start = markdown.len() - rest.len();
            // Lines are counted in the whole document, so that messages name the line numbers that the author sees.
            let before = markdown.get(..start)?.matches('\n').count();
            return Some((u64::try_from(before).ok()?, rest.get(..end)?));
        }
        end += line.len();
    }
    None
}

/// The YAML with quotes around values whose colon YAML would parse as a mapping; `None` without such a value.
fn quote_colon_values(yaml: &str) -> Option<String> {
    let mut changed = false;
    let mut block = None;
    let mut lines = Vec::new();
    for line in yaml.lines() {
        let indent = line.len() - line.trim_start().len();
        // Lines of a block scalar are text.
        if block.is_some_and(|outer| indent > outer || line.trim().is_empty()) {
            lines.push(line.to_owned());
            continue;
        }
        block = None;
        let quoted = line.split_once(": ").and_then(|(key, value)| {
            let value = value.trim();
            if value.starts_with(['|', '>']) {
                block = Some(indent);
            }
            // A JSON string is a double-quoted scalar of YAML too.
            needs_quotes(key, value).then(|| format!("{key}: {}", Value::from(value)))
        });
        changed |= quoted.is_some();
        lines.push(quoted.unwrap_or_else(|| line.to_owned()));
    }
    changed.then(|| lines.join("\n"))
}

/// Whether a value would be plain text without its colons.
fn needs_quotes(key: &str, value: &str) -> bool {
    let is_key = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let key = key.trim_start();
    !key.is_empty()
        && key.bytes().all(is_key)
        // These characters begin something other than a plain scalar: quotes, flow, block, anchor, tag, comment.
        && !value.starts_with([
            '"', '\'', '[', '{', '|', '>', '&', '*', '!', '#', '%', '@', '`',
        ])
        && (value.contains(": ") || value.ends_with(':'))
}
