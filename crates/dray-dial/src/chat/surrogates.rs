//! Characters beyond U+FFFF that a service cuts between two chunks: each chunk then has one half of a surrogate pair,
//! which alone is not valid JSON text (RFC 8259 section 8.2).
//!
//! A half at the end of a text is kept until the next chunk brings the other one; a half without its counterpart
//! becomes U+FFFD. Chunks without halves need no extra work.

use std::collections::HashMap;

use serde_json::Value;

/// Placeholders for the 2,048 surrogates while a chunk is parsed: private-use characters without a meaning.
const PLACEHOLDER_BASE: u32 = 0x10_F000;
/// First code unit of UTF-16 that is half of a character (U+D800).
const FIRST_SURROGATE: u32 = 0xD800;
/// Number of surrogates; the first half of them are high.
const SURROGATE_COUNT: u32 = 0x800;

/// Halves that wait for the next chunk, by the position of their text in the chunk.
#[derive(Debug, Default)]
pub(super) struct SplitPairs {
    waiting: HashMap<String, char>,
}

impl SplitPairs {
    /// Whether the first half of a character waits for a later chunk.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Parses a chunk and joins split characters.
    pub(super) fn read(&mut self, event: &[u8]) -> Result<Value, serde_json::Error> {
        let read = serde_json::from_slice(event);
        let (mut chunk, had_halves) = match read {
            Ok(chunk) => (chunk, false),
            Err(error) => match std::str::from_utf8(event).ok().and_then(with_placeholders) {
                Some(text) => (serde_json::from_str(&text)?, true),
                None => return Err(error),
            },
        };
        if had_halves || self.is_waiting() {
            self.join(&mut chunk);
            replace_stand_ins(&mut chunk);
        }
        Ok(chunk)
    }

    /// Joins the texts of a delta that appear in chunks.
    fn join(&mut self, chunk: &mut Value) {
        let Some(delta) = chunk.pointer_mut("/choices/0/delta") else {
            return;
        };
        for name in ["content", "reasoning_content", "reasoning", "refusal"] {
            if let Some(Value::String(text)) = delta.get_mut(name) {
                self.join_text(name.to_owned(), text);
            }
        }
        if let Some(Value::String(text)) = delta.pointer_mut("/function_call/arguments") {
            self.join_text("function_call".to_owned(), text);
        }
        let calls = delta.get_mut("tool_calls").and_then(Value::as_array_mut);
        for call in calls.into_iter().flatten() {
            let key = format!("call {}", call.get("index").unwrap_or(&Value::Null));
            if let Some(Value::String(text)) = call.pointer_mut("/function/arguments") {
                self.join_text(key, text);
            }
        }
    }

    fn join_text(&mut self, key: String, text: &mut String) {
        if text.is_empty() {
            return;
        }
        if let Some(high) = self.waiting.remove(&key) {
            text.insert(0, high);
        }
        if let Some(last) = text.chars().next_back().filter(|last| is_high(*last)) {
            text.truncate(text.len() - last.len_utf8());
            self.waiting.insert(key, last);
        }
        *text = join_surrogates(text);
    }
}

/// The text with placeholders for single halves of pairs; `None` if it has none.
fn with_placeholders(text: &str) -> Option<String> {
    let mut replaced = String::with_capacity(text.len() + 64);
    let mut rest = text;
    let mut has_replaced = false;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        replaced.push_str(before);
        let length = match escaped_unit(escape) {
            Some(unit) if is_high_unit(unit) => {
                let other = escape.get(6..).and_then(escaped_unit);
                if other.is_some_and(is_low_unit) {
                    replaced.push_str(escape.get(..12)?);
                    12
                } else {
                    replaced.push(stand_in(unit)?);
                    has_replaced = true;
                    6
                }
            }
            Some(unit) if is_low_unit(unit) => {
                replaced.push(stand_in(unit)?);
                has_replaced = true;
                6
            }
            // The character after the backslash is skipped too, because an escaped backslash does not begin an escape.
            _ => {
                let length = 1 + escape.chars().nth(1).map_or(0, char::len_utf8);
                replaced.push_str(escape.get(..length)?);
                length
            }
        };
        rest = escape.get(length..)?;
    }
    replaced.push_str(rest);
    has_replaced.then_some(replaced)
}

/// The code unit of an escape `\\uXXXX` at the beginning of a text.
fn escaped_unit(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    u32::from_str_radix(digits, 16).ok()
}

fn is_high_unit(unit: u32) -> bool {
    (0xD800..0xDC00).contains(&unit)
}

