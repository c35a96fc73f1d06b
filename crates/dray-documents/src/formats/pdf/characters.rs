//! Characters as a person would type them: ligatures and presentation forms resolved, fill characters removed.

use std::borrow::Cow;

/// The letters of the Latin ligatures U+FB00 to U+FB06.
const LATIN_LIGATURES: [&str; 7] = ["ff", "fi", "fl", "ffi", "ffl", "st", "st"];

/// The letters of the Arabic presentation forms U+FE80 to U+FEFC: each letter and how many forms follow each other.
const ARABIC_FORMS: [(char, u32); 40] = [
    ('\u{621}', 1),
    ('\u{622}', 2),
    ('\u{623}', 2),
    ('\u{624}', 2),
    ('\u{625}', 2),
    ('\u{626}', 4),
    ('\u{627}', 2),
    ('\u{628}', 4),
    ('\u{629}', 2),
    ('\u{62a}', 4),
    ('\u{62b}', 4),
    ('\u{62c}', 4),
    ('\u{62d}', 4),
    ('\u{62e}', 4),
    ('\u{62f}', 2),
    ('\u{630}', 2),
    ('\u{631}', 2),
    ('\u{632}', 2),
    ('\u{633}', 4),
    ('\u{634}', 4),
    ('\u{635}', 4),
    ('\u{636}', 4),
    ('\u{637}', 4),
    ('\u{638}', 4),
    ('\u{639}', 4),
    ('\u{63a}', 4),
    ('\u{641}', 4),
    ('\u{642}', 4),
    ('\u{643}', 4),
    ('\u{644}', 4),
    ('\u{645}', 4),
    ('\u{646}', 4),
    ('\u{647}', 4),
    ('\u{648}', 2),
    ('\u{649}', 2),
    ('\u{64a}', 4),
    // Lam with each kind of alef; the alef follows.
    ('\u{622}', 2),
    ('\u{623}', 2),
    ('\u{625}', 2),
    ('\u{627}', 2),
];

/// The code point at which [`ARABIC_FORMS`] begins.
const ARABIC_FIRST: u32 = 0xfe80;
/// The code point at which the forms of lam with alef begin.
const LAM_ALEF_FIRST: u32 = 0xfef5;

/// Text with ligatures and presentation forms as letters, every kind of space as a space, and control characters
/// removed.
pub(super) fn clean_text(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| (b' '..0x7f).contains(&byte)) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\u{fb00}'..='\u{fb06}' => {
                let index = character as usize - 0xfb00;
                out.push_str(LATIN_LIGATURES.get(index).copied().unwrap_or_default());
            }
            '\u{fe80}'..='\u{fefc}' => push_arabic_letter(character, &mut out),
            // White space that cannot be inside a line, and typographic spaces.
            '\t'
            | '\n'
            | '\r'
            | '\u{b}'
            | '\u{c}'
            | '\u{85}'
            | '\u{a0}'
            | '\u{2000}'..='\u{200a}'
            | '\u{202f}'
            | '\u{205f}' => out.push(' '),
            // Other controls come from broken font tables and mean nothing.
            _ if character.is_control() => {}
            _ => out.push(character),
        }
    }
    out.into()
}

/// Appends the letter or letters of a presentation form.
fn push_arabic_letter(form: char, out: &mut String) {
    let mut first = ARABIC_FIRST;
    for (letter, forms) in ARABIC_FORMS {
        if (first..first + forms).contains(&(form as u32)) {
            // The ligature is lam and alef; the table names the alef.
            if first >= LAM_ALEF_FIRST {
                out.push('\u{644}');
            }
            out.push(letter);
            return;
        }
        first += forms;
    }
    out.push(form);
}

/// Whether a character is the engine's replacement for an unknown one.
fn is_unknown(character: char) -> bool {
    matches!(character, '\u{fffd}' | '\u{e000}'..='\u{f8ff}')
}

/// Whether so much of the text is unknown that it is not readable.
pub(super) fn is_unreadable<'a>(texts: impl Iterator<Item = &'a str>) -> bool {
    let (mut all, mut strange) = (0_usize, 0_usize);
    for character in texts
        .flat_map(str::chars)
        .filter(|character| !character.is_whitespace())
    {
        all += 1;
        strange += usize::from(is_unknown(character));
    }
    // A few symbols on a page are bullets and arrows.
    strange > 8 && strange * 3 > all
}

/// Whether a script is written without spaces between words, so that joined lines get no space.
pub(super) fn is_unspaced(character: char) -> bool {
    matches!(character,
        '\u{2e80}'..='\u{2fdf}'
        | '\u{3000}'..='\u{30ff}'
        | '\u{3100}'..='\u{312f}'
        | '\u{31a0}'..='\u{31bf}'
        | '\u{31f0}'..='\u{31ff}'
        | '\u{3400}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{9fff}'
        | '\u{f900}'..='\u{faff}'
        | '\u{fe30}'..='\u{fe4f}'
        | '\u{ff01}'..='\u{ff60}'
        | '\u{20000}'..='\u{3134f}')
}
