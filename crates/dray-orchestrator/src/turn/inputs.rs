//! Requests everything that a turn needs from other services before it begins: tools, metadata of the model, skills,
//! files.

use std::sync::Arc;

use dray_agent::caller::Caller;
use dray_agent::citation::CitationSource;
use dray_agent::failure::RequestFailure;
use dray_agent::issues::{IssueLog, ToolIssue};
use dray_agent::manifest::Manifest;
use dray_agent::message::Message;
use dray_agent::skill::Skill;
use dray_agent::state;
use dray_tool::{SetupIssue, Tool, naming};

use super::additions::turn_skills;
use super::agent_tool::AgentCalls;
use super::guardrails::{PlannedGuardrail, plan_guardrails};
use super::manifest::LoadedManifest;
use super::model_info::{ModelInfo, model_info};
use super::named_files::attach_named_files;
use super::prepare::OutgoingMessages;
use super::setup::{BuiltTools, ToolAudience};
use super::tool_access::CallerAccess;
use super::tool_sources::ToolSources;
use super::{SharedParts, hooks, setup, sign_in_owner};
use crate::internal;
use crate::permissions::CallerIdentity;
use dray_tool_files::{TurnFiles, dial_files, inline, tools as file_tools};

/// Responses of other services before a turn, requested concurrently.
pub(super) struct TurnInputs {
    pub(super) tools: Vec<Arc<dyn Tool>>,
    pub(super) sources: ToolSources,
    pub(super) model: ModelInfo,
    pub(super) skills: Arc<[Skill]>,
    pub(super) issues: IssueLog,
    pub(super) messages: Vec<Message>,
    /// Files of the conversation with ids of `/v1/files`.
    pub(super) named_files: Vec<CitationSource>,
    /// Whether the manifest names files, or results or old messages may become files: the model must be able to read
    /// them.
    pub(super) needs_reader: bool,
    /// The tools that the caller may use.
    pub(super) access: CallerAccess,
}

/// The audience of the tools of a turn, before its sign-ins are known.
pub(super) fn tool_audience<'a>(
    (caller, identity, principal): (&'a Caller, &'a CallerIdentity, &'a str),
    conversation: &'a str,
    sign_in_conversation: &'a str,
    loaded: &'a LoadedManifest,
) -> ToolAudience<'a> {
    ToolAudience {
        caller,
        identity,
        principal,
        sign_in_owner: None,
        conversation,
        sign_in_conversation,
        confirmed: &[],
        guarded: loaded.grant.as_ref().map(|grant| &grant.client),
    }
}

/// Attaches the files that the messages name, takes the sign-ins that they confirm, and requests all other inputs.
pub(super) async fn turn_inputs(
    parts: &Arc<SharedParts>,
    audience: ToolAudience<'_>,
    loaded: &LoadedManifest,
    files: &Arc<TurnFiles>,
    calls: &AgentCalls,
    mut messages: Vec<Message>,
) -> Result<TurnInputs, RequestFailure> {
    let (caller, identity) = (audience.caller, audience.identity);
    let owner = sign_in_owner::of_turn(parts, caller, identity, &loaded.manifest).await;
    let audience = ToolAudience {
        sign_in_owner: owner.as_deref(),
        ..audience
    };
    let confirmed = parts.kinds.confirmed_sign_ins(audience, &messages).await;
    let audience = ToolAudience {
        confirmed: &confirmed,
        ..audience
    };
    let principal = audience.principal;
    let client_files = &parts.records.client_files;
    // A client could send as much content in the request itself.
    let max_inline = parts.config.max_body;
    let named =
        attach_named_files(client_files, principal, files, max_inline, &mut messages).await?;
    let inputs = gather_inputs(parts, audience, loaded, files, calls, messages).await?;
    Ok(TurnInputs {
        named_files: named,
        ..inputs
    })
}

