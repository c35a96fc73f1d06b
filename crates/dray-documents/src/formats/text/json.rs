//! JSON, indented; order of keys and spelling of numbers are kept (read-attachment 7.3).
//!
//! It uses tokens instead of a tree: a tree would lose the spelling, and tokens allow a limit of depth without
//! recursion.

use super::source;
use crate::container::Input;
use crate::formats::ConversionHint;
use crate::hex::parse_hex;
use crate::limits::{Budget, Failure, Limit};
use crate::markdown::Markdown;

/// Tokens between two checks of the time limit.
const TOKENS_PER_CHECK: u32 = 4096;
/// Lines between two checks of the time limit.
const LINES_PER_CHECK: usize = 256;

/// One JSON text, indented; a text that is not JSON is shown unchanged, with a warning.
pub(super) fn convert(
    input: &mut dyn Input,
    hint: &ConversionHint,
    out: &mut Markdown,
) -> Result<(), Failure> {
    let text = source::read_text(input, hint, out.budget())?;
    write_json(&text, out)
}

/// Writes a JSON text, unchanged if it cannot be read.
pub(super) fn write_json(text: &str, out: &mut Markdown) -> Result<(), Failure> {
    if text.trim().is_empty() {
        return Ok(());
    }
    let room = usize::try_from(out.budget().text_left()).unwrap_or(usize::MAX);
    let budget = out.budget().clone();
    match pretty_print(text, Form::Indented, room, &budget) {
        Ok(pretty) => out.code("json", &pretty)?,
        // A limit is a separate result, because the unchanged text would exceed the same limit.
        Err(JsonError::Limit(limit)) => return Err(limit.into()),
        Err(JsonError::Malformed) => {
            out.warn("the JSON is malformed and shown as it is");
            out.code("", text)?;
        }
        Err(JsonError::Deep) => {
            out.warn("the JSON is nested too deeply and shown as it is");
            out.code("", text)?;
        }
    }
    Ok(())
}

/// Lines of JSON, each compact; a line that cannot be read is not changed.
pub(super) fn write_json_lines(
    input: &mut dyn Input,
    hint: &ConversionHint,
    out: &mut Markdown,
) -> Result<(), Failure> {
    let text = source::read_text(input, hint, out.budget())?;
    let budget = out.budget().clone();
    let room = usize::try_from(budget.text_left()).unwrap_or(usize::MAX);
    let mut written = String::new();
    let mut time_check = Ok(());
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        // Reading the clock for each line would cost more than short lines themselves.
        if index.is_multiple_of(LINES_PER_CHECK) {
            time_check = budget.clock();
        }
        // The lines so far are still written; the error follows after them.
        if time_check.is_err() || written.len() > room {
            break;
        }
        if let Ok(compact) = pretty_print(line, Form::Compact, room, &budget) {
            written.push_str(&compact);
        } else {
            out.warn("a line is not JSON and is shown unchanged");
            written.push_str(line.trim_end());
        }
        written.push('\n');
    }
    if !written.is_empty() {
        out.code("json", &written)?;
    }
    Ok(time_check?)
}

/// The layout of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Indented by two spaces for each level.
    Indented,
    /// No white space between tokens.
    Compact,
}

/// The reason why a text is not printed in the form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JsonError {
    Malformed,
    Deep,
    Limit(Limit),
}

/// Indents or compacts a JSON text. Output beyond `room` bytes is cut, but the text is read to its end: a malformed
/// text is an error.
fn pretty_print(text: &str, form: Form, room: usize, budget: &Budget) -> Result<String, JsonError> {
    let mut printer = Printer {
        rest: text.trim_start_matches('\u{FEFF}'),
        // `room` bounds the allocation for a text that is too large to show.
        out: String::with_capacity(text.len().min(room)),
        form,
        room,
        open: Vec::new(),
    };
    let depth = usize::try_from(budget.limits().max_depth).unwrap_or(usize::MAX);
    let mut tokens = 0;
    let mut expected = Expected::Value;
    while let Some(next) = printer.step(expected, depth)? {
        expected = next;
        tokens += 1;
        if tokens >= TOKENS_PER_CHECK {
            tokens = 0;
            budget.clock().map_err(JsonError::Limit)?;
        }
    }
    Ok(printer.out)
}

/// The tokens that may come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Value,
    /// A value, or the end of an empty array.
    ValueOrEnd,
    Key,
    /// A key, or the end of an empty object.
    KeyOrEnd,
    /// A comma or an end.
    More,
}

struct Printer<'a> {
    rest: &'a str,
    out: String,
    form: Form,
    room: usize,
    /// Whether each open container is an object.
    open: Vec<bool>,
}

impl<'a> Printer<'a> {
    /// Reads one token and returns what may follow; `None` at the end.
    fn step(&mut self, expected: Expected, depth: usize) -> Result<Option<Expected>, JsonError> {
        // Only these four are white space in JSON (RFC 8259, 2); `trim` would remove others too.
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
        let Some(first) = self.rest.bytes().next() else {
            // At the end of the text one complete value must have been read: an empty text is malformed.
            let is_complete = expected == Expected::More && self.open.is_empty();
            return if is_complete {
                Ok(None)
            } else {
                Err(JsonError::Malformed)
            };
        };
        match (expected, first) {
            (Expected::ValueOrEnd, b']') | (Expected::KeyOrEnd, b'}') => {
                self.open.pop();
                self.take(1);
                Ok(Some(Expected::More))
            }
            (Expected::Key | Expected::KeyOrEnd, b'"') => {
                self.indent();
                self.string()?;
                self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
                if !self.rest.starts_with(':') {
                    return Err(JsonError::Malformed);
                }
                self.take(1);
                if self.form == Form::Indented {
                    self.push(" ");
                }
                Ok(Some(Expected::Value))
            }
            (Expected::Value | Expected::ValueOrEnd, _) => {
                if self.open.last() == Some(&false) {
                    self.indent();
                }
                self.value(first, depth).map(Some)
            }
            (Expected::More, b',') => {
                let is_object = *self.open.last().ok_or(JsonError::Malformed)?;
                self.take(1);
                Ok(Some(if is_object {
                    Expected::Key
                } else {
                    Expected::Value
                }))
            }
            (Expected::More, b']' | b'}') => {
                // `[}` and `{]` are malformed.
                if self.open.pop() != Some(first == b'}') {
                    return Err(JsonError::Malformed);
                }
                self.indent();
                self.take(1);
                Ok(Some(Expected::More))
            }
            _ => Err(JsonError::Malformed),
        }
    }

