//! Files without a signature: text or not, and in which encoding (read-attachment 5.3).

use std::borrow::Cow;

use crate::encoding::{self, DetectedEncoding};

/// The sample of a file that is text, with its encoding.
#[derive(Debug)]
pub(super) struct Text<'a> {
    /// The sample, decoded, without a byte-order mark.
    pub(super) sample: Cow<'a, str>,
    /// Encoding of the sample; the end of the file may differ.
    pub(super) encoding: DetectedEncoding,
    /// Whether the bytes determine the encoding: by a byte-order mark, or the zeros of UTF-16.
    pub(super) certain: bool,
}

const UTF_8: DetectedEncoding = DetectedEncoding::Known(encoding_rs::UTF_8);

/// Whether a sample is text. `cut` is whether the file continues after it.
pub(super) fn detect_text(sample: &[u8], cut: bool) -> Option<Text<'_>> {
    if let Some((found, _)) = encoding::of_mark(sample)
        && let Some(text) = marked_text(sample, found)
    {
        return Some(text);
    }
    if sample.contains(&0) {
        let even = sample.get(..sample.len() & !1).unwrap_or(sample);
        let found = encoding::utf16_without_mark(even)?;
        return Some(Text {
            sample: encoding::decode_text(even, Some(found.name())),
            encoding: found,
            certain: true,
        });
    }
    let controls = sample.iter().filter(|byte| is_control(**byte)).count();
    if let Some(valid) = utf8_prefix(sample, cut) {
        // Valid UTF-8 may contain many control characters, such as the escapes of a terminal session.
        return (controls * 10 <= sample.len() * 3).then_some(Text {
            sample: Cow::Borrowed(valid),
            encoding: UTF_8,
            certain: false,
        });
    }
    // Any bytes decode in some legacy encoding, so fewer controls are tolerated here.
    (controls * 20 <= sample.len()).then(|| {
        let found = encoding::find_encoding(sample);
        Text {
            sample: encoding::decode_text(sample, Some(found.name())),
            encoding: found,
            certain: false,
        }
    })
}

/// Text in the encoding of its mark, when at most one character of a hundred cannot be decoded.
fn marked_text(sample: &[u8], found: DetectedEncoding) -> Option<Text<'_>> {
    let text = encoding::decode_text(sample, None);
    let broken = text
        .chars()
        .filter(|character| *character == char::REPLACEMENT_CHARACTER)
        .count();
    // The cut may be inside the last character.
    (broken.saturating_sub(1) * 100 <= text.chars().count()).then_some(Text {
        sample: text,
        encoding: found,
        certain: true,
    })
}

/// The sample as UTF-8, without an incomplete character at the cut.
fn utf8_prefix(sample: &[u8], cut: bool) -> Option<&str> {
    match std::str::from_utf8(sample) {
        Ok(text) => Some(text),
        Err(error) if cut && error.error_len().is_none() => {
            std::str::from_utf8(sample.get(..error.valid_up_to())?).ok()
        }
        Err(_) => None,
    }
}

/// Whether a byte is a control character that does not occur in text, unlike tab, line feed, form feed, carriage return
/// and escape.
fn is_control(byte: u8) -> bool {
    matches!(byte, 0..=8 | 0x0B | 0x0E..=0x1A | 0x1C..=0x1F | 0x7F)
}

/// Whether bytes are only white space and byte-order marks. `wide` is whether characters contain zero bytes.
pub(super) fn is_blank(bytes: &[u8], wide: bool) -> bool {
    bytes.iter().all(|byte| {
        byte.is_ascii_whitespace() || *byte == 0x0B || (wide && matches!(byte, 0 | 0xFE | 0xFF))
    })
}
