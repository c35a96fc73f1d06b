//! The text that accompanies files: whether it fits as a caption, and how it is split if it does not (platform-delivery
//! 6, 9).

use crate::chars;

/// The unit in which a platform counts text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptionUnit {
    /// UTF-16 code units (Telegram).
    Utf16,
    /// Unicode scalar values (Discord, Slack).
    Chars,
    /// UTF-8 bytes, with a character of up to four (Signal).
    Bytes,
}

/// How much text a platform accepts, in its own unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptionLimits {
    /// Limit of the text with a file. Zero if files have no text.
    pub caption: usize,
    /// Limit of a separate message. A value below 4 counts as 4, which fits every character.
    pub message: usize,
    /// The unit of both limits.
    pub unit: CaptionUnit,
}

/// Where the text of a message with files is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaptionPlacement {
    /// The text is empty or only white space.
    None,
    /// The text fits as the caption of the first file.
    Fits(String),
    /// The text is sent in separate messages before the files, in this order.
    Separate(Vec<String>),
}

impl CaptionUnit {
    /// The length of a text in this unit.
    pub fn count(self, text: &str) -> usize {
        match self {
            Self::Utf16 => text.chars().map(char::len_utf16).sum(),
            Self::Chars => text.chars().count(),
            Self::Bytes => text.len(),
        }
    }

    /// The length of one character.
    fn length_of(self, character: char) -> usize {
        match self {
            Self::Utf16 => character.len_utf16(),
            Self::Chars => 1,
            Self::Bytes => character.len_utf8(),
        }
    }
}

/// Decides where the text is sent. Surrounding white space does not count.
pub fn fit_caption(text: &str, limits: CaptionLimits) -> CaptionPlacement {
    let text = text.trim();
    // Platforms that trim captions would refuse one of white space.
    if text.is_empty() {
        return CaptionPlacement::None;
    }
    if limits.unit.count(text) <= limits.caption {
        return CaptionPlacement::Fits(text.to_owned());
    }
    CaptionPlacement::Separate(split_text(text, limits.message, limits.unit))
}

/// Splits a text into parts of at most `limit` (at least 4) units: between paragraphs if possible, otherwise between
/// lines, words or grapheme clusters, in this order. Only white space at the cuts is dropped.
pub fn split_text(text: &str, limit: usize, unit: CaptionUnit) -> Vec<String> {
    // With a lower limit, a character of four bytes would not fit, and the loop below would never end.
    let limit = limit.max(4);
    let mut parts = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (part, after) = rest
            .split_at_checked(next_cut(rest, limit, unit))
            .unwrap_or((rest, ""));
        parts.push(part.trim_end().to_owned());
        // Lines keep their indentation. After a cut inside a line, the spaces before the next part are removed.
        let inside_line = !part.ends_with('\n') && !after.starts_with('\n');
        rest = if inside_line {
            after.trim_start()
        } else {
            after.trim_start_matches(['\n', '\r'])
        };
    }
    // Empty parts come from white space between two cuts. Every platform refuses an empty message.
    parts.retain(|part| !part.is_empty());
    parts
}

/// Where the next part of `text` ends; never 0.
fn next_cut(text: &str, limit: usize, unit: CaptionUnit) -> usize {
    let (mut used, mut indicators) = (0, 0);
    let (mut paragraph, mut line, mut word, mut cluster, mut character_start) = (0, 0, 0, 0, 0);
    let mut before: Option<char> = None;
    for (offset, character) in text.char_indices() {
        if let Some(last) = before {
            character_start = offset;
            if chars::can_split(last, character, indicators) {
                cluster = offset;
            }
            match (last, character) {
                ('\n', '\n') => paragraph = offset,
                ('\n', _) => line = offset,
                (_, next) if next.is_whitespace() && !last.is_whitespace() => word = offset,
                _ => {}
            }
        }
        used += unit.length_of(character);
        if used > limit {
            // A grapheme cluster longer than the limit is cut between characters. At least one character is taken, so
            // that each call makes progress.
            let best = [
                paragraph,
                line,
                word,
                cluster,
                character_start,
                character.len_utf8(),
            ];
            return best
                .into_iter()
                .find(|offset| *offset > 0)
                .unwrap_or(text.len());
        }
        indicators = if chars::is_regional_indicator(character) {
            indicators + 1
        } else {
            0
        };
        before = Some(character);
    }
    text.len()
}

/// Words that notify everyone in a room after an `@`.
const ROOM_WORDS: [&str; 5] = ["everyone", "channel", "here", "room", "all"];

/// Words that notify everyone in `<!…>`.
const BANG_WORDS: [&str; 5] = ["everyone", "channel", "here", "group", "subteam"];

/// Disables mass mentions with a zero-width space after the `@` of `@everyone @here @channel @room @all` and after the
/// `<` of `<!channel>` and similar. E-mail addresses are not changed, except before `everyone`, which some platforms
/// also detect inside words. The function is idempotent.
pub fn neutralise_mentions(text: &str) -> String {
    let mut safe = String::with_capacity(text.len() + 8);
    let mut before: Option<char> = None;
    for (offset, character) in text.char_indices() {
        safe.push(character);
        let rest = text
            .get(offset + character.len_utf8()..)
            .unwrap_or_default();
        let mentions = match character {
            '@' => mentions_room(before, rest),
            '<' => rest
                .strip_prefix('!')
                .is_some_and(|rest| BANG_WORDS.iter().any(|word| begins_with_word(rest, word))),
            _ => false,
        };
        // The inserted space breaks the mention, so a second call inserts nothing.
        if mentions {
            safe.push('\u{200B}');
        }
        before = Some(character);
    }
    safe
}

/// Whether an `@` between this character and this text notifies everyone.
fn mentions_room(before: Option<char>, rest: &str) -> bool {
    let is_address =
        before.is_some_and(|last| last.is_alphanumeric() || matches!(last, '.' | '_' | '-' | '+'));
    ROOM_WORDS.iter().any(|word| {
        let after = rest.get(word.len()..).and_then(|rest| rest.chars().next());
        let ends_word = !after.is_some_and(|next| next.is_alphanumeric() || next == '_');
        begins_with_word(rest, word) && (*word == "everyone" || (ends_word && !is_address))
    })
}

/// Whether `text` begins with `word` in any case.
fn begins_with_word(text: &str, word: &str) -> bool {
    text.get(..word.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests;
