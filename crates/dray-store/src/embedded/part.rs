//! Parts of uploads. All functions block on the file system.
//!
//! Most uploads send parts of one size, in order: these are written to their final offsets in one common file, and
//! completing the upload copies no bytes. A part of another size or position, or a part that is sent again, gets a
//! separate file.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Take};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::directory::{ObjectDraft, OverwriteRule, ServedDirectory};
use super::error::DirectoryError;
use super::private;
use super::record::{ObjectMetadata, ObjectRecord};

/// The parts that are being written in place. No other task writes to these parts, and no object is made of a file that
/// is still being written.
#[derive(Clone, Debug, Default)]
pub(super) struct InPlaceWrites(Arc<Mutex<HashSet<(PathBuf, i32)>>>);

/// The right to write one part in place, or the complete common file of an upload.
#[derive(Debug)]
pub(super) struct WriteLock {
    writes_in_place: InPlaceWrites,
    /// Directory of the upload, and number of the part or [`WHOLE_UPLOAD`].
    locked_part: (PathBuf, i32),
}

/// Number for all parts of an upload together; part numbers begin with 1.
const WHOLE_UPLOAD: i32 = 0;

/// Record of a part that was written in place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PlacedPart {
    size: u64,
    offset: u64,
    meta: ObjectMetadata,
}

/// A part that was received completely.
#[derive(Debug)]
pub(super) struct StoredPart {
    pub(super) meta: ObjectMetadata,
    pub(super) size: u64,
    /// The part's offset in the common file, if it is there.
    pub(super) offset: Option<u64>,
    /// Opened only when needed, because an upload may have thousands of parts.
    file: PathBuf,
}

/// Path of the common file, with all parts that are in place.
pub(super) fn parts_file(upload: &Path) -> PathBuf {
    upload.join("body")
}

fn own_file(upload: &Path, number: i32) -> PathBuf {
    upload.join(format!("part-{number}"))
}

fn placed_record(upload: &Path, number: i32) -> PathBuf {
    upload.join(format!("placed-{number}"))
}

impl InPlaceWrites {
    /// The right to write a part in place; `None` when another task has it, the part exists, or the upload is being
    /// completed.
    fn lock_part(&self, upload: &Path, number: i32) -> Option<WriteLock> {
        let mut writes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A part that is sent again must not overwrite acknowledged bytes, so it gets a separate file.
        let is_there = own_file(upload, number).exists() || placed_record(upload, number).exists();
        if is_there || writes.contains(&(upload.to_owned(), WHOLE_UPLOAD)) {
            return None;
        }
        let locked_part = (upload.to_owned(), number);
        writes.insert(locked_part.clone()).then(|| WriteLock {
            writes_in_place: self.clone(),
            locked_part,
        })
    }

    /// The right to use the complete common file; `None` while a part of it is being written.
    pub(super) fn lock_upload(&self, upload: &Path) -> Option<WriteLock> {
        let mut writes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if writes.iter().any(|(busy, _)| busy == upload) {
            return None;
        }
        let locked_part = (upload.to_owned(), WHOLE_UPLOAD);
        writes.insert(locked_part.clone());
        Some(WriteLock {
            writes_in_place: self.clone(),
            locked_part,
        })
    }
}

impl Drop for WriteLock {
    fn drop(&mut self) {
        let mut writes = self
            .writes_in_place
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        writes.remove(&self.locked_part);
    }
}

/// The place where a part is written until it is checked.
#[derive(Debug)]
pub(super) struct PartSlot {
    number: i32,
    /// Offset and length of a part in place; `None` for a part in a separate file.
    placed: Option<(u64, u64)>,
}

impl ServedDirectory {
    /// Selects the position of a part of `length` bytes, if the length is known.
    pub(super) fn slot(
        &self,
        upload: &Path,
        number: i32,
        length: Option<u64>,
    ) -> Result<(ObjectDraft, PartSlot), DirectoryError> {
        if !(1..=10_000).contains(&number) {
            return Err(DirectoryError::Invalid("part numbers are 1 to 10000"));
        }
        if let Some(length) = length.filter(|length| *length > 0) {
            let stride = part_stride(upload, length)?;
            // A part that is longer than the first one would overlap the next part.
            if length <= stride
                && let Some(write_lock) = self.in_place_writes.lock_part(upload, number)
            {
                let before = u64::try_from(number - 1).unwrap_or_default();
                let offset = before.saturating_mul(stride);
                let mut file = private::private_options()
                    .write(true)
                    .create(true)
                    .truncate(false)
                    .open(parts_file(upload))?;
                file.seek(SeekFrom::Start(offset))?;
                let placed = Some((offset, length));
                return Ok((
                    self.range(file, Some(write_lock)),
                    PartSlot { number, placed },
                ));
            }
        }
        let slot = PartSlot {
            number,
            placed: None,
        };
        Ok((self.draft()?, slot))
    }

