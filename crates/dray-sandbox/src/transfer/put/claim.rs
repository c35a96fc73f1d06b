//! Which name the file gets.

use super::{Placed, Putting};
use crate::backend::Follow;
use crate::error::{Error, ErrorKind};
use crate::metadata::{FileKind, Integrity, Metadata};
use crate::path::SandboxPath;
use crate::transfer::options::Collision;
use crate::transfer::place::numbered;
use crate::transfer::schedule::Trouble;

/// Names tried before a collision is an error.
const MOST_NAMES: u32 = 1000;

impl Putting<'_> {
    /// The name that is tried now.
    pub(super) fn candidate(&self, directory: &SandboxPath) -> Result<SandboxPath, Error> {
        directory.join(numbered(self.name, self.number))
    }

    /// Goes on to the first name that is free, or finds the very same file in place.
    pub(super) async fn find_name(
        &mut self,
        directory: &SandboxPath,
    ) -> Result<Option<Placed>, Trouble> {
        let engine = self.engine;
        loop {
            let target = self.candidate(directory)?;
            let there = engine
                .answer(engine.sandbox.stat(&target, Follow::No))
                .await;
            let there = match there {
                Ok(there) => there,
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            if let Some(integrity) = self.identical(&there).await? {
                return Ok(Some(self.existing(target, integrity)));
            }
            match (self.options.collision, there.kind) {
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

    fn next_name(&mut self) -> Result<(), Trouble> {
        self.number += 1;
        if self.number > MOST_NAMES {
            return Err(exists().into());
        }
        Ok(())
    }

    fn existing(&self, path: SandboxPath, integrity: Integrity) -> Placed {
        Placed {
            path,
            renamed: self.number > 1,
            existed: true,
            integrity,
            atomic: None,
        }
    }

    /// Whether this is already what we would write.
    pub(super) async fn identical(
        &mut self,
        there: &Metadata,
    ) -> Result<Option<Integrity>, Trouble> {
        if there.kind != FileKind::File || there.size != self.source.size() {
            return Ok(None);
        }
        match self.matches(&there.path, Some(there)).await {
            // A file that cannot be looked at is another file.
            Err(trouble) if is_another(trouble.error.kind()) => Ok(None),
            looked => looked,
        }
    }
}

/// Whether a file cannot be looked at, or is gone again.
const fn is_another(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::PermissionDenied | ErrorKind::NotFound)
}

fn exists() -> Error {
    Error::new(ErrorKind::Exists, "the name is taken")
}
