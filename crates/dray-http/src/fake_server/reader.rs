//! Reads request bodies for fake servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Buf as _, Bytes, BytesMut};
use dray_types::Sha256Digest;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use sha2::{Digest as _, Sha256};

/// Largest body or part in bytes that is stored.
const MAX_BODY_BYTES: usize = 4 << 20;
/// How many bytes at the start of a digested body are stored for tests.
const HEAD_BYTES: usize = 64 * 1024;

/// The body is malformed, or the connection broke.
#[derive(Debug)]
pub struct MalformedBody;

/// Length, digest and beginning of bytes that were not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentDigest {
    /// Number of bytes.
    pub size: u64,
    /// SHA-256 of all of them.
    pub sha256: Sha256Digest,
    /// The first 64 KiB.
    pub head: Vec<u8>,
}

/// Hashes and counts bytes, and stores the beginning.
#[derive(Default)]
pub(super) struct DigestingReader {
    hash: Sha256,
    size: u64,
    head: Vec<u8>,
}

impl DigestingReader {
    pub(super) fn update(&mut self, chunk: &[u8]) {
        self.hash.update(chunk);
        self.size += chunk.len() as u64;
        let head_bytes = HEAD_BYTES.saturating_sub(self.head.len()).min(chunk.len());
        self.head
            .extend_from_slice(chunk.get(..head_bytes).unwrap_or_default());
    }

    pub(super) fn finish(self) -> ContentDigest {
        ContentDigest {
            size: self.size,
            sha256: Sha256Digest::from_bytes(self.hash.finalize().into()),
            head: self.head,
        }
    }
}

/// A body together with the bytes that were read ahead of the parser.
#[derive(Debug)]
pub struct BodyReader {
    body: Incoming,
    pub(super) buffer: BytesMut,
    count: Arc<AtomicU64>,
}

impl BodyReader {
    pub(super) fn new(body: Incoming, count: Arc<AtomicU64>) -> Self {
        Self {
            body,
            buffer: BytesMut::new(),
            count,
        }
    }

    /// Reads some more into the buffer; false at the end.
    ///
    /// # Errors
    ///
    /// [`MalformedBody`] when the connection breaks.
    pub async fn more(&mut self) -> Result<bool, MalformedBody> {
        // A loop, because a frame may contain trailers instead of data.
        while let Some(frame) = self.body.frame().await {
            if let Ok(data) = frame.map_err(|_| MalformedBody)?.into_data() {
                self.count.fetch_add(data.len() as u64, Ordering::SeqCst);
                self.buffer.extend_from_slice(&data);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The next bytes, of any number; `None` at the end.
    ///
    /// # Errors
    ///
    /// [`MalformedBody`] when the connection breaks.
    pub async fn next_chunk(&mut self) -> Result<Option<Bytes>, MalformedBody> {
        while self.buffer.is_empty() {
            if !self.more().await? {
                return Ok(None);
            }
        }
        Ok(Some(self.buffer.split().freeze()))
    }

    /// The complete body, at most 4 MiB.
    ///
    /// # Errors
    ///
    /// [`MalformedBody`] beyond that, and when the connection breaks.
    pub async fn all(mut self) -> Result<Vec<u8>, MalformedBody> {
        while self.more().await? {
            if self.buffer.len() > MAX_BODY_BYTES {
                return Err(MalformedBody);
            }
        }
        Ok(self.buffer.to_vec())
    }

    /// Reads to the end and keeps only length, digest and head.
    ///
    /// # Errors
    ///
    /// [`MalformedBody`] when the connection breaks.
    pub async fn digest(mut self) -> Result<ContentDigest, MalformedBody> {
        let mut digesting = DigestingReader::default();
        while self.more().await? {
            digesting.update(&self.buffer);
            self.buffer.clear();
        }
        Ok(digesting.finish())
    }

    /// Passes all bytes before `mark` to `sink` in chunks, and skips the mark, which begins with a carriage return.
    pub(super) async fn read_until(
        &mut self,
        mark: &[u8],
        sink: &mut (dyn FnMut(&[u8]) + Send),
    ) -> Result<(), MalformedBody> {
        loop {
            if let Some(offset) = find_mark(&self.buffer, mark) {
                sink(self.buffer.get(..offset).unwrap_or_default());
                self.buffer.advance(offset + mark.len());
                return Ok(());
            }
            // The last bytes may be the beginning of the mark.
            let complete = self.buffer.len().saturating_sub(mark.len() - 1);
            sink(self.buffer.get(..complete).unwrap_or_default());
            self.buffer.advance(complete);
            if !self.more().await? {
                return Err(MalformedBody);
            }
        }
    }

    /// Everything before `mark` as text of at most 4 MiB.
    pub(super) async fn read_text_until(&mut self, mark: &[u8]) -> Result<String, MalformedBody> {
        let mut text = Vec::new();
        self.read_until(mark, &mut |chunk| text.extend_from_slice(chunk))
            .await?;
        if text.len() > MAX_BODY_BYTES {
            return Err(MalformedBody);
        }
        String::from_utf8(text).map_err(|_| MalformedBody)
    }
}

/// Where `mark` begins in `bytes`. The mark itself begins with a carriage return.
fn find_mark(bytes: &[u8], mark: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let rest = bytes.get(from..)?;
        let offset = from + rest.iter().position(|byte| *byte == b'\r')?;
        if bytes.get(offset..)?.starts_with(mark) {
            return Some(offset);
        }
        from = offset + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_found_after_partial_matches() {
        for (bytes, expected) in [
            (&b"a\rb\r\n--x"[..], Some(3)),
            (b"a\r\n--", None),
            (b"", None),
            (b"a\r", None),
            (b"\r\n--x", Some(0)),
        ] {
            assert_eq!(find_mark(bytes, b"\r\n--x"), expected);
        }
    }
}
