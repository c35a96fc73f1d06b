//! Requests on objects: put, get, head, copy, list.

use std::collections::HashMap;

use s3s::dto::{
    Checksum, CopyObjectInput, CopyObjectOutput, CopyObjectResult, CopySource, ETag, ETagCondition,
    GetObjectInput, GetObjectOutput, HeadObjectInput, HeadObjectOutput, ListObjectsV2Input,
    ListObjectsV2Output, MetadataDirective, Object, PutObjectInput, PutObjectOutput, Timestamp,
};
use s3s::{S3Request, S3Response};
use uuid::Uuid;

use super::super::directory::{OverwriteRule, ServedDirectory};
use super::super::error::DirectoryError;
use super::super::incoming::{AnnouncedBody, receive_body};
use super::super::listing::ListRequest;
use super::super::outgoing;
use super::super::record::{ObjectMetadata, ObjectRecord};
use super::{ApiResponse, S3Api, overwrite_rule, trailer_algorithm};

impl S3Api {
    pub(super) async fn put(
        &self,
        request: S3Request<PutObjectInput>,
    ) -> ApiResponse<PutObjectOutput> {
        let algorithm = trailer_algorithm(&request);
        let input = request.input;
        let rule = overwrite_rule(input.if_none_match.as_ref(), input.if_match.is_some())?;
        let (bucket, key) = (input.bucket.clone(), input.key.clone());
        let path = self
            .on_directory(move |directory| {
                directory.check_bucket(&bucket)?;
                let path = directory.path(&bucket, &key)?;
                // The rule is checked again when the object gets its name; this saves sending the body.
                if rule == OverwriteRule::Free && path.exists() {
                    return Err(DirectoryError::Precondition);
                }
                Ok(path)
            })
            .await?;
        let announced = AnnouncedBody {
            md5: input.content_md5,
            checksum: Checksum {
                checksum_crc32: input.checksum_crc32,
                checksum_crc32c: input.checksum_crc32c,
                checksum_sha1: input.checksum_sha1,
                checksum_sha256: input.checksum_sha256,
                checksum_crc64nvme: input.checksum_crc64nvme,
                ..Checksum::default()
            },
            trailers: request.trailing_headers,
            algorithm,
        };
        let draft = self
            .on_directory(|directory| Ok(directory.draft()?))
            .await?;
        let received = receive_body(draft, input.body, announced).await?;
        let checksum = received.checksum;
        let meta = ObjectMetadata {
            tag: Uuid::new_v4().to_string(),
            sha256: checksum.checksum_sha256.clone(),
            crc64: checksum.checksum_crc64nvme.clone(),
            content_type: input.content_type,
            metadata: input.metadata.unwrap_or_default(),
        };
        let tag = meta.tag.clone();
        self.on_directory(move |directory| directory.publish(received.draft, &meta, &path, rule))
            .await?;
        Ok(S3Response::new(PutObjectOutput {
            e_tag: Some(ETag::Strong(tag)),
            checksum_crc32: checksum.checksum_crc32,
            checksum_crc32c: checksum.checksum_crc32c,
            checksum_sha1: checksum.checksum_sha1,
            checksum_sha256: checksum.checksum_sha256,
            checksum_crc64nvme: checksum.checksum_crc64nvme,
            ..PutObjectOutput::default()
        }))
    }

