//! Hooks: the runtime itself calls tools before its first call of the model and after the last answer (quickapps 43.4).
//!
//! The call of a hook has a stage, a limit, permissions, files and statistics like every other call, but it never ends
//! the request and is not a round of the loop.

use std::sync::Arc;

use async_trait::async_trait;
use dray_agent::event::FinishReason;
use dray_agent::issues::{HookIssue, IssueLog};
use dray_agent::manifest::Manifest;
use dray_agent::manifest::call::Fallback;
use dray_agent::manifest::hook::{Hook, HookEvent, HookMode, ToolHook};
use dray_agent::message::{Content, Message, Role};
use dray_agent::pair::{self, CallPair};
use dray_tool::pipeline::{CompletedCall, RequestEnd, ToolRequest};
use dray_tool::{
    AnsweredQuestion, CallRules, Tool, ToolCall, ToolDeclaration, ToolFailure, ToolOutput, Turn,
    fallback,
};
use futures_util::future::join_all;
use serde_json::Value;

use super::approval_policy::NO_QUESTION;
use super::paused::ResumedCalls;
use super::rounds::{LoopEnd, LoopError, ToolLoop, stop_at_budget};
use super::settle::Settlement;
use super::speech::TextRelay;
use super::tally::TurnTally;
use super::tool_runner::ToolRunner;

/// The id of hook calls while they run; in the conversation each gets its own.
const RUNNING_CALL_ID: &str = "hook";

/// A call that is made at a point of the request.
#[derive(Clone, Debug)]
pub(super) struct PlannedCall {
    event: HookEvent,
    mode: HookMode,
    arguments: Value,
    tool: Arc<dyn Tool>,
}

/// Plans the hooks of a manifest and removes the tools that only they may call.
pub(super) fn split_hook_tools(
    manifest: &Manifest,
    tools: &mut Vec<Arc<dyn Tool>>,
    issues: &mut IssueLog,
) -> Vec<PlannedCall> {
    let hooks = manifest.hooks.as_deref().unwrap_or_default();
    let (planned, missing) = plan_hooks(hooks, tools);
    issues.hooks = missing;
    // Hidden tools are removed after the planning, because hooks may call tools that the model does not see.
    tools.retain(|tool| !tool.rules().hidden);
    planned
}

/// The calls of the hooks of a manifest, in its order, and the hooks whose tools do not exist.
fn plan_hooks(hooks: &[Hook], tools: &[Arc<dyn Tool>]) -> (Vec<PlannedCall>, Vec<HookIssue>) {
    let (mut planned, mut missing) = (Vec::new(), Vec::new());
    for Hook::Tool(hook) in hooks {
        if !hook.enabled {
            continue;
        }
        match tools
            .iter()
            .find(|tool| tool.declaration().name == hook.tool)
        {
            Some(tool) => planned.push(PlannedCall::new(hook, tool)),
            None => missing.push(HookIssue {
                event: hook.event.as_str().to_owned(),
                tool: hook.tool.clone(),
                message: "No tool has this name; the hook is not called.".to_owned(),
            }),
        }
    }
    (planned, missing)
}

impl PlannedCall {
    fn new(hook: &ToolHook, tool: &Arc<dyn Tool>) -> Self {
        Self {
            event: hook.event,
            mode: hook.mode,
            arguments: Value::Object(hook.arguments.clone().unwrap_or_default()),
            tool: Arc::new(ReportingTool::new(tool)),
        }
    }

    /// Adds a result at the end of the conversation, unless the conversation contains it already.
    fn append(&self, result: Message, messages: &mut Vec<Message>) {
        let name = &self.tool.declaration().name;
        let text = match &result.content {
            Some(Content::Text(text)) => text.clone(),
            _ => String::new(),
        };
        let known = pair::newest_result(messages, name, &self.arguments);
        if self.mode == HookMode::AppendIfChanged && known == Some(text.as_str()) {
            return;
        }
        let pair = CallPair {
            tool: name.clone(),
            arguments: self.arguments.clone(),
            content: text,
        };
        // `RUNNING_CALL_ID` is shared by all hooks; in the history an id names one call.
        let [call, mut decision] = pair.messages_as(pair.id_in(messages));
        decision.custom_content = result.custom_content;
        messages.extend([call, decision]);
    }
}

