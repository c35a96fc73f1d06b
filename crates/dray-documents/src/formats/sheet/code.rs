//! Number format codes applied to numbers (ECMA-376-1, 18.8.31): decimals, thousands, signs, words and currencies.
//!
//! Dates, times and durations are not written with their format codes, but as in ISO 8601 in every file.

use super::value::number_text;

/// Most characters of a code; a longer one is ignored.
const MAX_CODE_CHARACTERS: usize = 255;
/// Most sections of a code; further ones are ignored.
const MAX_SECTIONS: usize = 4;
/// Most decimals that are shown.
const MAX_DECIMALS: usize = 15;
/// Largest share by which the text of a number may differ from its value; beyond it the exact number is shown, too.
pub(super) const MAX_LOSS: f64 = 0.02;

/// A number format code, with sections for numbers and for text.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct FormatCode {
    sections: Vec<Section>,
}

/// A section of a code: the format of positive numbers, of negative numbers, of zero, or of text.
#[derive(Clone, Debug, Default, PartialEq)]
struct Section {
    tokens: Vec<FormatToken>,
    /// Number of `%`; each multiplies by 100.
    percents: usize,
    /// Number of commas after the last digit; each divides by 1,000.
    thousandths: usize,
    grouped: bool,
    /// Most and fewest decimals that are shown.
    decimals: (usize, usize),
    /// Least digits before the point.
    whole: usize,
    /// Whether the section has parts that this module does not apply: exponents, fractions, dates.
    is_unsupported: bool,
    /// Whether the section has a condition, which replaces the usual choice of a section by the sign.
    has_condition: bool,
}

/// An element of a section's pattern.
#[derive(Clone, Debug, PartialEq)]
enum FormatToken {
    /// Literal text.
    Literal(String),
    /// A digit before the point; the flag marks digits that are always shown.
    Digit(bool),
    /// The point, and all decimals.
    Decimals,
    /// The number without a format, or the text of the cell.
    General,
}

/// A number as a person sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ShownNumber {
    Text(String),
    /// The code hides the number.
    Nothing,
}

impl FormatCode {
    /// Parses a code; `None` for the code of unformatted numbers.
    pub(super) fn parse(code: &str) -> Option<Self> {
        if code.chars().count() > MAX_CODE_CHARACTERS || code.trim().eq_ignore_ascii_case("general")
        {
            return None;
        }
        let mut sections = vec![Section::default()];
        let mut chars = code.chars().peekable();
        while let Some(character) = chars.next() {
            if character == ';' {
                sections.push(Section::default());
            } else if let Some(section) = sections.last_mut() {
                section.read(character, &mut chars);
            }
        }
        sections.truncate(MAX_SECTIONS);
        Some(Self { sections })
    }

    /// The code of a built-in format; `None` for dates, times and unknown ids.
    pub(super) fn built_in(id: u32) -> Option<Self> {
        let code = match id {
            1 => "0",
            2 => "0.00",
            3 | 5 | 6 | 37 | 38 | 41 | 42 => "#,##0",
            4 | 7 | 8 | 39 | 40 | 43 | 44 => "#,##0.00",
            9 => "0%",
            10 => "0.00%",
            _ => return None,
        };
        Self::parse(code)
    }

    /// Whether text in a cell of this format is not shown.
    pub(super) fn hides_text(&self) -> bool {
        self.sections.len() == MAX_SECTIONS
            && self
                .sections
                .last()
                .is_some_and(|section| section.tokens.is_empty())
    }

