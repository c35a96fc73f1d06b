//! Characters that are dangerous in a name: line breaks, invisible characters, and those that reverse the direction of
//! text.

use icu_properties::CodePointMapData;
use icu_properties::props::{GeneralCategory, GraphemeClusterBreak};

/// Zero-width joiner: between the parts of one emoji.
pub(crate) const ZERO_WIDTH_JOINER: char = '\u{200D}';

/// Zero-width non-joiner: between letters of some scripts.
pub(crate) const NON_JOINER: char = '\u{200C}';

/// Controls (`Cc`, with NEL) and format characters (`Cf`, with every bidi control).
pub(crate) fn is_control_or_format(character: char) -> bool {
    let category = CodePointMapData::<GeneralCategory>::new().get(character);
    matches!(category, GeneralCategory::Control | GeneralCategory::Format)
}

/// LINE SEPARATOR and PARAGRAPH SEPARATOR, which some programs show as a new line.
pub(crate) fn is_separator(character: char) -> bool {
    matches!(character, '\u{2028}' | '\u{2029}')
}

/// Whether a character must never be shown in a terminal, a log line or a prompt. The two joiners are harmless, and
/// words and emoji need them.
pub(crate) fn is_unsafe(character: char) -> bool {
    !matches!(character, ZERO_WIDTH_JOINER | NON_JOINER)
        && (is_control_or_format(character) || is_separator(character))
}

/// Whether a text may be cut between `before` and `after` without breaking a grapheme cluster.
///
/// An approximation of UAX #29. It never allows a cut inside a combining sequence, a joined emoji, a Hangul syllable or
/// CR LF. It allows one between regional indicators only when `indicators` (how many end with `before`) is even.
pub(crate) fn can_split(before: char, after: char, indicators: usize) -> bool {
    use GraphemeClusterBreak as Break;
    let breaks = CodePointMapData::<GraphemeClusterBreak>::new();
    let (left, right) = (breaks.get(before), breaks.get(after));
    match (left, right) {
        (Break::CR, Break::LF)
        | (_, Break::Extend | Break::ZWJ | Break::SpacingMark)
        | (Break::Prepend | Break::ZWJ, _)
        | (Break::L, Break::L | Break::V | Break::LV | Break::LVT)
        | (Break::LV | Break::V, Break::V | Break::T)
        // A control always ends a cluster, even before a combining mark (GB4), and CR LF is one (GB3).
        | (Break::LVT | Break::T, Break::T) => matches!(before, '\n' | '\r') && after != '\n',
        // Flags are pairs: the break is after every second indicator (GB12, GB13).
        (Break::RegionalIndicator, Break::RegionalIndicator) => indicators.is_multiple_of(2),
        _ => true,
    }
}

/// Whether a character is one half of a flag emoji.
pub(crate) fn is_regional_indicator(character: char) -> bool {
    ('\u{1F1E6}'..='\u{1F1FF}').contains(&character)
}

/// The longest prefix of `text` with at most `limit` bytes.
pub(crate) fn bounded_prefix(text: &str, limit: usize) -> &str {
    text.get(..text.floor_char_boundary(limit)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bidi_control_is_unsafe_and_joiners_are_not() {
        for character in "\u{202A}\u{202B}\u{202C}\u{202D}\u{202E}\u{2066}\u{2067}\u{2068}\u{2069}\u{200E}\u{200F}\u{61C}".chars() {
            assert!(is_unsafe(character), "{character:?}");
        }
        for character in
            "\0\n\r\t\u{1b}\u{7f}\u{85}\u{9b}\u{2028}\u{2029}\u{feff}\u{ad}\u{e0041}".chars()
        {
            assert!(is_unsafe(character), "{character:?}");
        }
        for character in "aé报 \u{a0}😀\u{200D}\u{200C}".chars() {
            assert!(!is_unsafe(character), "{character:?}");
        }
    }

    #[test]
    fn a_text_is_not_cut_inside_one_visible_character() {
        let whole = [
            "e\u{301}",
            "👩\u{200D}",
            "\u{200D}👧",
            "한\u{11a8}",
            "\r\n",
            "👍🏽",
            "❤\u{fe0f}",
        ];
        for pair in whole {
            let mut characters = pair.chars();
            let (before, after) = (characters.next().unwrap(), characters.next().unwrap());
            assert!(!can_split(before, after, 0), "{pair:?}");
        }
        assert!(!can_split('🇩', '🇪', 1));
        assert!(can_split('🇪', '🇫', 2));
        assert!(can_split('a', 'b', 0));
        assert!(can_split('\n', '\u{301}', 0));
    }
}
