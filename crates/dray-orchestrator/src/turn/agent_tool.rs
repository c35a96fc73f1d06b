//! Agents as tools of other agents: a call is a turn of the other agent, with its own model, tools and budget.
//!
//! The called agent is a local manifest that the caller of the request may use itself, so it never has more than the
//! caller. It works in the same conversation: files and sandbox are shared, its stages are shown in the stage of the
//! call, and its usage counts in the budgets of the agent that called it. Its calls that need an approval are not made.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use dray_agent::event::{AnswerEnd, Event, FinishReason, StageStatus};
use dray_agent::issues::ToolIssue;
use dray_agent::manifest::toolset::{AgentRef, AgentSet, ToolSet};
use dray_agent::message::{Attachment, CustomContent, Message, Role};
use dray_proto::v1::TurnCause;
use dray_tool::{
    CallRules, EventSink, HandledFailure, StageWriter, Tool, ToolCall, ToolDeclaration,
    ToolFailure, ToolOutput, Turn, naming, timeout,
};
use dray_tool_files::{DeliveredFiles, TurnStart};
use dray_types::TraceContext;
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;

use super::budget::TurnBudget;
use super::report::{ParentTurn, TurnReport};
use super::session::turn_id;
use super::setup_plan::PlannedSet;
use super::tool_sources::ToolSources;
use super::{AgentEngine, SharedParts};
use crate::http::{ApprovalForm, ChatRequest, CheckedChatRequest, ManifestSource};
use crate::permissions::CallerIdentity;

/// Most bytes of the text of a called agent.
const MAX_TEXT_BYTES: usize = 1 << 20;
/// Sentence for the calling agent after a text that was cut.
const CUT_NOTICE: &str = "\n\n[The answer is longer than 1 MiB; the rest was left out.]";

/// The agents that led to a called agent, and what it shares with them.
#[derive(Clone, Debug)]
pub(super) struct AgentLineage {
    /// Names of the agents, beginning with the agent of the request.
    pub(super) names: Vec<String>,
    /// Session of the request.
    pub(super) session: String,
    /// Conversation to which names of files are bound.
    pub(super) conversation: String,
    /// The turn of the calling agent, and of each call that led to it, so that two calls with the same request are two
    /// turns.
    pub(super) turn: String,
    /// The files that the agents of the turn sent to the chat.
    pub(super) delivered: DeliveredFiles,
    /// Budgets of the calling agent.
    pub(super) budget: Arc<TurnBudget>,
    /// The turn of the calling agent.
    pub(super) parent: ParentTurn,
    /// The trace of that turn.
    pub(super) trace: TraceContext,
}

impl AgentLineage {
    /// Makes the turn of a called agent one on the files and in the sandbox of the conversation.
    pub(super) fn join_conversation(&self, start: &mut TurnStart, messages: &[Message]) {
        start.session.clone_from(&self.session);
        start.conversation.clone_from(&self.conversation);
        start.delivered.clone_from(&self.delivered);
        // A call names no session, but that of the conversation may have a sandbox and a chat.
        start.is_new = false;
        // Equal requests of two calls are not repetitions of one request.
        start.turn = turn_id(&self.turn, messages);
    }
}

/// The state that all called agents of a turn share.
#[derive(Clone)]
pub(super) struct AgentCalls {
    pub(super) parts: Arc<SharedParts>,
    pub(super) caller: dray_agent::caller::Caller,
    pub(super) identity: CallerIdentity,
    pub(super) request_id: String,
    pub(super) lineage: AgentLineage,
}

impl fmt::Debug for AgentCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentCalls")
            .field("lineage", &self.lineage.names)
            .finish_non_exhaustive()
    }
}

