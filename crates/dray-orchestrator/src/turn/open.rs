//! Prepares a turn before anything is shown: what can fail early fails here (quickapps 9).

use std::sync::Arc;
use std::time::Duration;

use dray_agent::caller::Caller;
use dray_agent::failure::RequestFailure;
use dray_agent::issues::{IssueLog, ToolIssue};
use dray_agent::manifest::{Manifest, feature};
use dray_agent::message::Message;
use dray_agent::skill::Skill;
use dray_agent::{choice, state};
use dray_tool::pipeline::PipelineSettings;
use dray_tool::{SetupIssue, Tool, Turn, naming, timeout};
use serde_json::Value;
use tokio::time::Instant;

use super::additions::{insert_file_skill, system_prompt, tell_news, turn_skills};
use super::agent_tool::{AgentCalls, AgentLineage, agent_calls};
use super::approval_policy::ApprovalPolicy;
use super::budget::TurnBudget;
use super::manifest::LoadedManifest;
use super::model_info::{ModelInfo, model_info};
use super::named_files::attach_named_files;
use super::options::{ResponseOptions, compaction_threshold, outgoing_messages, response_options};
use super::paused::ResumedRecord;
use super::prepare::OutgoingMessages;
use super::setup::{BuiltTools, SetupPlan, ToolAudience};
use super::telemetry::{TurnTelemetry, describe_turn};
use super::tool_sources::ToolSources;
use super::{SharedParts, hooks, plain, session, setup, sign_in_owner, trouble};
use crate::config::StageLevel;
use crate::http::{ChatRequest, CheckedChatRequest};
use crate::internal;
use crate::permissions::CallerIdentity;
use crate::progress::ResponseRun;
use dray_tool_files::{TurnFiles, TurnStart, dial_files, inline, tools as file_tools};

/// A turn that is ready to run.
pub(super) struct OpenTurn {
    pub(super) parts: Arc<SharedParts>,
    pub(super) begun: Instant,
    pub(super) manifest: Arc<Manifest>,
    pub(super) messages: Vec<Message>,
    pub(super) setup: SetupReport,
    pub(super) tools: TurnTools,
    pub(super) session: TurnSession,
    pub(super) response: ResponseOptions,
    /// Which part of its turn the request is.
    pub(super) part: hooks::TurnPart,
    /// The response in the background that the turn makes.
    pub(super) background: Option<ResponseRun>,
    /// The record with which the turn continues.
    pub(super) resumed: Option<ResumedRecord>,
    /// Of a turn that continues: where the messages of this request begin.
    pub(super) continued_at: Option<usize>,
    /// The caller, as records of turns that wait for their client name it.
    pub(super) principal: String,
    /// What the turn may use.
    pub(super) budget: Arc<TurnBudget>,
    /// Reports the turn.
    pub(super) telemetry: Arc<TurnTelemetry>,
}

/// What went wrong while the turn was set up.
pub(super) struct SetupReport {
    pub(super) issues: IssueLog,
    /// The system prompt, or why there is none: the issues are shown before the request ends with that failure.
    pub(super) prompt: Result<(), RequestFailure>,
}

impl SetupReport {
    const fn new(issues: IssueLog, prompt: Result<(), RequestFailure>) -> Self {
        Self { issues, prompt }
    }
}

/// The tools of a turn.
pub(super) struct TurnTools {
    /// The tools that the model sees.
    pub(super) offered: Vec<Arc<dyn Tool>>,
    pub(super) hooks: Vec<hooks::PlannedCall>,
    /// Tools that the model's own deployment runs.
    pub(super) statics: Vec<Value>,
    pub(super) settings: PipelineSettings,
    /// Which calls a person must approve.
    pub(super) approvals: ApprovalPolicy,
}

/// The conversation and its files, as tools get them.
pub(super) struct TurnSession {
    pub(super) files: Arc<TurnFiles>,
    pub(super) turn: Turn,
    /// The conversation and its owner.
    pub(super) conversation: String,
}

