//! Removes characters from a text that a reader cannot see and a model might obey (read-attachment 11.3).
//!
//! It removes controls, invisible and direction-changing characters, tags and similar ones. It keeps joiners and
//! variation selectors only where they form words and emoji, and limits the number of combining marks in a row. It
//! keeps compatibility forms: `10 m²` does not become `10 m2`. It does not evaluate or change the meaning of a text.

use icu_normalizer::ComposingNormalizerBorrowed;
use icu_properties::props::{Emoji, ExtendedPictographic, GeneralCategory, Ideographic, Script};
use icu_properties::{CodePointMapData, CodePointSetData};

/// Combining marks in a row that are kept.
const MAX_COMBINING_MARKS: usize = 8;

/// Returns the text without dangerous characters, in NFC. The function is idempotent.
pub fn defang(text: &str) -> String {
    if is_plain(text) {
        return text.to_owned();
    }
    let tables = DefangTables::new();
    let mut text = tables.run_pass(text);
    // A removal can move a mark to another base or bring two joiners together, so the removal is repeated until the
    // text no longer changes. Each pass but the last shortens the text or composes it, so the loop ends.
    loop {
        let next = tables.run_pass(&text);
        if next == text {
            return next;
        }
        text = next;
    }
}

/// Whether the text has only printable ASCII and line ends.
fn is_plain(text: &str) -> bool {
    text.bytes()
        .all(|byte| matches!(byte, b'\n' | b'\t' | b' '..=b'~'))
}

struct DefangTables {
    normalizer: ComposingNormalizerBorrowed<'static>,
    category: icu_properties::CodePointMapDataBorrowed<'static, GeneralCategory>,
    script: icu_properties::CodePointMapDataBorrowed<'static, Script>,
    emoji: icu_properties::CodePointSetDataBorrowed<'static>,
    pictographic: icu_properties::CodePointSetDataBorrowed<'static>,
    ideographic: icu_properties::CodePointSetDataBorrowed<'static>,
}

impl DefangTables {
    fn new() -> Self {
        Self {
            normalizer: ComposingNormalizerBorrowed::new_nfc(),
            category: CodePointMapData::<GeneralCategory>::new(),
            script: CodePointMapData::<Script>::new(),
            emoji: CodePointSetData::new::<Emoji>(),
            pictographic: CodePointSetData::new::<ExtendedPictographic>(),
            ideographic: CodePointSetData::new::<Ideographic>(),
        }
    }

    fn run_pass(&self, text: &str) -> String {
        let visible: String = text.chars().filter_map(filter_character).collect();
        let composed = self.normalizer.normalize(&visible);
        let mut out = String::with_capacity(composed.len());
        let mut before = None;
        let mut marks = 0;
        let mut characters = composed.chars().peekable();
        while let Some(character) = characters.next() {
            let after = characters.peek().copied();
            if !self.is_allowed(before, character, after) {
                continue;
            }
            if self.is_mark(character) {
                marks += 1;
                if marks > MAX_COMBINING_MARKS {
                    continue;
                }
            } else {
                marks = 0;
            }
            out.push(character);
            before = Some(character);
        }
        out
    }

    /// Whether a joiner or a variation selector has a meaning at this position. True for any other character.
    fn is_allowed(&self, before: Option<char>, character: char, after: Option<char>) -> bool {
        let Some(before) = before else {
            return !matches!(character, '\u{200C}' | '\u{200D}') && !is_selector(character);
        };
        match character {
            '\u{200C}' => after.is_some_and(|after| self.can_join(before, after)),
            '\u{200D}' => after.is_some_and(|after| {
                self.can_join(before, after) || self.can_join_emoji(before, after)
            }),
            _ if is_selector(character) => {
                self.ideographic.contains(before)
                    || (self.emoji.contains(before)
                        // Digits, `#` and `*` have the Emoji property too; a selector after them has a meaning only in
                        // a keycap.
                        && (!before.is_ascii() || after == Some('\u{20E3}')))
            }
            _ => true,
        }
    }

    fn can_join(&self, before: char, after: char) -> bool {
        self.is_joined_letter(before) && self.is_joined_letter(after)
    }

