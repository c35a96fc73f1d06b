//! Copies of several files: each is verified separately, and published only when it is complete.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use dray_proto::export::Exported;
use dray_proto::v1;
use dray_sandbox_transfer::Config;
use dray_sandbox_transfer::direct::{DirectSandbox, PutFile};
use dray_sandbox_transfer::files::{FileSink, Progress};
use dray_types::{Claim, Fault, FaultCode};
use futures_util::{StreamExt as _, stream};
use indicatif::ProgressBar;
use tokio_util::sync::CancellationToken;

use super::direct::{self, run_until};
use super::end::{CopyEndpoint, check_directory, local_path};
use super::operands::{CopyOperand, with_path_advice};
use super::plan::{CopyDestination, CopyJob, CopyPlan, is_about_one_file, join_path};
use super::report::{CopyReport, FileReport, interrupted};
use super::{call_service, explain_failure, sandbox_ref};
use crate::cli::{GlobalOptions, SandboxCp, SandboxPut, TransferOptions};
use crate::commands::fetch::replace_with_claim;
use crate::commands::upload;
use crate::context::SystemConnection;
use crate::outcome::CommandFailure;
use crate::progress;

/// Most files that are copied at the same time; sandboxes have their own limits.
const MAX_PARALLEL: usize = 4;

/// How the sandboxes of a command are reached.
pub(super) enum SandboxAccess<'a> {
    /// This process opens them, with this configuration.
    Direct(&'a Config),
    /// A running system opens them, and content passes through its store.
    Served(&'a SystemConnection),
}

/// A copy of all operands, with the data that its files share.
struct SandboxCopy<'a> {
    global: &'a GlobalOptions,
    source: CopyEndpoint<'a>,
    target: CopyEndpoint<'a>,
    collision: &'a str,
    /// Maps the permission bits of a source file to those of the file in a sandbox.
    mode: fn(u32) -> u32,
    resume: bool,
    time: Duration,
    bar: ProgressBar,
    moved: AtomicU64,
    report: Mutex<CopyReport>,
    stop: AtomicBool,
    cancel: CancellationToken,
}

/// Progress of one file within the bar of all files.
struct JobProgress<'a> {
    bar: &'a ProgressBar,
    all: &'a AtomicU64,
    own: AtomicU64,
}

impl Progress for JobProgress<'_> {
    fn moved(&self, done: u64, _of: u64) {
        let before = self.own.swap(done, Ordering::Relaxed);
        // A copy that starts over reports fewer bytes: the difference wraps, and the sum stays right.
        self.all
            .fetch_add(done.wrapping_sub(before), Ordering::Relaxed);
        self.bar.set_position(self.all.load(Ordering::Relaxed));
    }
}

/// Runs `put` for several files or for directories.
pub(super) async fn put_many(
    global: &GlobalOptions,
    reach: &SandboxAccess<'_>,
    put: &SandboxPut,
) -> Result<(), CommandFailure> {
    let operands = put.parse()?;
    let target = open_endpoint(global, reach, operands.sandbox).await;
    let target = target.map_err(|failure| explain_failure(failure, operands.sandbox, false))?;
    let directory = super::path_bytes(operands.directory);
    let named: Vec<_> = operands
        .files
        .iter()
        .map(|file| super::path_bytes(file))
        .collect();
    let copy = SandboxCopy::new(
        global,
        (CopyEndpoint::Local, target),
        &put.collision,
        put.transfer,
        |mode| 0o644 | (mode & 0o111),
    );
    copy.run(&named, CopyDestination::Into(&directory)).await
}

