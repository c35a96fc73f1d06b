//! One multipart upload to a staging key: parts go out one at a time, each with its checksum, while the next is filled.

use std::sync::Arc;

use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{ChecksumAlgorithm, CompletedMultipartUpload, CompletedPart};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use dray_types::{Deadline, Sha256Digest};
use sha2::{Digest as _, Sha256};
use tokio::task::JoinSet;

use crate::error::PutError;
use crate::request::RequestError;
use crate::store::Inner;
use crate::{object, pieces};

/// An upload in parts. Whoever drops it leaves its parts behind: call [`Upload::discard`].
#[derive(Debug)]
pub(crate) struct Upload {
    inner: Arc<Inner>,
    key: String,
    id: String,
    deadline: Option<Deadline>,
    sent: Vec<CompletedPart>,
    digests: Vec<Sha256Digest>,
    /// At most one part.
    sending: JoinSet<Result<(CompletedPart, Sha256Digest), RequestError>>,
    on_its_way: usize,
    completed: bool,
}

impl Upload {
    /// Opens a multipart upload.
    pub(crate) async fn start(
        inner: Arc<Inner>,
        key: String,
        deadline: Option<Deadline>,
    ) -> Result<Self, RequestError> {
        let request = inner
            .clients
            .inside
            .create_multipart_upload()
            .bucket(&inner.options.bucket)
            .key(&key)
            .checksum_algorithm(ChecksumAlgorithm::Sha256)
            .send();
        let answer = inner.request(deadline, Box::pin(request)).await?;
        let id = answer
            .upload_id()
            .ok_or_else(|| RequestError::Garbled("no upload id".to_owned()))?
            .to_owned();
        Ok(Self {
            inner,
            key,
            id,
            deadline,
            sent: Vec::new(),
            digests: Vec::new(),
            sending: JoinSet::new(),
            on_its_way: 0,
            completed: false,
        })
    }

    /// Where it goes.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// Bytes being sent.
    pub(crate) fn on_its_way(&self) -> usize {
        self.on_its_way
    }

    /// Starts sending the next part once the one before is through. `digest` is its SHA-256 if that is known.
    pub(crate) async fn send(
        &mut self,
        part: Vec<Bytes>,
        digest: Option<Sha256Digest>,
    ) -> Result<(), RequestError> {
        self.wait().await?;
        self.on_its_way = part.iter().map(Bytes::len).sum();
        let number = i32::try_from(self.sent.len() + 1).unwrap_or(i32::MAX);
        let inner = Arc::clone(&self.inner);
        let (key, id, deadline) = (self.key.clone(), self.id.clone(), self.deadline);
        self.sending.spawn(async move {
            let (digest, part) = match digest {
                Some(digest) => (digest, part),
                None => pieces::digest_all(part).await,
            };
            let checksum = object::to_header(&digest);
            let request = inner
                .clients
                .inside
                .upload_part()
                .bucket(&inner.options.bucket)
                .key(key)
                .upload_id(id)
                .part_number(number)
                .content_length(pieces::length(&part))
                .checksum_sha256(&checksum)
                .body(ByteStream::new(pieces::body(part)))
                .customize()
                .disable_payload_signing();
            let answer = inner.request(deadline, Box::pin(request.send())).await?;
            let part = CompletedPart::builder()
                .part_number(number)
                .set_e_tag(answer.e_tag().map(str::to_owned))
                .checksum_sha256(checksum)
                .build();
            Ok((part, digest))
        });
        Ok(())
    }

    /// Waits until nothing is on its way.
    pub(crate) async fn wait(&mut self) -> Result<(), RequestError> {
        while let Some(sent) = self.sending.join_next().await {
            self.on_its_way = 0;
            let (part, digest) =
                sent.map_err(|error| RequestError::Garbled(error.to_string()))??;
            self.sent.push(part);
            self.digests.push(digest);
        }
        Ok(())
    }

    /// Puts the parts together and checks what the store says about the result.
    pub(crate) async fn complete(&mut self, size: u64) -> Result<(), PutError> {
        self.wait().await?;
        let parts = CompletedMultipartUpload::builder()
            .set_parts(Some(std::mem::take(&mut self.sent)))
            .build();
        let request = self
            .inner
            .clients
            .inside
            .complete_multipart_upload()
            .bucket(&self.inner.options.bucket)
            .key(&self.key)
            .upload_id(&self.id)
            .multipart_upload(parts)
            .send();
        match self.inner.request(self.deadline, Box::pin(request)).await {
            Ok(answer) => {
                let expected = self.checksum_of_checksums();
                if answer.checksum_sha256().is_some_and(|got| got != expected) {
                    return Err(PutError::Corrupted);
                }
            }
            // The answer to the first try may have been lost; then the object is there, and looked at below.
            Err(RequestError::Missing) => {}
            Err(error) => return Err(error.into()),
        }
        self.completed = true;
        let head = object::head(&self.inner, &self.key, self.deadline).await?;
        if head.is_none_or(|head| head.size != size) {
            return Err(PutError::Corrupted);
        }
        Ok(())
    }

    /// What S3 calls the composite checksum: the digest of the parts' digests, and their number.
    fn checksum_of_checksums(&self) -> String {
        let mut hasher = Sha256::new();
        for digest in &self.digests {
            hasher.update(digest.as_bytes());
        }
        format!(
            "{}-{}",
            STANDARD.encode(hasher.finalize()),
            self.digests.len()
        )
    }

    /// Removes whatever was uploaded. Failures are logged: the sweep or the bucket's lifecycle finds the rest.
    pub(crate) async fn discard(mut self) {
        self.sending.shutdown().await;
        let removed = if self.completed {
            object::delete(&self.inner, &self.key, None).await
        } else {
            let request = self
                .inner
                .clients
                .inside
                .abort_multipart_upload()
                .bucket(&self.inner.options.bucket)
                .key(&self.key)
                .upload_id(&self.id)
                .send();
            self.inner.request(None, Box::pin(request)).await.map(drop)
        };
        match removed {
            Ok(()) | Err(RequestError::Missing) => {}
            Err(error) => {
                tracing::warn!(key = self.key, %error, "staged upload stays until it is swept");
            }
        }
    }
}
