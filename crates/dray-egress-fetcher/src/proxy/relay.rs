//! Moves bytes between a client and a target in both directions until both have closed.
//!
//! A direction holds no buffer while it is idle: bytes are read onto the stack and written on immediately. Only what
//! the other side does not take is kept, at most [`CHUNK_BYTES`], and no byte is read until they are written
//! (back-pressure). It has no deadline and counts nothing: [`super::meter`] does.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::meter::ByteCounts;

/// Most bytes that a direction reads at a time, and keeps.
pub const CHUNK_BYTES: usize = 16 * 1024;

/// Relays until both sides have closed, each after its last byte arrived (half-close).
///
/// # Errors
///
/// The first failure of either side. Both are to be dropped then.
pub async fn relay<C, T>(client: &mut C, target: &mut T, counts: &ByteCounts) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    let (mut up, mut down) = (Direction::default(), Direction::default());
    std::future::poll_fn(|cx| {
        let is_up_done = up.poll(cx, client, target)?.is_ready();
        let is_down_done = down.poll(cx, target, client)?.is_ready();
        if is_up_done && is_down_done {
            return Poll::Ready(Ok(()));
        }
        if (is_up_done || is_down_done) && !up.is_noted {
            up.is_noted = true;
            counts.half_close();
        }
        Poll::Pending
    })
    .await
}

/// One direction of a relay.
#[derive(Debug, Default)]
struct Direction {
    /// Bytes that the writer did not take; empty without an allocation while it takes all.
    kept: Vec<u8>,
    /// Number of these bytes that are written.
    written: usize,
    stage: DirectionStage,
    /// Whether the half-close was noted.
    is_noted: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum DirectionStage {
    #[default]
    Copying,
    /// The reader has ended, and the writer is being closed.
    Closing,
    Closed,
}

impl Direction {
    fn poll<R, W>(
        &mut self,
        cx: &mut Context<'_>,
        reader: &mut R,
        writer: &mut W,
    ) -> Poll<io::Result<()>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        loop {
            match self.stage {
                DirectionStage::Closed => return Poll::Ready(Ok(())),
                DirectionStage::Closing => {
                    ready!(Pin::new(&mut *writer).poll_shutdown(cx))?;
                    self.stage = DirectionStage::Closed;
                }
                DirectionStage::Copying => {
                    ready!(self.poll_kept(cx, writer))?;
                    ready!(self.poll_copy(cx, reader, writer))?;
                }
            }
        }
    }