/// Adds the tools of this service, and takes out those that only hooks and guardrails may call. Returns the planned
/// calls of the hooks, and the guardrails.
///
/// # Errors
///
/// The tool of a guardrail does not exist.
pub(super) async fn offer_tools(
    parts: &SharedParts,
    manifest: &Manifest,
    inputs: &mut TurnInputs,
    outgoing: &OutgoingMessages,
    files: &Arc<TurnFiles>,
) -> Result<(Vec<hooks::PlannedCall>, Vec<PlannedGuardrail>), RequestFailure> {
    let offer = internal::ToolOffer {
        manifest,
        messages: &inputs.messages,
        skills: &inputs.skills,
        lazy: outgoing.lazy.as_deref(),
        clock: &parts.services.clock,
    };
    let (tools, needs_reader) = (&mut inputs.tools, inputs.needs_reader);
    add_own_tools(tools, &mut inputs.issues, &offer, files, needs_reader).await;
    // Tools without permission are removed before hooks are planned, which may not call them either.
    inputs.access.retain(tools, &inputs.sources);
    // Guardrails are planned before hidden tools are removed, because they may call these as well.
    let guardrails = plan_guardrails(manifest, &inputs.tools, &inputs.issues)?;
    let hooks = hooks::split_hook_tools(manifest, &mut inputs.tools, &mut inputs.issues);
    Ok((hooks, guardrails))
}

/// Adds the tools of this service to those of the manifest; tools whose names are taken become issues.
async fn add_own_tools(
    tools: &mut Vec<Arc<dyn Tool>>,
    issues: &mut IssueLog,
    offer: &internal::ToolOffer<'_>,
    files: &Arc<TurnFiles>,
    needs_reader: bool,
) {
    tools.extend(internal::offered_tools(offer));
    tools.extend(file_tools::offered_tools(files, needs_reader).await);
    tools.extend(dial_files::offered_tools(files));
    // Of equal names the first stays, so tools of the manifest win over those of this service.
    let dropped = naming::drop_duplicates(tools);
    issues.tools.extend(dropped.into_iter().map(to_tool_issue));
}

/// Requests tools, the model's metadata, skills, the session and the files of the conversation, all concurrently.
async fn gather_inputs(
    parts: &SharedParts,
    audience: ToolAudience<'_>,
    loaded: &LoadedManifest,
    files: &TurnFiles,
    calls: &AgentCalls,
    messages: Vec<Message>,
) -> Result<TurnInputs, RequestFailure> {
    let (caller, manifest) = (audience.caller, &loaded.manifest);
    let access = CallerAccess::of(parts, caller, audience.identity).await;
    let additions = &parts.additions;
    let plan = additions
        .plans
        .plan(&additions.layers, &parts.loader.reader, loaded);
    let mut sets = plan.sets.clone();
    // Tool sets without permission are removed before any tool set is connected or started.
    access.retain_sets(&mut sets);
    // The history is unpacked before anything looks at tool calls of earlier turns (quickapps 11.3).
    let mut unpacked = state::unpack_history(messages);
    for notice in &unpacked.notices {
        tracing::warn!("{notice}");
    }
    inline::keep_inline(files.storage.as_ref(), &mut unpacked.messages).await;
    let messages = unpacked.messages;
    let deployment = &manifest.orchestrator.deployment.deployment_id;
    let (built, model, (skills, mut issues), unbound, ()) = tokio::join!(
        Box::pin(parts.kinds.build(&sets, audience)),
        model_info(parts, caller, deployment),
        turn_skills(parts, caller, manifest),
        bind_sandbox(parts, files),
        files.context.prepare(&messages),
    );
    let BuiltTools {
        mut tools,
        issues: missing,
        mut sources,
    } = built;
    issues
        .tools
        .extend(calls.add_tools(&sets, &mut tools, &mut sources));
    access.retain(&mut tools, &sources);
    let mut model = model?;
    access.retain_statics(&mut model.statics);
    let templates = plan.failures.iter().map(setup::template_issue);
    issues
        .tools
        .extend(templates.chain(missing).chain(unbound).map(to_tool_issue));
    Ok(TurnInputs {
        tools,
        sources,
        // Failures of tools and skills become issues; missing metadata of the model end the request (quickapps 9).
        model,
        access,
        skills,
        issues,
        messages,
        named_files: Vec::new(),
        needs_reader: false,
    })
}

/// Binds a session to its sandbox if the operator requires that each session has one. Returns the issue of one that
/// cannot be bound.
async fn bind_sandbox(parts: &SharedParts, files: &TurnFiles) -> Option<SetupIssue> {
    let address = parts.config.sandbox.as_deref()?;
    let failure = files.session.bind(address).await.err()?;
    // The sandbox of one session may be made later, so its absence is only logged.
    let is_for_all = !address.contains("{session}");
    is_for_all.then(|| SetupIssue::of_set("sandbox", failure.to_string()))
}

fn to_tool_issue(issue: SetupIssue) -> ToolIssue {
    ToolIssue {
        tool: issue.tool,
        toolset: issue.toolset,
        message: issue.message,
        details: issue.details,
        is_for_user: issue.is_for_user,
    }
}
