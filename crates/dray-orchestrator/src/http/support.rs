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

use super::current::CurrentSurface;
use super::reply;
use super::routes::HttpSurface;

/// The routes below `/v1/configuration-support`.
pub(super) fn support_routes(surface: &CurrentSurface) -> Router<CurrentSurface> {
    Router::new()
        .route("/application-schema", get(get_schema))
        .route("/application-type", get(get_application_type))
        .route("/system-prompts", get(list_prompts))
        .route("/system-prompts/{name}", get(get_prompt))
        .route("/tool-sets", get(list_tool_sets))
        .route("/tool-sets/{name}", get(get_tool_set))
        .route("/tools", get(list_tools))
        .route("/tools/{name}", get(get_tool))
        .route("/template/{deployment}", get(get_template))
        // The layer comes after the routes: a layer wraps only what was added before it.
        .layer(from_fn_with_state(surface.clone(), check_editor))
}

async fn check_editor(
    State(surface): State<Arc<HttpSurface>>,
    request: Request,
    next: Next,
) -> Response {
    match surface.options.editor(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(failure) => reply::failure_response(&failure),
    }
}

async fn get_schema(State(surface): State<Arc<HttpSurface>>) -> Response {
    reply::json_response(StatusCode::OK, &surface.options.schema)
}

async fn get_application_type(State(surface): State<Arc<HttpSurface>>) -> Response {
    reply::json_response(StatusCode::OK, &surface.options.application_type)
}

async fn list_prompts(State(surface): State<Arc<HttpSurface>>) -> Response {
    let listed = support::system_prompts(&surface.options.prompt_mapping);
    reply::json_response(StatusCode::OK, &listed)
}

async fn get_prompt(State(surface): State<Arc<HttpSurface>>, Path(name): Path<String>) -> Response {
    let text = surface.layers.text(EntryKind::Prompt, &name);
    found_response(EntryKind::Prompt, &name, text.map(|text| json!(text)))
}

async fn list_tool_sets(State(surface): State<Arc<HttpSurface>>) -> Response {
    names_response(&surface, EntryKind::ToolSet)
}

async fn get_tool_set(
    State(surface): State<Arc<HttpSurface>>,
    Path(name): Path<String>,
) -> Response {
    found_response(
        EntryKind::ToolSet,
        &name,
        support::template_body(&surface.layers, EntryKind::ToolSet, &name),
    )
}

async fn list_tools(State(surface): State<Arc<HttpSurface>>) -> Response {
    names_response(&surface, EntryKind::Tool)
}

async fn get_tool(State(surface): State<Arc<HttpSurface>>, Path(name): Path<String>) -> Response {
    found_response(
        EntryKind::Tool,
        &name,
        support::template_body(&surface.layers, EntryKind::Tool, &name),
    )
}

async fn get_template(
    State(surface): State<Arc<HttpSurface>>,
    Path(deployment): Path<String>,
    headers: HeaderMap,
) -> Response {
    // The only route here with a key of DIAL (quickapps 38): DIAL Core is asked on the caller's behalf.
    let template = match surface.options.dial_caller(&headers) {
        Ok(credentials) => {
            surface
                .agent
                .template(&credentials.caller, &deployment)
                .await
        }
        Err(failure) => Err(failure),
    };
    match template {
        Ok(tool) => reply::json_response(StatusCode::OK, &tool),
        Err(failure) => reply::failure_response(&failure),
    }
}

fn names_response(surface: &HttpSurface, kind: EntryKind) -> Response {
    let names: Vec<_> = surface.layers.names(kind).collect();
    reply::json_response(StatusCode::OK, &json!(names))
}

fn found_response(kind: EntryKind, name: &str, body: Option<Value>) -> Response {
    match body {
        Some(body) => reply::json_response(StatusCode::OK, &body),
        None => reply::json_response(StatusCode::NOT_FOUND, &support::not_found(kind, name)),
    }
}
