//! Bytes to text: byte-order marks, UTF-8, UTF-16 without a mark, then a statistical detector (read-attachment 5.3).

use std::borrow::Cow;

use encoding_rs::{Encoding, ISO_2022_JP, UTF_8, UTF_16BE, UTF_16LE};

/// Bytes at the start of a file that are read to find its encoding.
pub const SAMPLE_BYTES: usize = 64 * 1024;
/// Bytes before the first non-ASCII byte of a line that the detector reads with it.
const CONTEXT_BYTES: usize = 256;

/// An encoding, detected or named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DetectedEncoding {
    /// One of the WHATWG encodings.
    Known(&'static Encoding),
    /// UTF-32, little endian. WHATWG does not define it.
    Utf32Le,
    /// UTF-32, big endian. WHATWG does not define it.
    Utf32Be,
}

impl DetectedEncoding {
    /// The encoding's name, such as `UTF-8` or `windows-1252`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Known(encoding) => encoding.name(),
            Self::Utf32Le => "UTF-32LE",
            Self::Utf32Be => "UTF-32BE",
        }
    }

    /// The encoding with this name or WHATWG label.
    pub fn of_label(label: &str) -> Option<Self> {
        match label.trim().to_ascii_lowercase().as_str() {
            "utf-32le" | "utf-32" => Some(Self::Utf32Le),
            "utf-32be" => Some(Self::Utf32Be),
            other => Encoding::for_label(other.as_bytes()).map(Self::Known),
        }
    }
}

/// The encoding of the byte-order mark at the start of `bytes`, and the length of the mark in bytes.
pub fn of_mark(bytes: &[u8]) -> Option<(DetectedEncoding, usize)> {
    // This check comes before the others: the mark of UTF-32 LE begins like that of UTF-16 LE.
    if bytes.starts_with(&[0xFF, 0xFE, 0, 0]) {
        return Some((DetectedEncoding::Utf32Le, 4));
    }
    if bytes.starts_with(&[0, 0, 0xFE, 0xFF]) {
        return Some((DetectedEncoding::Utf32Be, 4));
    }
    Encoding::for_bom(bytes).map(|(encoding, length)| (DetectedEncoding::Known(encoding), length))
}

/// Detects UTF-16 without a byte-order mark: zero bytes only at even or only at odd offsets, and at least 90 % of the
/// characters are letters, digits, white space or ASCII punctuation.
pub fn utf16_without_mark(sample: &[u8]) -> Option<DetectedEncoding> {
    if is_ascii_with_zeros(sample) {
        return None;
    }
    let zeros = |odd: usize| {
        sample
            .iter()
            .skip(odd)
            .step_by(2)
            .filter(|byte| **byte == 0)
            .count()
    };
    let (even, odd) = (zeros(0), zeros(1));
    let encoding = match (even, odd) {
        (0, 1..) => UTF_16LE,
        (1.., 0) => UTF_16BE,
        _ => return None,
    };
    // A sample may end in the middle of a unit, which would count as implausible.
    let whole_units = sample.get(..sample.len() & !1)?;
    let (text, _) = encoding.decode_without_bom_handling(whole_units);
    let total = text.chars().count();
    let plausible = text
        .chars()
        .filter(|character| {
            character.is_alphanumeric()
                || character.is_whitespace()
                || character.is_ascii_punctuation()
        })
        .count();
    (total > 0 && plausible * 10 >= total * 9).then_some(DetectedEncoding::Known(encoding))
}

/// Whether the text is ASCII with scattered zero bytes. Decoded as UTF-16, such text has letters, too, but of unlikely
/// scripts.
fn is_ascii_with_zeros(sample: &[u8]) -> bool {
    let nonzero_bytes = sample.iter().filter(|byte| **byte != 0).count();
    nonzero_bytes * 4 > sample.len() * 3 && sample.is_ascii()
}

/// Whether a text is ISO-2022-JP: seven bits, with escape sequences that switch to Japanese and back. As UTF-8 it would
/// be valid but unreadable.
fn is_iso_2022_jp(sample: &[u8]) -> bool {
    let has_escape = |escape: &[u8]| sample.windows(escape.len()).any(|bytes| bytes == escape);
    sample.contains(&0x1B)
        && sample.is_ascii()
        && (has_escape(b"\x1B$B") || has_escape(b"\x1B$@"))
        && (has_escape(b"\x1B(B") || has_escape(b"\x1B(J"))
        && !ISO_2022_JP.decode_without_bom_handling(sample).1
}

