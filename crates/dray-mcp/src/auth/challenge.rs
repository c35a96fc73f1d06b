//! Responses to a caller without a sufficient token: challenges (RFC 6750, RFC 9728), and the metadata of the resource.

use std::fmt::Write as _;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::get;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use url::Url;

use super::OAuthOptions;
use super::scope::{Scope, ScopeSet};
use crate::cors::{ANY_ORIGIN, share_with_all};

/// Path of the metadata (RFC 9728 section 3); the path of the resource follows.
const METADATA_PATH: &str = "/.well-known/oauth-protected-resource";
/// How long a client waits before it tries again while no keys are available.
const RETRY_AFTER_SECONDS: &str = "30";

/// The routes of the metadata: with the path of the resource, and without it for clients that request it there.
pub(crate) fn metadata_router(options: &OAuthOptions) -> Router {
    let document = metadata(options).to_string();
    let path = resource_path(options);
    let mut router = Router::new();
    let mut paths = vec![METADATA_PATH.to_owned()];
    if !path.is_empty() {
        paths.push(format!("{METADATA_PATH}{path}"));
    }
    for path in paths {
        let document = document.clone();
        let headers = [
            (
                header::CONTENT_TYPE,
                HeaderValue::from_static("application/json"),
            ),
            // Clients in browsers read it before they have a token.
            (header::ACCESS_CONTROL_ALLOW_ORIGIN, ANY_ORIGIN),
        ];
        let serve_document = move || std::future::ready((headers.clone(), document.clone()));
        let preflight = |headers: HeaderMap| std::future::ready(share_with_all(&headers));
        router = router.route(&path, get(serve_document).options(preflight));
    }
    router
}

fn metadata(options: &OAuthOptions) -> Value {
    json!({
        "resource": options.resource,
        "authorization_servers": [options.issuer],
        "scopes_supported": Scope::ALL_SCOPES.map(Scope::as_str),
        "bearer_methods_supported": ["header"],
        "resource_name": "Drayage",
    })
}

fn resource_path(options: &OAuthOptions) -> String {
    let path = Url::parse(&options.resource).map(|url| url.path().to_owned());
    let path = path.unwrap_or_default();
    path.trim_end_matches('/').to_owned()
}

/// The URL of the metadata, which challenges name.
fn metadata_url(options: &OAuthOptions) -> Option<String> {
    let resource = Url::parse(&options.resource).ok()?;
    let path = resource_path(options);
    resource
        .join(&format!("{METADATA_PATH}{path}"))
        .ok()
        .map(Into::into)
}

/// The response to a request without a valid token. `reason` is `None` without a token: then the challenge has no error
/// (RFC 6750 section 3.1).
pub(super) fn unauthorized(options: Option<&OAuthOptions>, reason: Option<&str>) -> Response {
    let mut challenge = "Bearer realm=\"drayage\"".to_owned();
    if let Some(reason) = reason {
        push_parameter(&mut challenge, "error", "invalid_token");
        push_parameter(&mut challenge, "error_description", reason);
    }
    if options.is_some() {
        push_parameter(&mut challenge, "scope", Scope::Read.as_str());
    }
    let text = reason.map_or_else(
        || "This server needs a bearer token.".to_owned(),
        |reason| format!("The bearer token was refused: {reason}."),
    );
    refusal_response(StatusCode::UNAUTHORIZED, &text, challenge, options)
}

/// The response if the token does not allow the request. The challenge lists the scopes of the token and the missing
/// ones, so that a client requests both.
pub(super) fn insufficient_scope(
    options: Option<&OAuthOptions>,
    granted: ScopeSet,
    required: ScopeSet,
) -> Response {
    let mut challenge = "Bearer realm=\"drayage\"".to_owned();
    push_parameter(&mut challenge, "error", "insufficient_scope");
    push_parameter(
        &mut challenge,
        "error_description",
        &format!("this request needs: {required}"),
    );
    push_parameter(
        &mut challenge,
        "scope",
        &granted.union(required).to_string(),
    );
    let text = format!("This request needs the scopes: {required}.");
    refusal_response(StatusCode::FORBIDDEN, &text, challenge, options)
}

/// The keys of the authorization server are not available: a new token would not help.
pub(super) fn keys_unavailable(reason: &str) -> Response {
    let mut response = plain_response(StatusCode::SERVICE_UNAVAILABLE, &format!("{reason}.\n"));
    let after = HeaderValue::from_static(RETRY_AFTER_SECONDS);
    response.headers_mut().insert(header::RETRY_AFTER, after);
    response
}

/// A session that does not exist for this caller. The protocol responds 404, and clients begin another session.
pub(super) fn session_not_found() -> Response {
    plain_response(StatusCode::NOT_FOUND, "The session does not exist.\n")
}

fn push_parameter(challenge: &mut String, name: &str, value: &str) {
    // Values here have neither quotation marks nor backslashes, except what an operator configures.
    let value = value.replace(['"', '\\'], "");
    // Writing into a string does not fail.
    let _ = write!(challenge, ", {name}=\"{value}\"");
}

fn refusal_response(
    status: StatusCode,
    text: &str,
    mut challenge: String,
    options: Option<&OAuthOptions>,
) -> Response {
    if let Some(url) = options.and_then(metadata_url) {
        push_parameter(&mut challenge, "resource_metadata", &url);
    }
    let mut response = plain_response(status, &format!("{text}\n"));
    if let Ok(challenge) = HeaderValue::from_str(&challenge) {
        response
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, challenge);
    }
    response
}

fn plain_response(status: StatusCode, text: &str) -> Response {
    let mut response = Response::new(Body::from(text.to_owned()));
    *response.status_mut() = status;
    response
}
