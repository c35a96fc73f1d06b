//! Counts what a peer sends, below TLS and HTTP (egress-security I-7, R-1).
//!
//! [`MeteredIo`] reads from the socket for all layers above it, so chunk framing, trailers, interim responses and TLS
//! records count like the body. `InterimIo` (HTTP/1.1) and `FrameIo` (HTTP/2) are between TLS and HTTP, because the
//! HTTP libraries skip interim responses without a limit.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::dial::Io;
use crate::limits::QuotaLease;

/// Writes go to the field `io` unchanged. `$param`: a parameter of the type, which is that field's type.
macro_rules! pass_writes_on {
    ($type:ty $(, $param:ident)?) => {
        impl$(<$param: AsyncWrite + Unpin>)? AsyncWrite for $type {
            fn poll_write(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut self.io).poll_write(cx, bytes)
            }

            fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Pin::new(&mut self.io).poll_flush(cx)
            }

            fn poll_shutdown(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
            ) -> Poll<io::Result<()>> {
                Pin::new(&mut self.io).poll_shutdown(cx)
            }
        }
    };
}

pub(crate) use pass_writes_on;

mod frames;

pub(crate) use frames::{FrameIo, InterimCount, ReadFailure};

/// Bytes over the wire in addition to content: heads, framing, TLS.
const OVERHEAD_BYTES: u64 = 256 * 1024;
/// Most interim responses of one hop.
const MAX_INTERIM_RESPONSES: u32 = 16;
/// Most bytes of all interim responses of one hop.
const MAX_INTERIM_BYTES: u64 = 64 * 1024;

/// The peers of a fetch sent more than allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// More bytes than a body within its limit can need.
    #[error("the peers sent more bytes than a body within the limit needs")]
    TooManyBytes,
    /// A quota of the policy files is used up.
    #[error("a quota is used up")]
    QuotaExceeded,
    /// Too many interim responses, or too large ones.
    #[error("the server sent too many interim responses")]
    TooManyInterimResponses,
    /// Too many frames of HTTP/2 that carry no data.
    #[error("the server sent too many frames without data")]
    TooManyControlFrames,
}

impl WireError {
    /// Finds the wire error that caused `error`, if one did.
    pub fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }
}

/// Bytes that may still be read from the peers of one fetch, over all its hops and attempts. Clones share it.
#[derive(Clone, Debug)]
pub struct WireBudget {
    left: Arc<AtomicU64>,
    quota: Option<QuotaLease>,
}

impl WireBudget {
    /// The budget of a fetch whose body may have `limit` bytes: a tenth and 256 KiB more.
    pub fn for_body(limit: u64) -> Self {
        let budget = limit
            .saturating_add(limit / 10)
            .saturating_add(OVERHEAD_BYTES);
        Self {
            left: Arc::new(AtomicU64::new(budget)),
            quota: None,
        }
    }

    /// Counts the bytes against quotas too.
    #[must_use]
    pub fn with_quota(mut self, quota: Option<QuotaLease>) -> Self {
        self.quota = quota;
        self
    }

    /// A separate budget for another body of at most `limit` bytes, with the same quotas.
    pub(crate) fn with_same_quota(&self, limit: u64) -> Self {
        Self::for_body(limit).with_quota(self.quota.clone())
    }

    /// Takes `count` bytes, unless fewer are left.
    fn take(&self, count: u64) -> Result<(), WireError> {
        if let Some(quota) = &self.quota {
            quota.charge(count).map_err(|_| WireError::QuotaExceeded)?;
        }
        let updated = self
            .left
            // The counter guards no other data.
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(count)
            });
        updated.map(|_| ()).map_err(|_| WireError::TooManyBytes)
    }
}

/// A stream whose bytes count against a [`WireBudget`].
pub struct MeteredIo {
    io: Box<dyn Io>,
    budget: WireBudget,
}

