//! Reads the entries of a tar without changing their names.

use bytes::Bytes;
use dray_archive::tar::{
    BLOCK_BYTES, DecodeStep, Decoder, Entry, ExtensionScope, TarError, TarRules, padding,
};
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};

use super::input::{HeldInput, short};

/// The entries of a tar, one after the other, with names as they are written. [`super::Reader`] adds what an unpacker
/// needs, such as limits and safe names.
#[derive(Debug)]
pub struct TarEntries {
    input: HeldInput,
    decoder: Decoder,
    /// Bytes of the current entry's content that are left.
    left: u64,
    /// Bytes of the padding after the current entry's content.
    padding: u64,
}

/// The next item of a tar.
#[derive(Debug)]
pub(super) enum TarItem {
    Entry(Entry),
    /// Bytes of headers that only describe the next entry.
    Overhead(u64),
    /// A header that applies to all entries after it, with the name that it sets, if any.
    Global(Option<Vec<u8>>),
}

/// Converts an error of the decoder to one of transfers.
pub(super) fn tar_error(error: TarError) -> Error {
    match error {
        TarError::Malformed(reason) => Error::new(ErrorKind::Protocol, reason),
        TarError::Truncated => Error::new(ErrorKind::Truncated, "the tar ended early"),
    }
}

impl TarEntries {
    /// Starts at the beginning of a tar.
    pub fn new(tar: Body, rules: TarRules) -> Self {
        Self {
            input: HeldInput::new(tar),
            decoder: Decoder::new(rules),
            left: 0,
            padding: 0,
        }
    }

    /// The next entry; unread content of the last one is skipped. `None` at a proper end.
    ///
    /// # Errors
    ///
    /// Failures of the source, [`ErrorKind::Truncated`] for a tar that ends early, and [`ErrorKind::Protocol`] for one
    /// that is malformed. After an error there is nothing more.
    pub async fn entry(&mut self) -> Result<Option<Entry>, Error> {
        loop {
            match self.item().await? {
                Some(TarItem::Entry(entry)) => return Ok(Some(entry)),
                Some(TarItem::Overhead(_) | TarItem::Global(_)) => {}
                None => return Ok(None),
            }
        }
    }

    pub(super) async fn item(&mut self) -> Result<Option<TarItem>, Error> {
        // A caller that did not read the content still gets the next header, which follows the padding.
        self.input.pass(std::mem::take(&mut self.left)).await?;
        self.input.pass(std::mem::take(&mut self.padding)).await?;
        loop {
            let block = self.input.block().await?;
            return Ok(Some(
                match self.decoder.block(block.as_ref()).map_err(tar_error)? {
                    DecodeStep::Next => continue,
                    DecodeStep::Map => TarItem::Overhead(BLOCK_BYTES as u64),
                    DecodeStep::Extension(size) => {
                        // The decoder has refused extensions above its own limit, so `size` is small here.
                        let content = self.input.padded(size).await?;
                        match self.decoder.extension(&content).map_err(tar_error)? {
                            ExtensionScope::Entry => TarItem::Overhead(size),
                            ExtensionScope::Global(name) => TarItem::Global(name),
                        }
                    }
                    DecodeStep::Entry(entry) => {
                        (self.left, self.padding) = (entry.size, padding(entry.size));
                        TarItem::Entry(entry)
                    }
                    DecodeStep::End => return Ok(None),
                },
            ));
        }
    }

    /// Bytes of the current entry; `None` after the last byte of the entry.
    ///
    /// # Errors
    ///
    /// Failures of the source, and [`ErrorKind::Truncated`] for a short end.
    pub async fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        // A read returns at most the rest of this entry: the same chunk of the stream may hold the next header.
        let chunk = self.input.some(self.left).await?.ok_or_else(short)?;
        self.left -= chunk.len() as u64;
        Ok(Some(chunk))
    }

    /// Bytes after the end of the archive.
    pub(super) async fn after_end(&mut self) -> Result<Option<Bytes>, Error> {
        self.input.some(u64::MAX).await
    }
}
