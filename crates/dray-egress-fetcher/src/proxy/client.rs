//! The connection of a client: bytes that were read ahead and not used come first for every later reader.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};

use crate::wire::pass_writes_on;

/// Most bytes that one read adds.
const MAX_READ_BYTES: usize = 4 * 1024;
/// Longest time that a refused client has to take its response.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Most bytes of a refused request that are read and dropped, so that its response is not lost to a reset. Many clients
/// send their whole body before they read.
const MAX_DISCARDED_BYTES: usize = 64 * 1024 * 1024;
/// Most bytes that are dropped together.
const DISCARD_CHUNK_BYTES: usize = 16 * 1024;

/// A stream with the bytes that were read ahead.
#[derive(Debug)]
pub struct ClientStream<S> {
    io: S,
    ahead: BytesMut,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ClientStream<S> {
    /// A stream of which nothing was read yet.
    pub fn new(io: S) -> Self {
        Self {
            io,
            ahead: BytesMut::new(),
        }
    }

    /// The bytes that were read and not used.
    pub fn ahead(&self) -> &[u8] {
        &self.ahead
    }

    /// Marks the first `count` of those bytes as used.
    pub fn consume(&mut self, count: usize) {
        self.ahead.advance(count.min(self.ahead.len()));
    }

    /// Replaces the target in the request line that was read ahead by `/`.
    pub fn hide_target(&mut self) {
        let line_end = self.ahead.iter().position(|byte| *byte == b'\r');
        let line = self.ahead.get(..line_end.unwrap_or_default());
        let line = line.unwrap_or_default();
        let is_blank = |byte: &u8| *byte == b' ';
        if let (Some(method_end), Some(target_end)) = (
            line.iter().position(is_blank),
            line.iter().rposition(is_blank),
        ) {
            let rest = self.ahead.split_off(target_end);
            self.ahead.truncate(method_end);
            self.ahead.extend_from_slice(b" /");
            self.ahead.unsplit(rest);
        }
    }

    /// Reads more bytes ahead.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` when the client sends no more.
    pub async fn read_ahead(&mut self) -> io::Result<()> {
        self.ahead.reserve(MAX_READ_BYTES);
        let mut more = (&mut self.io).take(MAX_READ_BYTES as u64);
        match more.read_buf(&mut self.ahead).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Reads until `parse` finds a message in the bytes so far, and consumes the bytes of that message.
    ///
    /// # Errors
    ///
    /// The error of `parse`; `None` when the client closed first.
    pub async fn read_message<T, E>(
        &mut self,
        mut parse: impl FnMut(&[u8]) -> Result<Option<(T, usize)>, E>,
    ) -> Result<T, Option<E>> {
        loop {
            if let Some((message, length)) = parse(&self.ahead).map_err(Some)? {
                self.consume(length);
                return Ok(message);
            }
            self.read_ahead().await.map_err(|_| None)?;
        }
    }

    /// Sends the last bytes to the client and closes. Bytes that the client still sends are read and dropped, for at
    /// most 2 s in total, because the kernel discards a response on its way when data arrives for a closed socket.
    pub async fn close_with(mut self, last: &[u8]) {
        let closing = async {
            self.io.write_all(last).await?;
            self.io.shutdown().await?;
            let mut rest = (&mut self.io).take(MAX_DISCARDED_BYTES as u64);
            let mut sink = vec![0; DISCARD_CHUNK_BYTES];
            while rest.read(&mut sink).await? > 0 {}
            Ok::<(), io::Error>(())
        };
        // The client may be gone already, which does not matter.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, closing).await;
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ClientStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            return Pin::new(&mut self.io).poll_read(cx, buffer);
        }
        let count = self.ahead.len().min(buffer.remaining());
        buffer.put_slice(&self.ahead.split_to(count));
        if self.ahead.is_empty() {
            // A tunnel lives long, so the buffer of its first bytes is freed.
            self.ahead = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

pass_writes_on!(ClientStream<S>, S);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bytes_that_were_read_ahead_come_first() {
        let (near, mut far) = tokio::io::duplex(64);
        far.write_all(b"headrest").await.unwrap();
        let mut client = ClientStream::new(near);
        let head = client
            .read_message(|bytes| Ok::<_, ()>(bytes.starts_with(b"head").then_some(((), 4))))
            .await;
        assert_eq!(head, Ok(()));
        far.write_all(b"more").await.unwrap();
        drop(far);
        let mut all = Vec::new();
        client.read_to_end(&mut all).await.unwrap();
        assert_eq!(all, b"restmore");
        assert_eq!(client.ahead.capacity(), 0);
    }

    #[tokio::test]
    async fn the_target_of_a_head_is_hidden_and_the_rest_of_it_stays() {
        for (head, hidden) in [
            (
                "GET http://h/a?b=\"c\" HTTP/1.1\r\nA: b c\r\n\r\nbody d",
                "GET / HTTP/1.1\r\nA: b c\r\n\r\nbody d",
            ),
            ("PUT /<a> HTTP/1.0\r\n\r\n", "PUT / HTTP/1.0\r\n\r\n"),
            ("", ""),
        ] {
            let (near, mut far) = tokio::io::duplex(256);
            let mut client = ClientStream::new(near);
            far.write_all(head.as_bytes()).await.unwrap();
            drop(far);
            while client.read_ahead().await.is_ok() {}
            client.hide_target();
            assert_eq!(client.ahead(), hidden.as_bytes());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_reads_its_refusal_after_it_has_sent_a_large_body() {
        let (near, mut far) = tokio::io::duplex(64 * 1024);
        let body = vec![0; 8 * 1024 * 1024];
        let closing = ClientStream::new(near).close_with(b"refused");
        let sending = async {
            far.write_all(&body).await.unwrap();
            far.shutdown().await.unwrap();
            let mut response = Vec::new();
            far.read_to_end(&mut response).await.unwrap();
            response
        };
        let ((), response) = tokio::join!(closing, sending);
        assert_eq!(response, b"refused");
    }

    #[tokio::test]
    async fn a_client_that_closes_too_early_has_no_message() {
        let (near, far) = tokio::io::duplex(64);
        drop(far);
        let mut client = ClientStream::new(near);
        let never = client
            .read_message(|_| Ok::<Option<((), usize)>, ()>(None))
            .await;
        assert_eq!(never, Err(None));
    }
}
