//! Hooks: the runtime itself calls tools before its first call of the model and after the last answer (quickapps 43.4).
//!
//! The call of a hook has a stage, a limit, permissions, files and statistics like every other call, but it never ends
//! the request and is not a round of the loop.

use std::sync::Arc;

use dray_agent::event::Event;
use dray_agent::issues::{HookIssue, IssueLog};
use dray_agent::manifest::Manifest;
use dray_agent::manifest::call::Fallback;
use dray_agent::manifest::hook::{Hook, HookEvent, HookMode, ToolHook};
use dray_agent::message::{Content, Message, Role};
use dray_agent::pair::{self, CallPair};
use dray_tool::pipeline::{CompletedCall, RequestEnd, ToolRequest};
use dray_tool::{Tool, fallback};
use futures_util::future::join_all;
use serde_json::Value;

use super::approval_policy::NO_QUESTION;
use super::reporting_tool::ReportingTool;
use super::rounds::{LoopError, ToolLoop};
use super::tally::TurnTally;
use super::tool_runner::ToolRunner;

/// The id of hook calls while they run; in the conversation each gets its own.
const RUNNING_CALL_ID: &str = "hook";

/// A call that is made at a point of the turn.
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

    /// Whether the call is made at this point.
    pub(super) fn is_at(&self, event: HookEvent) -> bool {
        self.event == event
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

/// Makes all calls of one point concurrently; their results are in the order of the manifest.
pub(super) async fn call_hooks(
    rounds: &ToolLoop<'_>,
    hooks: &[PlannedCall],
    event: HookEvent,
    messages: &mut Vec<Message>,
    tally: &mut TurnTally,
) -> Result<(), LoopError> {
    let due: Vec<_> = hooks.iter().filter(|hook| hook.is_at(event)).collect();
    if !due.is_empty() {
        rounds.announce_tools().await?;
        let policy = rounds.runner.approvals;
        let may_repeat = |hook: &&PlannedCall| {
            policy.is_repeatable(&hook.tool.declaration().name, &hook.arguments.to_string())
        };
        if !due.iter().all(may_repeat) {
            rounds.sink.send(Event::CallsStarted).await?;
        }
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

#[cfg(test)]
mod tests;
