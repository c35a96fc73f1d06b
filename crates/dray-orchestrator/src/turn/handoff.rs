//! Handoffs: an agent gives the rest of its turn to another one, which answers the following turns as well.
//!
//! The model calls a tool; after its round the loop ends, and a turn of the other agent continues with the same
//! conversation: with its own model, prompt, tools, hooks and limits. The state says who answers. It comes back from
//! clients, so each step is checked again against the manifests and against what the caller may use.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use dray_agent::failure::RequestFailure;
use dray_agent::handoff::AgentPath;
use dray_agent::issues::ToolIssue;
use dray_agent::manifest::toolset::AgentRef;
use dray_agent::message::Message;
use dray_tool::{
    CallRules, HandledFailure, Tool, ToolCall, ToolDeclaration, ToolFailure, ToolOutput, Turn,
    naming,
};
use serde_json::{Value, json};

use super::SharedParts;
use super::agent_tool::{AgentCalls, AgentLineage};
use super::body::ClientParameters;
use super::budget::TurnBudget;
use super::manifest::LoadedManifest;
use super::tool_sources::ToolSources;
use crate::http::{CheckedChatRequest, ManifestSource};

/// First part of the names of the tools.
const TOOL_PREFIX: &str = "transfer_to";
/// Code for a request that continues a turn whose agent is no longer available.
const AGENT_GONE_CODE: &str = "agent_unavailable";

/// Result of a handoff in a round whose other calls wait for the client or the user: those calls belong to the agent
/// that made them.
pub(super) const WAITS_FOR_OTHERS: &str = "The conversation was not handed over, because other calls of this round wait for the user. Hand it over when \
     they have their results, in a round of its own.";

/// A handoff that a round requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HandoffRequest {
    /// Id of the tool call that requested it, which its result names.
    pub(super) call_id: String,
    /// The agent that answers next.
    pub(super) agent: String,
}

/// The agents that answer in one request. Shared by the tools of an agent, its loop, and the agents that follow it.
#[derive(Debug)]
pub(super) struct TurnAgents {
    /// Most handoffs of one request.
    max_handoffs: usize,
    state: Mutex<AgentsState>,
}

#[derive(Debug, Default)]
struct AgentsState {
    path: AgentPath,
    /// Whether the conversation was ever handed over, so that its state has to say who answers.
    is_noted: bool,
    /// Agents that cannot get the turn: its earlier agents, agents that failed to take it, and the callers of a called
    /// agent.
    excluded: BTreeSet<String>,
    handoffs: usize,
    requested: Option<HandoffRequest>,
}

