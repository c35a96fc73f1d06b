//! Guardrails: tools of the manifest judge prompts, answers, calls and results, and the turn waits for each verdict.
//!
//! The call of a guardrail has a limit, permissions and statistics like every other call. It has no stage, because the
//! stage would show what is judged, and references in its arguments stay as they are, because it judges texts.

use std::sync::Arc;

use async_trait::async_trait;
use dray_agent::event::ModelUsage;
use dray_agent::failure::RequestFailure;
use dray_agent::issues::IssueLog;
use dray_agent::manifest::Manifest;
use dray_agent::manifest::feature::StageLevel;
use dray_agent::manifest::guardrail::{FailureVerdict, Guardrail, GuardrailEvent};
use dray_tool::pipeline::{CompletedCall, PipelineSettings, RequestEnd, ToolRequest};
use dray_tool::{ArgumentResolver, Tool, ToolFailure};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::reporting_tool::ReportingTool;
use super::rounds::LoopError;
use super::tool_runner::ToolRunner;

mod facts;
mod points;

use facts::text_of;

/// The id of the calls of guardrails, which are in no conversation.
const CALL_ID: &str = "guardrail";
/// Most bytes of a reason.
const MAX_REASON_BYTES: usize = 2 << 10;
/// The reason of a guardrail that gives none.
const NO_REASON: &str = "a check of this agent does not allow it";
/// The reason when a guardrail gives no verdict.
const NO_VERDICT: &str = "a check of this agent gave no verdict";

/// A guardrail with its tool.
#[derive(Clone, Debug)]
pub(super) struct PlannedGuardrail {
    rule: Guardrail,
    tool: Arc<dyn Tool>,
}

/// Plans the guardrails of a manifest. They may call tools that the model does not see.
///
/// # Errors
///
/// A guardrail has no tool, so the agent must not answer: 503 if a part of the manifest's tools could not be set up,
/// otherwise 400.
pub(super) fn plan_guardrails(
    manifest: &Manifest,
    tools: &[Arc<dyn Tool>],
    issues: &IssueLog,
) -> Result<Vec<PlannedGuardrail>, RequestFailure> {
    let guardrails = manifest.guardrails.as_deref().unwrap_or_default();
    let enabled = guardrails
        .iter()
        .enumerate()
        .filter(|(_, rule)| rule.enabled);
    let planned = enabled.map(|(index, rule)| {
        let tool = tools
            .iter()
            .find(|tool| tool.declaration().name == rule.tool);
        let tool = tool.ok_or_else(|| missing_tool_failure(index, &rule.tool, issues))?;
        Ok(PlannedGuardrail {
            rule: rule.clone(),
            tool: Arc::new(ReportingTool::judging(tool)),
        })
    });
    planned.collect()
}

fn missing_tool_failure(index: usize, tool: &str, issues: &IssueLog) -> RequestFailure {
    let (status, reason) = if issues.tools.is_empty() {
        (400, "The manifest is not valid")
    } else {
        // The log names the issues for the operator: the tool set may have failed.
        tracing::warn!(issues = issues.text(), "the tool of a guardrail is missing");
        (503, "A check of this agent is not available")
    };
    let message =
        format!("{reason}:\nguardrails.{index}.tool: no tool of this agent has the name '{tool}'");
    RequestFailure::new(status, message.clone()).display(message)
}

/// Whether a guardrail judges at this point.
pub(super) fn has_guardrail(
    guardrails: &[PlannedGuardrail],
    event: GuardrailEvent,
    tool: Option<&str>,
) -> bool {
    guardrails
        .iter()
        .any(|guardrail| guardrail.rule.judges(event, tool))
}

/// Leaves arguments as they are.
#[derive(Debug)]
pub(super) struct NoReferences;

#[async_trait]
impl ArgumentResolver for NoReferences {
    async fn resolve(
        &self,
        _tool: &str,
        arguments: Map<String, Value>,
    ) -> Result<Map<String, Value>, ToolFailure> {
        Ok(arguments)
    }

