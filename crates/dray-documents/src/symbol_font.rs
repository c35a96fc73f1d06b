//! Fonts whose codes do not name the characters that they show: Symbol and Wingdings.
//!
//! A word processor writes `≤` in the font Symbol as the byte 0xA3, or as U+F0A3 of the private use area.

/// A font with its own codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SymbolFont {
    /// Greek letters and signs of mathematics.
    Symbol,
    /// Signs, arrows and check boxes.
    Wingdings,
    Wingdings2,
    Wingdings3,
    /// A font of pictures such as Webdings, whose characters are not known here.
    Pictures,
}

/// The remark on characters that have no equivalent in Unicode here.
pub(crate) const UNKNOWN_SYMBOLS_WARNING: &str = "characters of a symbol font are not shown";

/// Codes 0x20 to 0x7E of Symbol (Adobe's `symbol.txt` of the Unicode Consortium, with the characters of Unicode 3.2
/// for parts of brackets).
const SYMBOL_LOWER: &str = " !∀#∃%&∋()∗+,−./0123456789:;<=>?≅ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_‾αβχδεφγηιϕκλµνοπθρστυϖωξψζ{|}∼";
/// Codes 0xA0 to 0xFE of Symbol. Code 0xF0 is the logo of a company.
const SYMBOL_UPPER: &str = "€ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…⏐⎯↵ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅¬∧∨⇔⇐⇑⇒⇓◊⟨®©™∑⎛⎜⎝⎡⎢⎣⎧⎨⎩⎪\u{FFFD}⟩∫⌠⎮⌡⎞⎟⎠⎤⎥⎦⎫⎬⎭";

/// Signs of Wingdings that documents use in texts. The squares that forms use as check boxes are check boxes here.
const WINGDINGS_1: &[(u8, char)] = &[
    (0x22, '✂'),
    (0x28, '☎'),
    (0x2A, '✉'),
    (0x36, '⌛'),
    (0x3F, '✍'),
    (0x41, '✌'),
    (0x45, '☜'),
    (0x46, '☞'),
    (0x47, '☝'),
    (0x48, '☟'),
    (0x4A, '☺'),
    (0x4C, '☹'),
    (0x4E, '☠'),
    (0x6C, '●'),
    (0x6E, '■'),
    (0x6F, '☐'),
    (0x74, '⧫'),
    (0x75, '◆'),
    (0x76, '❖'),
    (0x78, '☒'),
    (0x9E, '·'),
    (0x9F, '•'),
    (0xA1, '○'),
    (0xA7, '▪'),
    (0xA8, '☐'),
    (0xAB, '★'),
    (0xD8, '➢'),
    (0xDF, '←'),
    (0xE0, '→'),
    (0xE1, '↑'),
    (0xE2, '↓'),
    (0xE3, '↖'),
    (0xE4, '↗'),
    (0xE5, '↙'),
    (0xE6, '↘'),
    (0xE8, '➔'),
    (0xEF, '⇦'),
    (0xF0, '⇨'),
    (0xF1, '⇧'),
    (0xF2, '⇩'),
    (0xFB, '✗'),
    (0xFC, '✓'),
    (0xFD, '☒'),
    (0xFE, '☑'),
];
/// Check marks and boxes of Wingdings 2. A square that forms use as a check box is one here.
const WINGDINGS_2: &[(u8, char)] = &[
    (0x4F, '✗'),
    (0x50, '✓'),
    (0x51, '☒'),
    (0x52, '☑'),
    (0x53, '☒'),
    (0x54, '☒'),
    (0xA2, '■'),
    (0xA3, '☐'),
];
/// Arrows of Wingdings 3.
const WINGDINGS_3: &[(u8, char)] = &[
    (0x21, '←'),
    (0x22, '→'),
    (0x23, '↑'),
    (0x24, '↓'),
    (0x25, '↖'),
    (0x26, '↗'),
    (0x27, '↙'),
    (0x28, '↘'),
];

impl SymbolFont {
    /// The font of a name; `None` for all fonts of letters.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        let name = name.trim().trim_end_matches(';').trim_end();
        Some(match name.to_ascii_lowercase().as_str() {
            "symbol" | "symbolmt" | "symbol mt" | "symbolps" => Self::Symbol,
            "wingdings" => Self::Wingdings,
            "wingdings 2" => Self::Wingdings2,
            "wingdings 3" => Self::Wingdings3,
            "webdings" | "marlett" | "mt extra" | "monotype sorts" | "zapfdingbats"
            | "zapf dingbats" | "itc zapf dingbats" => Self::Pictures,
            _ => return None,
        })
    }

    /// The character of a code; U+FFFD if it is not known.
    pub(crate) fn character(self, code: u8) -> char {
        let known = match (self, code) {
            (_, b' ') => Some(' '),
            (Self::Symbol, 0x21..=0x7E) => SYMBOL_LOWER.chars().nth(usize::from(code - 0x20)),
            (Self::Symbol, 0xA0..=0xFE) => SYMBOL_UPPER.chars().nth(usize::from(code - 0xA0)),
            (Self::Wingdings, 0x80..=0x95) => circled_number(code - 0x80),
            (Self::Wingdings, _) => character_in(WINGDINGS_1, code),
            (Self::Wingdings2, 0x69..=0x7E) => circled_number(code - 0x69),
            (Self::Wingdings2, _) => character_in(WINGDINGS_2, code),
            (Self::Wingdings3, _) => character_in(WINGDINGS_3, code),
            _ => None,
        };
        known.unwrap_or(char::REPLACEMENT_CHARACTER)
    }

    /// The character for one of a text in this font. Codes are written as they are or from U+F000 on; characters beyond
    /// them come from another font.
    pub(crate) fn translate(self, character: char) -> char {
        let code = u32::from(character);
        let code = if (0xF000..0xF100).contains(&code) {
            code - 0xF000
        } else {
            code
        };
        match u8::try_from(code) {
            Ok(code) if code >= 0x20 => self.character(code),
            _ => character,
        }
    }
}

