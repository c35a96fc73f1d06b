//! Decoders that take bytes in chunks of any size. Whether the result is text is judged elsewhere.

/// A decoder, with incomplete bytes that wait for the next ones.
#[derive(Debug)]
pub(super) enum TextDecoder {
    /// UTF-8, with the start of a sequence that is not complete yet.
    Utf8(Vec<u8>),
    /// UTF-16 or UTF-32, announced by a BOM.
    Wide(WideDecoder),
}

/// Code units of two or four bytes, in either byte order.
#[derive(Debug)]
pub(super) struct WideDecoder {
    width: usize,
    is_big_endian: bool,
    pending: Vec<u8>,
    /// A high surrogate that waits for its other half.
    high: Option<u32>,
}

impl TextDecoder {
    /// Returns the decoder for the first bytes, and the length of their BOM.
    pub(super) fn for_head(head: &[u8]) -> (Self, usize) {
        let wide = |width, is_big_endian| {
            Self::Wide(WideDecoder {
                width,
                is_big_endian,
                pending: Vec::new(),
                high: None,
            })
        };
        match head {
            [0xef, 0xbb, 0xbf, ..] => (Self::Utf8(Vec::new()), 3),
            // UTF-32 comes before UTF-16, whose BOM is the beginning of this one.
            [0xff, 0xfe, 0, 0, ..] => (wide(4, false), 4),
            [0, 0, 0xfe, 0xff, ..] => (wide(4, true), 4),
            [0xff, 0xfe, ..] => (wide(2, false), 2),
            [0xfe, 0xff, ..] => (wide(2, true), 2),
            _ => (Self::Utf8(Vec::new()), 0),
        }
    }

    /// Decodes complete sequences; returns whether a sequence was broken.
    pub(super) fn push(&mut self, chunk: &[u8], text: &mut String) -> bool {
        match self {
            Self::Utf8(pending) => decode_utf8(pending, chunk, text),
            Self::Wide(wide) => wide.push(chunk, text),
        }
    }

    /// Decodes the remaining bytes; returns whether a sequence was broken.
    pub(super) fn finish(&mut self, text: &mut String) -> bool {
        let is_broken = match self {
            Self::Utf8(pending) => !pending.is_empty(),
            Self::Wide(wide) => !wide.pending.is_empty() || wide.high.is_some(),
        };
        if is_broken {
            text.push(char::REPLACEMENT_CHARACTER);
        }
        is_broken
    }
}

/// The result is the same as for one lossy conversion of all chunks together.
fn decode_utf8(pending: &mut Vec<u8>, chunk: &[u8], text: &mut String) -> bool {
    let mut joined = std::mem::take(pending);
    let mut rest = if joined.is_empty() {
        chunk
    } else {
        joined.extend_from_slice(chunk);
        joined.as_slice()
    };
    let mut has_broken = false;
    loop {
        let error = match std::str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                return has_broken;
            }
            Err(error) => error,
        };
        let (valid, after) = rest
            .split_at_checked(error.valid_up_to())
            .unwrap_or((rest, &[]));
        text.push_str(std::str::from_utf8(valid).unwrap_or_default());
        let Some(broken) = error.error_len() else {
            // The sequence is incomplete, not invalid: the next chunk may complete it.
            *pending = after.to_vec();
            return has_broken;
        };
        text.push(char::REPLACEMENT_CHARACTER);
        has_broken = true;
        rest = after.get(broken..).unwrap_or_default();
    }
}

impl WideDecoder {
    fn push(&mut self, chunk: &[u8], text: &mut String) -> bool {
        let mut joined = std::mem::take(&mut self.pending);
        joined.extend_from_slice(chunk);
        let mut units = joined.chunks_exact(self.width);
        let mut has_broken = false;
        for unit in &mut units {
            let fold = |value: u32, byte: &u8| value << 8 | u32::from(*byte);
            let value = if self.is_big_endian {
                unit.iter().fold(0, fold)
            } else {
                unit.iter().rev().fold(0, fold)
            };
            has_broken |= self.unit(value, text);
        }
        self.pending = units.remainder().to_vec();
        has_broken
    }

    fn unit(&mut self, value: u32, text: &mut String) -> bool {
        let (high, low) = (0xd800..0xdc00, 0xdc00..0xe000);
        if let Some(first) = self.high.take() {
            if low.contains(&value) {
                // The pair of a supplementary character (Unicode, table 3-5).
                let code = 0x1_0000 + ((first - high.start) << 10) + (value - low.start);
                return push_code(code, text);
            }
            text.push(char::REPLACEMENT_CHARACTER);
            // The second unit is a separate character, or another high surrogate.
            self.unit(value, text);
            return true;
        }
        // UTF-32 has no surrogates, so one is invalid there.
        if self.width == 2 && high.contains(&value) {
            self.high = Some(value);
            return false;
        }
        push_code(value, text)
    }
}

fn push_code(code: u32, text: &mut String) -> bool {
    let character = char::from_u32(code);
    text.push(character.unwrap_or(char::REPLACEMENT_CHARACTER));
    character.is_none()
}