    /// Adds a received part to the upload. It replaces an earlier one with the same number.
    pub(super) fn add_part(
        &self,
        upload: &Path,
        slot: &PartSlot,
        draft: ObjectDraft,
        meta: ObjectMetadata,
    ) -> Result<(), DirectoryError> {
        let own = own_file(upload, slot.number);
        let record = placed_record(upload, slot.number);
        // The separate file is published first: until the old record is removed, both have the same number, and `find`
        // prefers the separate file.
        let Some((offset, length)) = slot.placed else {
            self.publish(draft, &meta, &own, OverwriteRule::Any)?;
            self.remove_placed(&record)?;
            return Ok(());
        };
        // With fewer bytes than announced, old bytes would follow them.
        if draft.written != length {
            return Err(DirectoryError::Incomplete);
        }
        let placed = PlacedPart {
            size: length,
            offset,
            meta,
        };
        let text = serde_json::to_vec(&placed).map_err(io::Error::from)?;
        // A record that a crash truncated does not parse, so the part counts as missing.
        private::write_private(&record, &text)?;
        draft.keep();
        Ok(())
    }

    fn remove_placed(&self, record: &Path) -> io::Result<()> {
        if let Some(placed) = read_placed(record)? {
            fs::remove_file(record)?;
            self.quota.release(placed.size);
        }
        Ok(())
    }
}

impl StoredPart {
    /// Finds a part by its number, in its own file or in the common one.
    pub(super) fn find(upload: &Path, number: i32) -> Result<Self, DirectoryError> {
        let own = own_file(upload, number);
        match ObjectRecord::open(&own) {
            Ok(record) => {
                return Ok(Self {
                    meta: record.meta,
                    size: record.size,
                    offset: None,
                    file: own,
                });
            }
            Err(DirectoryError::NoSuchKey) => {}
            Err(error) => return Err(error),
        }
        let placed =
            read_placed(&placed_record(upload, number))?.ok_or(DirectoryError::InvalidPart)?;
        Ok(Self {
            meta: placed.meta,
            size: placed.size,
            offset: Some(placed.offset),
            file: parts_file(upload),
        })
    }

    /// Opens the bytes of the part.
    pub(super) fn bytes(&self) -> io::Result<Take<File>> {
        let mut file = File::open(&self.file)?;
        file.seek(SeekFrom::Start(self.offset.unwrap_or_default()))?;
        Ok(file.take(self.size))
    }
}

/// Bytes that one file in the directory of an upload has reserved in the quota.
pub(super) fn reserved_by(path: &Path) -> io::Result<u64> {
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    if name.starts_with("part-") {
        return Ok(fs::metadata(path)?.len());
    }
    if name.starts_with("placed-") {
        return Ok(read_placed(path)?.map_or(0, |placed| placed.size));
    }
    Ok(0)
}

/// The size of the upload's parts, which is the size of the part that arrived first.
fn part_stride(upload: &Path, length: u64) -> Result<u64, DirectoryError> {
    let path = upload.join("stride");
    // `create_new` decides which part is the first, also between concurrent requests.
    match private::private_options()
        .write(true)
        .create_new(true)
        .open(&path)
    {
        Ok(mut file) => {
            io::Write::write_all(&mut file, &length.to_le_bytes())?;
            Ok(length)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            // The file has fewer than 8 bytes while the first part still writes it; no part is written in place then.
            let bytes = fs::read(&path)?;
            Ok(bytes.try_into().map_or(0, u64::from_le_bytes))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Err(DirectoryError::NoSuchUpload),
        Err(error) => Err(error.into()),
    }
}

fn read_placed(record: &Path) -> io::Result<Option<PlacedPart>> {
    match fs::read(record) {
        Ok(text) => Ok(serde_json::from_slice(&text).ok()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
