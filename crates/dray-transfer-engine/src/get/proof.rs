//! The proof of a copy that is complete: its bytes are compared with the evidence of the sandbox.

use std::future::Future;

use dray_sandbox::backend::Follow;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::{FileState, Fingerprint, Integrity, Metadata};

use super::{GetOperation, UnprovenCopy};
use crate::prove;
use crate::schedule::TransferError;
use crate::witness::IntegrityBaseline;

impl GetOperation<'_> {
    /// Compares the bytes that arrived with the evidence of the sandbox. A failed request is repeated without a new
    /// copy.
    pub(super) async fn prove(
        &mut self,
        partial: UnprovenCopy,
    ) -> Result<(UnprovenCopy, Integrity), TransferError> {
        let integrity = match &partial.before {
            IntegrityBaseline::Unchanged(state) => {
                self.check_unchanged(&partial.file, state).await?;
                Integrity::SizeMtime
            }
            IntegrityBaseline::UnchangedWithDigest(state, beside) => {
                self.prove_unchanged(&partial, state, beside.as_ref())
                    .await?
            }
            IntegrityBaseline::Pending => self.prove_by_digests(&partial, None).await?,
            IntegrityBaseline::Digest(before) => {
                self.prove_by_digests(&partial, before.as_ref()).await?
            }
        };
        Ok((partial, integrity))
    }

    async fn check_unchanged(
        &mut self,
        file: &Metadata,
        state: &FileState,
    ) -> Result<(), TransferError> {
        let engine = self.engine;
        let unchanged = self
            .with_retries(|| engine.unchanged(&file.real_path, state))
            .await?;
        if unchanged {
            return Ok(());
        }
        Err(changed_error("the file was touched while it was read").into())
    }

    /// The proof for a file whose state must be the same as before the copy.
    async fn prove_unchanged(
        &mut self,
        partial: &UnprovenCopy,
        state: &FileState,
        beside: Option<&Fingerprint>,
    ) -> Result<Integrity, TransferError> {
        let UnprovenCopy { file, copied, .. } = partial;
        let engine = self.engine;
        // A digest that failed beside the copy is computed now: only a sandbox without a program for it has none.
        let after = if beside.is_some() {
            None
        } else {
            self.with_retries(|| engine.fingerprint(&file.real_path, file.size))
                .await?
        };
        if partial.text && beside.is_none() && after.is_none() {
            return Err(unproven_error());
        }
        // The state is read before any digest is compared: a file that was touched is changed, not damaged.
        self.check_unchanged(file, state).await?;
        prove::judge_watched(beside, after.as_ref(), copied).map_err(damaged_error)
    }

    /// The proof by digests before and after the copy, and by metadata where they do not decide.
    async fn prove_by_digests(
        &mut self,
        partial: &UnprovenCopy,
        before: Option<&Fingerprint>,
    ) -> Result<Integrity, TransferError> {
        let UnprovenCopy { file, copied, .. } = partial;
        let (engine, path) = (self.engine, self.path);
        let after = self
            .with_retries(|| engine.fingerprint(&file.real_path, file.size))
            .await?;
        // Unknown times are equal before and after, and prove nothing.
        let needs_digest = partial.text || file.mtime_ns.is_none();
        if needs_digest && before.is_none() && after.is_none() {
            return Err(unproven_error());
        }
        // Equal digests decide alone; otherwise the file may have changed, or the bytes may be damaged.
        let stable = if prove::needs_stat(before, after.as_ref(), copied) {
            let now = self
                .with_retries(|| {
                    engine.with_response_timeout(engine.sandbox.stat(path, Follow::Yes))
                })
                .await?;
            prove::same(file, &now)
        } else {
            true
        };
        prove::judge(before, after.as_ref(), copied, stable).map_err(damaged_error)
    }

    /// Repeats a request until it succeeds or the schedule ends it. A file that is gone counts as changed.
    async fn with_retries<T, F>(&mut self, request: impl Fn() -> F) -> Result<T, TransferError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        loop {
            let error = match request().await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            if error.kind() == ErrorKind::NotFound {
                return Err(changed_error("the file is gone").caused_by(error).into());
            }
            self.schedule
                .after(error.into(), self.receipt)
                .await
                .map_err(TransferError::host)?;
        }
    }
}

fn damaged_error(kind: ErrorKind) -> TransferError {
    let error = "the digests of the sandbox and of the received bytes differ";
    TransferError::transport(Error::new(kind, error))
}

fn changed_error(reason: &str) -> Error {
    Error::new(ErrorKind::ChangedDuringTransfer, reason)
}

/// The failure of a copy for which the sandbox has no evidence. It is final: no other transport has more.
fn unproven_error() -> TransferError {
    let error =
        "no program of the sandbox computes a digest, and nothing else proves the received bytes";
    TransferError::host(Error::new(ErrorKind::ToolMissing, error))
}
