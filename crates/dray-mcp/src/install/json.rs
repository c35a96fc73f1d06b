//! Edits of JSON with comments (JSONC) that leave every other byte as it is.
//!
//! `jsonc-parser` gives the positions of members; the text between them, with its comments, is never rewritten.

use std::ops::Range;

use jsonc_parser::ast::{Object, ObjectProp, Value as Node};
use jsonc_parser::common::Ranged as _;
use jsonc_parser::{CollectOptions, ParseOptions};
use serde::Serialize as _;
use serde_json::ser::PrettyFormatter;
use serde_json::{Map, Serializer, Value};

use super::edit::EditError;

const BYTE_ORDER_MARK: char = '\u{feff}';

/// Extensions of JSON that Visual Studio Code and opencode accept: comments and trailing commas.
const JSONC_PARSE_OPTIONS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_loose_object_property_names: false,
    allow_trailing_commas: true,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// The values of a text; null for an empty one.
pub(super) fn parse_value(text: &str) -> Result<Value, EditError> {
    let text = text.trim_start_matches(BYTE_ORDER_MARK);
    jsonc_parser::parse_to_serde_value(text, &JSONC_PARSE_OPTIONS)
        .map_err(|error| EditError::Syntax(error.to_string()))
}

/// Writes `value` at `path`, and creates missing objects on the path.
pub(super) fn set_entry(text: &str, path: &[&str], value: &Value) -> Result<String, EditError> {
    edit_object(text, |text, root| {
        let style = TextStyle::detect(text, root);
        let Some(root) = root else {
            let document = style.pretty(&nest_value(path, value), "");
            // The text has at most comments, which stay before the document.
            return Ok(format!("{text}{document}{}", style.newline));
        };
        let mut object = root;
        for (depth, key) in path.iter().enumerate() {
            let rest = path.get(depth + 1..).unwrap_or_default();
            let Some(member) = only_member(object, key)? else {
                let value = nest_value(rest, value);
                return Ok(style.insert(text, object, key, &value));
            };
            match &member.value {
                Node::Object(child) if !rest.is_empty() => object = child,
                Node::NullKeyword(_) if !rest.is_empty() => {
                    return Ok(style.replace(text, member, &nest_value(rest, value)));
                }
                _ if rest.is_empty() => return Ok(style.replace(text, member, value)),
                _ => return Err(not_a_table(key)),
            }
        }
        Err(EditError::Unsupported("no entry is named".to_owned()))
    })
}

/// Removes the member at `path`, and objects on the path without other content.
pub(super) fn remove_entry(text: &str, path: &[&str]) -> Result<String, EditError> {
    edit_object(text, |text, root| {
        let mut object = root.ok_or_else(|| EditError::Unsupported("it is empty".to_owned()))?;
        let mut target: Option<(&Object<'_>, &ObjectProp<'_>)> = None;
        let mut parent = None;
        for key in path {
            let member = only_member(object, key)?.ok_or_else(|| not_a_table(key))?;
            // The outermost object without other content is removed with the entry.
            let keeps_object =
                parent.is_none_or(|parent| !holds_only(text, parent, object, member));
            if keeps_object {
                target = Some((object, member));
            }
            parent = Some(member);
            match &member.value {
                Node::Object(child) => object = child,
                _ => break,
            }
        }
        let (object, member) = target.ok_or_else(|| not_a_table(""))?;
        Ok(delete_member(text, object, member))
    })
}

