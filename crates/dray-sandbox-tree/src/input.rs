//! Reads a body block by block.

use bytes::Bytes;
use dray_archive::tar::{BLOCK_BYTES, Block, TarError, padding};
use dray_sandbox::body::Body;
use dray_sandbox::error::Error;

use super::entries::tar_error;

/// The rest of a body, with at most one chunk of it in memory.
#[derive(Debug)]
pub(super) struct HeldInput {
    body: Body,
    held: Bytes,
}

impl HeldInput {
    pub(super) const fn new(body: Body) -> Self {
        let held = Bytes::new();
        Self { body, held }
    }

    /// Returns up to `limit` bytes; `None` at the end of the body.
    pub(super) async fn some(&mut self, limit: u64) -> Result<Option<Bytes>, Error> {
        // A body may yield empty chunks; those are not its end.
        while self.held.is_empty() {
            match self.body.next().await {
                Some(chunk) => self.held = chunk?,
                None => return Ok(None),
            }
        }
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let length = self.held.len().min(limit);
        Ok(Some(self.held.split_to(length)))
    }

    /// The next block; `None` when the body ended before it.
    pub(super) async fn block(&mut self) -> Result<Option<Block>, Error> {
        let mut block = [0; BLOCK_BYTES];
        let mut filled = 0;
        while let Some(rest) = block.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.some(rest.len() as u64).await? {
                Some(chunk) => {
                    filled += chunk.len();
                    for (to, from) in rest.iter_mut().zip(&chunk) {
                        *to = *from;
                    }
                }
                // Some programs end a tar without the two zero blocks. The decoder decides whether the input may end
                // here.
                None if filled == 0 => return Ok(None),
                None => return Err(short()),
            }
        }
        Ok(Some(block))
    }

    /// Reads exactly `size` bytes and their padding.
    pub(super) async fn padded(&mut self, size: u64) -> Result<Vec<u8>, Error> {
        // No capacity is reserved: `size` is a claim, and memory grows only with what arrives.
        let mut bytes = Vec::new();
        let mut remaining = size;
        while remaining > 0 {
            let chunk = self.some(remaining).await?.ok_or_else(short)?;
            remaining -= chunk.len() as u64;
            bytes.extend_from_slice(&chunk);
        }
        self.pass(padding(size)).await?;
        Ok(bytes)
    }

    /// Skips `count` bytes, which must be there.
    pub(super) async fn pass(&mut self, mut count: u64) -> Result<(), Error> {
        while count > 0 {
            count -= self.some(count).await?.ok_or_else(short)?.len() as u64;
        }
        Ok(())
    }
}

/// The error for a stream that ended too early.
pub(super) fn short() -> Error {
    tar_error(TarError::Truncated)
}
