//! Edits of YAML that leave every other line as it is.
//!
//! Only block style is edited: a table of servers at the left edge, and one entry below it. The workspace has no editor
//! for YAML that keeps comments, so lines are inserted and removed; `edit` compares the values afterwards.

use serde_json::Value;

use super::edit::EditError;

/// Words that YAML 1.1 or 1.2 reads as something other than text.
const RESERVED_WORDS: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];

/// Indentation of entries in a new table.
const DEFAULT_INDENT: usize = 2;

/// The values of a text; null for an empty one.
pub(super) fn parse_value(text: &str) -> Result<Value, EditError> {
    if text.trim().is_empty() {
        return Ok(Value::Null);
    }
    // `y`, `no` and similar words are text and not booleans.
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let problem = "it is not valid YAML";
        EditError::Syntax(match error.location() {
            Some(at) => format!("{problem} on line {} column {}", at.line(), at.column()),
            None => problem.to_owned(),
        })
    })
}

/// Writes `value` at `path`: the table of servers and the name of the entry.
pub(super) fn set_entry(text: &str, path: &[&str], value: &Value) -> Result<String, EditError> {
    let (table_key, name) = split_path(path)?;
    let mut lines = TextLines::new(text);
    let Some(table) = lines.find_table(table_key)? else {
        lines.end_last_line();
        let mut block = vec![format!("{table_key}:")];
        write_entry(name, value, DEFAULT_INDENT, DEFAULT_INDENT, &mut block);
        lines.insert(lines.0.len(), &block);
        return Ok(lines.join());
    };
    let indent = lines.child_indent(&table).unwrap_or(DEFAULT_INDENT);
    let mut block = Vec::new();
    write_entry(name, value, indent, indent.min(4), &mut block);
    if let Some(entry) = lines.find_entry(&table, name) {
        lines.0.drain(entry.clone());
        lines.insert(entry.start, &block);
    } else {
        lines.open_table(&table, table_key);
        lines.end_last_line();
        lines.insert(table.end, &block);
    }
    Ok(lines.join())
}

/// Removes the entry at `path`, and the table if it has no other content.
pub(super) fn remove_entry(text: &str, path: &[&str]) -> Result<String, EditError> {
    let (table_key, name) = split_path(path)?;
    let mut lines = TextLines::new(text);
    let table = lines.find_table(table_key)?;
    let table = table.ok_or_else(|| unsupported_error("the table is not in block style"))?;
    let entry = lines.find_entry(&table, name);
    let entry = entry.ok_or_else(|| unsupported_error("the entry is not in block style"))?;
    let removed = entry.len();
    lines.0.drain(entry);
    let inner = table.start + 1..table.end.saturating_sub(removed);
    let rest = lines.0.get(inner.clone()).unwrap_or_default();
    if rest.iter().all(|line| line.trim().is_empty()) {
        lines.0.drain(table.start..inner.end);
    } else if rest.iter().all(|line| !is_content(line)) {
        // Comments are left: a key without a value would be null.
        lines.replace_line(table.start, &format!("{table_key}: {{}}"));
    }
    Ok(lines.join())
}

fn split_path<'a>(path: &[&'a str]) -> Result<(&'a str, &'a str), EditError> {
    match path {
        [table, name] => Ok((table, name)),
        _ => Err(unsupported_error("the path of the entry is not known")),
    }
}

fn unsupported_error(reason: &str) -> EditError {
    EditError::Unsupported(reason.to_owned())
}

/// The lines of a text, each with its line break.
struct TextLines(Vec<String>);

type LineRange = std::ops::Range<usize>;

impl TextLines {
    fn new(text: &str) -> Self {
        Self(text.split_inclusive('\n').map(str::to_owned).collect())
    }

    fn join(&self) -> String {
        self.0.concat()
    }