impl TurnSession {
    fn new(
        caller: Caller,
        session: String,
        conversation: String,
        history: Vec<Message>,
        files: Arc<TurnFiles>,
    ) -> Self {
        let (storage, limit) = (files.storage.clone(), files.scope.limit());
        Self {
            turn: Turn::new(caller, session, history, storage, limit),
            files,
            conversation,
        }
    }
}

/// Answers of other services before a turn, requested concurrently.
struct TurnInputs {
    tools: Vec<Arc<dyn Tool>>,
    sources: ToolSources,
    model: ModelInfo,
    skills: Vec<Skill>,
    issues: IssueLog,
    messages: Vec<Message>,
    /// Whether results or old messages may become files, which the model must be able to read.
    keeps_texts: bool,
}

/// Gathers all that a turn needs. The client got nothing yet, so a failure still has an HTTP status.
pub(super) async fn open_turn(
    parts: &Arc<SharedParts>,
    mut asked: CheckedChatRequest,
    loaded: LoadedManifest,
    lineage: Option<AgentLineage>,
    telemetry: Arc<TurnTelemetry>,
) -> Result<OpenTurn, RequestFailure> {
    let begun = Instant::now();
    let principal = asked.identity.key();
    let (wishes, part) = plain::client_part(parts, &mut asked, &loaded.manifest).await?;
    let (opening, budget, calls) = begin_turn(parts, &asked, &loaded, lineage).await?;
    let (mut request, caller, is_dial) = (asked.request, asked.caller, asked.is_dial);
    let session = opening.session.clone();
    // With the identity: callers that name equal sessions must not share a program.
    let conversation = format!("{}\n{session}", asked.identity.key());
    let pages = opening.conversation.clone();
    let files = Arc::new(TurnFiles::new(parts.services.clone(), opening));
    let named = (&caller, &asked.identity, principal.as_str());
    let audience = tool_audience(named, &conversation, &pages, &loaded);
    let messages = std::mem::take(&mut request.messages);
    let mut inputs = turn_inputs(parts, audience, &loaded, &files, &calls, messages).await?;
    let manifest = loaded.manifest;
    let has_tools = inputs.tools.iter().any(|tool| !tool.rules().hidden);
    let has_any_tools = has_tools || !wishes.tools.is_empty();
    // Before the tools of this service are added: "no tools" means that none are configured (quickapps 46).
    choice::check_tool_choice(wishes.tool_choice.as_ref(), has_any_tools)
        .map_err(|failure| *failure)?;
    let outgoing = outgoing_of_turn(parts, &manifest, &mut inputs, &files);
    let (skills, messages) = (&inputs.skills, &mut inputs.messages);
    let prompt = system_prompt(parts, &manifest, is_dial, skills, messages);
    let takes_files = parts.config.file_skill_always || has_tools;
    insert_file_skill(takes_files, &inputs.skills, &outgoing, &mut inputs.messages);
    let compaction = compaction_threshold(parts, &manifest);
    inputs.keeps_texts = compaction.is_some() || (has_tools && files.offloads_results());
    let hooks = offer_tools(parts, &manifest, &mut inputs, &outgoing, &files).await;
    if !is_dial {
        wishes.check_tools(&inputs.tools, &inputs.model.statics)?;
    }
    let continued_at = part.continues.then_some(inputs.messages.len());
    // The get-content pairs must come before the notification (quickapps 11.4).
    tell_news(&manifest, &outgoing, &mut inputs.messages);
    let sources = std::mem::take(&mut inputs.sources);
    let approvals = approval_policy(parts, &manifest, sources, &request);
    // A copy: tools see the history as it was when the turn began, while the loop adds to its own.
    let history = inputs.messages.clone();
    let session = TurnSession::new(caller, session, conversation, history, files);
    Ok(OpenTurn {
        begun,
        messages: inputs.messages,
        setup: SetupReport::new(inputs.issues, prompt),
        tools: TurnTools {
            offered: inputs.tools,
            hooks,
            statics: inputs.model.statics,
            settings: pipeline_settings(parts, &manifest),
            approvals,
        },
        session,
        response: response_options(parts, &request, is_dial, outgoing, wishes, compaction),
        background: request.background.take(),
        resumed: part.resumed.record.clone(),
        part,
        continued_at,
        principal,
        budget,
        telemetry,
        parts: Arc::clone(parts),
        manifest,
    })
}

