//! Superscript characters: without them, ten to the power of six would read as the number 106.

/// The text in superscript characters; `None` if it has other characters than digits, signs, `n` and spaces, such as
/// the end of `1st`.
pub(crate) fn superscript(text: &str) -> Option<String> {
    let raised: String = text.chars().map(raised_character).collect::<Option<_>>()?;
    (!raised.trim().is_empty()).then_some(raised)
}

fn raised_character(character: char) -> Option<char> {
    Some(match character {
        '0' => '⁰',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        '4' => '⁴',
        '5' => '⁵',
        '6' => '⁶',
        '7' => '⁷',
        '8' => '⁸',
        '9' => '⁹',
        '+' => '⁺',
        // Exponents are often typed with a dash in place of the minus sign.
        '-' | '−' | '–' => '⁻',
        '(' => '⁽',
        ')' => '⁾',
        'n' => 'ⁿ',
        space if space.is_whitespace() => space,
        _ => return None,
    })
}
