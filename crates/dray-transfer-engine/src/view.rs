//! Parts of files for a person who looks at them, without a copy on this host (previews).
//!
//! A view, unlike a transfer, has no retries and no receipt. It guarantees that all bytes of a response are from one
//! state of the file. The file is pinned before the first byte, and its last bytes are sent only if it is still the
//! pinned one.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dray_sandbox::backend::{Follow, Read};
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind, RetryMode};
use dray_sandbox::metadata::{FileKind, Metadata, Transport};
use dray_sandbox::path::SandboxPath;
use dray_types::Sha256Digest;
use futures_util::stream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::copy::fill;
use super::engine::Engine;
use super::prove;
use super::queue::{Queue, Spool};
use crate::policy::{MAX_SCANNED_BYTES, Policy, Scanner, Verdict};

/// Longest wait until a view may run.
const VIEW_PERMIT_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest time for which a viewer may take no bytes. After a pause, a video player requests the rest with a range.
const VIEWER_STALL_TIMEOUT: Duration = Duration::from_secs(15);
/// Bytes of a file below which all of it is read, scanned and proved before the first byte leaves.
const WHOLE_FILE_BYTES: u64 = MAX_SCANNED_BYTES;

/// A path and its state at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedPath {
    /// The file's metadata, after links were followed.
    pub metadata: Metadata,
    /// A text that changes with every write, even when the modification time is set back; `None` where the sandbox does
    /// not report it, and for everything but files.
    pub marker: Option<String>,
}

impl PinnedPath {
    /// Whether two equal tags prove equal content: the sandbox reports every change.
    pub const fn is_strong(&self) -> bool {
        self.marker.is_some()
    }

    /// Text that differs for other states of the file and for other incarnations: 32 hexadecimal digits.
    pub fn state_tag(&self, engine: &Engine) -> String {
        let Self { metadata, marker } = self;
        let state = format!(
            "{}\n{}\n{}\n{:?}\n{:?}\n{marker:?}",
            engine.handle(),
            metadata.real_path,
            metadata.size,
            metadata.mtime_ns,
            metadata.identity,
        );
        let mut tag = Sha256Digest::of(state.as_bytes()).to_hex();
        tag.truncate(32);
        tag
    }

    fn is_same(&self, now: &Self) -> bool {
        prove::same(&self.metadata, &now.metadata) && self.marker == now.marker
    }
}

impl Engine {
    /// Reads the state of a path that the policy permits. Two results for the same state are equal.
    ///
    /// # Errors
    ///
    /// Refusals of policy, and failures of the sandbox.
    pub async fn pin(&self, policy: &Policy, path: &SandboxPath) -> Result<PinnedPath, Error> {
        let metadata = self.stat(policy, path, Follow::Yes).await?;
        let marker = if metadata.kind == FileKind::File {
            let marker = self.sandbox.change_marker(&metadata.real_path);
            self.with_response_timeout(marker).await?
        } else {
            None
        };
        Ok(PinnedPath { metadata, marker })
    }