/// Parses the text without its byte order mark, and puts the mark back.
fn edit_object(
    text: &str,
    edit: impl FnOnce(&str, Option<&Object<'_>>) -> Result<String, EditError>,
) -> Result<String, EditError> {
    let (mark, text) = match text.strip_prefix(BYTE_ORDER_MARK) {
        Some(rest) => ("\u{feff}", rest),
        None => ("", text),
    };
    let parsed = jsonc_parser::parse_to_ast(text, &CollectOptions::default(), &JSONC_PARSE_OPTIONS)
        .map_err(|error| EditError::Syntax(error.to_string()))?;
    let edited = match &parsed.value {
        None => edit(text, None)?,
        Some(Node::Object(root)) => edit(text, Some(root))?,
        Some(_) => return Err(not_a_table("the document")),
    };
    Ok(format!("{mark}{edited}"))
}

fn not_a_table(key: &str) -> EditError {
    EditError::Unsupported(format!("`{key}` is not an object"))
}

/// The member of a name. Two of the same name are refused, because clients differ in which one they use.
fn only_member<'a, 'text>(
    object: &'a Object<'text>,
    key: &str,
) -> Result<Option<&'a ObjectProp<'text>>, EditError> {
    let mut members = object
        .properties
        .iter()
        .filter(|member| member.name.as_str() == key);
    let first = members.next();
    if members.next().is_some() {
        return Err(EditError::Unsupported(format!("`{key}` occurs twice")));
    }
    Ok(first)
}

fn nest_value(path: &[&str], value: &Value) -> Value {
    path.iter().rev().fold(value.clone(), |inner, key| {
        Value::Object(Map::from_iter([((*key).to_owned(), inner)]))
    })
}

/// Whether `object`, the value of `parent`, has no other member than `member`, and no comment.
fn holds_only(
    text: &str,
    parent: &ObjectProp<'_>,
    object: &Object<'_>,
    member: &ObjectProp<'_>,
) -> bool {
    let between = |from: usize, to: usize| text.get(from..to).map_or("", str::trim);
    let colon = between(parent.name.range().end, object.range.start);
    let before = between(object.range.start + 1, member.range.start);
    let after = between(member.range.end, object.range.end.saturating_sub(1));
    object.properties.len() == 1 && (colon, before) == (":", "") && matches!(after, "" | ",")
}

fn delete_member(text: &str, object: &Object<'_>, member: &ObjectProp<'_>) -> String {
    let members = object.properties.iter();
    let previous = members
        .take_while(|other| other.range != member.range)
        .last();
    let gap_start = previous.map_or(object.range.start + 1, |previous| previous.range.end);
    let mut end = member.range.end;
    let mut edited = text.to_owned();
    let own_comma = following_comma(text, end);
    if let Some(comma) = own_comma {
        edited.replace_range(comma..=comma, "");
        let between = text.get(end..comma).unwrap_or_default();
        // A comment in front of the comma stays.
        if between.trim().is_empty() {
            end = comma;
        }
    }
    let rest = edited.get(end..).unwrap_or_default();
    let start = start_with_indentation(text, gap_start, member.range.start, rest);
    edited.replace_range(start..end, "");
    let previous_comma = previous.and_then(|previous| following_comma(text, previous.range.end));
    // The last member has no comma, so the member before it loses its comma.
    if let (None, Some(comma)) = (own_comma, previous_comma) {
        edited.replace_range(comma..=comma, "");
    }
    edited
}

/// The start of a member with the white space in front, and with the line break unless that ends a comment in front of
/// `rest`.
fn start_with_indentation(text: &str, gap_start: usize, member: usize, rest: &str) -> usize {
    let before = text.get(..member).unwrap_or_default();
    let spaces = before.trim_end_matches([' ', '\t']);
    let line = spaces.strip_suffix('\n').unwrap_or(spaces);
    let line = line.strip_suffix('\r').unwrap_or(line);
    let rest_begins_line = rest.trim_start_matches([' ', '\t', '\r']).starts_with('\n');
    let is_safe = rest_begins_line || !ends_in_line_comment(text, gap_start, line.len());
    let start = if is_safe { line.len() } else { spaces.len() };
    start.max(gap_start)
}

/// Whether a comment up to the end of the line ends at `to`, in a text without members.
fn ends_in_line_comment(text: &str, from: usize, to: usize) -> bool {
    let mut position = from;
    while let Some(rest) = text.get(position..to) {
        let trimmed = rest
            .trim_start_matches(|character: char| character.is_whitespace() || character == ',');
        position += rest.len() - trimmed.len();
        let Some(length) = comment_length(trimmed) else {
            return false;
        };
        position += length;
        if position >= to {
            return trimmed.starts_with("//");
        }
    }
    false
}

/// The position of the comma after a member, after white space and comments.
fn following_comma(text: &str, from: usize) -> Option<usize> {
    let mut position = from;
    loop {
        let rest = text.get(position..)?;
        let trimmed = rest.trim_start();
        position += rest.len() - trimmed.len();
        if trimmed.starts_with(',') {
            return Some(position);
        }
        position += comment_length(trimmed)?;
    }
}

/// The length of the comment that a text begins with.
fn comment_length(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find(['\n', '\r']).unwrap_or(text.len()));
    }
    let inner = text.strip_prefix("/*")?;
    Some(inner.find("*/")? + 4)
}