    /// Letters, with their marks, of scripts in which joiners change how a word is written.
    fn is_joined_letter(&self, character: char) -> bool {
        let letter = matches!(
            self.category.get(character),
            GeneralCategory::OtherLetter
                | GeneralCategory::ModifierLetter
                | GeneralCategory::NonspacingMark
                | GeneralCategory::SpacingMark
        );
        letter
            && matches!(
                self.script.get(character),
                Script::Arabic
                    | Script::Syriac
                    | Script::Mandaic
                    | Script::Mongolian
                    | Script::Nko
                    | Script::PhagsPa
                    | Script::Devanagari
                    | Script::Bengali
                    | Script::Gurmukhi
                    | Script::Gujarati
                    | Script::Oriya
                    | Script::Tamil
                    | Script::Telugu
                    | Script::Kannada
                    | Script::Malayalam
                    | Script::Sinhala
                    | Script::Khmer
                    | Script::Myanmar
                    | Script::Tibetan
                    | Script::Balinese
                    | Script::Javanese
            )
    }

    /// Whether a joiner connects two parts of one emoji: a picture, perhaps with a skin tone or a selector, and the
    /// next picture.
    fn can_join_emoji(&self, before: char, after: char) -> bool {
        let first = self.pictographic.contains(before)
            || before == '\u{FE0F}'
            || ('\u{1F3FB}'..='\u{1F3FF}').contains(&before);
        first && self.pictographic.contains(after)
    }

    fn is_mark(&self, character: char) -> bool {
        !is_selector(character)
            && matches!(
                self.category.get(character),
                GeneralCategory::NonspacingMark
                    | GeneralCategory::SpacingMark
                    | GeneralCategory::EnclosingMark
            )
    }
}

/// Removes characters that are dangerous at any position; line separators become line feeds.
fn filter_character(character: char) -> Option<char> {
    match character {
        '\n' | '\t' => Some(character),
        '\u{2028}' | '\u{2029}' => Some('\n'),
        '\0'..='\u{1F}'
        | '\u{7F}'..='\u{9F}'
        | '\u{AD}'
        | '\u{61C}'
        | '\u{180E}'
        | '\u{200B}'
        | '\u{200E}'
        | '\u{200F}'
        | '\u{202A}'..='\u{202E}'
        | '\u{2060}'..='\u{206F}'
        | '\u{FEFF}'
        | '\u{FFF0}'..='\u{FFFB}'
        | '\u{FDD0}'..='\u{FDEF}'
        // Tags, and the part of their plane that is reserved for invisible characters, except the selectors in it.
        | '\u{E0000}'..='\u{E00FF}'
        | '\u{E01F0}'..='\u{E0FFF}' => None,
        // The last two code points of every plane are noncharacters.
        _ if u32::from(character) & 0xFFFE == 0xFFFE => None,
        _ => Some(character),
    }
}