impl MeteredIo {
    /// Wraps a connection of the fetch whose budget this is.
    pub fn new(io: Box<dyn Io>, budget: WireBudget) -> Self {
        Self { io, budget }
    }
}

impl std::fmt::Debug for MeteredIo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MeteredIo").finish_non_exhaustive()
    }
}

impl AsyncRead for MeteredIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buffer))?;
        let count = buffer.filled().len().saturating_sub(before) as u64;
        // Bytes beyond the budget were read, but no layer above gets them.
        Poll::Ready(self.budget.take(count).map_err(io::Error::other))
    }
}

/// A stream that ends with an error when interim responses exceed their limits. After the head of the final response it
/// only passes bytes on.
pub(crate) struct InterimIo {
    io: Box<dyn Io>,
    scanner: Option<InterimScanner>,
    restart: InterimRestart,
}

/// Begins the count of interim responses again, for another request on the same connection. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct InterimRestart(Arc<AtomicBool>);

impl InterimRestart {
    /// The next byte that is read begins a response.
    pub(crate) fn restart(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl InterimIo {
    pub(crate) fn new(io: Box<dyn Io>) -> Self {
        Self {
            io,
            scanner: Some(InterimScanner::default()),
            restart: InterimRestart::default(),
        }
    }

    /// A handle that restarts its count.
    pub(crate) fn restart_handle(&self) -> InterimRestart {
        self.restart.clone()
    }
}

impl AsyncRead for InterimIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        if self.restart.0.swap(false, Ordering::Relaxed) {
            self.scanner = Some(InterimScanner::default());
        }
        ready!(Pin::new(&mut self.io).poll_read(cx, buffer))?;
        if let Some(scanner) = &mut self.scanner {
            let bytes = buffer.filled().get(before..).unwrap_or_default();
            match scanner.scan(bytes) {
                Ok(ScanResult::Interim) => {}
                Ok(ScanResult::Final) => self.scanner = None,
                Err(error) => return Poll::Ready(Err(io::Error::other(error))),
            }
        }
        Poll::Ready(Ok(()))
    }
}

pass_writes_on!(MeteredIo);
pass_writes_on!(InterimIo);

/// Length of `HTTP/1.1 100` in bytes: enough to know the status.
const STATUS_LENGTH: usize = 12;

/// The part of a response in which the bytes so far end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScanResult {
    /// The connection is in interim responses, or in the status line of any response.
    Interim,
    /// The final response has begun, or something that the HTTP library refuses.
    Final,
}

/// Finds the start of the final response, byte by byte.
#[derive(Debug, Default)]
struct InterimScanner {
    /// The first bytes of the status line; [`STATUS_LENGTH`] of them within an interim response.
    status: Vec<u8>,
    /// Bytes of the current line without its end.
    line: u64,
    responses: u32,
    bytes: u64,
}

impl InterimScanner {
    fn scan(&mut self, bytes: &[u8]) -> Result<ScanResult, WireError> {
        for byte in bytes {
            if self.step(*byte) == ScanResult::Final {
                return Ok(ScanResult::Final);
            }
            // The limits are checked after each byte: one large read must not exceed the limit unnoticed.
            if self.responses > MAX_INTERIM_RESPONSES || self.bytes > MAX_INTERIM_BYTES {
                return Err(WireError::TooManyInterimResponses);
            }
        }
        Ok(ScanResult::Interim)
    }

