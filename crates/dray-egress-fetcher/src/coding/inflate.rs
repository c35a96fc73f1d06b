//! gzip (RFC 1952) and the zlib form of deflate (RFC 1950).
//!
//! Every member, checksum and length is checked. The inflater itself is `flate2` in pure Rust.

use flate2::{Crc, Decompress, FlushDecompress, Status};

use super::gzip::{GzipHeader, GzipTrailer};
use super::{DecodeError, DecodeProgress, MAX_MEMBERS};

/// A streaming decoder for one gzip or zlib body.
#[derive(Debug)]
pub(super) struct InflateDecoder {
    state: DecoderState,
    inflate: Decompress,
    crc: Crc,
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
    /// The decoder is after a complete gzip member; another may follow.
    Between,
    /// Inside a zlib stream.
    Zlib,
    /// The decoder is after the end of a zlib stream; no byte may follow.
    Done,
}

impl InflateDecoder {
    /// A decoder for gzip members.
    pub(super) fn gzip() -> Self {
        Self::new(DecoderState::Header(GzipHeader::default()), false)
    }

    /// A decoder for one zlib stream.
    pub(super) fn zlib() -> Self {
        Self::new(DecoderState::Zlib, true)
    }

    fn new(state: DecoderState, zlib: bool) -> Self {
        Self {
            state,
            inflate: Decompress::new(zlib),
            crc: Crc::new(),
            members: 1,
        }
    }

    /// Whether the stream may end here.
    pub(super) fn is_complete(&self) -> bool {
        matches!(self.state, DecoderState::Between | DecoderState::Done)
    }

    /// Advances within one state; [`super::BodyDecoder::step`] repeats it.
    pub(super) fn advance(
        &mut self,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<DecodeProgress, DecodeError> {
        let without_output = |read| Ok(DecodeProgress { read, written: 0 });
        match &mut self.state {
            DecoderState::Header(header) => {
                let (read, complete) = header.read(input)?;
                if complete {
                    self.state = DecoderState::Member;
                }
                without_output(read)
            }
            DecoderState::Member | DecoderState::Zlib => self.inflate(input, output),
            DecoderState::Trailer(trailer) => {
                let (read, complete) = trailer.read(input);
                if complete {
                    trailer.check(&self.crc)?;
                    self.crc.reset();
                    // The stream is raw deflate without a zlib header, because the gzip framing is read here.
                    self.inflate.reset(false);
                    self.state = DecoderState::Between;
                }
                without_output(read)
            }
            DecoderState::Between | DecoderState::Done if input.is_empty() => without_output(0),
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
            // The caller takes a step without progress for the end, so the next state is entered here.
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
