//! Uploads in parts that go to the store and not through this process. The ticket hands out a presigned URL for each
//! part, and the parts become the artifact after the same checks as other uploads.
//!
//! Tickets offer them where the store has a public endpoint (`store.s3.public_endpoint`).

use std::time::Duration;

use axum::extract::{Path, Request, State};
use axum::response::Response;
use dray_store::{ConfirmError, PartedUpload, PresignError, SentPart};
use dray_types::Deadline;
use http::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::TicketService;
use crate::api::read_body;
use crate::endpoint::{EndpointState, with_common_headers};
use crate::finish::MadeContent;
use crate::problem::TicketProblem;
use crate::protocol::UploadProtocol;
use crate::record::{TicketDirection, TicketRecord, TicketState};
use crate::response::{finished_response, json_response, set};
use crate::service::LoadedTicket;

/// Largest document of a request: 1,000 parts with their tags.
const MAX_DOCUMENT_BYTES: usize = 256 << 10;

/// The parts of one upload, as its record has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DirectUpload {
    pub(crate) upload: PartedUpload,
    /// Parts that the sender listed as sent; empty until then.
    #[serde(default)]
    pub(crate) sent: Vec<SentPart>,
}

/// The document that begins an upload in parts.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct BeginParts {
    /// Bytes of the file, where the ticket does not name them.
    #[serde(default)]
    size: Option<u64>,
}

/// The document that completes an upload in parts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CompleteParts {
    parts: Vec<SentPart>,
}

/// `POST /t/{secret}/parts`: begins an upload and returns a URL for each part. A repeated request returns new URLs for
/// the same upload.
pub(crate) async fn serve_parts(
    State(state): State<EndpointState>,
    Path(secret): Path<String>,
    request: Request,
) -> Response {
    let response = begin(&state, &secret, request).await;
    let response = response.unwrap_or_else(TicketProblem::into_response);
    with_common_headers(response, false)
}

/// `POST /t/{secret}/parts/complete`: makes the artifact from the parts.
pub(crate) async fn serve_complete(
    State(state): State<EndpointState>,
    Path(secret): Path<String>,
    request: Request,
) -> Response {
    let response = complete(&state, &secret, request).await;
    let response = response.unwrap_or_else(TicketProblem::into_response);
    with_common_headers(response, false)
}

async fn begin(
    state: &EndpointState,
    secret: &str,
    request: Request,
) -> Result<Response, TicketProblem> {
    let ticket = state.service.find_usable(secret).await?;
    let document: BeginParts = read_document(state, &ticket.record, request).await?;
    let ticket = state.service.begin_direct(ticket, document.size).await?;
    let direct = ticket.record.direct.as_ref();
    let upload = &direct.ok_or(TicketProblem::Unavailable)?.upload;
    let now_ms = state.service.inner.clock.now_ms();
    // URLs must not outlive the ticket, which an operator may have revoked by then.
    let remaining = Duration::from_millis(ticket.record.expires_at_ms.saturating_sub(now_ms));
    let store = &state.service.inner.store;
    let (parts, urls_end_at_ms) = store.presign_parts(upload, remaining).await?;
    let parts: Vec<_> = parts
        .iter()
        .map(|part| {
            json!({
                "number": part.number,
                "size": part.size,
                "method": "PUT",
                "url": part.url.expose(),
                "headers": part.headers.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
            })
        })
        .collect();
    let url = format!("{}/t/{secret}", state.base_url.trim_end_matches('/'));
    let document = json!({
        "size": upload.size,
        "part_bytes": upload.part_bytes,
        "parts": parts,
        "complete": format!("{url}/parts/complete"),
        "expires_at_ms": urls_end_at_ms.min(ticket.record.expires_at_ms),
    });
    let mut response = json_response(StatusCode::CREATED, &document);
    set(response.headers_mut(), "location", &url);
    Ok(response)
}

async fn complete(
    state: &EndpointState,
    secret: &str,
    request: Request,
) -> Result<Response, TicketProblem> {
    let ticket = state.service.find(secret).await?;
    // The response to an earlier request may have been lost.
    if ticket.record.state == TicketState::Complete && ticket.record.direct.is_some() {
        return Ok(finished_response(&ticket.record, UploadProtocol::Plain));
    }
    state.service.check_usable(&ticket.record)?;
    let document: CompleteParts = read_document(state, &ticket.record, request).await?;
    let service = state.service.clone();
    let work = async move { Box::pin(service.complete_direct(ticket, document.parts)).await };
    // A separate task, which continues when the client disconnects.
    let task = state.service.inner.tasks.spawn(work);
    let record = task.await.unwrap_or(Err(TicketProblem::Unavailable))?;
    Ok(finished_response(&record, UploadProtocol::Plain))
}

