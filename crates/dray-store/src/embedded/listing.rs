//! Lists the keys of a bucket in the order of S3: by bytes.

use std::fs;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use super::directory::ServedDirectory;
use super::error::DirectoryError;
use super::layout;
use super::record::ObjectRecord;

/// One object of a page of `ListObjectsV2`.
#[derive(Debug)]
pub(super) struct ListedObject {
    pub(super) key: String,
    pub(super) size: u64,
    pub(super) tag: String,
    pub(super) modified: SystemTime,
}

/// The part of the list that is requested.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListRequest<'a> {
    pub(super) prefix: &'a str,
    /// The last key that was listed before.
    pub(super) after: Option<&'a str>,
    pub(super) limit: usize,
}

impl ServedDirectory {
    /// Lists up to `limit` objects; returns also whether there are more.
    pub(super) fn list(
        &self,
        bucket: &str,
        request: ListRequest<'_>,
    ) -> Result<(Vec<ListedObject>, bool), DirectoryError> {
        self.check_bucket(bucket)?;
        let mut objects = Vec::new();
        let is_truncated = walk_directory(&self.layout.bucket(bucket), "", request, &mut objects)?;
        Ok((objects, is_truncated))
    }
}

/// Lists objects below one directory, whose keys start with `before`. Returns whether the list was cut.
fn walk_directory(
    directory: &Path,
    before: &str,
    request: ListRequest<'_>,
    objects: &mut Vec<ListedObject>,
) -> Result<bool, DirectoryError> {
    for (name, key, is_object) in directory_entries(directory, before)? {
        if is_object {
            if !key.starts_with(request.prefix) || request.after.is_some_and(|after| *key <= *after)
            {
                continue;
            }
            // One more object exists, so the caller gets a token to continue.
            if objects.len() == request.limit {
                return Ok(true);
            }
            match ObjectRecord::open(&directory.join(name)) {
                Ok(record) => objects.push(ListedObject {
                    key,
                    size: record.size,
                    tag: record.meta.tag,
                    modified: record.modified,
                }),
                // The object was removed meanwhile.
                Err(DirectoryError::NoSuchKey) => {}
                Err(error) => return Err(error),
            }
        } else if may_contain(&key, request)
            && walk_directory(&directory.join(name), &key, request, objects)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The names in a directory with the keys that they encode, in the order of the keys. The key of a directory ends with
/// a slash.
fn directory_entries(directory: &Path, before: &str) -> io::Result<Vec<(String, String, bool)>> {
    let read = match fs::read_dir(directory) {
        Ok(read) => read,
        // Another request removed the directory with its last object.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut entries = Vec::new();
    for entry in read {
        // This is a foreign file: this crate writes only names in UTF-8.
        let Ok(name) = entry?.file_name().into_string() else {
            continue;
        };
        let Some((component, is_object)) = layout::decode_name(&name) else {
            continue;
        };
        let slash = if is_object { "" } else { "/" };
        entries.push((name, format!("{before}{component}{slash}"), is_object));
    }
    // The entries are sorted by key and not by file name, because encoding changes the order.
    entries.sort_unstable_by(|left, right| left.1.cmp(&right.1));
    Ok(entries)
}

/// Returns whether requested keys can start with `below`.
fn may_contain(below: &str, request: ListRequest<'_>) -> bool {
    let overlaps_prefix = below.starts_with(request.prefix) || request.prefix.starts_with(below);
    let is_past = request
        .after
        .is_some_and(|after| below < after && !after.starts_with(below));
    overlaps_prefix && !is_past
}