/// The end of the white space and comments that follow `from` on the same line.
fn end_of_comments(text: &str, from: usize) -> usize {
    let mut position = from;
    loop {
        let rest = text.get(position..).unwrap_or_default();
        let trimmed = rest.trim_start_matches([' ', '\t']);
        let comment = comment_length(trimmed)
            .and_then(|length| trimmed.get(..length))
            .filter(|comment| !comment.contains('\n'));
        let Some(comment) = comment else {
            return position;
        };
        position += rest.len() - trimmed.len() + comment.len();
    }
}

/// Line breaks and indentation of a text.
struct TextStyle {
    newline: &'static str,
    /// One level of indentation.
    indent: String,
}

impl TextStyle {
    fn detect(text: &str, root: Option<&Object<'_>>) -> Self {
        let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let first = root.and_then(|root| root.properties.first());
        let indent = first.and_then(|member| line_indentation(text, member.range.start));
        let indent = indent.filter(|indent| !indent.is_empty());
        Self {
            newline,
            indent: indent.unwrap_or("  ").to_owned(),
        }
    }

    /// A value over several lines; lines after the first begin with `base`.
    fn pretty(&self, value: &Value, base: &str) -> String {
        let mut bytes = Vec::new();
        let formatter = PrettyFormatter::with_indent(self.indent.as_bytes());
        let mut serializer = Serializer::with_formatter(&mut bytes, formatter);
        // Writing a value into memory does not fail.
        let _ = value.serialize(&mut serializer);
        let text = String::from_utf8_lossy(&bytes);
        text.replace('\n', &format!("{}{base}", self.newline))
    }

    fn replace(&self, text: &str, member: &ObjectProp<'_>, value: &Value) -> String {
        let base = line_indentation(text, member.range.start);
        let written = match base {
            Some(base) => self.pretty(value, base),
            None => value.to_string(),
        };
        let range = member.value.range();
        splice_text(text, range.start..range.end, &written)
    }

    fn insert(&self, text: &str, object: &Object<'_>, key: &str, value: &Value) -> String {
        let name = Value::from(key).to_string();
        let Some(last) = object.properties.last() else {
            return self.fill_object(text, object, &name, value);
        };
        let comma = following_comma(text, last.range.end);
        let end = comma.map_or(last.range.end, |comma| comma + 1);
        let trailing = if comma.is_some() { "," } else { "" };
        let edited = match line_indentation(text, last.range.start) {
            Some(indent) => {
                let end = end_of_comments(text, end);
                let value = self.pretty(value, indent);
                let member = format!("{}{indent}{name}: {value}{trailing}", self.newline);
                splice_text(text, end..end, &member)
            }
            // The object is on one line, and stays there.
            None => splice_text(text, end..end, &format!(" {name}: {value}{trailing}")),
        };
        match comma {
            Some(_) => edited,
            None => splice_text(&edited, last.range.end..last.range.end, ","),
        }
    }

    fn fill_object(&self, text: &str, object: &Object<'_>, name: &str, value: &Value) -> String {
        let base = leading_indentation(text, object.range.start);
        let indent = format!("{base}{}", self.indent);
        let value = self.pretty(value, &indent);
        let newline = self.newline;
        let inner = object.range.start + 1..object.range.end.saturating_sub(1);
        let content = text.get(inner.clone()).unwrap_or_default();
        if content.trim().is_empty() {
            let member = format!("{newline}{indent}{name}: {value}{newline}{base}");
            return splice_text(text, inner, &member);
        }
        // Only comments are inside; they follow the member.
        let member = format!("{newline}{indent}{name}: {value}");
        splice_text(text, inner.start..inner.start, &member)
    }
}

/// The white space in front of `position`, if the line has no other text before it.
fn line_indentation(text: &str, position: usize) -> Option<&str> {
    let before = text.get(..position)?;
    let line_start = before.rfind('\n')? + 1;
    before
        .get(line_start..)
        .filter(|indent| indent.trim().is_empty())
}

/// The white space at the start of the line of `position`.
fn leading_indentation(text: &str, position: usize) -> &str {
    let before = text.get(..position).unwrap_or_default();
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = before.get(line_start..).unwrap_or_default();
    line.get(..line.len() - line.trim_start().len())
        .unwrap_or_default()
}

fn splice_text(text: &str, range: Range<usize>, new: &str) -> String {
    let mut edited = text.to_owned();
    edited.replace_range(range, new);
    edited
}

#[cfg(test)]
mod tests;
