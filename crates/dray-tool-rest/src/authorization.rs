//! Credentials on requests (quickapps 6.4).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dray_agent::caller::Caller;
use dray_agent::manifest::toolset::{KeyLocation, RestAuthorization};
use dray_tool::{HandledFailure, ToolFailure};

use crate::place;
use crate::request::PreparedRequest;

/// Checks credentials before the first call.
///
/// # Errors
///
/// The problem, for the builder; contains no value.
pub(crate) fn check_credentials(authorization: &RestAuthorization) -> Result<(), String> {
    let (what, is_usable) = match authorization {
        RestAuthorization::Bearer(bearer) => {
            ("token", place::is_header_value(bearer.token.expose()))
        }
        RestAuthorization::ApiKey {
            key,
            name,
            location: KeyLocation::Header,
        } => (
            "header of the key",
            place::is_settable(name) && place::is_header_value(key.expose()),
        ),
        RestAuthorization::ClientIdSecret(client) => (
            "token_url",
            url::Url::parse(&client.token_url)
                .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host()),
        ),
        // Base64, percent-encoding and JSON can encode any text, and the caller's token is checked in each call.
        RestAuthorization::Basic(_)
        | RestAuthorization::ApiKey { .. }
        | RestAuthorization::ForwardAuthToken {} => return Ok(()),
    };
    if is_usable {
        Ok(())
    } else {
        Err(format!("The {what} of `authorization` cannot be used."))
    }
}

/// Puts credentials that need no server on a request.
///
/// # Errors
///
/// A failure when the caller has no token to pass on.
pub(crate) fn apply_credentials(
    authorization: &RestAuthorization,
    caller: &Caller,
    prepared: &mut PreparedRequest,
) -> Result<(), ToolFailure> {
    match authorization {
        RestAuthorization::Basic(basic) => {
            let credentials = format!("{}:{}", basic.username, basic.password.expose());
            let value = format!("Basic {}", STANDARD.encode(credentials));
            prepared.set_header("authorization", &value);
        }
        RestAuthorization::Bearer(bearer) => {
            let value = format!("Bearer {}", bearer.token.expose());
            prepared.set_header("authorization", &value);
        }
        RestAuthorization::ApiKey {
            key,
            name,
            location,
        } => match location {
            KeyLocation::Header => prepared.set_header(name, key.expose()),
            KeyLocation::Query => prepared.set_query(name, key.expose()),
            KeyLocation::Body => prepared.set_field(name, key.expose()),
        },
        RestAuthorization::ForwardAuthToken {} => {
            let token = caller.authorization.as_ref();
            let valid_token =
                token.filter(|token| !token.is_empty() && place::is_header_value(token.expose()));
            let Some(token) = valid_token else {
                let text =
                    "The tool needs the user's own sign-in, and the request came without one.";
                return Err(HandledFailure::new(text).into());
            };
            // The value is complete, including the scheme.
            prepared.set_header("authorization", token.expose());
        }
        // Needs a token server; see `send_with_token`.
        RestAuthorization::ClientIdSecret(_) => {}
    }
    Ok(())
}
