//! Bytes that are kept in the chunks in which they arrived: one part of an upload, sent and hashed without joining the
//! chunks.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use aws_smithy_types::body::SdkBody;
use bytes::{Bytes, BytesMut};
use dray_types::Sha256Digest;
use http_body::{Body, Frame, SizeHint};
use sha2::{Digest as _, Sha256};

/// Chunks shorter than this many bytes are copied together: each chunk costs some bookkeeping, and a small one may
/// keep a large buffer alive.
const MAX_COPIED_CHUNK_BYTES: usize = 16 << 10;

/// Up to one part of an upload, in chunks.
#[derive(Debug, Default)]
pub(crate) struct ChunkBuffer {
    whole: Vec<Bytes>,
    copied: BytesMut,
    length: usize,
}

impl ChunkBuffer {
    /// Appends bytes to the buffer; short ones are copied.
    pub(crate) fn push(&mut self, bytes: Bytes) {
        self.length += bytes.len();
        if bytes.len() < MAX_COPIED_CHUNK_BYTES {
            self.copied.extend_from_slice(&bytes);
            if self.copied.len() >= MAX_COPIED_CHUNK_BYTES * 4 {
                self.close_copied();
            }
        } else {
            // The copied chunk is closed before the long chunk is added, to keep the order.
            self.close_copied();
            self.whole.push(bytes);
        }
    }

    /// Number of bytes held.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Takes all chunks, in order.
    pub(crate) fn take(&mut self) -> Vec<Bytes> {
        self.close_copied();
        self.length = 0;
        std::mem::take(&mut self.whole)
    }

    fn close_copied(&mut self) {
        if !self.copied.is_empty() {
            self.whole.push(self.copied.split().freeze());
        }
    }
}

/// Length of a body, as the SDK expects it.
pub(crate) fn body_length(chunks: &[Bytes]) -> i64 {
    let length: usize = chunks.iter().map(Bytes::len).sum();
    i64::try_from(length).unwrap_or(i64::MAX)
}

/// Makes a body that the SDK can send again for its one retry.
pub(crate) fn retryable_body(chunks: Vec<Bytes>) -> SdkBody {
    // Clones share the bytes, so the retry costs no memory.
    SdkBody::retryable(move || SdkBody::from_body_1_x(ChunkBody(chunks.clone().into())))
}

/// Hashes chunks on a thread for blocking work, and returns them.
pub(crate) async fn digest_all(chunks: Vec<Bytes>) -> (Sha256Digest, Vec<Bytes>) {
    let hash = move || {
        let mut hasher = Sha256::new();
        for chunk in &chunks {
            hasher.update(chunk);
        }
        (Sha256Digest::from_bytes(hasher.finalize().into()), chunks)
    };
    match tokio::task::spawn_blocking(hash).await {
        Ok(hashed) => hashed,
        // The task is never aborted, so its error is a panic.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Hashes one chunk as [`digest_all`] does.
pub(crate) async fn digest_one(bytes: Bytes) -> (Sha256Digest, Bytes) {
    let (digest, _) = digest_all(vec![bytes.clone()]).await;
    (digest, bytes)
}

/// The chunks that are still to be sent.
struct ChunkBody(VecDeque<Bytes>);

impl Body for ChunkBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|chunk| Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|chunk| chunk.len() as u64).sum())
    }
}
