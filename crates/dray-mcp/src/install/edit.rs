//! One change of one entry in the text of a configuration, and the check that it made no other change.
//!
//! The editors of the formats change as little text as possible. [`apply_change`] then parses the text before and after
//! the change and compares all values, so that an unusual file is refused rather than damaged.

use serde_json::{Map, Value};

use super::client::ConfigFormat;
use super::{json, toml, yaml};

/// The change of the server's entry by an edit of a configuration file.
#[derive(Clone, Copy, Debug)]
pub(super) enum EntryChange<'a> {
    /// The entry has this value afterwards.
    Set {
        value: &'a Value,
        /// Whether an entry with another value is overwritten.
        replace: bool,
    },
    /// Removes the entry, and tables without other content.
    Remove,
}

/// The result of a change.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EditResult {
    /// The text already has the requested entry, or does not have the entry to remove.
    Unchanged,
    /// The entry was added to the text.
    Added(String),
    /// The entry had another value.
    Replaced(String),
    /// The entry was removed from the text.
    Removed(String),
    /// The entry was removed, and the file has neither entries nor comments now.
    Emptied(String),
}

/// The reason why a text was not changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EditError {
    /// The text is not valid in its format; with the place.
    Syntax(String),
    /// The entry has another value, which may not be replaced.
    Occupied,
    /// The text has a form that is not edited.
    Unsupported(String),
}

/// Changes the entry at `path`: the keys from the root to the entry.
pub(super) fn apply_change(
    format: ConfigFormat,
    text: &str,
    path: &[&str],
    change: EntryChange<'_>,
) -> Result<EditResult, EditError> {
    let before = parse_config(format, text)?;
    let current = lookup_value(&before, path);
    let result = match change {
        EntryChange::Set { value, replace } => match current {
            Some(current) if current == value => return Ok(EditResult::Unchanged),
            Some(_) if !replace => return Err(EditError::Occupied),
            _ => {
                let edited = set_entry(format, text, path, value)?;
                if current.is_some() {
                    EditResult::Replaced(edited)
                } else {
                    EditResult::Added(edited)
                }
            }
        },
        EntryChange::Remove if current.is_none() => return Ok(EditResult::Unchanged),
        EntryChange::Remove => {
            let edited = match format {
                ConfigFormat::Json => json::remove_entry(text, path),
                ConfigFormat::Toml => toml::remove_entry(text, path),
                ConfigFormat::Yaml => yaml::remove_entry(text, path),
            }?;
            if is_blank(&edited) {
                EditResult::Emptied(edited)
            } else {
                EditResult::Removed(edited)
            }
        }
    };
    verify_change(format, before, path, change, &result)?;
    Ok(result)
}

/// Only the entry, in the format of the file.
pub(super) fn render_entry(
    format: ConfigFormat,
    path: &[&str],
    value: &Value,
) -> Result<String, EditError> {
    set_entry(format, "", path, value)
}

/// All values of a configuration. An empty text is an empty table.
pub(super) fn parse_config(format: ConfigFormat, text: &str) -> Result<Value, EditError> {
    let value = match format {
        ConfigFormat::Json => json::parse_value(text),
        ConfigFormat::Toml => toml::parse_value(text),
        ConfigFormat::Yaml => yaml::parse_value(text),
    }?;
    match value {
        Value::Null => Ok(Value::Object(Map::new())),
        Value::Object(_) => Ok(value),
        _ => Err(EditError::Syntax(
            "the file does not hold a table of settings".to_owned(),
        )),
    }
}

/// The value at `path`.
pub(super) fn lookup_value<'a>(root: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(root, |value, key| value.get(key))
}

fn set_entry(
    format: ConfigFormat,
    text: &str,
    path: &[&str],
    value: &Value,
) -> Result<String, EditError> {
    match format {
        ConfigFormat::Json => json::set_entry(text, path, value),
        ConfigFormat::Toml => toml::set_entry(text, path, value),
        ConfigFormat::Yaml => yaml::set_entry(text, path, value),
    }
}

/// Compares the values of the edited text with those that the change should have led to.
fn verify_change(
    format: ConfigFormat,
    before: Value,
    path: &[&str],
    change: EntryChange<'_>,
    result: &EditResult,
) -> Result<(), EditError> {
    let (EditResult::Added(edited)
    | EditResult::Replaced(edited)
    | EditResult::Removed(edited)
    | EditResult::Emptied(edited)) = result
    else {
        return Ok(());
    };
    let unsafe_edit = || EditError::Unsupported("its layout is unusual".to_owned());
    let mut actual = parse_config(format, edited).map_err(|_| unsafe_edit())?;
    let mut expected = before;
    let expected_value = match change {
        EntryChange::Set { value, .. } => Some(value),
        EntryChange::Remove => None,
    };
    change_value(&mut expected, path, expected_value);
    // An empty table of servers and none mean the same to every client.
    prune_empty_tables(&mut actual, path);
    prune_empty_tables(&mut expected, path);
    if actual == expected {
        Ok(())
    } else {
        Err(unsafe_edit())
    }
}

fn change_value(root: &mut Value, path: &[&str], value: Option<&Value>) {
    let Some((name, parents)) = path.split_last() else {
        return;
    };
    let mut table = root;
    for key in parents {
        let Some(entries) = table.as_object_mut() else {
            return;
        };
        let child = entries.entry(*key).or_insert(Value::Null);
        if child.is_null() {
            *child = Value::Object(Map::new());
        }
        table = child;
    }
    let Some(entries) = table.as_object_mut() else {
        return;
    };
    match value {
        Some(value) => {
            entries.insert((*name).to_owned(), value.clone());
        }
        None => {
            entries.shift_remove(*name);
        }
    }
}

/// Removes empty tables on the path to the entry.
fn prune_empty_tables(root: &mut Value, path: &[&str]) {
    let Some((key, rest)) = path.split_first() else {
        return;
    };
    let Some(entries) = root.as_object_mut() else {
        return;
    };
    let Some(child) = entries.get_mut(*key) else {
        return;
    };
    prune_empty_tables(child, rest);
    let is_empty = child.is_null() || child.as_object().is_some_and(Map::is_empty);
    if is_empty && !rest.is_empty() {
        entries.shift_remove(*key);
    }
}

/// Whether a text has neither an entry nor a comment.
fn is_blank(text: &str) -> bool {
    let text = text.trim_start_matches('\u{feff}');
    let rest: String = text.split_whitespace().collect();
    rest.is_empty() || rest == "{}"
}