    /// Reads `range` of a pinned file, which must be inside its size. The first byte of the body comes only after the
    /// sandbox opened the file; the last bytes come only if the file still has its pinned state. Files of up to
    /// [`MAX_SCANNED_BYTES`] are read whole first and pass the rules about content; larger ones are not scanned, as
    /// with [`Engine::get`]. Where no transport can begin at an offset, the bytes before the range are read and
    /// dropped. Dropping the body ends the reading in the sandbox, and so does a viewer that takes nothing for 15 s.
    ///
    /// # Errors
    ///
    /// Refusals of policy, [`ErrorKind::NotRegular`], [`ErrorKind::RateLimited`] when too many views run, and failures
    /// of the sandbox. The body fails with [`ErrorKind::ChangedDuringTransfer`] when the file changed.
    pub async fn read_pinned(
        self: &Arc<Self>,
        policy: &Policy,
        pinned: &PinnedPath,
        range: Range<u64>,
    ) -> Result<Body, Error> {
        let file = &pinned.metadata;
        if file.kind != FileKind::File {
            return Err(Error::new(ErrorKind::NotRegular, file.kind.as_str()));
        }
        if file.size <= WHOLE_FILE_BYTES {
            let content = self.read_small(policy, pinned).await?;
            let index = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
            let end = index(range.end).min(content.len());
            return Ok(Body::from_bytes(
                content.slice(index(range.start).min(end)..end),
            ));
        }
        let permit = self.acquire_view_permit().await?;
        self.check_large_key_file(policy, pinned).await?;
        let (body, skip, transport) = self.open_at(file, range.start).await?;
        let drains = self.sandbox.must_drain(transport);
        let queue = Queue::new(drains.then(|| Spool::from(&self.options)));
        let queue = Arc::new(queue.with_stall_timeout(VIEWER_STALL_TIMEOUT));
        let remaining = file.size - (range.start - skip);
        let deadline = Self::total_timeout(file.size);
        let idle = self.options.idle;
        let mut filling = JoinSet::new();
        filling.spawn({
            let queue = Arc::clone(&queue);
            async move {
                if timeout(deadline, fill(body, &queue, Some(remaining), idle))
                    .await
                    .is_err()
                {
                    let error = "the transfer took too long for its size";
                    queue.end(Err(Error::new(ErrorKind::Timeout, error)));
                }
                drop(permit);
            }
        });
        let view = RangeView {
            engine: Arc::clone(self),
            policy: policy.clone(),
            pinned: pinned.clone(),
            queue,
            filling,
            skip,
            left: range.end - range.start,
            held: None,
        };
        Ok(Body::new(stream::try_unfold(
            Some(view),
            async |view| match view {
                Some(view) => view.next().await,
                None => Ok(None),
            },
        )))
    }

    /// The whole content of a small file, after the rules about content, if it is still the pinned file.
    async fn read_small(&self, policy: &Policy, pinned: &PinnedPath) -> Result<Bytes, Error> {
        let file = &pinned.metadata;
        let _permit = self.acquire_view_permit().await?;
        let read = async {
            let (body, _, _) = self.open_at(file, 0).await?;
            let limit = usize::try_from(WHOLE_FILE_BYTES).unwrap_or(usize::MAX);
            body.exactly(file.size).read_all(limit).await
        };
        let read = timeout(Self::total_timeout(file.size), read).await;
        let content = read.unwrap_or_else(|_| {
            let error = "the file took too long for its size";
            Err(Error::new(ErrorKind::Timeout, error))
        })?;
        let mut scanner = Scanner::new();
        scanner.push(&content);
        let head = content
            .get(..Policy::KEY_FILE_HEAD_BYTES)
            .unwrap_or(&content);
        for path in [&file.path, &file.real_path] {
            policy.check_key_file(path, head, scanner.has_private_key())?;
        }
        let verdict = policy.judge(&file.real_path, scanner.finish());
        if let Verdict::Block(finding) = verdict {
            return Err(finding.refusal(&file.real_path));
        }
        self.check_still_pinned(policy, pinned).await?;
        if let Verdict::Warn(finding) = verdict {
            finding.warn(&file.real_path);
        }
        Ok(content.into())
    }

    /// Refuses a large file that is named like a key and begins like one, whichever range of it is requested.
    async fn check_large_key_file(
        &self,
        policy: &Policy,
        pinned: &PinnedPath,
    ) -> Result<(), Error> {
        let file = &pinned.metadata;
        let named = [&file.path, &file.real_path];
        // The path is checked as if the content were a key: if even a key is permitted, nothing has to be read.
        let is_permitted = |path: &&SandboxPath| policy.check_key_file(path, &[], true).is_ok();
        if named.iter().all(is_permitted) {
            return Ok(());
        }
        let (mut body, _, _) = self.open_at(file, 0).await?;
        let mut head = Vec::new();
        while head.len() < Policy::KEY_FILE_HEAD_BYTES {
            match timeout(self.options.idle, body.next()).await {
                Ok(Some(chunk)) => head.extend_from_slice(&chunk?),
                Ok(None) => break,
                Err(_) => {
                    return Err(Error::new(
                        ErrorKind::Timeout,
                        "no byte of the file arrived in time",
                    ));
                }
            }
        }
        for path in named {
            policy.check_key_file(path, &head, false)?;
        }
        Ok(())
    }

