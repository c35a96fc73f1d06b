//! One stream out of a sandbox into a sink: counted, digested, watched.

use std::time::Duration;

use bytes::Bytes;
use crc_fast::CrcAlgorithm;
use dray_types::Sha256Digest;
use futures_util::future::{Either, select};
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, timeout, timeout_at};

use super::peer::{Progress, Sink};
use super::queue::{Queue, Spool};
use super::schedule::Trouble;
use crate::body::Body;
use crate::error::{Error, ErrorKind};
use crate::metadata::Fingerprint;
use crate::policy::{Finding, Policy, SCANNED, Scanner};

/// Longest chunk that is digested and handed on in one step.
const DIGEST_STEP_BYTES: usize = 256 << 10;

/// What is known of the bytes that the sink has.
pub(super) struct Seen {
    sha256: Sums,
    cksum: crc_fast::Digest,
    /// How many.
    pub(super) bytes: u64,
    /// The first of them.
    pub(super) head: Vec<u8>,
    scanner: Option<Scanner>,
    /// Whether the sink has exactly these bytes. Not while one is being handed over.
    pub(super) settled: bool,
}

/// Where the digest comes from.
enum Sums {
    /// From here.
    Ours(Sha256),
    /// From the sink, as it last said.
    Sinks(Sha256Digest),
}

impl Seen {
    /// For a file of this size.
    pub(super) fn new(size: u64) -> Self {
        Self {
            sha256: Sums::Ours(Sha256::new()),
            cksum: crc_fast::Digest::new(CrcAlgorithm::Crc32Cksum),
            bytes: 0,
            head: Vec::new(),
            scanner: (size <= SCANNED).then(Scanner::new),
            settled: true,
        }
    }

    pub(super) fn update(&mut self, piece: &[u8]) {
        if let Sums::Ours(sha256) = &mut self.sha256 {
            sha256.update(piece);
        }
        self.cksum.update(piece);
        self.bytes += piece.len() as u64;
        let missing = Policy::HEAD.saturating_sub(self.head.len());
        self.head.extend(piece.iter().take(missing));
        if let Some(scanner) = &mut self.scanner {
            scanner.push(piece);
        }
    }

    /// Leaves the digest to the sink, if it computes one, and takes what it says of the bytes that it has.
    pub(super) fn ask(&mut self, sink: &dyn Sink) {
        if let Some(sha256) = sink.sha256() {
            self.sha256 = Sums::Sinks(sha256);
        }
    }

    /// Digest so far; of a sink's own when it was last asked.
    pub(super) fn sha256(&self) -> Sha256Digest {
        match &self.sha256 {
            Sums::Ours(sha256) => Sha256Digest::from_bytes(sha256.clone().finalize().into()),
            Sums::Sinks(sha256) => *sha256,
        }
    }

    /// Whether the sandbox says the same of the file.
    pub(super) fn agrees(&self, print: &Fingerprint) -> bool {
        match print {
            Fingerprint::Sha256(sha256, size) => *size == self.bytes && *sha256 == self.sha256(),
            Fingerprint::Cksum(cksum, size) => *size == self.bytes && *cksum == self.cksum(),
        }
    }

    /// POSIX `cksum`: the length follows the content, low byte first, no longer than needed.
    fn cksum(&self) -> u32 {
        let mut cksum = self.cksum;
        let length = self.bytes.to_le_bytes();
        let used = 8 - self.bytes.leading_zeros() as usize / 8;
        cksum.update(length.get(..used).unwrap_or_default());
        u32::try_from(cksum.finalize()).unwrap_or_default()
    }

    /// Whether a private key begins anywhere in it, where it is small enough to be scanned.
    pub(super) fn has_private_key(&self) -> bool {
        self.scanner.as_ref().is_some_and(Scanner::has_private_key)
    }

    /// What the content looks like.
    pub(super) fn finding(&mut self) -> Option<Finding> {
        self.scanner.take().and_then(Scanner::finish)
    }
}

/// How far a copy may go.
pub(super) struct Limits {
    /// Bytes that the file has; `None` when only its end can tell.
    pub(super) size: Option<u64>,
    /// Longest time without a byte.
    pub(super) idle: Duration,
    /// When it must be over.
    pub(super) deadline: Instant,
    /// Where to drain to, when the stream must be.
    pub(super) spool: Option<Spool>,
}

/// Reads a stream to its end into the sink. What `seen` says afterwards is what the sink has, in every case.
pub(super) async fn copy(
    body: Body,
    seen: &mut Seen,
    sink: &mut dyn Sink,
    limits: Limits,
    progress: &dyn Progress,
) -> Result<(), Trouble> {
    let queue = Queue::new(limits.spool);
    let left = limits.size.map(|size| size.saturating_sub(seen.bytes));
    let fill = Box::pin(fill(body, &queue, left, limits.idle));
    let empty = Box::pin(empty(
        &queue,
        seen,
        sink,
        limits.size.unwrap_or(0),
        progress,
    ));
    let both = async {
        match select(fill, empty).await {
            Either::Left(((), empty)) => empty.await,
            Either::Right((emptied, _)) => emptied,
        }
    };
    timeout_at(limits.deadline, both).await.unwrap_or_else(|_| {
        let error = Error::new(ErrorKind::Timeout, "the whole took too long for its size");
        Err(Trouble::transport(error))
    })
}

/// Fills the queue with exactly `left` bytes, or with all there are. The stream is closed on return.
pub(super) async fn fill(mut body: Body, queue: &Queue, left: Option<u64>, idle: Duration) {
    let mut come: u64 = 0;
    let result = loop {
        match timeout(idle, some(&mut body)).await {
            Err(_) => {
                break Err(Error::new(
                    ErrorKind::Timeout,
                    "no byte within the idle window",
                ));
            }
            Ok(Some(Err(error))) => break Err(error),
            Ok(Some(Ok(piece))) => {
                come = come.saturating_add(piece.len() as u64);
                if left.is_some_and(|left| come > left) {
                    let error = "more bytes than the file had";
                    break Err(Error::new(ErrorKind::ChangedDuringTransfer, error));
                }
                if let Err(error) = queue.push(piece).await {
                    break Err(error);
                }
            }
            Ok(None) if left.is_some_and(|left| come < left) => {
                break Err(Error::new(
                    ErrorKind::Truncated,
                    format!("only {come} bytes came"),
                ));
            }
            Ok(None) => break Ok(()),
        }
    };
    drop(body);
    queue.end(result);
}

/// The next piece with something in it: empty ones are not progress.
async fn some(body: &mut Body) -> Option<Result<Bytes, Error>> {
    loop {
        match body.next().await {
            Some(Ok(piece)) if piece.is_empty() => tokio::task::yield_now().await,
            next => return next,
        }
    }
}

/// Hands what is in the queue to the sink.
async fn empty(
    queue: &Queue,
    seen: &mut Seen,
    sink: &mut dyn Sink,
    size: u64,
    progress: &dyn Progress,
) -> Result<(), Trouble> {
    while let Some(mut rest) = queue.pop().await.map_err(Trouble::transport)? {
        while !rest.is_empty() {
            let piece = rest.split_to(rest.len().min(DIGEST_STEP_BYTES));
            seen.settled = false;
            seen.update(&piece);
            sink.write(piece).await.map_err(Trouble::host)?;
            seen.settled = true;
            progress.moved(seen.bytes, size);
            if !rest.is_empty() {
                tokio::task::yield_now().await;
            }
        }
    }
    Ok(())
}