/// A tool whose failures are always reported to the model, regardless of its own strategies.
#[derive(Debug)]
pub(super) struct ReportingTool {
    tool: Arc<dyn Tool>,
    rules: CallRules,
}

impl ReportingTool {
    fn new(tool: &Arc<dyn Tool>) -> Self {
        let mut rules = tool.rules().clone();
        // Strategies that stop the request are meant for calls of the model.
        rules.fallback.strategies = Fallback::default().strategies;
        Self {
            tool: Arc::clone(tool),
            rules,
        }
    }

    /// The tool of a guardrail, which gets texts that only look like references unchanged.
    pub(super) fn judging(tool: &Arc<dyn Tool>) -> Self {
        let mut judging = Self::new(tool);
        judging.rules.by_reference.clear();
        judging
    }
}

#[async_trait]
impl Tool for ReportingTool {
    fn declaration(&self) -> &ToolDeclaration {
        self.tool.declaration()
    }

    fn rules(&self) -> &CallRules {
        &self.rules
    }

    async fn call(&self, call: ToolCall, turn: &Turn) -> Result<ToolOutput, ToolFailure> {
        self.tool.call(call, turn).await
    }

    async fn resume(
        &self,
        call: ToolCall,
        answered: AnsweredQuestion,
        turn: &Turn,
    ) -> Result<ToolOutput, ToolFailure> {
        self.tool.resume(call, answered, turn).await
    }
}

/// Describes which part of a turn a request is.
#[derive(Debug, Default)]
pub(super) struct TurnPart {
    /// Whether the turn began in an earlier request, and this one brings results of the client's tools.
    pub(super) continues: bool,
    /// The beginning of the answer, which the client wrote; the model gets it last.
    pub(super) prefill: Option<Message>,
    /// Calls of an earlier request that waited for the client.
    pub(super) resumed: ResumedCalls,
    /// Whether another agent began the turn, and this agent continues it with its own hooks.
    pub(super) takes_over: bool,
}

/// Runs the loop of a request, with the hooks before and after it. No hooks run after a failure, or in the middle of a
/// turn that waits for its client.
#[derive(Debug)]
pub(super) struct HookedRequest<'a> {
    pub(super) hooks: &'a [PlannedCall],
    pub(super) part: TurnPart,
    pub(super) approvals: Settlement<'a>,
}

impl HookedRequest<'_> {
    /// Decisions come first: hooks and the model see their results.
    pub(super) async fn run(
        self,
        rounds: &mut ToolLoop<'_>,
        messages: &mut Vec<Message>,
        speech: &mut TextRelay,
        tally: &mut TurnTally,
    ) -> Result<LoopEnd, LoopError> {
        let (start, end) = (HookEvent::OnRequestStart, HookEvent::OnCompletion);
        let TurnPart {
            continues,
            prefill,
            mut resumed,
            takes_over,
        } = self.part;
        if !continues {
            // The user wrote something else and is not asked again.
            resumed.end_later();
        }
        // The future is on the heap: few turns were paused, and all would be larger with it.
        let settling = self.approvals.settle(resumed, rounds, messages, tally);
        let waiting = Box::pin(settling).await?;
        if !waiting.is_empty() {
            return Ok(LoopEnd {
                reason: FinishReason::ToolCalls,
                pending: Vec::new(),
                questions: waiting,
                has_text: false,
                repeats_round: true,
                handoff: None,
                is_budget_reached: false,
            });
        }
        if !continues || takes_over {
            call_hooks(rounds, self.hooks, start, messages, tally).await?;
        }
        messages.extend(prefill);
        let loop_end = rounds.run(messages, speech, tally).await?;
        // The agent that ends the turn has hooks of its own.
        if !loop_end.waits() && loop_end.handoff.is_none() {
            let has_hooks = self.hooks.iter().any(|hook| hook.event == end);
            if let Some(checkpoints) = rounds.checkpoints.as_ref().filter(|_| has_hooks) {
                // Calls of hooks are not stored, so they must not be repeated.
                checkpoints.close().await.map_err(LoopError::Failed)?;
            }
            call_hooks(rounds, self.hooks, end, messages, tally).await?;
        }
        Ok(loop_end)
    }
}