    async fn replace_ids(
        &self,
        arguments: Map<String, Value>,
    ) -> Result<Map<String, Value>, ToolFailure> {
        Ok(arguments)
    }

    fn replace_ids_by_addresses(&self, _argument: &mut Value) {}
}

/// The content that guardrails judge.
#[derive(Debug)]
struct Subject<'a> {
    event: GuardrailEvent,
    /// The tool that it is about.
    tool: Option<&'a str>,
    /// The arguments of the guardrails' calls.
    facts: Map<String, Value>,
    replaces: ReplaceTarget,
}

/// What a verdict may replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplaceTarget {
    Nothing,
    /// The fact of this name, by the verdict's text.
    Text(&'static str),
    /// The arguments of a call.
    Arguments,
}

/// What the guardrails of a point decided together.
#[derive(Debug, Default)]
struct GuardrailJudgement {
    /// The text that replaces the blocked content.
    blocked: Option<String>,
    /// The replacement for the judged content.
    replacement: Option<Value>,
    /// Tokens that the guardrails used.
    usage: Vec<ModelUsage>,
}

/// What one guardrail decided.
#[derive(Debug, PartialEq, Eq)]
enum GuardrailVerdict {
    Allow,
    Block(String),
    Replace(Value),
}

impl GuardrailVerdict {
    /// The name in metrics and logs.
    const fn as_str(&self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Block(_) => "block",
            Self::Replace(_) => "replace",
        }
    }
}

/// The result of a guardrail's tool. Other members are ignored.
#[derive(Debug, Deserialize)]
struct WrittenVerdict {
    verdict: VerdictKind,
    reason: Option<String>,
    text: Option<String>,
    arguments: Option<Map<String, Value>>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum VerdictKind {
    Allow,
    Block,
    Replace,
}

/// Reads the result of a guardrail's tool.
///
/// # Errors
///
/// Why the result is not a verdict, for the log, without any content of the result.
fn read_verdict(
    ran: &CompletedCall,
    replaces: ReplaceTarget,
) -> Result<GuardrailVerdict, &'static str> {
    if ran.failed {
        return Err("its call failed");
    }
    let text = text_of(&ran.message);
    // The value is read as an object first, because the derived parser also accepts a list of the values.
    let members: Map<String, Value> =
        serde_json::from_str(&text).map_err(|_| "its result is not an object")?;
    let written: WrittenVerdict = serde_json::from_value(Value::Object(members))
        .map_err(|_| "its result is not a verdict")?;
    let replacement = match (written.verdict, replaces) {
        (VerdictKind::Allow, _) => return Ok(GuardrailVerdict::Allow),
        (VerdictKind::Block, _) => {
            let reason = written.reason.filter(|reason| !reason.trim().is_empty());
            let mut reason = reason.unwrap_or_else(|| NO_REASON.to_owned());
            reason.truncate(reason.floor_char_boundary(MAX_REASON_BYTES));
            return Ok(GuardrailVerdict::Block(reason));
        }
        (VerdictKind::Replace, ReplaceTarget::Nothing) => {
            return Err("nothing can be replaced here");
        }
        (VerdictKind::Replace, ReplaceTarget::Text(_)) => written.text.map(Value::String),
        (VerdictKind::Replace, ReplaceTarget::Arguments) => written.arguments.map(Value::Object),
    };
    let replacement = replacement.ok_or("its result has no replacement")?;
    Ok(GuardrailVerdict::Replace(replacement))
}

impl PlannedGuardrail {
    /// The text that replaces the blocked content.
    fn blocked_text(&self, reason: &str) -> String {
        if let Some(message) = &self.rule.message {
            return message.clone();
        }
        match self.rule.event {
            GuardrailEvent::BeforeModel | GuardrailEvent::AfterModel => {
                format!("This request was not answered: {reason}")
            }
            GuardrailEvent::BeforeTool => {
                format!("This call was refused, and it was not made: {reason}")
            }
            GuardrailEvent::AfterTool => format!("The result of this call is withheld: {reason}"),
        }
    }
}

