//! Builds tools from tool sets: all servers of a request concurrently, one sign-in for all that need it (quickapps
//! 27, 28).

use std::sync::Arc;
use std::time::Duration;

use dray_agent::caller::Caller;
use dray_agent::manifest::call::{AttachmentRules, Fallback};
use dray_agent::manifest::toolset::{Common, DialApp, DialMcp, Mcp, McpProtocol};
use dray_dial::DialPort;
use dray_dial::signin::SignIn;
use dray_tool::{
    CallRules, SetupIssue, StageStyle, Tool, ToolDeclaration, ToolsetResult, naming, timeout,
};
use futures_util::future::join_all;
use serde_json::Value;

use crate::error::WireError;
use crate::options::McpOptions;
use crate::server::{KnownToolset, PooledProgram, ServerTarget};
use crate::session::{ServerOffer, SessionError};
use crate::texts::{error_text, missing_set, unknown_set_text};
use crate::tool::McpTool;
use crate::wire::{HttpSettings, ServerAddress};
use crate::{credentials, dial_url};

/// Longest silence of a server that works on a call; the call's own limit comes before it.
const MAX_CALL_SILENCE: Duration = Duration::from_hours(1);

/// Address of a program: this and its name.
const PROGRAM_SCHEME: &str = "stdio:";

/// The default name of a set, which says nothing.
const DEFAULT_SET_NAME: &str = "untitled-mcp-toolset";

/// A tool set that is an MCP server.
#[derive(Clone, Copy, Debug)]
pub enum McpToolset<'a> {
    /// A server by its address, or a program of the operator.
    Mcp(&'a Mcp),
    /// A server that DIAL knows, at an address of DIAL.
    Dial(&'a DialMcp),
    /// An application of DIAL that speaks MCP; the caller has checked that it does (quickapps 26).
    App {
        /// The entry in the manifest.
        app: &'a DialApp,
        /// Its display name, for an entry without a name.
        display_name: Option<&'a str>,
    },
}

/// What tool sets of all kinds say about their tools.
struct ToolsetOptions<'a> {
    common: &'a Common,
    allowed: Option<&'a Vec<String>>,
    hidden: &'a [String],
    attachment: Option<&'a AttachmentRules>,
    fallback: Option<&'a Fallback>,
}

impl<'a> McpToolset<'a> {
    fn shared(self) -> ToolsetOptions<'a> {
        // The three types have these fields, but no trait in common.
        macro_rules! of {
            ($set:expr) => {
                ToolsetOptions {
                    common: &$set.common,
                    allowed: $set.allowed_tools.as_ref(),
                    hidden: $set.hidden_from_model.as_deref().unwrap_or_default(),
                    attachment: $set.attachment.as_ref(),
                    fallback: $set.fallback_configuration.as_ref(),
                }
            };
        }
        match self {
            Self::Mcp(set) => of!(set),
            Self::Dial(set) => of!(set),
            Self::App { app, .. } => of!(app),
        }
    }

    fn label(self) -> String {
        match self {
            Self::Mcp(set) => set.name.clone(),
            Self::Dial(set) => set.name.clone(),
            Self::App { app, display_name } => {
                let name = app.name.as_deref().or(display_name);
                name.unwrap_or(&app.deployment_id).to_owned()
            }
        }
    }
}

