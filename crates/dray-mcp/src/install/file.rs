//! Reads a configuration, and replaces it so that readers see the old or the new file and never a part.
//!
//! A symbolic link is followed, because people keep such files in a repository of their own; the target is replaced and
//! the link is kept.

use std::fs::{self, File, Metadata};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::client::InstallScope;
use super::error::InstallError;

/// Most bytes of a configuration. The file of Claude Code holds histories and reaches megabytes.
pub const MAX_CONFIG_BYTES: u64 = 64 * 1024 * 1024;

/// A configuration as it was read.
#[derive(Debug)]
pub(super) struct ConfigFile {
    /// The file behind all links.
    pub(super) target: PathBuf,
    /// Whether the name is a symbolic link.
    pub(super) is_link: bool,
    /// The content; none when the file does not exist.
    pub(super) content: Option<String>,
    metadata: Option<Metadata>,
}

/// Whether the new content is in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteOutcome {
    Done,
    /// Another program changed the file after it was read; so it was not written.
    Changed,
}

impl ConfigFile {
    /// Reads `path`, or notes that it does not exist.
    pub(super) fn read(path: &Path) -> Result<Self, InstallError> {
        let (target, is_link) = resolve_link(path)?;
        let opened = match File::open(&target) {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self {
                    target,
                    is_link,
                    content: None,
                    metadata: None,
                });
            }
            Err(error) => return Err(read_error(&target)(error)),
        };
        let metadata = opened.metadata().map_err(read_error(&target))?;
        let bytes = read_limited(&opened, &metadata, &target)?;
        let content = String::from_utf8(bytes).map_err(|error| InstallError::Syntax {
            path: target.clone(),
            problem: format!("byte {} is not UTF-8", error.utf8_error().valid_up_to()),
        })?;
        Ok(Self {
            target,
            is_link,
            content: Some(content),
            metadata: Some(metadata),
        })
    }

    /// Puts `content` in place of the file, with its permissions and owner.
    pub(super) fn replace(
        &self,
        content: &str,
        scope: InstallScope,
    ) -> Result<WriteOutcome, InstallError> {
        let write_error = |source| InstallError::Write {
            path: self.target.clone(),
            source,
        };
        let directory = self.target.parent().unwrap_or(Path::new("."));
        create_parent(&self.target)?;
        let mut staged = stage_file(directory, scope).map_err(write_error)?;
        staged.write_all(content.as_bytes()).map_err(write_error)?;
        if let Some(metadata) = &self.metadata {
            keep_owner(staged.as_file(), metadata)
                .map_err(|_| InstallError::ForeignOwner(self.target.clone()))?;
            let permissions = metadata.permissions();
            // The mode is set after the owner, because a change of owner clears bits of the mode.
            staged
                .as_file()
                .set_permissions(permissions)
                .map_err(write_error)?;
        }
        staged.as_file().sync_all().map_err(write_error)?;
        if self.metadata.is_none() {
            return match staged.persist_noclobber(&self.target) {
                Ok(_) => Ok(WriteOutcome::Done),
                Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
                    Ok(WriteOutcome::Changed)
                }
                Err(error) => Err(write_error(error.error)),
            };
        }
        // The file is compared directly before the rename: a write of another program after this line is lost, and no
        // portable call prevents that.
        if self.has_changed()? {
            return Ok(WriteOutcome::Changed);
        }
        staged
            .persist(&self.target)
            .map_err(|error| write_error(error.error))?;
        Ok(WriteOutcome::Done)
    }

    /// Removes the file.
    pub(super) fn delete(&self) -> Result<WriteOutcome, InstallError> {
        if self.has_changed()? {
            return Ok(WriteOutcome::Changed);
        }
        fs::remove_file(&self.target).map_err(|source| InstallError::Write {
            path: self.target.clone(),
            source,
        })?;
        Ok(WriteOutcome::Done)
    }

    fn has_changed(&self) -> Result<bool, InstallError> {
        Ok(Self::read(&self.target)?.content != self.content)
    }
}

