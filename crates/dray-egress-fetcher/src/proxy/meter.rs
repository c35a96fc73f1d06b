//! Counts and limits the bytes between proxy and target, exactly, below everything that reads or writes them.

use dray_types::whole_millis;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep_until};

use crate::dial::Io;
use crate::limits::{QuotaLease, TakenBytes};

/// Longest silence after one side has closed its direction: most of these connections are abandoned.
pub const HALF_CLOSED_TIMEOUT: Duration = Duration::from_mins(1);

/// Most bytes of a connection in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteLimits {
    /// Bytes from the client to the target.
    pub up: u64,
    /// Bytes from the target to the client.
    pub down: u64,
}

impl ByteLimits {
    /// Never reached.
    pub const WITHOUT_LIMITS: Self = Self {
        up: u64::MAX,
        down: u64::MAX,
    };
}

/// A direction has reached its limit and has more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitReached {
    /// Bytes from the client to the target.
    #[error("the client sent more bytes than allowed")]
    Up,
    /// Bytes from the target to the client.
    #[error("the target sent more bytes than allowed")]
    Down,
    /// A quota of the policy files, in either direction, and the time until it refills.
    #[error("a quota is used up")]
    Quota(Option<Duration>),
}

impl LimitReached {
    /// Finds the limit that caused `error`, if one did.
    pub fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }
}

/// Counts of one connection, or of one of its requests. Clones share them.
#[derive(Clone, Debug)]
pub struct ByteCounts {
    state: Arc<CountState>,
    /// Bytes of earlier requests, up and down, which do not count here.
    earlier: (u64, u64),
}

#[derive(Debug)]
struct CountState {
    started: Instant,
    up: AtomicU64,
    down: AtomicU64,
    /// Milliseconds from the start to the last byte in either direction.
    last_ms: AtomicU64,
    half_closed: AtomicBool,
    limit: std::sync::OnceLock<LimitReached>,
}

impl Default for ByteCounts {
    fn default() -> Self {
        let state = CountState {
            started: Instant::now(),
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
            last_ms: AtomicU64::new(0),
            half_closed: AtomicBool::new(false),
            limit: std::sync::OnceLock::new(),
        };
        Self {
            state: Arc::new(state),
            earlier: (0, 0),
        }
    }
}

impl ByteCounts {
    /// Bytes that were written to the target.
    pub fn up(&self) -> u64 {
        // The counters guard no other data, here and below.
        let all = self.state.up.load(Ordering::Relaxed);
        all.saturating_sub(self.earlier.0)
    }

    /// Bytes that were read from the target and passed on.
    pub fn down(&self) -> u64 {
        let all = self.state.down.load(Ordering::Relaxed);
        all.saturating_sub(self.earlier.1)
    }

    /// The counts of the same connection, which begin again at zero for its next request; that request counts as
    /// activity, too.
    #[must_use]
    pub fn from_now(&self) -> Self {
        self.note_activity();
        Self {
            state: Arc::clone(&self.state),
            earlier: (
                self.state.up.load(Ordering::Relaxed),
                self.state.down.load(Ordering::Relaxed),
            ),
        }
    }

    /// The limit that was reached, however the layers above reported it.
    pub fn limit_reached(&self) -> Option<LimitReached> {
        self.state.limit.get().copied()
    }

    /// Notes that one side sends no more.
    pub fn half_close(&self) {
        self.state.half_closed.store(true, Ordering::Relaxed);
        self.note_activity();
    }

    /// Waits until no byte has passed for `limit`, or for [`HALF_CLOSED_TIMEOUT`] once one side has closed.
    pub async fn idle(&self, limit: Duration) {
        loop {
            // The flag is read again each time, since a half-close shortens the wait.
            let is_half_closed = self.state.half_closed.load(Ordering::Relaxed);
            let limit = if is_half_closed {
                limit.min(HALF_CLOSED_TIMEOUT)
            } else {
                limit
            };
            let last = Duration::from_millis(self.state.last_ms.load(Ordering::Relaxed));
            let end = self.state.started + last + limit;
            if Instant::now() >= end {
                return;
            }
            sleep_until(end.min(Instant::now() + HALF_CLOSED_TIMEOUT)).await;
        }
    }

    fn note_activity(&self) {
        let now_ms = whole_millis(self.state.started.elapsed());
        self.state.last_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Notes that a limit is reached, and returns it as an error.
    pub(super) fn exceed(&self, limit: LimitReached) -> io::Error {
        // The first one counts.
        let _ = self.state.limit.set(limit);
        io::Error::other(limit)
    }
}

/// The quotas against which the bytes of a stream count, which may change from one request to the next. Clones share
/// them.
#[derive(Clone, Debug, Default)]
pub struct StreamQuota(Arc<Mutex<Option<QuotaLease>>>);

impl StreamQuota {
    /// Counts the bytes from now on against these quotas, and returns the place of the earlier ones.
    pub fn set(&self, quota: Option<QuotaLease>) {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *guard = quota;
    }

