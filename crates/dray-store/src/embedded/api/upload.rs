//! Requests on uploads in parts.

use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, Checksum, CompleteMultipartUploadInput,
    CompleteMultipartUploadOutput, CreateMultipartUploadInput, CreateMultipartUploadOutput, ETag,
    ListMultipartUploadsInput, ListMultipartUploadsOutput, MultipartUpload, Timestamp,
    UploadPartInput, UploadPartOutput,
};
use s3s::{S3Request, S3Response};
use uuid::Uuid;

use super::super::error::DirectoryError;
use super::super::incoming::{AnnouncedBody, receive_body};
use super::super::multipart::{NamedPart, UploadPurpose};
use super::super::record::ObjectMetadata;
use super::{ApiResponse, S3Api, overwrite_rule, trailer_algorithm};

impl S3Api {
    pub(super) async fn start_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> ApiResponse<CreateMultipartUploadOutput> {
        let input = request.input;
        let (bucket, key) = (input.bucket.clone(), input.key.clone());
        let purpose = UploadPurpose {
            key: input.key,
            meta: ObjectMetadata {
                content_type: input.content_type,
                metadata: input.metadata.unwrap_or_default(),
                ..ObjectMetadata::default()
            },
        };
        let id = self
            .on_directory(move |directory| directory.start_upload(&input.bucket, &purpose))
            .await?;
        Ok(S3Response::new(CreateMultipartUploadOutput {
            bucket: Some(bucket),
            key: Some(key),
            upload_id: Some(id.to_string()),
            checksum_algorithm: input.checksum_algorithm,
            ..CreateMultipartUploadOutput::default()
        }))
    }

    pub(super) async fn receive_part(
        &self,
        request: S3Request<UploadPartInput>,
    ) -> ApiResponse<UploadPartOutput> {
        let algorithm = trailer_algorithm(&request);
        let input = request.input;
        let id = upload_id(&input.upload_id)?;
        // Without the length the part gets a separate file.
        let length = body_length(&request.headers, input.content_length);
        let (bucket, key, number) = (input.bucket.clone(), input.key.clone(), input.part_number);
        let (draft, slot) = self
            .on_directory(move |directory| {
                // An upload belongs to one key; the policies of access keys are checked for the key of the request.
                check_key(&directory.purpose(&bucket, id)?, &key)?;
                directory.slot(&directory.upload_directory(&bucket, id)?, number, length)
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
        let received = receive_body(draft, input.body, announced).await?;
        let checksum = received.checksum;
        let meta = ObjectMetadata {
            tag: Uuid::new_v4().to_string(),
            sha256: checksum.checksum_sha256.clone(),
            crc64: checksum.checksum_crc64nvme.clone(),
            ..ObjectMetadata::default()
        };
        let tag = meta.tag.clone();
        self.on_directory(move |directory| {
            let upload = directory.upload_directory(&input.bucket, id)?;
            directory.add_part(&upload, &slot, received.draft, meta)
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

    pub(super) async fn complete_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> ApiResponse<CompleteMultipartUploadOutput> {
        let input = request.input;
        let id = upload_id(&input.upload_id)?;
        let rule = overwrite_rule(input.if_none_match.as_ref(), input.if_match.is_some())?;
        let parts: Vec<_> = input
            .multipart_upload
            .and_then(|upload| upload.parts)
            .unwrap_or_default()
            .into_iter()
            .map(|part| NamedPart {
                number: part.part_number.unwrap_or_default(),
                tag: part.e_tag.map(ETag::into_value),
                sha256: part.checksum_sha256,
                crc64: part.checksum_crc64nvme,
            })
            .collect();
        let (bucket, key) = (input.bucket.clone(), input.key.clone());
        let meta = self
            .on_directory(move |directory| {
                check_key(&directory.purpose(&bucket, id)?, &key)?;
                directory.complete(&bucket, id, &parts, rule)
            })
            .await?;
        Ok(S3Response::new(CompleteMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            e_tag: Some(ETag::Strong(meta.tag)),
            checksum_sha256: meta.sha256,
            checksum_crc64nvme: meta.crc64,
            ..CompleteMultipartUploadOutput::default()
        }))
    }

    pub(super) async fn abort_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> ApiResponse<AbortMultipartUploadOutput> {
        let input = request.input;
        let id = upload_id(&input.upload_id)?;
        self.on_directory(move |directory| {
            check_key(&directory.purpose(&input.bucket, id)?, &input.key)?;
            directory.remove_upload(&input.bucket, id)
        })
        .await?;
        Ok(S3Response::new(AbortMultipartUploadOutput::default()))
    }

    pub(super) async fn list_uploads(
        &self,
        request: S3Request<ListMultipartUploadsInput>,
    ) -> ApiResponse<ListMultipartUploadsOutput> {
        let input = request.input;
        let bucket = input.bucket.clone();
        let prefix = input.prefix.clone().unwrap_or_default();
        let max_uploads =
            usize::try_from(input.max_uploads.unwrap_or(1000).clamp(1, 1000)).unwrap_or(1);
        // Key and id together order the uploads, since one key can have several.
        let marker = (
            input.key_marker.clone().unwrap_or_default(),
            input.upload_id_marker.clone().unwrap_or_default(),
        );
        let mut pending = self
            .on_directory(move |directory| directory.unfinished(&bucket))
            .await?;
        pending.retain(|upload| {
            upload.key.starts_with(&prefix) && (upload.key.clone(), upload.id.to_string()) > marker
        });
        let more = pending.len() > max_uploads;
        pending.truncate(max_uploads);
        let last = pending.last().filter(|_| more);
        Ok(S3Response::new(ListMultipartUploadsOutput {
            bucket: Some(input.bucket),
            is_truncated: Some(more),
            next_key_marker: last.map(|upload| upload.key.clone()),
            next_upload_id_marker: last.map(|upload| upload.id.to_string()),
            uploads: Some(
                pending
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

pub(super) fn upload_id(text: &str) -> Result<Uuid, DirectoryError> {
    // Only a UUID becomes part of a path.
    Uuid::parse_str(text).map_err(|_| DirectoryError::NoSuchUpload)
}

pub(super) fn check_key(purpose: &UploadPurpose, key: &str) -> Result<(), DirectoryError> {
    if purpose.key == key {
        Ok(())
    } else {
        Err(DirectoryError::NoSuchUpload)
    }
}

/// Length of a body in bytes without the framing of chunked uploads, if it is known.
fn body_length(headers: &http::HeaderMap, content_length: Option<i64>) -> Option<u64> {
    match headers.get("x-amz-decoded-content-length") {
        Some(decoded) => decoded.to_str().ok()?.parse().ok(),
        None => content_length.and_then(|length| u64::try_from(length).ok()),
    }
}
