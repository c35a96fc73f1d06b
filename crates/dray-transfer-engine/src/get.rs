//! Copies of files out of a sandbox (sandbox-transfer 1.4, 12).

mod fetch;
mod proof;

use std::time::Duration;

use dray_sandbox::backend::Follow;
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::{FileKind, Fingerprint, Integrity, Metadata, Transport};
use dray_sandbox::path::SandboxPath;
use dray_types::whole_millis;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::copy::CopiedBytes;
use super::engine::Engine;
use super::options::GetOptions;
use super::peer::{Progress, Sink};
use super::schedule::{Schedule, TransferError};
use super::witness::IntegrityBaseline;
use super::{GetResult, TransferFailure, prove};
use crate::policy::{Finding, TransferDirection, Verdict};
use crate::receipt::Receipt;

/// Most bytes of a file for which a transfer does not check the remaining lifetime of the sandbox.
const MAX_SHORT_FILE_BYTES: u64 = 8 << 20;
/// Bytes per second that a transfer usually reaches; decides how much lifetime of the sandbox is reserved.
const LIKELY_BYTES_PER_SECOND: u64 = 8 << 20;
/// Bytes per second below which a transfer fails (sandbox-transfer 1.6).
const MIN_BYTES_PER_SECOND: u64 = 256 << 10;

