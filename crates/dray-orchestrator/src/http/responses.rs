//! `/v1/responses` and `/v1/conversations`: the same turns as chat completions, with state on the server.
//!
//! - `request`, `items`: a request becomes one of chat completions.
//! - `approval_items`: questions on approval and their answers.
//! - `duplicates`: items that a request has twice.
//! - `references`: ids of items, and items that a request names by them.
//! - `writer`, `open_item`: events of the turn become items and events of the response.
//! - `create`: from a request to a response that runs; `driver`: the task that runs it, with its client or without.
//! - `input_tokens`: an estimate of the tokens of a request.
//! - `takeover`: a response whose process has ended; `sweeper` finds those that no client polls.
//! - `recorder`, `event_stream`: the events of a response in the background, and streams of them that are resumed.
//! - `conversations`: conversations and their items.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use dray_agent::failure::RequestFailure;
use serde_json::{Value, json};

use super::files::respond;
use super::page::{PageQuery, page_of};
use super::reply::{failure_response, json_response};
use super::routes::HttpSurface;
use event_stream::{StreamQuery, resume_stream};
use takeover::{ResponseCaller, finish_abandoned};

mod approval_items;
pub(super) mod conversations;
mod create;
mod driver;
mod duplicates;
mod event_stream;
mod input_parts;
mod input_tokens;
mod items;
mod mcp_items;
mod open_item;
mod parameters;
mod recorder;
mod references;
mod request;
mod sweeper;
mod takeover;
mod writer;

pub(super) use create::create_response;
pub(crate) use driver::RunningResponses;
pub(super) use input_tokens::count_input_tokens;
#[cfg(test)]
pub(super) use sweeper::KnownRuns;
pub(crate) use sweeper::sweep_runs;

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
        let (caller, identity) = surface.options.plain_caller(&headers)?;
        let principal = identity.key();
        let caller = ResponseCaller {
            caller,
            identity,
            principal: principal.clone(),
        };
        if let Some(query) = StreamQuery::read(&uri)? {
            return resume_stream(&surface, caller, &id, query).await;
        }
        let reports = finish_abandoned(&surface, caller, &id).await?;
        let polled = surface.state.responses.poll(&principal, &id, reports);
        Ok(json_response(StatusCode::OK, &polled.await?.response))
    };
    let found: Result<_, RequestFailure> = found.await;
    found.unwrap_or_else(|failure| failure_response(&failure))
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
        let mut stored = surface.state.responses.get(&principal, &id).await?;
        item_page(std::mem::take(&mut stored.input), &uri)
    };
    respond(listed.await)
}

fn item_page(items: Vec<Value>, uri: &Uri) -> Result<Value, RequestFailure> {
    page_of(items, &PageQuery::of(uri), PAGE_ITEMS)
}
