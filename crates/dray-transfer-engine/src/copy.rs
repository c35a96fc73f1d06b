//! One stream out of a sandbox into a sink: counted, hashed and watched.

use std::time::Duration;

use bytes::Bytes;
use crc_fast::CrcAlgorithm;
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::Fingerprint;
use dray_types::Sha256Digest;
use futures_util::future::{Either, select};
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, timeout, timeout_at};

use super::peer::{Progress, Sink};
use super::queue::{Queue, Spool};
use super::schedule::TransferError;
use crate::policy::{Finding, MAX_SCANNED_BYTES, Policy, Scanner};

/// Longest chunk that is digested and passed on in one step.
const DIGEST_STEP_BYTES: usize = 256 << 10;

/// Counts and digests of the bytes that the sink has.
pub(super) struct CopiedBytes {
    sha256: DigestSource,
    cksum: crc_fast::Digest,
    /// Number of bytes so far.
    pub(super) bytes: u64,
    /// The first [`Policy::KEY_FILE_HEAD_BYTES`] bytes, for the check of key files.
    pub(super) head: Vec<u8>,
    scanner: Option<Scanner>,
    /// Whether the sink has exactly these bytes. `false` while a chunk is being written, because a failure then
    /// leaves its part unknown.
    pub(super) settled: bool,
}

/// The source of the SHA-256.
enum DigestSource {
    /// Computed here from the bytes.
    Local(Sha256),
    /// Reported by the sink, as of its last flush.
    Sink(Sha256Digest),
}

impl CopiedBytes {
    /// Starts without bytes; a file of more than [`MAX_SCANNED_BYTES`] bytes is not scanned for secrets.
    pub(super) fn new(size: u64) -> Self {
        Self {
            sha256: DigestSource::Local(Sha256::new()),
            cksum: crc_fast::Digest::new(CrcAlgorithm::Crc32Cksum),
            bytes: 0,
            head: Vec::new(),
            scanner: (size <= MAX_SCANNED_BYTES).then(Scanner::new),
            settled: true,
        }
    }

    pub(super) fn update(&mut self, chunk: &[u8]) {
        if let DigestSource::Local(sha256) = &mut self.sha256 {
            sha256.update(chunk);
        }
        self.cksum.update(chunk);
        self.bytes += chunk.len() as u64;
        let missing = Policy::KEY_FILE_HEAD_BYTES.saturating_sub(self.head.len());
        self.head.extend(chunk.iter().take(missing));
        if let Some(scanner) = &mut self.scanner {
            scanner.push(chunk);
        }
    }

    /// Takes the digest that the sink has computed of its bytes, if it computes one. From then on none is computed
    /// here.
    pub(super) fn take_digest_of(&mut self, sink: &dyn Sink) {
        if let Some(sha256) = sink.sha256() {
            self.sha256 = DigestSource::Sink(sha256);
        }
    }

    /// SHA-256 of the bytes so far; where the sink computes it, as of the last call of [`Self::take_digest_of`].
    pub(super) fn sha256(&self) -> Sha256Digest {
        match &self.sha256 {
            DigestSource::Local(sha256) => {
                Sha256Digest::from_bytes(sha256.clone().finalize().into())
            }
            DigestSource::Sink(sha256) => *sha256,
        }
    }

    /// Whether a digest of the sandbox equals that of these bytes.
    pub(super) fn agrees(&self, fingerprint: &Fingerprint) -> bool {
        match fingerprint {
            Fingerprint::Sha256(sha256, size) => *size == self.bytes && *sha256 == self.sha256(),
            Fingerprint::Cksum(cksum, size) => *size == self.bytes && *cksum == self.cksum(),
        }
    }

    /// CRC of POSIX `cksum`: the length follows the content, low byte first, no longer than needed.
    fn cksum(&self) -> u32 {
        let mut cksum = self.cksum;
        let length = self.bytes.to_le_bytes();
        let used = 8 - self.bytes.leading_zeros() as usize / 8;
        cksum.update(length.get(..used).unwrap_or_default());
        u32::try_from(cksum.finalize()).unwrap_or_default()
    }

    /// Whether a private key begins anywhere in the bytes, where they are few enough to be scanned.
    pub(super) fn has_private_key(&self) -> bool {
        self.scanner.as_ref().is_some_and(Scanner::has_private_key)
    }

    /// The secret that the content suggests. The scanner is used up.
    pub(super) fn finding(&mut self) -> Option<Finding> {
        self.scanner.take().and_then(Scanner::finish)
    }
}