impl Engine {
    /// Copies a regular file into a sink, with proof. The policy is checked before and after the sandbox resolved the
    /// path, and size and kind before the file is opened. Every digest that the sandbox computes must equal that of the
    /// received bytes; [`Receipt::integrity`] says how many there were. The copy is retried, resumed and moved to
    /// another transport as sandbox-transfer 1.3 says.
    ///
    /// # Errors
    ///
    /// [`TransferFailure`] with the kind of the last failure; the sink was aborted or, where it can resume,
    /// interrupted. A dropped future leaves the sink as it is; cancelling does not.
    pub async fn get(
        &self,
        path: &SandboxPath,
        options: &GetOptions<'_>,
        sink: &mut dyn Sink,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<GetResult, TransferFailure> {
        let mut receipt = Receipt::default();
        let started = Instant::now();
        let outcome = {
            let mut operation = GetOperation {
                engine: self,
                path,
                options,
                sink,
                progress,
                receipt: &mut receipt,
                schedule: Schedule::new(self, TransferDirection::Outbound),
                partial: None,
                may_continue: true,
            };
            // The future ends before the sink is asked to clean up: both need the sink.
            let run = Box::pin(operation.run());
            cancel.run_until_cancelled(run).await
        };
        receipt.milliseconds = milliseconds(started);
        let (error, cancelled) = match outcome {
            Some(Ok(done)) => return Ok(done.into_result(receipt)),
            Some(Err(error)) => (error, false),
            None => (cancelled(), true),
        };
        let ended = async {
            if cancelled || is_continuable(error.kind()) {
                return sink.interrupt().await;
            }
            sink.abort().await;
            false
        };
        let kept = timeout(self.options.response_timeout, ended).await;
        Err(TransferFailure {
            error,
            cancelled,
            left: Vec::new(),
            kept: kept.unwrap_or(false),
            receipt,
        })
    }

    /// The longest time for an operation that reads or writes this many bytes.
    pub(super) fn total_timeout(size: u64) -> Duration {
        Duration::from_mins(1) + Duration::from_secs(size / MIN_BYTES_PER_SECOND)
    }

    /// Makes sure that the sandbox exists long enough to move this many bytes. Fails only if it will end
    /// earlier.
    pub(super) async fn reserve_lifetime(&self, size: u64) -> Result<(), Error> {
        if size < MAX_SHORT_FILE_BYTES {
            return Ok(());
        }
        let needed = Duration::from_mins(1) + Duration::from_secs(size / LIKELY_BYTES_PER_SECOND);
        match self
            .with_response_timeout(self.sandbox.ensure_lifetime(needed))
            .await
        {
            Err(error) if error.kind() == ErrorKind::SandboxGone => Err(error),
            Err(error) => {
                // The lifetime of the sandbox is unknown; the transfer may still succeed.
                tracing::warn!(%error, "could not extend the lifetime of the sandbox");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Makes sure that the sandbox exists long enough to move at most this many bytes, as far as it can: a smaller
    /// transfer may succeed in the time that is left.
    pub(super) async fn extend_lifetime(&self, max_size: u64) {
        if let Err(error) = self.reserve_lifetime(max_size).await {
            tracing::warn!(%error, "the sandbox may end before the transfer does");
        }
    }

    /// Digest in the sandbox; `None` where no program there can compute one now.
    pub(super) async fn fingerprint(
        &self,
        path: &SandboxPath,
        size: u64,
    ) -> Result<Option<Fingerprint>, Error> {
        let digest = timeout(Self::total_timeout(size), self.sandbox.fingerprint(path)).await;
        match digest {
            Ok(Ok(fingerprint)) => Ok(Some(fingerprint)),
            Ok(Err(error)) if cannot_run(error.kind()) => Ok(None),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(Error::new(ErrorKind::Timeout, "no digest in time")),
        }
    }
}

/// Whether a failure means that no program of the sandbox can be run now.
pub(super) const fn cannot_run(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ToolMissing | ErrorKind::SandboxStopped | ErrorKind::SandboxPaused
    )
}

/// Whether the bytes that arrived before this failure can be kept.
pub(super) const fn is_interruption(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Truncated | ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::RateLimited
    )
}

/// Whether a later transfer may continue with what this one moved before it failed.
pub(super) const fn is_continuable(kind: ErrorKind) -> bool {
    is_interruption(kind) || matches!(kind, ErrorKind::SandboxStopped | ErrorKind::SandboxPaused)
}

pub(super) fn cancelled() -> Error {
    Error::new(ErrorKind::Unavailable, "cancelled by the caller")
}

pub(super) fn milliseconds(started: Instant) -> u64 {
    whole_millis(started.elapsed())
}

/// State of one get.
struct GetOperation<'a> {
    engine: &'a Engine,
    path: &'a SandboxPath,
    options: &'a GetOptions<'a>,
    sink: &'a mut dyn Sink,
    progress: &'a dyn Progress,
    receipt: &'a mut Receipt,
    schedule: Schedule<'a>,
    partial: Option<UnprovenCopy>,
    /// Whether the sink may still be asked for the part of an earlier transfer.
    may_continue: bool,
}

/// A copy that is not complete or not proved yet.
struct UnprovenCopy {
    file: Metadata,
    before: IntegrityBaseline,
    copied: CopiedBytes,
    /// Whether an earlier transfer brought the first bytes.
    continued: bool,
    /// Whether some of the bytes arrived as text, so that only a digest proves them.
    text: bool,
}

/// A copy that is complete and proved.
struct ProvenCopy {
    partial: UnprovenCopy,
    integrity: Integrity,
    warning: Option<Finding>,
}

impl ProvenCopy {
    fn into_result(self, mut receipt: Receipt) -> GetResult {
        let sha256 = self.partial.copied.sha256();
        receipt.sha256 = Some(sha256);
        receipt.integrity = Some(self.integrity);
        GetResult {
            size: self.partial.copied.bytes,
            metadata: self.partial.file,
            sha256,
            warning: self.warning,
            receipt,
        }
    }
}

impl GetOperation<'_> {
    async fn run(&mut self) -> Result<ProvenCopy, Error> {
        self.options
            .policy
            .check(self.path, TransferDirection::Outbound)?;
        // The permit is held until the return: retries and their pauses count as one transfer of the limit.
        let _permit = self.engine.acquire_permit().await?;
        loop {
            match self.attempt().await {
                Ok(done) => return Ok(done),
                Err(failure) => self.schedule.after(failure, self.receipt).await?,
            }
        }
    }

    async fn attempt(&mut self) -> Result<ProvenCopy, TransferError> {
        let file = self.stat_source().await?;
        let kept = self.resume_kept(&file).await?;
        let transport = match &kept {
            Some((transport, _)) => *transport,
            None => self.transport(&file)?,
        };
        self.receipt.transport = Some(transport);
        let partial = self.begin(file, transport, kept.map(|(_, body)| body));
        let partial = partial.await?;
        let partial = self.fetch(partial, transport).await?;
        let (partial, integrity) = self.prove(partial).await?;
        // Without a digest nothing proves that the bytes of two transfers belong to one content.
        if partial.continued && integrity == Integrity::SizeMtime {
            let error = "the sandbox cannot verify the bytes of an earlier transfer";
            return Err(TransferError::transport(Error::new(
                ErrorKind::Corrupted,
                error,
            )));
        }
        self.publish(partial, integrity).await
    }

