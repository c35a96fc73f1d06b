//! `POST /v1/responses/input_tokens`: an estimate of the tokens of a request of `/v1/responses`, which it does not run. No model
//! is asked and no tool set is connected, so the agent's own tools, skills and contexts do not count.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use dray_agent::caller::Caller;
use dray_agent::compaction::{estimated_text_tokens, estimated_tokens};
use dray_agent::failure::RequestFailure;
use dray_agent::{prompt, state};
use serde_json::{Value, json};

use super::create::{chat_request, history};
use super::references::resolve_references;
use super::request::read_response_request;
use crate::http::contract::ManifestSource;
use crate::http::files::respond;
use crate::http::routes::HttpSurface;
use crate::http::{body, credentials, models};
use crate::permissions::CallerIdentity;

/// Counts the tokens of a request.
pub(in crate::http) async fn count_input_tokens(
    State(surface): State<Arc<HttpSurface>>,
    request: Request,
) -> Response {
    respond(count(&surface, request).await)
}

async fn count(surface: &HttpSurface, request: Request) -> Result<Value, RequestFailure> {
    let (head, body) = request.into_parts();
    let headers = head.headers;
    // As for a response: key, permit, body.
    let (caller, identity) = surface.options.plain_caller(&headers)?;
    let named = credentials::manifest_source(&headers)?;
    let _permit = surface.turn().await?;
    let options = &surface.options;
    let mut body = body::read_json(&headers, body, options.max_body, options.body_timeout).await?;
    let principal = identity.key();
    let responses = &surface.state.responses;
    resolve_references(responses, &principal, &mut body, options.max_body).await?;
    let mut request = read_response_request(body)?;
    let configured = instructions(surface, &caller, &identity, named, &request.model).await?;
    let history = history(surface, &principal, &request).await?;
    let (chat, _) = chat_request(&mut request, &history, None, options.dial)?;
    let mut messages = state::unpack_history(chat.messages).messages;
    prompt::merge_system_messages(&mut messages, configured, false);
    let declared = chat.tools.iter().chain(&chat.response_format);
    let declared: u64 = declared
        .map(|one| estimated_text_tokens(&one.to_string()))
        .sum();
    let tokens = estimated_tokens(&messages).saturating_add(declared);
    Ok(json!({"object": "response.input_tokens", "input_tokens": tokens}))
}

/// The instructions of the agent that the request names; `None` for a request without a model.
async fn instructions(
    surface: &HttpSurface,
    caller: &Caller,
    identity: &CallerIdentity,
    named: Option<ManifestSource>,
    model: &str,
) -> Result<Option<String>, RequestFailure> {
    let source = match named {
        Some(source) => source,
        None if model.is_empty() => return Ok(None),
        None if !surface.offers(identity, model) => {
            return Err(models::unknown_model_failure(model));
        }
        None => ManifestSource::Named(model.to_owned()),
    };
    let manifest = surface.agent.manifest(caller, identity, &source).await?;
    let configured = surface
        .layers
        .system_prompt(&manifest.orchestrator.system_prompt);
    // A prompt that cannot be read ends a turn with its own failure; here it does not count.
    let configured = configured.ok().filter(|text| !text.is_empty());
    Ok(configured.map(str::to_owned))
}