/// The messages for the model as far as the set-up decides them.
fn outgoing_of_turn(
    parts: &Arc<SharedParts>,
    manifest: &Manifest,
    inputs: &mut TurnInputs,
    files: &TurnFiles,
) -> OutgoingMessages {
    let accepts = std::mem::take(&mut inputs.model.accepts);
    let mut outgoing = outgoing_messages(parts, manifest, accepts);
    outgoing.reminders = files.catalog.reminders();
    outgoing
}

/// Determines the session of the turn, its budgets, and what called agents share. Budgets are checked before anything
/// is connected, started or spent.
async fn begin_turn(
    parts: &Arc<SharedParts>,
    asked: &CheckedChatRequest,
    loaded: &LoadedManifest,
    lineage: Option<AgentLineage>,
) -> Result<(TurnStart, Arc<TurnBudget>, AgentCalls), RequestFailure> {
    let manifest = &loaded.manifest;
    let mut opening = turn_start(parts, asked, manifest).await?;
    if let Some(lineage) = &lineage {
        // A called agent works on the files and in the sandbox of the conversation.
        opening.session.clone_from(&lineage.session);
        opening.conversation.clone_from(&lineage.conversation);
    }
    let deployment = &manifest.orchestrator.deployment.deployment_id;
    describe_turn(&opening.conversation, deployment);
    let parent = lineage.as_ref().map(|lineage| Arc::clone(&lineage.budget));
    let (identity, conversation) = (&asked.identity, &opening.conversation);
    let budget = TurnBudget::open(parts, identity, conversation, manifest, parent).await?;
    let budget = Arc::new(budget);
    let calls = agent_calls(parts, asked, &opening, &budget, lineage);
    Ok((opening, budget, calls))
}

/// The rules on approval of the operator and of the manifest.
fn approval_policy(
    parts: &SharedParts,
    manifest: &Manifest,
    sources: ToolSources,
    request: &ChatRequest,
) -> ApprovalPolicy {
    let (operator, own) = (
        &parts.config.require_approval,
        manifest.require_approval.as_ref(),
    );
    ApprovalPolicy::new(operator, own, sources, request.approval_form)
        .with_input_calls(request.takes_input_calls)
        .with_chats(&parts.config.approval_chats)
        .with_repeatable(
            &parts.config.repeatable_tools,
            manifest.repeatable_tools.as_ref(),
        )
}

fn tool_audience<'a>(
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

/// Attaches the files that the messages name, takes the sign-ins that they confirm, and gathers the rest.
async fn turn_inputs(
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
    attach_named_files(&parts.records.client_files, principal, files, &mut messages).await?;
    gather_inputs(parts, audience, loaded, files, calls, messages).await
}

/// Adds the tools of this service, and takes out those that only hooks may call. Returns the planned calls of the hooks.
async fn offer_tools(
    parts: &SharedParts,
    manifest: &Manifest,
    inputs: &mut TurnInputs,
    outgoing: &OutgoingMessages,
    files: &Arc<TurnFiles>,
) -> Vec<hooks::PlannedCall> {
    let offer = internal::ToolOffer {
        manifest,
        messages: &inputs.messages,
        skills: &inputs.skills,
        lazy: outgoing.lazy.as_deref(),
        clock: &parts.services.clock,
    };
    let (tools, keeps_texts) = (&mut inputs.tools, inputs.keeps_texts);
    add_own_tools(tools, &mut inputs.issues, &offer, files, keeps_texts).await;
    hooks::split_hook_tools(manifest, &mut inputs.tools, &mut inputs.issues)
}

