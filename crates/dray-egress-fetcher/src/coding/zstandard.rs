//! `zstd` (RFC 8878) as a content coding (RFC 9659).
//!
//! `ruzstd` decodes one block at a time. This module finds frames and blocks in the input and checks what `ruzstd`
//! leaves to its caller: reserved bits, content size, checksum, and the memory that a frame asks for. Frames may follow
//! each other, and skippable frames are skipped; together they are bounded like gzip members. Memory is one window (at
//! most 8 MiB) and one block, in a ring buffer that grows to the next power of two, 16 MiB.

use std::fmt;
use std::hash::Hasher as _;
use std::io::Read as _;

use ruzstd::decoding::errors::{FrameDecoderError, FrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use twox_hash::XxHash64;

use super::{DecodeError, DecodeProgress, MAX_MEMBERS};

/// Largest window of the content coding, in bytes (RFC 9659, section 3).
const MAX_WINDOW_BYTES: u64 = 8 << 20;
/// Most bytes of one block, before and after decoding (RFC 8878, section 3.1.1.2.4).
const MAX_BLOCK_BYTES: usize = 128 << 10;
/// First bytes of a frame, little endian (RFC 8878, section 3.1.1).
const FRAME_MAGIC: u32 = 0xfd2f_b528;
/// First bytes of a skippable frame; the lowest four bits are free (RFC 8878, section 3.1.2).
const SKIPPABLE_MAGIC: u32 = 0x184d_2a50;
/// Length in bytes of a frame header up to its descriptor, from which the length of the other fields follows.
const PREFIX_LENGTH: usize = 5;
/// Length in bytes of the header of a skippable frame.
const SKIPPABLE_HEADER_LENGTH: usize = 8;
/// Length in bytes of a block header.
const BLOCK_HEADER_LENGTH: usize = 3;
/// Length in bytes of the content checksum.
const CHECKSUM_LENGTH: usize = 4;

/// A streaming decoder for the frames of one body.
#[derive(Default)]
pub(super) struct ZstandardDecoder {
    state: DecoderState,
    /// Bytes of an incomplete frame header, or of an incomplete block with its header.
    unit: Vec<u8>,
    /// Frames so far, skippable ones included.
    frames: u32,
}

#[derive(Default)]
enum DecoderState {
    /// The decoder is before a frame, or inside its header.
    #[default]
    Between,
    /// Number of bytes of a skippable frame that are left.
    Skipping(u32),
    /// Inside a frame, after its header.
    Frame(Box<OpenFrame>),
}

impl fmt::Debug for ZstandardDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZstandardDecoder")
            .field("frames", &self.frames)
            .field("is_complete", &self.is_complete())
            .finish_non_exhaustive()
    }
}

impl ZstandardDecoder {
    /// Whether the body may end here: after a complete frame.
    pub(super) fn is_complete(&self) -> bool {
        matches!(self.state, DecoderState::Between) && self.unit.is_empty() && self.frames > 0
    }

