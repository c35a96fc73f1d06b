//! Prepares a turn before anything is shown: what can fail early fails here (quickapps 9).

use std::sync::Arc;
use std::time::Duration;

use dray_agent::caller::Caller;
use dray_agent::choice;
use dray_agent::citation::CitationSource;
use dray_agent::failure::RequestFailure;
use dray_agent::issues::IssueLog;
use dray_agent::manifest::guardrail::GuardrailEvent;
use dray_agent::manifest::{Context, Manifest, feature};
use dray_agent::message::Message;
use dray_proto::v1::TurnCause;
use dray_tool::pipeline::PipelineSettings;
use dray_tool::{Tool, Turn, timeout};
use serde_json::Value;
use tokio::time::Instant;
use tracing::{Instrument as _, Span};

use super::additions::{add_notices, insert_file_skill, system_prompt};
use super::agent_tool::{AgentCalls, AgentLineage, agent_calls};
use super::approval_policy::ApprovalPolicy;
use super::body::ClientParameters;
use super::budget::TurnBudget;
use super::client_tools::check_parameters;
use super::folder_contexts::expand_folders;
use super::guardrails::{PlannedGuardrail, has_guardrail};
use super::handoff::{HandoffContext, InheritedTurn, TurnAgents};
use super::inputs::{TurnInputs, offer_tools, tool_audience, turn_inputs};
use super::manifest::LoadedManifest;
use super::options::{ResponseOptions, compaction_threshold, outgoing_messages, response_options};
use super::paused::ResumedRecord;
use super::prepare::OutgoingMessages;
use super::sequence::TurnPart;
use super::telemetry::{TurnTelemetry, describe_turn};
use super::tool_sources::ToolSources;
use super::{SharedParts, failures, handoff, hooks, plain, session, tool_search};
use crate::config::StageLevel;
use crate::http::{ChatRequest, CheckedChatRequest, ManifestSource};
use crate::permissions::CallerIdentity;
use crate::progress::ResponseRun;
use dray_tool_files::{DeliveredFiles, TurnFiles, TurnStart};

/// A turn that is ready to run.
pub(super) struct OpenTurn {
    pub(super) parts: Arc<SharedParts>,
    pub(super) manifest: Arc<Manifest>,
    pub(super) messages: Vec<Message>,
    /// Files of the conversation with ids of `/v1/files`.
    pub(super) named_files: Vec<CitationSource>,
    pub(super) setup: SetupReport,
    pub(super) tools: TurnTools,
    pub(super) session: TurnSession,
    pub(super) response: ResponseOptions,
    /// The part of the turn that this request is.
    pub(super) part: TurnPart,
    /// The response that the turn makes, if another replica can finish it.
    pub(super) background: Option<ResponseRun>,
    /// The record with which the turn continues.
    pub(super) resumed: Option<ResumedRecord>,
    /// Index of the first message of this request, if it continues a turn.
    pub(super) continued_at: Option<usize>,
    /// The caller, as records of turns that wait for their client name it.
    pub(super) principal: String,
    /// The limits and the use of the turn.
    pub(super) budget: Arc<TurnBudget>,
    /// Metrics, traces and logs of the turn.
    pub(super) telemetry: Arc<TurnTelemetry>,
    /// The agents that can answer in this request.
    pub(super) agents: Arc<TurnAgents>,
    /// The data with which another agent can continue the turn; `None` if this agent has no handoffs.
    pub(super) basis: Option<Box<HandoffContext>>,
    /// Whether another agent began the turn.
    pub(super) takes_over: bool,
    /// Whether the issues were shown and the uploads placed.
    pub(super) is_prepared: bool,
    /// Whether an earlier agent of the turn already sent text to the client.
    pub(super) has_text: bool,
    /// The span of an agent that the request does not name.
    pub(super) span: Span,
}

/// The circumstances in which an agent gets a request.
pub(super) struct TurnEntry {
    /// Time at which the request arrived.
    pub(super) started_at: Instant,
    pub(super) client_parameters: ClientParameters,
    pub(super) part: TurnPart,
    /// Name of the agent.
    pub(super) agent: String,
    pub(super) agents: Arc<TurnAgents>,
    /// The turn of another agent that this one continues.
    pub(super) inherited: Option<InheritedTurn>,
    /// The turn of the agent that the request names, if another one answers from the start.
    pub(super) requested: Option<Arc<TurnTelemetry>>,
    pub(super) span: Span,
}

