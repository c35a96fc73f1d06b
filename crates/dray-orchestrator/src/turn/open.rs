//! A turn before anything is shown: what can fail early fails here (quickapps 9).

use std::sync::Arc;
use std::time::Duration;

use dray_agent::caller::Caller;
use dray_agent::failure::RequestFailure;
use dray_agent::issues::{IssueLog, ToolIssue};
use dray_agent::manifest::{Manifest, feature};
use dray_agent::message::Message;
use dray_agent::skill::{self, Skill};
use dray_agent::{choice, clock, lazy, notify, pair, prompt, state};
use dray_tool::pipeline::PipelineSettings;
use dray_tool::{SetupIssue, Tool, ToolsetResult, Turn, naming, timeout};
use serde_json::Value;
use tokio::time::Instant;

use super::manifest::LoadedManifest;
use super::prepare::{OutgoingMessages, iso_now};
use super::setup::{SetupPlan, ToolAudience};
use super::{SharedParts, hooks, session, setup, trouble};
use crate::config::StageLevel;
use crate::files::{TurnFiles, TurnStart, dial_files, tools as file_tools};
use crate::http::CheckedChatRequest;
use crate::internal;
use crate::permissions::CallerIdentity;

/// A turn that is ready to run.
pub(super) struct OpenTurn {
    pub(super) parts: Arc<SharedParts>,
    pub(super) begun: Instant,
    pub(super) manifest: Arc<Manifest>,
    pub(super) messages: Vec<Message>,
    /// Those that the model sees.
    pub(super) tools: Vec<Arc<dyn Tool>>,
    pub(super) hooks: Vec<hooks::PlannedCall>,
    /// Tools that the model's own deployment runs.
    pub(super) statics: Vec<Value>,
    pub(super) issues: IssueLog,
    /// The system prompt, or why there is none: the issues are shown before the request ends with it.
    pub(super) prompt: Result<(), RequestFailure>,
    pub(super) files: Arc<TurnFiles>,
    pub(super) turn: Turn,
    pub(super) settings: PipelineSettings,
    pub(super) outgoing: OutgoingMessages,
    pub(super) tool_choice: Option<Value>,
    pub(super) response_format: Option<Value>,
    /// Whether the client wants tokens counted.
    pub(super) counts: bool,
    /// Whether the client speaks DIAL.
    pub(super) is_dial: bool,
    /// The conversation, with whose it is.
    pub(super) conversation: String,
}

/// What the model's deployment is, as far as a turn cares.
#[derive(Default)]
struct ModelInfo {
    accepts: Vec<String>,
    statics: Vec<Value>,
}

/// Answers of other services before a turn, requested concurrently.
struct TurnInputs {
    tools: Vec<Arc<dyn Tool>>,
    model: ModelInfo,
    skills: Vec<Skill>,
    issues: IssueLog,
    messages: Vec<Message>,
}