/// The file behind all links of `path`.
pub(super) fn resolve_target(path: &Path) -> Result<PathBuf, InstallError> {
    Ok(resolve_link(path)?.0)
}

/// Creates the directory of a file, with its parents.
pub(super) fn create_parent(target: &Path) -> Result<(), InstallError> {
    let directory = target.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(directory).map_err(|source| InstallError::Write {
        path: directory.to_owned(),
        source,
    })
}

/// A temporary file in the same directory, so that a rename replaces the file.
fn stage_file(directory: &Path, scope: InstallScope) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".dray-").suffix(".tmp");
    set_new_permissions(&mut builder, scope);
    builder.tempfile_in(directory)
}

fn read_error(path: &Path) -> impl FnOnce(io::Error) -> InstallError {
    let path = path.to_owned();
    move |source| InstallError::Read { path, source }
}

/// The file behind a name, and whether the name is a link.
fn resolve_link(path: &Path) -> Result<(PathBuf, bool), InstallError> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_symlink() => match fs::canonicalize(path) {
            Ok(target) => Ok((target, true)),
            Err(source) => Err(InstallError::BrokenLink {
                path: path.to_owned(),
                source,
            }),
        },
        Ok(metadata) if !metadata.is_file() => Err(InstallError::NotAFile(path.to_owned())),
        // A missing or unreadable file is reported when it is opened.
        _ => Ok((path.to_owned(), false)),
    }
}

fn read_limited(file: &File, metadata: &Metadata, path: &Path) -> Result<Vec<u8>, InstallError> {
    if !metadata.is_file() {
        return Err(InstallError::NotAFile(path.to_owned()));
    }
    let mut bytes = Vec::new();
    let mut limited = file.take(MAX_CONFIG_BYTES + 1);
    limited.read_to_end(&mut bytes).map_err(read_error(path))?;
    if bytes.len() as u64 > MAX_CONFIG_BYTES {
        return Err(InstallError::TooLarge(path.to_owned()));
    }
    Ok(bytes)
}

/// A file of the user may contain secrets of other servers; a file of the project is shared and follows the umask.
#[cfg(unix)]
fn set_new_permissions(builder: &mut tempfile::Builder<'_, '_>, scope: InstallScope) {
    use std::os::unix::fs::PermissionsExt as _;

    builder.permissions(fs::Permissions::from_mode(match scope {
        InstallScope::User => 0o600,
        InstallScope::Project => 0o666,
    }));
}

#[cfg(not(unix))]
fn set_new_permissions(_builder: &mut tempfile::Builder<'_, '_>, _scope: InstallScope) {}

/// Gives a new file the owner and group of the one that it replaces.
#[cfg(unix)]
fn keep_owner(file: &File, old: &Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt as _, fchown};

    let new = file.metadata()?;
    if (new.uid(), new.gid()) == (old.uid(), old.gid()) {
        return Ok(());
    }
    fchown(file, Some(old.uid()), Some(old.gid()))
}

#[cfg(not(unix))]
fn keep_owner(_file: &File, _old: &Metadata) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_after_the_read_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mcp.json");
        fs::write(&path, "old").unwrap();
        let read = ConfigFile::read(&path).unwrap();
        fs::write(&path, "changed by the client").unwrap();
        let outcome = read.replace("new", InstallScope::User).unwrap();
        assert_eq!(outcome, WriteOutcome::Changed);
        assert_eq!(read.delete().unwrap(), WriteOutcome::Changed);
        assert_eq!(fs::read_to_string(&path).unwrap(), "changed by the client");
    }

    #[test]
    fn a_file_that_appears_after_the_read_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mcp.json");
        let read = ConfigFile::read(&path).unwrap();
        fs::write(&path, "written by the client").unwrap();
        let outcome = read.replace("new", InstallScope::User).unwrap();
        assert_eq!(outcome, WriteOutcome::Changed);
        let content = fs::read_to_string(&path).unwrap();
        assert_eq!(content, "written by the client");
    }
}
