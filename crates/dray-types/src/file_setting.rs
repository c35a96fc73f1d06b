//! Files that settings name by path. Such a setting changes when the content of its file changes, so settings that are
//! read again are compared as if they contained the content.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::ops::Deref;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Sha256Digest;

/// Most bytes of a file that are compared. A longer file counts as one that cannot be read.
const MAX_COMPARED_BYTES: u64 = 1 << 20;
/// Most entries of a directory that are compared.
const MAX_COMPARED_FILES: usize = 64;

/// A file, or a directory of files, that a setting names. Two values are equal when path and content are equal.
///
/// The content is read when the value is made, for the comparison alone; the user of the setting opens the file itself
/// and reports why it cannot be used. If the file changes between these two reads, the setting counts as changed again.
/// Serialises as the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSetting {
    path: PathBuf,
    /// `None` if it cannot be read.
    content: Option<Sha256Digest>,
}

impl FileSetting {
    /// Reads the file, and for a directory the files directly inside it. Blocks.
    pub fn read(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let content = content_digest(&path).ok();
        Self { path, content }
    }
}

fn content_digest(path: &Path) -> io::Result<Sha256Digest> {
    if !fs::metadata(path)?.is_dir() {
        return file_digest(path);
    }
    let mut entries = fs::read_dir(path)?
        .take(MAX_COMPARED_FILES)
        .map(|entry| Ok(entry?.file_name()))
        .collect::<io::Result<Vec<OsString>>>()?;
    entries.sort_unstable();
    let mut all = Vec::new();
    for name in entries {
        all.extend_from_slice(Sha256Digest::of(name.as_encoded_bytes()).as_bytes());
        if let Ok(digest) = file_digest(&path.join(name)) {
            all.extend_from_slice(digest.as_bytes());
        }
    }
    Ok(Sha256Digest::of(&all))
}

fn file_digest(path: &Path) -> io::Result<Sha256Digest> {
    // Opening a named pipe would wait for a writer.
    if !fs::metadata(path)?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = Vec::new();
    let file = File::open(path)?;
    file.take(MAX_COMPARED_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_COMPARED_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(Sha256Digest::of(&bytes))
}

impl Deref for FileSetting {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

impl AsRef<Path> for FileSetting {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

impl From<PathBuf> for FileSetting {
    fn from(path: PathBuf) -> Self {
        Self::read(path)
    }
}

impl From<&str> for FileSetting {
    fn from(path: &str) -> Self {
        Self::read(path)
    }
}

impl Serialize for FileSetting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.path.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for FileSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        PathBuf::deserialize(deserializer).map(Self::read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_changes_with_the_content_of_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.pem");
        let absent = FileSetting::read(&path);
        fs::write(&path, "one").unwrap();
        let first = FileSetting::read(&path);
        assert_ne!(first, absent);
        assert_eq!(first, FileSetting::read(&path));
        fs::write(&path, "two").unwrap();
        assert_ne!(first, FileSetting::read(&path));
        let copy = directory.path().join("copy.pem");
        fs::write(&copy, "one").unwrap();
        assert_ne!(first, FileSetting::read(copy));
        assert_eq!(&*first, path);
    }

    #[test]
    fn a_directory_changes_with_its_files() {
        let directory = tempfile::tempdir().unwrap();
        let read = || FileSetting::read(directory.path());
        let empty = read();
        fs::write(directory.path().join("key.pem"), "one").unwrap();
        let first = read();
        assert_ne!(empty, first);
        assert_eq!(first, read());
        fs::write(directory.path().join("key.pem"), "two").unwrap();
        assert_ne!(first, read());
    }

    #[test]
    fn a_pipe_and_a_file_that_is_too_large_are_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        assert_eq!(FileSetting::read(pipe).content, None);
        let large = directory.path().join("large");
        let file = File::create(&large).unwrap();
        file.set_len(MAX_COMPARED_BYTES + 1).unwrap();
        assert_eq!(FileSetting::read(large).content, None);
    }

    #[test]
    fn it_is_written_and_read_as_its_path() {
        let setting = FileSetting::from("/nowhere/ca.pem");
        let text = serde_json::to_string(&setting).unwrap();
        assert_eq!(text, "\"/nowhere/ca.pem\"");
        assert_eq!(serde_json::from_str::<FileSetting>(&text).unwrap(), setting);
    }
}
