//! Limits the memory for large request heads, which a server reads before it knows who sends them.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::byte_limit::{ByteLimit, BytePermit};

/// Bytes of a head that do not count. [`crate::ConnectionLimits::max_connections`] bounds them together.
const UNCOUNTED_HEAD_BYTES: u64 = 64 << 10;
/// Most bytes of the larger heads that the connections of one listener receive concurrently.
pub(crate) const MAX_LARGE_HEAD_BYTES: u64 = 64 << 20;

/// Counts the bytes of the head that a connection receives. Clones count the same head.
#[derive(Clone, Debug)]
pub(crate) struct HeadMeter {
    memory: ByteLimit,
    received: Arc<Mutex<ReceivedHead>>,
}

#[derive(Debug)]
struct ReceivedHead {
    /// Whether the next bytes belong to a head.
    is_head: bool,
    bytes: u64,
    /// Memory of the head once it is large.
    permit: Option<BytePermit>,
}

impl HeadMeter {
    /// The meter of a new connection; `memory` is for all connections of the listener.
    pub(crate) fn new(memory: ByteLimit) -> Self {
        let received = ReceivedHead {
            is_head: true,
            bytes: 0,
            permit: None,
        };
        Self {
            memory,
            received: Arc::new(Mutex::new(received)),
        }
    }

    /// The next bytes belong to the head of the next request.
    pub(crate) fn begin_head(&self) {
        self.lock().is_head = true;
    }

    /// The head is complete. The bytes that follow it do not count.
    pub(crate) fn end_head(&self) {
        *self.lock() = ReceivedHead {
            is_head: false,
            bytes: 0,
            permit: None,
        };
    }

    /// Counts bytes that arrived.
    ///
    /// # Errors
    ///
    /// Other large heads use the memory.
    fn count(&self, bytes: usize) -> io::Result<()> {
        let mut received = self.lock();
        if !received.is_head {
            return Ok(());
        }
        received.bytes += bytes as u64;
        if received.bytes <= UNCOUNTED_HEAD_BYTES {
            return Ok(());
        }
        let head_bytes = received.bytes;
        let has_memory = if let Some(permit) = &mut received.permit {
            permit.resize(head_bytes)
        } else {
            received.permit = self.memory.try_acquire(head_bytes);
            received.permit.is_some()
        };
        if has_memory {
            Ok(())
        } else {
            Err(io::Error::other("too many large request heads arrive"))
        }
    }

    fn lock(&self) -> MutexGuard<'_, ReceivedHead> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The socket of a connection. A read fails while other large heads use the memory that this head needs.
#[derive(Debug)]
pub(crate) struct MeteredSocket {
    pub(crate) socket: TcpStream,
    pub(crate) meter: HeadMeter,
}

impl AsyncRead for MeteredSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let filled = buffer.filled().len();
        ready!(Pin::new(&mut this.socket).poll_read(cx, buffer))?;
        Poll::Ready(this.meter.count(buffer.filled().len() - filled))
    }
}

impl AsyncWrite for MeteredSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_heads_share_their_memory_until_they_are_complete() {
        let memory = ByteLimit::new(300 << 10);
        let (first, second) = (HeadMeter::new(memory.clone()), HeadMeter::new(memory));
        first.count(200 << 10).unwrap();
        second.count(60 << 10).unwrap();
        second.count(100 << 10).unwrap_err();
        first.end_head();
        // The body of the first request.
        first.count(1 << 30).unwrap();
        second.count(1).unwrap();
        first.begin_head();
        first.count(200 << 10).unwrap_err();
    }
}