    /// Reads the metadata of the file and checks that the file may be read. The file is opened only afterwards.
    async fn stat_source(&self) -> Result<Metadata, TransferError> {
        let sandbox = &self.engine.sandbox;
        let file = self
            .engine
            .with_response_timeout(sandbox.stat(self.path, Follow::Yes))
            .await?;
        self.options
            .policy
            .check(&file.real_path, TransferDirection::Outbound)?;
        match file.kind {
            FileKind::File => {}
            FileKind::Directory => {
                return Err(Error::new(ErrorKind::IsDirectory, "the path is a directory").into());
            }
            kind => return Err(Error::new(ErrorKind::NotRegular, kind.as_str()).into()),
        }
        // The size is checked before a byte moves; bytes beyond the announced size end the copy later.
        if file.size > self.options.max_bytes {
            return Err(Error::too_large(file.size, self.options.max_bytes).into());
        }
        Ok(file)
    }

    /// Continues the copy of an earlier attempt or transfer, if the file is still the same; otherwise begins
    /// from the start.
    async fn begin(
        &mut self,
        file: Metadata,
        transport: Transport,
        kept: Option<Body>,
    ) -> Result<UnprovenCopy, TransferError> {
        if let Some(mut partial) = self.partial.take()
            && self.engine.sandbox.resumes(transport)
            && partial.copied.settled
            && partial.copied.bytes > 0
            && prove::same(&partial.file, &file)
        {
            self.schedule.record_progress(partial.copied.bytes);
            self.receipt.resumed = true;
            if !self.engine.times_suffice(file.size, transport) {
                partial.before.require_digest();
            }
            partial.text |= transport.is_text();
            partial.file = file;
            return Ok(partial);
        }
        let continued = kept.is_some();
        self.receipt.resumed = continued;
        let engine = self.engine;
        engine.reserve_lifetime(file.size).await?;
        let before = engine.take_baseline(&file, transport, continued).await?;
        let mut copied = CopiedBytes::new(file.size);
        match kept {
            None => {
                self.sink.begin(&file).await.map_err(TransferError::host)?;
                copied.take_digest_of(&*self.sink);
            }
            Some(mut body) => {
                // The digest of the sink includes these bytes already.
                copied.take_digest_of(&*self.sink);
                // The bytes are read back from the disk: the counts and the scan for secrets must cover these bytes
                // too.
                while let Some(chunk) = body.next().await {
                    copied.update(&chunk.map_err(TransferError::host)?);
                }
                self.schedule.record_progress(copied.bytes);
            }
        }
        Ok(UnprovenCopy {
            file,
            before,
            copied,
            continued,
            text: transport.is_text(),
        })
    }

    /// Applies the last rules of policy, which need the content, and completes the sink.
    async fn publish(
        &mut self,
        mut partial: UnprovenCopy,
        integrity: Integrity,
    ) -> Result<ProvenCopy, TransferError> {
        let UnprovenCopy { file, copied, .. } = &mut partial;
        let policy = self.options.policy;
        // Both names are judged, because the link or its target may be named like a key.
        for path in [self.path, &file.real_path] {
            policy.check_key_file(path, &copied.head, copied.has_private_key())?;
        }
        // The content is judged after the proof, so that a finding is about the file and not about damaged bytes.
        let warning = match policy.judge(&file.real_path, copied.finding()) {
            Verdict::Pass => None,
            Verdict::Warn(finding) => Some(finding),
            Verdict::Block(finding) => return Err(finding.refusal(&file.real_path).into()),
        };
        let finished = self.sink.finish(copied.sha256(), copied.bytes).await;
        finished.map_err(TransferError::host)?;
        if let Some(finding) = warning {
            finding.warn(&file.real_path);
        }
        Ok(ProvenCopy {
            partial,
            integrity,
            warning,
        })
    }
}

/// Whether the file is like those of `/proc`, which report a size of zero and have content.
fn is_pseudo_file(file: &Metadata, failure: &TransferError) -> bool {
    file.size == 0 && failure.error.kind() == ErrorKind::ChangedDuringTransfer
}
