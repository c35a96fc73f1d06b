//! Characters that a person does not see, in one table: names that hold them look like other names.

/// Whether a character takes no room on the screen: soft hyphen, joiners, fillers, direction marks, variation
/// selectors, tags, and the controls of shorthand and music.
///
/// Line separators and the byte-order mark are not among them: a domain name that
/// holds one of those is not a name at all. [`is_unprintable`] holds them.
pub const fn is_zero_width(character: char) -> bool {
    matches!(
        character,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{ffa0}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Whether a character hides, breaks or turns the text around it where names are listed: one of no width
/// ([`is_zero_width`]), a control, a line separator, the byte-order mark, or an interlinear annotation.
pub const fn is_unprintable(character: char) -> bool {
    is_zero_width(character)
        || matches!(
            character,
            '\0'..='\u{1f}'
                | '\u{7f}'..='\u{9f}'
                | '\u{2028}'..='\u{2029}'
                | '\u{feff}'
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
        for seen in [
            'a', ' ', '-', '\u{a0}', '\u{2027}', '\u{202f}', '港', '\u{fffd}',
        ] {
            assert!(!is_unprintable(seen), "{seen:?}");
        }
    }

    #[test]
    fn every_control_is_unprintable() {
        let mut controls = ('\0'..='\u{ff}').filter(|c| c.is_control());
        assert!(controls.all(is_unprintable));
    }
}
