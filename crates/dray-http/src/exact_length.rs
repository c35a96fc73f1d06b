//! Streams that fail unless they have the announced length.

use std::pin::Pin;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};

use crate::{ByteStream, Cause};

/// Bytes that may fail in the middle.
type FallibleStream<E> = Pin<Box<dyn Stream<Item = Result<Bytes, E>> + Send>>;

/// The same stream, which fails unless it has exactly `size` bytes.
///
/// `length_error` builds the error from the number of received bytes. The stream fails with the chunk that exceeds
/// `size`, or at its end if bytes are missing. It ends after an error.
pub fn exact_length_stream<E: Send + 'static>(
    size: u64,
    body: FallibleStream<E>,
    length_error: impl Fn(u64) -> E + Send + 'static,
) -> FallibleStream<E> {
    stream::unfold(Some((body, 0_u64, length_error)), move |state| async move {
        // The state is `None` after an error: the stream ends and the rest of the body is dropped.
        let (mut body, received, length_error) = state?;
        match body.next().await {
            Some(Ok(chunk)) => {
                // The count comes from a peer.
                let received = received.saturating_add(chunk.len() as u64);
                if received > size {
                    Some((Err(length_error(received)), None))
                } else {
                    Some((Ok(chunk), Some((body, received, length_error))))
                }
            }
            Some(Err(error)) => Some((Err(error), None)),
            None if received == size => None,
            None => Some((Err(length_error(received)), None)),
        }
    })
    .boxed()
}

/// The body of a request, failing unless it has the length that its head announces.
pub(crate) fn announced_length_stream(size: u64, body: ByteStream) -> ByteStream {
    // hyper alone would cut a longer body at `Content-Length` without an error.
    exact_length_stream(size, body, move |received| -> Cause {
        format!("the body has {received} bytes, not {size}").into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_body_of_another_length_than_announced_fails() {
        for (size, fails) in [(2, true), (3, false), (4, true)] {
            let body = stream::iter([Ok(Bytes::from_static(b"abc"))]).boxed();
            let results: Vec<_> = announced_length_stream(size, body).collect().await;
            assert_eq!(results.iter().any(Result::is_err), fails, "{size}");
        }
    }

    #[tokio::test]
    async fn the_error_carries_the_number_of_received_bytes() {
        for (size, counted) in [(5, 6), (7, 6), (2, 3)] {
            let chunks = [b"abc".as_slice(), b"def"].map(|chunk| Ok(Bytes::from_static(chunk)));
            let body = exact_length_stream(size, stream::iter(chunks).boxed(), |received| received);
            let results: Vec<_> = body.collect().await;
            assert_eq!(results.last(), Some(&Err(counted)), "{size}");
        }
    }

    #[tokio::test]
    async fn the_stream_ends_after_a_failure_of_the_source() {
        let chunks = [Err("gone"), Ok(Bytes::from_static(b"abc"))];
        let body = exact_length_stream(3, stream::iter(chunks).boxed(), |_| "wrong");
        assert_eq!(body.collect::<Vec<_>>().await, [Err("gone")]);
    }
}
