//! The S3 requests that the endpoint supports: parses them, runs them on the directory, writes the responses.

mod object;
mod part_copy;
mod upload;

use std::sync::Arc;

use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, CompleteMultipartUploadInput,
    CompleteMultipartUploadOutput, CopyObjectInput, CopyObjectOutput, CreateBucketInput,
    CreateBucketOutput, CreateMultipartUploadInput, CreateMultipartUploadOutput, DeleteObjectInput,
    DeleteObjectOutput, ETagCondition, GetObjectInput, GetObjectOutput, HeadBucketInput,
    HeadBucketOutput, HeadObjectInput, HeadObjectOutput, ListMultipartUploadsInput,
    ListMultipartUploadsOutput, ListObjectsV2Input, ListObjectsV2Output, PutObjectInput,
    PutObjectOutput, UploadPartCopyInput, UploadPartCopyOutput, UploadPartInput, UploadPartOutput,
};
use s3s::{S3, S3Request, S3Response, S3Result};

use super::directory::{OverwriteRule, ServedDirectory};
use super::error::DirectoryError;
use super::incoming::run_blocking;

/// The directory behind the protocol of S3.
#[derive(Debug)]
pub(super) struct S3Api {
    directory: Arc<ServedDirectory>,
}

impl S3Api {
    pub(super) fn new(directory: Arc<ServedDirectory>) -> Self {
        Self { directory }
    }

    /// Runs an operation of the directory on a thread where it may block.
    async fn on_directory<T: Send + 'static>(
        &self,
        work: impl FnOnce(&ServedDirectory) -> Result<T, DirectoryError> + Send + 'static,
    ) -> S3Result<T> {
        let directory = Arc::clone(&self.directory);
        Ok(run_blocking(move || work(&directory)).await?)
    }
}

type ApiResponse<T> = S3Result<S3Response<T>>;

#[async_trait::async_trait]
impl S3 for S3Api {
    async fn create_bucket(
        &self,
        request: S3Request<CreateBucketInput>,
    ) -> ApiResponse<CreateBucketOutput> {
        let bucket = request.input.bucket;
        self.on_directory(move |directory| {
            if directory.create_bucket(&bucket)? {
                Ok(())
            } else {
                Err(DirectoryError::BucketExists)
            }
        })
        .await?;
        Ok(S3Response::new(CreateBucketOutput::default()))
    }

    async fn head_bucket(
        &self,
        request: S3Request<HeadBucketInput>,
    ) -> ApiResponse<HeadBucketOutput> {
        let bucket = request.input.bucket;
        self.on_directory(move |directory| directory.check_bucket(&bucket))
            .await?;
        Ok(S3Response::new(HeadBucketOutput::default()))
    }

    async fn put_object(&self, request: S3Request<PutObjectInput>) -> ApiResponse<PutObjectOutput> {
        self.put(request).await
    }

    async fn get_object(&self, request: S3Request<GetObjectInput>) -> ApiResponse<GetObjectOutput> {
        self.get(request).await
    }

    async fn head_object(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> ApiResponse<HeadObjectOutput> {
        self.head(request).await
    }

    async fn delete_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> ApiResponse<DeleteObjectOutput> {
        let input = request.input;
        self.on_directory(move |directory| {
            directory.check_bucket(&input.bucket)?;
            directory.remove(&input.bucket, &directory.path(&input.bucket, &input.key)?)
        })
        .await?;
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    async fn copy_object(
        &self,
        request: S3Request<CopyObjectInput>,
    ) -> ApiResponse<CopyObjectOutput> {
        self.copy(request).await
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> ApiResponse<ListObjectsV2Output> {
        self.list(request).await
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> ApiResponse<CreateMultipartUploadOutput> {
        self.start_upload(request).await
    }

    async fn upload_part(
        &self,
        request: S3Request<UploadPartInput>,
    ) -> ApiResponse<UploadPartOutput> {
        self.receive_part(request).await
    }

    async fn upload_part_copy(
        &self,
        request: S3Request<UploadPartCopyInput>,
    ) -> ApiResponse<UploadPartCopyOutput> {
        self.copy_part(request).await
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> ApiResponse<CompleteMultipartUploadOutput> {
        self.complete_upload(request).await
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> ApiResponse<AbortMultipartUploadOutput> {
        self.abort_upload(request).await
    }

    async fn list_multipart_uploads(
        &self,
        request: S3Request<ListMultipartUploadsInput>,
    ) -> ApiResponse<ListMultipartUploadsOutput> {
        self.list_uploads(request).await
    }
}

/// Name of the checksum that follows the body, if one does.
fn trailer_algorithm<T>(request: &S3Request<T>) -> Option<String> {
    let header = |name| request.headers.get(name)?.to_str().ok().map(str::to_owned);
    header("x-amz-trailer").or_else(|| header("x-amz-sdk-checksum-algorithm"))
}

/// Reads the condition of a write. Only "no object may exist" is supported.
fn overwrite_rule(
    if_none_match: Option<&ETagCondition>,
    has_if_match: bool,
) -> Result<OverwriteRule, DirectoryError> {
    match if_none_match {
        // The write is refused, because the sender relies on the condition.
        _ if has_if_match => Err(DirectoryError::NotOffered("a write with if-match")),
        None => Ok(OverwriteRule::Any),
        Some(ETagCondition::Any) => Ok(OverwriteRule::Free),
        Some(ETagCondition::ETag(_)) => Err(DirectoryError::NotOffered("if-none-match with a tag")),
    }
}
