//! Edits of TOML that keep comments, order and layout, through `toml_edit`.

use serde_json::Value;
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike};

use super::edit::EditError;

const BYTE_ORDER_MARK: char = '\u{feff}';

/// The values of a text.
pub(super) fn parse_value(text: &str) -> Result<Value, EditError> {
    ::toml::from_str(text).map_err(|error| syntax_error(text, error.span(), error.message()))
}

/// Writes `value` at `path`, as a table with its own header if the file allows that.
pub(super) fn set_entry(text: &str, path: &[&str], value: &Value) -> Result<String, EditError> {
    let mut document = parse_document(text)?;
    let (name, parents) = split_path(path)?;
    let mut table: &mut dyn TableLike = document.as_table_mut();
    // A table in braces, or one with dotted keys, cannot contain a table with a header.
    let mut is_inline = false;
    for key in parents {
        let item = table.entry(key).or_insert_with(|| {
            let mut parent = Table::new();
            // An implicit table has no header of its own.
            parent.set_implicit(true);
            Item::Table(parent)
        });
        is_inline |= item.is_inline_table() || item.as_table().is_some_and(Table::is_dotted);
        table = item.as_table_like_mut().ok_or_else(|| not_a_table(key))?;
    }
    let entry = if is_inline {
        Item::Value(toml_edit::Value::InlineTable(inline_table(value)))
    } else {
        let mut entry = header_table(value);
        let old = table.get(name).and_then(Item::as_table);
        match old {
            // Comments above the header stay, and the table stays in its place.
            Some(old) => {
                *entry.decor_mut() = old.decor().clone();
                entry.set_position(old.position());
            }
            None if !text.trim().is_empty() => entry.decor_mut().set_prefix("\n"),
            None => {}
        }
        Item::Table(entry)
    };
    table.insert(name, entry);
    Ok(restore_bytes(text, &document.to_string()))
}

/// Removes the entry at `path`, and tables on the path without other content.
pub(super) fn remove_entry(text: &str, path: &[&str]) -> Result<String, EditError> {
    let mut document = parse_document(text)?;
    remove_from(document.as_table_mut(), path)?;
    Ok(restore_bytes(text, &document.to_string()))
}

/// Gives unchanged lines of an edited text their original bytes, because `toml_edit` writes every line end as a line
/// feed and no byte order mark. New lines end as the first line of the original does.
fn restore_bytes(original: &str, edited: &str) -> String {
    let (mark, original) = match original.strip_prefix(BYTE_ORDER_MARK) {
        Some(rest) => ("\u{feff}", rest),
        None => ("", original),
    };
    let original_lines: Vec<&str> = original.split_inclusive('\n').collect();
    let edited_lines: Vec<&str> = edited.split_inclusive('\n').collect();
    let is_same = |(left, right): &(&&str, &&str)| line_text(left) == line_text(right);
    let equal_before = original_lines
        .iter()
        .zip(&edited_lines)
        .take_while(is_same)
        .count();
    let (_, original_rest) = original_lines.split_at(equal_before);
    let (_, edited_rest) = edited_lines.split_at(equal_before);
    let equal_after = original_rest
        .iter()
        .rev()
        .zip(edited_rest.iter().rev())
        .take_while(is_same)
        .count();
    let line_end = match original_lines.first() {
        Some(line) if line.ends_with("\r\n") => "\r\n",
        _ => "\n",
    };
    let mut restored = mark.to_owned();
    for (index, line) in edited_lines.iter().enumerate() {
        let from_end = edited_lines.len() - index;
        let kept = if index < equal_before {
            original_lines.get(index)
        } else if from_end <= equal_after {
            original_lines.get(original_lines.len() - from_end)
        } else {
            None
        };
        match kept {
            Some(kept) if kept.ends_with('\n') == line.ends_with('\n') => restored.push_str(kept),
            // A new line, or one whose line end was added or removed.
            _ => {
                restored.push_str(line_text(line));
                if line.ends_with('\n') {
                    restored.push_str(line_end);
                }
            }
        }
    }
    restored
}

/// A line without its line end.
fn line_text(line: &str) -> &str {
    let line = line.strip_suffix('\n').unwrap_or(line);
    line.strip_suffix('\r').unwrap_or(line)
}

fn remove_from(table: &mut dyn TableLike, path: &[&str]) -> Result<(), EditError> {
    let (key, rest) = path.split_first().ok_or_else(|| not_a_table(""))?;
    if rest.is_empty() {
        table.remove(key);
        return Ok(());
    }
    let child = table.get_mut(key).ok_or_else(|| not_a_table(key))?;
    let inner = child.as_table_like_mut().ok_or_else(|| not_a_table(key))?;
    remove_from(inner, rest)?;
    let is_empty = inner.is_empty();
    let is_commented = child.as_table().is_some_and(has_comment);
    if is_empty && !is_commented {
        table.remove(key);
    }
    Ok(())
}

fn parse_document(text: &str) -> Result<DocumentMut, EditError> {
    text.trim_start_matches(BYTE_ORDER_MARK)
        .parse()
        .map_err(|error: toml_edit::TomlError| syntax_error(text, error.span(), error.message()))
}

fn syntax_error(text: &str, span: Option<std::ops::Range<usize>>, message: &str) -> EditError {
    let before = span.and_then(|span| text.get(..span.start));
    EditError::Syntax(match before {
        Some(before) => {
            let line = before.matches('\n').count() + 1;
            let last = before.rsplit('\n').next().unwrap_or_default();
            let column = last.chars().count() + 1;
            format!("{message} on line {line} column {column}")
        }
        None => message.to_owned(),
    })
}

fn split_path<'a>(path: &'a [&'a str]) -> Result<(&'a str, &'a [&'a str]), EditError> {
    let (name, parents) = path.split_last().ok_or_else(|| not_a_table(""))?;
    Ok((name, parents))
}

fn not_a_table(key: &str) -> EditError {
    EditError::Unsupported(format!("`{key}` is not a table"))
}

/// Whether a comment is directly above the header of a table.
fn has_comment(table: &Table) -> bool {
    let prefix = table.decor().prefix().and_then(|prefix| prefix.as_str());
    prefix.is_some_and(|prefix| prefix.contains('#'))
}

fn header_table(value: &Value) -> Table {
    let mut table = Table::new();
    for (key, value) in value.as_object().into_iter().flatten() {
        table.insert(key, Item::Value(plain_value(value)));
    }
    table
}

fn inline_table(value: &Value) -> InlineTable {
    let mut table = InlineTable::new();
    for (key, value) in value.as_object().into_iter().flatten() {
        table.insert(key, plain_value(value));
    }
    table
}

fn plain_value(value: &Value) -> toml_edit::Value {
    match value {
        Value::Array(values) => values.iter().map(plain_value).collect::<Array>().into(),
        Value::Object(_) => inline_table(value).into(),
        Value::Bool(value) => (*value).into(),
        Value::Number(number) => match number.as_i64() {
            Some(number) => number.into(),
            None => number.as_f64().unwrap_or_default().into(),
        },
        Value::String(text) => text.as_str().into(),
        // TOML has no null, and no entry has one.
        Value::Null => "".into(),
    }
}

#[cfg(test)]
mod tests;