impl TurnAgents {
    /// The agents of a request. The last agent of `path` answers. `above` are the agents that called it as a tool.
    pub(super) fn new(
        parts: &SharedParts,
        path: AgentPath,
        messages: &[Message],
        above: &[String],
    ) -> Self {
        let mut excluded: BTreeSet<_> = above.iter().cloned().collect();
        excluded.insert(path.current().to_owned());
        Self {
            max_handoffs: usize::try_from(parts.config.max_handoffs).unwrap_or(usize::MAX),
            state: Mutex::new(AgentsState {
                is_noted: !path.path.is_empty() || AgentPath::of_messages(messages).is_some(),
                path,
                excluded,
                ..AgentsState::default()
            }),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, AgentsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests a handoff, which takes place when the round has ended.
    ///
    /// # Errors
    ///
    /// The reason why the agent cannot get the turn, for the model.
    fn request(&self, call_id: &str, agent: &str) -> Result<(), String> {
        let mut state = self.state();
        if let Some(other) = &state.requested {
            return Err(format!(
                "It is handed over to '{}' already, by another call of this round.",
                other.agent
            ));
        }
        // This also prevents two agents from handing a turn to each other forever.
        if state.excluded.contains(agent) {
            return Err(format!(
                "The agent '{agent}' had this turn already. Answer the user yourself."
            ));
        }
        if state.handoffs >= self.max_handoffs {
            return Err(format!(
                "A turn is handed over at most {} times. Answer the user yourself.",
                self.max_handoffs
            ));
        }
        state.requested = Some(HandoffRequest {
            call_id: call_id.to_owned(),
            agent: agent.to_owned(),
        });
        Ok(())
    }

    /// Cancels the requested handoff. Returns the id of its call.
    pub(super) fn withdraw(&self) -> Option<String> {
        self.state().requested.take().map(|request| request.call_id)
    }

    /// Begins the handoff that was requested. The agent does not get this turn a second time, even if it fails.
    pub(super) fn take_request(&self) -> Option<HandoffRequest> {
        let mut state = self.state();
        let request = state.requested.take()?;
        state.excluded.insert(request.agent.clone());
        state.handoffs += 1;
        Some(request)
    }

    /// Makes `agent` the one that answers from here on.
    pub(super) fn hand_over(&self, agent: &str) {
        let mut state = self.state();
        state.path = state.path.step(agent);
        state.is_noted = true;
    }

    /// Name of the agent that answers, if it is not the one that the request names.
    pub(super) fn handed_over_agent(&self) -> Option<String> {
        let state = self.state();
        state.path.path.last().cloned()
    }

    /// Name of the agent that answers.
    pub(super) fn current(&self) -> String {
        self.state().path.current().to_owned()
    }

    /// Writes the answering agent into a state. A requested handoff counts already, because the state contains its
    /// result.
    pub(super) fn note(&self, value: &mut Value) {
        let state = self.state();
        match &state.requested {
            Some(request) => state.path.step(&request.agent).note(value),
            // A return to the first agent is written as well; otherwise the state of an earlier turn would apply.
            None if state.is_noted => state.path.note(value),
            None => {}
        }
    }
}

/// The data with which another agent can continue a request.
#[derive(Debug)]
pub(super) struct HandoffContext {
    /// The original request, with the rounds of earlier requests inserted.
    pub(super) asked: CheckedChatRequest,
    pub(super) client_parameters: ClientParameters,
    /// Whether the turn began in an earlier request.
    pub(super) continues: bool,
    /// The callers of a called agent.
    pub(super) lineage: Option<AgentLineage>,
}

/// The turn that an agent continues after another one.
#[derive(Debug)]
pub(super) struct InheritedTurn {
    pub(super) session: String,
    /// Conversation to which names of files are bound.
    pub(super) conversation: String,
    pub(super) budget: Arc<TurnBudget>,
    /// Number of messages at the end that come from earlier agents.
    pub(super) rounds: usize,
    /// Whether those agents sent text to the client.
    pub(super) has_text: bool,
}

/// Name of the agent that a request names; empty for a manifest that has no local name.
pub(super) fn requested_agent(parts: &SharedParts, source: &ManifestSource) -> String {
    match source {
        ManifestSource::Named(name) => name.clone(),
        ManifestSource::Default => parts.config.default_manifest.clone().unwrap_or_default(),
        // No local manifest can have this name.
        ManifestSource::Given(_) | ManifestSource::Application(_) => String::new(),
    }
}

/// The agent that answers a request: the one that it names, or the one to which the conversation was handed over. A
/// step that the manifests or the caller's permissions no longer allow ends with the agent that the request
/// names.
///
/// # Errors
///
/// 400 when the request continues a turn whose agent may no longer answer, because only that agent has the tools of
/// the open calls.
pub(super) async fn answering_agent(
    parts: &SharedParts,
    asked: &CheckedChatRequest,
    loaded: LoadedManifest,
    continues: bool,
) -> Result<(LoadedManifest, AgentPath), RequestFailure> {
    let root = requested_agent(parts, &asked.manifest);
    let path = AgentPath::of_messages(&asked.request.messages);
    // The agent that the client names takes precedence.
    let Some(path) = path.filter(|path| path.from == root) else {
        return Ok((loaded, AgentPath::new(root)));
    };
    // Step by step, because each agent names those to which it may hand over.
    let mut current = loaded.clone();
    for agent in &path.path {
        let is_named = current
            .manifest
            .handoff_agents()
            .any(|handoff| handoff.agent == *agent);
        let source = ManifestSource::Named(agent.clone());
        let next = if is_named {
            // The agent is loaded as for a request of this caller, so its permissions decide.
            let next = parts.loader.load(&asked.caller, &asked.identity, &source);
            next.await.ok()
        } else {
            None
        };
        match next {
            Some(next) => current = next,
            None if continues => return Err(unavailable_agent_failure(agent)),
            None => {
                tracing::warn!(%agent, "the conversation cannot stay with the agent that it was handed over to");
                return Ok((loaded, AgentPath::new(root)));
            }
        }
    }
    Ok((current, path))
}

fn unavailable_agent_failure(agent: &str) -> RequestFailure {
    let text = format!(
        "The agent '{agent}', to which the conversation was handed over, cannot continue this turn. Start again from the \
         last message of the user."
    );
    RequestFailure::of_parameter("messages", AGENT_GONE_CODE, text)
}

/// A tool by which the model hands the turn over.
#[derive(Debug)]
struct HandoffTool {
    declaration: ToolDeclaration,
    rules: CallRules,
    agent: String,
    agents: Arc<TurnAgents>,
}

/// Adds the tools by which an agent hands the turn over. Returns the handoffs without a tool, with the reasons. The
/// tools are the same in all turns of the agent, so that the prompt stays the same; a call decides whether the handoff
/// is possible.
pub(super) fn add_handoffs<'a>(
    handoffs: impl Iterator<Item = &'a AgentRef>,
    calls: &AgentCalls,
    agents: &Arc<TurnAgents>,
    tools: &mut Vec<Arc<dyn Tool>>,
    sources: &mut ToolSources,
) -> Vec<ToolIssue> {
    let mut issues = Vec::new();
    for handoff in handoffs {
        let issue = |message: String| ToolIssue {
            tool: Some(handoff.agent.clone()),
            toolset: None,
            message,
            details: Vec::new(),
            is_for_user: false,
        };
        if let Some(reason) = calls.missing(&handoff.agent) {
            issues.push(issue(format!("It is not handed over to: {reason}")));
            continue;
        }
        let tool = HandoffTool::new(handoff, agents);
        let name = &tool.declaration.name;
        if tools.iter().any(|other| other.declaration().name == *name) {
            let reason = format!("Another tool has the name '{name}'; only the first one is used.");
            issues.push(issue(reason));
            continue;
        }
        sources.add_handoff(name, &handoff.agent);
        tools.push(Arc::new(tool));
    }
    issues
}

impl HandoffTool {
    fn new(handoff: &AgentRef, agents: &Arc<TurnAgents>) -> Self {
        let agent = &handoff.agent;
        let mut description = format!(
            "Hands the conversation over to the agent '{agent}', which sees all of it and answers the user from here on."
        );
        if let Some(more) = &handoff.description {
            description.push(' ');
            description.push_str(more);
        }
        Self {
            declaration: ToolDeclaration {
                name: naming::qualified_name(TOOL_PREFIX, agent),
                description: Some(description),
                parameters: json!({
                    "type": "object",
                    "properties": {
                        "reason": {"type": "string", "description": "Why, for the other agent"},
                    },
                }),
            },
            rules: CallRules {
                label: format!("Handoff to {agent}"),
                ..CallRules::default()
            },
            agent: agent.clone(),
            agents: Arc::clone(agents),
        }
    }
}

#[async_trait]
impl Tool for HandoffTool {
    fn declaration(&self) -> &ToolDeclaration {
        &self.declaration
    }

