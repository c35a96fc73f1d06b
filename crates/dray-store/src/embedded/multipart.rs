//! Uploads in parts: one directory for each upload, one object at the end. Blocks on the file system.

use std::fs;
use std::io::{self, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::directory::{OverwriteRule, ServedDirectory};
use super::error::DirectoryError;
use super::part::{self, StoredPart};
use super::private;
use super::record::{self, ObjectMetadata};
use crate::checksum::{self, Crc64};

/// Smallest part in bytes that S3 accepts, except for the last one.
const MIN_PART_BYTES: u64 = 5 << 20;

/// The object that an upload will become.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UploadPurpose {
    pub(super) key: String,
    pub(super) meta: ObjectMetadata,
}

/// A part as the sender names it when the upload is completed.
#[derive(Clone, Debug)]
pub(super) struct NamedPart {
    pub(super) number: i32,
    pub(super) tag: Option<String>,
    pub(super) sha256: Option<String>,
    pub(super) crc64: Option<String>,
}

/// An upload that was neither completed nor aborted.
#[derive(Debug)]
pub(super) struct UnfinishedUpload {
    pub(super) id: Uuid,
    pub(super) key: String,
    pub(super) started: SystemTime,
}

impl ServedDirectory {
    /// Opens an upload with a separate directory.
    pub(super) fn start_upload(
        &self,
        bucket: &str,
        purpose: &UploadPurpose,
    ) -> Result<Uuid, DirectoryError> {
        self.check_bucket(bucket)?;
        // A key that is too long fails here and not after all parts were sent.
        self.path(bucket, &purpose.key)?;
        let id = Uuid::new_v4();
        let directory = self.layout.upload(bucket, id);
        private::create_directories(&directory)?;
        let text = serde_json::to_vec(purpose).map_err(io::Error::from)?;
        private::write_private(&directory.join("upload"), &text)?;
        Ok(id)
    }

    /// Reads the key and metadata of an upload; fails if the upload is not open.
    pub(super) fn purpose(&self, bucket: &str, id: Uuid) -> Result<UploadPurpose, DirectoryError> {
        let directory = self.upload_directory(bucket, id)?;
        let text = fs::read(directory.join("upload"))?;
        Ok(serde_json::from_slice(&text).map_err(io::Error::from)?)
    }

    /// Makes one object of the named parts. Removes the upload afterwards.
    pub(super) fn complete(
        &self,
        bucket: &str,
        id: Uuid,
        named: &[NamedPart],
        rule: OverwriteRule,
    ) -> Result<ObjectMetadata, DirectoryError> {
        let purpose = self.purpose(bucket, id)?;
        let upload = self.upload_directory(bucket, id)?;
        let path = self.path(bucket, &purpose.key)?;
        let parts = check_parts(&upload, named)?;
        let meta = ObjectMetadata {
            tag: format!("{}-{}", Uuid::new_v4(), parts.len()),
            sha256: digest_of_digests(&parts),
            crc64: joined_crc64(&parts),
            ..purpose.meta
        };
        // An abandoned request may still write a part. The common file must not become the object then, so the parts
        // are copied.
        let upload_lock = self.in_place_writes.lock_upload(&upload);
        if let (Some(length), Some(_)) = (length_in_place(&parts), &upload_lock) {
            self.finish_in_place(&upload, length, &meta, &path, rule)?;
            // The object keeps its own length reserved in the quota; the excess of the parts is released.
            let reserved = reserved_bytes(&upload)?;
            fs::remove_dir_all(&upload)?;
            self.quota.release(reserved.saturating_sub(length));
            return Ok(meta);
        }
        let mut draft = self.draft()?;
        for part in parts {
            draft.reserve(part.size)?;
            // `io::copy` lets the kernel copy, where the file system can.
            io::copy(&mut part.bytes()?, &mut draft.file)?;
        }
        self.publish(draft, &meta, &path, rule)?;
        // The upload is removed after the object has its name: a crash in between leaves an upload that can be
        // completed again.
        self.remove_upload(bucket, id)?;
        Ok(meta)
    }

    /// Completes an upload whose common file holds exactly the object: seals it and gives it its name.
    fn finish_in_place(
        &self,
        upload: &Path,
        length: u64,
        meta: &ObjectMetadata,
        path: &Path,
        rule: OverwriteRule,
    ) -> Result<(), DirectoryError> {
        let body = part::parts_file(upload);
        let mut file = fs::File::options().write(true).open(&body)?;
        // After the object the file may contain parts that were not named, or bytes of a failed attempt.
        file.set_len(length)?;
        file.seek(SeekFrom::End(0))?;
        let tail = record::seal_record(&mut file, meta)?;
        let mut tail_draft = self.range(file, None);
        tail_draft.reserve(tail)?;
        self.assign_name(&body, path, rule)?;
        tail_draft.keep();
        Ok(())
    }

