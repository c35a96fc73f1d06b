//! Reads an artifact: streamed, counted, hashed. Reading to the end verifies the bytes.

use std::time::Duration;

use aws_sdk_s3::primitives::ByteStream;
use bytes::{Bytes, BytesMut};
use dray_types::{ByteSize, Claim, Deadline, Sha256Digest, TenantId, whole_millis};
use futures_util::future::BoxFuture;
use sha2::{Digest as _, Sha256};
use tokio::sync::OwnedSemaphorePermit;

use crate::cache::ObjectArea;
use crate::client::IDLE_TIMEOUT;
use crate::error::ReadError;
use crate::request::{ErrorSource, RequestError};
use crate::store::StoreInner;

/// Age of a claim below which its object may not be visible yet (messaging-reliability K-5).
const YOUNG_CLAIM_AGE: Duration = Duration::from_secs(5);
/// Most times that a young claim's object is requested (K-5).
const MAX_ATTEMPTS: u32 = 3;
/// Pause between two of these requests.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// The download of one artifact, with its own permit.
#[derive(Debug)]
pub struct ArtifactReader {
    body: ByteStream,
    clock: dray_types::Clock,
    deadline: Deadline,
    expected: Sha256Digest,
    size: u64,
    received: u64,
    hasher: Sha256,
    state: ReaderState,
    _permit: OwnedSemaphorePermit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReaderState {
    Reading,
    Verified,
    Failed,
}

impl ArtifactReader {
    pub(crate) async fn open(
        inner: &StoreInner,
        tenant: &TenantId,
        claim: &Claim,
        deadline: Deadline,
    ) -> Result<Self, ReadError> {
        let key = check_claim(inner, tenant, claim)?.key(&claim.artifact);
        let permit = inner.reader_permit(Some(deadline)).await?;
        let artifact = &claim.artifact;
        let (body, length) = fetch_body(inner, claim, &key, deadline).await?;
        // The length is compared before any byte is given out, because the length is a part of the claim (K-5).
        if length.is_some_and(|length| length != artifact.size) {
            return Err(mismatch_error(claim, "length"));
        }
        Ok(Self {
            body,
            clock: inner.clock.clone(),
            deadline,
            expected: artifact.sha256,
            size: artifact.size,
            received: 0,
            hasher: Sha256::new(),
            state: ReaderState::Reading,
            _permit: permit,
        })
    }

