//! Bytes that are held as the pieces in which they came: one part of an upload, sent and hashed without copying
//! them together.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use aws_smithy_types::body::SdkBody;
use bytes::{Bytes, BytesMut};
use dray_types::Sha256Digest;
use http_body::{Body, Frame, SizeHint};
use sha2::{Digest as _, Sha256};

/// Pieces shorter than this are copied together: each piece costs some bookkeeping, and a small one may keep a
/// large buffer alive.
const MAX_COPIED_CHUNK_BYTES: usize = 16 << 10;

/// Up to one part, in pieces.
#[derive(Debug, Default)]
pub(crate) struct ChunkBuffer {
    whole: Vec<Bytes>,
    short: BytesMut,
    length: usize,
}

impl ChunkBuffer {
    /// Appends bytes.
    pub(crate) fn push(&mut self, bytes: Bytes) {
        self.length += bytes.len();
        if bytes.len() < MAX_COPIED_CHUNK_BYTES {
            self.short.extend_from_slice(&bytes);
            if self.short.len() >= MAX_COPIED_CHUNK_BYTES * 4 {
                self.close_short();
            }
        } else {
            self.close_short();
            self.whole.push(bytes);
        }
    }

    /// Bytes held.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Takes everything, in order.
    pub(crate) fn take(&mut self) -> Vec<Bytes> {
        self.close_short();
        self.length = 0;
        std::mem::take(&mut self.whole)
    }

    fn close_short(&mut self) {
        if !self.short.is_empty() {
            self.whole.push(self.short.split().freeze());
        }
    }
}

/// Length of a body, as the SDK wants it.
pub(crate) fn body_length(pieces: &[Bytes]) -> i64 {
    let length: usize = pieces.iter().map(Bytes::len).sum();
    i64::try_from(length).unwrap_or(i64::MAX)
}

/// A body that can be sent again.
pub(crate) fn retryable_body(pieces: Vec<Bytes>) -> SdkBody {
    SdkBody::retryable(move || SdkBody::from_body_1_x(ChunkBody(pieces.clone().into())))
}

/// Hashes pieces on a thread for blocking work, and gives them back.
pub(crate) async fn digest_all(pieces: Vec<Bytes>) -> (Sha256Digest, Vec<Bytes>) {
    let hash = move || {
        let mut hasher = Sha256::new();
        for piece in &pieces {
            hasher.update(piece);
        }
        (Sha256Digest::from_bytes(hasher.finalize().into()), pieces)
    };
    match tokio::task::spawn_blocking(hash).await {
        Ok(hashed) => hashed,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// [`digest_all`] of one piece.
pub(crate) async fn digest_one(bytes: Bytes) -> (Sha256Digest, Bytes) {
    let (digest, _) = digest_all(vec![bytes.clone()]).await;
    (digest, bytes)
}

/// The pieces that are still to be sent.
struct ChunkBody(VecDeque<Bytes>);

impl Body for ChunkBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|piece| piece.len() as u64).sum())
    }
}
