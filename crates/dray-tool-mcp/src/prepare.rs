//! Finds the server of a tool set: its address, its credentials, and how users sign in to it.

use std::sync::Arc;
use std::time::Duration;

use dray_agent::caller::Caller;
use dray_agent::manifest::toolset::{Mcp, McpAuthorization, McpProtocol};
use dray_dial::DialPort;

use crate::connect::McpToolset;
use crate::credentials;
use crate::error::{SessionError, WireError};
use crate::oauth::RemoteSignIn;
use crate::options::McpOptions;
use crate::server::{KnownToolset, ServerTarget};
use crate::texts::unknown_set_text;
use crate::wire::{AccessToken, HttpSettings, ServerAddress};

/// Longest silence of a server during a call; the limit of the call itself is shorter.
const MAX_CALL_SILENCE: Duration = Duration::from_hours(1);

/// Address of a program: this and its name.
const PROGRAM_SCHEME: &str = "stdio:";

/// The default name of a set, which does not identify it.
const DEFAULT_SET_NAME: &str = "untitled-mcp-toolset";

/// The reason why a set has no tools.
pub(crate) enum ToolsetError {
    /// The manifest switches the set off.
    Disabled,
    /// A message for the builder; it names the cause.
    Message(String),
    /// The connection or the list of tools failed. The target is kept for another attempt after a sign-in.
    Failed(Arc<ServerTarget>, SessionError),
    /// The credentials could not be obtained, so no server was contacted.
    NoCredentials(SessionError),
}

/// The server of a set, before anything is sent to it. The label becomes the display name if the manifest has none.
pub(crate) async fn prepare_target(
    set: McpToolset<'_>,
    label: &mut String,
    caller: &Caller,
    options: &McpOptions,
) -> Result<ServerTarget, ToolsetError> {
    let (target, headers, known) = match set {
        McpToolset::Mcp(mcp) => {
            let target = server_address(mcp, options)?;
            let info = &mcp.mcp_server_info;
            let headers =
                credentials::of_server(&info.url, info.authorization.as_ref(), caller, options);
            // The time of the token endpoint counts as set-up time of the server.
            let headers = tokio::time::timeout(options.setup, headers)
                .await
                .unwrap_or(Err(WireError::Idle))
                .map_err(|error| ToolsetError::NoCredentials(error.into()))?;
            (target, headers, None)
        }
        McpToolset::Dial(_) | McpToolset::App { .. } => {
            let (target, known) = known_target(set, label, caller, options).await?;
            (target, credentials::of_dial(caller, options), Some(known))
        }
    };
    let settings = HttpSettings {
        client: options
            .client
            .clone()
            .with_body_timeouts(MAX_CALL_SILENCE, MAX_CALL_SILENCE),
        headers,
        token: AccessToken::default(),
        limit: options.max_response_bytes,
    };
    let sign_in = remote_sign_in(set, &target, options);
    Ok(ServerTarget::new(
        label.clone(),
        target,
        settings,
        options,
        known,
        sign_in,
    ))
}

/// The sign-in to a server over HTTP whose manifest asks for it.
fn remote_sign_in(
    set: McpToolset<'_>,
    target: &ServerAddress,
    options: &McpOptions,
) -> Option<Arc<RemoteSignIn>> {
    let (McpToolset::Mcp(mcp), ServerAddress::Streamable(url) | ServerAddress::Sse(url)) =
        (set, target)
    else {
        return None;
    };
    let Some(McpAuthorization::Oauth(client)) = &mcp.mcp_server_info.authorization else {
        return None;
    };
    let principal = options.principal.as_deref();
    let oauth = &options.oauth;
    Some(oauth.sign_ins.get_or_begin(
        principal,
        url,
        client,
        &options.client,
        oauth,
        &options.clock,
    ))
}

fn server_address(mcp: &Mcp, options: &McpOptions) -> Result<ServerAddress, ToolsetError> {
    let info = &mcp.mcp_server_info;
    if let Some(name) = info.url.strip_prefix(PROGRAM_SCHEME) {
        let command = options.stdio.get(name).cloned();
        let target = command.map(|command| ServerAddress::Stdio {
            name: name.to_owned(),
            command,
            discovery_timeout: options.discovery_timeout,
        });
        return target.ok_or_else(|| {
            ToolsetError::Message(format!(
                "MCP error for {}: the operator offers no server `{name}`",
                mcp.name
            ))
        });
    }
    let is_web =
        url::Url::parse(&info.url).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
    if !is_web {
        return Err(ToolsetError::Message(format!(
            "MCP error for {}: the address of the server is neither http nor https",
            mcp.name
        )));
    }
    Ok(if info.protocol == McpProtocol::Sse {
        ServerAddress::Sse(info.url.clone())
    } else {
        ServerAddress::Streamable(info.url.clone())
    })
}

async fn known_target(
    set: McpToolset<'_>,
    label: &mut String,
    caller: &Caller,
    options: &McpOptions,
) -> Result<(ServerAddress, KnownToolset), ToolsetError> {
    let Some(dial) = options.dial.clone() else {
        return Err(ToolsetError::Message(format!(
            "MCP error for {label}: the service runs without DIAL"
        )));
    };
    if let McpToolset::App { app, .. } = set {
        let url = app_endpoint(dial.as_ref(), &app.deployment_id, label)?;
        let id = app.deployment_id.clone();
        let known = KnownToolset {
            dial,
            id,
            // Sign-in is for toolsets only (quickapps 28).
            has_login: false,
        };
        return Ok((ServerAddress::Streamable(url), known));
    }
    let McpToolset::Dial(entry) = set else {
        return Err(ToolsetError::Disabled);
    };
    let found = dial.toolset(caller, &entry.dial_id).await;
    let found =
        found.map_err(|refused| ToolsetError::Message(unknown_set_text(label, &refused)))?;
    // The display name is used only if the manifest has no name (quickapps 46).
    let is_sse = found.is_sse();
    if label == DEFAULT_SET_NAME {
        *label = found.display_name;
    }
    let url = app_endpoint(dial.as_ref(), &entry.dial_id, label)?;
    let target = if is_sse {
        ServerAddress::Sse(url)
    } else {
        ServerAddress::Streamable(url)
    };
    let id = entry.dial_id.clone();
    Ok((
        target,
        KnownToolset {
            dial,
            id,
            has_login: true,
        },
    ))
}

fn app_endpoint(dial: &dyn DialPort, id: &str, label: &str) -> Result<String, ToolsetError> {
    dial.origin().mcp_url(id).ok_or_else(|| {
        ToolsetError::Message(format!(
            "MCP error for {label}: its id is not an id of DIAL"
        ))
    })
}
