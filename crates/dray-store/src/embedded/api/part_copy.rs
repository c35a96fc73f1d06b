//! Requests that make a part of an upload from a range of an object.

use std::io::{Read as _, Seek as _, SeekFrom, Write as _};

use bytes::Bytes;
use s3s::dto::{CopyPartResult, CopySource, ETag, UploadPartCopyInput, UploadPartCopyOutput};
use s3s::{S3Request, S3Response};
use uuid::Uuid;

use super::super::directory::ServedDirectory;
use super::super::error::DirectoryError;
use super::super::record::{ObjectMetadata, ObjectRecord};
use super::object::matches_etag;
use super::upload::{check_key, upload_id};
use super::{ApiResponse, S3Api};
use crate::checksum::Crc64;

/// Bytes that are read, summed and written in one step.
const COPY_CHUNK_BYTES: u64 = 256 << 10;

impl S3Api {
    pub(super) async fn copy_part(
        &self,
        request: S3Request<UploadPartCopyInput>,
    ) -> ApiResponse<UploadPartCopyOutput> {
        let input = request.input;
        let CopySource::Bucket {
            bucket: from_bucket,
            key: from_key,
            ..
        } = input.copy_source
        else {
            return Err(DirectoryError::NotOffered("a copy from an access point").into());
        };
        let id = upload_id(&input.upload_id)?;
        let meta = self
            .on_directory(move |directory| {
                check_key(&directory.purpose(&input.bucket, id)?, &input.key)?;
                let source = directory.open_object(&from_bucket, &from_key)?;
                if !matches_etag(input.copy_source_if_match.as_ref(), &source) {
                    return Err(DirectoryError::Precondition);
                }
                let (start, length) = match &input.copy_source_range {
                    None => (0, source.size),
                    Some(range) => read_range(range, source.size).ok_or(DirectoryError::Range)?,
                };
                let upload = directory.upload_directory(&input.bucket, id)?;
                write_part(directory, &upload, input.part_number, source, start, length)
            })
            .await?;
        Ok(S3Response::new(UploadPartCopyOutput {
            copy_part_result: Some(CopyPartResult {
                checksum_crc64nvme: meta.crc64,
                e_tag: Some(ETag::Strong(meta.tag)),
                ..CopyPartResult::default()
            }),
            ..UploadPartCopyOutput::default()
        }))
    }
}

fn write_part(
    directory: &ServedDirectory,
    upload: &std::path::Path,
    number: i32,
    source: ObjectRecord,
    start: u64,
    length: u64,
) -> Result<ObjectMetadata, DirectoryError> {
    let (mut draft, slot) = directory.slot(upload, number, Some(length))?;
    draft.reserve(length)?;
    let mut file = source.file;
    file.seek(SeekFrom::Start(start))?;
    let mut remaining = length;
    let mut sum = Crc64::default();
    while remaining > 0 {
        let count = remaining.min(COPY_CHUNK_BYTES);
        let mut chunk = vec![0; usize::try_from(count).unwrap_or_default()];
        file.read_exact(&mut chunk)?;
        draft.file.write_all(&chunk)?;
        sum = sum.then(Crc64::of(&[Bytes::from(chunk)]));
        remaining -= count;
    }
    let meta = ObjectMetadata {
        tag: Uuid::new_v4().to_string(),
        crc64: Some(sum.to_header()),
        ..ObjectMetadata::default()
    };
    directory.add_part(upload, &slot, draft, meta.clone())?;
    Ok(meta)
}

/// Reads `bytes=FIRST-LAST`, the only form that S3 accepts here, and returns offset and length.
fn read_range(range: &str, size: u64) -> Option<(u64, u64)> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last && last < size).then(|| (first, last - first + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_must_lie_in_the_object() {
        assert_eq!(read_range("bytes=0-9", 10), Some((0, 10)));
        assert_eq!(read_range("bytes=3-3", 10), Some((3, 1)));
        for wrong in ["bytes=0-10", "bytes=4-3", "bytes=4-", "bytes=-3", "0-3", ""] {
            assert_eq!(read_range(wrong, 10), None, "{wrong}");
        }
    }
}