    /// Removes an upload with its parts, and releases their space.
    pub(super) fn remove_upload(&self, bucket: &str, id: Uuid) -> Result<(), DirectoryError> {
        let directory = self.upload_directory(bucket, id)?;
        let reserved = reserved_bytes(&directory)?;
        fs::remove_dir_all(&directory)?;
        self.quota.release(reserved);
        Ok(())
    }

    /// Lists every upload of the bucket that was not completed, by key.
    pub(super) fn unfinished(&self, bucket: &str) -> Result<Vec<UnfinishedUpload>, DirectoryError> {
        self.check_bucket(bucket)?;
        let read = match fs::read_dir(self.layout.bucket_uploads(bucket)) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let mut uploads = Vec::new();
        for entry in read {
            let entry = entry?;
            let id = entry.file_name();
            let Some(id) = id.to_str().and_then(|id| Uuid::parse_str(id).ok()) else {
                continue;
            };
            // The upload was completed or aborted meanwhile.
            let Ok(purpose) = self.purpose(bucket, id) else {
                continue;
            };
            let started = fs::metadata(entry.path().join("upload"))?.modified()?;
            uploads.push(UnfinishedUpload {
                id,
                key: purpose.key,
                started,
            });
        }
        uploads.sort_by(|left, right| (&left.key, left.id).cmp(&(&right.key, right.id)));
        Ok(uploads)
    }

    /// Path of the directory of an open upload.
    pub(super) fn upload_directory(
        &self,
        bucket: &str,
        id: Uuid,
    ) -> Result<PathBuf, DirectoryError> {
        let directory = self.layout.upload(bucket, id);
        if directory.is_dir() {
            Ok(directory)
        } else {
            Err(DirectoryError::NoSuchUpload)
        }
    }
}

/// Bytes that all parts of an upload have reserved in the quota.
fn reserved_bytes(upload: &Path) -> io::Result<u64> {
    let mut reserved = 0;
    for entry in fs::read_dir(upload)? {
        reserved += part::reserved_by(&entry?.path())?;
    }
    Ok(reserved)
}

/// Looks up the parts and compares them with the values that the sender gave.
fn check_parts(upload: &Path, named: &[NamedPart]) -> Result<Vec<StoredPart>, DirectoryError> {
    if named.is_empty() {
        return Err(DirectoryError::InvalidPart);
    }
    if !named.is_sorted_by(|earlier, later| earlier.number < later.number) {
        return Err(DirectoryError::InvalidPartOrder);
    }
    let mut parts = Vec::with_capacity(named.len());
    for (index, expected) in named.iter().enumerate() {
        let part = StoredPart::find(upload, expected.number)?;
        let same_tag = expected
            .tag
            .as_ref()
            .is_none_or(|tag| *tag == part.meta.tag);
        // Senders may omit checksums, but given ones must match.
        let same =
            |named: &Option<String>, stored: &Option<String>| named.is_none() || named == stored;
        if !same_tag
            || !same(&expected.sha256, &part.meta.sha256)
            || !same(&expected.crc64, &part.meta.crc64)
        {
            return Err(DirectoryError::InvalidPart);
        }
        if part.size < MIN_PART_BYTES && index + 1 < named.len() {
            return Err(DirectoryError::TooSmall);
        }
        parts.push(part);
    }
    Ok(parts)
}

/// Length of the object, when the common file holds exactly the named parts, one after the other.
fn length_in_place(parts: &[StoredPart]) -> Option<u64> {
    let mut end = 0;
    for part in parts {
        // There is a gap, another order, or a part in a separate file: the parts have to be copied.
        if part.offset != Some(end) {
            return None;
        }
        end += part.size;
    }
    Some(end)
}

/// The composite checksum of S3 (digest of digests, and their number), when every part has one.
fn digest_of_digests(parts: &[StoredPart]) -> Option<String> {
    let mut digests = Sha256::new();
    for part in parts {
        digests.update(checksum::sha256_from_header(part.meta.sha256.as_ref()?)?.as_bytes());
    }
    let digest = STANDARD.encode(digests.finalize());
    Some(format!("{digest}-{}", parts.len()))
}

/// The checksum of the whole object, when every part has one.
fn joined_crc64(parts: &[StoredPart]) -> Option<String> {
    let mut whole = Crc64::default();
    for part in parts {
        whole = whole.then(Crc64::from_header(part.meta.crc64.as_ref()?, part.size)?);
    }
    Some(whole.to_header())
}
