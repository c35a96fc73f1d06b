//! Text of another party as a terminal, a log or a model may get it. Escape sequences are removed completely, because a
//! part of one would be noise (read-attachment 7.1). Invisible characters are removed, too.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::invisible::is_unprintable;

/// Bytes within which a control string must end; otherwise only its beginning is removed.
const MAX_CONTROL_STRING_BYTES: usize = 8 * 1024;
/// The kinds of sequences, by their beginning.
const SEQUENCE_OPENERS: [char; 6] = ['\u{1b}', '\u{9b}', '\u{9d}', '\u{90}', '\u{9e}', '\u{9f}'];

/// Text without escape sequences ([`without_escapes`]) and without characters that hide, break or reverse the text
/// around them ([`is_unprintable`]).
///
/// Line feeds and tabs stay. So do the two joiners and the two selectors of emoji, because words of some scripts and
/// emoji need them.
pub fn printable_text(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_removed) {
        return text.into();
    }
    let text = without_escapes(text);
    text.chars().filter(|c| !is_removed(*c)).collect()
}

/// JSON in which characters of strings that a terminal interprets or hides ([`is_unprintable`]) are escaped. The value
/// stays the same, also with line ends and tabs between its parts.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    // Within a string, JSON has these escaped already (RFC 8259 section 7).
    let is_escaped =
        |character: char| is_unprintable(character) && !matches!(character, '\n' | '\r' | '\t');
    if !json.chars().any(is_escaped) {
        return json.into();
    }
    let mut out = String::with_capacity(json.len());
    for character in json.chars() {
        if is_escaped(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(character);
        }
    }
    out.into()
}

const fn is_removed(character: char) -> bool {
    let is_kept = matches!(
        character,
        '\n' | '\t' | '\u{200c}'..='\u{200d}' | '\u{fe0e}'..='\u{fe0f}'
    );
    is_unprintable(character) && !is_kept
}

/// Text without CSI, OSC and other escape sequences.
pub fn without_escapes(text: &str) -> Cow<'_, str> {
    if !text.contains(SEQUENCE_OPENERS) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(SEQUENCE_OPENERS) {
        let (before, sequence) = rest.split_at(at);
        out.push_str(before);
        rest = sequence
            .get(sequence_length(sequence)..)
            .unwrap_or_default();
    }
    out.push_str(rest);
    out.into()
}

/// Bytes of the sequence that a text begins with.
fn sequence_length(sequence: &str) -> usize {
    let mut chars = sequence.chars();
    let first = chars.next().unwrap_or_default();
    let (introducer, opener) = if first == '\u{1b}' {
        let second = chars.next().unwrap_or_default();
        // A line end after ESC is text: the sequence was cut off.
        let length = if second.is_ascii() && second != '\0' && second != '\n' {
            2
        } else {
            1
        };
        (length.min(sequence.len()), second)
    } else {
        let second = match first {
            '\u{9b}' => '[',
            '\u{9d}' => ']',
            _ => 'P',
        };
        (first.len_utf8(), second)
    };
    let rest = sequence.get(introducer..).unwrap_or_default();
    introducer
        + match opener {
            '[' => control_length(rest),
            ']' | 'P' | 'X' | '^' | '_' => string_length(rest),
            ' '..='/' => {
                usize::from(rest.starts_with(|character: char| character.is_ascii_graphic()))
            }
            _ => 0,
        }
}

/// Parameters, intermediates and the final byte (ECMA-48, 5.4).
fn control_length(rest: &str) -> usize {
    let parameters = rest
        .bytes()
        .take_while(|byte| (0x30..=0x3F).contains(byte))
        .count();
    let control_bytes = parameters
        + rest
            .bytes()
            .skip(parameters)
            .take_while(|byte| (0x20..=0x2F).contains(byte))
            .count();
    match rest.as_bytes().get(control_bytes) {
        Some(0x40..=0x7E) => control_bytes + 1,
        // The sequence is malformed: only the parameters are removed, and the following bytes are text.
        _ => parameters,
    }
}

/// Length of a control string up to its terminator; 0 without one nearby.
fn string_length(rest: &str) -> usize {
    let near = rest
        .get(..rest.floor_char_boundary(MAX_CONTROL_STRING_BYTES))
        .unwrap_or_default();
    for (at, character) in near.char_indices() {
        match character {
            '\u{7}' => return at + 1,
            '\u{9c}' => return at + character.len_utf8(),
            '\u{1b}' => {
                let ends = near
                    .get(at + 1..)
                    .is_some_and(|tail| tail.starts_with('\\'));
                return if ends { at + 2 } else { at };
            }
            // Control strings do not span lines; otherwise a lone opener would remove the text after it.
            '\n' => return 0,
            other if SEQUENCE_OPENERS.contains(&other) => return 0,
            _ => {}
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::{printable_json, printable_text, without_escapes};

    #[test]
    fn strings_of_json_are_escaped_and_its_layout_stays() {
        for (json, shown) in [
            ("{\n\t\"a\": \"é 👩\"\r\n}", "{\n\t\"a\": \"é 👩\"\r\n}"),
            (
                "[\"\u{9b}2J\u{202e}\u{7f}\"]",
                "[\"\\u009b2J\\u202e\\u007f\"]",
            ),
            ("\"\u{e0041}\"", "\"\\udb40\\udc41\""),
        ] {
            assert_eq!(printable_json(json), shown, "{json:?}");
        }
    }

    #[test]
    fn sequences_are_removed_completely() {
        for (text, shown) in [
            ("plain", "plain"),
            ("\x1b[1;31mred\x1b[0m.", "red."),
            ("\x1b]0;a title\x07text", "text"),
            (
                "\x1b]8;;https://a.example\x1b\\link\x1b]8;;\x1b\\.",
                "link.",
            ),
            ("\x1bPq payload\x1b\\x", "x"),
            ("\x1b(Ba\x1b7b\x1bc", "ab"),
            ("\u{9b}2Ja\u{9d}0;t\u{9c}b", "ab"),
            ("a\x1b", "a"),
            ("a\x1b[", "a"),
            ("a\x1b[12", "a"),
            ("a\x1b\nb", "a\nb"),
            ("\x1b]never ends\nline", "never ends\nline"),
            ("\x1bé", "é"),
        ] {
            assert_eq!(without_escapes(text), shown, "{text:?}");
        }
    }

    #[test]
    fn what_hides_or_turns_text_is_removed_and_what_words_need_stays() {
        for (text, shown) in [
            ("two\nlines,\ta tab", "two\nlines,\ta tab"),
            ("\x1b[2Jpaid\u{202e}.exe\r\n", "paid.exe\n"),
            ("a\u{200b}b\u{e0041}c\u{feff}\u{9b}d\0", "abc"),
            (
                "می\u{200c}خواهم 👩\u{200d}👧 ❤\u{fe0f}",
                "می\u{200c}خواهم 👩\u{200d}👧 ❤\u{fe0f}",
            ),
        ] {
            assert_eq!(printable_text(text), shown, "{text:?}");
        }
    }

    #[test]
    fn strings_that_never_end_are_read_in_linear_time() {
        for opener in ["\x1b]x", "\u{9d}x", "\x1b[1;"] {
            let text = opener.repeat(200_000);
            let cleaned = without_escapes(&text);
            assert!(
                cleaned.chars().all(|character| character == 'x'),
                "{opener:?}"
            );
        }
    }
}