    /// Counts as many of `bytes` as fit. Returns their number, and the limit that the others would exceed.
    fn take(&self, bytes: u64) -> (StreamBytes, Option<LimitReached>) {
        let quota = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(quota) = quota.as_ref() else {
            let taken = StreamBytes {
                count: bytes,
                of_quota: None,
            };
            return (taken, None);
        };
        let (taken, exceeded) = quota.take(bytes);
        let limit = exceeded.map(|exceeded| LimitReached::Quota(exceeded.refills_in));
        let taken = StreamBytes {
            count: taken.count,
            of_quota: Some(taken),
        };
        (taken, limit)
    }

    /// Returns `bytes` of those that were taken, which did not pass.
    fn give_back(&self, taken: StreamBytes, bytes: u64) {
        let quota = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(quota), Some(taken)) = (quota.as_ref(), taken.of_quota) {
            quota.give_back(taken, bytes);
        }
    }
}

/// Bytes of a stream that may pass.
#[derive(Clone, Copy, Debug)]
struct StreamBytes {
    count: u64,
    /// How they count against the quotas; `None` without quotas.
    of_quota: Option<TakenBytes>,
}

/// The connection to a target, counted. Exactly the limit passes; one byte more is an error.
pub struct TargetStream {
    io: Box<dyn Io>,
    limits: ByteLimits,
    quota: StreamQuota,
    counts: ByteCounts,
    /// The limit beyond which bytes were read and thrown away: no further byte passes, not even the end.
    cut_by: Option<LimitReached>,
}

impl std::fmt::Debug for TargetStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TargetStream")
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

impl TargetStream {
    /// Counts everything that passes through `io` from now on.
    pub fn new(io: Box<dyn Io>, limits: ByteLimits, counts: ByteCounts) -> Self {
        Self {
            io,
            limits,
            quota: StreamQuota::default(),
            counts,
            cut_by: None,
        }
    }

    /// Counts the bytes against quotas too.
    #[must_use]
    pub fn with_quota(self, quota: Option<QuotaLease>) -> Self {
        self.quota.set(quota);
        self
    }

    /// The stream's quotas, to change them later.
    pub fn quota(&self) -> StreamQuota {
        self.quota.clone()
    }
}

