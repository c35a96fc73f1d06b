//! The local manifests as models of plain `OpenAI` clients.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use dray_agent::failure::RequestFailure;
use serde_json::{Value, json};

use super::reply;
use super::routes::HttpSurface;
use crate::manifests::ListedManifest;

/// The tenant of the service, in the form of a bus subject.
const TENANT_HEADER: HeaderName = HeaderName::from_static("dray-tenant");

/// `GET /v1/models`: the local manifests that the caller may use.
pub(super) async fn list_models(
    State(surface): State<Arc<HttpSurface>>,
    headers: HeaderMap,
) -> Response {
    let identity = match surface.options.plain_caller(&headers) {
        Ok((_, identity)) => identity,
        Err(failure) => return reply::failure_response(&failure),
    };
    let models = surface.manifests.list();
    let models = models
        .iter()
        // Names of agents that the caller may not use are not shown either.
        .filter(|listed| surface.offers(&identity, &listed.name));
    let models: Vec<_> = models.map(model_json).collect();
    let list = json!({ "object": "list", "data": models });
    let mut response = reply::json_response(StatusCode::OK, &list);
    // The console reads this header, because its users must act in their own tenant. The token has only characters of
    // header values.
    let tenant = HeaderValue::try_from(surface.options.tenant.token());
    if let Ok(tenant) = tenant {
        response.headers_mut().insert(TENANT_HEADER, tenant);
    }
    response
}

/// `GET /v1/models/{name}`; status 404 also for a manifest that is not for this caller.
pub(super) async fn get_model(
    State(surface): State<Arc<HttpSurface>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    let identity = match surface.options.plain_caller(&headers) {
        Ok((_, identity)) => identity,
        Err(failure) => return reply::failure_response(&failure),
    };
    let models = surface.manifests.list();
    let mut models = models
        .iter()
        .filter(|listed| surface.offers(&identity, &listed.name));
    match models.find(|listed| listed.name == name) {
        Some(listed) => reply::json_response(StatusCode::OK, &model_json(listed)),
        None => reply::failure_response(&unknown_model_failure(&name)),
    }
}

fn model_json(listed: &ListedManifest) -> Value {
    json!({
        "id": listed.name,
        "object": "model",
        "created": listed.modified,
        "owned_by": "drayage",
    })
}

/// The error for a model that does not exist, or for a request that names none.
pub(super) fn unknown_model_failure(name: &str) -> RequestFailure {
    let (mut failure, code) = if name.is_empty() {
        let message = "Missing required parameter: 'model'. GET /v1/models lists the models";
        (
            RequestFailure::new(400, message),
            "missing_required_parameter",
        )
    } else {
        let message = format!("The model '{name}' does not exist");
        (RequestFailure::new(404, message), "model_not_found")
    };
    failure.param = Some("model".into());
    failure.code = Some(code.to_owned());
    failure
}