impl ToolRunner<'_> {
    /// Asks the guardrails of a point one after the other. Each judges the content with the replacements of the earlier
    /// ones. After one that blocks, no other is asked.
    async fn judge(&self, mut subject: Subject<'_>) -> Result<GuardrailJudgement, LoopError> {
        let mut judgement = GuardrailJudgement::default();
        let (event, tool) = (subject.event, subject.tool);
        let due = self
            .guardrails
            .iter()
            .filter(|guardrail| guardrail.rule.judges(event, tool));
        for guardrail in due {
            let verdict = self.ask_guardrail(guardrail, &subject, &mut judgement.usage);
            match verdict.await? {
                GuardrailVerdict::Allow => {}
                GuardrailVerdict::Block(reason) => {
                    judgement.blocked = Some(guardrail.blocked_text(&reason));
                    break;
                }
                GuardrailVerdict::Replace(value) => {
                    let fact = match subject.replaces {
                        ReplaceTarget::Text(fact) => fact,
                        ReplaceTarget::Nothing | ReplaceTarget::Arguments => "arguments",
                    };
                    subject.facts.insert(fact.to_owned(), value.clone());
                    judgement.replacement = Some(value);
                }
            }
        }
        Ok(judgement)
    }

    /// The verdict of one guardrail; if it gives none, the one that the manifest names for this case.
    async fn ask_guardrail(
        &self,
        guardrail: &PlannedGuardrail,
        subject: &Subject<'_>,
        usage: &mut Vec<ModelUsage>,
    ) -> Result<GuardrailVerdict, LoopError> {
        let name = guardrail.tool.declaration().name.as_str();
        let event = subject.event.as_str();
        let verdict = match self.call_guardrail(guardrail, &subject.facts).await? {
            Ok(ran) => {
                usage.extend_from_slice(&ran.usage);
                read_verdict(&ran, subject.replaces)
            }
            Err(problem) => Err(problem),
        };
        let label = verdict.as_ref().map_or("failure", GuardrailVerdict::as_str);
        self.metrics.guardrail(event, label);
        match verdict {
            Ok(verdict) => {
                tracing::info!(tool = name, event, verdict = label, "a guardrail judged");
                Ok(verdict)
            }
            Err(problem) => {
                let on_failure = guardrail.rule.on_failure;
                tracing::warn!(
                    tool = name,
                    event,
                    problem,
                    ?on_failure,
                    "a guardrail gave no verdict"
                );
                Ok(match on_failure {
                    FailureVerdict::Block => GuardrailVerdict::Block(NO_VERDICT.to_owned()),
                    FailureVerdict::Allow => GuardrailVerdict::Allow,
                })
            }
        }
    }

    /// Calls the tool of a guardrail. The inner error says why it has no result.
    async fn call_guardrail(
        &self,
        guardrail: &PlannedGuardrail,
        facts: &Map<String, Value>,
    ) -> Result<Result<CompletedCall, &'static str>, LoopError> {
        let tool = guardrail.tool.as_ref();
        let arguments = serde_json::to_string(facts).unwrap_or_default();
        if self
            .approvals
            .requires(&tool.declaration().name, &arguments)
        {
            // No one is asked during a judgement, and a manifest must not avoid a rule of the operator.
            return Ok(Err("its tool needs the approval of a person"));
        }
        let request = ToolRequest {
            id: CALL_ID,
            arguments: &arguments,
            answered: None,
        };
        let runner = ToolRunner {
            is_judging: true,
            settings: PipelineSettings {
                level: StageLevel::None,
                ..self.settings
            },
            ..*self
        };
        let ran = match runner.run(tool, request).await {
            Ok(ran) if ran.question.is_some() => runner.cancel(tool, request, ran).await,
            ran => ran,
        };
        let ran = match ran {
            Ok(ran) => ran,
            Err(RequestEnd::Gone(_)) => return Err(LoopError::Gone),
            Err(RequestEnd::Stopped { .. } | RequestEnd::Failed(_)) => {
                self.metrics.tool(false);
                return Ok(Err("its call failed"));
            }
        };
        self.metrics.tool(!ran.failed);
        Ok(Ok(ran))
    }
}

#[cfg(test)]
mod tests;