/// Adds the tools of this service to those of the manifest; tools whose names are taken become issues.
async fn add_own_tools(
    tools: &mut Vec<Arc<dyn Tool>>,
    issues: &mut IssueLog,
    offer: &internal::ToolOffer<'_>,
    files: &Arc<TurnFiles>,
    keeps_texts: bool,
) {
    tools.extend(internal::offered_tools(offer));
    tools.extend(file_tools::offered_tools(files, keeps_texts).await);
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
    let plan = SetupPlan::new(&parts.additions.layers, &parts.loader.reader, loaded);
    // Before anything looks at tool calls of earlier turns (quickapps 11.3).
    let mut unpacked = state::unpack_history(messages);
    for notice in &unpacked.notices {
        tracing::warn!("{notice}");
    }
    inline::keep_inline(files.storage.as_ref(), &mut unpacked.messages).await;
    let messages = unpacked.messages;
    let deployment = &manifest.orchestrator.deployment.deployment_id;
    let (built, model, (skills, mut issues), (), ()) = tokio::join!(
        Box::pin(parts.kinds.build(&plan.sets, audience)),
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
        .extend(calls.add_tools(&plan.sets, &mut tools, &mut sources));
    let templates = plan.failures.iter().map(setup::template_issue);
    issues
        .tools
        .extend(templates.chain(missing).map(to_tool_issue));
    Ok(TurnInputs {
        tools,
        sources,
        // Failures of tools and skills become issues; missing metadata of the model end the request (quickapps 9).
        model: model?,
        skills,
        issues,
        messages,
        keeps_texts: false,
    })
}

/// The caller, session and switches from which the files of a turn are set up.
async fn turn_start(
    parts: &SharedParts,
    asked: &CheckedChatRequest,
    manifest: &Manifest,
) -> Result<TurnStart, RequestFailure> {
    let (caller, messages) = (&asked.caller, &asked.request.messages);
    let owner = session_owner(parts, caller, &asked.identity).await?;
    let (session, is_new) = session::session_of(caller, owner.as_deref(), messages);
    Ok(TurnStart {
        turn: session::turn_id(&session, messages),
        conversation: session::conversation_id(caller, &session, messages),
        is_new,
        session,
        caller: caller.clone(),
        features: manifest.features.clone(),
    })
}

/// The owner of the sessions that a caller may name: with a key of DIAL the bucket of its user, without DIAL no
/// particular user.
async fn session_owner(
    parts: &SharedParts,
    caller: &Caller,
    identity: &CallerIdentity,
) -> Result<Option<String>, RequestFailure> {
    if let CallerIdentity::Dial(bucket) = identity {
        return Ok(Some(bucket.clone()));
    }
    match &parts.core {
        // Behind DIAL a client of the operator acts for users, and the key in `Api-Key` identifies the user.
        Some(core) if session::is_named(caller) => {
            let bucket = core.bucket(caller).await;
            bucket
                .map(|bucket| Some(bucket.bucket))
                .map_err(|error| trouble::metadata_failure(&error))
        }
        _ => Ok(None),
    }
}

/// Binds a session to its sandbox if the operator wants each session to have one.
async fn bind_sandbox(parts: &SharedParts, files: &TurnFiles) {
    if let Some(sandbox) = &parts.config.sandbox {
        files.session.bind(sandbox).await;
    }
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

/// The settings of all calls of tools in a turn.
fn pipeline_settings(parts: &SharedParts, manifest: &Manifest) -> PipelineSettings {
    // The operator's level wins over that of the manifest (quickapps 22.1).
    let level = match parts.config.stage_display_level {
        None => manifest.features.stage_display.level,
        Some(StageLevel::None) => feature::StageLevel::None,
        Some(StageLevel::Error) => feature::StageLevel::Error,
        Some(StageLevel::Info) => feature::StageLevel::Info,
        Some(StageLevel::Debug) => feature::StageLevel::Debug,
    };
    let defaults = manifest
        .tool_defaults
        .and_then(|defaults| defaults.timeout_seconds);
    let service: Duration = parts.config.tool_timeout.as_duration();
    let timeout = timeout::effective_timeout(defaults.and_then(timeout::from_seconds), service);
    PipelineSettings { level, timeout }
}
