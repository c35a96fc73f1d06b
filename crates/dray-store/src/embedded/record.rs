//! The file of an object: its bytes, then its metadata, in one file that appears atomically.
//!
//! ```text
//! bytes | JSON | length of the JSON (4 bytes, little endian) | magic (8 bytes)
//! ```

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::error::DirectoryError;

const RECORD_MAGIC: &[u8; 8] = b"dray-o1\n";
/// Bytes of the length field and the magic.
const FOOTER_BYTES: u64 = 12;
/// Longest JSON in bytes; S3 allows 2 KiB of metadata.
const MAX_METADATA_BYTES: u32 = 64 << 10;

/// Metadata of an object, stored after its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ObjectMetadata {
    /// Entity tag, without quotes.
    pub(super) tag: String,
    /// `x-amz-checksum-sha256`, where the sender announced it: of the bytes, or of the parts' checksums with
    /// `-<parts>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sha256: Option<String>,
    /// `x-amz-checksum-crc64nvme` of the bytes, where the sender announced it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) crc64: Option<String>,
    /// Media type as the sender gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) content_type: Option<String>,
    /// The sender's `x-amz-meta-*` headers.
    #[serde(default, skip_serializing_if = "HashMap::is_empty")]
    pub(super) metadata: HashMap<String, String>,
}

/// An object that is open for reading.
#[derive(Debug)]
pub(super) struct ObjectRecord {
    pub(super) file: File,
    /// Size of the object in bytes, without its metadata.
    pub(super) size: u64,
    pub(super) meta: ObjectMetadata,
    pub(super) modified: SystemTime,
}

/// Appends the metadata to a file that ends with the object's bytes. Returns the number of bytes written.
pub(super) fn seal_record(file: &mut File, meta: &ObjectMetadata) -> io::Result<u64> {
    let mut tail = serde_json::to_vec(meta)?;
    let length =
        u32::try_from(tail.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    tail.extend_from_slice(&length.to_le_bytes());
    tail.extend_from_slice(RECORD_MAGIC);
    // The magic is written last: a truncated file is not an object.
    file.write_all(&tail)?;
    Ok(tail.len() as u64)
}

impl ObjectRecord {
    /// Opens the object, positioned at its first byte.
    pub(super) fn open(path: &Path) -> Result<Self, DirectoryError> {
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(DirectoryError::NoSuchKey);
            }
            Err(error) => return Err(error.into()),
        };
        let attributes = file.metadata()?;
        let (size, meta) = read_tail(&mut file, attributes.len())?;
        // Readers stream from here; a name that is replaced meanwhile does not affect the open file.
        file.seek(SeekFrom::Start(0))?;
        Ok(Self {
            file,
            size,
            meta,
            modified: attributes.modified()?,
        })
    }
}

fn read_tail(file: &mut File, length: u64) -> io::Result<(u64, ObjectMetadata)> {
    let broken = || io::Error::new(io::ErrorKind::InvalidData, "not an object's file");
    let before_footer = length.checked_sub(FOOTER_BYTES).ok_or_else(broken)?;
    file.seek(SeekFrom::Start(before_footer))?;
    let (mut json_length, mut magic) = ([0; 4], [0; 8]);
    file.read_exact(&mut json_length)?;
    file.read_exact(&mut magic)?;
    let json_length = u32::from_le_bytes(json_length);
    // The length is checked before a buffer of this length is allocated.
    if magic != *RECORD_MAGIC || json_length > MAX_METADATA_BYTES {
        return Err(broken());
    }
    let size = before_footer
        .checked_sub(u64::from(json_length))
        .ok_or_else(broken)?;
    file.seek(SeekFrom::Start(size))?;
    let mut json = Vec::new();
    file.take(u64::from(json_length)).read_to_end(&mut json)?;
    Ok((size, serde_json::from_slice(&json)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_file_has_size_and_metadata_and_a_truncated_one_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("object");
        let meta = ObjectMetadata {
            tag: "t".to_owned(),
            sha256: Some("s".to_owned()),
            crc64: None,
            content_type: Some("text/plain".to_owned()),
            metadata: HashMap::from([("k".to_owned(), "v".to_owned())]),
        };
        let mut file = File::create(&path).unwrap();
        file.write_all(b"hello").unwrap();
        seal_record(&mut file, &meta).unwrap();

        let mut record = ObjectRecord::open(&path).unwrap();
        assert_eq!((record.size, &record.meta), (5, &meta));
        let mut start = [0; 5];
        record.file.read_exact(&mut start).unwrap();
        assert_eq!(&start, b"hello");

        let whole = std::fs::read(&path).unwrap();
        for cut in 0..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            assert!(
                matches!(ObjectRecord::open(&path), Err(DirectoryError::Io(_))),
                "{cut}"
            );
        }
    }
}