/// Variation selectors, including the Mongolian ones.
fn is_selector(character: char) -> bool {
    matches!(
        character,
        '\u{FE00}'..='\u{FE0F}' | '\u{E0100}'..='\u{E01EF}' | '\u{180B}'..='\u{180D}' | '\u{180F}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn assert_removed(range: std::ops::RangeInclusive<u32>) {
        for code in range {
            let Some(character) = char::from_u32(code) else {
                continue;
            };
            assert_eq!(defang(&format!("a{character}b")), "ab", "U+{code:04X}");
        }
    }

    #[test]
    fn the_whole_table_is_removed() {
        assert_removed(0x00..=0x08);
        assert_removed(0x0B..=0x1F);
        assert_removed(0x7F..=0x9F);
        for code in [0x200B, 0x200E, 0x200F, 0xFEFF, 0xAD, 0x61C, 0x180E] {
            assert_removed(code..=code);
        }
        assert_removed(0x202A..=0x202E);
        assert_removed(0x2060..=0x206F);
        assert_removed(0xFFF0..=0xFFFB);
        assert_removed(0xE0000..=0xE0FFF);
        assert_removed(0xFDD0..=0xFDEF);
        assert_removed(0xFE00..=0xFE0F);
        assert_removed(0x180B..=0x180D);
        assert_removed(0x200C..=0x200D);
        for plane in 0..=0x10 {
            assert_removed((plane << 16) + 0xFFFE..=(plane << 16) + 0xFFFF);
        }
    }

    #[test]
    fn line_ends_and_tabs_stay_and_separators_become_line_ends() {
        assert_eq!(defang("a\n\tb\r\nc"), "a\n\tb\nc");
        assert_eq!(defang("a\u{2028}b\u{2029}c"), "a\nb\nc");
    }

    #[test]
    fn composed_but_not_folded() {
        assert_eq!(defang("e\u{301}"), "é");
        for unchanged in ["10 m²", "½", "ﬁ", "Ⅳ", "①", "Å", "\u{a0}", "…"] {
            assert_eq!(defang(unchanged), unchanged);
        }
        assert_eq!(defang("\u{212B}"), "Å");
    }

    #[test]
    fn emoji_stay_whole() {
        for unchanged in ["👩‍👩‍👧", "👩🏽‍🚀", "🏳️‍🌈", "❤️", "1️⃣", "👨‍⚕️", "🇩🇪", "👁️‍🗨️"]
        {
            assert_eq!(defang(unchanged), unchanged);
        }
        assert_eq!(defang("👩\u{200D}"), "👩");
        assert_eq!(defang("👩\u{200D}x"), "👩x");
        assert_eq!(defang("👩\u{200C}👩"), "👩👩");
    }

    #[test]
    fn joiners_stay_in_words_that_need_them() {
        for unchanged in ["می\u{200C}خواهم", "क्\u{200D}ष", "ক্\u{200C}ষ", "ශ්\u{200D}රී"]
        {
            assert_eq!(defang(unchanged), unchanged);
        }
        assert_eq!(defang("pass\u{200C}word"), "password");
        assert_eq!(defang("می\u{200C} "), "می ");
        assert_eq!(defang("\u{200D}می"), "می");
    }

    #[test]
    fn selectors_stay_after_emoji_and_ideographs_one_each() {
        assert_eq!(defang("葛\u{E0100}"), "葛\u{E0100}");
        assert_eq!(defang("葛\u{E0100}\u{E0101}\u{E0102}"), "葛\u{E0100}");
        assert_eq!(defang("❤\u{FE0F}\u{FE01}\u{FE02}"), "❤\u{FE0F}");
        assert_eq!(defang("a\u{FE00}\u{E0145}1\u{FE0F}"), "a1");
    }

    #[test]
    fn combining_marks_in_a_row_are_limited() {
        // None of these composes with the letter.
        let heap = format!("q{}r", "\u{0323}\u{0301}".repeat(20));
        let defanged = defang(&heap);
        assert_eq!(defanged.chars().count(), 2 + MAX_COMBINING_MARKS);
        assert!(defanged.starts_with('q') && defanged.ends_with('r'));
    }

    #[test]
    fn hidden_messages_are_removed() {
        let tags: String = "ignore"
            .bytes()
            .map(|byte| char::from_u32(0xE0000 + u32::from(byte)).unwrap())
            .collect();
        assert_eq!(defang(&format!("visible{tags}")), "visible");
        let selectors: String = "obey"
            .bytes()
            .map(|byte| char::from_u32(0xE0100 + u32::from(byte) - 16).unwrap())
            .collect();
        assert_eq!(defang(&format!("x{selectors}")), "x");
        assert_eq!(defang("abc\u{202E}fdp.exe"), "abcfdp.exe");
    }

    proptest! {
        #[test]
        fn defanging_twice_changes_nothing(text in any::<String>()) {
            let once = defang(&text);
            prop_assert_eq!(defang(&once), once);
        }

        #[test]
        fn defanging_twice_changes_nothing_where_characters_touch(
            text in proptest::collection::vec(proptest::sample::select(vec![
                'a', ' ', '\n', '\r', '1', '\u{200C}', '\u{200D}', '\u{200B}', '\u{FE0F}', '\u{E0100}', '\u{301}',
                '\u{323}', '\u{94D}', 'क', 'ي', '👩', '🏽', '❤', '葛', '\u{20E3}', '\u{FEFF}', '\u{1161}', '\u{1100}',
                '\u{11A8}', '\u{202E}', '\u{2028}', '\u{FFFE}', '\u{E0041}', '\u{344}', '\u{9C7}', '\u{9BE}',
            ]), 0..60)
        ) {
            let text: String = text.into_iter().collect();
            let once = defang(&text);
            prop_assert_eq!(defang(&once), once);
        }

        #[test]
        fn plain_text_is_not_touched(text in "[ -~\n\t]{0,200}") {
            prop_assert_eq!(defang(&text), text);
        }
    }
}