/// Connects all sets concurrently and returns the outcome of each, in order. A set that is not enabled has neither
/// tools nor issues. Sessions live as long as the tools, and credentials of a caller do not outlive them.
pub async fn connect_all(
    sets: &[McpToolset<'_>],
    caller: &Caller,
    options: &McpOptions,
) -> Vec<ToolsetResult> {
    let first = join_all(
        sets.iter()
            // Boxed, since the future of a whole set-up is large (`clippy::large_futures`).
            .map(|set| Box::pin(begin_set(*set, caller, options))),
    )
    .await;
    let unauthorised: Vec<(usize, String)> = first
        .iter()
        .enumerate()
        .filter_map(|(at, begun)| Some((at, begun.wants_sign_in()?.id.clone())))
        .collect();
    // One batch, so that the person is asked once for all sets (quickapps 28).
    let outcomes = sign_in(&unauthorised, caller, options).await;
    let mut begun: Vec<Option<FirstAttempt>> = first.into_iter().map(Some).collect();
    let again = unauthorised.iter().zip(outcomes).map(|((at, _), outcome)| {
        let begun = begun.get_mut(*at).and_then(Option::take);
        let set = sets.get(*at).copied();
        async move {
            Some((
                *at,
                Box::pin(after_sign_in(set?, begun?, outcome, options)).await,
            ))
        }
    });
    let mut again: Vec<_> = join_all(again.collect::<Vec<_>>()).await;
    sets.iter()
        .zip(begun)
        .enumerate()
        .map(|(at, (set, begun))| match begun {
            Some(begun) => begun.built(*set, options),
            None => again
                .iter_mut()
                .flatten()
                .find(|(of, _)| *of == at)
                .map(|(_, built)| std::mem::take(built))
                .unwrap_or_default(),
        })
        .collect()
}

/// Connects one set, as [`connect_all`] does.
pub async fn connect_set(
    set: McpToolset<'_>,
    caller: &Caller,
    options: &McpOptions,
) -> ToolsetResult {
    let mut all = Box::pin(connect_all(&[set], caller, options)).await;
    all.pop().unwrap_or_default()
}

/// A set after the first attempt.
struct FirstAttempt {
    label: String,
    outcome: Result<(Arc<ServerTarget>, ServerOffer), ToolsetError>,
}

/// Why a set has no tools.
enum ToolsetError {
    /// The manifest switches the set off.
    Disabled,
    /// A message for the builder; it names the cause.
    Said(String),
    /// The connection or the list of tools failed. The target is kept for the attempt after a sign-in.
    Failed(Arc<ServerTarget>, SessionError),
    /// The credentials could not be obtained, so no server was contacted.
    Early(SessionError),
}

impl FirstAttempt {
    /// The tool set that needs a sign-in.
    fn wants_sign_in(&self) -> Option<&KnownToolset> {
        match &self.outcome {
            Err(ToolsetError::Failed(server, error)) if error.status() == Some(401) => {
                server.known.as_ref().filter(|known| known.has_login)
            }
            _ => None,
        }
    }

    fn built(self, set: McpToolset<'_>, options: &McpOptions) -> ToolsetResult {
        let label = &self.label;
        let message = match self.outcome {
            Ok((server, listed)) => return set_tools(set, label, &server, listed, options),
            Err(ToolsetError::Disabled) => return ToolsetResult::default(),
            Err(ToolsetError::Said(message)) => message,
            Err(ToolsetError::Failed(_, error) | ToolsetError::Early(error)) => {
                error_text(label, &error)
            }
        };
        missing_set(label, message)
    }
}

async fn begin_set(set: McpToolset<'_>, caller: &Caller, options: &McpOptions) -> FirstAttempt {
    let mut label = set.label();
    if !set.shared().common.enabled {
        return FirstAttempt {
            label,
            outcome: Err(ToolsetError::Disabled),
        };
    }
    let server = match prepare_target(set, &mut label, caller, options).await {
        Ok(server) => Arc::new(server),
        Err(missing) => {
            return FirstAttempt {
                label,
                outcome: Err(missing),
            };
        }
    };
    let outcome = match server.list().await {
        Ok(listed) => Ok((server, listed)),
        Err(error) => Err(ToolsetError::Failed(server, error)),
    };
    FirstAttempt { label, outcome }
}

async fn prepare_target(
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
            // A token endpoint that hangs counts as set-up of the server.
            let headers = tokio::time::timeout(options.setup, headers)
                .await
                .unwrap_or(Err(WireError::Idle))
                .map_err(|error| ToolsetError::Early(error.into()))?;
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
            .patient(MAX_CALL_SILENCE, MAX_CALL_SILENCE),
        headers,
        limit: options.answer_limit,
    };
    let pooled = pooled_program(&target, options);
    Ok(ServerTarget::new(
        label.clone(),
        target,
        settings,
        options,
        known,
        pooled,
    ))
}

/// The place in the pool for the session of a program; `None` for other servers or an unknown conversation.
fn pooled_program(target: &ServerAddress, options: &McpOptions) -> Option<PooledProgram> {
    let ServerAddress::Stdio { name, .. } = target else {
        return None;
    };
    Some(PooledProgram {
        pool: options.programs.clone(),
        conversation: options.conversation.clone()?,
        name: name.clone(),
    })
}