    /// A number in this format; `None` if the code has parts that this module does not apply.
    pub(super) fn apply(&self, value: f64) -> Option<ShownNumber> {
        // With conditions, the section of a number and its sign depend on all of them; the plain number is always right.
        if !value.is_finite() || self.sections.iter().any(|section| section.has_condition) {
            return None;
        }
        // Negative zero compares equal to zero, so it uses the section for zero.
        let (section, sign) = match (self.sections.as_slice(), value) {
            ([_, negative, ..], ..0.0) => (negative, ""),
            ([_, _, zero, ..], 0.0) => (zero, ""),
            ([first, ..], ..0.0) => (first, "-"),
            ([first, ..], _) => (first, ""),
            ([], _) => return None,
        };
        if section.is_unsupported {
            return None;
        }
        if section.tokens.contains(&FormatToken::General) {
            // The section for negative numbers has its own sign among its literals: `-General`, `(General)`.
            let text = section.with_literals(&number_text(value.abs()));
            return Some(ShownNumber::Text(format!("{sign}{text}")));
        }
        if section.tokens.is_empty() {
            return Some(ShownNumber::Nothing);
        }
        let (text, rounded) = section.apply(value.abs());
        // If all digits are zero, the number has no minus sign.
        let sign = if rounded == 0.0 { "" } else { sign };
        let text = format!("{sign}{text}").trim().to_owned();
        if text.is_empty() {
            return Some(ShownNumber::Nothing);
        }
        let lost = (rounded - value.abs()).abs() > value.abs() * MAX_LOSS;
        if lost && section.shows_digits() {
            let exact = section.exact(value);
            return Some(ShownNumber::Text(format!("{text} ({exact})")));
        }
        Some(ShownNumber::Text(text))
    }
}

type Chars<'c> = std::iter::Peekable<std::str::Chars<'c>>;

impl Section {
    fn push_literal(&mut self, text: &str) {
        if let Some(FormatToken::Literal(last)) = self.tokens.last_mut() {
            last.push_str(text);
        } else if !text.is_empty() {
            self.tokens.push(FormatToken::Literal(text.to_owned()));
        }
    }

    /// Parses the element that begins with this character.
    fn read(&mut self, first: char, chars: &mut Chars<'_>) {
        match first {
            '"' => {
                let text: String = chars
                    .by_ref()
                    .take_while(|character| *character != '"')
                    .collect();
                self.push_literal(&text);
            }
            '\\' => {
                let text = chars.next().map(String::from).unwrap_or_default();
                self.push_literal(&text);
            }
            '_' => {
                chars.next();
                self.push_literal(" ");
            }
            '*' => {
                chars.next();
            }
            '[' => {
                let inner: String = chars
                    .by_ref()
                    .take_while(|character| *character != ']')
                    .collect();
                self.read_bracket(&inner);
            }
            '0' | '#' | '?' => self.read_digit(first),
            '.' => {
                if self.decimals == (0, 0) && !self.tokens.contains(&FormatToken::Decimals) {
                    self.tokens.push(FormatToken::Decimals);
                }
            }
            ',' => self.read_comma(chars),
            '%' => {
                self.percents += 1;
                self.push_literal("%");
            }
            'G' | 'g' => {
                let rest: String = chars.clone().take(6).collect();
                if rest.eq_ignore_ascii_case("eneral") {
                    chars.nth(5);
                    self.tokens.push(FormatToken::General);
                } else {
                    self.is_unsupported = true;
                }
            }
            '@' => self.tokens.push(FormatToken::General),
            '/' => self.is_unsupported = true,
            letter if letter.is_ascii_alphabetic() => self.is_unsupported = true,
            other => self.push_literal(&other.to_string()),
        }
    }

    /// `[$€-407]` is a currency, `[h]` counts hours, the others are colours and conditions.
    fn read_bracket(&mut self, inner: &str) {
        if let Some(currency) = inner.strip_prefix('$') {
            let symbol = currency.split('-').next().unwrap_or_default();
            self.push_literal(symbol);
        } else if inner.starts_with(['<', '>', '=']) {
            self.has_condition = true;
        } else if inner.starts_with(['h', 'm', 's']) {
            self.is_unsupported = true;
        }
    }

    fn read_digit(&mut self, character: char) {
        if self.tokens.contains(&FormatToken::Decimals) {
            self.decimals.0 = (self.decimals.0 + 1).min(MAX_DECIMALS);
            if character == '0' {
                self.decimals.1 = self.decimals.0;
            }
        } else {
            self.whole += usize::from(character == '0' || self.whole > 0);
            self.tokens.push(FormatToken::Digit(character == '0'));
        }
    }