fn is_low_unit(unit: u32) -> bool {
    (0xDC00..0xE000).contains(&unit)
}

fn stand_in(unit: u32) -> Option<char> {
    char::from_u32(PLACEHOLDER_BASE + unit.checked_sub(FIRST_SURROGATE)?)
}

/// The surrogate of a placeholder.
fn unit_of(character: char) -> Option<u32> {
    let offset = u32::from(character).checked_sub(PLACEHOLDER_BASE)?;
    (offset < SURROGATE_COUNT).then_some(FIRST_SURROGATE + offset)
}

fn is_high(character: char) -> bool {
    unit_of(character).is_some_and(is_high_unit)
}

/// The text with pairs of placeholders replaced by their characters.
fn join_surrogates(text: &str) -> String {
    let mut joined = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let high = unit_of(character).filter(|unit| is_high_unit(*unit));
        let low = characters.peek().and_then(|next| unit_of(*next));
        match (high, low.filter(|unit| is_low_unit(*unit))) {
            (Some(high), Some(low)) => {
                characters.next();
                let code = 0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00);
                joined.extend(char::from_u32(code));
            }
            _ => joined.push(character),
        }
    }
    joined
}

/// Replaces single placeholders by U+FFFD.
fn replace_stand_ins(value: &mut Value) {
    match value {
        Value::String(text) if text.chars().any(|character| unit_of(character).is_some()) => {
            *text = text
                .chars()
                .map(|character| {
                    unit_of(character).map_or(character, |_| char::REPLACEMENT_CHARACTER)
                })
                .collect();
        }
        Value::Array(items) => items.iter_mut().for_each(replace_stand_ins),
        Value::Object(members) => members.values_mut().for_each(replace_stand_ins),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(pairs: &mut SplitPairs, delta: &str) -> Value {
        let event = format!(r#"{{"choices":[{{"index":0,"delta":{delta}}}]}}"#);
        let chunk = pairs.read(event.as_bytes()).unwrap();
        chunk["choices"][0]["delta"].clone()
    }

    #[test]
    fn a_character_that_is_cut_between_two_chunks_is_one_character() {
        let mut pairs = SplitPairs::default();
        let high = read(&mut pairs, r#"{"content":"a \ud83d"}"#);
        assert_eq!(high, json!({"content": "a "}));
        // Chunks without text are between them.
        assert_eq!(
            read(&mut pairs, r#"{"role":"assistant","content":""}"#)["content"],
            ""
        );
        let low = read(&mut pairs, r#"{"content":"\ude00 b"}"#);
        assert_eq!(low, json!({"content": "\u{1F600} b"}));
        assert_eq!(
            read(&mut pairs, r#"{"content":"c"}"#),
            json!({"content": "c"})
        );
    }

    #[test]
    fn texts_of_different_places_do_not_mix() {
        let mut pairs = SplitPairs::default();
        read(
            &mut pairs,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"\uD83D"}},{"index":1,"function":{"arguments":"x"}}]}"#,
        );
        let next = read(
            &mut pairs,
            r#"{"reasoning_content":"r","tool_calls":[{"index":1,"function":{"arguments":"y"}},{"index":0,"function":{"arguments":"\uDE00"}}]}"#,
        );
        assert_eq!(next["reasoning_content"], "r");
        assert_eq!(next["tool_calls"][0]["function"]["arguments"], "y");
        assert_eq!(next["tool_calls"][1]["function"]["arguments"], "\u{1F600}");
    }

    #[test]
    fn whole_pairs_and_escaped_backslashes_stay_as_they_are() {
        let mut pairs = SplitPairs::default();
        let delta = read(&mut pairs, r#"{"content":"\\ud83d \ud83d\ude00 \ud83d"}"#);
        assert_eq!(delta["content"], "\\ud83d \u{1F600} ");
    }

    #[test]
    fn a_half_without_its_other_is_the_replacement_character() {
        let mut pairs = SplitPairs::default();
        read(&mut pairs, r#"{"content":"\ud83d"}"#);
        let next = read(&mut pairs, r#"{"content":"x\ude00","other":"\ud83d"}"#);
        assert_eq!(next["other"], "\u{FFFD}");
        let text = next["content"].as_str().unwrap();
        assert!(text.ends_with("x\u{FFFD}"), "{text:?}");
    }

    #[test]
    fn invalid_json_stays_an_error() {
        for event in [&b"{"[..], br#"{"a": \ud83d}"#, &[0xff]] {
            assert!(SplitPairs::default().read(event).is_err(), "{event:?}");
        }
    }
}
