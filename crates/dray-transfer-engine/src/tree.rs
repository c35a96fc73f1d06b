//! Transfers of whole directories out of a sandbox and into one (sandbox-transfer 13).

mod file;
mod put;
mod screen;

use std::sync::Arc;
use std::time::Duration;

use dray_types::Sha256Digest;
use futures_util::stream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

pub use put::{PutTree, PutTreeOptions};

use super::TransferFailure;
use super::copy::{CopiedBytes, Limits, copy, fill};
use super::engine::Engine;
use super::get::{cancelled, milliseconds};
use super::peer::{Progress, Sink};
use super::queue::{Queue, Spool};
use super::schedule::{Schedule, Stage, TransferError};
use crate::policy::{Finding, Policy, TransferDirection};
use crate::receipt::Receipt;
use dray_sandbox::backend::Follow;
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::{FileKind, Integrity, Metadata};
use dray_sandbox::path::SandboxPath;
use dray_sandbox_tree::{
    self as tree, Filter, Members, Owner, Reader, SkipReason, Walk, WalkTransport,
};
use screen::{ScreenTally, ScreenedMembers};

/// Options of a get of a directory.
#[derive(Clone, Copy, Debug)]
pub struct GetTreeOptions<'a> {
    /// Paths that may be read. Files that it refuses are left out and reported.
    pub policy: &'a Policy,
    /// Largest number, size and depth of what is read.
    pub limits: tree::Limits,
    /// Format of the archive that the sink receives.
    pub format: TreeFormat,
}

/// The format of a directory as one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TreeFormat {
    /// A ZIP, which people open everywhere.
    #[default]
    Zip,
    /// A tar without compression.
    Tar,
}

/// A directory that came out of a sandbox as one file.
#[derive(Clone, Debug)]
pub struct GotTree {
    /// Metadata of the directory when it was read.
    pub metadata: Metadata,
    /// Size of the archive in bytes.
    pub size: u64,
    /// Digest of the archive.
    pub sha256: Sha256Digest,
    /// Number of files in the archive.
    pub files: u64,
    /// Entries that were left out, with their reasons.
    pub skipped: tree::Report,
    /// The first secret that the content of a file suggests, if policy lets the file pass with a warning.
    pub warning: Option<Finding>,
    /// How the transfer went. Every file had its announced size; nothing more is proved.
    pub receipt: Receipt,
}

impl Engine {
    /// Copies a directory into a sink as one archive: from a tar that the sandbox makes, or file by file if the sandbox
    /// makes none. Links, special files, what policy refuses and what the sandbox's user may not read are left out and
    /// reported. After a failure the copy starts again.
    ///
    /// # Errors
    ///
    /// [`TransferFailure`] with the kind of the last failure; then the sink was aborted.
    pub async fn get_tree(
        &self,
        path: &SandboxPath,
        options: &GetTreeOptions<'_>,
        sink: &mut dyn Sink,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<GotTree, TransferFailure> {
        let started = Instant::now();
        let mut operation = GetOperation {
            engine: self,
            path,
            options,
            sink,
            progress,
            receipt: Receipt::default(),
            walk: false,
            skipped: None,
        };
        let outcome = {
            let run = Box::pin(operation.run());
            cancel.run_until_cancelled(run).await
        };
        operation.receipt.milliseconds = milliseconds(started);
        let (error, cancelled) = match outcome {
            Some(Ok(mut got)) => {
                got.receipt = operation.receipt;
                return Ok(got);
            }
            Some(Err(error)) => (error, false),
            None => (cancelled(), true),
        };
        // The result is the failure above; a sink that cannot clean up in time reports that itself.
        let _ = timeout(self.options.response_timeout, operation.sink.abort()).await;
        Err(TransferFailure {
            error,
            cancelled,
            left: Vec::new(),
            kept: false,
            receipt: operation.receipt,
        })
    }
}

/// State of one get of a directory.
struct GetOperation<'a> {
    engine: &'a Engine,
    path: &'a SandboxPath,
    options: &'a GetTreeOptions<'a>,
    sink: &'a mut dyn Sink,
    progress: &'a dyn Progress,
    receipt: Receipt,
    /// Whether the directory is walked, because the sandbox makes no tar of it that can be read.
    walk: bool,
    /// Entries that the last attempt left out.
    skipped: Option<tree::Report>,
}