/// The character of a code in a table that is sorted by code.
fn character_in(table: &[(u8, char)], code: u8) -> Option<char> {
    let index = table.binary_search_by_key(&code, |(code, _)| *code).ok()?;
    table.get(index).map(|(_, character)| *character)
}

/// The numbers 0 to 10 in a white circle, and then in a black one.
fn circled_number(index: u8) -> Option<char> {
    match index {
        0 => Some('⓪'),
        1..=10 => char::from_u32(0x245F + u32::from(index)),
        11 => Some('⓿'),
        _ => char::from_u32(0x2776 + u32::from(index) - 12),
    }
}

/// The character of a `SYMBOL` field: `SYMBOL 179 \f "Symbol"`; `None` for other fields.
pub(crate) fn symbol_of_field(instruction: &str) -> Option<char> {
    let mut words = instruction.split_whitespace();
    if !words.next()?.eq_ignore_ascii_case("symbol") {
        return None;
    }
    let number = words.next()?;
    let code: u32 = match number
        .strip_prefix("0x")
        .or_else(|| number.strip_prefix("0X"))
    {
        Some(digits) => crate::hex::parse_hex(digits)?,
        None => number.parse().ok()?,
    };
    let character = char::from_u32(code)?;
    let (_, font) = instruction.split_once("\\f").unwrap_or_default();
    let font = font.trim_start();
    let font = match font.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => font.split_whitespace().next(),
    };
    match SymbolFont::of_name(font.unwrap_or_default()) {
        Some(font) => Some(font.translate(character)),
        None => (!character.is_control()).then_some(character),
    }
}

#[cfg(test)]
mod tests {
    use super::{SymbolFont, symbol_of_field};

    #[test]
    fn codes_of_symbol_fonts_are_the_characters_that_they_show() {
        let texts: [(&str, &[u8], &str); 6] = [
            ("Symbol", b"amWD\xA3\xB3\xB1\xB0\xB7\xA5\xAE", "αµΩΔ≤≥±°•∞→"),
            ("Symbol", b"\xA0\xE5\xFE\xF0\x7F", "€∑⎭\u{FFFD}\u{FFFD}"),
            (
                "wingdings",
                b"\xFC\xFB\xA8\xFE\xE0\x81\x8A\x95\x24",
                "✓✗☐☑→①⑩❿\u{FFFD}",
            ),
            ("Wingdings 2;", b"PRQ\xA3\x6A\x73\x7E", "✓☑☒☐①⑩❿"),
            ("Wingdings 3", b"\x22 \x24", "→ ↓"),
            ("Webdings", b" a", " \u{FFFD}"),
        ];
        for (name, codes, shown) in texts {
            let font = SymbolFont::of_name(name).unwrap();
            let text: String = codes.iter().map(|code| font.character(*code)).collect();
            assert_eq!(text, shown, "{name}");
        }
        for name in ["Arial", "Segoe UI Symbol", "Cambria Math", ""] {
            assert_eq!(SymbolFont::of_name(name), None, "{name}");
        }
    }

    #[test]
    fn private_characters_are_codes_and_others_stay() {
        let translated: String = "\u{F06D}m\u{F0A3}日\n"
            .chars()
            .map(|character| SymbolFont::Symbol.translate(character))
            .collect();
        assert_eq!(translated, "µµ≤日\n");
    }

    #[test]
    fn a_symbol_field_names_a_code_and_a_font() {
        for (instruction, symbol) in [
            (" SYMBOL 179 \\f \"Symbol\" \\s 10 ", Some('≥')),
            ("symbol 0xFC \\f Wingdings", Some('✓')),
            ("SYMBOL 129 \\f Wingdings", Some('①')),
            ("SYMBOL 8364 \\u", Some('€')),
            ("SYMBOL 163 \\f \"Arial\"", Some('£')),
            ("SYMBOL x", None),
            ("SYMBOL", None),
            ("PAGE 3", None),
        ] {
            assert_eq!(symbol_of_field(instruction), symbol, "{instruction}");
        }
    }
}
