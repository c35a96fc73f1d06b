//! Uploads of browsers and services: a presigned PUT into the store, then on the way into the sandbox.

use std::time::Duration;

use dray_bus::{KeyError, Meta};
use dray_content::name;
use dray_proto::convert::InvalidMessage;
use dray_proto::v1;
use dray_store::{ArtifactLabel, ExpectedUpload, UploadTicket};
use dray_types::{Claim, Deadline, Fault, OperationId, Secret, Sha256Digest};
use serde::{Deserialize, Serialize};

use crate::deliver::DeliveryService;
use crate::error::DeliveryError;
use crate::gather::asked_in_vain;

/// Lifetime of a PUT (messaging-reliability L-2).
const PUT_LIFETIME: Duration = Duration::from_mins(10);
/// How long an upload can be finished, and asked for again after that.
const UPLOAD_RETENTION: Duration = Duration::from_hours(24);
/// How long the sandbox may take.
pub(crate) const PLACE_TIMEOUT: Duration = Duration::from_hours(1);
/// Type of unnamed content.
const UNKNOWN_TYPE: &str = "application/octet-stream";

/// What is known of an upload between its two calls; never its URL.
#[derive(Debug, Serialize, Deserialize)]
struct PendingUpload {
    session: String,
    name: String,
    key: String,
    size: u64,
    media_type: String,
    sha256: String,
}

impl DeliveryService {
    /// Makes room for an upload.
    ///
    /// # Errors
    /// The request, the session, the store or the bus.
    pub async fn prepare_upload(
        &self,
        meta: &Meta,
        request: &v1::PrepareUploadRequest,
    ) -> Result<v1::PrepareUploadReply, DeliveryError> {
        let sha256 = match request.sha256.as_slice() {
            [] => None,
            bytes => Some(
                Sha256Digest::try_from(bytes)
                    .map_err(|error| InvalidMessage::field("sha256", error))?,
            ),
        };
        let most = self.config.max_attachment.as_u64();
        if request.size > most {
            let text = dray_content::size::over_limit(request.size, most);
            return Err(too_large(&text));
        }
        let show = v1::ShowSessionRequest {
            session: request.session.clone(),
        };
        self.bus
            .call(meta, &show)
            .await
            .map_err(|error| asked_in_vain("the session", error))?;
        let expected = ExpectedUpload {
            size: request.size,
            media_type: match request.media_type.as_str() {
                "" => UNKNOWN_TYPE.to_owned(),
                declared => declared.to_owned(),
            },
            sha256,
        };
        let ticket = self
            .store
            .presign_put(&meta.tenant, &meta.operation, 0, expected, PUT_LIFETIME)
            .await
            .map_err(|error| to_delivery_error("the store", error))?;
        let pending = PendingUpload {
            session: request.session.clone(),
            name: name::upload_name(&request.name),
            key: ticket.key.clone(),
            size: request.size,
            media_type: ticket.expected.media_type.clone(),
            sha256: sha256.map(Sha256Digest::to_hex).unwrap_or_default(),
        };
        let key = pending_key(meta, &meta.operation);
        self.platform_cache
            .keep(&key, &pending, UPLOAD_RETENTION)
            .await
            .map_err(|error| to_delivery_error::<KeyError>("the bus", error))?;
        Ok(v1::PrepareUploadReply {
            upload_id: meta.operation.to_string(),
            url: Some(v1::PresignedUrl {
                url: ticket.url.expose().to_owned(),
                expires_at_ms: ticket.expires_at_ms,
            }),
            headers: ticket
                .headers
                .into_iter()
                .map(|(name, value)| v1::Header { name, value })
                .collect(),
        })
    }