/// Reads a document; an empty body counts as one without members.
async fn read_document<T: DeserializeOwned>(
    state: &EndpointState,
    record: &TicketRecord,
    request: Request,
) -> Result<T, TicketProblem> {
    if record.direction != TicketDirection::Upload {
        return Err(TicketProblem::Invalid("a download ticket takes no parts"));
    }
    if request.method() != Method::POST {
        return Err(TicketProblem::MethodNotAllowed { allowed: "POST" });
    }
    let body = read_body(&state.service, request, MAX_DOCUMENT_BYTES).await?;
    let text: &[u8] = if body.is_empty() { b"{}" } else { &body };
    serde_json::from_slice(text).map_err(|_| TicketProblem::Invalid("the document is not valid"))
}

impl TicketService {
    /// Begins an upload in parts, or finds the one that was begun.
    pub(crate) async fn begin_direct(
        &self,
        mut ticket: LoadedTicket,
        size: Option<u64>,
    ) -> Result<LoadedTicket, TicketProblem> {
        let inner = &self.inner;
        if !inner.store.has_public_endpoint() {
            return Err(TicketProblem::NoDirectUpload);
        }
        let record = &ticket.record;
        // The parts are one artifact by now, so no URL leads to them.
        if record.state == TicketState::Stored {
            return Err(TicketProblem::AlreadyStored);
        }
        if let Some(direct) = &record.direct {
            return match size {
                Some(size) if size != direct.upload.size => Err(TicketProblem::InconsistentLength),
                _ => Ok(ticket),
            };
        }
        // An upload with bytes that were sent through this process cannot switch to parts.
        if record.state != TicketState::Open || record.is_leased(inner.clock.now_ms()) {
            return Err(TicketProblem::InUse);
        }
        let missing = TicketProblem::Invalid("the size of the file is missing");
        let size = size.or(record.size).ok_or(missing)?;
        if size > record.max_bytes {
            return Err(TicketProblem::TooLarge {
                limit: record.max_bytes,
            });
        }
        if let Some(expected) = record.size.filter(|expected| *expected != size) {
            return Err(TicketProblem::WrongSize {
                expected,
                actual: size,
            });
        }
        let operation = record.operation().ok_or(TicketProblem::Unavailable)?;
        let upload = inner.store.begin_parts(&operation, size).await?;
        ticket.record.state = TicketState::Active;
        ticket.record.direct = Some(DirectUpload {
            upload: upload.clone(),
            sent: Vec::new(),
        });
        match self.save(&mut ticket).await {
            // Another request began at the same time.
            Err(TicketProblem::Superseded) => {
                inner.store.discard_parts(&upload).await;
                Err(TicketProblem::InUse)
            }
            // A write that failed otherwise may have happened, and then the record names these parts. If it has not,
            // they are swept with the staging area.
            Err(problem) => Err(problem),
            Ok(()) => Ok(ticket),
        }
    }

    /// Makes the artifact from the parts that the sender lists.
    async fn complete_direct(
        &self,
        mut ticket: LoadedTicket,
        sent: Vec<SentPart>,
    ) -> Result<TicketRecord, TicketProblem> {
        let Some(direct) = &mut ticket.record.direct else {
            return Err(TicketProblem::Invalid("no upload in parts was begun"));
        };
        if ticket.record.state != TicketState::Stored {
            let numbers = sent.iter().map(|part| u64::from(part.number));
            if !numbers.eq(1..=direct.upload.part_count()) {
                return Err(TicketProblem::WrongParts);
            }
            direct.sent = sent;
        }
        if ticket.record.is_leased(self.inner.clock.now_ms()) {
            return Err(TicketProblem::InUse);
        }
        match self.finish_upload(ticket).await {
            Err(TicketProblem::Superseded) => Err(TicketProblem::InUse),
            other => other,
        }
    }

    /// Assembles the parts at their staging key, checks them, and makes them visible.
    pub(crate) async fn make_from_parts(
        &self,
        record: &TicketRecord,
        direct: &DirectUpload,
        deadline: Deadline,
    ) -> Result<MadeContent, TicketProblem> {
        let tenant = record.tenant().ok_or(TicketProblem::Unavailable)?;
        let store = &self.inner.store;
        let head_bytes = dray_media_type::kind::HEAD_BYTES;
        let assembled = store
            .assemble_parts(&direct.upload, &direct.sent, head_bytes, deadline)
            .await
            .map_err(assemble_problem)?;
        let size = direct.upload.size;
        let label = record.checked_label(assembled.sha256, size, &assembled.head)?;
        let claim = store
            .publish_parts(&tenant, &direct.upload, assembled, label, deadline)
            .await?;
        Ok(MadeContent { claim, size })
    }
}

fn assemble_problem(error: ConfirmError) -> TicketProblem {
    match error {
        ConfirmError::Mismatch("parts") => TicketProblem::WrongParts,
        ConfirmError::Mismatch(_) => TicketProblem::InconsistentLength,
        ConfirmError::NotUploaded => TicketProblem::ContentGone,
        ConfirmError::Put(error) => error.into(),
        ConfirmError::Request(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "could not put parts together"
            );
            TicketProblem::Unavailable
        }
    }
}

impl From<PresignError> for TicketProblem {
    fn from(error: PresignError) -> Self {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "could not sign the URLs of parts"
        );
        Self::Unavailable
    }
}