/// The shared data for the agents that this agent can call.
pub(super) fn agent_calls(
    parts: &Arc<SharedParts>,
    request: &CheckedChatRequest,
    (opening, report): (&TurnStart, &TurnReport),
    budget: &Arc<TurnBudget>,
    agent: String,
    lineage: Option<AgentLineage>,
) -> AgentCalls {
    let mut names = lineage.map(|lineage| lineage.names).unwrap_or_default();
    names.push(agent);
    AgentCalls {
        parts: Arc::clone(parts),
        caller: request.caller.clone(),
        identity: request.identity.clone(),
        request_id: request.request_id.clone(),
        lineage: AgentLineage {
            names,
            session: opening.session.clone(),
            conversation: opening.conversation.clone(),
            turn: opening.turn.clone(),
            delivered: opening.delivered.clone(),
            budget: Arc::clone(budget),
            parent: report.as_parent(TurnCause::Call),
            trace: report.trace(),
        },
    }
}

/// An agent that another one can call.
#[derive(Debug)]
struct AgentTool {
    declaration: ToolDeclaration,
    rules: CallRules,
    agent: String,
    calls: AgentCalls,
}

impl AgentCalls {
    /// Adds the tools of all sets of agents. Returns why others cannot be called.
    pub(super) fn add_tools(
        &self,
        sets: &[Arc<PlannedSet>],
        tools: &mut Vec<Arc<dyn Tool>>,
        sources: &mut ToolSources,
    ) -> Vec<ToolIssue> {
        let mut issues = Vec::new();
        for planned in sets {
            let ToolSet::Agents(set) = &planned.set else {
                continue;
            };
            if !set.common.enabled {
                continue;
            }
            for agent in set.agents.iter().filter(|agent| agent.enabled) {
                match self.problem(&agent.agent) {
                    None => {
                        let tool: Arc<dyn Tool> = Arc::new(self.tool(set, agent));
                        sources.add(sets, planned, std::slice::from_ref(&tool));
                        tools.push(tool);
                    }
                    Some(message) => issues.push(ToolIssue {
                        tool: Some(agent.agent.clone()),
                        toolset: Some(set.name.clone()),
                        message,
                        details: Vec::new(),
                        is_for_user: false,
                    }),
                }
            }
        }
        issues
    }

    /// The reason why an agent cannot be called.
    fn problem(&self, agent: &str) -> Option<String> {
        let depth = self.parts.config.max_agent_depth;
        let callers = &self.lineage.names;
        if callers.iter().any(|name| name == agent) {
            return Some("It is not called: it would call itself.".to_owned());
        }
        // The agent of the request is at depth 0.
        if callers.len() > usize::try_from(depth).unwrap_or(usize::MAX) {
            return Some(format!(
                "It is not called: agents call each other at most {depth} deep."
            ));
        }
        let missing = self.missing(agent)?;
        Some(format!("It is not called: {missing}"))
    }

    /// The reason why an agent does not exist for the caller.
    pub(super) fn missing(&self, agent: &str) -> Option<String> {
        let grants = &self.parts.loader.grants;
        if grants.check_agent(&self.identity, agent).is_err() {
            return Some("it is not for the caller of this request.".to_owned());
        }
        match self.parts.loader.manifests.get(agent) {
            Ok(Some(_)) => None,
            Ok(None) => Some("no manifest has this name.".to_owned()),
            Err(failure) => Some(failure.message),
        }
    }

    fn tool(&self, set: &AgentSet, agent: &AgentRef) -> AgentTool {
        let description = agent.description.clone().unwrap_or_else(|| {
            format!(
                "The agent '{}'. It does not see this conversation.",
                agent.agent
            )
        });
        AgentTool {
            declaration: ToolDeclaration {
                name: naming::qualified_name(&set.name, &agent.agent),
                description: Some(description),
                parameters: json!({
                    "type": "object",
                    "properties": {
                        "request": {"type": "string", "description": "What the agent shall do, with all that it must know"},
                        "files": {
                            "type": "array", "items": {"type": "string"},
                            "description": "Names of files of this conversation that the agent gets",
                        },
                    },
                    "required": ["request"],
                }),
            },
            rules: CallRules {
                label: agent.agent.clone(),
                timeout: set.common.timeout_seconds.and_then(timeout::from_seconds),
                ..CallRules::default()
            },
            agent: agent.agent.clone(),
            calls: self.clone(),
        }
    }
}

#[async_trait]
impl Tool for AgentTool {
    fn declaration(&self) -> &ToolDeclaration {
        &self.declaration
    }

    fn rules(&self) -> &CallRules {
        &self.rules
    }

