//! Formats cell values as a person sees them: numbers, percentages, dates, times, durations.

use jiff::Span;
use jiff::civil::Date;

use super::format::Format;

/// Significant digits that a worksheet keeps.
const SIGNIFICANT_DIGITS: usize = 15;
/// The last day that has a date, 9999-12-31, in the 1900 system.
const LAST_DAY: f64 = 2_958_466.0;
/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

/// A number to 15 significant digits, without exponent and without trailing zeros.
pub(in crate::formats) fn number_text(value: f64) -> String {
    if !value.is_finite() {
        return "#NUM!".to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let scientific = format!("{:.*e}", SIGNIFICANT_DIGITS - 1, value.abs());
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return value.to_string();
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits = mantissa.replace('.', "");
    let digits = digits.trim_end_matches('0');
    let mut out = String::new();
    if value < 0.0 {
        out.push('-');
    }
    if let Ok(exponent) = usize::try_from(exponent) {
        let whole = exponent + 1;
        if digits.len() <= whole {
            out.push_str(digits);
            out.push_str(&"0".repeat(whole - digits.len()));
        } else {
            let (before, after) = digits.split_at(whole);
            out.push_str(before);
            out.push('.');
            out.push_str(after);
        }
    } else {
        out.push_str("0.");
        let zeros = exponent.unsigned_abs().saturating_sub(1);
        out.push_str(&"0".repeat(usize::try_from(zeros).unwrap_or(0)));
        out.push_str(digits);
    }
    out
}

/// A number in its format. `epoch_1904` chooses the date system.
pub(super) fn formatted_text(value: f64, format: Format, epoch_1904: bool) -> String {
    match format {
        Format::General => number_text(value),
        Format::Percent => format!("{}%", number_text(value * 100.0)),
        Format::Duration => duration_text(value),
        Format::Date | Format::Time { .. } | Format::DateTime { .. } => {
            moment_text(value, format, epoch_1904).unwrap_or_else(|| number_text(value))
        }
    }
}

/// Hours that continue counting, minutes and seconds: `27:30:00`.
fn duration_text(days: f64) -> String {
    if !days.is_finite() || days.abs() > 1e9 {
        return number_text(days);
    }
    #[expect(clippy::cast_possible_truncation, reason = "bounded above")]
    let seconds = (days.abs() * 86_400.0).round() as i64;
    // A negative time that rounds to zero has no sign.
    let sign = if days < 0.0 && seconds > 0 { "-" } else { "" };
    format!(
        "{sign}{}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}

/// A serial number as date, time or both; `None` if it is outside the range of dates.
fn moment_text(serial: f64, format: Format, epoch_1904: bool) -> Option<String> {
    if !(0.0..LAST_DAY).contains(&serial) {
        return None;
    }
    let fraction = matches!(
        format,
        Format::Time { fraction: true } | Format::DateTime { fraction: true }
    );
    #[expect(clippy::cast_possible_truncation, reason = "bounded above")]
    let millis = if fraction {
        (serial * 86_400_000.0).round() as i64
    } else {
        (serial * 86_400.0).round() as i64 * 1000
    };
    let (day, clock) = (millis / DAY_MS, time_of_day(millis % DAY_MS));
    // Numbers before the first day have only a time.
    let has_no_date = serial < 1.0 && serial > 0.0 && !epoch_1904;
    match format {
        Format::Time { .. } => Some(clock),
        _ if has_no_date => Some(clock),
        Format::Date => Some(date_of(day_number(day, epoch_1904))),
        _ => Some(format!("{} {clock}", date_of(day_number(day, epoch_1904)))),
    }
}

/// Days since 1970-01-01 of a serial day. The 1900 system counts 29 February 1900, a day that did not exist.
fn day_number(day: i64, epoch_1904: bool) -> i64 {
    if epoch_1904 {
        day - 24_107
    } else if day < 60 {
        // Day 60 is 29 February 1900; it becomes 28 February, like day 59.
        day - 25_568
    } else {
        day - 25_569
    }
}

/// `hh:mm:ss`, with thousandths if they are not zero.
fn time_of_day(millis: i64) -> String {
    let seconds = millis / 1000;
    let clock = format!(
        "{:02}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    );
    match millis % 1000 {
        0 => clock,
        rest => format!("{clock}.{rest:03}"),
    }
}

/// `yyyy-mm-dd` of days since 1970-01-01 in the Gregorian calendar; the number itself for a day outside its range.
fn date_of(days: i64) -> String {
    let date = Span::new()
        .try_days(days)
        .and_then(|days| Date::constant(1970, 1, 1).checked_add(days));
    date.map_or_else(|_| days.to_string(), |date| date.to_string())
}

/// Formats an ISO 8601 time such as `2031-03-14T09:30:00.000Z`. Midnight in the general format becomes the date alone.
pub(super) fn iso_text(text: &str, format: Format) -> String {
    let text = text.trim().trim_end_matches('Z');
    let Some((date, time)) = text.split_once('T') else {
        return text.to_owned();
    };
    let time = match time.split_once(['.', ',']) {
        Some((whole, rest)) if rest.bytes().all(|byte| byte == b'0') => whole,
        _ => time,
    };
    let time = if time.len() == 5 {
        format!("{time}:00")
    } else {
        time.to_owned()
    };
    match format {
        Format::Date => date.to_owned(),
        Format::Time { .. } => time,
        Format::DateTime { .. } => format!("{date} {time}"),
        _ if time == "00:00:00" => date.to_owned(),
        _ => format!("{date} {time}"),
    }
}

/// Formats an ISO duration such as `PT27H30M00S` as `hh:mm:ss`; `None` for other text.
pub(super) fn iso_duration(text: &str) -> Option<String> {
    let text = text.trim();
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text),
    };
    let mut seconds = 0.0_f64;
    let mut digits = String::new();
    for c in text.strip_prefix('P')?.chars() {
        let unit = match c {
            '0'..='9' | '.' => {
                digits.push(c);
                continue;
            }
            ',' => {
                digits.push('.');
                continue;
            }
            'T' => continue,
            'D' => 86_400.0,
            'H' => 3600.0,
            // ODF writes times as `PT…`, so `M` is minutes, never months.
            'M' => 60.0,
            'S' => 1.0,
            _ => return None,
        };
        seconds += std::mem::take(&mut digits).parse::<f64>().ok()? * unit;
    }
    if !(0.0..1e12).contains(&seconds) {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "bounded above")]
    let seconds = seconds.round() as i64;
    Some(format!(
        "{sign}{:02}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_fifteen_digits_and_no_exponent() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1"),
            (-12.5, "-12.5"),
            (0.1 + 0.2, "0.3"),
            (1e21, "1000000000000000000000"),
            (1.5e-7, "0.00000015"),
            (123_456_789_012_345.0, "123456789012345"),
            (12_345_678_901_234_567.0, "12345678901234600"),
            (1.0 / 3.0, "0.333333333333333"),
            (999_999_999_999_999.9, "1000000000000000"),
            (100.0, "100"),
            (f64::NAN, "#NUM!"),
        ] {
            assert_eq!(number_text(value), text);
        }
    }

    #[test]
    fn percentages_dates_times_and_durations_read_as_a_person_sees_them() {
        let both = Format::DateTime { fraction: false };
        let time = Format::Time { fraction: false };
        for (value, format, epoch, text) in [
            (0.125, Format::Percent, false, "12.5%"),
            (0.07, Format::Percent, false, "7%"),
            (47_921.0, Format::Date, false, "2031-03-14"),
            (47_921.395_833_333_336, both, false, "2031-03-14 09:30:00"),
            (0.395_833_333_333_333_3, time, false, "09:30:00"),
            (46_459.0, Format::Date, true, "2031-03-14"),
            (0.0, Format::Date, true, "1904-01-01"),
            (1.0, Format::Date, false, "1900-01-01"),
            (59.0, Format::Date, false, "1900-02-28"),
            (61.0, Format::Date, false, "1900-03-01"),
            (2_958_465.0, Format::Date, false, "9999-12-31"),
            (2_958_466.0, Format::Date, false, "2958466"),
            (-1.0, Format::Date, false, "-1"),
            (1.145_833_333_333_333_3, Format::Duration, false, "27:30:00"),
            (-0.5, Format::Duration, false, "-12:00:00"),
            (
                0.500_005_787_037_037,
                Format::Time { fraction: true },
                false,
                "12:00:00.500",
            ),
        ] {
            assert_eq!(
                formatted_text(value, format, epoch),
                text,
                "{value} {format:?}"
            );
        }
    }

    #[test]
    fn iso_times_are_shown_without_needless_precision() {
        let both = Format::DateTime { fraction: false };
        assert_eq!(
            iso_text("2031-03-14T09:30:00.000Z", both),
            "2031-03-14 09:30:00"
        );
        assert_eq!(
            iso_text("2031-03-14T00:00:00", Format::General),
            "2031-03-14"
        );
        assert_eq!(iso_text("2031-03-14T00:00:00", both), "2031-03-14 00:00:00");
        assert_eq!(iso_text("2031-03-14", Format::General), "2031-03-14");
        assert_eq!(iso_duration("PT27H30M00S").as_deref(), Some("27:30:00"));
        assert_eq!(iso_duration("PT9H5M7.6S").as_deref(), Some("09:05:08"));
        assert_eq!(iso_duration("tomorrow"), None);
    }
}
