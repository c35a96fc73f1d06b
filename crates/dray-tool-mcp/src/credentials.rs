//! Decides which headers a server gets (quickapps 27.1, R2).

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use dray_agent::caller::Caller;
use dray_agent::manifest::toolset::{Basic, ClientIdSecret, McpAuthorization};
use dray_http::{ClientCredentials, TokenError};
use dray_types::Secret;

use crate::error::WireError;
use crate::options::McpOptions;

/// Headers of the protocol itself, which are never forwarded.
const PROTOCOL_HEADERS: [&str; 9] = [
    "accept",
    "content-type",
    "content-length",
    "host",
    "mcp-session-id",
    "mcp-protocol-version",
    "mcp-method",
    "mcp-name",
    "last-event-id",
];

/// Headers for a server by address: first the configured headers, then those of the caller, which never replace a
/// configured one.
pub(crate) async fn of_server(
    url: &str,
    authorization: Option<&McpAuthorization>,
    caller: &Caller,
    options: &McpOptions,
) -> Result<Vec<(String, Secret)>, WireError> {
    let mut headers = Vec::new();
    match authorization {
        // A sign-in adds the token of `oauth` later.
        None | Some(McpAuthorization::Oauth(_)) => {}
        Some(McpAuthorization::Basic(basic)) => {
            headers.push(authorization_header("Basic", &basic_credentials(basic)));
        }
        Some(McpAuthorization::Bearer(bearer)) => {
            headers.push(authorization_header("Bearer", bearer.token.expose()));
        }
        Some(McpAuthorization::ApiKey { key, name }) => headers.push((name.clone(), key.clone())),
        Some(McpAuthorization::ClientIdSecret(client)) => {
            let token = request_token(client, options).await?;
            headers.push(authorization_header("Bearer", token.expose()));
        }
    }
    let is_dial = options
        .dial
        .as_ref()
        .is_some_and(|dial| dial.origin().owns(url));
    // The token of the user is sent only to the exact origin of DIAL (R2).
    if is_dial && let Some(user_token) = &caller.authorization {
        add_header(&mut headers, "authorization", user_token.expose());
    }
    forward_headers(&mut headers, is_dial, caller, options);
    Ok(headers)
}

/// Headers of an endpoint of DIAL.
pub(crate) fn of_dial(caller: &Caller, options: &McpOptions) -> Vec<(String, Secret)> {
    let mut headers = Vec::new();
    if let Some(key) = &caller.api_key {
        headers.push(("api-key".to_owned(), key.clone()));
    }
    if let Some(user_token) = &caller.authorization {
        headers.push(("authorization".to_owned(), user_token.clone()));
    }
    forward_headers(&mut headers, true, caller, options);
    headers
}

fn forward_headers(
    headers: &mut Vec<(String, Secret)>,
    is_dial: bool,
    caller: &Caller,
    options: &McpOptions,
) {
    if is_dial {
        for (name, value) in &caller.forwarded {
            add_header(headers, name, value);
        }
    } else {
        for (name, value) in caller.forwarded_only(&options.forward_headers) {
            add_header(headers, name, value);
        }
    }
}

fn add_header(headers: &mut Vec<(String, Secret)>, name: &str, value: &str) {
    let is_set = headers
        .iter()
        .any(|(known, _)| known.eq_ignore_ascii_case(name))
        || PROTOCOL_HEADERS
            .iter()
            .any(|protocol_header| protocol_header.eq_ignore_ascii_case(name));
    // The backend does the opposite: its forwarded headers override configured ones (quickapps 44.3).
    if !is_set {
        headers.push((name.to_owned(), Secret::new(value)));
    }
}

fn basic_credentials(basic: &Basic) -> String {
    BASE64_STANDARD.encode(format!("{}:{}", basic.username, basic.password.expose()))
}

fn authorization_header(scheme: &str, value: &str) -> (String, Secret) {
    (
        "authorization".to_owned(),
        Secret::new(format!("{scheme} {value}")),
    )
}

/// A token that is used only for this request: it is not cached, because the next caller may be another user.
async fn request_token(client: &ClientIdSecret, options: &McpOptions) -> Result<Secret, WireError> {
    let credentials = ClientCredentials {
        token_url: &client.token_url,
        client_id: &client.client_id,
        client_secret: &client.client_secret,
        scope: client.scope.as_deref(),
        audience: client.aud.as_deref(),
    };
    match credentials.request_token(&options.client, None).await {
        Ok(token) => Ok(token.secret),
        Err(TokenError::Status(status)) => Err(WireError::Status(status)),
        Err(TokenError::Unusable) => Err(WireError::Malformed("the token endpoint gave no token")),
        Err(TokenError::Transport(error)) => Err(error.into()),
    }
}
