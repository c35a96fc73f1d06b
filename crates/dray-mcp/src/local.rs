//! The one directory of this machine that tools may use.
//!
//! Every path is resolved by the kernel beneath the open directory (`openat2` with `RESOLVE_BENEATH`), so neither `..`,
//! absolute paths, symbolic links nor concurrent renames lead out of it. Without `openat2` (Linux before 5.6) no file
//! can be opened.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dray_presentation::name;
use dray_types::{Fault, FaultCode, OperationId};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;

/// Most entries of a directory that are read.
pub(crate) const MAX_ENTRIES: usize = 100_000;
/// Most retries of an open that concurrent renames disturb.
const MAX_RACE_RETRIES: usize = 32;

/// A directory of this machine, and everything beneath it.
#[derive(Clone, Debug)]
pub struct LocalRoot {
    inner: Arc<OpenRoot>,
}

#[derive(Debug)]
struct OpenRoot {
    directory: OwnedFd,
    /// The directory as it was named, and with links resolved: an absolute path may begin with either.
    names: Vec<PathBuf>,
}

/// The root is not a directory that can be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the directory {}", path.display())]
pub struct RootError {
    path: PathBuf,
    #[source]
    source: std::io::Error,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalEntry {
    pub(crate) name: String,
    /// `file`, `dir`, `symlink` or `other`.
    pub(crate) kind: &'static str,
    /// Bytes; 0 for directories.
    pub(crate) size: u64,
}

/// A part of the entries of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalPage {
    /// Entries by name. Those that were removed during the listing are left out.
    pub(crate) entries: Vec<LocalEntry>,
    /// Whether there are entries after these.
    pub(crate) has_more: bool,
    /// Whether the directory has more than [`MAX_ENTRIES`] entries, so that some are on no page.
    pub(crate) is_cut: bool,
}

impl LocalRoot {
    /// Opens a directory. It stays the same directory when another directory later gets its name.
    ///
    /// # Errors
    ///
    /// The path is not a directory, or may not be opened.
    pub fn open(path: &Path) -> Result<Self, RootError> {
        let failed = |source: std::io::Error| RootError {
            path: path.to_owned(),
            source,
        };
        let absolute = std::path::absolute(path).map_err(failed)?;
        let resolved = absolute.canonicalize().map_err(failed)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(CWD, &resolved, flags, Mode::empty())
            .map_err(|error| failed(error.into()))?;
        let names = vec![absolute, resolved];
        Ok(Self {
            inner: Arc::new(OpenRoot { directory, names }),
        })
    }

    /// Opens a regular file for reading, and returns its size.
    ///
    /// # Errors
    ///
    /// The path leaves the root, or the file does not exist, is not a regular file, or may not be read.
    pub(crate) fn open_file(&self, path: &str) -> Result<(File, u64), Fault> {
        let beneath = self.beneath(path)?;
        // The file is checked through a descriptor that does not open the file, because opening a device can have an
        // effect.
        let path_only = self.resolve(path, &beneath, OFlags::PATH)?;
        let checked = rustix::fs::fstat(&path_only).map_err(|error| file_fault(path, error))?;
        check_regular(path, checked.st_mode)?;
        // A file that became a named pipe since then must not block.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = self.resolve(path, &beneath, flags)?;
        let opened = rustix::fs::fstat(&file).map_err(|error| file_fault(path, error))?;
        check_regular(path, opened.st_mode)?;
        Ok((
            File::from(file),
            u64::try_from(opened.st_size).unwrap_or_default(),
        ))
    }

    /// At most `limit` entries of a directory, sorted by name, after `offset` others. Links are named, not followed. Of
    /// the other entries only the names are read, [`MAX_ENTRIES`] at most.
    ///
    /// # Errors
    ///
    /// The path leads out, or is not a directory that may be read.
    pub(crate) fn list(&self, path: &str, offset: usize, limit: usize) -> Result<LocalPage, Fault> {
        self.list_matching(path, "", offset, limit)
    }

