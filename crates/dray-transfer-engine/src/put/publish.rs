//! The step that gives a file its name.

use dray_sandbox::backend::Follow;
use dray_sandbox::error::{Error, ErrorKind, RetryMode};
use dray_sandbox::metadata::Integrity;
use dray_sandbox::path::SandboxPath;

use super::{PlacedFile, PutOperation};
use crate::get::cannot_run;
use crate::options::Collision;
use crate::schedule::TransferError;

/// Number of times that a name which looked free may turn out to be taken.
const MAX_RACES: u32 = 16;

impl PutOperation<'_> {
    /// Whether files can be renamed here now. Success is remembered. Before the first success, it tries to rename a
    /// missing file, which shows this before any file is written that could not be removed again.
    pub(super) async fn can_rename(
        &self,
        target: &SandboxPath,
        directory: &SandboxPath,
    ) -> Result<bool, TransferError> {
        let engine = self.engine;
        if engine.history().can_rename == Some(true) {
            return Ok(true);
        }
        // An attempt number that no write reaches, so the name is absent for certain.
        let absent = self.temp(directory, u32::MAX)?;
        let tried = engine
            .with_response_timeout(engine.sandbox.rename(&absent, target, false))
            .await;
        let can_rename = match tried {
            Err(error) if cannot_run(error.kind()) => false,
            Err(error) if leaves_renaming_unknown(&error) => return Err(error.into()),
            // Other failures of renaming a missing file still prove that a program ran.
            _ => true,
        };
        engine.history().can_rename = Some(can_rename);
        Ok(can_rename)
    }

    /// Gives the written file its name. Another process may take the name in between.
    pub(super) async fn publish(
        &mut self,
        directory: &SandboxPath,
        written: &SandboxPath,
        integrity: Integrity,
    ) -> Result<PlacedFile, TransferError> {
        let engine = self.engine;
        let replace = self.options.collision == Collision::Overwrite;
        let mut races = 0;
        loop {
            let target = self.candidate(directory)?;
            let renamed = engine.sandbox.rename(written, &target, replace);
            let error = match engine.with_response_timeout(renamed).await {
                Ok(atomic) => return Ok(self.placed(written, target, integrity, Some(atomic))),
                Err(error) => error,
            };
            match error.kind() {
                ErrorKind::Exists if !replace && races < MAX_RACES => {
                    races += 1;
                    let number = self.number;
                    if let Some(placed) = self.find_name(directory).await? {
                        return Ok(placed);
                    }
                    // A new name starts a new race. Only repeated refusals of one name mean that the sandbox
                    // contradicts itself.
                    if self.number > number {
                        races = 0;
                    }
                }
                ErrorKind::Exists => return Err(error.into()),
                kind if cannot_run(kind) => {
                    engine.history().can_rename = Some(false);
                    // The temporary file can no longer be renamed, so the bytes are written again under the final
                    // name.
                    self.try_discard(written).await;
                    return self.write_directly(&target).await;
                }
                _ => {
                    // The rename may have succeeded although its response was lost.
                    if self.is_gone(written).await {
                        let Some(placed) = self.find_name(directory).await? else {
                            let error = Error::new(ErrorKind::Unavailable, "the temp file is gone");
                            return Err(TransferError::transport(error));
                        };
                        // Only the lost response said whether the rename was atomic.
                        return Ok(self.placed(written, placed.path, integrity, None));
                    }
                    let after = self.schedule.after(error.into(), &mut self.receipt).await;
                    after.map_err(TransferError::host)?;
                }
            }
        }
    }

    pub(super) fn placed(
        &mut self,
        written: &SandboxPath,
        path: SandboxPath,
        integrity: Integrity,
        atomic: Option<bool>,
    ) -> PlacedFile {
        self.engine.history().can_rename = Some(true);
        self.leftovers.forget(written);
        PlacedFile {
            path,
            renamed: self.number > 1,
            existed: false,
            integrity,
            atomic,
        }
    }

    pub(super) async fn is_gone(&self, path: &SandboxPath) -> bool {
        let engine = self.engine;
        let metadata = engine
            .with_response_timeout(engine.sandbox.stat(path, Follow::No))
            .await;
        metadata.is_err_and(|error| error.kind() == ErrorKind::NotFound)
    }

    /// Writes under the name itself, where nothing can rename, and verifies afterwards.
    pub(super) async fn write_directly(
        &mut self,
        target: &SandboxPath,
    ) -> Result<PlacedFile, TransferError> {
        // A write is exclusive, so the old file has to go first; readers see no file for a moment.
        if self.options.collision == Collision::Overwrite && !self.is_gone(target).await {
            self.discard(target).await?;
        }
        let usable = self.engine.sandbox.write_transports(target);
        let transport = self.schedule.choose(usable, &mut self.receipt)?;
        self.receipt.transport = Some(transport);
        self.resume = None;
        let written = self.write(target, 0).await;
        // An interrupted write cannot be continued under a name that readers see.
        self.resume = None;
        if let Err(failure) = written {
            if failure.error.kind() == ErrorKind::Exists {
                // Another process made it since the check; the next attempt takes another name.
                return Err(TransferError::transport(Error::new(
                    ErrorKind::Unavailable,
                    "the name was taken meanwhile",
                )));
            }
            self.try_discard(target).await;
            return Err(failure);
        }
        let integrity = self.verify(target).await?;
        self.leftovers.forget(target);
        Ok(PlacedFile {
            path: target.clone(),
            renamed: self.number > 1,
            existed: false,
            integrity,
            atomic: Some(false),
        })
    }
}

/// Whether the failure has another cause than the missing file, so that it does not show whether files can be renamed.
const fn leaves_renaming_unknown(error: &Error) -> bool {
    match error.kind().retry_mode() {
        RetryMode::BackOff(_) | RetryMode::Resolve => true,
        RetryMode::OtherTransport => false,
        RetryMode::Never => matches!(
            error.kind(),
            ErrorKind::PermissionDenied
                | ErrorKind::ReadOnly
                | ErrorKind::NoSpace
                | ErrorKind::Auth
        ),
    }
}