/// Runs `cp` between this machine and a sandbox, or between two sandboxes.
pub(super) async fn copy_operands(
    global: &GlobalOptions,
    reach: &SandboxAccess<'_>,
    cp: &SandboxCp,
) -> Result<(), CommandFailure> {
    let (from, to) = cp.parse()?;
    let first = from.first().and_then(|from| from.sandbox.as_deref());
    if cp.transfer.resume && first.is_some() && to.sandbox.is_some() {
        let text = "--resume is for copies from or to this machine; between sandboxes, the same command again passes \
                    over the files that are there already";
        return Err(CommandFailure::Usage(text.to_owned()));
    }
    let source = open_operand(global, reach, first).await?;
    let target = open_operand(global, reach, to.sandbox.as_deref()).await?;
    let is_directory = from.len() > 1;
    let named: Vec<_> = from
        .iter()
        .map(|operand: &CopyOperand| operand.path.clone())
        .collect();
    let destination = if is_directory {
        check_directory(&target, &to.path).await?;
        CopyDestination::Into(&to.path)
    } else {
        CopyDestination::To(&to.path)
    };
    let ends = (source, target);
    let copy = SandboxCopy::new(global, ends, &cp.collision, cp.transfer, |mode| {
        // The bits of the source, but always writable for the owner, or the file could not be replaced later.
        mode | 0o600
    });
    copy.run(&named, destination).await
}

async fn open_operand<'a>(
    global: &GlobalOptions,
    reach: &SandboxAccess<'a>,
    sandbox: Option<&'a str>,
) -> Result<CopyEndpoint<'a>, CommandFailure> {
    let Some(sandbox) = sandbox else {
        return Ok(CopyEndpoint::Local);
    };
    let opened = open_endpoint(global, reach, sandbox).await;
    opened.map_err(|failure| with_path_advice(explain_failure(failure, sandbox, false), sandbox))
}

async fn open_endpoint<'a>(
    global: &GlobalOptions,
    reach: &SandboxAccess<'a>,
    sandbox: &'a str,
) -> Result<CopyEndpoint<'a>, CommandFailure> {
    Ok(match reach {
        SandboxAccess::Served(system) => CopyEndpoint::Served(system, sandbox),
        SandboxAccess::Direct(config) => {
            let opened = direct::open_sandbox(global, (*config).clone(), sandbox).await?;
            CopyEndpoint::Direct(Box::new(opened))
        }
    })
}

impl<'a> SandboxCopy<'a> {
    fn new(
        global: &'a GlobalOptions,
        (source, target): (CopyEndpoint<'a>, CopyEndpoint<'a>),
        collision: &'a str,
        options: TransferOptions,
        mode: fn(u32) -> u32,
    ) -> Self {
        Self {
            global,
            source,
            target,
            collision,
            mode,
            resume: options.resume,
            time: Duration::from_secs(options.timeout),
            bar: progress::byte_progress_bar(Some(0), global.json),
            moved: AtomicU64::new(0),
            report: Mutex::default(),
            stop: AtomicBool::new(false),
            cancel: CancellationToken::new(),
        }
    }

    async fn run(
        self,
        named: &[Vec<u8>],
        destination: CopyDestination<'_>,
    ) -> Result<(), CommandFailure> {
        // The report is stored outside of the future, so that after a timeout it still lists the copied files.
        let outcome = run_until(self.time, &self.cancel, self.copy_all(named, destination)).await;
        self.bar.finish_and_clear();
        let report = self
            .report
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        report.finish(self.global, outcome.err())
    }

    fn note(&self, change: impl FnOnce(&mut CopyReport)) {
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        self.bar.suspend(|| change(&mut report));
    }

    async fn copy_all(
        &self,
        named: &[Vec<u8>],
        destination: CopyDestination<'_>,
    ) -> Result<(), CommandFailure> {
        let mut plan = CopyPlan::default();
        for from in named {
            let added = plan
                .add(&self.source, from, &self.target, destination)
                .await;
            added.map_err(|failure| self.explained(failure))?;
        }
        let CopyPlan {
            directories,
            jobs,
            skipped,
            failed,
        } = {
            self.bar.set_length(plan.bytes());
            plan
        };
        self.note(|report| {
            report.skipped(self.global, skipped);
            for (from, failure) in failed {
                report.failed(self.global, from, failure);
            }
        });
        self.make_directories(&directories).await?;
        let copies = stream::iter(&jobs).map(|job| self.copy_one(job));
        copies.buffer_unordered(MAX_PARALLEL).collect::<()>().await;
        Ok(())
    }

    async fn make_directories(&self, directories: &[Vec<u8>]) -> Result<(), CommandFailure> {
        let result = self.target.make_directories(directories).await;
        result.map_err(|failure| self.explained(failure))?;
        self.note(|report| report.made_directories(directories.len()));
        Ok(())
    }