    /// Like [`Self::list`], only of entries whose name begins with `prefix`.
    pub(crate) fn list_matching(
        &self,
        path: &str,
        prefix: &str,
        offset: usize,
        limit: usize,
    ) -> Result<LocalPage, Fault> {
        let beneath = self.beneath(path)?;
        let directory = self.resolve(path, &beneath, OFlags::RDONLY | OFlags::DIRECTORY);
        let directory = directory.map_err(|fault| match fault.detail.as_str() {
            "not_regular_file" => not_directory_fault(path),
            _ => fault,
        })?;
        let read = Dir::read_from(&directory).map_err(|error| file_fault(path, error))?;
        let mut names = Vec::new();
        let mut is_cut = false;
        for entry in read {
            let entry = entry.map_err(|error| file_fault(path, error))?;
            let name = entry.file_name();
            let bytes = name.to_bytes();
            if matches!(bytes, b"." | b"..") || !bytes.starts_with(prefix.as_bytes()) {
                continue;
            }
            is_cut = names.len() == MAX_ENTRIES;
            if is_cut {
                break;
            }
            names.push(name.to_owned());
        }
        names.sort_unstable();
        let mut rest = names.iter().skip(offset);
        let mut entries = Vec::new();
        for name in rest.by_ref().take(limit) {
            let stat_result =
                rustix::fs::statat(&directory, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW);
            // An entry that was removed meanwhile is left out.
            let Ok(stat) = stat_result else { continue };
            let kind = entry_kind(stat.st_mode);
            let size = if kind == "dir" {
                0
            } else {
                u64::try_from(stat.st_size).unwrap_or_default()
            };
            entries.push(LocalEntry {
                name: name.to_string_lossy().into_owned(),
                kind,
                size,
            });
        }
        Ok(LocalPage {
            entries,
            has_more: rest.next().is_some(),
            is_cut,
        })
    }

    /// Begins a new file. The file gets its name when it is complete.
    ///
    /// # Errors
    ///
    /// The path leads out, names a directory, or its directory cannot be written.
    pub(crate) fn create_file(&self, path: &str) -> Result<NewFile, Fault> {
        let beneath = self.beneath(path)?;
        let (Some(parent), Some(last)) = (beneath.parent(), beneath.file_name()) else {
            return Err(not_regular_fault(path));
        };
        let parent = if parent.as_os_str().is_empty() {
            Path::new(".")
        } else {
            parent
        };
        let directory = self.resolve(path, parent, OFlags::RDONLY | OFlags::DIRECTORY);
        let directory = directory.map_err(|fault| {
            match fault.detail.as_str() {
                // The directory does not exist, or a file has its name.
                "not_found" | "not_regular_file" => missing_directory_fault(path),
                _ => fault,
            }
        })?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // No name is used twice: a name that is free again after `finish` must not be removed together with its former
        // file.
        let temporary = format!(".dray-{}.part", OperationId::mint());
        let file = rustix::fs::openat(&directory, &temporary, flags, Mode::from(0o644))
            .map_err(|error| file_fault(path, error))?;
        Ok(NewFile {
            shown: path.to_owned(),
            name: last.to_owned(),
            file: File::from(file),
            temporary: TemporaryName {
                directory,
                name: temporary,
            },
        })
    }

    /// The path relative to the root. An absolute path has to begin with the complete path of the root.
    fn beneath(&self, path: &str) -> Result<PathBuf, Fault> {
        let written_path = Path::new(path);
        if path.contains('\0') {
            return Err(outside_fault(path));
        }
        if written_path.is_relative() {
            return Ok(written_path.to_owned());
        }
        let mut names = self.inner.names.iter();
        // The paths are compared by components, so that `/srv/data-old` is not beneath `/srv/data`.
        let relative = names.find_map(|root| written_path.strip_prefix(root).ok());
        let relative = relative.ok_or_else(|| outside_fault(path))?;
        Ok(if relative.as_os_str().is_empty() {
            PathBuf::from(".")
        } else {
            relative.to_owned()
        })
    }

    fn resolve(&self, shown: &str, path: &Path, flags: OFlags) -> Result<OwnedFd, Fault> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let open = || {
            rustix::fs::openat2(
                self.inner.directory.as_fd(),
                path,
                flags | OFlags::CLOEXEC,
                Mode::empty(),
                resolve,
            )
        };
        let mut opened = open();
        for _ in 0..MAX_RACE_RETRIES {
            // A rename during the resolution of `..`: the result is unknown (openat2(2), EAGAIN).
            if !matches!(opened, Err(Errno::AGAIN)) {
                break;
            }
            opened = open();
        }
        opened.map_err(|error| file_fault(shown, error))
    }
}

/// A file that is being written and does not have its name yet. Dropping it before [`NewFile::finish`] removes it.
#[derive(Debug)]
pub(crate) struct NewFile {
    shown: String,
    name: std::ffi::OsString,
    file: File,
    temporary: TemporaryName,
}

/// A temporary file, which is removed when this value is dropped.
#[derive(Debug)]
struct TemporaryName {
    directory: OwnedFd,
    name: String,
}

impl Drop for TemporaryName {
    fn drop(&mut self) {
        let _ = rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty());
    }
}

