//! Copies a file from one sandbox into another.

use dray_proto::v1;
use dray_sandbox::{Error as SandboxError, ErrorKind, RetryMode};
use dray_transfer_engine::{
    FileSink, FileSource, GetOptions, Progress, TransferFailure, spool_error,
};
use dray_types::Fault;
use tokio_util::sync::CancellationToken;

use super::pipe::pipe;
use super::{DirectSandbox, PutFile, Received};
use crate::error::Error;
use crate::wire;

/// A file that was copied from one sandbox into another.
#[derive(Clone, Debug)]
pub struct Copied {
    /// Path and proof of the file in the other sandbox.
    pub placed: v1::PlacedFile,
    /// Receipt of the reading side; `None` when the same content was there already.
    pub read: Option<v1::TransferReceipt>,
    /// Whether the copy passed through a file of this host, because one side had to begin again.
    pub through_file: bool,
}

/// The result of one attempt.
enum CopyAttempt {
    Copied(Box<Copied>),
    /// One side was interrupted; a copy through a file may still succeed.
    Broken(Fault),
    Failed(Fault),
}

impl DirectSandbox {
    /// Copies a file of this sandbox into another one. The bytes are streamed, and published there when both sandboxes
    /// report the same digest. An interrupted copy is repeated through a file of this host.
    ///
    /// # Errors
    ///
    /// Those of [`Self::get`] and [`Self::put`].
    pub async fn copy_file(
        &self,
        path: &[u8],
        size: u64,
        to: &Self,
        put: PutFile<'_>,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<Copied, Fault> {
        let streamed = self.stream_file(path, size, to, put, progress, cancel);
        match Box::pin(streamed).await? {
            CopyAttempt::Copied(copied) => return Ok(*copied),
            CopyAttempt::Failed(fault) => return Err(fault),
            CopyAttempt::Broken(fault) if cancel.is_cancelled() => return Err(fault),
            CopyAttempt::Broken(fault) => {
                tracing::warn!(%fault, "the copy was interrupted; repeating it through a file");
            }
        }
        let spooled = self.spool_file(path, to, put, progress, cancel);
        Box::pin(spooled).await
    }

    async fn stream_file(
        &self,
        path: &[u8],
        size: u64,
        to: &Self,
        put: PutFile<'_>,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<CopyAttempt, Fault> {
        let path = self.opened.path(path).map_err(Fault::from)?;
        let engine = &self.opened.engine;
        let options = GetOptions {
            policy: &self.opened.policy,
            max_bytes: self.opened.settings.max_bytes(0),
        };
        // The path is checked before any request to the other sandbox: a path that may not be read is not looked for
        // there.
        let found = engine.stat(options.policy, &path, dray_sandbox::Follow::Yes);
        let real = found.await.map_err(Error::from)?.real_path;
        let (mut sink, source, wanted) = pipe(size, engine, &real);
        let cancel_get = cancel.child_token();
        let getting = async {
            // The get starts only when the put wants bytes, so a file that exists already is not read at all.
            let wanted = cancel_get.run_until_cancelled(wanted).await;
            if !matches!(wanted, Some(Ok(()))) {
                return None;
            }
            Some(
                engine
                    .get(&path, &options, &mut sink, &(), &cancel_get)
                    .await,
            )
        };
        let putting = async {
            let put = to.try_put(put, &source, progress, cancel).await;
            // Without a proof the get is of no further use, and its sink would wait for a reader that never comes.
            if !source.is_proved() {
                cancel_get.cancel();
            }
            put
        };
        let (got, put) = tokio::join!(getting, putting);
        let read = match got {
            // The failure of the reading side comes first: the put then failed only because its bytes did not arrive.
            Some(Err(failed)) if !failed.cancelled => return Ok(self.classify(failed)),
            Some(Ok(got)) => {
                let handle = engine.handle();
                let receipt = wire::receipt(&got.receipt, "get", &self.operation, handle);
                Some(wire::with_warning(receipt, got.warning))
            }
            _ => None,
        };
        match put.map_err(Fault::from)? {
            Ok(placed) => Ok(CopyAttempt::Copied(Box::new(Copied {
                placed: to.placed(&placed),
                read,
                through_file: false,
            }))),
            Err(failed) => Ok(to.classify(failed)),
        }
    }

    /// Classifies the failure of one side.
    fn classify(&self, failed: TransferFailure) -> CopyAttempt {
        let may_succeed_through_file = may_succeed_through_file(&failed.error) && !failed.cancelled;
        let fault = self.fault(failed);
        if may_succeed_through_file {
            CopyAttempt::Broken(fault)
        } else {
            CopyAttempt::Failed(fault)
        }
    }

    async fn spool_file(
        &self,
        path: &[u8],
        to: &Self,
        put: PutFile<'_>,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<Copied, Fault> {
        let failed = |error: std::io::Error| Fault::from(Error::from(spool_error(error)));
        // The file has no name, so that neither a failed copy nor a killed process leaves it in the spool directory.
        let spool = &self.opened.settings.config.spool_directory;
        let (mut sink, file) = FileSink::unnamed_in(spool).map_err(failed)?;
        let received: Received = self.get(path, 0, &mut sink, &(), cancel).await?;
        let source = FileSource::new(file, received.size);
        let placed = to.put(put, &source, progress, cancel).await?;
        Ok(Copied {
            placed,
            read: Some(received.receipt),
            through_file: true,
        })
    }
}

/// Whether a copy that failed like this may still succeed through a file, where each side retries by itself. A sandbox
/// that runs no commands computes no digest to compare with a file that exists already, but its files may be readable.
fn may_succeed_through_file(error: &SandboxError) -> bool {
    match error.kind() {
        ErrorKind::ToolMissing | ErrorKind::SandboxStopped | ErrorKind::SandboxPaused => true,
        kind => matches!(kind.retry_mode(), RetryMode::BackOff(_)),
    }
}
