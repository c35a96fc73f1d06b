//! The requests of S3 that the endpoint answers: reads them, lets the folder act, writes the answers.

use std::collections::HashMap;
use std::sync::Arc;

use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, Checksum, CompleteMultipartUploadInput,
    CompleteMultipartUploadOutput, CopyObjectInput, CopyObjectOutput, CopyObjectResult, CopySource,
    CreateBucketInput, CreateBucketOutput, CreateMultipartUploadInput, CreateMultipartUploadOutput,
    DeleteObjectInput, DeleteObjectOutput, ETag, ETagCondition, GetObjectInput, GetObjectOutput,
    HeadBucketInput, HeadBucketOutput, HeadObjectInput, HeadObjectOutput,
    ListMultipartUploadsInput, ListMultipartUploadsOutput, ListObjectsV2Input, ListObjectsV2Output,
    MetadataDirective, MultipartUpload, Object, PutObjectInput, PutObjectOutput, Timestamp,
    UploadPartInput, UploadPartOutput,
};
use s3s::{S3, S3Request, S3Response, S3Result};
use uuid::Uuid;

use super::error::Failure;
use super::folder::{Folder, Place};
use super::incoming::{Announced, blocking, receive};
use super::listing::Wanted;
use super::multipart::{Named, Purpose};
use super::outgoing;
use super::record::{Meta, Record};

/// The folder behind the protocol.
#[derive(Debug)]
pub(super) struct Api {
    folder: Arc<Folder>,
}

impl Api {
    pub(super) fn new(folder: Arc<Folder>) -> Self {
        Self { folder }
    }

    /// Runs an operation of the folder where it may block.
    async fn on_folder<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Folder) -> Result<T, Failure> + Send + 'static,
    ) -> S3Result<T> {
        let folder = Arc::clone(&self.folder);
        Ok(blocking(move || work(&folder)).await?)
    }
}

type Answer<T> = S3Result<S3Response<T>>;

#[async_trait::async_trait]
impl S3 for Api {
    async fn create_bucket(
        &self,
        request: S3Request<CreateBucketInput>,
    ) -> Answer<CreateBucketOutput> {
        let bucket = request.input.bucket;
        self.on_folder(move |folder| {
            if folder.create_bucket(&bucket)? {
                Ok(())
            } else {
                Err(Failure::BucketExists)
            }
        })
        .await?;
        Ok(S3Response::new(CreateBucketOutput::default()))
    }

    async fn head_bucket(&self, request: S3Request<HeadBucketInput>) -> Answer<HeadBucketOutput> {
        let bucket = request.input.bucket;
        self.on_folder(move |folder| folder.check_bucket(&bucket))
            .await?;
        Ok(S3Response::new(HeadBucketOutput::default()))
    }