    /// A value, or the beginning of a container.
    fn value(&mut self, first: u8, depth: usize) -> Result<Expected, JsonError> {
        match first {
            b'{' | b'[' => {
                // The stack is explicit, so that depth uses bounded memory instead of the stack of the thread.
                if self.open.len() >= depth {
                    return Err(JsonError::Deep);
                }
                self.open.push(first == b'{');
                self.take(1);
                return Ok(if first == b'{' {
                    Expected::KeyOrEnd
                } else {
                    Expected::ValueOrEnd
                });
            }
            b'"' => self.string()?,
            _ => {
                let end = self
                    .rest
                    .find(|character: char| {
                        !(character.is_ascii_alphanumeric() || matches!(character, '+' | '-' | '.'))
                    })
                    .unwrap_or(self.rest.len());
                let word = self.rest.get(..end).unwrap_or_default();
                if !matches!(word, "true" | "false" | "null") && !is_number(word) {
                    return Err(JsonError::Malformed);
                }
                self.take(end);
            }
        }
        Ok(Expected::More)
    }

    /// A string with its quotes. Escapes of characters that can be shown become those; others stay.
    fn string(&mut self) -> Result<(), JsonError> {
        self.take(1);
        loop {
            let end = self
                .rest
                .bytes()
                .position(|byte| byte == b'"' || byte == b'\\' || byte < 0x20)
                .ok_or(JsonError::Malformed)?;
            self.take(end);
            match self.rest.bytes().next() {
                Some(b'"') => {
                    self.take(1);
                    return Ok(());
                }
                Some(b'\\') => self.escape()?,
                _ => return Err(JsonError::Malformed),
            }
        }
    }

    fn escape(&mut self) -> Result<(), JsonError> {
        match self.rest.as_bytes().get(1) {
            Some(b'/') => {
                self.rest = self.rest.get(1..).unwrap_or_default();
                self.take(1);
            }
            Some(b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't') => self.take(2),
            Some(b'u') => {
                let unit = code_unit(self.rest).ok_or(JsonError::Malformed)?;
                let pair = self.rest.get(6..).and_then(unit_of_pair);
                let units = [
                    Some(unit),
                    // A low surrogate is valid only after a high one; a single one keeps its escape.
                    pair.filter(|_| (0xD800..0xDC00).contains(&unit)),
                ];
                let code_units: Vec<u16> = units.into_iter().flatten().collect();
                match char::decode_utf16(code_units.iter().copied()).next() {
                    Some(Ok(character)) if is_shown(character) => {
                        let length = 6 * character.len_utf16();
                        self.rest = self.rest.get(length..).unwrap_or_default();
                        self.push(character.encode_utf8(&mut [0; 4]));
                    }
                    _ => self.take(6),
                }
            }
            _ => return Err(JsonError::Malformed),
        }
        Ok(())
    }

    /// Begins a new line for the next element or the end of its container, in the indented form.
    fn indent(&mut self) {
        if self.form == Form::Indented {
            self.push("\n");
            for _ in 0..self.open.len() {
                self.push("  ");
            }
        }
    }

    fn push(&mut self, text: &str) {
        // May exceed `room` by one token; the writer cuts the excess.
        if self.out.len() <= self.room {
            self.out.push_str(text);
        }
    }

    /// Copies bytes of the source unchanged.
    fn take(&mut self, bytes: usize) {
        let (text, rest): (&'a str, &'a str) =
            self.rest.split_at_checked(bytes).unwrap_or((self.rest, ""));
        self.rest = rest;
        self.push(text);
    }
}

/// The code unit of `\uXXXX` at the start of a text.
fn code_unit(text: &str) -> Option<u16> {
    let digits = text.get(2..6)?;
    parse_hex(digits).and_then(|unit| u16::try_from(unit).ok())
}

fn unit_of_pair(text: &str) -> Option<u16> {
    text.starts_with("\\u").then(|| code_unit(text))?
}

/// Whether a character is better read than its escape: neither ASCII nor invisible.
fn is_shown(character: char) -> bool {
    !matches!(character,
        '\0'..='\u{A0}' | '\u{AD}' | '\u{61C}' | '\u{180E}' | '\u{200B}'..='\u{200F}'
        | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{E000}'..='\u{F8FF}'
        | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}' | '\u{FFF0}'..='\u{FFFF}' | '\u{E0000}'..)
}

/// Whether a word is a number (RFC 8259, 6).
fn is_number(word: &str) -> bool {
    let word = word.strip_prefix('-').unwrap_or(word);
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (mantissa, exponent) = match word.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (word, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    digits(whole)
        && (whole.len() == 1 || !whole.starts_with('0'))
        && fraction.is_none_or(digits)
        && exponent
            .is_none_or(|exponent| digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent)))
}

#[cfg(test)]
mod tests;
