//! The table of characters that are invisible on the screen. A name that contains one looks like another name.

/// Whether a character has no width on the screen: soft hyphen, joiners, fillers, direction marks, variation selectors,
/// tags, and the controls of shorthand and music.
///
/// Line separators and the byte-order mark are not among them: a domain name with one of those is invalid anyway.
/// [`is_unprintable`] includes them.
pub const fn is_zero_width(character: char) -> bool {
    matches!(
        character,
        '\u{ad}'
            // The combining grapheme joiner and the Arabic letter mark.
            | '\u{34f}'
            | '\u{61c}'
            // Fillers and vowels that are blank: Hangul and Khmer; more of Hangul below.
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            // Selectors and the vowel separator of Mongolian.
            | '\u{180b}'..='\u{180f}'
            // Spaces of no width, joiners and directions, with visible punctuation in the gaps.
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{ffa0}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            // Tags and the further variation selectors.
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Whether a character hides, breaks or reverses the text around it where names are listed: one of no width
/// ([`is_zero_width`]), a control, a line separator, the byte-order mark, or an interlinear annotation.
pub const fn is_unprintable(character: char) -> bool {
    is_zero_width(character)
        || matches!(
            character,
            '\0'..='\u{1f}'
                | '\u{7f}'..='\u{9f}'
                | '\u{2028}'..='\u{2029}'
                | '\u{feff}'
                // Interlinear annotations and the unassigned characters before them.
                | '\u{fff0}'..='\u{fffb}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_views_differ_in_controls_line_separators_and_the_byte_order_mark() {
        for zero_width in [
            '\u{ad}',
            '\u{200d}',
            '\u{202e}',
            '\u{fe0f}',
            '\u{1d173}',
            '\u{e0041}',
        ] {
            assert!(
                is_zero_width(zero_width) && is_unprintable(zero_width),
                "{zero_width:?}"
            );
        }
        for other in [
            '\n', '\u{9f}', '\u{2028}', '\u{2029}', '\u{feff}', '\u{fff9}',
        ] {
            assert!(!is_zero_width(other) && is_unprintable(other), "{other:?}");
        }
        for visible in [
            'a', ' ', '-', '\u{a0}', '\u{2027}', '\u{202f}', '港', '\u{fffd}',
        ] {
            assert!(!is_unprintable(visible), "{visible:?}");
        }
    }

    #[test]
    fn every_control_is_unprintable() {
        let mut controls = ('\0'..='\u{ff}').filter(|character| character.is_control());
        assert!(controls.all(is_unprintable));
    }
}
