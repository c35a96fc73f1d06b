//! Copies of files into a sandbox (sandbox-transfer 1.5, messaging-reliability 7.3).

mod claim;
mod publish;
mod temporary_files;
mod verify;

use std::future::Future;

use dray_sandbox::backend::{Follow, Write};
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::{FileKind, Fingerprint, Integrity};
use dray_sandbox::path::SandboxPath;
use dray_types::Sha256Digest;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::temporary_files::Leftovers;
use super::engine::Engine;
use super::get::{cancelled, is_continuable, is_interruption, milliseconds};
use super::options::PutOptions;
use super::peer::{Progress, Source};
use super::place::{KEPT_EPOCH, temp_path};
use super::schedule::{Schedule, TransferError};
use super::{PutResult, TransferFailure};
use crate::policy::TransferDirection;
use crate::receipt::Receipt;

/// Files of fewer bytes are written without a check of the free space first.
const SMALL_FILE_BYTES: u64 = 32 << 20;

impl Engine {
    /// Puts a file into a directory of the sandbox, with proof: the file is written under a temporary name, digested
    /// inside the sandbox, then renamed. If a file of that name with the same content exists, the put succeeds without
    /// a copy, so that a repeated request leaves one file. Where the sandbox cannot rename, the file is written under
    /// its final name and the receipt says so.
    ///
    /// # Errors
    ///
    /// [`TransferFailure`] with the kind of the last failure. The written file is removed, even after cancelling; files
    /// that could not be removed are named in [`TransferFailure::left`]. When the future is dropped, a task removes the
    /// file. A later put into the same directory removes the temporary files of killed processes.
    pub async fn put(
        &self,
        directory: &SandboxPath,
        name: &[u8],
        source: &dyn Source,
        options: &PutOptions<'_>,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<PutResult, TransferFailure> {
        let operation = PutOperation::new(self, name, source, options, progress);
        operation.run_until(directory, cancel).await
    }

    /// Puts a file with a transfer that a later one may continue. When the transfer is cancelled, interrupted or
    /// killed, the written part keeps its temporary name, and the next put with the same [`PutOptions::operation`]
    /// continues there. The operation must therefore identify the content. A digest of the whole file decides whether
    /// the parts belong together; if they do not, the file is written again from the beginning. A later put into the
    /// same directory removes parts that were not continued within a day. [`PutOptions::epoch`] is ignored.
    ///
    /// # Errors
    ///
    /// Those of [`Self::put`]; [`TransferFailure::kept`] says whether something was kept.
    pub async fn put_resumable(
        &self,
        directory: &SandboxPath,
        name: &[u8],
        source: &dyn Source,
        options: &PutOptions<'_>,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<PutResult, TransferFailure> {
        let options = PutOptions {
            epoch: KEPT_EPOCH,
            ..*options
        };
        let mut operation = PutOperation::new(self, name, source, &options, progress);
        operation.keeps_partial = true;
        operation.run_until(directory, cancel).await
    }
}

/// A file under its final name in the sandbox.
struct PlacedFile {
    path: SandboxPath,
    renamed: bool,
    existed: bool,
    integrity: Integrity,
    atomic: Option<bool>,
}

impl PlacedFile {
    fn into_put(
        self,
        size: u64,
        sha256: Sha256Digest,
        left: Vec<SandboxPath>,
        mut receipt: Receipt,
    ) -> PutResult {
        receipt.bytes = size;
        receipt.sha256 = Some(sha256);
        receipt.integrity = Some(self.integrity);
        receipt.atomic = self.atomic;
        PutResult {
            path: self.path,
            size,
            sha256,
            renamed: self.renamed,
            existed: self.existed,
            left,
            receipt,
        }
    }
}

/// State of one put.
struct PutOperation<'a> {
    engine: &'a Engine,
    name: &'a [u8],
    source: &'a dyn Source,
    options: &'a PutOptions<'a>,
    progress: &'a dyn Progress,
    receipt: Receipt,
    schedule: Schedule<'a>,
    /// Files that may exist and have to be removed unless they are published.
    leftovers: Leftovers<'a>,
    /// The digest that the sandbox computed beside the last write.
    digest: Option<Fingerprint>,
    /// The temporary file of an interrupted write, which the next write may continue.
    resume: Option<SandboxPath>,
    /// Number of the candidate name: 1 is the name itself.
    number: u32,
    /// Whether the written part stays for a later put when this one is interrupted.
    keeps_partial: bool,
    /// The temporary file that would stay.
    kept: Option<SandboxPath>,
}

