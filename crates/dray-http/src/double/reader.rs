//! A body while it comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Buf as _, Bytes, BytesMut};
use dray_types::Sha256Digest;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use sha2::{Digest as _, Sha256};

/// Longest body or part that is held whole.
const MAX_BODY_BYTES: usize = 4 << 20;
/// How much of a digested body is kept to look at.
const HEAD_BYTES: usize = 64 * 1024;

/// The body is not what it must be, or broke.
#[derive(Debug)]
pub struct MalformedBody;

/// What is known of bytes that were not held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentDigest {
    /// How many.
    pub size: u64,
    /// Their digest.
    pub sha256: Sha256Digest,
    /// The first 64 KiB.
    pub head: Vec<u8>,
}

/// Digests while bytes pass.
#[derive(Default)]
pub(super) struct DigestingReader {
    hash: Sha256,
    size: u64,
    head: Vec<u8>,
}

impl DigestingReader {
    pub(super) fn take(&mut self, piece: &[u8]) {
        self.hash.update(piece);
        self.size += piece.len() as u64;
        let room = HEAD_BYTES.saturating_sub(self.head.len()).min(piece.len());
        self.head
            .extend_from_slice(piece.get(..room).unwrap_or_default());
    }

    pub(super) fn end(self) -> ContentDigest {
        ContentDigest {
            size: self.size,
            sha256: Sha256Digest::from_bytes(self.hash.finalize().into()),
            head: self.head,
        }
    }
}

/// A body with what was read ahead of it.
#[derive(Debug)]
pub struct BodyReader {
    body: Incoming,
    pub(super) ahead: BytesMut,
    count: Arc<AtomicU64>,
}

impl BodyReader {
    pub(super) fn new(body: Incoming, count: Arc<AtomicU64>) -> Self {
        Self {
            body,
            ahead: BytesMut::new(),
            count,
        }
    }

    /// Reads some more; false at the end.
    ///
    /// # Errors
    ///
    /// [`MalformedBody`] when the connection breaks.
    pub async fn more(&mut self) -> Result<bool, MalformedBody> {
        while let Some(frame) = self.body.frame().await {
            if let Ok(data) = frame.map_err(|_| MalformedBody)?.into_data() {
                self.count.fetch_add(data.len() as u64, Ordering::SeqCst);
                self.ahead.extend_from_slice(&data);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The next bytes; `None` at the end.
    ///
    /// # Errors
    ///
    /// [`MalformedBody`] when the connection breaks.
    pub async fn piece(&mut self) -> Result<Option<Bytes>, MalformedBody> {
        while self.ahead.is_empty() {
            if !self.more().await? {
                return Ok(None);
            }
        }
        Ok(Some(self.ahead.split().freeze()))
    }

    /// Everything there is, at most 4 MiB.
    ///
    /// # Errors
    ///
    /// [`MalformedBody`] beyond that, and when the connection breaks.
    pub async fn all(mut self) -> Result<Vec<u8>, MalformedBody> {
        while self.more().await? {
            if self.ahead.len() > MAX_BODY_BYTES {
                return Err(MalformedBody);
            }
        }
        Ok(self.ahead.to_vec())
    }

    /// Reads to the end, digesting.
    ///
    /// # Errors
    ///
    /// [`MalformedBody`] when the connection breaks.
    pub async fn digest(mut self) -> Result<ContentDigest, MalformedBody> {
        let mut digesting = DigestingReader::default();
        while self.more().await? {
            digesting.take(&self.ahead);
            self.ahead.clear();
        }
        Ok(digesting.end())
    }

    /// Gives everything before `mark` to `sink`, in pieces, and steps over the mark, which begins with a carriage
    /// return.
    pub(super) async fn until(
        &mut self,
        mark: &[u8],
        sink: &mut (dyn FnMut(&[u8]) + Send),
    ) -> Result<(), MalformedBody> {
        loop {
            if let Some(at) = find_mark(&self.ahead, mark) {
                sink(self.ahead.get(..at).unwrap_or_default());
                self.ahead.advance(at + mark.len());
                return Ok(());
            }
            let sure = self.ahead.len().saturating_sub(mark.len() - 1);
            sink(self.ahead.get(..sure).unwrap_or_default());
            self.ahead.advance(sure);
            if !self.more().await? {
                return Err(MalformedBody);
            }
        }
    }

    /// The same as text, which must be short.
    pub(super) async fn short(&mut self, mark: &[u8]) -> Result<String, MalformedBody> {
        let mut text = Vec::new();
        self.until(mark, &mut |piece| text.extend_from_slice(piece))
            .await?;
        if text.len() > MAX_BODY_BYTES {
            return Err(MalformedBody);
        }
        String::from_utf8(text).map_err(|_| MalformedBody)
    }
}

/// Where `mark` begins, which begins with a carriage return.
fn find_mark(bytes: &[u8], mark: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let rest = bytes.get(from..)?;
        let at = from + rest.iter().position(|byte| *byte == b'\r')?;
        if bytes.get(at..)?.starts_with(mark) {
            return Some(at);
        }
        from = at + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_found_among_other_line_ends() {
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