/// Opens a turn.
pub(super) async fn open_turn(
    parts: &Arc<SharedParts>,
    asked: CheckedChatRequest,
    loaded: LoadedManifest,
) -> Result<OpenTurn, RequestFailure> {
    let begun = Instant::now();
    let opening = turn_start(parts, &asked, &loaded.manifest).await?;
    let (request, caller) = (asked.request, asked.caller);
    let session = opening.session.clone();
    let conversation = format!("{}\n{session}", asked.identity.key());
    let files = Arc::new(TurnFiles::new(parts.services.clone(), opening));
    let audience = ToolAudience {
        caller: &caller,
        conversation: &conversation,
        guarded: loaded.grant.as_ref().map(|grant| &grant.client),
    };
    let TurnInputs {
        mut tools,
        model,
        skills,
        mut issues,
        mut messages,
    } = gather_inputs(parts, audience, &loaded, &files, request.messages).await?;
    let manifest = loaded.manifest;
    let has_tools = tools.iter().any(|tool| !tool.rules().hidden);
    choice::check_tool_choice(request.tool_choice.as_ref(), has_tools)
        .map_err(|failure| *failure)?;
    let mut outgoing = outgoing_messages(parts, &manifest, model.accepts);
    outgoing.reminders = files.reminders();
    let prompt = system_prompt(parts, &manifest, &skills, &mut messages);
    let takes_files = parts.config.file_skill_always || has_tools;
    insert_file_skill(takes_files, &skills, &outgoing, &mut messages);
    let offer = internal::ToolOffer {
        manifest: &manifest,
        messages: &messages,
        skills: &skills,
        lazy: outgoing.lazy.as_deref(),
        clock: &parts.services.clock,
    };
    tools.extend(internal::offered_tools(&offer));
    tools.extend(file_tools::offered_tools(&files).await);
    tools.extend(dial_files::offered_tools(&files));
    let same = naming::drop_duplicates(&mut tools);
    issues.tools.extend(same.into_iter().map(to_tool_issue));
    let hooks = hooks::split_hook_tools(&manifest, &mut tools, &mut issues);
    tell_news(&manifest, &outgoing, &mut messages);
    let turn = Turn::new(
        caller,
        session,
        messages.clone(),
        files.clone(),
        files.limit(),
    );
    Ok(OpenTurn {
        parts: Arc::clone(parts),
        begun,
        settings: pipeline_settings(parts, &manifest),
        messages,
        tools,
        hooks,
        statics: model.statics,
        issues,
        prompt,
        files,
        turn,
        outgoing,
        tool_choice: request.tool_choice,
        response_format: request.response_format,
        counts: request.include_usage || parts.config.show_usage_statistics,
        is_dial: asked.is_dial,
        conversation,
        manifest,
    })
}

/// How messages go to a model that accepts these types of files.
fn outgoing_messages(
    parts: &SharedParts,
    manifest: &Manifest,
    accepts: Vec<String>,
) -> OutgoingMessages {
    let strategy = manifest.orchestrator.attachment_strategy;
    OutgoingMessages {
        clock: parts.services.clock.clone(),
        stamps: manifest.features.timestamp.is_some(),
        lazy: strategy.map(|_| accepts),
        plain: parts.config.model_url.is_some() || parts.core.is_none(),
        reminders: Vec::new(),
        recovered: false,
    }
}

/// Puts in what the model seems to have asked for at the beginning: how files go into arguments, and the files of the
/// last message.
fn insert_file_skill(
    takes_files: bool,
    skills: &[Skill],
    outgoing: &OutgoingMessages,
    messages: &mut Vec<Message>,
) {
    if takes_files {
        skill::inject_skill(messages, skills);
    }
    if let Some(types) = &outgoing.lazy {
        lazy::inject_files(messages, types);
    }
}

/// Puts what the model is to hear of files and of the time at the end of the conversation.
fn tell_news(manifest: &Manifest, outgoing: &OutgoingMessages, messages: &mut Vec<Message>) {
    let tell = |messages: &mut Vec<Message>, news: &pair::CallPair| {
        pair::insert_pair(
            messages,
            news,
            pair::PairPlace::End,
            pair::PairFrequency::Always,
        );
    };
    if let Some(news) = notify::notice_pair(&manifest.contexts, messages) {
        tell(messages, &news);
    }
    if outgoing.stamps {
        tell(messages, &clock::clock_pair(&iso_now(&outgoing.clock)));
    }
}

/// Asks for tools, the model's metadata, skills, the session and the files of the conversation, all concurrently.
async fn gather_inputs(
    parts: &SharedParts,
    audience: ToolAudience<'_>,
    loaded: &LoadedManifest,
    files: &TurnFiles,
    messages: Vec<Message>,
) -> Result<TurnInputs, RequestFailure> {
    let (caller, manifest) = (audience.caller, &loaded.manifest);
    let plan = SetupPlan::new(&parts.layers, &parts.reader, loaded);
    let mut unpacked = state::unpack_history(messages);
    for notice in &unpacked.notices {
        tracing::warn!("{notice}");
    }
    files.keep_inline(&mut unpacked.messages).await;
    let messages = unpacked.messages;
    let deployment = &manifest.orchestrator.deployment.deployment_id;
    let (built, model, (skills, mut issues), (), ()) = tokio::join!(
        Box::pin(parts.kinds.build(&plan.sets, audience)),
        model_info(parts, caller, deployment),
        turn_skills(parts, caller, manifest),
        bind_sandbox(parts, files),
        files.prepare(&messages),
    );
    let ToolsetResult {
        tools,
        issues: missing,
    } = built;
    let templates = plan.failures.iter().map(setup::template_issue);
    issues
        .tools
        .extend(templates.chain(missing).map(to_tool_issue));
    Ok(TurnInputs {
        tools,
        model: model?,
        skills,
        issues,
        messages,
    })
}

