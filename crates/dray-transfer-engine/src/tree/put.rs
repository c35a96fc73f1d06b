//! Unpacks a tar into a directory of a sandbox.

mod links;

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use dray_sandbox::backend::Follow;
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::{FileKind, Integrity, Metadata};
use dray_sandbox::path::SandboxPath;
use dray_sandbox_tree::{
    self as tree, Filter, Kind, Member, Members, Owner, Reader, Report, SkipReason,
};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::file::SpooledMember;
use crate::engine::Engine;
use crate::get::{cancelled, milliseconds};
use crate::options::{Collision, PutOptions};
use crate::peer::{Progress, Source};
use crate::policy::{Policy, TransferDirection};
use crate::queue::Spool;
use crate::receipt::Receipt;
use crate::schedule::{Schedule, Stage, TransferError};
use crate::{PutResult, TransferFailure};

/// Options of a put of a tar.
#[derive(Clone, Copy, Debug)]
pub struct PutTreeOptions<'a> {
    /// Paths that may be written. Members that it refuses are left out and reported.
    pub policy: &'a Policy,
    /// Limits on the number, size and depth of written files.
    pub limits: tree::Limits,
    /// Like [`PutOptions::operation`].
    pub operation: &'a str,
    /// Like [`PutOptions::epoch`].
    pub epoch: u64,
}

/// A tar that was unpacked in a sandbox.
#[derive(Clone, Debug)]
pub struct PutTree {
    /// The directory, with its links resolved.
    pub path: SandboxPath,
    /// Number of files that were written.
    pub files: u64,
    /// Members that were left out, with their reasons.
    pub skipped: Report,
    /// The receipt of the transfer. Files of the same names were replaced one by one.
    pub receipt: Receipt,
}

impl Engine {
    /// Unpacks a plain tar into an existing directory. The tar is untrusted: it is decoded and written again, with
    /// regular files and directories only. Where the sandbox cannot unpack, or where a directory of the tar is a link
    /// in the sandbox, every file is put separately.
    ///
    /// # Errors
    ///
    /// [`TransferFailure`] with the kind of the last failure. Files that were unpacked before stay.
    pub async fn put_tree(
        &self,
        directory: &SandboxPath,
        tar: &dyn Source,
        options: &PutTreeOptions<'_>,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<PutTree, TransferFailure> {
        let started = Instant::now();
        let mut operation = PutOperation {
            engine: self,
            directory,
            tar,
            options,
            progress,
            cancel,
            receipt: Receipt::default(),
            schedule: Schedule::new(self, TransferDirection::Inbound),
            left: Vec::new(),
            one_by_one: false,
        };
        let outcome = {
            let run = Box::pin(operation.run());
            cancel.run_until_cancelled(run).await
        };
        operation.receipt.milliseconds = milliseconds(started);
        let (error, cancelled) = match outcome {
            Some(Ok(mut put)) => {
                put.receipt = operation.receipt;
                return Ok(put);
            }
            Some(Err(error)) => (error, false),
            None => (cancelled(), true),
        };
        Err(TransferFailure {
            error,
            cancelled,
            left: operation.left,
            kept: false,
            receipt: operation.receipt,
        })
    }
}

/// State of one put of a tar.
struct PutOperation<'a> {
    engine: &'a Engine,
    directory: &'a SandboxPath,
    tar: &'a dyn Source,
    options: &'a PutTreeOptions<'a>,
    progress: &'a dyn Progress,
    cancel: &'a CancellationToken,
    receipt: Receipt,
    schedule: Schedule<'a>,
    left: Vec<SandboxPath>,
    /// Whether every file is put separately, because the sandbox cannot unpack, or would follow a link.
    one_by_one: bool,
}