    /// A comma between digits groups them; after the last digit it divides.
    fn read_comma(&mut self, chars: &Chars<'_>) {
        let next = chars.clone().find(|character| *character != ',');
        let has_digit = self
            .tokens
            .iter()
            .any(|token| matches!(token, FormatToken::Digit(_)));
        match next {
            Some('0' | '#' | '?') if has_digit => self.grouped = true,
            _ if has_digit => self.thousandths += 1,
            _ => self.push_literal(","),
        }
    }

    fn shows_digits(&self) -> bool {
        let mut digits = self.tokens.iter();
        digits.any(|token| matches!(token, FormatToken::Digit(_) | FormatToken::Decimals))
    }

    /// A number without a format among the literals of the section.
    fn with_literals(&self, number: &str) -> String {
        let shown = self.tokens.iter().filter_map(|token| match token {
            FormatToken::Literal(text) => Some(text.as_str()),
            FormatToken::General => Some(number),
            FormatToken::Digit(_) | FormatToken::Decimals => None,
        });
        shown.collect::<String>().trim().to_owned()
    }

    /// All digits of a number, as a percentage where the section shows one.
    fn exact(&self, value: f64) -> String {
        match self.percents {
            1 => format!("{}%", number_text(value * 100.0)),
            _ => number_text(value),
        }
    }

    fn factor(&self) -> f64 {
        let percents = i32::try_from(self.percents).unwrap_or(0) * 2;
        // Beyond this the power overflows to infinity or vanishes.
        let thousandths = i32::try_from(self.thousandths).unwrap_or(0) * 3;
        10_f64.powi((percents - thousandths).clamp(-300, 300))
    }

    /// The text of a non-negative number, and the value of the text.
    fn apply(&self, value: f64) -> (String, f64) {
        let digits = rounded(&number_text(value * self.factor()), self.decimals.0);
        let (whole, fraction) = digits.split_once('.').unwrap_or((&digits, ""));
        let whole = whole.trim_start_matches('0');
        let shown_decimals = fraction.trim_end_matches('0').len().max(self.decimals.1);
        let fraction = fraction.get(..shown_decimals).unwrap_or(fraction);
        let number = digits.parse().unwrap_or(value) / self.factor();
        let digit_places = self
            .tokens
            .iter()
            .filter(|token| matches!(token, FormatToken::Digit(_)))
            .count();
        let mut left = whole.len().max(self.whole);
        let padded = format!("{}{whole}", "0".repeat(left - whole.len()));
        let mut chars = padded.chars();
        let mut text = String::new();
        let mut position = 0;
        for token in &self.tokens {
            match token {
                FormatToken::Literal(literal) => text.push_str(literal),
                // A section with it is written without its other digits.
                FormatToken::General => {}
                FormatToken::Digit(_) => {
                    // The first placeholder gets all digits without a placeholder.
                    let digits_after = digit_places - position - 1;
                    while left > digits_after {
                        text.extend(chars.next());
                        left -= 1;
                        if self.grouped && left > 0 && left.is_multiple_of(3) {
                            text.push(',');
                        }
                    }
                    position += 1;
                }
                FormatToken::Decimals => {
                    if digit_places == 0 && !whole.is_empty() {
                        text.push_str(whole);
                    }
                    if !fraction.is_empty() {
                        text.push('.');
                        text.push_str(fraction);
                    }
                }
            }
        }
        (text, if self.shows_digits() { number } else { value })
    }
}