    async fn call(&self, call: ToolCall, turn: &Turn) -> Result<ToolOutput, ToolFailure> {
        let request = call.arguments.get("request").and_then(Value::as_str);
        let Some(request) = request.filter(|text| !text.trim().is_empty()) else {
            return Err(ToolFailure::Parameter {
                name: "request".to_owned(),
                message: "it must be a text that says what to do".to_owned(),
            });
        };
        let mut message = Message::new(Role::User, request);
        let files = named_files(call.arguments.get("files"), || turn.files())?;
        if !files.is_empty() {
            message.custom_content = Some(CustomContent {
                attachments: Some(files),
                ..CustomContent::default()
            });
        }
        let (sink, events) = EventSink::new();
        let running = self.run(&call.id, message, sink);
        let (ended, mut answer) = tokio::join!(running, collect_answer(events, &call.stage));
        let ended = ended.map_err(|failure| {
            let text = format!("The agent '{}' failed: {}", self.agent, failure.message);
            ToolFailure::Failed(HandledFailure::new(text))
        })?;
        answer.note_end(ended.reason);
        Ok(ToolOutput {
            content: answer.text,
            content_type: "text/markdown".to_owned(),
            attachments: answer.attachments,
            usage: ended.per_model,
            ..ToolOutput::default()
        })
    }
}

impl AgentTool {
    /// One turn of the agent, for the call with this id. The sink ends with it.
    async fn run(
        &self,
        call_id: &str,
        message: Message,
        sink: EventSink,
    ) -> Result<AnswerEnd, dray_agent::failure::RequestFailure> {
        let calls = &self.calls;
        let checked = CheckedChatRequest {
            request: ChatRequest {
                messages: vec![message],
                include_usage: true,
                // The calling agent decides which of the files its user sees.
                knows_custom_content: true,
                approval_form: ApprovalForm::Unavailable,
                ..ChatRequest::default()
            },
            caller: calls.caller.clone(),
            identity: calls.identity.clone(),
            manifest: ManifestSource::Named(self.agent.clone()),
            deployment: self.agent.clone(),
            is_dial: false,
            request_id: calls.request_id.clone(),
            trace: calls.lineage.trace.clone(),
        };
        let engine = AgentEngine {
            parts: Arc::clone(&calls.parts),
        };
        let mut lineage = calls.lineage.clone();
        lineage.turn = format!("{}\n{call_id}", lineage.turn);
        engine.turn(checked, &sink, Some(lineage)).await
    }
}

/// The answer of a called agent.
#[derive(Debug, Default)]
struct AgentAnswer {
    text: String,
    /// Whether the text has reached its limit, and a sentence says so at its end.
    is_cut: bool,
    attachments: Vec<Attachment>,
}

impl AgentAnswer {
    /// Appends text up to [`MAX_TEXT_BYTES`]. No text is appended after a cut, even if it would fit.
    fn append_text(&mut self, text: &str) {
        if self.is_cut {
            return;
        }
        let room = MAX_TEXT_BYTES.saturating_sub(self.text.len());
        let fitting = text.floor_char_boundary(room);
        self.text.push_str(text.get(..fitting).unwrap_or_default());
        self.is_cut = fitting < text.len();
        if self.is_cut {
            self.text.push_str(CUT_NOTICE);
        }
    }

    /// Adds a remark for the calling agent if the answer is not complete.
    fn note_end(&mut self, reason: FinishReason) {
        self.text
            .push_str(reason.incomplete_remark().unwrap_or_default());
    }
}