    /// Opens a file at an offset, or at its beginning where nothing can begin later; the second value is the number of
    /// bytes to leave out.
    async fn open_at(&self, file: &Metadata, offset: u64) -> Result<(Body, u64, Transport), Error> {
        let resuming = if offset > 0 {
            self.resuming(file)
        } else {
            None
        };
        let mut resumed = resuming.map(|transport| (transport, offset));
        let mut tried: Vec<Transport> = Vec::new();
        let mut last_error = Error::new(ErrorKind::ToolMissing, "no transport reads this file");
        loop {
            let chosen = resumed.take().or_else(|| {
                // Asked after each failure: a sandbox that has stopped is read without commands.
                let mut usable = self.sandbox.read_transports(file).into_iter();
                let untried = usable.find(|transport| !tried.contains(transport));
                untried.map(|transport| (transport, 0))
            });
            let Some((transport, start)) = chosen else {
                return Err(last_error);
            };
            if start == 0 {
                tried.push(transport);
            }
            let read = Read {
                transport,
                file,
                offset: start,
            };
            match self.with_response_timeout(self.sandbox.read(read)).await {
                Ok(body) => return Ok((body, offset - start, transport)),
                Err(error) if error.kind().retry_mode() == RetryMode::OtherTransport => {
                    last_error = error;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn check_still_pinned(&self, policy: &Policy, pinned: &PinnedPath) -> Result<(), Error> {
        let now = match self.pin(policy, &pinned.metadata.path).await {
            Ok(now) => now,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let gone = Error::new(ErrorKind::ChangedDuringTransfer, "the file is gone");
                return Err(gone.caused_by(error));
            }
            Err(error) => return Err(error),
        };
        if pinned.is_same(&now) {
            return Ok(());
        }
        let error = "the file changed while it was viewed";
        Err(Error::new(ErrorKind::ChangedDuringTransfer, error))
    }

    /// Waits until one more view may run.
    async fn acquire_view_permit(&self) -> Result<tokio::sync::OwnedSemaphorePermit, Error> {
        let gate = Arc::clone(&self.views);
        let busy = || Error::new(ErrorKind::RateLimited, "too many views of this sandbox");
        match timeout(VIEW_PERMIT_TIMEOUT, gate.acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(busy()),
        }
    }
}

/// A range that is being sent to a viewer.
struct RangeView {
    engine: Arc<Engine>,
    policy: Policy,
    pinned: PinnedPath,
    queue: Arc<Queue>,
    /// The task that reads; dropping it closes the stream of the sandbox.
    filling: JoinSet<()>,
    /// Bytes before the range that are still to be dropped.
    skip: u64,
    /// Bytes of the range that have not arrived yet.
    left: u64,
    /// The last received bytes: they are passed on when more arrive, or when the file has proved to be unchanged.
    held: Option<Bytes>,
}

impl RangeView {
    async fn next(mut self) -> Result<Option<(Bytes, Option<Self>)>, Error> {
        while self.left > 0 {
            let Some(mut chunk) = self.queue.pop().await? else {
                let error = "the file ended before its size";
                return Err(Error::new(ErrorKind::Truncated, error));
            };
            let skipped = self.skip.min(chunk.len() as u64);
            self.skip -= skipped;
            chunk = chunk.slice(usize::try_from(skipped).unwrap_or(chunk.len())..);
            let wanted = usize::try_from(self.left).unwrap_or(usize::MAX);
            chunk.truncate(wanted.min(chunk.len()));
            if chunk.is_empty() {
                continue;
            }
            self.left -= chunk.len() as u64;
            if let Some(ready) = self.held.replace(chunk) {
                return Ok(Some((ready, Some(self))));
            }
        }
        // The tasks are ended before the last check, so that the sandbox is free and the check covers every read.
        self.filling.abort_all();
        self.engine
            .check_still_pinned(&self.policy, &self.pinned)
            .await?;
        Ok(self.held.take().map(|last| (last, None)))
    }
}
