//! Builds tools from tool sets: all servers of a request concurrently, one sign-in for all that need it (quickapps
//! 27, 28).

use std::sync::Arc;

use dray_agent::caller::Caller;
use dray_agent::manifest::call::{AttachmentRules, Fallback};
use dray_agent::manifest::toolset::{Common, DialApp, DialMcp, Mcp};
use dray_dial::signin::SignIn;
use dray_tool::{
    CallRules, FileIds, SetupIssue, StageStyle, Tool, ToolDeclaration, ToolsetResult, naming,
    timeout,
};
use futures_util::future::join_all;

use crate::declaration::DeclarationBudget;
use crate::dial_url;
use crate::features::{FeatureTool, PROMPT_FEATURES, RESOURCE_FEATURES};
use crate::options::McpOptions;
use crate::prepare::{ToolsetError, prepare_target};
use crate::server::{KnownToolset, ServerTarget};
use crate::session::ServerOffer;
use crate::texts::{failed_set, missing_set};
use crate::tool::McpTool;

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
        /// The application's display name, for an entry without a name.
        display_name: Option<&'a str>,
    },
}

/// The settings for tools that tool sets of all kinds have.
struct ToolsetOptions<'a> {
    common: &'a Common,
    allowed: Option<&'a Vec<String>>,
    hidden: &'a [String],
    attachment: Option<&'a AttachmentRules>,
    fallback: Option<&'a Fallback>,
}

