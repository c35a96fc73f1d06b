//! Decodes text into bytes, chunk by chunk, in bounded memory.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dray_sandbox::error::{Error, ErrorKind};
use flate2::write::GzDecoder;

/// Compressed bytes that are expanded in one step. Deflate expands a byte to at most 1032 bytes, so 2 KiB become at
/// most about 2 MiB.
const COMPRESSED_STEP_BYTES: usize = 2 * 1024;

fn corrupted_error(reason: &str) -> Error {
    Error::new(ErrorKind::Corrupted, reason)
}

/// Decodes lines of base64, or hexadecimal digits with any white space between them. Any other character is an error
/// and not skipped, because it shows that the text was damaged.
#[derive(Debug)]
pub(super) struct TextDecoder {
    hex: bool,
    digits: Vec<u8>,
}

impl TextDecoder {
    /// A decoder for the output of the encoder with this name, which the script chose.
    pub(super) fn new(encoder: &str) -> Result<Self, Error> {
        let hex = match encoder {
            "od" => true,
            "raw" | "base64" | "openssl" | "python3" | "perl" | "uuencode" => false,
            _ => return Err(Error::new(ErrorKind::Protocol, "an unknown coding")),
        };
        Ok(Self {
            hex,
            digits: Vec::new(),
        })
    }

    /// Decodes all complete groups so far; an incomplete one waits for the next call.
    pub(super) fn feed(&mut self, text: &[u8]) -> Result<Vec<u8>, Error> {
        match str::from_utf8(text) {
            // Whole lines of base64 are copied, which is several times faster than copying single bytes.
            Ok(text) if !self.hex => {
                for line in text.split('\n') {
                    self.digits.extend_from_slice(line.trim().as_bytes());
                }
            }
            _ => {
                let digits = text.iter().filter(|byte| !byte.is_ascii_whitespace());
                self.digits.extend(digits);
            }
        }
        let group = if self.hex { 2 } else { 4 };
        let whole = self.digits.len() - self.digits.len() % group;
        // The end of a chunk may cut a group.
        let rest = self.digits.split_off(whole);
        let groups = std::mem::replace(&mut self.digits, rest);
        self.decode(&groups)
    }

    /// Fails when a group is incomplete.
    pub(super) fn finish(self) -> Result<(), Error> {
        if self.digits.is_empty() {
            Ok(())
        } else {
            Err(corrupted_error("digits are missing at the end"))
        }
    }

    fn decode(&self, groups: &[u8]) -> Result<Vec<u8>, Error> {
        if !self.hex {
            return STANDARD
                .decode(groups)
                .map_err(|error| corrupted_error("not base64").caused_by(error));
        }
        let digit = |byte: u8| char::from(byte).to_digit(16);
        groups
            .chunks(2)
            .map(|pair| match pair {
                [high, low] => Some((digit(*high)? << 4) | digit(*low)?),
                _ => None,
            })
            .map(|byte| byte.and_then(|byte| u8::try_from(byte).ok()))
            .collect::<Option<Vec<u8>>>()
            .ok_or_else(|| corrupted_error("not hexadecimal"))
    }
}

/// Expands gzip, up to a number of bytes (sandbox-transfer 11.6).
#[derive(Debug)]
pub(super) struct GzipExpander {
    gzip: GzDecoder<Vec<u8>>,
    left: u64,
}

impl GzipExpander {
    /// Expands at most `max_bytes` bytes and fails beyond them.
    pub(super) fn new(max_bytes: u64) -> Self {
        Self {
            gzip: GzDecoder::new(Vec::new()),
            left: max_bytes,
        }
    }

    /// Expands `compressed` into chunks of bounded size.
    pub(super) fn feed(&mut self, compressed: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let mut chunks = Vec::new();
        for step in compressed.chunks(COMPRESSED_STEP_BYTES) {
            self.gzip
                .write_all(step)
                .map_err(|error| corrupted_error("not gzip").caused_by(error))?;
            chunks.extend(self.take()?);
        }
        Ok(chunks)
    }

    /// The last chunk; checks length and CRC of the gzip stream.
    pub(super) fn finish(mut self) -> Result<Option<Vec<u8>>, Error> {
        self.gzip
            .try_finish()
            .map_err(|error| corrupted_error("the gzip stream has no end").caused_by(error))?;
        self.take()
    }

    fn take(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let chunk = std::mem::take(self.gzip.get_mut());
        self.left = self
            .left
            .checked_sub(chunk.len() as u64)
            .ok_or_else(|| corrupted_error("the content expands to more bytes than announced"))?;
        Ok((!chunk.is_empty()).then_some(chunk))
    }
}