/// Makes all calls of one point concurrently; their results are in the order of the manifest.
async fn call_hooks(
    rounds: &ToolLoop<'_>,
    hooks: &[PlannedCall],
    event: HookEvent,
    messages: &mut Vec<Message>,
    tally: &mut TurnTally,
) -> Result<(), LoopError> {
    let due: Vec<_> = hooks.iter().filter(|hook| hook.event == event).collect();
    if !due.is_empty() {
        rounds.announce_tools().await?;
    }
    let ran = join_all(due.iter().map(|hook| call_hook(&rounds.runner, hook))).await;
    for (hook, ran) in due.into_iter().zip(ran) {
        let result = rounds.take(ran?, tally).await?;
        hook.append(result, messages);
    }
    Ok(())
}

async fn call_hook(
    runner: &ToolRunner<'_>,
    hook: &PlannedCall,
) -> Result<CompletedCall, LoopError> {
    let arguments = hook.arguments.to_string();
    let name = hook.tool.declaration().name.as_str();
    if runner.approvals.requires(name, &arguments) {
        // No one can approve calls of a manifest's hooks, and these calls must not avoid a rule of the operator.
        tracing::warn!(
            tool = name,
            "a hook calls a tool that needs approval; it was not called"
        );
        return Ok(failed_call(NO_QUESTION));
    }
    let request = ToolRequest {
        id: RUNNING_CALL_ID,
        arguments: &arguments,
        answered: None,
    };
    let tool = hook.tool.as_ref();
    let ran = match runner.run(tool, request).await {
        // No one is asked during a hook.
        Ok(ran) if ran.question.is_some() => runner.cancel(tool, request, ran).await,
        ran => ran,
    };
    let ran = match ran {
        Ok(ran) => ran,
        Err(RequestEnd::Gone(_)) => return Err(LoopError::Gone),
        // A hook never ends the request, so both kinds of end become results.
        Err(RequestEnd::Stopped { text, .. }) => failed_call(&text),
        Err(RequestEnd::Failed(failure)) => failed_call(&failure.message),
    };
    let name = tool.declaration().name.as_str();
    runner.metrics.tool(!ran.failed);
    tracing::info!(
        tool = name,
        event = hook.event.as_str(),
        failed = ran.failed,
        "a hook was called"
    );
    let ran = runner.judge_result((name, arguments.as_str()), ran).await?;
    Ok(runner.offloaded(name, ran).await)
}

/// The result of a hook call that failed in a way that would end the request if the model had made the call.
fn failed_call(text: &str) -> CompletedCall {
    let decision = match fallback::decide_fallback(&Fallback::default(), text, false) {
        fallback::FallbackDecision::ReportToModel(decision) => decision,
        fallback::FallbackDecision::Stop | fallback::FallbackDecision::Raise => text.to_owned(),
    };
    let mut message = Message::new(Role::Tool, decision);
    message.tool_call_id = Some(RUNNING_CALL_ID.to_owned());
    CompletedCall {
        message,
        propagate: Vec::new(),
        usage: Vec::new(),
        content_type: "text/markdown".to_owned(),
        failed: true,
        failure: None,
        milliseconds: 0,
        question: None,
    }
}

/// Runs a request until it ends, or until the time of the turn is over. The time of setting up counts as well.
pub(super) async fn run_with_time_limit(
    request: HookedRequest<'_>,
    rounds: &mut ToolLoop<'_>,
    messages: &mut Vec<Message>,
    speech: &mut TextRelay,
    tally: &mut TurnTally,
) -> Result<LoopEnd, LoopError> {
    let (budget, sink) = (rounds.model.budget, rounds.sink);
    let running = Box::pin(request.run(rounds, messages, speech, tally));
    let Some(end) = budget.ends_at() else {
        return running.await;
    };
    match tokio::time::timeout_at(end, running).await {
        Ok(outcome) => outcome,
        Err(_elapsed) => Ok(stop_at_budget(&budget.timeout_text(), sink, speech, tally).await?),
    }
}

#[cfg(test)]
mod tests;