    pub(super) async fn get(
        &self,
        request: S3Request<GetObjectInput>,
    ) -> ApiResponse<GetObjectOutput> {
        let input = request.input;
        let record = self
            .on_directory(move |directory| directory.open_object(&input.bucket, &input.key))
            .await?;
        if !matches_etag(input.if_match.as_ref(), &record) {
            return Err(DirectoryError::Precondition.into());
        }
        let (start, length, range) = match input.range {
            None => (0, record.size, None),
            Some(range) => {
                let range = range
                    .check(record.size)
                    .map_err(|_| DirectoryError::Range)?;
                let range_header =
                    format!("bytes {}-{}/{}", range.start, range.end - 1, record.size);
                (range.start, range.end - range.start, Some(range_header))
            }
        };
        // The checksums cover the complete object, so they are left out of a response with a range.
        let is_whole = range.is_none() && input.checksum_mode.is_some();
        Ok(S3Response::new(GetObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            checksum_sha256: record.meta.sha256.clone().filter(|_| is_whole),
            checksum_crc64nvme: record.meta.crc64.clone().filter(|_| is_whole),
            content_length: i64::try_from(length).ok(),
            content_range: range,
            content_type: record.meta.content_type.clone(),
            e_tag: Some(ETag::Strong(record.meta.tag.clone())),
            last_modified: Some(Timestamp::from(record.modified)),
            metadata: metadata_of(&record.meta),
            body: Some(outgoing::file_body(record.file, start, length)),
            ..GetObjectOutput::default()
        }))
    }

    pub(super) async fn head(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> ApiResponse<HeadObjectOutput> {
        let input = request.input;
        let record = self
            .on_directory(move |directory| directory.open_object(&input.bucket, &input.key))
            .await?;
        if !matches_etag(input.if_match.as_ref(), &record) {
            return Err(DirectoryError::Precondition.into());
        }
        Ok(S3Response::new(HeadObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            metadata: metadata_of(&record.meta),
            checksum_sha256: record.meta.sha256.filter(|_| input.checksum_mode.is_some()),
            checksum_crc64nvme: record.meta.crc64.filter(|_| input.checksum_mode.is_some()),
            content_length: i64::try_from(record.size).ok(),
            content_type: record.meta.content_type,
            e_tag: Some(ETag::Strong(record.meta.tag)),
            last_modified: Some(Timestamp::from(record.modified)),
            ..HeadObjectOutput::default()
        }))
    }

    pub(super) async fn copy(
        &self,
        request: S3Request<CopyObjectInput>,
    ) -> ApiResponse<CopyObjectOutput> {
        // The DTO of the protocol library has no field for this condition of copies yet.
        let if_none_match = request.headers.get(http::header::IF_NONE_MATCH);
        let if_none_match = if_none_match
            .map(|value| ETagCondition::parse_http_header(value.as_bytes()))
            .transpose()
            .map_err(|_| DirectoryError::Invalid("if-none-match"))?;
        let input = request.input;
        let CopySource::Bucket {
            bucket: from_bucket,
            key: from_key,
            ..
        } = input.copy_source
        else {
            return Err(DirectoryError::NotOffered("a copy from an access point").into());
        };
        let rule = overwrite_rule(if_none_match.as_ref(), false)?;
        let replaces = input
            .metadata_directive
            .is_some_and(|directive| directive.as_str() == MetadataDirective::REPLACE);
        // A copy onto itself is how clients renew a lifetime.
        let is_itself = *from_bucket == *input.bucket && *from_key == *input.key;
        if replaces && !is_itself {
            return Err(DirectoryError::NotOffered("replacing metadata of a copy").into());
        }
        let condition = input.copy_source_if_match;
        let record = self
            .on_directory(move |directory| {
                let record = directory.open_object(&from_bucket, &from_key)?;
                if !matches_etag(condition.as_ref(), &record) {
                    return Err(DirectoryError::Precondition);
                }
                directory.check_bucket(&input.bucket)?;
                let from = directory.path(&from_bucket, &from_key)?;
                let to = directory.path(&input.bucket, &input.key)?;
                if !is_itself {
                    // No bytes are moved: both names lead to the same file.
                    directory.link(&from, &to, rule)?;
                } else if rule == OverwriteRule::Free {
                    return Err(DirectoryError::Precondition);
                } else if replaces {
                    ServedDirectory::touch(&to)?;
                } else {
                    return Err(DirectoryError::Invalid(
                        "a copy onto itself must change something",
                    ));
                }
                directory.open_object(&input.bucket, &input.key)
            })
            .await?;
        Ok(S3Response::new(CopyObjectOutput {
            copy_object_result: Some(CopyObjectResult {
                checksum_sha256: record.meta.sha256,
                checksum_crc64nvme: record.meta.crc64,
                e_tag: Some(ETag::Strong(record.meta.tag)),
                last_modified: Some(Timestamp::from(record.modified)),
                ..CopyObjectResult::default()
            }),
            ..CopyObjectOutput::default()
        }))
    }

    pub(super) async fn list(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> ApiResponse<ListObjectsV2Output> {
        let input = request.input;
        if input.delimiter.is_some() {
            return Err(DirectoryError::NotOffered("a list by delimiter").into());
        }
        let limit = input.max_keys.unwrap_or(1000).clamp(0, 1000);
        let (bucket, prefix) = (
            input.bucket.clone(),
            input.prefix.clone().unwrap_or_default(),
        );
        let after = input
            .continuation_token
            .clone()
            .or(input.start_after.clone());
        // The token is the last key, so a list continues correctly when objects are added or removed.
        let (objects, is_truncated) = self
            .on_directory(move |directory| {
                let list_request = ListRequest {
                    prefix: &prefix,
                    after: after.as_deref(),
                    limit: usize::try_from(limit).unwrap_or_default(),
                };
                directory.list(&bucket, list_request)
            })
            .await?;
        let next = objects
            .last()
            .filter(|_| is_truncated)
            .map(|last| last.key.clone());
        let contents: Vec<_> = objects
            .into_iter()
            .map(|listed| Object {
                key: Some(listed.key),
                size: i64::try_from(listed.size).ok(),
                e_tag: Some(ETag::Strong(listed.tag)),
                last_modified: Some(Timestamp::from(listed.modified)),
                ..Object::default()
            })
            .collect();
        Ok(S3Response::new(ListObjectsV2Output {
            key_count: i32::try_from(contents.len()).ok(),
            contents: Some(contents),
            is_truncated: Some(next.is_some()),
            next_continuation_token: next,
            continuation_token: input.continuation_token,
            max_keys: Some(limit),
            name: Some(input.bucket),
            prefix: input.prefix,
            start_after: input.start_after,
            ..ListObjectsV2Output::default()
        }))
    }
}

pub(super) fn matches_etag(condition: Option<&ETagCondition>, record: &ObjectRecord) -> bool {
    match condition {
        None | Some(ETagCondition::Any) => true,
        Some(ETagCondition::ETag(tag)) => tag.value() == record.meta.tag,
    }
}

fn metadata_of(meta: &ObjectMetadata) -> Option<HashMap<String, String>> {
    (!meta.metadata.is_empty()).then(|| meta.metadata.clone())
}