impl<'a> McpToolset<'a> {
    fn shared(self) -> ToolsetOptions<'a> {
        // The three types have the same fields, but no trait in common.
        macro_rules! options_of {
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
            Self::Mcp(set) => options_of!(set),
            Self::Dial(set) => options_of!(set),
            Self::App { app, .. } => options_of!(app),
        }
    }

    pub(crate) fn label(self) -> String {
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
    let first_attempts = join_all(
        sets.iter()
            // The future is boxed, because that of the whole set-up is large (`clippy::large_futures`).
            .map(|set| Box::pin(begin_set(*set, caller, options))),
    )
    .await;
    let required_sign_ins: Vec<(usize, String)> = first_attempts
        .iter()
        .enumerate()
        .filter_map(|(index, attempt)| Some((index, attempt.required_sign_in()?.id.clone())))
        .collect();
    // One batch, so that the user is asked once for all sets (quickapps 28).
    let outcomes = sign_in(&required_sign_ins, caller, options).await;
    let mut attempts: Vec<Option<FirstAttempt>> = first_attempts.into_iter().map(Some).collect();
    let retried = required_sign_ins
        .iter()
        .zip(outcomes)
        .map(|((index, _), outcome)| {
            let attempt = attempts.get_mut(*index).and_then(Option::take);
            let set = sets.get(*index).copied();
            async move {
                Some((
                    *index,
                    Box::pin(after_sign_in(set?, attempt?, outcome, caller, options)).await,
                ))
            }
        });
    let mut retried: Vec<_> = join_all(retried.collect::<Vec<_>>()).await;
    sets.iter()
        .zip(attempts)
        .enumerate()
        .map(|(index, (set, attempt))| match attempt {
            Some(attempt) => attempt.into_result(*set, options),
            None => retried
                .iter_mut()
                .flatten()
                .find(|(set_index, _)| *set_index == index)
                .map(|(_, result)| std::mem::take(result))
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
    let mut results = Box::pin(connect_all(&[set], caller, options)).await;
    results.pop().unwrap_or_default()
}

/// A set after the first attempt.
struct FirstAttempt {
    label: String,
    outcome: Result<(Arc<ServerTarget>, ServerOffer), ToolsetError>,
}

impl FirstAttempt {
    /// The tool set that needs a sign-in.
    fn required_sign_in(&self) -> Option<&KnownToolset> {
        match &self.outcome {
            Err(ToolsetError::Failed(server, error)) if error.status() == Some(401) => {
                server.known.as_ref().filter(|known| known.has_login)
            }
            _ => None,
        }
    }

    fn into_result(self, set: McpToolset<'_>, options: &McpOptions) -> ToolsetResult {
        let label = &self.label;
        let message = match self.outcome {
            Ok((server, offer)) => return set_tools(set, label, &server, offer, options),
            Err(ToolsetError::Disabled) => return ToolsetResult::default(),
            Err(ToolsetError::Message(message)) => message,
            Err(ToolsetError::Failed(_, error) | ToolsetError::NoCredentials(error)) => {
                return failed_set(label, &error);
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
        Err(error) => {
            return FirstAttempt {
                label,
                outcome: Err(error),
            };
        }
    };
    let outcome = match Box::pin(server.list(caller)).await {
        Ok(offer) => Ok((server, offer)),
        Err(error) => Err(ToolsetError::Failed(server, error)),
    };
    FirstAttempt { label, outcome }
}

/// One batch for all; `None` if no client can be asked.
async fn sign_in(
    required_sign_ins: &[(usize, String)],
    caller: &Caller,
    options: &McpOptions,
) -> Vec<Option<SignIn>> {
    // A sign-in needs a channel to a client that shows it (quickapps 28).
    let dial = options.dial.as_ref().filter(|_| caller.channel.is_some());
    let (Some(dial), false) = (dial, required_sign_ins.is_empty()) else {
        return vec![None; required_sign_ins.len()];
    };
    let mut ids: Vec<String> = Vec::new();
    for (_, id) in required_sign_ins {
        // Two sets may be the same toolset; the user signs in once.
        if !ids.contains(id) {
            ids.push(id.clone());
        }
    }
    tracing::info!(toolsets = ids.len(), "interactive login requested");
    let outcomes = dial.sign_in(caller, &ids, options.login_timeout).await;
    tracing::info!(?outcomes, "interactive login resolved");
    let outcome_of = |id: &String| {
        let index = ids.iter().position(|known| known == id)?;
        // A missing outcome must not count as a sign-in.
        Some(outcomes.get(index).copied().unwrap_or(SignIn::Failed))
    };
    required_sign_ins
        .iter()
        .map(|(_, id)| outcome_of(id))
        .collect()
}

async fn after_sign_in(
    set: McpToolset<'_>,
    attempt: FirstAttempt,
    outcome: Option<SignIn>,
    caller: &Caller,
    options: &McpOptions,
) -> ToolsetResult {
    let label = &attempt.label;
    let message = match outcome {
        Some(SignIn::Done) => {
            let Err(ToolsetError::Failed(server, _)) = attempt.outcome else {
                return attempt.into_result(set, options);
            };
            match Box::pin(server.list(caller)).await {
                Ok(listed) => return set_tools(set, label, &server, listed, options),
                Err(error) => {
                    tracing::warn!(toolset = %label, %error, "the set failed after the sign-in");
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
    offer: ServerOffer,
    options: &McpOptions,
) -> ToolsetResult {
    let shared = set.shared();
    // An empty list means all (quickapps 27.2).
    let allowed = shared.allowed.filter(|allowed| !allowed.is_empty());
    let mut result = ToolsetResult::default();
    result
        .tools
        .extend(feature_tools(set, label, server, &offer, options));
    let mut budget = DeclarationBudget::new();
    for offered in offer.tools {
        if allowed.is_some_and(|allowed| !allowed.iter().any(|name| *name == offered.name)) {
            continue;
        }
        let Some(declared) = budget.declare(&offered) else {
            continue;
        };
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
            file_ids: FileIds::Links,
            hidden: shared.hidden.iter().any(|name| *name == offered.name),
            ..CallRules::default()
        };
        let tool = McpTool {
            declaration: ToolDeclaration {
                name: naming::qualified_name(label, &offered.name),
                description: declared.description,
                parameters: declared.parameters,
            },
            rules,
            server: Arc::clone(server),
            name: offered.name.into_owned(),
            shown_name: declared.shown_name,
            clock: options.clock.clone(),
            questions: options.questions.clone(),
        };
        let tool: Arc<dyn Tool> = Arc::new(tool);
        result.tools.push(tool);
    }
    result.issues.extend(budget.issues(label));
    if offer.is_cut {
        let text = format!(
            "MCP error for {label}: the list of its tools does not end or is too long, and was cut"
        );
        result.issues.push(SetupIssue::of_set(label, text));
    }
    result
}

/// Tools for the server's resources and prompts, if the manifest requests them.
fn feature_tools(
    set: McpToolset<'_>,
    label: &str,
    server: &Arc<ServerTarget>,
    offer: &ServerOffer,
    options: &McpOptions,
) -> Vec<Arc<dyn Tool>> {
    let McpToolset::Mcp(mcp) = set else {
        return Vec::new();
    };
    let resources = RESOURCE_FEATURES
        .into_iter()
        .filter(|_| mcp.resources && offer.has_resources);
    let prompts = PROMPT_FEATURES
        .into_iter()
        .filter(|_| mcp.prompts && offer.has_prompts);
    let shared = set.shared();
    resources
        .chain(prompts)
        .map(|feature| {
            let rules = CallRules {
                label: label.to_owned(),
                style: StageStyle::Api,
                attachments: shared.attachment.cloned().unwrap_or_default(),
                fallback: shared.fallback.cloned().unwrap_or_default(),
                timeout: shared
                    .common
                    .timeout_seconds
                    .and_then(timeout::from_seconds),
                ..CallRules::default()
            };
            let server = Arc::clone(server);
            let clock = options.clock.clone();
            let tool: Arc<dyn Tool> =
                Arc::new(FeatureTool::new(label, feature, rules, server, clock));
            tool
        })
        .collect()
}
