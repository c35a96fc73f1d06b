//! `POST /v1/responses/input_tokens`: an estimate of the tokens of a request of `/v1/responses`, which it does not run.
//! No model is asked and no tool set is connected, so the agent's own tools, skills and contexts do not count.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use dray_agent::compaction::{estimated_text_tokens, estimated_tokens};
use dray_agent::failure::RequestFailure;
use dray_agent::{prompt, state};
use serde_json::{Value, json};

use super::create::{AcceptedRequest, accept_request, chat_request, history};
use crate::http::contract::ManifestSource;
use crate::http::files::respond;
use crate::http::models;
use crate::http::routes::HttpSurface;

/// Counts the tokens of a request.
pub(in crate::http) async fn count_input_tokens(
    State(surface): State<Arc<HttpSurface>>,
    request: Request,
) -> Response {
    respond(count(&surface, request).await)
}

async fn count(surface: &HttpSurface, request: Request) -> Result<Value, RequestFailure> {
    let (head, body) = request.into_parts();
    let mut accepted = accept_request(surface, &head.headers, body).await?;
    let configured = instructions(surface, &accepted).await?;
    let request = &mut accepted.request;
    let history = history(surface, &accepted.principal, request).await?;
    let (chat, _) = chat_request(request, &history, None, surface.options.dial)?;
    let mut messages = state::unpack_history(chat.messages).messages;
    prompt::merge_system_messages(&mut messages, configured, false);
    let declared = chat.tools.iter().chain(&chat.response_format);
    let declared: u64 = declared
        .map(|declaration| estimated_text_tokens(&declaration.to_string()))
        .sum();
    let tokens = estimated_tokens(&messages).saturating_add(declared);
    Ok(json!({"object": "response.input_tokens", "input_tokens": tokens}))
}

/// The instructions of the agent that the request names; `None` for a request without a model.
async fn instructions(
    surface: &HttpSurface,
    accepted: &AcceptedRequest,
) -> Result<Option<String>, RequestFailure> {
    let AcceptedRequest {
        caller, identity, ..
    } = accepted;
    let model = &accepted.request.model;
    let source = match accepted.named.clone() {
        Some(source) => source,
        None if model.is_empty() => return Ok(None),
        None if !surface.offers(identity, model) => {
            return Err(models::unknown_model_failure(model));
        }
        None => ManifestSource::Named(model.clone()),
    };
    let manifest = surface.agent.manifest(caller, identity, &source).await?;
    let configured = surface
        .layers
        .system_prompt(&manifest.orchestrator.system_prompt);
    // A prompt that cannot be read ends a turn with its own failure; here it does not count.
    let configured = configured.ok().filter(|text| !text.is_empty());
    Ok(configured.map(str::to_owned))
}
