//! A file as it is: conditions, one range, and a body of one state.

use axum::body::Body;
use axum::response::Response;
use dray_http_server::inline_disposition;
use dray_sandbox::{Body as SandboxBody, ErrorKind};
use dray_service::web::{ByteRange, byte_range, field_has_etag, text_field};
use dray_transfer_engine::PinnedPath;
use futures_util::stream;
use http::{HeaderMap, Method, StatusCode, header};
use tokio::sync::OwnedSemaphorePermit;

use crate::error::PreviewError;
use crate::headers::{
    CONNECTION_ALLOWLIST, CONNECTION_POLICY, CONTENT_POLICY, PDF_POLICY, response, set,
};
use crate::metrics::PreviewMetrics;
use crate::view::SandboxView;

/// Attempts to read a file that keeps changing.
pub(crate) const MAX_PIN_ATTEMPTS: usize = 3;
/// Media type of names whose extension is unknown.
const UNKNOWN_TYPE: &str = "application/octet-stream";

/// Serves `GET` and `HEAD` of a file.
pub(crate) async fn serve_file(
    view: &SandboxView,
    method: &Method,
    headers: &HeaderMap,
    permit: OwnedSemaphorePermit,
) -> Result<Response, PreviewError> {
    let mut pinned = view.pinned.clone();
    for attempt in 1.. {
        match serve_pinned(view, &pinned, method, headers).await {
            Ok((mut response, Some(body))) => {
                *response.body_mut() = counted_body(view, body, permit);
                return Ok(response);
            }
            Ok((response, None)) => return Ok(response),
            // No byte was sent yet, so the response can begin again with a newer state of the file.
            Err(PreviewError::Sandbox(error))
                if error.kind() == ErrorKind::ChangedDuringTransfer
                    && attempt < MAX_PIN_ATTEMPTS =>
            {
                pinned = view.pin_again().await?;
            }
            Err(error) => return Err(error),
        }
    }
    Err(PreviewError::Busy)
}

async fn serve_pinned(
    view: &SandboxView,
    pinned: &PinnedPath,
    method: &Method,
    headers: &HeaderMap,
) -> Result<(Response, Option<SandboxBody>), PreviewError> {
    let size = pinned.metadata.size;
    let etag = etag_of(view, pinned);
    if field_has_etag(headers, header::IF_MATCH, &etag, false) == Some(false) {
        return Err(PreviewError::PreconditionFailed);
    }
    if field_has_etag(headers, header::IF_NONE_MATCH, &etag, true) == Some(true) {
        let mut response = head_response(view, StatusCode::NOT_MODIFIED, &etag);
        response.headers_mut().remove(header::CONTENT_TYPE);
        return Ok((response, None));
    }
    // A client that has a part of another state gets the whole file, so that it does not mix two states. `If-Range`
    // has one tag, which is compared strongly, and neither a list nor `*` (RFC 9110, section 13.1.5).
    let is_same_state = text_field(headers, header::IF_RANGE.as_str())
        .is_none_or(|tag| tag == etag && pinned.is_strong());
    let range = if is_same_state && *method == Method::GET {
        byte_range(headers, size)?
    } else {
        None
    };
    let whole = ByteRange {
        start: 0,
        end: size,
    };
    let ByteRange { start, end } = range.unwrap_or(whole);
    let status = if range.is_some() {
        StatusCode::PARTIAL_CONTENT
    } else {
        StatusCode::OK
    };
    let mut response = head_response(view, status, &etag);
    let fields = response.headers_mut();
    set(fields, header::CONTENT_LENGTH, &(end - start).to_string());
    if range.is_some() {
        let value = format!("bytes {start}-{}/{size}", end.saturating_sub(1));
        set(fields, header::CONTENT_RANGE, &value);
    }
    if *method == Method::HEAD {
        return Ok((response, None));
    }
    let engine = &view.opened.engine;
    let body = engine
        .read_pinned(&view.opened.policy, pinned, start..end)
        .await?;
    Ok((response, Some(body)))
}

/// The tag of a state; a weak one where the sandbox does not report every change.
pub(crate) fn etag_of(view: &SandboxView, pinned: &PinnedPath) -> String {
    let tag = pinned.state_tag(&view.opened.engine);
    let weak = if pinned.is_strong() { "" } else { "W/" };
    format!("{weak}\"{tag}\"")
}

fn head_response(view: &SandboxView, status: StatusCode, etag: &str) -> Response {
    let name = view.name();
    let media_type = media_type_of(&name);
    let policy = if media_type == "application/pdf" {
        PDF_POLICY
    } else {
        CONTENT_POLICY
    };
    let mut response = response(status, &content_type_of(media_type), policy, Body::empty());
    let headers = response.headers_mut();
    if policy == CONTENT_POLICY {
        set(headers, CONNECTION_ALLOWLIST, CONNECTION_POLICY);
    }
    set(headers, header::ETAG, etag);
    set(headers, header::ACCEPT_RANGES, "bytes");
    set(
        headers,
        header::CONTENT_DISPOSITION,
        &inline_disposition(&name),
    );
    // Pages have an opaque origin, for which the page's own modules, fonts and data are cross-origin. Everyone with
    // the link may read all of this anyway, and no cookie or password is involved.
    set(headers, header::ACCESS_CONTROL_ALLOW_ORIGIN, "*");
    response
}

/// The media type for a name. Browsers need the exact type of styles and scripts, since they may not guess it.
pub(crate) fn media_type_of(name: &str) -> &'static str {
    dray_media_type::type_of_name(name).unwrap_or(UNKNOWN_TYPE)
}

fn content_type_of(media_type: &str) -> String {
    let is_text = media_type.starts_with("text/")
        || matches!(media_type, "application/json" | "application/javascript");
    let charset = if is_text { "; charset=utf-8" } else { "" };
    format!("{media_type}{charset}")
}

/// The body for the client, whose bytes are counted. An error breaks the connection, so that the client does not take a
/// part for the complete file.
fn counted_body(view: &SandboxView, body: SandboxBody, permit: OwnedSemaphorePermit) -> Body {
    let counted = CountedBody {
        body,
        metrics: view.metrics().clone(),
        preview_id: view.found.preview.preview_id.clone(),
        _permit: permit,
    };
    Body::from_stream(stream::try_unfold(counted, |mut counted| async move {
        match counted.body.next().await {
            None => Ok(None),
            Some(Ok(bytes)) => {
                counted.metrics.sent(bytes.len());
                Ok(Some((bytes, counted)))
            }
            Some(Err(error)) => {
                counted.metrics.responded(error.kind().as_str());
                tracing::warn!(%error, preview = counted.preview_id, "a response broke off");
                Err(error)
            }
        }
    }))
}

struct CountedBody {
    body: SandboxBody,
    metrics: PreviewMetrics,
    preview_id: String,
    /// Held until the response ends.
    _permit: OwnedSemaphorePermit,
}
