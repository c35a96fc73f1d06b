//! Uploads of browsers and services: a presigned PUT into the store, then a copy into the sandbox.

use std::time::Duration;

use dray_bus::{Bus, KeyError, Meta};
use dray_presentation::name;
use dray_proto::convert::InvalidMessage;
use dray_proto::v1;
use dray_service::ReplaceableValue;
use dray_store::{ArtifactLabel, ExpectedUpload, Store, UploadTicket};
use dray_types::{Claim, Clock, Deadline, Fault, OperationId, Secret, Sha256Digest};
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::error::DeliveryError;
use crate::gather::failed_call;
use crate::platform_cache::PlatformCache;

/// Lifetime of a presigned PUT (messaging-reliability L-2).
const PUT_LIFETIME: Duration = Duration::from_mins(10);
/// Time in which an upload can be finished; its result can be requested again for as long.
const UPLOAD_RETENTION: Duration = Duration::from_hours(24);
/// Time limit for putting the file into the sandbox.
pub(crate) const PLACE_TIMEOUT: Duration = Duration::from_hours(1);
/// Media type of content for which none is declared.
const UNKNOWN_TYPE: &str = "application/octet-stream";

/// State of an upload between its two calls; its URL is never stored.
#[derive(Debug, Serialize, Deserialize)]
struct PendingUpload {
    session: String,
    name: String,
    key: String,
    size: u64,
    media_type: String,
    sha256: String,
}

/// Takes uploads in two calls.
#[derive(Clone, Debug)]
pub(crate) struct UploadService {
    pub(crate) bus: Bus,
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) config: ReplaceableValue<Config>,
    /// Stores uploads between their two calls.
    pub(crate) platform_cache: PlatformCache,
}

impl UploadService {
    /// Prepares an upload: checks it and presigns a PUT for it.
    ///
    /// # Errors
    /// An invalid request, an unknown session, or a failure of the store or the bus.
    pub(crate) async fn prepare_upload(
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
        let max_bytes = self.config.get().max_attachment.as_u64();
        // The size is checked before a URL is returned, because the store would refuse only after the whole upload.
        if request.size > max_bytes {
            let text = dray_presentation::size::over_limit(request.size, max_bytes);
            return Err(too_large(&text));
        }
        // Without a session, the caller uses the claim itself.
        if !request.session.is_empty() {
            self.check_session(meta, &request.session).await?;
        }
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
            // The URL covers size and type, so the client cannot upload anything else.
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
            // Unlike other cached values, this one must not be lost: without it, the upload cannot be finished.
            .keep(&key, &pending, UPLOAD_RETENTION)
            .await
            .map_err(bus_failed)?;
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

    /// Confirms an upload and publishes the work that places it in the sandbox of its session, if it has one. A
    /// repeated call has no further effect.
    ///
    /// # Errors
    /// The upload is unknown, no file was uploaded, or the file differs from the announcement.
    pub(crate) async fn finish_upload(
        &self,
        meta: &Meta,
        request: &v1::FinishUploadRequest,
    ) -> Result<v1::FinishUploadReply, DeliveryError> {
        let id = OperationId::new(request.upload_id.as_str())
            .map_err(|error| InvalidMessage::field("upload_id", error))?;
        let key = pending_key(meta, &id);
        let found = self.platform_cache.find::<PendingUpload>(&key).await;
        let Some(pending) = found.map_err(bus_failed)? else {
            // An upload of another tenant is not found either, because the key contains the tenant.
            return Err(DeliveryError::NotFound("upload"));
        };
        // A confirmed upload is no longer under its staging key, so a repeated call reads its digest here.
        let done_key = format!("{key}.done");
        let done = self.platform_cache.find::<String>(&done_key).await;
        let claim = if let Some(digest) = done.map_err(bus_failed)? {
            self.find_confirmed(meta, &pending, &digest).await?
        } else {
            let claim = self.confirm(meta, &pending).await?;
            let digest = claim.artifact.sha256.to_hex();
            self.platform_cache
                .set(&done_key, &digest, UPLOAD_RETENTION)
                .await;
            claim
        };
        if pending.session.is_empty() {
            return Ok(v1::FinishUploadReply {
                claim: Some(claim.into()),
                operation_id: String::new(),
            });
        }
        let placing = placing_operation(&id);
        let place_request = v1::PlaceUpload {
            session: pending.session,
            claim: Some(claim.clone().into()),
            name: pending.name,
            ..v1::PlaceUpload::default()
        };
        let deadline = Deadline::after(self.clock.now_ms(), PLACE_TIMEOUT);
        // A separate deadline, because the sandbox may start later than the caller waits.
        let envelope = meta
            .clone()
            .with_operation(placing.clone())
            .with_deadline(deadline);
        // A repeated call publishes again; the operation id makes the repetition harmless.
        self.bus.publish_work(&envelope, &place_request).await?;
        Ok(v1::FinishUploadReply {
            claim: Some(claim.into()),
            operation_id: placing.to_string(),
        })
    }

    /// Checks that a session exists, because no other part would use an upload without one.
    async fn check_session(&self, meta: &Meta, session: &str) -> Result<(), DeliveryError> {
        let show = v1::ShowSessionRequest {
            session: session.to_owned(),
        };
        let session_found = self.bus.call(meta, &show).await;
        session_found.map_err(|error| failed_call("the session", error))?;
        Ok(())
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
            // The store checks key and announced content; the URL was only for the client.
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
    async fn find_confirmed(
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

/// The operation that places an upload, the same one for repeated calls.
fn placing_operation(upload: &OperationId) -> OperationId {
    OperationId::new(format!("u-{}", upload.ledger_token())).unwrap_or_else(|_| upload.clone())
}

fn pending_key(meta: &Meta, upload: &OperationId) -> String {
    format!("upload.{}.{}", meta.tenant.token(), upload.ledger_token())
}

fn bus_failed(error: KeyError) -> DeliveryError {
    to_delivery_error("the bus", error)
}

fn to_delivery_error<E>(description: &'static str, error: E) -> DeliveryError
where
    E: std::error::Error + Send + Sync + 'static,
    Fault: From<E>,
{
    tracing::warn!(
        error = &error as &dyn std::error::Error,
        "{description} failed"
    );
    DeliveryError::ServiceFault {
        description,
        fault: Box::new(Fault::from(error)),
    }
}

fn too_large(numbers: &str) -> DeliveryError {
    DeliveryError::ServiceFault {
        description: "the size",
        fault: Box::new(
            Fault::new(
                dray_types::FaultCode::TooLarge,
                format!("The file is too large ({numbers})."),
            )
            .detail("upload_too_large"),
        ),
    }
}