/// What the files of a turn begin with.
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

/// Whose sessions a caller may name: of a key of DIAL the bucket of its user; of no particular user without DIAL.
async fn session_owner(
    parts: &SharedParts,
    caller: &Caller,
    identity: &CallerIdentity,
) -> Result<Option<String>, RequestFailure> {
    if let CallerIdentity::Dial(bucket) = identity {
        return Ok(Some(bucket.clone()));
    }
    match &parts.core {
        Some(core) if session::is_named(caller) => {
            let bucket = core.bucket(caller).await;
            bucket
                .map(|bucket| Some(bucket.bucket))
                .map_err(|error| trouble::metadata_failure(&error))
        }
        _ => Ok(None),
    }
}

/// Binds a session to its sandbox when the operator wants each to have one.
async fn bind_sandbox(parts: &SharedParts, files: &TurnFiles) {
    if let Some(sandbox) = &parts.config.sandbox {
        files.bind(sandbox).await;
    }
}

async fn model_info(
    parts: &SharedParts,
    caller: &Caller,
    deployment: &str,
) -> Result<ModelInfo, RequestFailure> {
    let Some(core) = &parts.core else {
        return Ok(ModelInfo::default());
    };
    if parts.config.model_url.is_some() {
        return Ok(ModelInfo::default());
    }
    let told = core.deployment(caller, deployment).await;
    let told = told.map_err(|error| trouble::metadata_failure(&error))?;
    let tools = told.defaults.get("tools").and_then(Value::as_array);
    let statics = tools.into_iter().flatten().filter(|tool| is_static(tool));
    Ok(ModelInfo {
        statics: statics.cloned().collect(),
        accepts: told.input_attachment_types,
    })
}

/// Whether a tool is one that the deployment runs itself (quickapps 39).
fn is_static(tool: &Value) -> bool {
    let named = tool
        .pointer("/static_function/name")
        .and_then(Value::as_str);
    let fits = tool
        .get("type")
        .is_some_and(|kind| kind == "static_function")
        && named.is_some();
    if !fits {
        tracing::debug!("a default tool of the deployment is passed over");
    }
    fits
}

/// The skills of the layers and of the manifest, and what is wrong with those.
async fn turn_skills(
    parts: &SharedParts,
    caller: &Caller,
    manifest: &Manifest,
) -> (Vec<Skill>, IssueLog) {
    let wanted = manifest.skills.as_deref().unwrap_or_default();
    let mut issues = IssueLog::default();
    if wanted.is_empty() {
        return (parts.skills.clone(), issues);
    }
    let Some(core) = &parts.core else {
        issues.no_skills = true;
        return (parts.skills.clone(), issues);
    };
    let fetched = super::skills::fetch_skills(core, caller, wanted).await;
    let learned = skill::learn_skills(&parts.skills, fetched);
    issues.errors = learned.errors;
    issues.warnings = learned.warnings;
    (learned.skills, issues)
}

fn to_tool_issue(issue: SetupIssue) -> ToolIssue {
    ToolIssue {
        tool: issue.tool,
        toolset: issue.toolset,
        message: issue.message,
        details: issue.details,
    }
}

/// Puts the system prompt in its place.
fn system_prompt(
    parts: &SharedParts,
    manifest: &Manifest,
    skills: &[Skill],
    messages: &mut Vec<Message>,
) -> Result<(), RequestFailure> {
    let configured = parts
        .layers
        .system_prompt(&manifest.orchestrator.system_prompt);
    let configured = configured.map_err(|failure| trouble::prompt_failure(&failure))?;
    let text = prompt::assemble_prompt(configured, &manifest.contexts, skills);
    prompt::place_system_message(messages, text, parts.config.allow_override_system_message);
    Ok(())
}

/// What holds for all calls of tools.
fn pipeline_settings(parts: &SharedParts, manifest: &Manifest) -> PipelineSettings {
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