/// Limits of one copy.
pub(super) struct Limits {
    /// Size of the file in bytes; `None` when it is unknown until the end of the stream.
    pub(super) size: Option<u64>,
    /// Longest time without a byte before the copy fails.
    pub(super) idle: Duration,
    /// The time by which the copy must be complete.
    pub(super) deadline: Instant,
    /// The file to which the stream is drained, when it must be.
    pub(super) spool: Option<Spool>,
}

/// Copies a stream to its end into the sink. Afterwards, even after a failure, `copied` describes the bytes that the
/// sink has.
pub(super) async fn copy(
    body: Body,
    copied: &mut CopiedBytes,
    sink: &mut dyn Sink,
    limits: Limits,
    progress: &dyn Progress,
) -> Result<(), TransferError> {
    let queue = Queue::new(limits.spool);
    let remaining = limits.size.map(|size| size.saturating_sub(copied.bytes));
    let filling = Box::pin(fill(body, &queue, remaining, limits.idle));
    let draining = Box::pin(drain(
        &queue,
        copied,
        sink,
        limits.size.unwrap_or(0),
        progress,
    ));
    // Both run in this task: a dropped copy drops the stream, and with it the remote process.
    let both = async {
        match select(filling, draining).await {
            // The stream has ended, but the queue may still hold bytes for the sink.
            Either::Left(((), draining)) => draining.await,
            Either::Right((drained, _)) => drained,
        }
    };
    timeout_at(limits.deadline, both).await.unwrap_or_else(|_| {
        let error = Error::new(
            ErrorKind::Timeout,
            "the transfer took too long for its size",
        );
        Err(TransferError::transport(error))
    })
}

/// Fills the queue with exactly `left` bytes, or with all of them for `None`. The stream is closed on return.
pub(super) async fn fill(mut body: Body, queue: &Queue, left: Option<u64>, idle: Duration) {
    let mut received: u64 = 0;
    let result = loop {
        match timeout(idle, next_nonempty(&mut body)).await {
            Err(_) => {
                break Err(Error::new(
                    ErrorKind::Timeout,
                    "no byte within the idle window",
                ));
            }
            Ok(Some(Err(error))) => break Err(error),
            Ok(Some(Ok(chunk))) => {
                received = received.saturating_add(chunk.len() as u64);
                // A longer stream is a file that grew since its size was read (sandbox-transfer 1.4, rule 3).
                if left.is_some_and(|left| received > left) {
                    let error = "more bytes than the file had";
                    break Err(Error::new(ErrorKind::ChangedDuringTransfer, error));
                }
                if let Err(error) = queue.push(chunk).await {
                    break Err(error);
                }
            }
            Ok(None) if left.is_some_and(|left| received < left) => {
                break Err(Error::new(
                    ErrorKind::Truncated,
                    format!("only {received} bytes arrived"),
                ));
            }
            Ok(None) => break Ok(()),
        }
    };
    // The body is closed before the end is reported: the sandbox is free again while the sink still writes.
    drop(body);
    queue.end(result);
}

/// Waits for the next chunk that is not empty: an empty chunk is not progress.
async fn next_nonempty(body: &mut Body) -> Option<Result<Bytes, Error>> {
    loop {
        match body.next().await {
            // A stream of empty chunks must not keep the idle timer from firing.
            Some(Ok(chunk)) if chunk.is_empty() => tokio::task::yield_now().await,
            next => return next,
        }
    }
}

/// Writes the bytes of the queue to the sink, until the queue ends.
async fn drain(
    queue: &Queue,
    copied: &mut CopiedBytes,
    sink: &mut dyn Sink,
    size: u64,
    progress: &dyn Progress,
) -> Result<(), TransferError> {
    while let Some(mut rest) = queue.pop().await.map_err(TransferError::transport)? {
        while !rest.is_empty() {
            let chunk = rest.split_to(rest.len().min(DIGEST_STEP_BYTES));
            // The flag is cleared first: if a write fails or is dropped, the digest covers more bytes than the sink
            // has.
            copied.settled = false;
            copied.update(&chunk);
            sink.write(chunk).await.map_err(TransferError::host)?;
            copied.settled = true;
            progress.moved(copied.bytes, size);
            // Hashing uses the CPU; other tasks of this thread run between two chunks.
            if !rest.is_empty() {
                tokio::task::yield_now().await;
            }
        }
    }
    Ok(())
}
