//! Streams whose length was announced before.

use std::pin::Pin;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};

use crate::{ByteStream, Cause};

/// Bytes that may fail in the middle.
type Bodies<E> = Pin<Box<dyn Stream<Item = Result<Bytes, E>> + Send>>;

/// The same stream, which fails unless it has exactly `size` bytes. `wrong` makes the error of the bytes that were
/// seen: more than `size` as soon as there are more, fewer at the end.
pub fn exact_length_stream<E: Send + 'static>(
    size: u64,
    body: Bodies<E>,
    wrong: impl Fn(u64) -> E + Send + 'static,
) -> Bodies<E> {
    stream::unfold(Some((body, 0_u64, wrong)), move |state| async move {
        let (mut body, seen, wrong) = state?;
        match body.next().await {
            Some(Ok(piece)) => {
                let seen = seen.saturating_add(piece.len() as u64);
                if seen > size {
                    Some((Err(wrong(seen)), None))
                } else {
                    Some((Ok(piece), Some((body, seen, wrong))))
                }
            }
            Some(Err(error)) => Some((Err(error), None)),
            None if seen == size => None,
            None => Some((Err(wrong(seen)), None)),
        }
    })
    .boxed()
}

/// The body of a request, failing unless it has the length that its head announces.
pub(crate) fn announced_length_stream(size: u64, body: ByteStream) -> ByteStream {
    exact_length_stream(size, body, move |seen| -> Cause {
        format!("the body has {seen} bytes, not {size}").into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_body_of_another_length_than_announced_fails() {
        for (size, fails) in [(2, true), (3, false), (4, true)] {
            let body = stream::iter([Ok(Bytes::from_static(b"abc"))]).boxed();
            let ends: Vec<_> = announced_length_stream(size, body).collect().await;
            assert_eq!(ends.iter().any(Result::is_err), fails, "{size}");
        }
    }

    #[tokio::test]
    async fn the_error_knows_how_many_bytes_were_seen() {
        for (size, told) in [(5, 6), (7, 6), (2, 3)] {
            let pieces = [b"abc".as_slice(), b"def"].map(|piece| Ok(Bytes::from_static(piece)));
            let body = exact_length_stream(size, stream::iter(pieces).boxed(), |seen| seen);
            let ends: Vec<_> = body.collect().await;
            assert_eq!(ends.last(), Some(&Err(told)), "{size}");
        }
    }

    #[tokio::test]
    async fn nothing_comes_after_a_failure_of_the_source() {
        let pieces = [Err("gone"), Ok(Bytes::from_static(b"abc"))];
        let body = exact_length_stream(3, stream::iter(pieces).boxed(), |_| "wrong");
        assert_eq!(body.collect::<Vec<_>>().await, [Err("gone")]);
    }
}