    /// Opens an object that has no claim, such as a segment.
    pub(crate) fn open_key<'a>(
        inner: &'a StoreInner,
        key: &'a str,
        size: u64,
        expected: Sha256Digest,
        deadline: Deadline,
    ) -> BoxFuture<'a, Result<Self, ReadError>> {
        Box::pin(async move {
            let permit = inner.reader_permit(Some(deadline)).await?;
            let request = inner
                .clients
                .inside
                .get_object()
                .bucket(&inner.options.bucket)
                .key(key)
                .send();
            let response = match inner.request(Some(deadline), Box::pin(request)).await {
                Ok(response) => response,
                Err(RequestError::Missing) => return Err(ReadError::Missing),
                Err(error) => return Err(error.into()),
            };
            Ok(Self {
                body: response.body,
                clock: inner.clock.clone(),
                deadline,
                expected,
                size,
                received: 0,
                hasher: Sha256::new(),
                state: ReaderState::Reading,
                _permit: permit,
            })
        })
    }

    /// Size of the artifact in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the next bytes, or `None` when all bytes were read and match the claim. Bytes that were returned earlier
    /// are not verified yet: they must not become visible to others before `None` is returned.
    ///
    /// # Errors
    ///
    /// [`ReadError::Mismatch`] for bytes that are not those of the claim; [`ReadError::Request`] when the store fails,
    /// sends no byte for 10 s, or the deadline has passed. Every later call fails as well.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ReadError> {
        match self.state {
            ReaderState::Verified => return Ok(None),
            ReaderState::Failed => {
                let cause = ErrorSource::from("the reader failed before");
                return Err(RequestError::Unreachable(cause).into());
            }
            ReaderState::Reading => {}
        }
        let step = self.step().await;
        match &step {
            Ok(Some(_)) => {}
            Ok(None) => self.state = ReaderState::Verified,
            // The digest cannot be finished after an error, so the reader must not seem to end.
            Err(_) => self.state = ReaderState::Failed,
        }
        step
    }

    async fn step(&mut self) -> Result<Option<Bytes>, ReadError> {
        let limit = self
            .deadline
            .remaining(self.clock.now_ms())
            .min(IDLE_TIMEOUT);
        let next = tokio::time::timeout(limit, self.body.next())
            .await
            .map_err(|_| RequestError::TimedOut)?;
        match next {
            Some(Ok(bytes)) => {
                self.received += bytes.len() as u64;
                // The size is checked before more bytes are returned: an object can be longer than its header says.
                if self.received > self.size {
                    return Err(ReadError::Mismatch("long"));
                }
                self.hasher.update(&bytes);
                Ok(Some(bytes))
            }
            Some(Err(error)) => Err(RequestError::Unreachable(ErrorSource::from(error)).into()),
            None if self.received < self.size => Err(ReadError::Mismatch("short")),
            None => {
                let actual = Sha256Digest::from_bytes(self.hasher.finalize_reset().into());
                if actual == self.expected {
                    Ok(None)
                } else {
                    Err(ReadError::Mismatch("digest"))
                }
            }
        }
    }

    /// Reads the first bytes, at most `max_bytes`. They are verified only if they are the whole content.
    ///
    /// # Errors
    ///
    /// Those of [`ArtifactReader::next`].
    pub async fn read_head(mut self, max_bytes: usize) -> Result<Bytes, ReadError> {
        let mut head = BytesMut::new();
        while head.len() < max_bytes
            && let Some(bytes) = self.next().await?
        {
            let taken_bytes = bytes.len().min(max_bytes - head.len());
            head.extend_from_slice(bytes.get(..taken_bytes).unwrap_or_default());
        }
        Ok(head.freeze())
    }

    /// Reads everything into one buffer, verified, if it is at most `limit` long.
    ///
    /// # Errors
    ///
    /// [`ReadError::TooLarge`] before a byte is read, and those of [`ArtifactReader::next`].
    pub async fn read_all(mut self, limit: ByteSize) -> Result<Bytes, ReadError> {
        if self.size > limit.as_u64() {
            return Err(ReadError::TooLarge {
                size: self.size,
                limit: limit.as_u64(),
            });
        }
        let mut all = BytesMut::with_capacity(ByteSize::bytes(self.size).as_usize());
        while let Some(bytes) = self.next().await? {
            all.extend_from_slice(&bytes);
        }
        Ok(all.freeze())
    }
}

/// Checks tenant and store of a claim, before any request.
pub(crate) fn check_claim(
    inner: &StoreInner,
    tenant: &TenantId,
    claim: &Claim,
) -> Result<ObjectArea, ReadError> {
    if claim.artifact.tenant != *tenant {
        return Err(ReadError::ForeignTenant);
    }
    ObjectArea::of(inner, claim).ok_or_else(|| ReadError::UnknownStore(claim.store.clone()))
}

/// Opens the body, and returns its announced length.
fn fetch_body<'a>(
    inner: &'a StoreInner,
    claim: &'a Claim,
    key: &'a str,
    deadline: Deadline,
) -> BoxFuture<'a, Result<(ByteStream, Option<u64>), ReadError>> {
    Box::pin(async move {
        let mut attempts = 1;
        loop {
            let request = inner
                .clients
                .inside
                .get_object()
                .bucket(&inner.options.bucket)
                .key(key)
                .set_version_id(claim.version_id.clone())
                .send();
            match inner.request(Some(deadline), Box::pin(request)).await {
                Ok(response) => {
                    let length = response.content_length();
                    let length = length.and_then(|length| u64::try_from(length).ok());
                    return Ok((response.body, length));
                }
                Err(RequestError::Missing) => {
                    let age_ms = inner.clock.now_ms().saturating_sub(claim.created_at_ms);
                    // A store may show an object a little later than it acknowledged it.
                    if attempts == MAX_ATTEMPTS || age_ms >= whole_millis(YOUNG_CLAIM_AGE) {
                        return Err(ReadError::Missing);
                    }
                    attempts += 1;
                    tokio::time::sleep(RETRY_DELAY.min(inner.remaining_time(Some(deadline)))).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    })
}

fn mismatch_error(claim: &Claim, description: &'static str) -> ReadError {
    tracing::error!(
        key = claim.artifact.key(),
        store = claim.store,
        description,
        "a stored object does not match its claim"
    );
    ReadError::Mismatch(description)
}