    async fn copy_one(&self, job: &CopyJob) {
        if self.stop.load(Ordering::Relaxed) || self.cancel.is_cancelled() {
            self.note(|report| report.not_tried(job.from.clone()));
            return;
        }
        let progress = JobProgress {
            bar: &self.bar,
            all: &self.moved,
            own: AtomicU64::new(0),
        };
        match self.copy_file(job, &progress).await {
            Ok(file) => self.note(|report| report.arrived(self.global, file)),
            Err(failure) => {
                if !is_about_one_file(&failure) {
                    self.stop.store(true, Ordering::Relaxed);
                }
                // After a timeout, the file itself is not the cause of the failure.
                let failure = if self.cancel.is_cancelled() {
                    interrupted(&failure)
                } else {
                    self.explained(failure)
                };
                self.note(|report| report.failed(self.global, job.from.clone(), failure));
            }
        }
    }

    /// Rewrites a failure with the name of the sandbox, where only one is involved.
    fn explained(&self, failure: CommandFailure) -> CommandFailure {
        match (&self.source, &self.target) {
            (CopyEndpoint::Local, CopyEndpoint::Served(_, sandbox))
            | (CopyEndpoint::Served(_, sandbox), CopyEndpoint::Local) => {
                explain_failure(failure, sandbox, false)
            }
            _ => failure,
        }
    }

    async fn copy_file(
        &self,
        job: &CopyJob,
        progress: &dyn Progress,
    ) -> Result<FileReport, CommandFailure> {
        match (&self.source, &self.target) {
            (CopyEndpoint::Local, CopyEndpoint::Direct(sandbox)) => {
                self.send(job, sandbox, progress).await
            }
            (CopyEndpoint::Direct(sandbox), CopyEndpoint::Local) => {
                self.receive(job, sandbox, progress).await
            }
            (CopyEndpoint::Direct(from), CopyEndpoint::Direct(to)) => {
                self.pass(job, from, to, progress).await
            }
            (CopyEndpoint::Local, CopyEndpoint::Served(system, to)) => {
                let file = local_path(&job.from);
                let claim = upload::upload_file(self.global, system, &file, None).await?;
                self.place(job, system, to, claim).await
            }
            (CopyEndpoint::Served(system, from), CopyEndpoint::Served(_, to)) => {
                let (claim, receipt) = self.store(job, system, from).await?;
                let placed = self.place(job, system, to, claim).await?;
                Ok(FileReport {
                    read_receipt: receipt,
                    ..placed
                })
            }
            (CopyEndpoint::Served(system, from), CopyEndpoint::Local) => {
                self.write(job, system, from).await
            }
            _ => Err(Fault::internal().into()),
        }
    }

    /// Copies from this machine into a sandbox.
    async fn send(
        &self,
        job: &CopyJob,
        sandbox: &DirectSandbox,
        progress: &dyn Progress,
    ) -> Result<FileReport, CommandFailure> {
        let (source, _, content) = direct::file_source(&local_path(&job.from)).await?;
        let put = self.put_file(job, self.resume.then_some(content.as_str()));
        let placed = sandbox.put(put, &source, progress, &self.cancel).await?;
        Ok(FileReport::placed(job.from.clone(), placed))
    }