impl<'a> PutOperation<'a> {
    fn new(
        engine: &'a Engine,
        name: &'a [u8],
        source: &'a dyn Source,
        options: &'a PutOptions<'a>,
        progress: &'a dyn Progress,
    ) -> Self {
        Self {
            engine,
            name,
            source,
            options,
            progress,
            receipt: Receipt::default(),
            schedule: Schedule::new(engine, TransferDirection::Inbound),
            leftovers: Leftovers::new(engine),
            digest: None,
            resume: None,
            number: 1,
            keeps_partial: false,
            kept: None,
        }
    }

    async fn run_until(
        mut self,
        directory: &SandboxPath,
        cancel: &CancellationToken,
    ) -> Result<PutResult, TransferFailure> {
        let started = Instant::now();
        let outcome = {
            let run = Box::pin(self.run(directory));
            cancel.run_until_cancelled(run).await
        };
        let continuable = match &outcome {
            Some(Ok(_)) => false,
            Some(Err(error)) => is_continuable(error.kind()),
            None => true,
        };
        // This comes before `clean`, which would remove the part that a later put continues.
        let kept = continuable && self.keep();
        let left = self.clean().await;
        let mut receipt = std::mem::take(&mut self.receipt);
        receipt.milliseconds = milliseconds(started);
        let (error, cancelled) = match outcome {
            Some(Ok((placed, sha256))) => {
                return Ok(placed.into_put(self.source.size(), sha256, left, receipt));
            }
            Some(Err(error)) => (error, false),
            None => (cancelled(), true),
        };
        Err(TransferFailure {
            error,
            cancelled,
            left,
            kept,
            receipt,
        })
    }

    async fn run(&mut self, directory: &SandboxPath) -> Result<(PlacedFile, Sha256Digest), Error> {
        let policy = self.options.policy;
        policy.check(&directory.join(self.name)?, TransferDirection::Inbound)?;
        let _permit = self.engine.acquire_permit().await?;
        let directory = self.prepare_directory(directory).await?;
        policy.check(&directory.join(self.name)?, TransferDirection::Inbound)?;
        self.forget_predecessors(&directory).await?;
        // The flag is set before the first attempt, because that attempt may continue a partial file of an earlier
        // process under the same name.
        if self.keeps_partial {
            let kept = self.temp(&directory, 1)?;
            self.resume = Some(kept.clone());
            self.kept = Some(kept);
        }
        loop {
            match self.attempt(&directory).await {
                Ok(placed) => {
                    self.sweep(&directory, &placed).await;
                    return Ok((placed, self.source.sha256().await?));
                }
                Err(failure) => self.schedule.after(failure, &mut self.receipt).await?,
            }
        }
    }

    async fn prepare_directory(&mut self, directory: &SandboxPath) -> Result<SandboxPath, Error> {
        let (engine, policy) = (self.engine, self.options.policy);
        let prepared = self
            .with_retries(|| engine.directory(policy, directory))
            .await;
        prepared.map_err(|failure| failure.error)
    }

    async fn attempt(&mut self, directory: &SandboxPath) -> Result<PlacedFile, TransferError> {
        if let Some(placed) = self.find_name(directory).await? {
            return Ok(placed);
        }
        self.check_room(directory).await?;
        let target = self.candidate(directory)?;
        if self.can_rename(&target, directory).await? {
            let written = self.write_temp(directory, &target).await?;
            let integrity = self.verify(&written).await?;
            self.publish(directory, &written, integrity).await
        } else {
            self.write_directly(&target).await
        }
    }

    /// Fails early when free space or lifetime is known to be too little.
    async fn check_room(&self, directory: &SandboxPath) -> Result<(), Error> {
        let size = self.source.size();
        if size < SMALL_FILE_BYTES || self.receipt.attempts > 0 {
            return Ok(());
        }
        let engine = self.engine;
        engine.reserve_lifetime(size).await?;
        let probe = engine.with_response_timeout(engine.sandbox.probe()).await?;
        // `free` is that of the working directory's file system; another directory may be on another file system.
        let same_directory = directory.is_beneath(&probe.working_directory);
        match probe.free.filter(|free| same_directory && *free < size) {
            Some(_) => Err(Error::new(ErrorKind::NoSpace, "too little space is free")),
            None => Ok(()),
        }
    }