    /// Advances within one state; [`super::BodyDecoder::step`] repeats it.
    pub(super) fn advance(
        &mut self,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<DecodeProgress, DecodeError> {
        let (read, written) = match &mut self.state {
            DecoderState::Between => (self.open_frame(input)?, 0),
            DecoderState::Skipping(left) => {
                let read = input
                    .len()
                    .min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left = left.saturating_sub(u32::try_from(read).unwrap_or(u32::MAX));
                if *left == 0 {
                    self.state = DecoderState::Between;
                }
                (read, 0)
            }
            DecoderState::Frame(frame) => match frame.hand_out(output)? {
                0 if frame.decoder.is_finished() => {
                    frame.check()?;
                    // Drops the window, so that a small frame does not keep the memory of a large one.
                    self.state = DecoderState::Between;
                    (self.open_frame(input)?, 0)
                }
                // Everything that may leave the window has left it, so it has room for the next block.
                0 => (frame.decode_block(&mut self.unit, input)?, 0),
                written => (0, written),
            },
        };
        Ok(DecodeProgress { read, written })
    }

    /// Collects a frame header and opens its frame. Returns the bytes used.
    fn open_frame(&mut self, input: &[u8]) -> Result<usize, DecodeError> {
        // Each frame costs tables and a window, however few bytes it has.
        if self.frames >= MAX_MEMBERS && !input.is_empty() {
            return Err(DecodeError::Members);
        }
        let mut read = collect_bytes(&mut self.unit, input, PREFIX_LENGTH);
        let Some(prefix) = self.unit.first_chunk() else {
            return Ok(read);
        };
        let length = header_length(*prefix)?;
        let rest = input.get(read..).unwrap_or_default();
        read += collect_bytes(&mut self.unit, rest, length);
        if self.unit.len() == length {
            self.frames += 1;
            self.state = parse_header(&self.unit)?;
            self.unit.clear();
        }
        Ok(read)
    }
}

/// Moves bytes from `input` until `unit` has `length` bytes. Returns how many were moved.
fn collect_bytes(unit: &mut Vec<u8>, input: &[u8], length: usize) -> usize {
    let moved = input.len().min(length.saturating_sub(unit.len()));
    unit.extend_from_slice(input.get(..moved).unwrap_or_default());
    moved
}

/// Length in bytes of a frame header with this prefix (RFC 8878, sections 3.1.1.1 and 3.1.2).
fn header_length(prefix: [u8; PREFIX_LENGTH]) -> Result<usize, DecodeError> {
    let [m0, m1, m2, m3, descriptor] = prefix;
    let magic = u32::from_le_bytes([m0, m1, m2, m3]);
    if magic & !0xf == SKIPPABLE_MAGIC {
        return Ok(SKIPPABLE_HEADER_LENGTH);
    }
    // The reserved bit may get a meaning that changes what follows (section 3.1.1.1.1.4).
    if magic != FRAME_MAGIC || descriptor & 0x08 != 0 {
        return Err(DecodeError::Corrupt);
    }
    let is_single_segment = descriptor & 0x20 != 0;
    let dictionary_id = match descriptor & 0x03 {
        3 => 4,
        length => usize::from(length),
    };
    let content_size = match descriptor >> 6 {
        0 => usize::from(is_single_segment),
        exponent => 1 << exponent,
    };
    Ok(PREFIX_LENGTH + usize::from(!is_single_segment) + dictionary_id + content_size)
}

/// The state after a complete frame header.
fn parse_header(header: &[u8]) -> Result<DecoderState, DecodeError> {
    if let [_, 0x2a, 0x4d, 0x18, l0, l1, l2, l3] = *header {
        return Ok(match u32::from_le_bytes([l0, l1, l2, l3]) {
            0 => DecoderState::Between,
            length => DecoderState::Skipping(length),
        });
    }
    let mut decoder = FrameDecoder::new();
    decoder.set_max_window_size(MAX_WINDOW_BYTES);
    decoder.reset(header).map_err(|error| match error {
        FrameDecoderError::WindowSizeTooBig { .. }
        | FrameDecoderError::FrameHeaderError(FrameHeaderError::WindowTooBig { .. }) => {
            DecodeError::WindowTooLarge
        }
        // This includes the need of a dictionary, which only another coding may use (RFC 9842).
        _ => DecodeError::Corrupt,
    })?;
    let descriptor = header.get(PREFIX_LENGTH - 1).copied().unwrap_or_default();
    let has_checksum = descriptor & 0x04 != 0;
    // Without a size field the library reports 0, which is also the size of an empty content.
    let has_content_size = descriptor & 0xe0 != 0;
    Ok(DecoderState::Frame(Box::new(OpenFrame {
        content_size: has_content_size.then(|| decoder.content_size()),
        hash: has_checksum.then(|| XxHash64::with_seed(0)),
        written: 0,
        decoder,
    })))
}

/// A frame whose header has been read.
struct OpenFrame {
    decoder: FrameDecoder,
    /// Hash of the content that was handed out; `None` when the frame has no checksum.
    hash: Option<XxHash64>,
    /// Size of the content in bytes, if the header has it.
    content_size: Option<u64>,
    /// Content bytes that were handed out.
    written: u64,
}

impl OpenFrame {
    /// Writes decoded bytes that no later block can refer to.
    fn hand_out(&mut self, output: &mut [u8]) -> Result<usize, DecodeError> {
        let written = self
            .decoder
            .read(output)
            .map_err(|_| DecodeError::Corrupt)?;
        self.written += written as u64;
        if let Some(hash) = &mut self.hash {
            hash.write(output.get(..written).unwrap_or_default());
        }
        match self.content_size {
            Some(size) if self.written > size => Err(DecodeError::Mismatch),
            _ => Ok(written),
        }
    }

    /// Checks size and checksum of a frame whose content was handed out (RFC 8878, section 3.1.1).
    fn check(&self) -> Result<(), DecodeError> {
        let is_whole = self.content_size.is_none_or(|size| size == self.written);
        let checksum = self.decoder.get_checksum_from_data();
        // The checksum is the low half of the hash.
        let is_intact = self.hash.as_ref().is_none_or(|hash| {
            checksum.map(u64::from) == Some(hash.finish() & u64::from(u32::MAX))
        });
        if is_whole && is_intact {
            Ok(())
        } else {
            Err(DecodeError::Mismatch)
        }
    }

    /// Collects a block into `unit` and decodes it. Returns the bytes used.
    fn decode_block(&mut self, unit: &mut Vec<u8>, input: &[u8]) -> Result<usize, DecodeError> {
        let mut read = collect_bytes(unit, input, BLOCK_HEADER_LENGTH);
        let Some(header) = unit.first_chunk() else {
            return Ok(read);
        };
        let length = self.block_length(*header)?;
        let rest = input.get(read..).unwrap_or_default();
        read += collect_bytes(unit, rest, length);
        if unit.len() == length {
            // Only one block is decoded: with more, the buffer would grow beyond the window.
            self.decoder
                .decode_blocks(unit.as_slice(), BlockDecodingStrategy::UptoBlocks(1))
                .map_err(|_| DecodeError::Corrupt)?;
            unit.clear();
        }
        Ok(read)
    }

    /// Length in bytes of a block with its header, and with the checksum behind the last one (RFC 8878, section
    /// 3.1.1.2).
    fn block_length(&self, header: [u8; BLOCK_HEADER_LENGTH]) -> Result<usize, DecodeError> {
        let [b0, b1, b2] = header;
        let header = u32::from_le_bytes([b0, b1, b2, 0]);
        let size = usize::try_from(header >> 3).unwrap_or(usize::MAX);
        let content = match (header >> 1) & 0x03 {
            // A repeated byte.
            1 => 1,
            // This block type is reserved.
            3 => return Err(DecodeError::Corrupt),
            _ => size,
        };
        if size > MAX_BLOCK_BYTES {
            return Err(DecodeError::Corrupt);
        }
        let is_last = header & 1 == 1;
        let checksum = if is_last && self.hash.is_some() {
            CHECKSUM_LENGTH
        } else {
            0
        };
        Ok(BLOCK_HEADER_LENGTH + content + checksum)
    }
}
