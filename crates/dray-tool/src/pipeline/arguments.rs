//! Converts the arguments of the model to those of the tool.

use dray_types::reference::{FileReference, ParsedReference};
use serde_json::{Map, Value};

use crate::{ArgumentResolver, CallRules, FileIds, ToolFailure};

/// Prefixes that are removed from arguments that accept only a reference, never its content.
const REFERENCE_FORMS: [&str; 4] = ["base64::", "url::", "text::", "data::"];

/// Parses the arguments of a call from JSON text. An empty text means no arguments.
///
/// # Errors
///
/// The problem, in a sentence for the model.
pub fn parse_arguments(text: &str) -> Result<Map<String, Value>, String> {
    if text.trim().is_empty() {
        // Some models send an empty text for a call without arguments (quickapps 18.2).
        return Ok(Map::new());
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(other) => Err(format!("it is {}", json_kind(&other))),
        Err(error) => Err(error.to_string()),
    }
}

const fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// The arguments as the tool gets them: references replaced by content, or by bare references for arguments that accept
/// only those, and ids of files by addresses or links for a tool that takes these.
pub(super) async fn resolve_arguments(
    tool: &str,
    written: &Map<String, Value>,
    rules: &CallRules,
    resolver: &dyn ArgumentResolver,
) -> Result<Map<String, Value>, ToolFailure> {
    let is_bare = |name: &String| rules.by_reference.contains(name);
    let mut bare = Map::new();
    let mut content = Map::new();
    for (name, value) in written {
        if is_bare(name) {
            // The content of these references is not loaded: the tool itself uses the address (quickapps 25.1).
            let mut value = strip_references(value);
            if rules.file_ids != FileIds::Kept {
                resolver.replace_ids_by_addresses(&mut value);
            }
            bare.insert(name.clone(), value);
        } else {
            content.insert(name.clone(), value.clone());
        }
    }
    if rules.file_ids == FileIds::Links {
        // Before the references: content of a file that happens to be an id stays as it is.
        content = resolver.replace_ids(content).await?;
    }
    if content.values().any(has_reference) {
        content = resolver.resolve(tool, content).await?;
    }
    if bare.is_empty() {
        return Ok(content);
    }
    // The model's order of the arguments is kept.
    let mut resolved = Map::new();
    for name in written.keys() {
        let value = bare
            .shift_remove(name)
            .or_else(|| content.shift_remove(name));
        resolved.extend(value.map(|value| (name.clone(), value)));
    }
    resolved.extend(content);
    Ok(resolved)
}

/// Whether a value contains a reference at any depth.
fn has_reference(value: &Value) -> bool {
    match value {
        Value::String(text) => FileReference::parse(text) != ParsedReference::Plain,
        Value::Array(items) => items.iter().any(has_reference),
        // This search goes deeper than the resolver does by default; the resolver decides which references it replaces.
        Value::Object(members) => members.values().any(has_reference),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The value without `file:…::`, even in the items of a list.
fn strip_references(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::from(strip_reference(text)),
        Value::Array(items) => Value::Array(items.iter().map(strip_references).collect()),
        // Nested values stay as they are (quickapps 30.1).
        other => other.clone(),
    }
}

fn strip_reference(text: &str) -> &str {
    let Some(rest) = strip_keyword(text.trim_start_matches('/'), "file:") else {
        return text;
    };
    let target = REFERENCE_FORMS
        .iter()
        .find_map(|form| strip_keyword(rest, form))
        .filter(|target| !target.is_empty());
    // One final line feed belongs to the form, not to the address (quickapps 30.2).
    target.map_or(text, |target| target.strip_suffix('\n').unwrap_or(target))
}

fn strip_keyword<'a>(text: &'a str, keyword: &str) -> Option<&'a str> {
    let head = text.get(..keyword.len())?;
    let rest = text.get(keyword.len()..)?;
    head.eq_ignore_ascii_case(keyword).then_some(rest)
}
