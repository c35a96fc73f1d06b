//! A sandbox that a command opens for its caller alone. Bytes go straight between the sandbox and files of this host,
//! without a bus or a store between them. Each byte is read once, hashed on its way and written once. Policy, proof and
//! receipts are those of the service. It has no sessions.

mod copy;
mod listing;
mod pipe;

pub use copy::Copied;
pub use dray_sandbox::path::MAX_PATH_PARTS;
pub use listing::{ListedFile, Tree};

pub use crate::directories::directory_batches;

use std::sync::Arc;

use dray_presentation::name;
use dray_proto::v1;
use dray_transfer_engine::{
    FileSink, FileSource, GetOptions, GetTreeOptions, Progress, PutOptions, PutResult, Source,
    TransferFailure, TreeFormat,
};
use dray_types::{Clock, Fault, OperationId, TenantId};
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::error::Error;
use crate::service::OpenedSandbox;
use crate::service::trees::{archive_name, lines, tree_format};
use crate::sessions::token;
use crate::settings::TransferSettings;
use crate::wire;

/// Advice for a transfer that was interrupted and whose partial file is kept.
pub const KEPT_ADVICE: &str =
    "What was copied so far is kept; the same command with --resume continues there.";

/// A sandbox that is opened for one command.
#[derive(Debug)]
pub struct DirectSandbox {
    opened: OpenedSandbox,
    clock: Clock,
    operation: OperationId,
}

/// The result of a copy into a file of this host.
#[derive(Clone, Debug)]
pub struct Received {
    /// Size of the file or archive in bytes.
    pub size: u64,
    /// SHA-256 of the content, 32 bytes.
    pub sha256: Vec<u8>,
    /// The receipt of the transfer.
    pub receipt: v1::TransferReceipt,
    /// Entries of a directory that were left out, a line each.
    pub skipped: Vec<String>,
}

/// A file that goes into a sandbox, and its destination.
#[derive(Clone, Copy, Debug)]
pub struct PutFile<'a> {
    /// Directory in the sandbox, as the user typed it.
    pub directory: &'a [u8],
    /// Name in the directory, exactly.
    pub name: &'a [u8],
    /// Policy for a name that exists: `rename`, `fail` or `overwrite`.
    pub collision: &'a str,
    /// Mode bits of the new file.
    pub mode: u32,
    /// Identity of the content of a file that a later put can continue when this one is interrupted: ASCII letters
    /// and digits, at most 40.
    pub resume: Option<&'a str>,
}

impl DirectSandbox {
    /// Opens the incarnation that an address means now.
    ///
    /// # Errors
    ///
    /// The faults of the service: configuration, policy, and failures of the sandbox.
    pub async fn open(
        mut config: Config,
        clock: Clock,
        tenant: &TenantId,
        address: &str,
    ) -> Result<Self, Fault> {
        // Clients of the other kinds would only cost time and memory.
        config.kinds.retain(|kind| {
            address
                .split_once(':')
                .is_some_and(|(named, _)| named == kind)
        });
        let backends = config.backends(&clock).map_err(|error| {
            tracing::warn!(%error, "a sandbox backend cannot be used");
            Fault::internal()
        })?;
        let settings = Arc::new(TransferSettings::without_deadline(config, backends));
        let opened = async {
            let handle = settings.open_address(tenant, address).await?;
            OpenedSandbox::open(Arc::clone(&settings), &handle, v1::Session::default()).await
        };
        let opened = opened.await.map_err(Fault::from)?;
        Ok(Self {
            opened,
            clock,
            operation: OperationId::mint(),
        })
    }

    /// Identity of a file of this sandbox, for [`FileSink::resumable`].
    ///
    /// # Errors
    ///
    /// A fault for an invalid path.
    pub fn origin(&self, path: &[u8]) -> Result<Vec<u8>, Fault> {
        let path = self.opened.path(path).map_err(Fault::from)?;
        let handle = self.opened.engine.handle().to_string();
        Ok([handle.as_bytes(), b" ", path.as_bytes()].concat())
    }

    /// Name that a file gets on this host.
    ///
    /// # Errors
    ///
    /// A fault for a path that cannot be one.
    pub fn file_name(&self, path: &[u8]) -> Result<String, Fault> {
        let path = self.opened.path(path).map_err(Fault::from)?;
        Ok(name::clean_name(path.name()))
    }

    /// Name that the archive of a directory gets on this host.
    ///
    /// # Errors
    ///
    /// A fault for an invalid path, or for an unknown format.
    pub fn archive_name(&self, path: &[u8], format: &str) -> Result<String, Fault> {
        let path = self.opened.path(path).map_err(Fault::from)?;
        Ok(archive_name(
            &path,
            tree_format(format).map_err(Fault::from)?,
        ))
    }

