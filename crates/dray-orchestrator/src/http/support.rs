//! Help for editors of manifests (quickapps 38).

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::get;
use dray_agent::layer::EntryKind;
use dray_agent::support;
use serde_json::{Value, json};

use super::reply;
use super::routes::HttpSurface;

/// Its routes, below `/v1/configuration-support`.
pub(super) fn routes(surface: &Arc<HttpSurface>) -> Router<Arc<HttpSurface>> {
    Router::new()
        .route("/application-schema", get(schema))
        .route("/system-prompts", get(prompts))
        .route("/system-prompts/{name}", get(prompt))
        .route("/tool-sets", get(tool_sets))
        .route("/tool-sets/{name}", get(tool_set))
        .route("/tools", get(tools))
        .route("/tools/{name}", get(tool))
        .route("/template/{deployment}", get(template))
        .layer(from_fn_with_state(Arc::clone(surface), let_in))
}

async fn let_in(State(surface): State<Arc<HttpSurface>>, request: Request, next: Next) -> Response {
    match surface.options.editor(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(failure) => reply::failure(&failure),
    }
}

async fn schema(State(surface): State<Arc<HttpSurface>>) -> Response {
    reply::json(StatusCode::OK, &surface.options.schema)
}

async fn prompts(State(surface): State<Arc<HttpSurface>>) -> Response {
    let listed = support::system_prompts(&surface.options.prompt_mapping);
    reply::json(StatusCode::OK, &listed)
}

async fn prompt(State(surface): State<Arc<HttpSurface>>, Path(name): Path<String>) -> Response {
    let text = surface.layers.text(EntryKind::Prompt, &name);
    found(EntryKind::Prompt, &name, text.map(|text| json!(text)))
}

async fn tool_sets(State(surface): State<Arc<HttpSurface>>) -> Response {
    names(&surface, EntryKind::ToolSet)
}

async fn tool_set(State(surface): State<Arc<HttpSurface>>, Path(name): Path<String>) -> Response {
    found(
        EntryKind::ToolSet,
        &name,
        support::body(&surface.layers, EntryKind::ToolSet, &name),
    )
}

async fn tools(State(surface): State<Arc<HttpSurface>>) -> Response {
    names(&surface, EntryKind::Tool)
}

async fn tool(State(surface): State<Arc<HttpSurface>>, Path(name): Path<String>) -> Response {
    found(
        EntryKind::Tool,
        &name,
        support::body(&surface.layers, EntryKind::Tool, &name),
    )
}

async fn template(
    State(surface): State<Arc<HttpSurface>>,
    Path(deployment): Path<String>,
    headers: HeaderMap,
) -> Response {
    let made = match surface.options.dial_caller(&headers) {
        Ok(credentials) => {
            surface
                .agent
                .template(&credentials.caller, &deployment)
                .await
        }
        Err(failure) => Err(failure),
    };
    match made {
        Ok(tool) => reply::json(StatusCode::OK, &tool),
        Err(failure) => reply::failure(&failure),
    }
}

fn names(surface: &HttpSurface, kind: EntryKind) -> Response {
    let names: Vec<_> = surface.layers.names(kind).collect();
    reply::json(StatusCode::OK, &json!(names))
}

fn found(kind: EntryKind, name: &str, body: Option<Value>) -> Response {
    match body {
        Some(body) => reply::json(StatusCode::OK, &body),
        None => reply::json(StatusCode::NOT_FOUND, &support::not_found(kind, name)),
    }
}