    fn temp(&self, directory: &SandboxPath, attempt: u32) -> Result<SandboxPath, Error> {
        let PutOptions {
            operation, epoch, ..
        } = self.options;
        temp_path(directory, self.name, operation, *epoch, attempt)
    }

    /// Writes under a temporary name, or continues what an interrupted write left.
    async fn write_temp(
        &mut self,
        directory: &SandboxPath,
        target: &SandboxPath,
    ) -> Result<SandboxPath, TransferError> {
        let usable = self.engine.sandbox.write_transports(target);
        let transport = self.schedule.choose(usable, &mut self.receipt)?;
        self.receipt.transport = Some(transport);
        let resumed = self.resume.take();
        let (path, offset) = match resumed {
            Some(path) if self.engine.sandbox.resumes(transport) => {
                let offset = self.length(&path).await?;
                (path, offset)
            }
            _ => (self.temp(directory, self.receipt.attempts + 1)?, 0),
        };
        self.receipt.resumed = offset > 0;
        if offset > 0 {
            self.schedule.record_progress(offset);
        }
        match self.write(&path, offset).await {
            Err(failure) if failure.error.kind() == ErrorKind::Exists => {
                // An earlier process that crashed left it: the name contains the operation and the epoch of this put.
                self.discard(&path).await?;
                let error = Error::new(
                    ErrorKind::Unavailable,
                    "a temporary file of this name existed already",
                );
                Err(TransferError::transport(error.caused_by(failure.error)))
            }
            written => written.map(|()| path),
        }
    }

    /// Length of our temporary file; one that cannot be continued is removed.
    async fn length(&self, path: &SandboxPath) -> Result<u64, TransferError> {
        let engine = self.engine;
        let metadata = engine
            .with_response_timeout(engine.sandbox.stat(path, Follow::No))
            .await;
        match metadata {
            Ok(metadata)
                if metadata.kind == FileKind::File && metadata.size <= self.source.size() =>
            {
                // A write at offset 0 creates exclusively, so the empty file must go.
                if metadata.size == 0 {
                    self.discard(path).await?;
                }
                Ok(metadata.size)
            }
            Ok(_) => {
                self.discard(path).await?;
                Ok(0)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes one of our files from `offset` to its end.
    async fn write(&mut self, path: &SandboxPath, offset: u64) -> Result<(), TransferError> {
        let Some(transport) = self.receipt.transport else {
            return Ok(());
        };
        self.receipt.attempts += 1;
        self.progress
            .began(self.receipt.attempts, transport, offset);
        // The path is noted before the write: a dropped future must find the path among those to remove.
        self.leftovers.add(path);
        self.digest = None;
        let size = self.source.size();
        // All bytes were written before; only the proof is missing.
        if offset > 0 && offset == size {
            return Ok(());
        }
        let write = Write {
            transport,
            path,
            size,
            offset,
            mode: self.options.mode & 0o777,
        };
        // A digest beside the write would cover the bytes of this write alone, not those before `offset`.
        let wants_digest = offset == 0 && !self.engine.times_suffice(size, transport);
        let sending = self
            .engine
            .send(write, wants_digest, self.source, self.progress);
        let failure = match Box::pin(sending).await {
            Ok(digest) => {
                self.digest = digest;
                return Ok(());
            }
            Err(failure) => failure,
        };
        if failure.error.kind() == ErrorKind::Exists {
            // The exclusive create failed, so the file belongs to another process.
            self.leftovers.forget(path);
        } else if is_interruption(failure.error.kind()) && self.engine.sandbox.resumes(transport) {
            self.resume = Some(path.clone());
        } else {
            self.try_discard(path).await;
        }
        Err(failure)
    }

    /// Repeats a request until it succeeds or the schedule ends it.
    async fn with_retries<T, F>(&mut self, ask: impl Fn() -> F) -> Result<T, TransferError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        loop {
            match ask().await {
                Ok(response) => return Ok(response),
                Err(error) => {
                    let after = self.schedule.after(error.into(), &mut self.receipt).await;
                    after.map_err(TransferError::host)?;
                }
            }
        }
    }
}
