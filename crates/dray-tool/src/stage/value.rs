//! Argument values as stages show them to people (R8): references with the size of the file instead of its bytes, URLs
//! without user info and query, and long values cut, with their full length.

use dray_types::RedactedUrl;
use dray_types::reference::{FileReference, ParsedReference, ReferenceForm};
use serde_json::{Map, Value};

/// Longest value of one argument, in characters.
const MAX_VALUE_CHARACTERS: usize = 1000;

/// Longest `data:` URL that is shown uncut, in characters.
const MAX_DATA_CHARACTERS: usize = 100;

/// The part of a value that a stage shows. `resolved`, the value that the tool got, is used only for sizes.
pub fn shown_value(written: &Value, resolved: Option<&Value>) -> Value {
    match written {
        Value::String(text) => Value::String(shown_text(text, resolved.and_then(Value::as_str))),
        Value::Array(items) => {
            let resolved = resolved.and_then(Value::as_array);
            let item = |(index, item)| {
                shown_value(item, resolved.and_then(|resolved| resolved.get(index)))
            };
            Value::Array(items.iter().enumerate().map(item).collect())
        }
        Value::Object(members) => {
            let resolved = resolved.and_then(Value::as_object);
            let member = |(name, value): (&String, &Value)| {
                let resolved = resolved.and_then(|resolved| resolved.get(name));
                (name.clone(), shown_value(value, resolved))
            };
            Value::Object(members.iter().map(member).collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}

/// A value on one line: text unchanged, other values as JSON; at most `limit` characters plus a mark that it was cut.
pub fn value_line(written: &Value, limit: usize) -> String {
    let whole = plain_text(&shown_value(written, None));
    let mut line: String = whole
        .chars()
        .map(|character| {
            if character.is_control() {
                ' '
            } else {
                character
            }
        })
        .take(limit)
        .collect();
    if whole.chars().nth(limit).is_some() {
        line.push('…');
    }
    line
}

/// Text unchanged, other values as JSON.
pub fn plain_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Cuts a text that is longer than `limit` characters and appends its full length.
pub fn shorten_text(text: &str, limit: usize) -> String {
    // A text has at least as many bytes as characters, so this check is fast.
    if text.len() <= limit {
        return text.to_owned();
    }
    match text.char_indices().nth(limit) {
        None => text.to_owned(),
        Some((end, _)) => format!(
            "{}… ({} characters)",
            text.get(..end).unwrap_or_default(),
            text.chars().count()
        ),
    }
}

fn shown_text(written: &str, resolved: Option<&str>) -> String {
    let is_data = |text: &str| {
        text.get(..5)
            .is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:"))
    };
    if is_data(written) && written.len() > MAX_DATA_CHARACTERS {
        return data_url_label(written);
    }
    let reference = FileReference::parse(written);
    let shown = match &reference {
        ParsedReference::Reference(reference) if is_data(reference.target) => {
            let at = written.len() - reference.target.len();
            let head = written.get(..at).unwrap_or_default();
            format!("{head}{}", data_url_label(reference.target))
        }
        // Secrets are removed before the cut: half of an address might not be recognised as one.
        _ => shorten_text(&without_secrets(written), MAX_VALUE_CHARACTERS),
    };
    match reference_size(&reference, written, resolved) {
        Some(bytes) => format!("{shown} ({bytes} bytes)"),
        None => shown,
    }
}

/// The type and the length of a `data:` URL, shown in its place.
fn data_url_label(url: &str) -> String {
    let head = url.split_once(',').map_or("data:", |(head, _)| head);
    format!(
        "{},… ({} characters)",
        shorten_text(head, MAX_DATA_CHARACTERS),
        url.chars().count()
    )
}

/// The size of the file behind a reference, derived from the value that replaced the reference.
fn reference_size(
    reference: &ParsedReference<'_>,
    written: &str,
    resolved: Option<&str>,
) -> Option<usize> {
    // Equal values mean that the reference was not replaced.
    let resolved = resolved.filter(|resolved| *resolved != written)?;
    let base64 = |text: &str| {
        let padding = text.bytes().rev().take_while(|byte| *byte == b'=').count();
        (text.len() / 4 * 3).saturating_sub(padding)
    };
    match reference {
        ParsedReference::Reference(FileReference { form, .. }) => match form {
            ReferenceForm::Base64 => Some(base64(resolved)),
            ReferenceForm::Text => Some(resolved.len()),
            ReferenceForm::Url => None,
        },
        ParsedReference::MissingPrefix => resolved
            .split_once(";base64,")
            .filter(|(head, _)| head.starts_with("data:"))
            .map(|(_, content)| base64(content)),
        ParsedReference::Plain => None,
    }
}

/// The text, with the user, the query and the fragment removed from every address in it.
fn without_secrets(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut rest = text;
    // An address extends from the scheme before `://` to the next space or quote.
    while let Some(mark) = rest.find("://") {
        let (before, _) = rest.split_at(mark);
        let scheme = before.trim_end_matches(|character: char| {
            character.is_ascii_alphanumeric() || matches!(character, '+' | '-' | '.')
        });
        let begin = scheme.len();
        let address = rest.get(begin..).unwrap_or_default();
        let end = address
            .find(|character: char| {
                character.is_whitespace() || matches!(character, '"' | '\'' | '<' | '>' | '`')
            })
            .unwrap_or(address.len());
        let (address, after) = address.split_at(end);
        safe.push_str(scheme);
        if address.contains(['?', '#', '@']) {
            safe.push_str(RedactedUrl::from_text(address).as_str());
        } else {
            safe.push_str(address);
        }
        rest = after;
    }
    safe.push_str(rest);
    safe
}