    fn step(&mut self, byte: u8) -> ScanResult {
        if self.status.len() == STATUS_LENGTH {
            self.bytes += 1;
            match byte {
                b'\r' => {}
                // An empty line ends the head of this response.
                b'\n' if self.line == 0 => self.status.clear(),
                b'\n' => self.line = 0,
                _ => self.line += 1,
            }
            return ScanResult::Interim;
        }
        if matches!(byte, b'\r' | b'\n') {
            // The HTTP library skips empty lines before a status line too.
            if !self.status.is_empty() {
                return ScanResult::Final;
            }
            self.bytes += 1;
            return ScanResult::Interim;
        }
        self.status.push(byte);
        if self.status.len() < STATUS_LENGTH {
            return ScanResult::Interim;
        }
        let code = self.status.get(9..).unwrap_or_default();
        // 101 ends the exchange: it is final.
        if !code.starts_with(b"1") || code == b"101" {
            return ScanResult::Final;
        }
        self.responses += 1;
        self.bytes += STATUS_LENGTH as u64;
        // The status line has begun, so its end is not the empty line.
        self.line = STATUS_LENGTH as u64;
        ScanResult::Interim
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result for `bytes`, which are fed one by one.
    fn scan(bytes: &[u8]) -> Result<ScanResult, WireError> {
        let mut scanner = InterimScanner::default();
        for byte in bytes {
            if scanner.scan(&[*byte])? == ScanResult::Final {
                return Ok(ScanResult::Final);
            }
        }
        Ok(ScanResult::Interim)
    }

    #[test]
    fn r_1_the_final_response_is_found_behind_interim_ones() {
        let final_head = b"HTTP/1.1 200 OK\r\n\r\n".as_slice();
        for interim in [
            b"".as_slice(),
            b"\r\n\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\n",
            b"HTTP/1.1 103 Early Hints\nLink: <x>\n\nHTTP/1.0 102\r\nA: b\r\n\r\n",
        ] {
            assert_eq!(scan(interim), Ok(ScanResult::Interim));
            let whole = [interim, final_head].concat();
            assert_eq!(scan(&whole), Ok(ScanResult::Final));
            assert_eq!(
                InterimScanner::default().scan(&whole),
                Ok(ScanResult::Final)
            );
        }
        for last in [
            "HTTP/1.1 101 Switching",
            "HTTP/1.1 404",
            "ICY 200\r\n",
            "HTTP/1.1\r\n",
        ] {
            assert_eq!(scan(last.as_bytes()), Ok(ScanResult::Final), "{last}");
        }
    }

    #[test]
    fn r_1_sixteen_interim_responses_pass_and_one_more_does_not() {
        let one = b"HTTP/1.1 100 Continue\r\n\r\n";
        assert_eq!(scan(&one.repeat(16)), Ok(ScanResult::Interim));
        assert_eq!(
            scan(&one.repeat(17)),
            Err(WireError::TooManyInterimResponses)
        );
    }

    #[test]
    fn r_1_interim_responses_may_have_64_kib_together() {
        let head = |size: usize| {
            let start = b"HTTP/1.1 103 Hints\r\nLink: ".as_slice();
            let fill = vec![b'x'; size - start.len() - 4];
            [start, &fill, b"\r\n\r\n"].concat()
        };
        let half = head(32 * 1024);
        let whole = half.repeat(2);
        assert_eq!(scan(&whole), Ok(ScanResult::Interim));
        let with_final = [whole.as_slice(), b"HTTP/1.1 200 OK\r\n"].concat();
        assert_eq!(scan(&with_final), Ok(ScanResult::Final));
        let over = [half.as_slice(), &head(32 * 1024 + 1)].concat();
        assert_eq!(scan(&over), Err(WireError::TooManyInterimResponses));
        assert_eq!(
            scan(&b"\r\n".repeat(32 * 1024 + 1)),
            Err(WireError::TooManyInterimResponses)
        );
    }

    #[test]
    fn x_5_clones_of_a_budget_share_its_bytes() {
        let budget = WireBudget::for_body(1000);
        let total = 1000 + 100 + 256 * 1024;
        let other = budget.clone();
        assert!(budget.take(total - 1).is_ok());
        assert!(other.take(2).is_err());
        assert!(other.take(1).is_ok());
        assert!(WireBudget::for_body(u64::MAX).take(u64::MAX).is_ok());
    }
}
