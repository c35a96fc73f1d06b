//! Undoes one `Content-Encoding`, in chunks and within a work bound (egress-security B-4, B-5).
//!
//! Only `Content-Encoding` is undone, never the format of the file itself (B-6). The caller owns the buffers and the
//! size limit; this module does no I/O. gzip is RFC 1952 with every member, checksum and length checked; deflate is
//! the zlib form of RFC 1950.

mod gzip;

use flate2::{Crc, Decompress, FlushDecompress, Status};

use gzip::{GzipHeader, GzipTrailer};

/// A content coding that can be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentCoding {
    /// `gzip`, and its old name `x-gzip`.
    Gzip,
    /// `deflate` in the zlib form; raw deflate is refused.
    Deflate,
}

impl ContentCoding {
    /// The name as it is reported.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
        }
    }
}

/// Why bytes could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The stream is not what its coding says.
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
    /// Far more comes out than went in.
    #[error("the compressed stream expands more than {MAX_RATIO} times")]
    Bomb,
    /// Members without end, each of which is work.
    #[error("the compressed stream has more than {MAX_MEMBERS} members")]
    Members,
}

/// Most output bytes per input byte, once [`RATIO_FREE`] bytes came out.
const MAX_RATIO: u64 = 1000;
/// Most gzip members of one body.
const MAX_MEMBERS: u32 = 10_000;
/// Output bytes that are allowed at any ratio (B-5).
const RATIO_FREE: u64 = 1 << 20;

/// What one call of [`BodyDecoder::step`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeProgress {
    /// Input bytes that were used up.
    pub read: usize,
    /// Output bytes that were written.
    pub written: usize,
}

/// A streaming decoder for one body.
#[derive(Debug)]
pub struct BodyDecoder {
    state: DecoderState,
    inflate: Decompress,
    crc: Crc,
    consumed: u64,
    produced: u64,
    members: u32,
}

#[derive(Debug)]
enum DecoderState {
    /// Inside the header of a gzip member.
    Header(GzipHeader),
    /// Inside the deflate data of a gzip member.
    Member,
    /// Inside the trailer of a gzip member.
    Trailer(GzipTrailer),
    /// After a complete gzip member; another may follow.
    Between,
    /// Inside a zlib stream.
    Zlib,
    /// After the end of a zlib stream; nothing may follow.
    Done,
}

impl BodyDecoder {
    /// A decoder for one body with this coding.
    pub fn new(coding: ContentCoding) -> Self {
        let (state, zlib) = match coding {
            ContentCoding::Gzip => (DecoderState::Header(GzipHeader::default()), false),
            ContentCoding::Deflate => (DecoderState::Zlib, true),
        };
        Self {
            state,
            inflate: Decompress::new(zlib),
            crc: Crc::new(),
            consumed: 0,
            produced: 0,
            members: 1,
        }
    }

    /// Decodes from `input` into `output` until one of them is used up.
    ///
    /// When `written` is less than the output's length, all of the input was used.
    pub fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<DecodeProgress, DecodeError> {
        let mut progress = DecodeProgress {
            read: 0,
            written: 0,
        };
        loop {
            let rest = input.get(progress.read..).unwrap_or_default();
            let unfilled = output.get_mut(progress.written..).unwrap_or_default();
            let moved = self.advance(rest, unfilled)?;
            progress.read += moved.read;
            progress.written += moved.written;
            self.consumed += moved.read as u64;
            self.produced += moved.written as u64;
            if self.produced > RATIO_FREE && self.produced > self.consumed.saturating_mul(MAX_RATIO)
            {
                return Err(DecodeError::Bomb);
            }
            if progress.written == output.len() {
                return Ok(progress);
            }
            // With input and room left, a step that does nothing would repeat forever.
            if moved
                == (DecodeProgress {
                    read: 0,
                    written: 0,
                })
            {
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
        match self.state {
            DecoderState::Between | DecoderState::Done => Ok(()),
            _ if self.consumed == 0 => Ok(()),
            DecoderState::Header(_)
            | DecoderState::Member
            | DecoderState::Trailer(_)
            | DecoderState::Zlib => Err(DecodeError::Truncated),
        }
    }

    /// Advances within one state; the caller repeats it.
    fn advance(&mut self, input: &[u8], output: &mut [u8]) -> Result<DecodeProgress, DecodeError> {
        let used = |read| Ok(DecodeProgress { read, written: 0 });
        match &mut self.state {
            DecoderState::Header(header) => {
                let (read, complete) = header.read(input)?;
                if complete {
                    self.state = DecoderState::Member;
                }
                used(read)
            }
            DecoderState::Member | DecoderState::Zlib => self.inflate(input, output),
            DecoderState::Trailer(trailer) => {
                let (read, complete) = trailer.read(input);
                if complete {
                    trailer.check(&self.crc)?;
                    self.crc.reset();
                    // Raw deflate, without zlib header: the gzip framing is read here.
                    self.inflate.reset(false);
                    self.state = DecoderState::Between;
                }
                used(read)
            }
            DecoderState::Between | DecoderState::Done if input.is_empty() => used(0),
            DecoderState::Between if self.members >= MAX_MEMBERS => Err(DecodeError::Members),
            DecoderState::Between => {
                // Each member costs a reset of the decoder, however few bytes it has.
                self.members += 1;
                self.state = DecoderState::Header(GzipHeader::default());
                self.advance(input, output)
            }
            DecoderState::Done => Err(DecodeError::TrailingBytes),
        }
    }

    fn inflate(&mut self, input: &[u8], output: &mut [u8]) -> Result<DecodeProgress, DecodeError> {
        let (before_in, before_out) = (self.inflate.total_in(), self.inflate.total_out());
        let status = self
            .inflate
            .decompress(input, output, FlushDecompress::None)
            .map_err(|_| DecodeError::Corrupt)?;
        let read = byte_delta(before_in, self.inflate.total_in());
        let written = byte_delta(before_out, self.inflate.total_out());
        // A zlib stream has a checksum of its own, which the inflater checks.
        if matches!(self.state, DecoderState::Member) {
            self.crc.update(output.get(..written).unwrap_or_default());
        }
        if status == Status::StreamEnd {
            self.state = match self.state {
                DecoderState::Member => DecoderState::Trailer(GzipTrailer::default()),
                _ => DecoderState::Done,
            };
            // The move may have been empty; the next state must still be entered.
            if read == 0 && written == 0 {
                return self.advance(input, output);
            }
        }
        Ok(DecodeProgress { read, written })
    }
}

fn byte_delta(before: u64, after: u64) -> usize {
    usize::try_from(after.saturating_sub(before)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
