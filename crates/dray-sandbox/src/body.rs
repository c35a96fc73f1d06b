//! The stream of bytes between a backend and a transfer, with its errors.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt as _};

use crate::error::{Error, ErrorKind};

/// A stream of bytes. It ends without an error only when everything was delivered: its producer turns a clean
/// but short end into [`ErrorKind::Truncated`]. Dropping it closes the remote stream and ends the remote process.
pub struct Body(Pin<Box<dyn Stream<Item = Result<Bytes, Error>> + Send>>);

impl Body {
    /// Wraps a stream; an item with an error has to be its last.
    pub fn new(stream: impl Stream<Item = Result<Bytes, Error>> + Send + 'static) -> Self {
        Self(Box::pin(stream))
    }

    /// Makes a body of one chunk from bytes in memory.
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Self {
        Self::new(stream::iter([Ok(bytes.into())]))
    }

    /// The next chunk, of any length; `None` after the last. Cancellation safe: a dropped call loses no chunk.
    pub async fn next(&mut self) -> Option<Result<Bytes, Error>> {
        self.0.next().await
    }

    /// Collects the whole body, when it is at most `limit` bytes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TooLarge`] beyond the limit, and every failure of the stream.
    pub async fn read_all(mut self, limit: usize) -> Result<Vec<u8>, Error> {
        let mut all = Vec::new();
        while let Some(chunk) = self.next().await {
            all.extend_from_slice(&chunk?);
            if all.len() > limit {
                return Err(Error::too_large(all.len() as u64, limit as u64));
            }
        }
        Ok(all)
    }

    /// The same stream, but it fails unless it ends after exactly `size` bytes. A shorter stream fails with
    /// [`ErrorKind::Truncated`], a longer one with [`ErrorKind::ChangedDuringTransfer`].
    #[must_use]
    pub fn exactly(self, size: u64) -> Self {
        Self::new(stream::unfold(
            Some((self, 0_u64)),
            move |state| async move {
                let (mut body, received) = state?;
                match body.next().await {
                    Some(Ok(chunk)) => {
                        let received = received + chunk.len() as u64;
                        // The bytes are counted before the chunk is passed on: the caller never receives a byte beyond
                        // the size.
                        if received > size {
                            let error = Error::new(
                                ErrorKind::ChangedDuringTransfer,
                                "more bytes than were announced",
                            );
                            // No state after an error, so the stream ends here and a later poll finds no second
                            // error.
                            return Some((Err(error), None));
                        }
                        Some((Ok(chunk), Some((body, received))))
                    }
                    Some(Err(error)) => Some((Err(error), None)),
                    None if received < size => {
                        let error = Error::new(
                            ErrorKind::Truncated,
                            format!("{received} of {size} bytes arrived"),
                        );
                        Some((Err(error), None))
                    }
                    None => None,
                }
            },
        ))
    }
}

impl Stream for Body {
    type Item = Result<Bytes, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(context)
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Body")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn exactly(chunks: &[&'static [u8]], size: u64) -> Result<Vec<u8>, ErrorKind> {
        let chunks: Vec<_> = chunks
            .iter()
            .map(|chunk| Ok(Bytes::from_static(chunk)))
            .collect();
        Body::new(stream::iter(chunks))
            .exactly(size)
            .read_all(100)
            .await
            .map_err(|error| error.kind())
    }

    #[tokio::test]
    async fn a_body_of_the_wrong_length_never_counts_as_complete() {
        assert_eq!(exactly(&[b"ab", b"c"], 3).await, Ok(b"abc".to_vec()));
        assert_eq!(exactly(&[], 0).await, Ok(Vec::new()));
        assert_eq!(exactly(&[b"ab"], 3).await, Err(ErrorKind::Truncated));
        assert_eq!(
            exactly(&[b"abcd"], 3).await,
            Err(ErrorKind::ChangedDuringTransfer)
        );
    }

    #[tokio::test]
    async fn reading_all_stops_at_the_limit() {
        let error = Body::from_bytes(vec![0; 11])
            .read_all(10)
            .await
            .unwrap_err();
        assert_eq!(error.numbers(), Some((11, 10)));
    }
}