    /// Writes what was kept.
    fn poll_kept<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        writer: &mut W,
    ) -> Poll<io::Result<()>> {
        while let Some(rest) = self
            .kept
            .get(self.written..)
            .filter(|rest| !rest.is_empty())
        {
            let count = ready!(Pin::new(&mut *writer).poll_write(cx, rest))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += count;
        }
        self.kept = Vec::new();
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    /// Reads once and writes as much of it as the writer takes.
    fn poll_copy<R, W>(
        &mut self,
        cx: &mut Context<'_>,
        reader: &mut R,
        writer: &mut W,
    ) -> Poll<io::Result<()>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let mut space = [const { MaybeUninit::uninit() }; CHUNK_BYTES];
        let mut chunk = ReadBuf::uninit(&mut space);
        match Pin::new(reader).poll_read(cx, &mut chunk) {
            Poll::Ready(read) => read?,
            Poll::Pending => {
                // A writer with an internal buffer must not keep bytes back while no more arrive.
                let _ = Pin::new(writer).poll_flush(cx)?;
                return Poll::Pending;
            }
        }
        let bytes = chunk.filled();
        if bytes.is_empty() {
            self.stage = DirectionStage::Closing;
            return Poll::Ready(Ok(()));
        }
        let count = match Pin::new(writer).poll_write(cx, bytes)? {
            Poll::Ready(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            Poll::Ready(count) => count,
            Poll::Pending => 0,
        };
        self.kept.extend(bytes.get(count..).unwrap_or_default());
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    /// Both ends of a relay, and its future.
    fn ends(
        space: usize,
    ) -> (
        DuplexStream,
        DuplexStream,
        impl Future<Output = io::Result<()>>,
    ) {
        let (client, mut near) = duplex(space);
        let (mut far, target) = duplex(space);
        let counts = ByteCounts::default();
        (client, target, async move {
            relay(&mut near, &mut far, &counts).await
        })
    }

    #[tokio::test]
    async fn every_byte_arrives_in_order_in_both_directions() {
        let data: Vec<u8> = (0..200_000_u32)
            .map(|number| (number % 251) as u8)
            .collect();
        // Smaller and larger than a chunk, so that bytes are kept.
        for space in [1, 1000, 1 << 20] {
            let data = if space == 1 { &data[..2000] } else { &data[..] };
            let (client, target, relaying) = ends(space);
            let (mut client_read, mut client_write) = tokio::io::split(client);
            let (mut target_read, mut target_write) = tokio::io::split(target);
            let (mut up, mut down) = (Vec::new(), Vec::new());
            let (relayed, ..) = tokio::join!(
                relaying,
                async {
                    client_write.write_all(data).await.unwrap();
                    client_write.shutdown().await.unwrap();
                },
                async {
                    target_write.write_all(data).await.unwrap();
                    target_write.shutdown().await.unwrap();
                },
                target_read.read_to_end(&mut up),
                client_read.read_to_end(&mut down),
            );
            relayed.unwrap();
            assert!(up == data && down == data, "{space}");
        }
    }

    #[tokio::test]
    async fn a_side_that_has_closed_still_receives() {
        let (mut client, mut target, relaying) = ends(64);
        let (relayed, ()) = tokio::join!(relaying, async {
            client.write_all(b"question").await.unwrap();
            client.shutdown().await.unwrap();
            let mut question = Vec::new();
            target.read_to_end(&mut question).await.unwrap();
            assert_eq!(question, b"question");
            target.write_all(b"answer").await.unwrap();
            drop(target);
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.unwrap();
            assert_eq!(answer, b"answer");
        });
        relayed.unwrap();
    }

    /// Polls a future once; its output when it is ready.
    async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        // The budget of a task would make everything pending after a while.
        tokio::task::yield_now().await;
        std::future::poll_fn(|cx| match Pin::new(&mut *future).poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    #[tokio::test]
    async fn a_writer_that_accepts_no_bytes_stops_the_reader() {
        let (mut client, target, relaying) = ends(1024);
        let mut relaying = Box::pin(relaying);
        let mut sent = 0;
        for _ in 0..200 {
            assert!(poll_once(&mut relaying).await.is_none());
            let mut writing = Box::pin(client.write(&[7; 512]));
            sent += poll_once(&mut writing).await.map_or(0, Result::unwrap);
        }
        // The capacity of the two streams in memory, and one chunk.
        assert!(sent >= 2 * 1024, "{sent}");
        assert!(sent <= CHUNK_BYTES + 2 * 1024, "{sent}");
        drop(target);
    }

    #[test]
    fn an_idle_tunnel_holds_no_buffer() {
        let direction = Direction::default();
        assert_eq!(direction.kept.capacity(), 0);
        let (_client, _target, relaying) = ends(64);
        // Two streams in memory, two directions and the state of the future.
        assert!(size_of_val(&relaying) < 1024, "{}", size_of_val(&relaying));
    }

    #[tokio::test]
    async fn the_buffer_is_released_after_its_bytes_were_sent() {
        let (mut client, mut near) = duplex(CHUNK_BYTES);
        let (mut far, mut target) = duplex(16);
        let mut direction = Direction::default();
        client.write_all(&[1; 4096]).await.unwrap();
        let mut received = 0;
        let mut reserved = 0;
        while received < 4096 {
            // The budget of a task would make the direction pending without progress.
            tokio::task::yield_now().await;
            let polled = std::future::poll_fn(|cx| {
                Poll::Ready(direction.poll(cx, &mut near, &mut far).is_pending())
            });
            assert!(polled.await);
            reserved = reserved.max(direction.kept.capacity());
            received += target.read(&mut [0; 64]).await.unwrap();
        }
        assert!(reserved > 0);
        assert_eq!(direction.kept.capacity(), 0);
    }
}