    async fn put_object(&self, request: S3Request<PutObjectInput>) -> Answer<PutObjectOutput> {
        let algorithm = trailer_algorithm(&request);
        let input = request.input;
        let place = place(input.if_none_match.as_ref(), input.if_match.is_some())?;
        let (bucket, key) = (input.bucket.clone(), input.key.clone());
        let path = self
            .on_folder(move |folder| {
                folder.check_bucket(&bucket)?;
                let path = folder.path(&bucket, &key)?;
                // Said again when the object is named; this saves sending the body.
                if place == Place::Free && path.exists() {
                    return Err(Failure::Precondition);
                }
                Ok(path)
            })
            .await?;
        let announced = Announced {
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
        let draft = self.on_folder(|folder| Ok(folder.draft()?)).await?;
        let received = receive(draft, input.body, announced).await?;
        let checksum = received.checksum;
        let meta = Meta {
            tag: received.sha256.to_hex(),
            sha256: checksum.checksum_sha256.clone().unwrap_or_default(),
            content_type: input.content_type,
            metadata: input.metadata.unwrap_or_default(),
        };
        let tag = meta.tag.clone();
        self.on_folder(move |folder| folder.publish(received.draft, &meta, &path, place))
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

    async fn get_object(&self, request: S3Request<GetObjectInput>) -> Answer<GetObjectOutput> {
        let input = request.input;
        let record = self
            .on_folder(move |folder| folder.open_object(&input.bucket, &input.key))
            .await?;
        if !matches(input.if_match.as_ref(), &record) {
            return Err(Failure::Precondition.into());
        }
        let (start, length, range) = match input.range {
            None => (0, record.size, None),
            Some(range) => {
                let range = range.check(record.size).map_err(|_| Failure::Range)?;
                let shown = format!("bytes {}-{}/{}", range.start, range.end - 1, record.size);
                (range.start, range.end - range.start, Some(shown))
            }
        };
        let is_whole = range.is_none() && input.checksum_mode.is_some();
        Ok(S3Response::new(GetObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            checksum_sha256: is_whole.then(|| record.meta.sha256.clone()),
            content_length: i64::try_from(length).ok(),
            content_range: range,
            content_type: record.meta.content_type.clone(),
            e_tag: Some(ETag::Strong(record.meta.tag.clone())),
            last_modified: Some(Timestamp::from(record.modified)),
            metadata: shown_metadata(&record.meta),
            body: Some(outgoing::body(record.file, start, length)),
            ..GetObjectOutput::default()
        }))
    }

    async fn head_object(&self, request: S3Request<HeadObjectInput>) -> Answer<HeadObjectOutput> {
        let input = request.input;
        let record = self
            .on_folder(move |folder| folder.open_object(&input.bucket, &input.key))
            .await?;
        if !matches(input.if_match.as_ref(), &record) {
            return Err(Failure::Precondition.into());
        }
        Ok(S3Response::new(HeadObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            metadata: shown_metadata(&record.meta),
            checksum_sha256: input.checksum_mode.is_some().then_some(record.meta.sha256),
            content_length: i64::try_from(record.size).ok(),
            content_type: record.meta.content_type,
            e_tag: Some(ETag::Strong(record.meta.tag)),
            last_modified: Some(Timestamp::from(record.modified)),
            ..HeadObjectOutput::default()
        }))
    }

    async fn delete_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> Answer<DeleteObjectOutput> {
        let input = request.input;
        self.on_folder(move |folder| {
            folder.check_bucket(&input.bucket)?;
            folder.remove(&input.bucket, &folder.path(&input.bucket, &input.key)?)
        })
        .await?;
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    async fn copy_object(&self, request: S3Request<CopyObjectInput>) -> Answer<CopyObjectOutput> {
        // The protocol library does not know this header on copies yet.
        let if_none_match = request.headers.get(http::header::IF_NONE_MATCH);
        let if_none_match = if_none_match
            .map(|value| ETagCondition::parse_http_header(value.as_bytes()))
            .transpose()
            .map_err(|_| Failure::Invalid("if-none-match"))?;
        let input = request.input;
        let CopySource::Bucket {
            bucket: from_bucket,
            key: from_key,
            ..
        } = input.copy_source
        else {
            return Err(Failure::NotOffered("copying from there").into());
        };
        let place = place(if_none_match.as_ref(), false)?;
        let replaces = input
            .metadata_directive
            .is_some_and(|directive| directive.as_str() == MetadataDirective::REPLACE);
        let is_itself = *from_bucket == *input.bucket && *from_key == *input.key;
        if replaces && !is_itself {
            return Err(Failure::NotOffered("replacing metadata of a copy").into());
        }
        let condition = input.copy_source_if_match;
        let record = self
            .on_folder(move |folder| {
                let record = folder.open_object(&from_bucket, &from_key)?;
                if !matches(condition.as_ref(), &record) {
                    return Err(Failure::Precondition);
                }
                folder.check_bucket(&input.bucket)?;
                let from = folder.path(&from_bucket, &from_key)?;
                let to = folder.path(&input.bucket, &input.key)?;
                if !is_itself {
                    folder.link(&from, &to, place)?;
                } else if place == Place::Free {
                    return Err(Failure::Precondition);
                } else if replaces {
                    Folder::touch(&to)?;
                } else {
                    return Err(Failure::Invalid("a copy onto itself must change something"));
                }
                folder.open_object(&input.bucket, &input.key)
            })
            .await?;
        Ok(S3Response::new(CopyObjectOutput {
            copy_object_result: Some(CopyObjectResult {
                checksum_sha256: Some(record.meta.sha256),
                e_tag: Some(ETag::Strong(record.meta.tag)),
                last_modified: Some(Timestamp::from(record.modified)),
                ..CopyObjectResult::default()
            }),
            ..CopyObjectOutput::default()
        }))
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> Answer<ListObjectsV2Output> {
        let input = request.input;
        if input.delimiter.is_some() {
            return Err(Failure::NotOffered("a list by delimiter").into());
        }
        let most = input.max_keys.unwrap_or(1000).clamp(0, 1000);
        let (bucket, prefix) = (
            input.bucket.clone(),
            input.prefix.clone().unwrap_or_default(),
        );
        let after = input
            .continuation_token
            .clone()
            .or(input.start_after.clone());
        let (found, more) = self
            .on_folder(move |folder| {
                let wanted = Wanted {
                    prefix: &prefix,
                    after: after.as_deref(),
                    most: usize::try_from(most).unwrap_or_default(),
                };
                folder.list(&bucket, wanted)
            })
            .await?;
        let next = found.last().filter(|_| more).map(|last| last.key.clone());
        let contents: Vec<_> = found
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
            max_keys: Some(most),
            name: Some(input.bucket),
            prefix: input.prefix,
            start_after: input.start_after,
            ..ListObjectsV2Output::default()
        }))
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> Answer<CreateMultipartUploadOutput> {
        let input = request.input;
        let (bucket, key) = (input.bucket.clone(), input.key.clone());
        let purpose = Purpose {
            key: input.key,
            meta: Meta {
                content_type: input.content_type,
                metadata: input.metadata.unwrap_or_default(),
                ..Meta::default()
            },
        };
        let id = self
            .on_folder(move |folder| folder.start_upload(&input.bucket, &purpose))
            .await?;
        Ok(S3Response::new(CreateMultipartUploadOutput {
            bucket: Some(bucket),
            key: Some(key),
            upload_id: Some(id.to_string()),
            checksum_algorithm: input.checksum_algorithm,
            ..CreateMultipartUploadOutput::default()
        }))
    }