/// Problems while the turn was set up.
pub(super) struct SetupReport {
    pub(super) issues: IssueLog,
    /// The system prompt, or the reason for its absence: the issues are shown before the request ends with that
    /// failure.
    pub(super) prompt: Result<(), RequestFailure>,
}

impl SetupReport {
    const fn new(issues: IssueLog, prompt: Result<(), RequestFailure>) -> Self {
        Self { issues, prompt }
    }
}

/// Everything that can be called in a turn, and the rules for its calls.
pub(super) struct TurnTools {
    /// The tools that the model sees.
    pub(super) offered: Vec<Arc<dyn Tool>>,
    pub(super) hooks: Vec<hooks::PlannedCall>,
    pub(super) guardrails: Vec<PlannedGuardrail>,
    /// Tools that the model's own deployment runs.
    pub(super) statics: Vec<Value>,
    pub(super) settings: PipelineSettings,
    /// Selects the calls that a person must approve.
    pub(super) approvals: ApprovalPolicy,
}

impl TurnTools {
    /// Whether answers of the model are held back until their round ends: guardrails judge them, and structured ones have
    /// no text beside calls of these tools.
    pub(super) fn holds_answers(&self, is_structured: bool) -> bool {
        (is_structured && !self.offered.is_empty())
            || has_guardrail(&self.guardrails, GuardrailEvent::AfterModel, None)
    }
}

/// The conversation and its files, as tools get them.
pub(super) struct TurnSession {
    pub(super) files: Arc<TurnFiles>,
    pub(super) turn: Turn,
    /// The conversation and its owner.
    pub(super) conversation: String,
    /// Conversation to which names of files are bound.
    pub(super) pages: String,
}

impl TurnSession {
    fn new(
        caller: Caller,
        session: String,
        (conversation, pages): (String, String),
        history: Vec<Message>,
        files: Arc<TurnFiles>,
    ) -> Self {
        let (storage, limit) = (files.storage.clone(), files.scope.limit());
        Self {
            turn: Turn::new(caller, session, history, storage, limit),
            files,
            conversation,
            pages,
        }
    }
}

/// Opens a turn with all its inputs. No byte was sent to the client yet, so a failure still has an HTTP status.
pub(super) async fn open_turn(
    parts: &Arc<SharedParts>,
    mut request: CheckedChatRequest,
    loaded: LoadedManifest,
    lineage: Option<AgentLineage>,
    mut telemetry: Arc<TurnTelemetry>,
) -> Result<OpenTurn, RequestFailure> {
    let started_at = Instant::now();
    let (mut client_parameters, part) = plain::client_part(parts, &mut request).await?;
    let run = request.request.background.as_ref();
    if run.is_some_and(|run| run.takeovers > 0) {
        // The process that began the turn has called the model, because the first checkpoint comes after that call. The
        // agent that answers now may not have the chosen tool.
        client_parameters = client_parameters.after_first_call();
    }
    let (loaded, path) = handoff::answering_agent(parts, &request, loaded, part.continues).await?;
    let above = lineage.as_ref().map(|lineage| lineage.names.as_slice());
    let messages = &request.request.messages;
    let agents = TurnAgents::new(parts, path, messages, above.unwrap_or_default());
    let mut span = Span::none();
    let mut requested = None;
    if let Some(handed_over_agent) = agents.handed_over_agent() {
        request.manifest = ManifestSource::Named(handed_over_agent);
        let parent = telemetry.report.as_parent(TurnCause::Handoff);
        let of_deputy = Arc::new(TurnTelemetry::new(parts, &request, Some(parent)));
        requested = Some(std::mem::replace(&mut telemetry, of_deputy));
        span = telemetry.agent_span();
    }
    let entry = TurnEntry {
        started_at,
        client_parameters,
        part,
        agent: agents.current(),
        agents: Arc::new(agents),
        inherited: None,
        requested,
        span: span.clone(),
    };
    let opening = open_agent(
        parts,
        request,
        loaded,
        lineage,
        Arc::clone(&telemetry),
        entry,
    );
    let opened = Box::pin(opening.instrument(span)).await;
    telemetry.report_opening(&opened);
    opened
}