    fn rules(&self) -> &CallRules {
        &self.rules
    }

    async fn call(&self, call: ToolCall, _turn: &Turn) -> Result<ToolOutput, ToolFailure> {
        let requested = self.agents.request(&call.id, &self.agent);
        requested.map_err(|text| ToolFailure::Failed(HandledFailure::new(text)))?;
        Ok(ToolOutput {
            content: format!(
                "The conversation was handed over to the agent '{}', which answers from here on.",
                self.agent
            ),
            content_type: "text/plain".to_owned(),
            ..ToolOutput::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agents(max_handoffs: usize, above: &[&str]) -> TurnAgents {
        TurnAgents {
            max_handoffs,
            state: Mutex::new(AgentsState {
                path: AgentPath::new("desk"),
                excluded: above.iter().map(ToString::to_string).collect(),
                ..AgentsState::default()
            }),
        }
    }

    #[test]
    fn an_agent_gets_a_turn_once_and_the_number_of_handoffs_is_limited() {
        let agents = agents(2, &["desk", "lead"]);
        assert!(
            agents
                .request("1", "lead")
                .unwrap_err()
                .contains("had this turn")
        );
        agents.request("1", "billing").unwrap();
        let second = agents.request("2", "refunds").unwrap_err();
        assert!(second.contains("to 'billing' already"), "{second}");
        assert_eq!(agents.take_request().unwrap().call_id, "1");
        assert!(agents.request("3", "billing").is_err());
        agents.request("3", "refunds").unwrap();
        assert_eq!(agents.take_request().unwrap().agent, "refunds");
        let last = agents.request("4", "returns").unwrap_err();
        assert!(last.contains("at most 2 times"), "{last}");
    }

    #[test]
    fn the_state_names_the_answering_agent_after_a_handoff() {
        let agents = agents(2, &["desk"]);
        let state_of = |agents: &TurnAgents| {
            let mut state = json!({});
            agents.note(&mut state);
            state
        };
        assert_eq!(state_of(&agents), json!({}));
        agents.request("1", "billing").unwrap();
        let billing = json!({"dray_agents": {"from": "desk", "path": ["billing"]}});
        assert_eq!(state_of(&agents), billing);
        assert_eq!(agents.withdraw().as_deref(), Some("1"));
        assert_eq!(state_of(&agents), json!({}));
        agents.request("2", "billing").unwrap();
        agents.take_request().unwrap();
        agents.hand_over("billing");
        assert_eq!(
            (state_of(&agents), agents.handed_over_agent().as_deref()),
            (billing, Some("billing"))
        );
    }
}