    async fn upload_part(&self, request: S3Request<UploadPartInput>) -> Answer<UploadPartOutput> {
        let algorithm = trailer_algorithm(&request);
        let input = request.input;
        let id = upload_id(&input.upload_id)?;
        let length = body_length(&request.headers, input.content_length);
        let (bucket, key, number) = (input.bucket.clone(), input.key.clone(), input.part_number);
        let (draft, slot) = self
            .on_folder(move |folder| {
                for_key(&folder.purpose(&bucket, id)?, &key)?;
                folder.slot(&folder.upload_folder(&bucket, id)?, number, length)
            })
            .await?;
        let announced = Announced {
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
        let received = receive(draft, input.body, announced).await?;
        let checksum = received.checksum;
        let meta = Meta {
            tag: received.sha256.to_hex(),
            sha256: checksum.checksum_sha256.clone().unwrap_or_default(),
            ..Meta::default()
        };
        let tag = meta.tag.clone();
        self.on_folder(move |folder| {
            let upload = folder.upload_folder(&input.bucket, id)?;
            folder.add_part(&upload, &slot, received.draft, meta)
        })
        .await?;
        Ok(S3Response::new(UploadPartOutput {
            e_tag: Some(ETag::Strong(tag)),
            checksum_crc32: checksum.checksum_crc32,
            checksum_crc32c: checksum.checksum_crc32c,
            checksum_sha1: checksum.checksum_sha1,
            checksum_sha256: checksum.checksum_sha256,
            checksum_crc64nvme: checksum.checksum_crc64nvme,
            ..UploadPartOutput::default()
        }))
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> Answer<CompleteMultipartUploadOutput> {
        let input = request.input;
        let id = upload_id(&input.upload_id)?;
        let place = place(input.if_none_match.as_ref(), input.if_match.is_some())?;
        let parts: Vec<_> = input
            .multipart_upload
            .and_then(|upload| upload.parts)
            .unwrap_or_default()
            .into_iter()
            .map(|part| Named {
                number: part.part_number.unwrap_or_default(),
                tag: part.e_tag.map(ETag::into_value),
                sha256: part.checksum_sha256,
            })
            .collect();
        let (bucket, key) = (input.bucket.clone(), input.key.clone());
        let meta = self
            .on_folder(move |folder| {
                for_key(&folder.purpose(&bucket, id)?, &key)?;
                folder.complete(&bucket, id, &parts, place)
            })
            .await?;
        Ok(S3Response::new(CompleteMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            e_tag: Some(ETag::Strong(meta.tag)),
            checksum_sha256: Some(meta.sha256),
            ..CompleteMultipartUploadOutput::default()
        }))
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> Answer<AbortMultipartUploadOutput> {
        let input = request.input;
        let id = upload_id(&input.upload_id)?;
        self.on_folder(move |folder| {
            for_key(&folder.purpose(&input.bucket, id)?, &input.key)?;
            folder.remove_upload(&input.bucket, id)
        })
        .await?;
        Ok(S3Response::new(AbortMultipartUploadOutput::default()))
    }

    async fn list_multipart_uploads(
        &self,
        request: S3Request<ListMultipartUploadsInput>,
    ) -> Answer<ListMultipartUploadsOutput> {
        let input = request.input;
        let bucket = input.bucket.clone();
        let prefix = input.prefix.clone().unwrap_or_default();
        let most = usize::try_from(input.max_uploads.unwrap_or(1000).clamp(1, 1000)).unwrap_or(1);
        let marker = (
            input.key_marker.clone().unwrap_or_default(),
            input.upload_id_marker.clone().unwrap_or_default(),
        );
        let mut found = self
            .on_folder(move |folder| folder.unfinished(&bucket))
            .await?;
        found.retain(|upload| {
            upload.key.starts_with(&prefix) && (upload.key.clone(), upload.id.to_string()) > marker
        });
        let more = found.len() > most;
        found.truncate(most);
        let last = found.last().filter(|_| more);
        Ok(S3Response::new(ListMultipartUploadsOutput {
            bucket: Some(input.bucket),
            is_truncated: Some(more),
            next_key_marker: last.map(|upload| upload.key.clone()),
            next_upload_id_marker: last.map(|upload| upload.id.to_string()),
            uploads: Some(
                found
                    .iter()
                    .map(|upload| MultipartUpload {
                        key: Some(upload.key.clone()),
                        upload_id: Some(upload.id.to_string()),
                        initiated: Some(Timestamp::from(upload.started)),
                        ..MultipartUpload::default()
                    })
                    .collect(),
            ),
            ..ListMultipartUploadsOutput::default()
        }))
    }
}

/// Which checksum follows the body, if one does.
fn trailer_algorithm<T>(request: &S3Request<T>) -> Option<String> {
    let header = |name| request.headers.get(name)?.to_str().ok().map(str::to_owned);
    header("x-amz-trailer").or_else(|| header("x-amz-sdk-checksum-algorithm"))
}

/// Bytes of a body without the framing of chunked uploads, where it is known.
fn body_length(headers: &http::HeaderMap, content_length: Option<i64>) -> Option<u64> {
    match headers.get("x-amz-decoded-content-length") {
        Some(decoded) => decoded.to_str().ok()?.parse().ok(),
        None => content_length.and_then(|length| u64::try_from(length).ok()),
    }
}

/// Only "nothing may be there" is offered as a condition of a write.
fn place(if_none_match: Option<&ETagCondition>, has_if_match: bool) -> Result<Place, Failure> {
    match if_none_match {
        _ if has_if_match => Err(Failure::NotOffered("a write with if-match")),
        None => Ok(Place::Any),
        Some(ETagCondition::Any) => Ok(Place::Free),
        Some(ETagCondition::ETag(_)) => Err(Failure::NotOffered("if-none-match with a tag")),
    }
}

fn matches(condition: Option<&ETagCondition>, record: &Record) -> bool {
    match condition {
        None | Some(ETagCondition::Any) => true,
        Some(ETagCondition::ETag(tag)) => tag.value() == record.meta.tag,
    }
}

fn upload_id(text: &str) -> Result<Uuid, Failure> {
    Uuid::parse_str(text).map_err(|_| Failure::NoSuchUpload)
}

fn for_key(purpose: &Purpose, key: &str) -> Result<(), Failure> {
    if purpose.key == key {
        Ok(())
    } else {
        Err(Failure::NoSuchUpload)
    }
}

fn shown_metadata(meta: &Meta) -> Option<HashMap<String, String>> {
    (!meta.metadata.is_empty()).then(|| meta.metadata.clone())
}
