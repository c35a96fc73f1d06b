//! `br` (RFC 7932).
//!
//! `brotli-decompressor` forbids unsafe code. Its ring buffer has at most 16 MiB, the largest window of the format. The
//! format has no checksum and no length, so only its own structure shows damage.

use std::fmt;

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};

use super::{DecodeError, DecodeProgress};

type State = BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>;

/// A streaming decoder for one brotli stream.
pub(super) struct BrotliDecoder {
    /// `None` after the end of the stream; no byte may follow.
    state: Option<Box<State>>,
}

impl Default for BrotliDecoder {
    fn default() -> Self {
        let alloc = StandardAlloc::default();
        Self {
            // `new` would accept the "large window" extension, which lets a stream claim 1 GiB of memory.
            state: Some(Box::new(BrotliState::new_strict(alloc, alloc, alloc))),
        }
    }
}

impl fmt::Debug for BrotliDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrotliDecoder")
            .field("is_complete", &self.is_complete())
            .finish()
    }
}

impl BrotliDecoder {
    /// Whether the stream has ended.
    pub(super) fn is_complete(&self) -> bool {
        self.state.is_none()
    }

    /// Decodes until input or output is used up, or to the end of the stream.
    pub(super) fn advance(
        &mut self,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<DecodeProgress, DecodeError> {
        let Some(state) = &mut self.state else {
            return if input.is_empty() {
                Ok(DecodeProgress::default())
            } else {
                Err(DecodeError::TrailingBytes)
            };
        };
        let mut progress = DecodeProgress::default();
        let (mut input_left, mut output_left, mut total_written) = (input.len(), output.len(), 0);
        let result = BrotliDecompressStream(
            &mut input_left,
            &mut progress.read,
            input,
            &mut output_left,
            &mut progress.written,
            output,
            &mut total_written,
            state,
        );
        match result {
            // The ring buffer is no longer needed, although the sink has not taken the last bytes yet.
            BrotliResult::ResultSuccess => self.state = None,
            BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => {}
            BrotliResult::ResultFailure => return Err(DecodeError::Corrupt),
        }
        Ok(progress)
    }
}