/// Opens the turn of one agent: checks its budgets, sets up its tools, and prepares its messages.
#[expect(
    clippy::too_many_lines,
    reason = "one step after the other, which share most of their values"
)]
pub(super) async fn open_agent(
    parts: &Arc<SharedParts>,
    checked: CheckedChatRequest,
    loaded: LoadedManifest,
    lineage: Option<AgentLineage>,
    telemetry: Arc<TurnTelemetry>,
    entry: TurnEntry,
) -> Result<OpenTurn, RequestFailure> {
    let principal = checked.identity.key();
    if !checked.is_dial {
        check_parameters(&loaded.manifest.orchestrator, &entry.client_parameters)?;
    }
    let basis = handoff_basis(&checked, &loaded, lineage.as_ref(), &entry);
    let (opening, budget, calls) =
        begin_turn(parts, &checked, &loaded, lineage, &entry, &telemetry).await?;
    let TurnEntry {
        client_parameters,
        part,
        agents,
        inherited,
        span,
        ..
    } = entry;
    let (mut request, caller, is_dial) = (checked.request, checked.caller, checked.is_dial);
    let session = opening.session.clone();
    // The identity is a part of the name: callers that name equal sessions must not share a program.
    let conversation = format!("{}\n{session}", checked.identity.key());
    let pages = opening.conversation.clone();
    let services = parts.services.clone().with_trace(telemetry.report.trace());
    let files = Arc::new(TurnFiles::new(services, opening));
    let named = (&caller, &checked.identity, principal.as_str());
    let audience = tool_audience(named, &conversation, &pages, &loaded);
    let messages = std::mem::take(&mut request.messages);
    let mut inputs = turn_inputs(parts, audience, &loaded, &files, &calls, messages).await?;
    let core = parts.core.as_ref();
    let manifest = expand_folders(core, &caller, loaded.manifest, &inputs.messages).await;
    let has_tools = inputs.tools.iter().any(|tool| !tool.rules().hidden);
    let has_handoffs = manifest.handoff_agents().next().is_some();
    let has_any_tools = has_tools || has_handoffs || !client_parameters.tools.is_empty();
    // The choice is checked before the tools of this service are added: "no tools" means that none are configured
    // (quickapps 46).
    choice::check_tool_choice(client_parameters.tool_choice.as_ref(), has_any_tools)
        .map_err(|failure| *failure)?;
    let mut outgoing = outgoing_of_turn(parts, &manifest, &mut inputs, &files);
    let (skills, messages) = (&inputs.skills, &mut inputs.messages);
    let prompt = system_prompt(parts, &manifest, is_dial, skills, messages);
    let takes_files = parts.config.file_skill_always || has_tools;
    insert_file_skill(takes_files, &inputs.skills, &outgoing, &mut inputs.messages);
    let compaction = compaction_threshold(parts, &manifest);
    inputs.needs_reader = compaction.is_some()
        || (has_tools && files.offloads_results())
        || manifest
            .contexts
            .iter()
            .any(|context| matches!(context, Context::File { .. }));
    let (hooks, guardrails) = offer_tools(parts, &manifest, &mut inputs, &outgoing, &files).await?;
    let (tools, sources) = (&mut inputs.tools, &mut inputs.sources);
    let handoffs =
        handoff::add_handoffs(manifest.handoff_agents(), &calls, &agents, tools, sources);
    inputs.issues.tools.extend(handoffs);
    inputs.access.retain(&mut inputs.tools, &inputs.sources);
    let (tools, sources) = (&mut inputs.tools, &inputs.sources);
    let others = (&client_parameters, inputs.model.statics.as_slice());
    let (deferred, issue) = tool_search::defer_tools(parts, &manifest, sources, others, tools);
    outgoing.deferred = deferred;
    inputs.issues.tools.extend(issue);
    if !is_dial {
        client_parameters.check_tools(&inputs.tools, &inputs.model.statics)?;
    }
    let taken_rounds = inherited.as_ref().map_or(0, |inherited| inherited.rounds);
    let known = inputs.messages.len().saturating_sub(taken_rounds);
    let continued_at = part.continues.then_some(known);
    files.delivery.note_rounds(&inputs.messages);
    // The get-content pairs must come before the notification (quickapps 11.4).
    add_notices(&manifest, &outgoing, &mut inputs.messages);
    let sources = std::mem::take(&mut inputs.sources);
    let approvals = approval_policy(parts, &manifest, sources, &request);
    let settings = pipeline_settings(parts, &manifest);
    // The history is copied: tools see the history as it was when the turn began, while the loop adds to its own.
    let history = inputs.messages.clone();
    let session = TurnSession::new(caller, session, (conversation, pages), history, files);
    Ok(OpenTurn {
        agents,
        basis,
        takes_over: part.takes_over,
        is_prepared: false,
        has_text: inherited.is_some_and(|inherited| inherited.has_text),
        span,
        messages: inputs.messages,
        named_files: inputs.named_files,
        setup: SetupReport::new(inputs.issues, prompt),
        tools: TurnTools {
            offered: inputs.tools,
            hooks,
            guardrails,
            statics: inputs.model.statics,
            settings,
            approvals,
        },
        session,
        response: response_options(
            parts,
            &request,
            is_dial,
            outgoing,
            client_parameters,
            compaction,
            settings.level,
        ),
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

/// The data with which another agent can continue the turn. `None` for an agent without handoffs, and for one that took
/// the turn over itself, because it passes on the data that it got.
fn handoff_basis(
    request: &CheckedChatRequest,
    loaded: &LoadedManifest,
    lineage: Option<&AgentLineage>,
    entry: &TurnEntry,
) -> Option<Box<HandoffContext>> {
    let hands_over = loaded.manifest.handoff_agents().next().is_some();
    (hands_over && entry.inherited.is_none()).then(|| {
        Box::new(HandoffContext {
            asked: request.clone(),
            client_parameters: entry.client_parameters.clone(),
            continues: entry.part.continues,
            lineage: lineage.cloned(),
        })
    })
}

/// Settings of the messages for the model, as far as they are known before the turn runs.
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
    request: &CheckedChatRequest,
    loaded: &LoadedManifest,
    lineage: Option<AgentLineage>,
    entry: &TurnEntry,
    telemetry: &TurnTelemetry,
) -> Result<(TurnStart, Arc<TurnBudget>, AgentCalls), RequestFailure> {
    let manifest = &loaded.manifest;
    let mut opening = turn_start(parts, request, manifest).await?;
    if let Some(lineage) = &lineage {
        lineage.join_conversation(&mut opening, &request.request.messages);
    }
    if let Some(inherited) = &entry.inherited {
        opening.session.clone_from(&inherited.session);
        opening.conversation.clone_from(&inherited.conversation);
        opening.is_new = false;
    }
    let deployment = &manifest.orchestrator.deployment.deployment_id;
    describe_turn(&opening.conversation, deployment);
    // The trace is that of the turn's span, which its calls continue.
    let recorded = dray_bus::trace::context_of(&Span::current());
    let report = &telemetry.report;
    let requested = entry.requested.as_ref().map(|requested| &requested.report);
    for report in requested.into_iter().chain([report]) {
        report.begin(&opening.session, entry.part.continues, recorded.clone());
    }
    let parent = lineage.as_ref().map(|lineage| Arc::clone(&lineage.budget));
    let budget = if let Some(inherited) = &entry.inherited {
        inherited.budget.succeed(parts, manifest)?
    } else {
        let turn = (opening.conversation.as_str(), entry.started_at);
        TurnBudget::open(parts, &request.identity, turn, manifest, parent).await?
    };
    let budget = Arc::new(budget);
    let agent = entry.agent.clone();
    let calls = agent_calls(parts, request, (&opening, report), &budget, agent, lineage);
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

/// The caller, session and switches from which the files of a turn are set up.
async fn turn_start(
    parts: &SharedParts,
    request: &CheckedChatRequest,
    manifest: &Manifest,
) -> Result<TurnStart, RequestFailure> {
    let (caller, messages) = (&request.caller, &request.request.messages);
    let owner = session_owner(parts, caller, &request.identity).await?;
    let (session, is_new) = session::session_of(caller, owner.as_deref(), messages);
    Ok(TurnStart {
        turn: session::turn_id(&session, messages),
        conversation: session::conversation_id(caller, &session, messages),
        is_new,
        session,
        caller: caller.clone(),
        features: manifest.features.clone(),
        delivered: DeliveredFiles::default(),
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
                .map_err(|error| failures::metadata_failure(&error))
        }
        _ => Ok(None),
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
