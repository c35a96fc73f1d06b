//! Uploads by clients through a presigned URL, and how they become claims (messaging-reliability L-5).

pub(crate) mod by_parts;
pub(crate) mod copy;
pub(crate) mod parts;

use std::time::Duration;

use dray_types::{Claim, Deadline, OperationId, Secret, Sha256Digest, TenantId};

use crate::cache::ArtifactLocation;
use crate::commit::{self, StagedArtifact};
use crate::error::{ConfirmError, PresignError};
use crate::object::{self, ANY_ETAG, ObjectHead};
use crate::request::RequestError;
use crate::store::{ArtifactLabel, Store, StoreInner};
use crate::{MAX_SINGLE_PUT_BYTES, checksum, link};

/// The announced properties of an upload; all of them are signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedUpload {
    /// Exact number of bytes; signed, so no other number is accepted.
    pub size: u64,
    /// Media type that the uploader sends; signed.
    pub media_type: String,
    /// Digest, if it is known in advance; signed, and verified by the store. Without it, the upload is read once when
    /// it is confirmed.
    pub sha256: Option<Sha256Digest>,
}

/// Permission to upload one object once. Its debug form has no URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadTicket {
    /// The tenant to whom the object will belong.
    pub tenant: TenantId,
    /// The staging key, with a random part.
    pub key: String,
    /// The upload as it was announced.
    pub expected: ExpectedUpload,
    /// The URL to PUT to.
    pub url: Secret,
    /// Headers that the uploader must send exactly so; they are signed.
    pub headers: Vec<(String, String)>,
    /// Unix milliseconds at which the URL expires.
    pub expires_at_ms: u64,
}

impl Store {
    /// Mints a URL that uploads one object to a staging key of the operation. The object is visible to no reader
    /// until [`Store::confirm_upload`].
    ///
    /// # Errors
    ///
    /// [`PresignError::TooLarge`] and [`PresignError::MediaType`] for what cannot be announced,
    /// [`PresignError::ObjectEnds`] and [`PresignError::CredentialsEnd`] when no link would last long enough,
    /// [`PresignError::Signing`].
    pub async fn presign_put(
        &self,
        tenant: &TenantId,
        operation: &OperationId,
        epoch: u64,
        expected: ExpectedUpload,
        requested: Duration,
    ) -> Result<UploadTicket, PresignError> {
        let inner = &self.inner;
        if expected.size > MAX_SINGLE_PUT_BYTES {
            return Err(PresignError::TooLarge {
                limit: MAX_SINGLE_PUT_BYTES,
            });
        }
        if !is_header_text(&expected.media_type) {
            return Err(PresignError::MediaType);
        }
        // A link ends no later than a staged object would be swept.
        let stage_expires_at_ms = inner.clock.now_ms() + inner.options.stage_lifetime.as_millis();
        let (lifetime, expires_at_ms) =
            link::link_lifetime(inner, requested, Some(stage_expires_at_ms))?;
        let key = format!(
            "stage/{}/{epoch}/{}",
            operation.ledger_token(),
            uuid::Uuid::new_v4()
        );
        let request = inner
            .clients
            .public
            .put_object()
            .bucket(&inner.options.bucket)
            .key(&key)
            // The length is signed: a plain presigned PUT has no bound on its size (L-5).
            .content_length(i64::try_from(expected.size).unwrap_or(i64::MAX))
            .content_type(&expected.media_type)
            .set_checksum_sha256(expected.sha256.as_ref().map(checksum::sha256_to_header))
            .if_none_match(ANY_ETAG)
            .presigned(lifetime);
        let signed = Box::pin(request)
            .await
            .map_err(|error| PresignError::Signing(RequestError::from_sdk(error)))?;
        let headers = signed
            .headers()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        Ok(UploadTicket {
            tenant: tenant.clone(),
            key,
            expected,
            url: Secret::new(signed.uri()),
            headers,
            expires_at_ms,
        })
    }

    /// Checks what was uploaded with the ticket and makes it an artifact. Content that does not match the announcement
    /// is removed.
    ///
    /// # Errors
    ///
    /// [`ConfirmError`]. After all but [`ConfirmError::NotUploaded`] and [`ConfirmError::Mismatch`] the upload stays,
    /// so that the call can be repeated.
    pub async fn confirm_upload(
        &self,
        ticket: &UploadTicket,
        label: ArtifactLabel,
        deadline: Deadline,
    ) -> Result<Claim, ConfirmError> {
        let inner = &self.inner;
        let head = object::head_object(inner, &ticket.key, Some(deadline))
            .await?
            .ok_or(ConfirmError::NotUploaded)?;
        let checked = verify_upload(inner, ticket, &head, deadline).await;
        let published = match checked {
            Ok(sha256) => {
                let artifact = commit::new_artifact(&ticket.tenant, sha256, head.size, label);
                let staged = StagedArtifact {
                    key: &ticket.key,
                    // The uploader may still hold the URL; the copy is made only of the object that was checked.
                    tag: head.tag,
                    crc64: head.crc64,
                };
                commit::publish_staged(
                    inner,
                    staged,
                    ArtifactLocation::finished_content(artifact),
                    Some(deadline),
                )
                .await
                .map_err(ConfirmError::Put)
            }
            Err(error) => Err(error),
        };
        // After another failure the upload stays, so that the confirmation can be repeated.
        if let Ok(_) | Err(ConfirmError::Mismatch(_)) = published
            && let Err(error) = object::delete_object(inner, &ticket.key, Some(deadline)).await
        {
            tracing::warn!(key = ticket.key, %error, "could not remove a staged upload; the sweeper removes it");
        }
        published
    }
}

/// Returns the digest of the staged object, if it matches the announcement.
async fn verify_upload(
    inner: &StoreInner,
    ticket: &UploadTicket,
    head: &ObjectHead,
    deadline: Deadline,
) -> Result<Sha256Digest, ConfirmError> {
    if head.size != ticket.expected.size {
        return Err(ConfirmError::Mismatch("size"));
    }
    // A checksum that the store returns without having verified it proves nothing.
    let reported = head.sha256.filter(|_| inner.capabilities().verified_sha256);
    let sha256 = match reported {
        Some(sha256) => sha256,
        None => object::read_digest(inner, &ticket.key, head, Some(deadline)).await?,
    };
    match ticket.expected.sha256 {
        Some(announced) if announced != sha256 => Err(ConfirmError::Mismatch("digest")),
        _ => Ok(sha256),
    }
}

fn is_header_text(text: &str) -> bool {
    // The text is signed as a header, in which only visible ASCII and blanks need no encoding.
    (1..=255).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, 0x20..=0x7e))
}
