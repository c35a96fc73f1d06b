//! The body of a response within the limit of the rule that allowed its request. Only content counts: not the head, and
//! not the framing of chunks, so that the limit means the same as in a fetch.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::meter::{ByteCounts, LimitReached};

/// A body of which exactly the limit passes. One byte more is an error, which the counts of the connection note.
#[derive(Debug)]
pub(super) struct LimitedBody {
    body: Incoming,
    /// Bytes that may still pass.
    left: u64,
    stage: BodyStage,
    counts: ByteCounts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyStage {
    Passing,
    /// Bytes beyond the limit were dropped: no further byte passes, not even the end.
    Cut,
    /// The reader had an opportunity to send the earlier bytes, so the next poll returns the error.
    Failed,
}

impl LimitedBody {
    pub(super) const fn new(body: Incoming, limit: u64, counts: ByteCounts) -> Self {
        Self {
            body,
            left: limit,
            stage: BodyStage::Passing,
            counts,
        }
    }

    /// The part of `data` within the limit.
    fn limit(&mut self, mut data: Bytes) -> Bytes {
        if data.len() as u64 > self.left {
            self.stage = BodyStage::Cut;
            // The exceeded limit is recorded now, because the reader may not come back for the error.
            let _ = self.counts.exceed(LimitReached::Down);
            // Less than the length, so it fits.
            data.truncate(usize::try_from(self.left).unwrap_or_default());
        }
        self.left -= data.len() as u64;
        data
    }
}

impl Body for LimitedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.stage == BodyStage::Passing {
            let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(cx)) else {
                return Poll::Ready(None);
            };
            match frame.map_err(io::Error::other)?.into_data() {
                Ok(data) => {
                    let data = self.limit(data);
                    if self.stage == BodyStage::Passing || !data.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(data))));
                    }
                }
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        if self.stage == BodyStage::Cut {
            // When a body fails, hyper drops the bytes that it has not sent. While the body is pending, it sends them.
            self.stage = BodyStage::Failed;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Some(Err(self.counts.exceed(LimitReached::Down))))
    }

    fn is_end_stream(&self) -> bool {
        self.stage == BodyStage::Passing && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
