//! Manifests of a local directory (`NAME.json`), and layers of templates, so that agents run without DIAL.
//!
//! A file is read again when it has changed, so an edit applies from the next request on. An invalid one is logged with
//! its path and reason, and the others stay. Files are neither watched nor written.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use dray_agent::failure::RequestFailure;
use dray_agent::manifest::{Manifest, ManifestReader};
use thiserror::Error;

mod layers;
#[cfg(test)]
mod tests;

pub use layers::{LayerError, read_layers};

/// Most bytes of one manifest.
const MAX_MANIFEST_BYTES: u64 = 4 << 20;

/// A directory that cannot be used; it stops the start of the service.
#[derive(Debug, Error)]
#[error("the directory of manifests {path} cannot be read")]
pub struct ManifestDirectoryError {
    /// The path, as configured.
    pub path: PathBuf,
    /// The error of the operating system.
    #[source]
    pub source: io::Error,
}

/// A manifest that was read without a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedManifest {
    /// Name of the file without its extension.
    pub name: String,
    /// Time of the last change, in Unix seconds.
    pub modified: u64,
}

/// Reads agent manifests from the operator's directory, and again when a file changes.
#[derive(Debug)]
pub struct ManifestDirectory {
    directory: Option<PathBuf>,
    reader: Arc<ManifestReader>,
    cached: Mutex<BTreeMap<String, CachedManifest>>,
}

/// The outcome of reading a file, kept until the file changes.
#[derive(Clone, Debug)]
struct CachedManifest {
    stamp: FileStamp,
    read: Result<Arc<Manifest>, String>,
}

/// The metadata by which a changed file is recognised without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    modified: SystemTime,
    size: u64,
}

impl ManifestDirectory {
    /// Reads all manifests of a directory; invalid ones are logged. Without a directory there are none.
    ///
    /// # Errors
    ///
    /// [`ManifestDirectoryError`] when the directory cannot be read.
    pub fn open(
        directory: Option<PathBuf>,
        reader: Arc<ManifestReader>,
    ) -> Result<Self, ManifestDirectoryError> {
        if let Some(path) = &directory {
            fs::read_dir(path).map_err(|source| ManifestDirectoryError {
                path: path.clone(),
                source,
            })?;
        }
        let manifests = Self {
            directory,
            reader,
            cached: Mutex::default(),
        };
        for listed in manifests.files() {
            // `get` logs the manifests that it refuses.
            let _ = manifests.get(&listed.name);
        }
        Ok(manifests)
    }

    /// Whether there is a file of this name, valid or not.
    pub fn has(&self, name: &str) -> bool {
        self.stamp(name).is_some()
    }

    /// The valid manifests, by name.
    pub fn list(&self) -> Vec<ListedManifest> {
        let mut listed = self.files();
        listed.retain(|listed| matches!(self.get(&listed.name), Ok(Some(_))));
        listed
    }

    /// The manifest `name` as its file is now; `None` when there is none.
    ///
    /// # Errors
    ///
    /// [`RequestFailure`] with status 400 for one that cannot be used, naming it and every reason.
    pub fn get(&self, name: &str) -> Result<Option<Arc<Manifest>>, RequestFailure> {
        let Some((path, stamp)) = self.stamp(name) else {
            return Ok(None);
        };
        // The lock is not held while the file is read. Concurrent requests may both read it, with the same result.
        let cached = self.lock().get(name).cloned();
        let cached = match cached {
            // A refused file is cached too, so that it is logged once for each change and not for each request.
            Some(cached) if cached.stamp == stamp => cached,
            _ => {
                let read = self.read(&path);
                if let Err(reason) = &read {
                    tracing::warn!(path = %path.display(), reason, "a manifest cannot be used");
                }
                let cached = CachedManifest { stamp, read };
                self.lock().insert(name.to_owned(), cached.clone());
                cached
            }
        };
        cached.read.map(Some).map_err(|reason| {
            let message = format!("The manifest '{name}' is refused: {reason}");
            RequestFailure::new(400, message.clone()).display(message)
        })
    }

    fn read(&self, path: &Path) -> Result<Arc<Manifest>, String> {
        let text = read_text(path, MAX_MANIFEST_BYTES).map_err(|error| builder_message(&error))?;
        // Editors of Windows begin files with a byte order mark, which RFC 8259 section 8.1 lets readers ignore.
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        // The parser names what it expects, and no value. Its message ends with line and column.
        let document =
            serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
        let reading = self
            .reader
            .manifest(document)
            .map_err(|invalid| invalid.to_string())?;
        for warning in reading.warnings {
            tracing::warn!(path = %path.display(), warning, "a manifest names something that it may not use");
        }
        Ok(Arc::new(reading.value))
    }

    /// The path of a manifest and its present metadata.
    fn stamp(&self, name: &str) -> Option<(PathBuf, FileStamp)> {
        // Names come from the paths of requests: no separator, and no drive or stream of Windows (path traversal).
        let is_plain = !name.starts_with('.')
            && !name.contains(['/', '\\', '\0', ':'])
            && (1..=200).contains(&name.len());
        let directory = self.directory.as_ref().filter(|_| is_plain)?;
        let path = directory.join(format!("{name}.json"));
        let metadata = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
        let modified = metadata.modified().unwrap_or(UNIX_EPOCH);
        let size = metadata.len();
        Some((path, FileStamp { modified, size }))
    }

    /// All files that are manifests by name, sorted.
    fn files(&self) -> Vec<ListedManifest> {
        let entries = self.directory.as_ref().map(fs::read_dir);
        let entries = entries.into_iter().flatten().flatten().flatten();
        let mut files: Vec<_> = entries
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let name = name.strip_suffix(".json")?.to_owned();
                let (_, stamp) = self.stamp(&name)?;
                let modified = stamp.modified.duration_since(UNIX_EPOCH);
                let modified = modified.map_or(0, |age| age.as_secs());
                Some(ListedManifest { name, modified })
            })
            .collect();
        files.sort_by(|left, right| left.name.cmp(&right.name));
        files
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, CachedManifest>> {
        // Entries are inserted as a whole, so a panic under the lock leaves none incomplete.
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The message for builders about a file that cannot be read.
fn builder_message(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::InvalidData => "it is not text",
        io::ErrorKind::FileTooLarge => "it is too large",
        io::ErrorKind::PermissionDenied => "it may not be read",
        _ => "it cannot be read",
    }
    .to_owned()
}

/// The text of a file of at most `max_bytes` bytes.
fn read_text(path: &Path, max_bytes: u64) -> io::Result<String> {
    let mut text = String::new();
    fs::File::open(path)?
        // One byte beyond the limit shows that there is more, without reading the rest.
        .take(max_bytes + 1)
        .read_to_string(&mut text)?;
    if text.len() as u64 > max_bytes {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}