impl AsyncRead for TargetStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(limit) = self.cut_by {
            // The target may send nothing more and stay open, so this is not left to a further read.
            return Poll::Ready(Err(self.counts.exceed(limit)));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buffer))?;
        let count = buffer.filled().len().saturating_sub(before) as u64;
        if count == 0 {
            return Poll::Ready(Ok(()));
        }
        let remaining = self.limits.down.saturating_sub(self.counts.down());
        let (taken, quota_limit) = self.quota.take(count.min(remaining));
        let passed = taken.count;
        // Bytes beyond the limit are cut and the next read fails. That read might find the end of the stream, so the
        // limit is recorded now.
        if passed < count {
            let limit = quota_limit.unwrap_or(LimitReached::Down);
            let error = self.counts.exceed(limit);
            // The number is at most that of the filled bytes, so it fits.
            buffer.set_filled(before + usize::try_from(passed).unwrap_or_default());
            self.cut_by = Some(limit);
            if passed == 0 {
                return Poll::Ready(Err(error));
            }
        }
        self.counts.state.down.fetch_add(passed, Ordering::Relaxed);
        self.counts.note_activity();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TargetStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let remaining = self.limits.up.saturating_sub(self.counts.up());
        let allowed = bytes
            .len()
            .min(usize::try_from(remaining).unwrap_or(usize::MAX));
        if allowed == 0 && !bytes.is_empty() {
            return Poll::Ready(Err(self.counts.exceed(LimitReached::Up)));
        }
        // The amount is taken before it is sent, so that all connections that share a quota send no more than it
        // allows.
        let (taken, quota_limit) = self.quota.take(allowed as u64);
        if let Some(limit) = quota_limit.filter(|_| taken.count == 0) {
            return Poll::Ready(Err(self.counts.exceed(limit)));
        }
        let allowed = usize::try_from(taken.count).unwrap_or(allowed);
        let bytes = bytes.get(..allowed).unwrap_or_default();
        let polled = Pin::new(&mut self.io).poll_write(cx, bytes);
        let sent = match &polled {
            Poll::Ready(Ok(written)) => *written as u64,
            Poll::Ready(Err(_)) | Poll::Pending => 0,
        };
        self.quota
            .give_back(taken, taken.count.saturating_sub(sent));
        let written = ready!(polled)?;
        self.counts
            .state
            .up
            .fetch_add(written as u64, Ordering::Relaxed);
        self.counts.note_activity();
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn target(limits: ByteLimits) -> (TargetStream, tokio::io::DuplexStream, ByteCounts) {
        let (near, far) = tokio::io::duplex(1024);
        let counts = ByteCounts::default();
        (
            TargetStream::new(Box::new(near), limits, counts.clone()),
            far,
            counts,
        )
    }

    const TEST_LIMITS: ByteLimits = ByteLimits { up: 4, down: 6 };

    #[tokio::test]
    async fn b_2_exactly_the_limit_passes_in_both_directions() {
        let (mut target, mut far, counts) = target(TEST_LIMITS);
        target.write_all(b"1234").await.unwrap();
        far.write_all(b"123456").await.unwrap();
        drop(far);
        let mut all = Vec::new();
        target.read_to_end(&mut all).await.unwrap();
        assert_eq!((counts.up(), counts.down(), all.len()), (4, 6, 6));
        assert_eq!(counts.limit_reached(), None);
    }

    #[tokio::test]
    async fn b_2_one_byte_more_is_an_error_and_does_not_pass() {
        let (mut up, mut far, counts) = target(TEST_LIMITS);
        let error = up.write_all(b"12345").await.unwrap_err();
        assert_eq!(LimitReached::of(&error), Some(LimitReached::Up));
        assert_eq!(
            (counts.up(), counts.limit_reached()),
            (4, Some(LimitReached::Up))
        );
        drop(up);
        let mut all = Vec::new();
        far.read_to_end(&mut all).await.unwrap();
        assert_eq!(all, b"1234");

        for chunks in [&[&b"1234567"[..]][..], &[&b"123456"[..], b"7"]] {
            let (mut down, mut far, counts) = target(TEST_LIMITS);
            let mut passed = Vec::new();
            let mut failed = false;
            for chunk in chunks {
                far.write_all(chunk).await.unwrap();
                let mut buffer = [0; 64];
                match down.read(&mut buffer).await {
                    Ok(count) => passed.extend_from_slice(&buffer[..count]),
                    Err(error) => failed = LimitReached::of(&error).is_some(),
                }
            }
            assert_eq!(passed, b"123456");
            assert_eq!(counts.down(), 6);
            assert_eq!(counts.limit_reached(), Some(LimitReached::Down));
            assert!(failed || chunks.len() == 1);
        }
    }

    #[tokio::test]
    async fn b_2_counts_of_a_further_request_begin_at_zero_and_the_limit_does_not() {
        let (mut target, mut far, counts) = target(TEST_LIMITS);
        far.write_all(b"1234").await.unwrap();
        let mut buffer = [0; 64];
        assert_eq!(target.read(&mut buffer).await.unwrap(), 4);
        let next = counts.from_now();
        assert_eq!((next.up(), next.down()), (0, 0));
        far.write_all(b"567").await.unwrap();
        assert_eq!(target.read(&mut buffer).await.unwrap(), 2);
        assert_eq!((next.down(), counts.down()), (2, 6));
        assert_eq!(next.limit_reached(), Some(LimitReached::Down));
    }

    #[tokio::test]
    async fn b_2_a_read_after_the_cut_fails_without_a_wait_while_the_target_stays_open() {
        let (mut target, mut far, _) = target(TEST_LIMITS);
        far.write_all(b"1234567").await.unwrap();
        let mut buffer = [0; 64];
        assert_eq!(target.read(&mut buffer).await.unwrap(), 6);
        let next = target.read(&mut buffer).now_or_never();
        let error = next.expect("a result without a wait").unwrap_err();
        assert_eq!(LimitReached::of(&error), Some(LimitReached::Down));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_after_the_last_byte_and_sooner_when_half_closed() {
        let limit = Duration::from_mins(5);
        let started = Instant::now();
        let (mut target, _far, counts) = target(TEST_LIMITS);
        let idle = counts.idle(limit);
        tokio::join!(idle, async {
            // paused clock: a byte after some time
            sleep_until(started + Duration::from_mins(4)).await;
            target.write_all(b"1").await.unwrap();
        });
        assert_eq!(started.elapsed(), Duration::from_mins(9));
        counts.half_close();
        counts.idle(limit).await;
        assert_eq!(started.elapsed(), Duration::from_mins(10));
    }
}