impl GetOperation<'_> {
    async fn run(&mut self) -> Result<GotTree, Error> {
        self.options
            .policy
            .check(self.path, TransferDirection::Outbound)?;
        let _permit = self.engine.acquire_permit().await?;
        let mut schedule = Schedule::new(self.engine, TransferDirection::Outbound);
        loop {
            let mut failure = match self.attempt().await {
                Ok(got) => return Ok(got),
                Err(failure) => failure,
            };
            if failure.stage != Stage::Host {
                // In a tar, the content of a file that is too large has to be read, including the zeros of a sparse
                // file; a walk skips the file.
                let oversized =
                    failure.error.kind() == ErrorKind::TooLarge && self.has_skipped_oversized();
                if !self.walk && (oversized || needs_walk(failure.error.kind())) {
                    self.walk = true;
                    continue;
                }
                // The failure concerns members of the directory, so no transport counts as failed.
                failure.stage = Stage::Control;
            }
            match schedule.after(failure, &mut self.receipt).await {
                // A walk reads a file that keeps growing up to the size at which it begins.
                Err(error) if !self.walk && error.kind() == ErrorKind::ChangedDuringTransfer => {
                    self.walk = true;
                }
                due => due?,
            }
        }
    }

    async fn attempt(&mut self) -> Result<GotTree, TransferError> {
        let engine = self.engine;
        let directory = engine
            .stat(self.options.policy, self.path, Follow::Yes)
            .await?;
        if directory.kind != FileKind::Directory {
            return Err(Error::new(ErrorKind::NotDirectory, "only a directory is a tree").into());
        }
        let total = Engine::total_timeout(self.options.limits.total);
        // The size of the directory is not known, only its limit.
        engine.extend_lifetime(self.options.limits.total).await;
        self.receipt.attempts += 1;
        let tally = ScreenTally::default();
        let (members, walk_transport) = self.members(&directory.real_path).await?;
        let members =
            ScreenedMembers::new(members, self.screen(&directory.real_path), tally.clone());
        let skipped = members.report();
        self.skipped = Some(skipped.clone());
        let body = match self.options.format {
            // The archive is streamed member by member; the whole archive is never on the disk.
            TreeFormat::Zip => tree::zip(members),
            TreeFormat::Tar => tree::tar(members, Owner::default()),
        };
        self.sink
            .begin(&directory)
            .await
            .map_err(TransferError::host)?;
        let mut copied = CopiedBytes::new(u64::MAX);
        let limits = Limits {
            size: None,
            // Members that are left out take time without sending a byte; the streams below have their own idle
            // timeouts.
            idle: total,
            deadline: Instant::now() + total,
            spool: None,
        };
        let outcome = copy(body, &mut copied, self.sink, limits, self.progress).await;
        self.receipt.bytes = copied.bytes;
        if let Some(transport) = walk_transport {
            self.receipt.transport = transport.get();
        }
        outcome?;
        let (size, sha256) = (copied.bytes, copied.sha256());
        self.sink
            .finish(sha256, size)
            .await
            .map_err(TransferError::host)?;
        // The digests of members are not requested: only their sizes were compared.
        self.receipt.sha256 = Some(sha256);
        self.receipt.integrity = Some(Integrity::Sizes);
        let (files, warning) = tally.read();
        Ok(GotTree {
            metadata: directory,
            size,
            sha256,
            files,
            skipped,
            warning,
            receipt: Receipt::default(),
        })
    }

    /// Whether the last attempt met a file above the size limit for one file.
    fn has_skipped_oversized(&self) -> bool {
        let skipped = self.skipped.iter().flat_map(tree::Report::skipped);
        skipped
            .into_iter()
            .any(|skipped| skipped.reason == SkipReason::TooLarge)
    }

    /// Opens the members of the directory, from a tar or by walking. The transport of a walk is known at its end.
    async fn members(
        &mut self,
        directory: &SandboxPath,
    ) -> Result<(Box<dyn Members>, Option<WalkTransport>), TransferError> {
        let engine = self.engine;
        let limits = self.options.limits;
        let filter = self.screen(directory).into_filter();
        self.receipt.transport = None;
        if !self.walk {
            match engine
                .with_response_timeout(engine.sandbox.read_tree(directory))
                .await
            {
                Ok((tar, transport)) => {
                    self.receipt.transport = Some(transport);
                    let tar = with_idle_timeout(tar, engine, directory);
                    let members = Reader::new(tar, limits).filtered(filter);
                    return Ok((Box::new(members), None));
                }
                Err(error) if needs_walk(error.kind()) => self.walk = true,
                Err(error) => return Err(error.into()),
            }
        }
        let sandbox = Arc::clone(&engine.sandbox);
        let walk = Walk::open(sandbox, directory.clone(), limits);
        let walk = engine.with_response_timeout(walk).await?;
        let walk = walk.with_response_timeout(engine.options.response_timeout);
        let transport = walk.transport();
        Ok((Box::new(walk.filtered(filter)), Some(transport)))
    }

    fn screen(&self, directory: &SandboxPath) -> MemberScreen {
        MemberScreen {
            policy: self.options.policy.clone(),
            directory: directory.clone(),
            idle: self.engine.options.idle,
        }
    }
}

/// Policy applied to the members of a directory.
#[derive(Clone, Debug)]
struct MemberScreen {
    policy: Policy,
    directory: SandboxPath,
    idle: Duration,
}

impl MemberScreen {
    /// Path of a member in the sandbox.
    fn path(&self, name: &[u8]) -> Result<SandboxPath, Error> {
        SandboxPath::new([self.directory.as_bytes(), b"/", name].concat())
    }

    fn into_filter(self) -> Filter {
        Box::new(move |name| {
            let path = self.path(name);
            path.is_ok_and(|path| {
                self.policy
                    .check(&path, TransferDirection::Outbound)
                    .is_ok()
            })
        })
    }
}

/// Whether the failure means that the directory must be walked instead. A `tar` fails as a whole for one entry that it
/// may not read; a walk leaves out the entry.
const fn needs_walk(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ToolMissing | ErrorKind::Protocol | ErrorKind::PermissionDenied
    )
}

/// Passes the bytes on with an idle timeout; reads them at full speed where an open stream blocks the sandbox.
fn with_idle_timeout(body: Body, engine: &Engine, directory: &SandboxPath) -> Body {
    let sandbox = &engine.sandbox;
    let drains = |transport| sandbox.must_drain(transport);
    let spool = sandbox
        .transports(directory)
        .into_iter()
        .any(drains)
        .then(|| Spool::from(&engine.options));
    let queue = Arc::new(Queue::new(spool));
    let idle = engine.options.idle;
    let mut filling = JoinSet::new();
    filling.spawn({
        let queue = Arc::clone(&queue);
        async move { fill(body, &queue, None, idle).await }
    });
    // The drop of the set aborts the task, so it ends with the stream that is read from it.
    let state = Some((queue, filling));
    Body::new(stream::try_unfold(state, |state| async move {
        let Some((queue, filling)) = state else {
            return Ok(None);
        };
        let chunk = queue.pop().await?;
        Ok(chunk.map(|chunk| (chunk, Some((queue, filling)))))
    }))
}
