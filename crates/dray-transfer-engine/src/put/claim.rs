//! Chooses the name of a file.

use dray_sandbox::backend::Follow;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::{FileKind, Integrity, Metadata};
use dray_sandbox::path::SandboxPath;

use super::{PlacedFile, PutOperation};
use crate::options::Collision;
use crate::place::numbered;
use crate::schedule::TransferError;

/// Names that are tried before a collision is an error.
const MAX_NAMES: u32 = 1000;

impl PutOperation<'_> {
    /// The path of the candidate name.
    pub(super) fn candidate(&self, directory: &SandboxPath) -> Result<SandboxPath, Error> {
        directory.join(numbered(self.name, self.number))
    }

    /// Advances to the first free name, or finds the same content under a name that is taken.
    pub(super) async fn find_name(
        &mut self,
        directory: &SandboxPath,
    ) -> Result<Option<PlacedFile>, TransferError> {
        let engine = self.engine;
        loop {
            let target = self.candidate(directory)?;
            let metadata = engine
                .with_response_timeout(engine.sandbox.stat(&target, Follow::No))
                .await;
            let metadata = match metadata {
                Ok(metadata) => metadata,
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            // The content is checked before the collision policy: a repeated request must find its own file and
            // succeed.
            if !self.changes_mode(&metadata)
                && let Some(integrity) = self.identical(&metadata).await?
            {
                return Ok(Some(self.existing(target, integrity)));
            }
            match (self.options.collision, metadata.kind) {
                (Collision::Overwrite, FileKind::Directory) => {
                    let error = "a directory is not overwritten";
                    return Err(Error::new(ErrorKind::IsDirectory, error).into());
                }
                (Collision::Overwrite, _) => return Ok(None),
                (Collision::Fail, _) => return Err(exists().into()),
                (Collision::Rename, _) => self.next_name()?,
            }
        }
    }

    /// Whether the put replaces the file to give it other permission bits. Without a replacement, the file stays as it
    /// is.
    fn changes_mode(&self, metadata: &Metadata) -> bool {
        self.options.collision == Collision::Overwrite
            && metadata.kind == FileKind::File
            && (metadata.mode ^ self.options.mode) & 0o777 != 0
    }

    fn next_name(&mut self) -> Result<(), TransferError> {
        self.number += 1;
        if self.number > MAX_NAMES {
            return Err(exists().into());
        }
        Ok(())
    }

    fn existing(&self, path: SandboxPath, integrity: Integrity) -> PlacedFile {
        PlacedFile {
            path,
            renamed: self.number > 1,
            existed: true,
            integrity,
            atomic: None,
        }
    }

    /// Returns the proof if the existing file already has the content that would be written.
    pub(super) async fn identical(
        &mut self,
        metadata: &Metadata,
    ) -> Result<Option<Integrity>, TransferError> {
        if metadata.kind != FileKind::File || metadata.size != self.source.size() {
            return Ok(None);
        }
        match self.matches(&metadata.path, Some(metadata)).await {
            // A file that cannot be read counts as another file.
            Err(failure) if is_unreadable_or_missing(failure.error.kind()) => Ok(None),
            result => result,
        }
    }
}

/// Whether the failure means that the file cannot be read, or no longer exists.
const fn is_unreadable_or_missing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::PermissionDenied | ErrorKind::NotFound)
}

fn exists() -> Error {
    Error::new(ErrorKind::Exists, "the name is taken")
}
