//! `/v1/conversations`.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use dray_agent::failure::RequestFailure;
use dray_http_server::BytePermit;
use serde_json::{Map, Value, json};

use super::item_page;
use super::items::read_input;
use super::request::{invalid, take_metadata};
use crate::http::files::respond;
use crate::http::routes::HttpSurface;
use crate::responses::{History, ResponseDocument, missing_failure};

/// `POST /v1/conversations`.
pub(in crate::http) async fn create_conversation(
    State(surface): State<Arc<HttpSurface>>,
    request: Request,
) -> Response {
    let created = async {
        let (principal, mut body, _memory) = read_body(&surface, request).await?;
        let metadata = take_metadata(&mut body)?;
        let items = take_items(&mut body)?;
        refuse_rest(&body)?;
        let responses = &surface.state.responses;
        let created = responses.create_conversation(&principal, metadata, items);
        let (id, record) = created.await?;
        Ok(record.object(&id))
    };
    respond(created.await)
}

/// `GET /v1/conversations/{id}`.
pub(in crate::http) async fn get_conversation(
    State(surface): State<Arc<HttpSurface>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let found = async {
        let principal = surface.principal(&headers)?;
        let record = surface
            .state
            .responses
            .conversation(&principal, &id)
            .await?;
        Ok(record.value.object(&id))
    };
    respond(found.await)
}

/// `POST /v1/conversations/{id}`: replaces its metadata.
pub(in crate::http) async fn update_conversation(
    State(surface): State<Arc<HttpSurface>>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let updated = async {
        let (principal, mut body, _memory) = read_body(&surface, request).await?;
        let metadata = take_metadata(&mut body)?;
        refuse_rest(&body)?;
        let responses = &surface.state.responses;
        let record = responses.set_metadata(&principal, &id, &metadata).await?;
        Ok(record.object(&id))
    };
    respond(updated.await)
}

/// `DELETE /v1/conversations/{id}`.
pub(in crate::http) async fn delete_conversation(
    State(surface): State<Arc<HttpSurface>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let deleted = async {
        let principal = surface.principal(&headers)?;
        let responses = &surface.state.responses;
        responses.delete_conversation(&principal, &id).await?;
        Ok(json!({ "id": id, "object": "conversation.deleted", "deleted": true }))
    };
    respond(deleted.await)
}

/// `GET /v1/conversations/{id}/items`.
pub(in crate::http) async fn list_items(
    State(surface): State<Arc<HttpSurface>>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let listed = async {
        let principal = surface.principal(&headers)?;
        let responses = &surface.state.responses;
        let mut history = responses.conversation_items(&principal, &id).await?;
        item_page(conversation_items(&mut history), &uri)
    };
    respond(listed.await)
}

/// `POST /v1/conversations/{id}/items`.
pub(in crate::http) async fn add_items(
    State(surface): State<Arc<HttpSurface>>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let added = async {
        let (principal, mut body, _memory) = read_body(&surface, request).await?;
        let items = take_items(&mut body)?;
        refuse_rest(&body)?;
        if items.is_empty() {
            return Err(invalid("items", "The list of items is empty."));
        }
        let responses = &surface.state.responses;
        responses.add_items(&principal, &id, items.clone()).await?;
        let id_of = |item: Option<&Value>| item.and_then(|item| item.get("id")).cloned();
        Ok(json!({
            "object": "list",
            "first_id": id_of(items.first()),
            "last_id": id_of(items.last()),
            "data": items,
            "has_more": false,
        }))
    };
    respond(added.await)
}

/// `GET /v1/conversations/{id}/items/{item}`.
pub(in crate::http) async fn get_item(
    State(surface): State<Arc<HttpSurface>>,
    Path((id, item_id)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let found = async {
        let principal = surface.principal(&headers)?;
        let responses = &surface.state.responses;
        let mut history = responses.conversation_items(&principal, &id).await?;
        let mut items = conversation_items(&mut history).into_iter();
        let item = items.find(|item| item["id"] == item_id.as_str());
        item.ok_or_else(|| missing_failure("item", &item_id))
    };
    respond(found.await)
}

/// `DELETE /v1/conversations/{id}/items/{item}`.
pub(in crate::http) async fn delete_item(
    State(surface): State<Arc<HttpSurface>>,
    Path((id, item_id)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let deleted = async {
        let principal = surface.principal(&headers)?;
        let responses = &surface.state.responses;
        let record = responses.delete_item(&principal, &id, &item_id).await?;
        Ok(record.object(&id))
    };
    respond(deleted.await)
}

/// All items of a conversation, oldest first. The history keeps its part of the memory for stored documents.
fn conversation_items(history: &mut History) -> Vec<Value> {
    let of_document = |document: ResponseDocument| {
        let output = document
            .response
            .and_then(|mut response| match response.get_mut("output") {
                Some(Value::Array(output)) => Some(std::mem::take(output)),
                _ => None,
            });
        let mut items = document.input;
        items.extend(output.unwrap_or_default());
        items
    };
    let documents = std::mem::take(&mut history.documents).into_iter();
    documents.flat_map(of_document).collect()
}

/// The caller, the members of the body, and the memory for them.
async fn read_body(
    surface: &HttpSurface,
    request: Request,
) -> Result<(String, Map<String, Value>, BytePermit), RequestFailure> {
    let (head, body) = request.into_parts();
    // The caller is identified before the body is read, so that a caller without a key costs no memory.
    let principal = surface.principal(&head.headers)?;
    let read = surface.read_json(&head.headers, body, surface.options.max_body);
    match read.await? {
        (Value::Object(mut members), memory) => {
            members.retain(|_, value| !value.is_null());
            Ok((principal, members, memory))
        }
        _ => Err(RequestFailure::new(
            400,
            "The request must be a JSON object.",
        )),
    }
}

fn take_items(body: &mut Map<String, Value>) -> Result<Vec<Value>, RequestFailure> {
    match body.shift_remove("items") {
        None => Ok(Vec::new()),
        Some(items @ Value::Array(_)) => match read_input(items) {
            Ok(read) => Ok(read.items),
            Err(mut failure) => {
                let field = failure.param.take().unwrap_or_default();
                let rest = field.strip_prefix("input").unwrap_or(&field);
                failure.param = Some(format!("items{rest}").into());
                Err(failure)
            }
        },
        Some(_) => Err(invalid("items", "It must be a list of items.")),
    }
}

fn refuse_rest(body: &Map<String, Value>) -> Result<(), RequestFailure> {
    match body.keys().next() {
        Some(name) => Err(crate::http::unsupported_failure(
            name.as_str(),
            "it is not a known parameter",
        )),
        None => Ok(()),
    }
}
