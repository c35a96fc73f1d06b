//! `/v1/files`: files that clients upload and those that the agent made in responses.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use dray_agent::failure::RequestFailure;
use dray_http_server::extended_attachment;
use dray_store::ArtifactReader;
use futures_util::stream;
use serde_json::{Value, json};

use super::page::{PageQuery, page_of};
use super::reply;
use super::routes::HttpSurface;

pub(super) mod upload;

/// Most files of one page, and the number when the request names none; as in `OpenAI`'s API.
const MAX_PAGE_FILES: usize = 10_000;

/// `POST /v1/files`: a form with `file`, `purpose` and `expires_after[…]`.
pub(super) async fn upload_file(
    State(surface): State<Arc<HttpSurface>>,
    request: Request,
) -> Response {
    let (head, body) = request.into_parts();
    let uploaded = async {
        // The caller is identified before the body is read, so that a caller without a key costs no memory and no
        // storage.
        let principal = surface.principal(&head.headers)?;
        upload::store_upload(&surface, &principal, &head.headers, body).await
    };
    respond(uploaded.await)
}

/// `GET /v1/files`.
pub(super) async fn list_files(
    State(surface): State<Arc<HttpSurface>>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let listed = async {
        let page = PageQuery::of(&uri);
        let principal = surface.principal(&headers)?;
        upload::check_listed_purpose(page.purpose.as_deref())?;
        let mut files = surface.state.files.list(&principal).await?;
        files.retain(|(_, file)| {
            page.purpose
                .as_ref()
                .is_none_or(|wanted| *wanted == file.purpose)
        });
        files.sort_by(|left, right| {
            (left.1.created_ms, &left.0).cmp(&(right.1.created_ms, &right.0))
        });
        let objects = files.iter().map(|(id, file)| file.object(id)).collect();
        page_of(objects, &page, (MAX_PAGE_FILES, MAX_PAGE_FILES))
    };
    respond(listed.await)
}

/// `GET /v1/files/{id}`.
pub(super) async fn get_file(
    State(surface): State<Arc<HttpSurface>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let found = async {
        let principal = surface.principal(&headers)?;
        let file = surface.state.files.get(&principal, &id).await?;
        Ok(file.object(&id))
    };
    respond(found.await)
}

/// `DELETE /v1/files/{id}`.
pub(super) async fn delete_file(
    State(surface): State<Arc<HttpSurface>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let deleted = async {
        let principal = surface.principal(&headers)?;
        surface.state.files.delete(&principal, &id).await?;
        Ok(json!({ "id": id, "object": "file", "deleted": true }))
    };
    respond(deleted.await)
}

/// `GET /v1/files/{id}/content`.
pub(super) async fn get_content(
    State(surface): State<Arc<HttpSurface>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let content = content_response(&surface, &id, &headers).await;
    content.unwrap_or_else(|failure| reply::failure_response(&failure))
}

/// `GET /v1/containers/{container}/files/{id}/content`: where clients look for a file that an annotation of a response
/// cites. The id alone identifies the file, so the container is ignored.
pub(super) async fn get_container_content(
    State(surface): State<Arc<HttpSurface>>,
    Path((_container, id)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let content = content_response(&surface, &id, &headers).await;
    content.unwrap_or_else(|failure| reply::failure_response(&failure))
}

async fn content_response(
    surface: &HttpSurface,
    id: &str,
    headers: &HeaderMap,
) -> Result<Response, RequestFailure> {
    let principal = surface.principal(headers)?;
    let file = surface.state.files.get(&principal, id).await?;
    let reader = surface.state.files.open(id, &file).await?;
    let mut response = Body::from_stream(reader_stream(reader)).into_response();
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_LENGTH, file.content.size().into());
    // A browser must not run what a client or a tool uploaded.
    fields.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    for (name, value) in [
        (header::CONTENT_TYPE, file.media_type.clone()),
        (header::CONTENT_DISPOSITION, extended_attachment(&file.name)),
    ] {
        if let Ok(value) = HeaderValue::try_from(value) {
            fields.insert(name, value);
        }
    }
    Ok(response)
}

/// The chunks of a stored file. A digest that does not match ends the body before its length, so that no client takes
/// damaged content for complete.
fn reader_stream(
    reader: ArtifactReader,
) -> impl futures_util::Stream<Item = Result<axum::body::Bytes, dray_store::ReadError>> {
    stream::try_unfold(reader, |mut reader| async move {
        Ok(reader.next().await?.map(|bytes| (bytes, reader)))
    })
}

/// JSON, or the failure.
pub(super) fn respond(result: Result<Value, RequestFailure>) -> Response {
    match result {
        Ok(body) => reply::json_response(StatusCode::OK, &body),
        Err(failure) => reply::failure_response(&failure),
    }
}