/// Takes the events of a called agent. Its stages go into the stage of the call, each as a whole when it is closed.
async fn collect_answer(mut events: Receiver<Event>, stage: &StageWriter) -> AgentAnswer {
    let mut answer = AgentAnswer::default();
    let mut stages = std::collections::BTreeMap::<u32, (String, String)>::new();
    while let Some(event) = events.recv().await {
        match event {
            // A refusal is the whole answer of a model, without any text.
            Event::Content(text) | Event::Refusal(text) => answer.append_text(&text),
            Event::Attachment(attachment) => answer.attachments.push(attachment),
            Event::StageOpened { stage, name } => {
                stages.insert(stage, (name.unwrap_or_default(), String::new()));
            }
            Event::StageName { stage, name } => stages.entry(stage).or_default().0.push_str(&name),
            Event::StageContent { stage, content } => {
                stages.entry(stage).or_default().1.push_str(&content);
            }
            Event::StageClosed {
                stage: number,
                status,
            } => {
                let (name, content) = stages.remove(&number).unwrap_or_default();
                let mark = match status {
                    StageStatus::Completed => "",
                    StageStatus::Failed => " (failed)",
                };
                // If the client has disconnected, another part ends the call.
                let _ = stage
                    .content(format!("\n#### {name}{mark}\n\n{content}\n"))
                    .await;
            }
            _ => {}
        }
    }
    answer
}

/// The files that a call names; of equal names the newest counts.
fn named_files(
    names: Option<&Value>,
    known: impl FnOnce() -> Vec<Attachment>,
) -> Result<Vec<Attachment>, ToolFailure> {
    let invalid = |message: String| ToolFailure::Parameter {
        name: "files".to_owned(),
        message,
    };
    let names = match names {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(names)) => names,
        Some(_) => return Err(invalid("it must be a list of names".to_owned())),
    };
    let known = known();
    let mut files = Vec::with_capacity(names.len());
    for name in names {
        let found = known
            .iter()
            .rev()
            .find(|file| file.title.as_deref() == name.as_str() && name.is_string());
        let Some(file) = found else {
            let titles: Vec<_> = known
                .iter()
                .filter_map(|file| file.title.as_deref())
                .collect();
            let known = if titles.is_empty() {
                "the conversation has no files".to_owned()
            } else {
                format!("the files are: {}", titles.join(", "))
            };
            return Err(invalid(format!("no file has the name {name}; {known}")));
        };
        files.push(file.clone());
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_answer_is_cut_once_and_says_so() {
        let mut answer = AgentAnswer::default();
        answer.append_text(&"x".repeat(MAX_TEXT_BYTES - 1));
        assert!(!answer.text.contains("left out"));
        // A character is never split.
        answer.append_text("éa");
        answer.append_text("b");
        let (text, notice) = answer.text.split_at(MAX_TEXT_BYTES - 1);
        assert!(text.bytes().all(|byte| byte == b'x'));
        assert_eq!(notice, CUT_NOTICE);
    }

    #[tokio::test]
    async fn a_refusal_is_the_answer_of_an_agent_whose_model_refuses() {
        let (sink, events) = EventSink::new();
        sink.send(Event::Refusal("I cannot ".to_owned()))
            .await
            .unwrap();
        sink.send(Event::Refusal("do that.".to_owned()))
            .await
            .unwrap();
        drop(sink);
        let answer = collect_answer(events, &StageWriter::hidden()).await;
        assert_eq!(answer.text, "I cannot do that.");
    }

    #[test]
    fn files_are_passed_by_name_and_the_newest_one_is_used() {
        let history: Vec<Message> = serde_json::from_value(json!([
            {"role": "user", "content": "x", "custom_content": {"attachments": [
                {"title": "a.csv", "url": "old"}, {"title": "b.csv", "url": "b"}]}},
            {"role": "user", "content": "y", "custom_content": {"attachments": [{"title": "a.csv", "url": "new"}]}},
        ]))
        .unwrap();
        let known = || {
            let custom = history
                .iter()
                .filter_map(|message: &Message| message.custom_content.clone());
            custom
                .filter_map(|custom| custom.attachments)
                .flatten()
                .collect()
        };
        let files = named_files(Some(&json!(["a.csv", "b.csv"])), known).unwrap();
        let urls: Vec<_> = files
            .iter()
            .filter_map(|file| file.url.as_deref())
            .collect();
        assert_eq!(urls, ["new", "b"]);
        assert!(named_files(None, known).unwrap().is_empty());
        for invalid in [json!("a.csv"), json!(["c.csv"]), json!([1])] {
            let failure = named_files(Some(&invalid), known).unwrap_err();
            assert!(matches!(failure, ToolFailure::Parameter { name, .. } if name == "files"));
        }
    }
}