/// Decimal digits, rounded to this number of decimals, halves away from zero, as worksheets do.
pub(super) fn rounded(digits: &str, decimals: usize) -> String {
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut kept: Vec<u8> = whole.bytes().collect();
    kept.extend(
        fraction
            .bytes()
            .chain(std::iter::repeat(b'0'))
            .take(decimals),
    );
    // The decimal digits decide, not the binary value: 1.005 becomes 1.01, as in worksheets.
    let up = fraction
        .as_bytes()
        .get(decimals)
        .is_some_and(|digit| *digit >= b'5');
    let mut carry = up;
    for digit in kept.iter_mut().rev() {
        if !carry {
            break;
        }
        carry = *digit == b'9';
        *digit = if carry { b'0' } else { *digit + 1 };
    }
    if carry {
        kept.insert(0, b'1');
    }
    let point = kept.len() - decimals;
    let mut text: String = kept.iter().map(|digit| char::from(*digit)).collect();
    if decimals > 0 {
        text.insert(point, '.');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show_value(code: &str, value: f64) -> String {
        match FormatCode::parse(code).unwrap().apply(value) {
            Some(ShownNumber::Text(text)) => text,
            Some(ShownNumber::Nothing) => "(nothing)".to_owned(),
            None => "(foreign)".to_owned(),
        }
    }

    #[test]
    fn numbers_are_shown_as_their_codes_say() {
        for (code, value, text) in [
            ("0.00%", 0.123_456_789_012_3, "12.35%"),
            ("0%", 0.3, "30%"),
            ("0.0%", 0.3, "30.0%"),
            ("0.00", 5.0, "5.00"),
            ("0.00", 1.005, "1.01"),
            ("0.##", 5.0, "5"),
            ("0.0#", 2.5, "2.5"),
            ("#,##0.00", 1_234_567.891, "1,234,567.89"),
            ("#,##0", 999.0, "999"),
            ("#,##0", -1234.0, "-1,234"),
            ("\"$\"#,##0.00", 1234.5, "$1,234.50"),
            (
                "\"$\"#,##0.00_);[Red]\\(\"$\"#,##0.00\\)",
                -1234.5,
                "($1,234.50)",
            ),
            ("#,##0.00 [$€-407]", 1234.5, "1,234.50 €"),
            ("[$USD] 0.00", 7.0, "USD 7.00"),
            ("0;\"-\"0;\"none\"", 0.0, "none"),
            ("0.00;[Red]-0.00", -3.5, "-3.50"),
            ("00000", 421.0, "00421"),
            ("000\\-00\\-0000", 123_456_789.0, "123-45-6789"),
            ("0 \"kg\"", 12.0, "12 kg"),
            ("#", 0.0, "(nothing)"),
            (";;;", 42.0, "(nothing)"),
            ("0;;", -1.0, "(nothing)"),
            ("0.00E+00", 12345.0, "(foreign)"),
            ("# ?/?", 0.5, "(foreign)"),
            ("[>100]0;0.0", 5.0, "(foreign)"),
            ("[>=1000]#,##0,\"K\";0", -5.0, "(foreign)"),
            ("[>=1000]#,##0,\"K\";0", 2500.0, "(foreign)"),
            ("[<100]0.0;0", -5.0, "(foreign)"),
            ("[Red][<0]0.00;0.00", -5.0, "(foreign)"),
            ("0.00;[Red][<-100]0.00;0.00", -5.0, "(foreign)"),
            ("\"$\"General", 12.5, "$12.5"),
            ("General\" kg\"", 5.0, "5 kg"),
            ("General\" kg\"", -5.0, "-5 kg"),
            ("\"$\"General", -12.5, "-$12.5"),
            ("General;[Red]-General", -5.0, "-5"),
            ("General;(General)", -7.5, "(7.5)"),
            ("\"+\"General;\"-\"General", -5.0, "-5"),
            ("0", 1e300, &format!("1{}", "0".repeat(300))),
            ("0", 0.4, "0 (0.4)"),
        ] {
            assert_eq!(show_value(code, value), text, "{code} of {value}");
        }
    }

    #[test]
    fn the_exact_number_follows_where_precision_is_lost() {
        for (code, value, text) in [
            ("0", 0.6, "1 (0.6)"),
            ("#,##0,", 1_234_567.0, "1,235"),
            ("0.0,,\" M\"", 1_234_567.0, "1.2 M (1234567)"),
            ("0%", 0.123_456, "12% (12.3456%)"),
            ("0.00", 1.0 / 3.0, "0.33"),
            ("0.00", 100.0 / 3.0, "33.33"),
        ] {
            assert_eq!(show_value(code, value), text, "{code} of {value}");
        }
    }

    #[test]
    fn a_code_of_four_sections_may_hide_text() {
        assert!(FormatCode::parse(";;;").unwrap().hides_text());
        assert!(!FormatCode::parse("0;0;0;@").unwrap().hides_text());
        assert!(!FormatCode::parse(";;").unwrap().hides_text());
        assert_eq!(FormatCode::parse("General"), None);
    }
}