    /// Makes directories and their missing parents, with a few requests for each tree. Directories that exist count as
    /// made. In `paths`, the root of a tree comes directly before its other directories.
    ///
    /// # Errors
    ///
    /// The faults of the service. Directories before the failure may have been made.
    pub async fn make_directories(&self, paths: &[Vec<u8>]) -> Result<(), Fault> {
        Ok(self.opened.make_directories(paths).await?)
    }

    /// Copies a file of the sandbox into `sink`. `max_bytes` is 0 for the configured limit.
    ///
    /// # Errors
    ///
    /// The faults of the service. After a fault the file does not exist on this host.
    pub async fn get(
        &self,
        path: &[u8],
        max_bytes: u64,
        sink: &mut FileSink,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<Received, Fault> {
        let path = self.opened.path(path).map_err(Fault::from)?;
        let options = GetOptions {
            policy: &self.opened.policy,
            max_bytes: self.opened.settings.max_bytes(max_bytes),
        };
        let engine = &self.opened.engine;
        let copied = engine.get(&path, &options, sink, progress, cancel).await;
        let copied = copied.map_err(|failed| self.fault(failed))?;
        let receipt = wire::receipt(&copied.receipt, "get", &self.operation, engine.handle());
        Ok(Received {
            size: copied.size,
            sha256: wire::digest(copied.sha256),
            receipt: wire::with_warning(receipt, copied.warning),
            skipped: Vec::new(),
        })
    }

    /// Copies a directory of the sandbox into `sink` as one archive: `zip` or `tar`.
    ///
    /// # Errors
    ///
    /// Those of [`Self::get`].
    pub async fn get_tree(
        &self,
        path: &[u8],
        format: &str,
        max_bytes: u64,
        sink: &mut FileSink,
        cancel: &CancellationToken,
    ) -> Result<Received, Fault> {
        let path = self.opened.path(path).map_err(Fault::from)?;
        let format: TreeFormat = tree_format(format).map_err(Fault::from)?;
        let options = GetTreeOptions {
            policy: &self.opened.policy,
            limits: self.opened.settings.config.tree(max_bytes),
            format,
        };
        let engine = &self.opened.engine;
        let copied = engine.get_tree(&path, &options, sink, &(), cancel).await;
        let copied = copied.map_err(|failed| self.opened.transfer_failed(failed))?;
        let handle = engine.handle();
        let receipt = wire::receipt(&copied.receipt, "get_tree", &self.operation, handle);
        Ok(Received {
            size: copied.size,
            sha256: wire::digest(copied.sha256),
            receipt: wire::with_warning(receipt, copied.warning),
            skipped: lines(&copied.skipped),
        })
    }

    /// Copies a file of this host into the sandbox.
    ///
    /// # Errors
    ///
    /// The faults of the service. What was written is removed, even when `cancel` fires, unless a later put can
    /// continue it.
    pub async fn put(
        &self,
        put: PutFile<'_>,
        source: &FileSource,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<v1::PlacedFile, Fault> {
        let placed = self.try_put(put, source, progress, cancel).await;
        let placed = placed.map_err(Fault::from)?;
        placed
            .map(|placed| self.placed(&placed))
            .map_err(|failed| self.fault(failed))
    }

    /// Converts a failed transfer, with the advice when its part is kept.
    fn fault(&self, failed: TransferFailure) -> Fault {
        let kept = failed.kept;
        let fault = Fault::from(self.opened.transfer_failed(failed));
        if kept {
            fault.advice(KEPT_ADVICE)
        } else {
            fault
        }
    }

    async fn try_put(
        &self,
        put: PutFile<'_>,
        source: &dyn Source,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<Result<PutResult, TransferFailure>, Error> {
        let max_bytes = self.opened.settings.max_bytes(0);
        let size = source.size();
        if size > max_bytes {
            return Err(dray_sandbox::Error::too_large(size, max_bytes).into());
        }
        let operation = token(self.operation.as_str());
        let options = PutOptions {
            policy: &self.opened.policy,
            collision: wire::collision(put.collision)?,
            mode: put.mode,
            operation: put
                .resume
                // A command has a separate operation id, so temporary names of two commands never collide.
                .unwrap_or_else(|| operation.get(..16).unwrap_or_default()),
            epoch: self.clock.now_ms(),
        };
        let (engine, directory) = (&self.opened.engine, self.opened.path(put.directory)?);
        Ok(if put.resume.is_some() {
            let put =
                engine.put_resumable(&directory, put.name, source, &options, progress, cancel);
            put.await
        } else {
            let put = engine.put(&directory, put.name, source, &options, progress, cancel);
            put.await
        })
    }

    fn placed(&self, placed: &PutResult) -> v1::PlacedFile {
        let handle = self.opened.engine.handle();
        let mut receipt = wire::receipt(&placed.receipt, "put", &self.operation, handle);
        receipt.path = placed.path.as_bytes().to_vec();
        v1::PlacedFile {
            path: placed.path.as_bytes().to_vec(),
            size: placed.size,
            sha256: wire::digest(placed.sha256),
            renamed: placed.renamed,
            existed: placed.existed,
            receipt: Some(receipt),
        }
    }
}
