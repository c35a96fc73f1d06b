//! Number formats: determines from a format code how a number is shown.

/// The kind of value that a number is shown as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Format {
    /// A number, with any decimals and currency.
    #[default]
    General,
    Percent,
    Date,
    /// A time, with thousandths if the code has fractions of a second.
    Time {
        fraction: bool,
    },
    DateTime {
        fraction: bool,
    },
    /// Hours, minutes or seconds that continue counting.
    Duration,
}

impl Format {
    /// The built-in format of an id; an unknown id is [`Format::General`].
    pub(super) fn built_in(id: u32) -> Self {
        match id {
            9 | 10 => Self::Percent,
            14..=17 | 27..=31 | 36 | 50..=54 | 57 | 58 => Self::Date,
            18..=21 | 32..=35 | 45 | 55 | 56 => Self::Time { fraction: false },
            22 => Self::DateTime { fraction: false },
            46 => Self::Duration,
            47 => Self::Time { fraction: true },
            _ => Self::General,
        }
    }

    /// The format of a code such as `dd/mm/yyyy;@`. Only the first section counts, the one for positive numbers.
    pub(super) fn of_code(code: &str) -> Self {
        let mut parts = FormatParts::default();
        let mut chars = code.chars().peekable();
        while let Some(character) = chars.next() {
            match character {
                ';' => break,
                '"' => {
                    chars.by_ref().find(|quoted| *quoted == '"');
                }
                // The character after these is part of the code: text, a width, or a filling.
                '\\' | '_' | '*' => {
                    chars.next();
                }
                '[' => {
                    let inner = chars.by_ref().take_while(|inner| *inner != ']');
                    parts.bracket(&inner.collect::<String>());
                }
                // `0.00E+00` is an exponent, not the year of an era.
                'E' | 'e' if matches!(chars.peek(), Some('+' | '-')) => {}
                'A' | 'a' | 'P' | 'p' if matches!(chars.peek(), Some('m' | 'M')) => {
                    chars.next();
                    parts.time = true;
                }
                'A' | 'a' if chars.peek() == Some(&'/') => {
                    chars.nth(1);
                    parts.time = true;
                }
                'G' | 'g' if rest_is(&chars, "eneral") => {
                    for _ in 0.."eneral".len() {
                        chars.next();
                    }
                }
                '%' => parts.percent = true,
                'y' | 'Y' | 'd' | 'D' | 'e' | 'g' | 'b' => parts.date = true,
                'h' | 'H' => parts.time = true,
                's' | 'S' => {
                    parts.time = true;
                    while matches!(chars.peek(), Some('s' | 'S')) {
                        chars.next();
                    }
                    let mut ahead = chars.clone();
                    parts.fraction |= ahead.next() == Some('.') && ahead.next() == Some('0');
                }
                'm' | 'M' => {
                    let mut run = 1;
                    while matches!(chars.peek(), Some('m' | 'M')) {
                        chars.next();
                        run += 1;
                    }
                    if run >= 3 {
                        parts.date = true;
                    } else {
                        parts.month_or_minute = true;
                    }
                }
                _ => {}
            }
        }
        parts.format()
    }
}

fn rest_is(chars: &std::iter::Peekable<std::str::Chars<'_>>, word: &str) -> bool {
    chars
        .clone()
        .take(word.len())
        .map(|character| character.to_ascii_lowercase())
        .eq(word.chars())
}

/// The parts of a format code.
#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "parts of a code, each independent of the others"
)]
struct FormatParts {
    percent: bool,
    date: bool,
    time: bool,
    fraction: bool,
    month_or_minute: bool,
    elapsed: bool,
}

impl FormatParts {
    /// `[h]`, `[mm]`, `[ss]` are elapsed times; other text in brackets is a colour, a condition or a locale.
    fn bracket(&mut self, inner: &str) {
        let inner = inner.to_ascii_lowercase();
        let mut letters = inner.chars();
        if let Some(first @ ('h' | 'm' | 's')) = letters.next()
            && letters.all(|letter| letter == first)
        {
            self.elapsed = true;
        }
    }

    fn format(&self) -> Format {
        let fraction = self.fraction;
        match self {
            Self { elapsed: true, .. } => Format::Duration,
            Self {
                date: true,
                time: true,
                ..
            } => Format::DateTime { fraction },
            // `m` beside hours or seconds is minutes, alone it is a month.
            Self { time: true, .. } => Format::Time { fraction },
            Self { date: true, .. }
            | Self {
                month_or_minute: true,
                ..
            } => Format::Date,
            Self { percent: true, .. } => Format::Percent,
            _ => Format::General,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_determine_how_a_number_is_shown() {
        let time = Format::Time { fraction: false };
        let both = Format::DateTime { fraction: false };
        for (code, format) in [
            ("General", Format::General),
            ("#,##0.00 \"days\"", Format::General),
            ("0.00E+00", Format::General),
            ("[Red]0", Format::General),
            ("[$€-407] #,##0", Format::General),
            ("\\d0", Format::General),
            ("0_)", Format::General),
            ("0.0%", Format::Percent),
            ("0%;[Red]-0%", Format::Percent),
            ("\"100%\" 0", Format::General),
            ("yyyy-mm-dd", Format::Date),
            ("mmm-yy", Format::Date),
            ("[$-409]d-mmm-yy;@", Format::Date),
            ("m/d", Format::Date),
            ("h:mm AM/PM", time),
            ("h:mm a/p", time),
            ("mm:ss", time),
            ("mm:ss.0", Format::Time { fraction: true }),
            ("yyyy\\-mm\\-dd\\ hh:mm:ss", both),
            ("[h]:mm:ss", Format::Duration),
            ("[mm]:ss", Format::Duration),
            ("0;yyyy", Format::General),
        ] {
            assert_eq!(Format::of_code(code), format, "{code}");
        }
    }
}
