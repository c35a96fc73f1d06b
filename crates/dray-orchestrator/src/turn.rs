//! One turn: from a chat request to its ending (quickapps 9).
//!
//! - `AgentEngine`: what all turns share; answers for the HTTP surface.
//! - `open`, `inputs`: manifest, tools, messages: everything that can fail before anything is shown.
//! - `sequence`: the order of a turn (decisions, hooks, loop, hooks), and its time limit.
//! - `rounds`: the loop of model and tools; `model_caller` and `tool_runner` make the calls, `relay` and `speech` pass
//!   the model's words on.
//! - `plain`, `client_tools`, `paused`: tools and parameters of the client, and turns that wait for it.
//! - `compactor`: old messages of long conversations; `provider_quirks`: what services want beyond the API.
//! - `additions`: system prompt, skills and notices, which a turn adds to the conversation.
//! - `agent_tool`: other agents as tools; `handoff`, `succession`: other agents that continue a turn.
//! - `approval_policy`, `approval_forms`, `settle`: calls that a person must approve; `chat_approvals`: those about
//!   which the people of a chat decide.
//! - `tool_access`: tools that only some callers may use; `tool_search`: large sets of tools.
//! - `waiting`, `question_forms`: calls whose tools ask the user.
//! - `mcp_report`: calls of MCP servers as items of responses.
//! - `budget`: the limits of a turn.
//! - `hooks`: calls of tools by the runtime itself; `guardrails`: tools that judge other calls and the model.
//! - `telemetry`: spans and metrics of a turn; `report`: its events on the bus.
//! - `checkpoint`: the stored progress of a response that another replica may have to finish.
//! - `pause`: the stored progress of a turn that begins to wait.
//! - `finish`: state, statistics, and how a failure is reported.

mod additions;
mod agent_tool;
mod approval_forms;
mod approval_policy;
mod body;
mod budget;
mod chat_approvals;
mod chat_calls;
mod chat_questions;
mod checkpoint;
mod client_tools;
mod compactor;
mod failures;
mod file_links;
mod finish;
mod folder_contexts;
mod guardrails;
mod handoff;
mod hooks;
mod inputs;
mod manifest;
mod mcp_report;
mod model_caller;
mod model_info;
mod named_files;
mod open;
mod options;
mod pause;
mod paused;
mod plain;
mod prepare;
mod provider_quirks;
mod question_forms;
mod relay;
mod replayed_calls;
mod report;
mod reporting_tool;
mod result_pictures;
mod rounds;
mod sequence;
mod session;
mod settle;
mod setup;
mod setup_plan;
mod sign_in_owner;
mod skills;
mod speech;
mod succession;
mod tally;
mod telemetry;
mod tool_access;
mod tool_runner;
mod tool_search;
mod tool_sources;
mod waiting;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use dray_agent::budget::TokenPrice;
use dray_agent::caller::Caller;
use dray_agent::event::AnswerEnd;
use dray_agent::failure::RequestFailure;
use dray_agent::layer::LayerSet;
use dray_agent::manifest::Manifest;
use dray_agent::skill::Skill;
use dray_dial::DialClient;
use dray_dial::chat::ChatClient;
use dray_tool::EventSink;
use dray_types::TraceContext;
use futures_util::future::BoxFuture;
use serde_json::Value;
use tracing::Instrument as _;

use crate::approvals::ApprovalStore;
use crate::budgets::UsageLedger;
use crate::client_files::ClientFiles;
use crate::config::Config;
use crate::http::{Agent, CheckedChatRequest, ManifestSource};
use crate::metrics::OrchestratorMetrics;
use crate::permissions::CallerIdentity;
use crate::progress::ProgressStore;
use crate::turn_events::TurnEvents;
use dray_tool_files::FileServices;

use agent_tool::AgentLineage;
pub(crate) use approval_forms::question_calls;
pub(crate) use manifest::ManifestLoader;
pub(crate) use paused::{PausedTurns, checkpoint_messages};
pub(crate) use provider_quirks::KnownQuirks;
use report::TurnEnd;
pub(crate) use setup::ToolKinds;
pub(crate) use setup_plan::SetupPlans;
use telemetry::TurnTelemetry;

/// Configuration, clients and tools that all turns share.
pub(crate) struct SharedParts {
    pub(crate) config: Config,
    pub(crate) loader: ManifestLoader,
    pub(crate) additions: SharedAdditions,
    pub(crate) core: Option<DialClient>,
    pub(crate) model: ModelEndpoint,
    pub(crate) known_quirks: KnownQuirks,
    pub(crate) kinds: ToolKinds,
    pub(crate) services: FileServices,
    pub(crate) records: TurnRecords,
    /// Prices of models.
    pub(crate) prices: Arc<BTreeMap<String, TokenPrice>>,
    pub(crate) metrics: OrchestratorMetrics,
    pub(crate) turn_events: TurnEvents,
}

