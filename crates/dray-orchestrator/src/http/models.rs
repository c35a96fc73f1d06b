//! The local manifests as models of plain `OpenAI` clients.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use dray_agent::failure::Failure;
use serde_json::{Value, json};

use super::reply;
use super::routes::Surface;
use crate::manifests::Listed;

/// `GET /v1/models`
pub(super) async fn list(State(surface): State<Arc<Surface>>, headers: HeaderMap) -> Response {
    if let Err(failure) = surface.options.plain_caller(&headers) {
        return reply::failure(&failure);
    }
    let models: Vec<_> = surface.manifests.list().iter().map(shown).collect();
    reply::json(StatusCode::OK, &json!({ "object": "list", "data": models }))
}

/// `GET /v1/models/{name}`
pub(super) async fn one(
    State(surface): State<Arc<Surface>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    if let Err(failure) = surface.options.plain_caller(&headers) {
        return reply::failure(&failure);
    }
    let models = surface.manifests.list();
    match models.iter().find(|listed| listed.name == name) {
        Some(listed) => reply::json(StatusCode::OK, &shown(listed)),
        None => reply::failure(&unknown(&name)),
    }
}

fn shown(listed: &Listed) -> Value {
    json!({
        "id": listed.name,
        "object": "model",
        "created": listed.modified,
        "owned_by": "drayage",
    })
}

/// What is said about a model that is not there.
pub(super) fn unknown(name: &str) -> Failure {
    let mut failure = Failure::new(404, format!("The model '{name}' does not exist"));
    failure.param = Some("model".into());
    failure.code = Some("model_not_found".to_owned());
    failure
}