    fn newline(&self) -> &'static str {
        if self.0.iter().any(|line| line.ends_with("\r\n")) {
            "\r\n"
        } else {
            "\n"
        }
    }

    fn insert(&mut self, index: usize, block: &[String]) {
        let newline = self.newline();
        let block = block.iter().map(|line| format!("{line}{newline}"));
        self.0.splice(index..index, block);
    }

    fn replace_line(&mut self, index: usize, text: &str) {
        let newline = self.newline();
        if let Some(line) = self.0.get_mut(index) {
            *line = format!("{text}{newline}");
        }
    }

    /// Gives the last line a line break, if it has none.
    fn end_last_line(&mut self) {
        let newline = self.newline();
        if let Some(last) = self.0.last_mut().filter(|line| !line.ends_with('\n')) {
            last.push_str(newline);
        }
    }

    /// The line of a key at the left edge, and the lines of its value.
    fn find_table(&self, key: &str) -> Result<Option<LineRange>, EditError> {
        let is_table_line =
            |line: &String| indent_of(line) == 0 && value_of_key(line, key).is_some();
        let Some(start) = self.0.iter().position(is_table_line) else {
            return Ok(None);
        };
        let value = self.0.get(start).and_then(|line| value_of_key(line, key));
        let value = value.map(without_comment).unwrap_or_default();
        if !matches!(value, "" | "{}" | "null" | "~") {
            return Err(EditError::Unsupported(format!(
                "`{key}` is not written in block style"
            )));
        }
        let end = self.end_of_block(start, 0);
        if self
            .0
            .get(start + 1..end)
            .unwrap_or_default()
            .iter()
            .any(|line| {
                is_content(line)
                    && line.trim_start().starts_with("- ")
                    && Some(indent_of(line)) == self.child_indent(&(start..end))
            })
        {
            return Err(EditError::Unsupported(format!("`{key}` is a list")));
        }
        Ok(Some(start..end))
    }

    /// The lines of an entry of a table.
    fn find_entry(&self, table: &LineRange, name: &str) -> Option<LineRange> {
        let indent = self.child_indent(table)?;
        let start = (table.start + 1..table.end).find(|index| {
            let line = self.0.get(*index);
            line.is_some_and(|line| indent_of(line) == indent && value_of_key(line, name).is_some())
        })?;
        Some(start..self.end_of_block(start, indent))
    }

    /// The line after the value of the key at `start`: after its last content, and comments that are indented deeper.
    fn end_of_block(&self, start: usize, indent: usize) -> usize {
        let mut end = start + 1;
        for (index, line) in self.0.iter().enumerate().skip(start + 1) {
            if line.trim().is_empty() {
                continue;
            }
            let is_inside = indent_of(line) > indent;
            if is_content(line) && !is_inside {
                break;
            }
            if is_inside {
                end = index + 1;
            }
        }
        end
    }

    /// Indentation of the entries of a table.
    fn child_indent(&self, table: &LineRange) -> Option<usize> {
        let inner = self.0.get(table.start + 1..table.end)?;
        inner
            .iter()
            .find(|line| is_content(line))
            .map(|line| indent_of(line))
    }

    /// Turns `key: {}` into `key:`, and keeps a comment after it.
    fn open_table(&mut self, table: &LineRange, key: &str) {
        let Some(line) = self.0.get(table.start) else {
            return;
        };
        let Some(value) = value_of_key(line, key) else {
            return;
        };
        let plain = without_comment(value);
        if plain.is_empty() {
            return;
        }
        let comment = value.trim().strip_prefix(plain).unwrap_or_default().trim();
        let opened = if comment.is_empty() {
            format!("{key}:")
        } else {
            format!("{key}: {comment}")
        };
        self.replace_line(table.start, &opened);
    }
}

/// Number of spaces at the start of a line.
fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// Whether a line is more than white space or a comment.
fn is_content(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with('#')
}

/// The text after `key:` on its line.
fn value_of_key<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let line = line.trim_start_matches(' ').trim_end();
    let rest = ["", "\"", "'"].iter().find_map(|quote| {
        let line = line.strip_prefix(quote)?.strip_prefix(key)?;
        line.strip_prefix(quote)
    })?;
    let value = rest.trim_start_matches(' ').strip_prefix(':')?;
    (value.is_empty() || value.starts_with([' ', '\t'])).then_some(value)
}

/// The text before a comment.
fn without_comment(value: &str) -> &str {
    let value = value.trim();
    if value.starts_with('#') {
        return "";
    }
    value
        .split_once(" #")
        .map_or(value, |(value, _)| value.trim_end())
}

/// Writes an entry in block style: `indent` spaces before its name, `step` more before its fields.
fn write_entry(name: &str, value: &Value, indent: usize, step: usize, lines: &mut Vec<String>) {
    let spaces = " ".repeat(indent);
    let name = scalar_text(name);
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            lines.push(format!("{spaces}{name}:"));
            for (key, value) in fields {
                write_entry(key, value, indent + step, step, lines);
            }
        }
        Value::Array(values) if !values.is_empty() => {
            lines.push(format!("{spaces}{name}:"));
            let item_spaces = " ".repeat(indent + step);
            let items = values.iter().map(plain_text);
            lines.extend(items.map(|item| format!("{item_spaces}- {item}")));
        }
        _ => lines.push(format!("{spaces}{name}: {}", plain_text(value))),
    }
}

fn plain_text(value: &Value) -> String {
    match value {
        Value::String(text) => scalar_text(text),
        // Numbers, truth values and empty lists are the same in JSON and YAML.
        other => other.to_string(),
    }
}

/// A string, in double quotes unless it can only be parsed as a string. JSON escapes are valid in YAML.
fn scalar_text(text: &str) -> String {
    let starts_plain = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/');
    let is_plain =
        |character: char| character.is_ascii_alphanumeric() || "_-./".contains(character);
    let is_reserved = RESERVED_WORDS.contains(&text.to_ascii_lowercase().as_str());
    if starts_plain && text.chars().all(is_plain) && !is_reserved {
        text.to_owned()
    } else {
        Value::from(text).to_string()
    }
}

#[cfg(test)]
mod tests;