/// The additions of the operator's layers to each manifest.
pub(crate) struct SharedAdditions {
    pub(crate) layers: Arc<LayerSet>,
    /// Skills of the layers.
    pub(crate) skills: Arc<[Skill]>,
    /// The tool sets of local manifests, with templates of the layers in place of their names.
    pub(crate) plans: SetupPlans,
}

/// Stores whose content outlives a turn, for later requests at any replica.
#[derive(Debug)]
pub(crate) struct TurnRecords {
    /// Work of turns that wait for their client.
    pub(crate) paused: PausedTurns,
    /// Approvals of calls.
    pub(crate) approvals: ApprovalStore,
    /// Checkpoints of responses in the background.
    pub(crate) progress: ProgressStore,
    /// The usage of conversations and callers.
    pub(crate) usage: UsageLedger,
    /// Files of `/v1/files`.
    pub(crate) client_files: ClientFiles,
}

impl fmt::Debug for SharedParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedParts").finish_non_exhaustive()
    }
}

/// The endpoint of the model of all turns.
#[derive(Clone, Debug)]
pub(crate) enum ModelEndpoint {
    /// The model is at an endpoint of chat completions.
    Available(Box<ChatClient>),
    /// No model is available: the operator configured neither DIAL nor an endpoint. Every call of the model fails.
    Missing,
}

/// The agent behind the HTTP surface. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct AgentEngine {
    pub(crate) parts: Arc<SharedParts>,
}

#[async_trait]
impl Agent for AgentEngine {
    async fn answer(
        &self,
        request: CheckedChatRequest,
        sink: EventSink,
    ) -> Result<AnswerEnd, RequestFailure> {
        let timer = self.parts.metrics.begin();
        let answered = self.turn(request, &sink, None).await;
        timer.end(answered.as_ref().err());
        answered
    }

    async fn verify(&self, caller: &Caller) -> Result<CallerIdentity, RequestFailure> {
        let Some(core) = &self.parts.core else {
            // Without DIAL the surface identifies every caller itself and never asks here.
            return Err(RequestFailure::unexpected());
        };
        let bucket = core.bucket(caller).await;
        let bucket = bucket.map_err(|error| failures::unverified_failure(&error))?;
        Ok(CallerIdentity::Dial(bucket.bucket))
    }

    async fn manifest(
        &self,
        caller: &Caller,
        identity: &CallerIdentity,
        source: &ManifestSource,
    ) -> Result<Arc<Manifest>, RequestFailure> {
        let loader = &self.parts.loader;
        let loaded = loader.load(caller, identity, source).await?;
        Ok(loaded.manifest)
    }

    async fn template(&self, caller: &Caller, deployment: &str) -> Result<Value, RequestFailure> {
        let Some(dial) = &self.parts.kinds.dial else {
            return Err(RequestFailure::new(
                404,
                "DIAL is not configured, so no deployments exist.",
            ));
        };
        let template = dray_tool_dial::deployment_template(dial, caller, deployment).await;
        template.map_err(|refused| failures::refused_template_failure(deployment, &refused))
    }
}

impl AgentEngine {
    async fn turn(
        &self,
        mut request: CheckedChatRequest,
        sink: &EventSink,
        lineage: Option<AgentLineage>,
    ) -> Result<AnswerEnd, RequestFailure> {
        if request.trace.is_empty() {
            // The events of the turn and of its calls have this trace where no span is recorded.
            request.trace = TraceContext::unrecorded();
        }
        let parent = lineage.as_ref().map(|lineage| lineage.parent.clone());
        let telemetry = Arc::new(TurnTelemetry::new(&self.parts, &request, parent));
        let span = telemetry.agent_span();
        // The future is a trait object, because a turn contains the turns of called agents.
        let running: BoxFuture<'_, _> =
            Box::pin(self.run_turn(request, sink, lineage, Arc::clone(&telemetry)));
        let ended = running.instrument(span.clone()).await;
        telemetry.end_turn(&span, &ended);
        ended.map(|end| end.answer)
    }

    async fn run_turn(
        &self,
        request: CheckedChatRequest,
        sink: &EventSink,
        lineage: Option<AgentLineage>,
        telemetry: Arc<TurnTelemetry>,
    ) -> Result<TurnEnd, RequestFailure> {
        if request.is_dial && !request.request.tools.is_empty() {
            tracing::warn!(
                "tools of a client of DIAL are not offered: only those of the manifest are"
            );
        }
        let loaded = self
            .parts
            .loader
            .load(&request.caller, &request.identity, &request.manifest)
            .await?;
        // The future is boxed: the futures of a turn are large, and the future of each caller would contain them.
        let opened = Box::pin(open::open_turn(
            &self.parts,
            request,
            loaded,
            lineage,
            telemetry,
        ))
        .await?;
        Box::pin(opened.run(sink)).await
    }
}
