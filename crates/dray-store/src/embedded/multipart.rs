//! Uploads in parts: a folder per upload, a file per part, one object at the end. Blocks on the file system.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::error::Failure;
use super::folder::{Draft, Folder, Place};
use super::record::{Meta, Record};
use crate::object;

/// Smallest part but the last (S3).
const SMALLEST: u64 = 5 << 20;

/// What an upload is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Purpose {
    pub(super) key: String,
    pub(super) meta: Meta,
}

/// A part as the sender names it when the upload is completed.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) number: i32,
    pub(super) tag: Option<String>,
    pub(super) sha256: Option<String>,
}

/// An upload that was not completed.
#[derive(Debug)]
pub(super) struct Unfinished {
    pub(super) id: Uuid,
    pub(super) key: String,
    pub(super) started: SystemTime,
}

impl Folder {
    /// Opens an upload.
    pub(super) fn start_upload(&self, bucket: &str, purpose: &Purpose) -> Result<Uuid, Failure> {
        self.check_bucket(bucket)?;
        self.path(bucket, &purpose.key)?;
        let id = Uuid::new_v4();
        let folder = self.layout.upload(bucket, id);
        fs::create_dir_all(&folder)?;
        let text = serde_json::to_vec(purpose).map_err(io::Error::from)?;
        fs::write(folder.join("upload"), text)?;
        Ok(id)
    }

    /// Puts a part in its place; a part with the same number before goes.
    pub(super) fn add_part(
        &self,
        bucket: &str,
        id: Uuid,
        number: i32,
        draft: Draft,
        meta: &Meta,
    ) -> Result<(), Failure> {
        if !(1..=10_000).contains(&number) {
            return Err(Failure::Invalid("part numbers are 1 to 10000"));
        }
        let folder = self.upload_folder(bucket, id)?;
        self.publish(draft, meta, &part(&folder, number), Place::Any)
    }

    /// What the upload is for, when it is one.
    pub(super) fn purpose(&self, bucket: &str, id: Uuid) -> Result<Purpose, Failure> {
        let folder = self.upload_folder(bucket, id)?;
        let text = fs::read(folder.join("upload"))?;
        Ok(serde_json::from_slice(&text).map_err(io::Error::from)?)
    }

    /// Makes one object of the named parts. The upload is gone afterwards.
    pub(super) fn complete(
        &self,
        bucket: &str,
        id: Uuid,
        parts: &[Named],
        place: Place,
    ) -> Result<Meta, Failure> {
        let purpose = self.purpose(bucket, id)?;
        let folder = self.layout.upload(bucket, id);
        let path = self.path(bucket, &purpose.key)?;
        if parts.is_empty() {
            return Err(Failure::InvalidPart);
        }
        let mut draft = self.draft()?;
        let mut digests = Sha256::new();
        let mut before = 0;
        for (index, named) in parts.iter().enumerate() {
            if named.number <= before {
                return Err(Failure::InvalidPartOrder);
            }
            before = named.number;
            let record = check_part(&folder, named)?;
            if record.size < SMALLEST && index + 1 < parts.len() {
                return Err(Failure::TooSmall);
            }
            let digest = object::from_header(&record.meta.sha256).ok_or(Failure::InvalidPart)?;
            digests.update(digest.as_bytes());
            draft.reserve(record.size)?;
            // In the kernel, where the file system can.
            io::copy(&mut record.file.take(record.size), &mut draft.file)?;
        }
        let digests = digests.finalize();
        let meta = Meta {
            tag: format!("{}-{}", hex(&digests), parts.len()),
            sha256: format!("{}-{}", STANDARD.encode(digests), parts.len()),
            ..purpose.meta
        };
        self.publish(draft, &meta, &path, place)?;
        self.remove_upload(bucket, id)?;
        Ok(meta)
    }

    /// Removes an upload with its parts.
    pub(super) fn remove_upload(&self, bucket: &str, id: Uuid) -> Result<(), Failure> {
        let folder = self.upload_folder(bucket, id)?;
        let mut freed = 0;
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_name() != "upload" {
                freed += entry.metadata()?.len();
            }
        }
        fs::remove_dir_all(&folder)?;
        self.room.give(freed);
        Ok(())
    }

    /// Every upload of the bucket that was not completed, by key.
    pub(super) fn unfinished(&self, bucket: &str) -> Result<Vec<Unfinished>, Failure> {
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
            // Completed or aborted meanwhile.
            let Ok(purpose) = self.purpose(bucket, id) else {
                continue;
            };
            let started = fs::metadata(entry.path().join("upload"))?.modified()?;
            uploads.push(Unfinished {
                id,
                key: purpose.key,
                started,
            });
        }
        uploads.sort_by(|one, other| (&one.key, one.id).cmp(&(&other.key, other.id)));
        Ok(uploads)
    }

    fn upload_folder(&self, bucket: &str, id: Uuid) -> Result<PathBuf, Failure> {
        let folder = self.layout.upload(bucket, id);
        if folder.is_dir() {
            Ok(folder)
        } else {
            Err(Failure::NoSuchUpload)
        }
    }
}

fn part(folder: &Path, number: i32) -> PathBuf {
    folder.join(format!("part-{number}"))
}

/// Opens a part and compares it with how the sender names it.
fn check_part(folder: &Path, named: &Named) -> Result<Record, Failure> {
    let record = match Record::open(&part(folder, named.number)) {
        Err(Failure::NoSuchKey) => return Err(Failure::InvalidPart),
        opened => opened?,
    };
    let same_tag = named.tag.as_ref().is_none_or(|tag| *tag == record.meta.tag);
    let same_sum = named
        .sha256
        .as_ref()
        .is_none_or(|sha256| *sha256 == record.meta.sha256);
    if same_tag && same_sum {
        Ok(record)
    } else {
        Err(Failure::InvalidPart)
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let written = write!(text, "{byte:02x}");
        debug_assert!(written.is_ok());
        text
    })
}