/// The encoding of a text: by its byte-order mark, otherwise ISO-2022-JP by its escapes, UTF-8 if valid, UTF-16 by its
/// zeros, or by statistics, in this order. Never fails; the last resort is windows-1252.
pub fn find_encoding(bytes: &[u8]) -> DetectedEncoding {
    if let Some((found, _)) = of_mark(bytes) {
        return found;
    }
    let sample = bytes.get(..SAMPLE_BYTES).unwrap_or(bytes);
    if is_iso_2022_jp(sample) {
        return DetectedEncoding::Known(ISO_2022_JP);
    }
    // UTF-16 of plain ASCII is valid UTF-8 too, with a NUL beside every letter.
    if std::str::from_utf8(bytes).is_ok() && !sample.contains(&0) {
        return DetectedEncoding::Known(UTF_8);
    }
    if let Some(found) = utf16_without_mark(sample) {
        return found;
    }
    if is_mostly_utf8(bytes) {
        return DetectedEncoding::Known(UTF_8);
    }
    let mut detector = chardetng::EncodingDetector::new(chardetng::Iso2022JpDetection::Allow);
    detector.feed(&non_ascii_sample(bytes), true);
    // Valid UTF-8 was found above; other text is broken or not UTF-8.
    DetectedEncoding::Known(detector.guess(None, chardetng::Utf8Detection::Deny))
}

/// Whether a text is UTF-8 with a few invalid bytes, which do not make it Latin-1. Counts in all of the text: the start
/// of a long one may be ASCII, which says nothing.
fn is_mostly_utf8(bytes: &[u8]) -> bool {
    let (mut valid, mut broken) = (0_usize, 0_usize);
    for chunk in bytes.utf8_chunks() {
        let characters = chunk.valid().chars();
        valid += characters.filter(|character| !character.is_ascii()).count();
        broken += usize::from(!chunk.invalid().is_empty());
    }
    valid > broken * 3
}

/// The text for the detector: a short text itself, of a long one the lines that are not ASCII, up to [`SAMPLE_BYTES`].
fn non_ascii_sample(bytes: &[u8]) -> Cow<'_, [u8]> {
    if bytes.len() <= SAMPLE_BYTES {
        return Cow::Borrowed(bytes);
    }
    let mut sample: Vec<u8> = Vec::new();
    // No multi-byte encoding has the byte of a line feed in a character, so lines have complete characters.
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let Some(first) = line.iter().position(|byte| !byte.is_ascii()) else {
            continue;
        };
        let start = first.saturating_sub(CONTEXT_BYTES);
        let room = SAMPLE_BYTES - sample.len();
        sample.extend(line.iter().skip(start).take(room));
        if sample.len() >= SAMPLE_BYTES {
            break;
        }
    }
    Cow::Owned(sample)
}

/// Decodes with the given label if it is valid, otherwise with the result of [`find_encoding`]. A byte-order mark
/// overrides both and does not appear in the text; invalid bytes become U+FFFD.
pub fn decode_text<'a>(bytes: &'a [u8], label: Option<&str>) -> Cow<'a, str> {
    let (found, mark) = match of_mark(bytes) {
        Some(marked) => marked,
        None => (
            label
                .and_then(DetectedEncoding::of_label)
                .unwrap_or_else(|| find_encoding(bytes)),
            0,
        ),
    };
    let bytes = bytes.get(mark..).unwrap_or_default();
    match found {
        DetectedEncoding::Known(encoding) => encoding.decode_without_bom_handling(bytes).0,
        DetectedEncoding::Utf32Le => decode_utf32(bytes, u32::from_le_bytes).into(),
        DetectedEncoding::Utf32Be => decode_utf32(bytes, u32::from_be_bytes).into(),
    }
}

