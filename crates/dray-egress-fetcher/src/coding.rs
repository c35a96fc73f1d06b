//! Undoes one `Content-Encoding`, in chunks and within a work bound (egress-security B-4, B-5).
//!
//! Only `Content-Encoding` is undone, never the format of the file itself (B-6). The caller owns the buffers and the
//! size limit; this module does no I/O. It decodes gzip (RFC 1952, with every member, checksum and length checked),
//! deflate (the zlib form, RFC 1950), br (RFC 7932), and zstd (RFC 8878, within the window of RFC 9659). All decoders
//! are written in Rust.

mod brotli;
mod gzip;
mod inflate;
mod zstandard;

use brotli::BrotliDecoder;
use inflate::InflateDecoder;
use zstandard::ZstandardDecoder;

/// A content coding that can be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentCoding {
    /// `gzip`, and its old name `x-gzip`.
    Gzip,
    /// `deflate` in the zlib form; raw deflate is refused.
    Deflate,
    /// `br`, without the large windows that RFC 7932 does not have.
    Brotli,
    /// `zstd`, without dictionaries.
    Zstandard,
}

impl ContentCoding {
    /// The name as it is reported.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Brotli => "br",
            Self::Zstandard => "zstd",
        }
    }
}

/// The reason why bytes could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The stream does not have the format of its coding.
    #[error("the compressed stream is corrupt")]
    Corrupt,
    /// A checksum or length does not match what was decoded.
    #[error("a checksum or length of the compressed stream does not match")]
    Mismatch,
    /// The stream ended before its trailer.
    #[error("the compressed stream has no complete trailer")]
    Truncated,
    /// Bytes follow the end of the stream.
    #[error("bytes follow the end of the compressed stream")]
    TrailingBytes,
    /// The output is far larger than the input.
    #[error("the compressed stream expands more than {MAX_RATIO} times")]
    Bomb,
    /// Too many members, each of which costs time.
    #[error("the compressed stream has more than {MAX_MEMBERS} members")]
    Members,
    /// A zstd frame needs more memory than the content coding allows (RFC 9659).
    #[error("the compressed stream needs a window of more than 8 MiB")]
    WindowTooLarge,
}

/// Most output bytes per input byte, once there are more than [`RATIO_FREE_BYTES`] of output.
const MAX_RATIO: u64 = 1000;
/// Most gzip members, or zstd frames, of one body.
const MAX_MEMBERS: u32 = 10_000;
/// Output bytes that are allowed at any ratio (B-5).
const RATIO_FREE_BYTES: u64 = 1 << 20;

/// The progress of one call of [`BodyDecoder::step`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeProgress {
    /// Input bytes that were used up.
    pub read: usize,
    /// Output bytes that were written.
    pub written: usize,
}

/// A streaming decoder for one body.
#[derive(Debug)]
pub struct BodyDecoder {
    stream: StreamDecoder,
    consumed: u64,
    produced: u64,
}

#[derive(Debug)]
enum StreamDecoder {
    Inflate(InflateDecoder),
    Brotli(BrotliDecoder),
    Zstandard(ZstandardDecoder),
}

impl BodyDecoder {
    /// A decoder for one body with this coding.
    pub fn new(coding: ContentCoding) -> Self {
        let stream = match coding {
            ContentCoding::Gzip => StreamDecoder::Inflate(InflateDecoder::gzip()),
            ContentCoding::Deflate => StreamDecoder::Inflate(InflateDecoder::zlib()),
            ContentCoding::Brotli => StreamDecoder::Brotli(BrotliDecoder::default()),
            ContentCoding::Zstandard => StreamDecoder::Zstandard(ZstandardDecoder::default()),
        };
        Self {
            stream,
            consumed: 0,
            produced: 0,
        }
    }

    /// Decodes from `input` into `output` until one of them is used up.
    ///
    /// When `written` is less than the output's length, all of the input was used.
    pub fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<DecodeProgress, DecodeError> {
        let mut progress = DecodeProgress::default();
        loop {
            let rest = input.get(progress.read..).unwrap_or_default();
            let unfilled = output.get_mut(progress.written..).unwrap_or_default();
            let delta = self.advance(rest, unfilled)?;
            progress.read += delta.read;
            progress.written += delta.written;
            self.consumed += delta.read as u64;
            self.produced += delta.written as u64;
            if self.produced > RATIO_FREE_BYTES
                && self.produced > self.consumed.saturating_mul(MAX_RATIO)
            {
                return Err(DecodeError::Bomb);
            }
            if progress.written == output.len() {
                return Ok(progress);
            }
            // With input and room left, a step that does nothing would repeat forever.
            if delta == DecodeProgress::default() {
                return if progress.read == input.len() {
                    Ok(progress)
                } else {
                    Err(DecodeError::Corrupt)
                };
            }
        }
    }

    /// Checks that the stream ended where it may end. An empty body is an empty file (B-9).
    pub fn finish(&self) -> Result<(), DecodeError> {
        let is_complete = match &self.stream {
            StreamDecoder::Inflate(decoder) => decoder.is_complete(),
            StreamDecoder::Brotli(decoder) => decoder.is_complete(),
            StreamDecoder::Zstandard(decoder) => decoder.is_complete(),
        };
        if is_complete || self.consumed == 0 {
            Ok(())
        } else {
            Err(DecodeError::Truncated)
        }
    }

    /// Advances within one state of the decoder; [`Self::step`] repeats it.
    fn advance(&mut self, input: &[u8], output: &mut [u8]) -> Result<DecodeProgress, DecodeError> {
        match &mut self.stream {
            StreamDecoder::Inflate(decoder) => decoder.advance(input, output),
            StreamDecoder::Brotli(decoder) => decoder.advance(input, output),
            StreamDecoder::Zstandard(decoder) => decoder.advance(input, output),
        }
    }
}

#[cfg(test)]
mod tests;