    /// Takes an upload and puts it on its way into the sandbox. Finishing twice is finishing once.
    ///
    /// # Errors
    /// The upload is unknown, nothing was uploaded, or something else than announced.
    pub async fn finish_upload(
        &self,
        meta: &Meta,
        request: &v1::FinishUploadRequest,
    ) -> Result<v1::FinishUploadReply, DeliveryError> {
        let id = OperationId::new(request.upload_id.as_str())
            .map_err(|error| InvalidMessage::field("upload_id", error))?;
        let key = pending_key(meta, &id);
        let Some(pending) = self.platform_cache.get::<PendingUpload>(&key).await else {
            return Err(DeliveryError::NotFound("upload"));
        };
        let done_key = format!("{key}.done");
        let done = self.platform_cache.get::<String>(&done_key).await;
        let claim = if let Some(digest) = done {
            self.again(meta, &pending, &digest).await?
        } else {
            let claim = self.confirm(meta, &pending).await?;
            let digest = claim.artifact.sha256.to_hex();
            self.platform_cache
                .set(&done_key, &digest, UPLOAD_RETENTION)
                .await;
            claim
        };
        let placing = placing_of(&id);
        let place = v1::PlaceUpload {
            session: pending.session,
            claim: Some(claim.clone().into()),
            name: pending.name,
            ..v1::PlaceUpload::default()
        };
        let deadline = Deadline::after(self.clock.now_ms(), PLACE_TIMEOUT);
        let envelope = meta
            .clone()
            .with_operation(placing.clone())
            .with_deadline(deadline);
        self.bus.publish_work(&envelope, &place).await?;
        Ok(v1::FinishUploadReply {
            claim: Some(claim.into()),
            operation_id: placing.to_string(),
        })
    }

    async fn confirm(&self, meta: &Meta, pending: &PendingUpload) -> Result<Claim, DeliveryError> {
        let ticket = UploadTicket {
            tenant: meta.tenant.clone(),
            key: pending.key.clone(),
            expected: ExpectedUpload {
                size: pending.size,
                media_type: pending.media_type.clone(),
                sha256: pending.sha256.parse().ok(),
            },
            url: Secret::default(),
            headers: Vec::new(),
            expires_at_ms: 0,
        };
        let label = ArtifactLabel::new(pending.media_type.as_str(), pending.name.as_str());
        self.store
            .confirm_upload(&ticket, label, meta.deadline)
            .await
            .map_err(|error| to_delivery_error("the upload", error))
    }

    /// The claim of an upload that was confirmed before.
    async fn again(
        &self,
        meta: &Meta,
        pending: &PendingUpload,
        digest: &str,
    ) -> Result<Claim, DeliveryError> {
        let label = ArtifactLabel::new(pending.media_type.as_str(), pending.name.as_str());
        let digest: Sha256Digest = digest
            .parse()
            .map_err(|error| InvalidMessage::field("upload_id", error))?;
        let found = self
            .store
            .claim(&meta.tenant, digest, label)
            .await
            .map_err(|error| to_delivery_error("the store", error))?;
        found.ok_or(DeliveryError::NotFound("upload"))
    }
}

/// The operation that places an upload.
fn placing_of(upload: &OperationId) -> OperationId {
    OperationId::new(format!("u-{}", upload.ledger_token())).unwrap_or_else(|_| upload.clone())
}

fn pending_key(meta: &Meta, upload: &OperationId) -> String {
    format!("upload.{}.{}", meta.tenant.token(), upload.ledger_token())
}

fn to_delivery_error<E>(what: &'static str, error: E) -> DeliveryError
where
    E: std::error::Error + Send + Sync + 'static,
    Fault: From<E>,
{
    tracing::warn!(error = &error as &dyn std::error::Error, "{what} failed");
    DeliveryError::Asked {
        what,
        fault: Box::new(Fault::from(error)),
    }
}

fn too_large(numbers: &str) -> DeliveryError {
    DeliveryError::Asked {
        what: "the size",
        fault: Box::new(
            Fault::new(
                dray_types::FaultCode::TooLarge,
                format!("The file is too large ({numbers})."),
            )
            .detail("upload_too_large"),
        ),
    }
}