impl NewFile {
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.file
            .write_all(bytes)
            .map_err(|error| write_fault(&self.shown, &error))
    }

    /// Gives the file its name. An existing file is never replaced.
    pub(crate) fn finish(self) -> Result<(), Fault> {
        // The file is synced before the rename: after a crash the name must not lead to a file without content.
        self.file
            .sync_all()
            .map_err(|error| write_fault(&self.shown, &error))?;
        let TemporaryName { directory, name } = &self.temporary;
        let flags = RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(directory, name, directory, &self.name, flags) {
            // The file system does not know the flag: NFS, FUSE and 9P, as which WSL has the drives of Windows.
            Err(Errno::INVAL | Errno::NOSYS | Errno::PERM) => link_new(directory, name, &self.name),
            renamed => renamed,
        }
        .map_err(|error| file_fault(&self.shown, error))
    }
}

/// Gives a file a further name. A link fails on a name that is taken, as a rename with `NOREPLACE` does. The temporary
/// name is removed when the [`NewFile`] is dropped.
fn link_new(directory: &OwnedFd, temporary: &str, new: &OsStr) -> Result<(), Errno> {
    rustix::fs::linkat(directory, temporary, directory, new, AtFlags::empty())
}

fn entry_kind(mode: u32) -> &'static str {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => "file",
        FileType::Directory => "dir",
        FileType::Symlink => "symlink",
        _ => "other",
    }
}

fn check_regular(path: &str, mode: u32) -> Result<(), Fault> {
    if FileType::from_raw_mode(mode) == FileType::RegularFile {
        Ok(())
    } else {
        Err(not_regular_fault(path))
    }
}

fn displayed_path(path: &str) -> String {
    name::shown_text(path, 200)
}

/// The fault for every path outside of the root: the same whether the path exists or not, so it reveals nothing.
fn outside_fault(path: &str) -> Fault {
    Fault::new(
        FaultCode::Denied,
        format!("`{}` is not in the directory that this server may use.", displayed_path(path)),
    )
    .detail("outside_root")
    .advice("Give a path relative to that directory; `list` shows what is in it. The user chooses it with --root.")
}

fn not_regular_fault(path: &str) -> Fault {
    Fault::new(
        FaultCode::InvalidArgument,
        format!("`{}` is not a regular file.", displayed_path(path)),
    )
    .detail("not_regular_file")
    .advice("Name a file; `list` shows the files of a directory.")
}

fn not_directory_fault(path: &str) -> Fault {
    Fault::new(
        FaultCode::InvalidArgument,
        format!("`{}` is not a directory.", displayed_path(path)),
    )
    .detail("not_a_directory")
    .advice("`read` shows a file; `list` without `path` shows what is there.")
}

fn write_fault(path: &str, error: &std::io::Error) -> Fault {
    tracing::warn!(%error, "a local file was not written");
    Fault::new(
        FaultCode::Unavailable,
        format!("`{}` could not be written.", displayed_path(path)),
    )
    .detail("local_write")
    .advice("The disk may be full. The user finds the cause in the log of this server.")
}

fn missing_directory_fault(path: &str) -> Fault {
    Fault::new(
        FaultCode::NotFound,
        format!(
            "The directory of `{}` does not exist.",
            displayed_path(path)
        ),
    )
    .detail("not_found")
    .advice("Name a file in a directory that exists; `list` shows them.")
}

fn file_fault(path: &str, error: Errno) -> Fault {
    match error {
        // `RESOLVE_BENEATH` reports these for a path that leaves the root, and for a magic link in /proc.
        Errno::XDEV | Errno::LOOP => outside_fault(path),
        Errno::NOENT => Fault::new(
            FaultCode::NotFound,
            format!("The file `{}` does not exist.", displayed_path(path)),
        )
        .detail("not_found")
        .advice("`list` shows what is there."),
        Errno::EXIST => Fault::new(
            FaultCode::InvalidArgument,
            format!("There is a file `{}` already.", displayed_path(path)),
        )
        .detail("exists")
        .advice("Choose another name; existing files are never replaced."),
        Errno::NOTDIR | Errno::ISDIR => not_regular_fault(path),
        Errno::ACCESS | Errno::PERM => Fault::new(
            FaultCode::Denied,
            format!("`{}` may not be opened.", displayed_path(path)),
        )
        .detail("unreadable"),
        other => {
            tracing::warn!(error = %other, "a local file was not opened");
            Fault::new(
                FaultCode::Unavailable,
                format!("`{}` could not be opened.", displayed_path(path)),
            )
            .detail("local")
        }
    }
}

#[cfg(test)]
mod tests;
