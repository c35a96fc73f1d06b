//! `/v1/uploads`: files that come in parts.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use dray_agent::failure::RequestFailure;
use dray_types::ByteSize;
use serde::Deserialize;
use serde_json::Value;

use super::files::respond;
use super::files::upload::{checked_lifetime, checked_purpose, file_name, store_part, wrong_field};
use super::routes::HttpSurface;
use crate::client_uploads::AnnouncedFile;

/// Most characters of a name or a media type.
const MAX_TEXT_CHARS: usize = 1024;
/// Most bytes of a request without content; a thousand ids of parts have about 40 KB.
const MAX_BODY_BYTES: ByteSize = ByteSize::kib(256);

/// The body of a request that begins an upload.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CreateRequest {
    bytes: u64,
    filename: String,
    /// Stated by the client; the stored type is detected from the content.
    mime_type: String,
    purpose: String,
    expires_after: Option<ExpiresAfter>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpiresAfter {
    anchor: String,
    seconds: u64,
}

/// The body of a request that completes an upload.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CompleteRequest {
    part_ids: Vec<String>,
    md5: Option<String>,
}

/// `POST /v1/uploads`.
pub(super) async fn create_upload(
    State(surface): State<Arc<HttpSurface>>,
    request: Request,
) -> Response {
    let created = async {
        let (principal, body) = read_body(&surface, request).await?;
        let announced = announced_file(&surface, serde_json::from_value(body))?;
        let uploads = &surface.state.uploads;
        let (id, record) = uploads.create(&principal, announced).await?;
        Ok(record.object(&id, uploads.now_ms()))
    };
    respond(created.await)
}

/// `POST /v1/uploads/{id}/parts`: a form with `data`.
pub(super) async fn add_part(
    State(surface): State<Arc<HttpSurface>>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let (head, body) = request.into_parts();
    let added = async {
        let principal = surface.principal(&head.headers)?;
        let uploads = &surface.state.uploads;
        // The limit is checked before the body is read, because an upload that accepts no more parts must cost no
        // storage. It is checked again when the part is added, because other parts may come meanwhile.
        let limit = uploads.part_limit(&principal, &id).await?;
        let claim = store_part(&surface, &principal, &head.headers, body, limit).await?;
        uploads.add_part(&principal, &id, &claim).await
    };
    respond(added.await)
}

/// `POST /v1/uploads/{id}/complete`.
pub(super) async fn complete_upload(
    State(surface): State<Arc<HttpSurface>>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let completed = async {
        let (principal, body) = read_body(&surface, request).await?;
        let completion: CompleteRequest = serde_json::from_value(body).map_err(|error| {
            RequestFailure::new(
                400,
                format!("The request body is not one of this method: {error}"),
            )
        })?;
        // The parts are read and written once more, as in an upload.
        let _permit = surface.upload_place(&principal).await?;
        let uploads = &surface.state.uploads;
        let md5 = completion.md5.as_deref();
        uploads
            .complete(&principal, &id, &completion.part_ids, md5)
            .await
    };
    respond(completed.await)
}

/// `POST /v1/uploads/{id}/cancel`.
pub(super) async fn cancel_upload(
    State(surface): State<Arc<HttpSurface>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let cancelled = async {
        let principal = surface.principal(&headers)?;
        surface.state.uploads.cancel(&principal, &id).await
    };
    respond(cancelled.await)
}

async fn read_body(
    surface: &HttpSurface,
    request: Request,
) -> Result<(String, Value), RequestFailure> {
    let (head, body) = request.into_parts();
    let principal = surface.principal(&head.headers)?;
    let limit = surface.options.max_body.min(MAX_BODY_BYTES);
    let (body, _memory) = surface.read_json(&head.headers, body, limit).await?;
    Ok((principal, body))
}

fn announced_file(
    surface: &HttpSurface,
    body: Result<CreateRequest, serde_json::Error>,
) -> Result<AnnouncedFile, RequestFailure> {
    let request = body.map_err(|error| {
        RequestFailure::new(
            400,
            format!("The request body is not one of this method: {error}"),
        )
    })?;
    let purpose = checked_purpose(Some(&request.purpose))?.to_owned();
    let expiry = request.expires_after.as_ref();
    let lifetime = checked_lifetime(
        expiry.map(|expiry| expiry.anchor.as_str()),
        expiry.map(|expiry| Some(expiry.seconds)),
        surface.state.files.lifetime(),
    )?;
    for (field, text) in [
        ("filename", &request.filename),
        ("mime_type", &request.mime_type),
    ] {
        if text.is_empty() || text.chars().count() > MAX_TEXT_CHARS {
            let message = format!("It must have 1 to {MAX_TEXT_CHARS} characters.");
            return Err(wrong_field(field, message));
        }
    }
    let limit = surface.options.max_upload;
    if !(1..=limit.as_u64()).contains(&request.bytes) {
        let message = format!("It must be 1 to {} bytes ({limit}).", limit.as_u64());
        return Err(wrong_field("bytes", message));
    }
    Ok(AnnouncedFile {
        name: file_name(&request.filename),
        purpose,
        bytes: request.bytes,
        lifetime_ms: lifetime.as_millis(),
    })
}
