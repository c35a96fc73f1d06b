//! `/v1/responses` and `/v1/conversations`: the same turns as chat completions, with state on the server.
//!
//! - `request`, `items`: a request becomes one of chat completions.
//! - `approval_items`: questions on approval and their answers.
//! - `duplicates`: items that a request has twice.
//! - `references`: ids of items, and items that a request names by them.
//! - `writer`, `open_item`: events of the turn become items and events of the response.
//! - `create`: from a request to a response that runs; `driver`: the task that runs it, with its client or without.
//! - `input_tokens`: an estimate of the tokens of a request.
//! - `takeover`: a response whose process is gone.
//! - `conversations`: conversations and their items.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use dray_agent::failure::RequestFailure;
use serde_json::{Value, json};

use super::files::respond;
use super::page::{PageQuery, page_of};
use super::routes::HttpSurface;

mod approval_items;
pub(super) mod conversations;
mod create;
mod driver;
mod duplicates;
mod input_parts;
mod input_tokens;
mod items;
mod mcp_items;
mod open_item;
mod parameters;
mod references;
mod request;
mod takeover;
mod writer;

pub(super) use create::create_response;
pub(crate) use driver::RunningResponses;
pub(super) use input_tokens::count_input_tokens;

/// Items of one page: the usual and the largest number, as in `OpenAI`'s API.
const PAGE_ITEMS: (usize, usize) = (20, 100);

/// `GET /v1/responses/{id}`.
pub(super) async fn get_response(
    State(surface): State<Arc<HttpSurface>>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let found = async {
        let principal = surface.principal(&headers)?;
        refuse_stream(&uri)?;
        let reports = takeover::finish_abandoned(&surface, &headers, &principal, &id).await?;
        let polled = surface.state.responses.poll(&principal, &id, reports);
        Ok(polled.await?.0)
    };
    respond(found.await)
}

/// The stream of a response ends with its connection, because its events are not stored.
fn refuse_stream(uri: &Uri) -> Result<(), RequestFailure> {
    let query = uri.query().unwrap_or_default();
    let mut members = url::form_urlencoded::parse(query.as_bytes());
    if members.any(|(name, value)| name == "stream" && value == "true") {
        let reason = "the events of a response are not kept; poll it";
        return Err(super::unsupported_failure("stream", reason));
    }
    Ok(())
}

/// `DELETE /v1/responses/{id}`.
pub(super) async fn delete_response(
    State(surface): State<Arc<HttpSurface>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let deleted = async {
        let principal = surface.principal(&headers)?;
        surface.state.responses.delete(&principal, &id).await?;
        surface.running.cancel(&id);
        Ok(json!({ "id": id, "object": "response", "deleted": true }))
    };
    respond(deleted.await)
}

/// `POST /v1/responses/{id}/cancel`.
pub(super) async fn cancel_response(
    State(surface): State<Arc<HttpSurface>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let cancelled = async {
        let principal = surface.principal(&headers)?;
        let response = surface.state.responses.cancel(&principal, &id).await?;
        // Another replica notices it when it renews the lease.
        surface.running.cancel(&id);
        Ok(response)
    };
    respond(cancelled.await)
}

/// `GET /v1/responses/{id}/input_items`.
pub(super) async fn list_input_items(
    State(surface): State<Arc<HttpSurface>>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let listed = async {
        let principal = surface.principal(&headers)?;
        let (_, document) = surface.state.responses.get(&principal, &id).await?;
        item_page(document.input, &uri)
    };
    respond(listed.await)
}

fn item_page(items: Vec<Value>, uri: &Uri) -> Result<Value, RequestFailure> {
    page_of(items, &PageQuery::of(uri), PAGE_ITEMS)
}
