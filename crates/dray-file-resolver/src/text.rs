//! Turns file content into text while it streams, and refuses binary content (quickapps 30.4, R6).
//!
//! - UTF-8 of any script passes; one leading BOM is removed, invalid sequences become U+FFFD.
//! - UTF-16 and UTF-32 are decoded when a BOM announces them.
//! - Known signatures, NUL and a high share of control characters are binary.
//!
//! No text is returned before the first [`SNIFF_BYTES`] bytes, or the complete file, were checked. Later binary content
//! also results in [`BinaryContent`]: a caller that has written the text has to discard it. At most `SNIFF_BYTES` bytes
//! and one chunk are in memory.

mod decode;

use decode::TextDecoder;

/// Bytes that are checked before any text is returned.
pub const SNIFF_BYTES: usize = 8 * 1024;

/// Starts of files that are never text, with the name for the message. The first five are wire format. All except
/// `GIF8` and `%PDF-` contain a byte that does not occur in text (docs/decisions/resolver-text.md).
const BINARY_SIGNATURES: [(&[u8], &str); 15] = [
    (b"\x89PNG\r\n\x1a\n", "PNG image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"GIF8", "GIF image"),
    (b"%PDF-", "PDF document"),
    (b"PK\x03\x04", "ZIP archive"),
    (b"PK\x05\x06", "ZIP archive"),
    (b"\x1f\x8b\x08", "GZIP archive"),
    (b"\xfd7zXZ\0", "XZ archive"),
    (b"\x28\xb5\x2f\xfd", "Zstandard archive"),
    (b"7z\xbc\xaf\x27\x1c", "7-Zip archive"),
    (b"Rar!\x1a\x07", "RAR archive"),
    (b"\x7fELF", "ELF program"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "Office document"),
    (b"SQLite format 3\0", "SQLite database"),
    (b"\xca\xfe\xba\xbe", "Java class"),
];

/// The content is not text; contains the name for the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not text: {0}")]
pub struct BinaryContent(pub &'static str);

/// Decodes and checks one file while it streams.
#[derive(Debug, Default)]
pub struct TextStream {
    head: Vec<u8>,
    decoder: Option<TextDecoder>,
    tally: ControlCharacterCount,
}

impl TextStream {
    /// Decodes the next bytes, and appends the text that is already certain to `text`.
    pub fn push(&mut self, chunk: &[u8], text: &mut String) -> Result<(), BinaryContent> {
        if self.decoder.is_some() {
            return self.decode(chunk, text);
        }
        self.head.extend_from_slice(chunk);
        if self.head.len() < SNIFF_BYTES {
            return Ok(());
        }
        self.open(text)
    }

    /// Appends the rest of the text, after the last bytes of the file.
    pub fn finish(mut self, text: &mut String) -> Result<(), BinaryContent> {
        if self.decoder.is_none() {
            self.open(text)?;
        }
        let start = text.len();
        if let Some(decoder) = &mut self.decoder {
            self.tally.has_broken |= decoder.finish(text);
        }
        self.tally.count(text.get(start..).unwrap_or_default())?;
        self.tally.judge()
    }

    /// Checks the head and starts decoding.
    fn open(&mut self, text: &mut String) -> Result<(), BinaryContent> {
        let head = std::mem::take(&mut self.head);
        for (signature, name) in BINARY_SIGNATURES {
            // Signatures are checked before decoding, which would only replace the invalid UTF-8 that most of them
            // contain.
            if head.starts_with(signature) {
                return Err(BinaryContent(name));
            }
        }
        let (decoder, bom) = TextDecoder::for_head(&head);
        self.decoder = Some(decoder);
        let start = text.len();
        self.decode(head.get(bom..).unwrap_or_default(), text)?;
        let judged = self.tally.judge();
        if judged.is_err() {
            // The caller must not write content that was detected as binary.
            text.truncate(start);
        }
        judged
    }

    fn decode(&mut self, chunk: &[u8], text: &mut String) -> Result<(), BinaryContent> {
        let Some(decoder) = &mut self.decoder else {
            return Ok(());
        };
        let start = text.len();
        self.tally.has_broken |= decoder.push(chunk, text);
        self.tally.count(text.get(start..).unwrap_or_default())
    }
}

/// Count of control characters so far, and of all characters.
#[derive(Debug, Default)]
struct ControlCharacterCount {
    characters: usize,
    controls: usize,
    has_broken: bool,
}

impl ControlCharacterCount {
    fn count(&mut self, text: &str) -> Result<(), BinaryContent> {
        for byte in text.bytes() {
            match byte {
                // Valid UTF-8, but found in archives, disk images and UTF-16 without a BOM.
                0 => return Err(BinaryContent("NUL bytes")),
                // Tab, line ends, form feed, and control characters of terminals: BEL, BS, ESC.
                b'\t' | b'\n' | b'\r' | 0x0c | 0x07 | 0x08 | 0x1b => self.characters += 1,
                ..0x20 | 0x7f => {
                    self.characters += 1;
                    self.controls += 1;
                }
                // Continuation bytes belong to a character that was counted.
                0x80..0xc0 => {}
                _ => self.characters += 1,
            }
        }
        Ok(())
    }

    /// Checks the counts. Valid text may have up to 30 % control characters; text with invalid sequences up to 5 %,
    /// because Latin-1 prose has none and compressed bytes have 10 %.
    fn judge(&self) -> Result<(), BinaryContent> {
        let percent = if self.has_broken { 5 } else { 30 };
        if self.controls.saturating_mul(100) > self.characters.saturating_mul(percent) {
            return Err(BinaryContent("control characters"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
