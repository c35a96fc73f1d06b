//! The number of a heading or an item as a person sees it, such as `3.1`, `(c)` or `Article II.`.

use super::blocks::Block;
use crate::markdown::{Inline, ListMarker};

/// The spelling of the numbers of a level; unknown formats use digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum NumberSpelling {
    #[default]
    Digits,
    Letters {
        upper: bool,
    },
    Roman {
        upper: bool,
    },
}

impl NumberSpelling {
    /// Finds the spelling by the name of the format.
    pub(super) fn of(format: &str) -> Self {
        match format {
            "lowerLetter" => Self::Letters { upper: false },
            "upperLetter" => Self::Letters { upper: true },
            "lowerRoman" => Self::Roman { upper: false },
            "upperRoman" => Self::Roman { upper: true },
            _ => Self::Digits,
        }
    }

    /// Finds the spelling by the number one in it, as ODF names it.
    pub(super) fn of_one(one: &str) -> Self {
        match one {
            "a" => Self::Letters { upper: false },
            "A" => Self::Letters { upper: true },
            "i" => Self::Roman { upper: false },
            "I" => Self::Roman { upper: true },
            _ => Self::Digits,
        }
    }

    /// A number in this spelling; in digits if it has none.
    pub(super) fn spell(self, number: u64) -> String {
        let (spelled, upper) = match self {
            Self::Letters { upper } => (letters_of(number), upper),
            Self::Roman { upper } => (roman_of(number), upper),
            Self::Digits => (None, false),
        };
        match spelled {
            Some(text) if upper => text.to_uppercase(),
            Some(text) => text,
            None => number.to_string(),
        }
    }
}

/// How a paragraph of a slide shows its number (ECMA-376-1, 20.1.10.61).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AutoNumber {
    spelling: NumberSpelling,
    before: &'static str,
    after: &'static str,
}

impl AutoNumber {
    /// Finds it by the name of the scheme, such as `alphaLcParenBoth`; unknown schemes are digits with a dot.
    pub(super) fn of(scheme: &str) -> Self {
        let spellings = [
            ("alphaLc", NumberSpelling::Letters { upper: false }),
            ("alphaUc", NumberSpelling::Letters { upper: true }),
            ("romanLc", NumberSpelling::Roman { upper: false }),
            ("romanUc", NumberSpelling::Roman { upper: true }),
        ];
        let spelling = spellings
            .into_iter()
            .find(|(prefix, _)| scheme.starts_with(*prefix))
            .map_or(NumberSpelling::Digits, |(_, spelling)| spelling);
        let (before, after) = if scheme.ends_with("ParenBoth") {
            ("(", ")")
        } else if scheme.ends_with("ParenR") {
            ("", ")")
        } else {
            ("", ".")
        };
        Self {
            spelling,
            before,
            after,
        }
    }

    pub(super) fn label(self, number: u64) -> String {
        format!(
            "{}{}{}",
            self.before,
            self.spelling.spell(number),
            self.after
        )
    }
}

/// A list item. The marker of Markdown is a number with a dot; any other label, such as `(c)` or `1.2`, begins the text
/// of an item with a bullet, so that references to it lead somewhere.
pub(super) fn list_item(depth: usize, marker: ListMarker, label: &str, text: Inline) -> Block {
    let is_plain = match marker {
        ListMarker::Number(number) => label.trim_end_matches(['.', ')']) == number.to_string(),
        ListMarker::Bullet | ListMarker::Definition => true,
    };
    if is_plain || label.is_empty() || text.is_blank() {
        return Block::Item(depth, marker, text);
    }
    Block::Item(depth, ListMarker::Bullet, labelled(label, text))
}

/// A text after its label.
pub(in crate::formats) fn labelled(label: &str, text: Inline) -> Inline {
    let mut labelled = Inline::plain(&format!("{label} "));
    labelled.append(text);
    labelled
}

/// The pattern of a level with its `%1` to `%9` replaced by the results of `level` for 0 to 8.
pub(super) fn level_label(
    pattern: &str,
    level: impl Fn(usize) -> Option<(NumberSpelling, u64)>,
) -> String {
    let mut out = String::new();
    let mut signs = pattern.chars().peekable();
    while let Some(sign) = signs.next() {
        let level_index = signs
            .peek()
            .filter(|_| sign == '%')
            .and_then(|character| character.to_digit(10))
            .and_then(|digit| usize::try_from(digit).ok()?.checked_sub(1));
        match level_index {
            Some(level_index) => {
                signs.next();
                if let Some((spelling, number)) = level(level_index) {
                    out.push_str(&spelling.spell(number));
                }
            }
            None => out.push(sign),
        }
    }
    out.trim().to_owned()
}

/// `a` to `z`, then `aa`, `bb`.
fn letters_of(number: u64) -> Option<String> {
    // Beyond a few repetitions digits are read better, and a large number must not become a large text.
    let before = number.checked_sub(1).filter(|before| *before < 26 * 16)?;
    let letter = char::from(b'a' + u8::try_from(before % 26).ok()?);
    let times = usize::try_from(before / 26 + 1).ok()?;
    Some(letter.to_string().repeat(times))
}

fn roman_of(number: u64) -> Option<String> {
    const ROMAN_SIGNS: [(u64, &str); 13] = [
        (1000, "m"),
        (900, "cm"),
        (500, "d"),
        (400, "cd"),
        (100, "c"),
        (90, "xc"),
        (50, "l"),
        (40, "xl"),
        (10, "x"),
        (9, "ix"),
        (5, "v"),
        (4, "iv"),
        (1, "i"),
    ];
    let mut rest = (1..4000).contains(&number).then_some(number)?;
    let mut out = String::new();
    for (value, sign) in ROMAN_SIGNS {
        while rest >= value {
            out.push_str(sign);
            rest -= value;
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::{AutoNumber, NumberSpelling, level_label};

    #[test]
    fn numbers_are_spelled_as_their_level_asks() {
        for (format, number, spelled) in [
            ("decimal", 12, "12"),
            ("lowerLetter", 27, "aa"),
            ("upperLetter", 3, "C"),
            ("lowerRoman", 1994, "mcmxciv"),
            ("upperRoman", 4, "IV"),
            ("upperRoman", 0, "0"),
            ("lowerLetter", u64::MAX, "18446744073709551615"),
            ("ideographDigital", 5, "5"),
        ] {
            assert_eq!(NumberSpelling::of(format).spell(number), spelled);
        }
    }

    #[test]
    fn numbers_of_slides_are_shown_as_their_scheme_says() {
        for (scheme, label) in [
            ("arabicPeriod", "3."),
            ("arabicParenR", "3)"),
            ("alphaLcParenBoth", "(c)"),
            ("romanUcPeriod", "III."),
            ("circleNumDbPlain", "3."),
        ] {
            assert_eq!(AutoNumber::of(scheme).label(3), label);
        }
    }

    #[test]
    fn patterns_keep_text_that_is_not_a_level() {
        let level = |at| (at < 2).then_some((NumberSpelling::Digits, 7 + at as u64));
        for (pattern, shown) in [
            ("%1.%2", "7.8"),
            ("Article %1:", "Article 7:"),
            ("100% %0 %9.", "100% %0 ."),
            ("%", "%"),
        ] {
            assert_eq!(level_label(pattern, level), shown);
        }
    }
}