impl PutOperation<'_> {
    async fn run(&mut self) -> Result<PutTree, Error> {
        self.options
            .policy
            .check(self.directory, TransferDirection::Inbound)?;
        loop {
            let attempted = if self.one_by_one {
                self.put_files().await
            } else {
                self.unpack().await
            };
            let mut failure = match attempted {
                Ok(put) => return Ok(put),
                Err(failure) => failure,
            };
            if failure.stage != Stage::Host {
                if !self.one_by_one && failure.error.kind() == ErrorKind::ToolMissing {
                    self.one_by_one = true;
                    continue;
                }
                // The cause is a member of the directory, so no transport is given up.
                failure.stage = Stage::Control;
            }
            self.schedule.after(failure, &mut self.receipt).await?;
        }
    }

    /// The directory with its links resolved, after the checks of policy.
    async fn resolved(&self) -> Result<SandboxPath, Error> {
        let engine = self.engine;
        let stat = engine.sandbox.stat(self.directory, Follow::Yes);
        let directory = engine.with_response_timeout(stat).await?;
        self.options
            .policy
            .check(&directory.real_path, TransferDirection::Inbound)?;
        if directory.kind != FileKind::Directory {
            return Err(Error::new(
                ErrorKind::NotDirectory,
                "a tar goes into a directory",
            ));
        }
        Ok(directory.real_path)
    }

    /// The members of the tar that may be written beneath `directory`.
    async fn members(&self, directory: &SandboxPath) -> Result<Reader, TransferError> {
        let body = self.tar.open(0).await.map_err(TransferError::host)?;
        let (policy, base) = (self.options.policy.clone(), directory.clone());
        let filter: Filter = Box::new(move |name| {
            let path = below(&base, name);
            path.is_ok_and(|path| policy.check(&path, TransferDirection::Inbound).is_ok())
        });
        Ok(Reader::new(body, self.options.limits).filtered(filter))
    }

    /// Makes the sandbox unpack a tar that this host has written.
    async fn unpack(&mut self) -> Result<PutTree, TransferError> {
        let engine = self.engine;
        let permit = engine.acquire_permit().await?;
        let directory = self.resolved().await?;
        if self.has_blocked_parent(&directory).await? {
            self.one_by_one = true;
            // Each put of a file takes a permit.
            drop(permit);
            return Box::pin(self.put_files()).await;
        }
        engine.reserve_lifetime(self.tar.size()).await?;
        let probe = engine.probe().await?;
        let owner = Owner {
            uid: probe.uid,
            gid: probe.gid,
        };
        let recorded = RecordedMembers::new(self.members(&directory).await?);
        let (skipped, notes) = (recorded.report(), Arc::clone(&recorded.notes));
        self.receipt.attempts += 1;
        self.receipt.transport = None;
        let tar: Body = tree::tar(recorded, owner);
        let writing = engine.sandbox.write_tree(&directory, tar);
        // The time limit depends on the size of the tar, because the sandbox reports no progress while it unpacks.
        let written = timeout(Self::unpack_timeout(self.tar), writing).await;
        let notes = std::mem::take(&mut *notes.lock().unwrap_or_else(PoisonError::into_inner));
        // This failure is reported instead of the failure of the sandbox, which only noticed a broken stream.
        if let Some(error) = notes.failed {
            return Err(TransferError::host(error));
        }
        let timed_out = |_| Err(Error::new(ErrorKind::Timeout, "unpacking took too long"));
        let transport = written.unwrap_or_else(timed_out)?;
        self.receipt.transport = Some(transport);
        self.check_sizes(&directory, &notes.files).await?;
        // A tar without files proves nothing.
        self.receipt.integrity = (!notes.files.is_empty()).then_some(Integrity::SizeMtime);
        self.finish(directory, notes.files.len() as u64, skipped)
            .await
    }

    fn unpack_timeout(tar: &dyn Source) -> std::time::Duration {
        Engine::total_timeout(tar.size())
    }

    /// Checks that every file exists with its size, because an exit status is not proof.
    async fn check_sizes(
        &mut self,
        directory: &SandboxPath,
        files: &[(Vec<u8>, u64)],
    ) -> Result<(), TransferError> {
        for (name, size) in files {
            let path = below(directory, name)?;
            let file = self.unpacked_file(&path).await?;
            // Another process may have created a link in place of a directory.
            if file.as_ref().is_some_and(|file| file.real_path != path) {
                let error = format!("a directory of {path} became a link");
                let error = Error::new(ErrorKind::ChangedDuringTransfer, error);
                return Err(TransferError::host(error));
            }
            let is_whole =
                file.is_some_and(|file| file.kind == FileKind::File && file.size == *size);
            if !is_whole {
                let error = format!("{path} was not unpacked whole");
                return Err(Error::new(ErrorKind::Corrupted, error).into());
            }
        }
        Ok(())
    }

    /// The entry at a path, or `None` for none. A failed request is repeated without unpacking again.
    async fn unpacked_file(
        &mut self,
        path: &SandboxPath,
    ) -> Result<Option<Metadata>, TransferError> {
        let engine = self.engine;
        loop {
            let stat = engine.sandbox.stat(path, Follow::No);
            match engine.with_response_timeout(stat).await {
                Ok(file) => return Ok(Some(file)),
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                Err(error) => {
                    let after = self.schedule.after(error.into(), &mut self.receipt).await;
                    after.map_err(TransferError::host)?;
                }
            }
        }
    }

    /// Puts every file separately.
    async fn put_files(&mut self) -> Result<PutTree, TransferError> {
        let directory = self.resolved().await?;
        let mut members = self.members(&directory).await?;
        let mut files = 0;
        let mut integrity = None;
        self.receipt.transport = None;
        while let Some(member) = members.next().await.map_err(TransferError::host)? {
            let path = below(&directory, &member.name)?;
            if member.kind == Kind::Directory {
                // The engine creates it, because it checks the policy for the path of the new directory.
                match self.engine.directory(self.options.policy, &path).await {
                    Err(error) if is_refusal(error.kind()) => {
                        members.report().skip(&member.name, SkipReason::Denied);
                    }
                    made => drop(made?),
                }
                continue;
            }
            let spool = Spool::from(&self.engine.options);
            let content = SpooledMember::take(&mut members, spool)
                .await
                .map_err(TransferError::host)?;
            let put = match self.put_file(&path, &member, &content).await {
                Ok(put) => put,
                // A link leads out of the roots, or into a directory that policy refuses.
                Err(failure) if is_refusal(failure.error.kind()) => {
                    members.report().skip(&member.name, SkipReason::Denied);
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            // The weakest proof of a file is that of the directory.
            let proof = put.receipt.integrity.unwrap_or(Integrity::SizeMtime);
            integrity = Some(integrity.map_or(proof, |weakest: Integrity| weakest.min(proof)));
            files += 1;
        }
        self.receipt.integrity = integrity;
        let skipped = members.report();
        self.finish(directory, files, skipped).await
    }

    async fn put_file(
        &mut self,
        path: &SandboxPath,
        member: &Member,
        content: &SpooledMember,
    ) -> Result<PutResult, TransferError> {
        let options = PutOptions {
            policy: self.options.policy,
            collision: Collision::Overwrite,
            mode: member.mode,
            operation: self.options.operation,
            epoch: self.options.epoch,
        };
        let (engine, parent) = (self.engine, path.parent());
        let put = engine.put(
            &parent,
            path.name(),
            content,
            &options,
            self.progress,
            self.cancel,
        );
        match Box::pin(put).await {
            Ok(put) => {
                self.receipt.attempts += put.receipt.attempts;
                self.receipt.transport = self.receipt.transport.max(put.receipt.transport);
                Ok(put)
            }
            Err(failed) => {
                self.left.extend(failed.left);
                // The put has already made all attempts.
                Err(TransferError::host(failed.error))
            }
        }
    }

    async fn finish(
        &mut self,
        path: SandboxPath,
        files: u64,
        skipped: Report,
    ) -> Result<PutTree, TransferError> {
        self.receipt.bytes = self.tar.size();
        self.receipt.sha256 = Some(self.tar.sha256().await.map_err(TransferError::host)?);
        self.receipt.atomic = Some(false);
        Ok(PutTree {
            path,
            files,
            skipped,
            receipt: Receipt::default(),
        })
    }
}

/// Whether policy refuses a path.
const fn is_refusal(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::OutsideRoot | ErrorKind::DeniedPath)
}