fn server_address(mcp: &Mcp, options: &McpOptions) -> Result<ServerAddress, ToolsetError> {
    let info = &mcp.mcp_server_info;
    if let Some(name) = info.url.strip_prefix(PROGRAM_SCHEME) {
        let command = options.stdio.get(name).cloned();
        let target = command.map(|command| ServerAddress::Stdio {
            name: name.to_owned(),
            command,
        });
        return target.ok_or_else(|| {
            ToolsetError::Said(format!(
                "MCP error for {}: the operator offers no server `{name}`",
                mcp.name
            ))
        });
    }
    let is_web =
        url::Url::parse(&info.url).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
    if !is_web {
        return Err(ToolsetError::Said(format!(
            "MCP error for {}: the address of the server is none of http or https",
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
        return Err(ToolsetError::Said(format!(
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
    let found = found.map_err(|refused| ToolsetError::Said(unknown_set_text(label, &refused)))?;
    // The display name serves only where the manifest has no name (quickapps 46).
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
    dial.origin()
        .mcp_url(id)
        .ok_or_else(|| ToolsetError::Said(format!("MCP error for {label}: its id is none of DIAL")))
}

/// One batch for all; `None` where no client could be asked.
async fn sign_in(
    unauthorised: &[(usize, String)],
    caller: &Caller,
    options: &McpOptions,
) -> Vec<Option<SignIn>> {
    // A sign-in needs a channel to a client that shows it (quickapps 28).
    let dial = options.dial.as_ref().filter(|_| caller.channel.is_some());
    let (Some(dial), false) = (dial, unauthorised.is_empty()) else {
        return vec![None; unauthorised.len()];
    };
    let mut ids: Vec<String> = Vec::new();
    for (_, id) in unauthorised {
        // Two sets may be the same toolset; the person signs in once.
        if !ids.contains(id) {
            ids.push(id.clone());
        }
    }
    tracing::info!(toolsets = ids.len(), "interactive login requested");
    let outcomes = dial.sign_in(caller, &ids, options.login_timeout).await;
    tracing::info!(?outcomes, "interactive login resolved");
    let of = |id: &String| {
        let at = ids.iter().position(|known| known == id)?;
        // A missing outcome must not count as a sign-in.
        Some(outcomes.get(at).copied().unwrap_or(SignIn::Failed))
    };
    unauthorised.iter().map(|(_, id)| of(id)).collect()
}

async fn after_sign_in(
    set: McpToolset<'_>,
    begun: FirstAttempt,
    outcome: Option<SignIn>,
    options: &McpOptions,
) -> ToolsetResult {
    let label = &begun.label;
    let message = match outcome {
        Some(SignIn::Done) => {
            let Err(ToolsetError::Failed(server, _)) = begun.outcome else {
                return begun.built(set, options);
            };
            match server.list().await {
                Ok(listed) => return set_tools(set, label, &server, listed, options),
                Err(error) => {
                    tracing::warn!(toolset = %label, %error, "signed in in vain");
                    format!("Sign-in succeeded but toolset '{label}' initialization still failed")
                }
            }
        }
        None | Some(SignIn::NoChannel) => {
            format!("Toolset '{label}' requires sign-in, but no client channel is available")
        }
        Some(SignIn::Denied) => format!("Sign-in was denied for toolset '{label}'"),
        Some(SignIn::TimedOut) => format!("Sign-in timed out for toolset '{label}'"),
        Some(SignIn::Failed) => format!("Sign-in failed for toolset '{label}'"),
    };
    missing_set(label, message)
}

fn set_tools(
    set: McpToolset<'_>,
    label: &str,
    server: &Arc<ServerTarget>,
    listed: ServerOffer,
    options: &McpOptions,
) -> ToolsetResult {
    let shared = set.shared();
    // An empty list means all (quickapps 27.2).
    let allowed = shared.allowed.filter(|allowed| !allowed.is_empty());
    let mut built = ToolsetResult::default();
    for offered in listed.tools {
        if allowed.is_some_and(|allowed| !allowed.iter().any(|name| *name == offered.name)) {
            continue;
        }
        let files = dial_url::dial_url_parameters(&offered.input_schema);
        let rules = CallRules {
            label: label.to_owned(),
            style: StageStyle::Api,
            attachments: shared.attachment.cloned().unwrap_or_default(),
            fallback: shared.fallback.cloned().unwrap_or_default(),
            timeout: shared
                .common
                .timeout_seconds
                .and_then(timeout::from_seconds),
            by_reference: files,
            hidden: shared.hidden.iter().any(|name| *name == offered.name),
            ..CallRules::default()
        };
        let tool = McpTool {
            declaration: ToolDeclaration {
                name: naming::qualified_name(label, &offered.name),
                description: offered.description.map(std::borrow::Cow::into_owned),
                parameters: Value::Object((*offered.input_schema).clone()),
            },
            rules,
            server: Arc::clone(server),
            name: offered.name.into_owned(),
            clock: options.clock.clone(),
        };
        let tool: Arc<dyn Tool> = Arc::new(tool);
        built.tools.push(tool);
    }
    if listed.is_cut {
        let text = format!("MCP error for {label}: the list of its tools does not end and was cut");
        built.issues.push(SetupIssue::of_set(label, text));
    }
    built
}