fn decode_utf32(bytes: &[u8], unit: fn([u8; 4]) -> u32) -> String {
    let chunks = bytes.chunks_exact(4);
    let has_remainder = !chunks.remainder().is_empty();
    let mut text: String = chunks
        .map(|chunk| <[u8; 4]>::try_from(chunk).map(unit).unwrap_or_default())
        .map(|code| char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect();
    if has_remainder {
        text.push(char::REPLACEMENT_CHARACTER);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utf16(text: &str, unit: fn(u16) -> [u8; 2]) -> Vec<u8> {
        text.encode_utf16().flat_map(unit).collect()
    }

    #[test]
    fn byte_order_marks_decide_and_do_not_appear() {
        assert_eq!(decode_text(b"\xEF\xBB\xBFa\xC3\xA9", Some("latin1")), "aé");
        let little: Vec<u8> = [vec![0xFF, 0xFE], utf16("é!", u16::to_le_bytes)].concat();
        assert_eq!(decode_text(&little, None), "é!");
        let wide: Vec<u8> = [0xFEFFu32, 0xE9, 0x1F600]
            .iter()
            .flat_map(|code_point| code_point.to_be_bytes())
            .collect();
        assert_eq!(decode_text(&wide, None), "é😀");
    }

    #[test]
    fn utf_16_without_a_mark_is_found_in_both_orders() {
        let text = "Name;Ort\r\nMüller;Köln\r\n";
        assert_eq!(decode_text(&utf16(text, u16::to_le_bytes), None), text);
        assert_eq!(decode_text(&utf16(text, u16::to_be_bytes), None), text);
    }

    #[test]
    fn a_zero_among_plain_ascii_does_not_make_it_utf_16() {
        let text = "some\0words that are read as they are\n";
        assert_eq!(decode_text(text.as_bytes(), None), text);
    }

    #[test]
    fn legacy_encodings_are_found_by_statistics() {
        for (encoding, text) in [
            (
                encoding_rs::WINDOWS_1252,
                "Größe und Länge prüfen, bitte schön über alles",
            ),
            (
                encoding_rs::WINDOWS_1251,
                "Съешь же ещё этих мягких французских булок да выпей чаю",
            ),
            (
                encoding_rs::SHIFT_JIS,
                "これは日本語の文章です。文字コードを判定します。",
            ),
            (
                encoding_rs::GBK,
                "这是一个用来测试编码识别的中文句子，内容并不重要。",
            ),
        ] {
            let (bytes, _, _) = encoding.encode(text);
            assert_eq!(decode_text(&bytes, None), text, "{}", encoding.name());
        }
    }

    #[test]
    fn iso_2022_jp_is_detected_by_its_escapes_and_not_by_colours() {
        let (bytes, _, _) = ISO_2022_JP.encode("これは日本語です。\nasdf");
        assert_eq!(decode_text(&bytes, None), "これは日本語です。\nasdf");
        for text in [
            "\u{1B}[31mred\u{1B}[0m",
            "\u{1B}$B\u{1B}(B\u{1B}$Bx\u{1B}(B",
        ] {
            assert_eq!(decode_text(text.as_bytes(), None), text);
        }
    }

    #[test]
    fn a_few_broken_bytes_do_not_change_the_encoding() {
        let mut bytes = "Größe und Länge prüfen, schön".as_bytes().to_vec();
        bytes.push(0xFF);
        assert_eq!(
            decode_text(&bytes, None),
            "Größe und Länge prüfen, schön\u{FFFD}"
        );
    }

    #[test]
    fn a_long_ascii_start_does_not_decide_the_encoding() {
        for start in ["a line of a log\n".repeat(5000), "word ".repeat(15_000)] {
            let text = format!("{start}{}", "日本語 ".repeat(20));
            let bytes = [text.as_bytes(), b"\xFF"].concat();
            assert_eq!(decode_text(&bytes, None), format!("{text}\u{FFFD}"));
            for (encoding, words) in [
                (
                    encoding_rs::WINDOWS_1251,
                    "Съешь же ещё этих мягких французских булок да выпей чаю",
                ),
                (
                    encoding_rs::SHIFT_JIS,
                    "これは日本語の文章です。文字コードを判定します。",
                ),
            ] {
                let text = format!("{start}{words}\n{start}");
                let (bytes, _, _) = encoding.encode(&text);
                assert!(decode_text(&bytes, None) == text, "{}", encoding.name());
            }
        }
    }
}
