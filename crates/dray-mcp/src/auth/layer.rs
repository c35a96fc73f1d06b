//! The check of every request before it reaches the protocol.
#![expect(
    clippy::result_large_err,
    reason = "the error is the response, which is made once for a request"
)]

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use dray_jwt::TokenError;
use http::request::Parts;
use http::{HeaderValue, Method, header};
use serde_json::Value;

use super::challenge;
use super::scope::{Scope, ScopeSet, required_scopes};
use super::session_id::SessionIdSigner;
use super::{Authenticator, Caller};
use crate::http::{CountedValues, unread_body};
use crate::message_check::has_too_many_values;
use crate::options::ToolName;
use crate::sessions::SESSION_ID;
use crate::{transfer, transfer_tasks};

/// The check, as state of a middleware.
#[derive(Clone, Debug)]
pub(crate) struct AuthLayer {
    pub(crate) authenticator: Authenticator,
    /// Largest body of a request, in bytes.
    pub(crate) max_body_bytes: usize,
    signer: SessionIdSigner,
}

impl AuthLayer {
    pub(crate) fn new(authenticator: Authenticator, max_body_bytes: usize) -> Self {
        Self {
            authenticator,
            max_body_bytes,
            signer: SessionIdSigner::new(),
        }
    }

    async fn authenticate(&self, parts: &Parts) -> Result<Caller, Response> {
        let verifier = self.authenticator.verifier.as_deref();
        let options = verifier.map(super::OAuthVerifier::options);
        let Some(token) = bearer_token(parts) else {
            return Err(challenge::unauthorized(options, None));
        };
        let mut tokens = self.authenticator.tokens.iter();
        if let Some(known) = tokens.find(|known| known.token.admits(token)) {
            return Ok(known.caller.clone());
        }
        let Some(verifier) = verifier else {
            return Err(challenge::unauthorized(None, Some("it is not known")));
        };
        verifier.verify(token).await.map_err(|error| {
            tracing::info!(%error, "a bearer token was refused");
            match error {
                TokenError::Invalid(reason) => challenge::unauthorized(options, Some(reason)),
                TokenError::KeysUnavailable => challenge::keys_unavailable(&error.to_string()),
            }
        })
    }

    /// Refuses a message that the scopes of the caller do not allow. The tools check again with the message as the
    /// protocol parsed it, so a message that is parsed differently here gets no additional permissions.
    fn check_scopes(&self, caller: &Caller, body: &[u8]) -> Result<(), Response> {
        let required = message_scopes(body);
        if caller.scopes.contains(required) {
            return Ok(());
        }
        let verifier = self.authenticator.verifier.as_deref();
        let options = verifier.map(super::OAuthVerifier::options);
        Err(challenge::insufficient_scope(
            options,
            caller.scopes,
            required,
        ))
    }

    /// Replaces the session id of the client by the session id of the protocol.
    fn open_session(&self, parts: &mut Parts, subject: &str) -> Result<(), Response> {
        let Some(sealed) = parts.headers.get(SESSION_ID) else {
            return Ok(());
        };
        let id = sealed.to_str().ok();
        let id = id.and_then(|sealed| self.signer.open(sealed, subject));
        let id = id.and_then(|id| HeaderValue::from_str(id).ok());
        let id = id.ok_or_else(challenge::session_not_found)?;
        parts.headers.insert(SESSION_ID, id);
        Ok(())
    }

    fn seal_session(&self, response: &mut Response, subject: &str) {
        let id = response.headers().get(SESSION_ID);
        let sealed = id
            .and_then(|id| id.to_str().ok())
            .and_then(|id| HeaderValue::from_str(&self.signer.seal(id, subject)).ok());
        if let Some(sealed) = sealed {
            response.headers_mut().insert(SESSION_ID, sealed);
        }
    }
}

/// Identifies the caller, and refuses requests that the token does not allow. Only the head of a request is read before
/// the caller is identified.
pub(crate) async fn check_request(
    State(layer): State<Arc<AuthLayer>>,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    let caller = match layer.authenticate(&parts).await {
        Ok(caller) => caller,
        Err(refused) => return refused,
    };
    let subject = caller.subject.clone();
    if let Err(refused) = layer.open_session(&mut parts, &subject) {
        return refused;
    }
    let body = if parts.method == Method::POST {
        let bytes = match to_bytes(body, layer.max_body_bytes).await {
            Ok(bytes) => bytes,
            Err(error) => return unread_body(&error),
        };
        let are_too_many = has_too_many_values(&bytes);
        parts.extensions.insert(CountedValues { are_too_many });
        // A message with too many values is refused before it is parsed.
        if !are_too_many && let Err(refused) = layer.check_scopes(&caller, &bytes) {
            return refused;
        }
        Body::from(bytes)
    } else {
        body
    };
    // The token is removed after the check, so that handlers and logs do not get it.
    parts.headers.remove(header::AUTHORIZATION);
    parts.extensions.insert(Arc::new(caller));
    let mut response = next.run(Request::from_parts(parts, body)).await;
    layer.seal_session(&mut response, &subject);
    response
}

fn bearer_token(parts: &Parts) -> Option<&str> {
    let mut values = parts.headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    // With two headers, a proxy and this server could use different ones.
    if values.next().is_some() {
        return None;
    }
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// The scopes that a message of the protocol needs. Lists and the handshake need none beyond a token.
fn message_scopes(body: &[u8]) -> ScopeSet {
    let Ok(message) = serde_json::from_slice::<Value>(body) else {
        // A body that is not JSON needs no scope, because the protocol refuses it.
        return ScopeSet::default();
    };
    let params = message.get("params");
    match message.get("method").and_then(Value::as_str) {
        Some("tools/call") => {
            let name = params.and_then(|params| params.get("name")?.as_str());
            let tool = name.and_then(|name| name.parse::<ToolName>().ok());
            let arguments = params.and_then(|params| params.get("arguments")?.as_object());
            tool.map_or_else(ScopeSet::default, |tool| required_scopes(tool, arguments))
        }
        Some(
            "resources/read"
            | "resources/subscribe"
            | "subscriptions/listen"
            | "completion/complete"
            | "tasks/get"
            | "tasks/update",
        ) => [Scope::Read].into_iter().collect(),
        Some("tasks/cancel") => {
            let id = params.and_then(|params| params.get("taskId")?.as_str());
            // A transfer needs the scopes of its call; the handler checks them, because it has the record of the call.
            let is_delivery = !id.is_some_and(transfer_tasks::is_transfer_id);
            is_delivery.then_some(Scope::Send).into_iter().collect()
        }
        Some(transfer::AUTHORIZE_UPLOAD) => [Scope::Put].into_iter().collect(),
        Some(transfer::AUTHORIZE_DOWNLOAD) => {
            let uri = params.and_then(|params| params.get("uri"));
            let arguments = serde_json::json!({"from": uri});
            required_scopes(ToolName::DownloadTicket, arguments.as_object())
        }
        _ => ScopeSet::default(),
    }
}