fn below(directory: &SandboxPath, name: &[u8]) -> Result<SandboxPath, Error> {
    SandboxPath::new([directory.as_bytes(), b"/", name].concat())
}

/// Notes about the members that were passed on to the sandbox.
#[derive(Debug, Default)]
struct MemberNotes {
    files: Vec<(Vec<u8>, u64)>,
    /// The failure of the tar itself, as distinguished from one of the sandbox.
    failed: Option<Error>,
}

/// Records the files that pass through it.
struct RecordedMembers {
    inner: Reader,
    notes: Arc<Mutex<MemberNotes>>,
}

impl RecordedMembers {
    fn new(inner: Reader) -> Self {
        Self {
            inner,
            notes: Arc::default(),
        }
    }

    /// Keeps an error for this side and passes one of the same kind to the sandbox.
    fn record_error<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        result.map_err(|error| {
            let failure = Error::new(error.kind(), "the tar cannot be read");
            self.notes
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .failed = Some(error);
            failure
        })
    }
}

#[async_trait]
impl Members for RecordedMembers {
    async fn next(&mut self) -> Result<Option<Member>, Error> {
        let next = self.inner.next().await;
        let next = self.record_error(next)?;
        if let Some(member) = next.as_ref().filter(|member| member.kind == Kind::File) {
            let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
            notes.files.push((member.name.clone(), member.size));
        }
        Ok(next)
    }

    async fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        let chunk = self.inner.next_chunk().await;
        self.record_error(chunk)
    }

    fn report(&self) -> Report {
        self.inner.report()
    }
}