    fn put_file<'b>(&'b self, job: &'b CopyJob, resume: Option<&'b str>) -> PutFile<'b> {
        PutFile {
            directory: &job.directory,
            name: &job.name,
            collision: self.collision,
            mode: (self.mode)(job.mode),
            resume,
        }
    }

    /// Copies from a sandbox to this machine.
    async fn receive(
        &self,
        job: &CopyJob,
        sandbox: &DirectSandbox,
        progress: &dyn Progress,
    ) -> Result<FileReport, CommandFailure> {
        let (output, renamed) = self.local_target(job)?;
        let mut sink = if self.resume {
            FileSink::resumable(&output, sandbox.origin(&job.from)?)
        } else {
            let failed = CommandFailure::local(format!("cannot write {}", output.display()));
            FileSink::create(&output).map_err(failed)?
        };
        // Between the search for a free name and the write, another program may take the name.
        if self.collision != "overwrite" {
            sink = sink.exclusive();
        }
        let copied = sandbox
            .get(&job.from, 0, &mut sink, progress, &self.cancel)
            .await;
        if let Some(reason) = sink.restarted() {
            self.bar.suspend(|| direct::note_restart(&job.from, reason));
        }
        let received = copied?;
        Ok(FileReport {
            from: job.from.clone(),
            to: super::path_bytes(&output),
            size: received.size,
            sha256: received.sha256,
            renamed,
            existed: false,
            receipt: Some(received.receipt),
            read_receipt: None,
        })
    }

    /// The file of this machine to write, and whether another name was taken for it.
    fn local_target(&self, job: &CopyJob) -> Result<(PathBuf, bool), CommandFailure> {
        let wanted = local_path(&join_path(&job.directory, &job.name));
        // Does not follow links: a link is replaced, not its target.
        let Ok(there) = std::fs::symlink_metadata(&wanted) else {
            return Ok((wanted, false));
        };
        let refused = |detail: &str, text: &str| {
            let text = format!("{}: {text}", super::path_text(&super::path_bytes(&wanted)));
            Err(Fault::new(FaultCode::InvalidArgument, text)
                .detail(detail)
                .into())
        };
        match self.collision {
            "rename" => {
                let free = super::free_name_in(&local_path(&job.directory), &job.name);
                Ok((free, true))
            }
            "fail" => refused("exists", "the name is taken"),
            _ if there.is_dir() => refused("is_directory", "a directory is not overwritten"),
            _ if !there.is_file() && !there.is_symlink() => {
                refused("not_regular", "only regular files are overwritten")
            }
            _ => Ok((wanted, false)),
        }
    }

    /// Copies from one sandbox into another. Content passes through this process and is not stored.
    async fn pass(
        &self,
        job: &CopyJob,
        from: &DirectSandbox,
        to: &DirectSandbox,
        progress: &dyn Progress,
    ) -> Result<FileReport, CommandFailure> {
        let put = self.put_file(job, None);
        let copied = from.copy_file(&job.from, job.size, to, put, progress, &self.cancel);
        let copied = copied.await?;
        Ok(FileReport {
            read_receipt: copied.read,
            ..FileReport::placed(job.from.clone(), copied.placed)
        })
    }

    /// Puts a stored file into a sandbox of a running system.
    async fn place(
        &self,
        job: &CopyJob,
        system: &SystemConnection,
        sandbox: &str,
        claim: Claim,
    ) -> Result<FileReport, CommandFailure> {
        let request = v1::PutSandboxFileRequest {
            sandbox: Some(sandbox_ref(sandbox)),
            claim: Some(claim.into()),
            directory: job.directory.clone(),
            name: job.name.clone(),
            collision: self.collision.to_owned(),
            mode: (self.mode)(job.mode),
        };
        let placed = call_service(system, self.time, &request).await?;
        Ok(FileReport::placed(job.from.clone(), placed))
    }

    /// Stores a file of a sandbox of a running system.
    async fn store(
        &self,
        job: &CopyJob,
        system: &SystemConnection,
        sandbox: &str,
    ) -> Result<(Claim, Option<v1::TransferReceipt>), CommandFailure> {
        let request = v1::GetSandboxFileRequest {
            sandbox: Some(sandbox_ref(sandbox)),
            path: job.from.clone(),
            ..v1::GetSandboxFileRequest::default()
        };
        let file = call_service(system, self.time, &request).await?;
        let exported = Exported::from_file(file)?;
        Ok((exported.claim, Some(exported.receipt)))
    }

    async fn write(
        &self,
        job: &CopyJob,
        system: &SystemConnection,
        sandbox: &str,
    ) -> Result<FileReport, CommandFailure> {
        let (output, renamed) = self.local_target(job)?;
        let (claim, receipt) = self.store(job, system, sandbox).await?;
        replace_with_claim(self.global, system, &claim, &output).await?;
        Ok(FileReport {
            from: job.from.clone(),
            to: super::path_bytes(&output),
            size: claim.artifact.size,
            sha256: claim.artifact.sha256.as_bytes().to_vec(),
            renamed,
            existed: false,
            receipt,
            read_receipt: None,
        })
    }
}
