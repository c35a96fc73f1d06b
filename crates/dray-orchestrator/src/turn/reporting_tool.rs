//! A tool for calls that no model made: those of hooks and of guardrails.

use std::sync::Arc;

use async_trait::async_trait;
use dray_agent::manifest::call::Fallback;
use dray_tool::{
    AnsweredQuestion, CallRules, Tool, ToolCall, ToolDeclaration, ToolFailure, ToolOutput, Turn,
};

/// A tool whose failures are always reported to the model, regardless of its own strategies.
#[derive(Debug)]
pub(super) struct ReportingTool {
    tool: Arc<dyn Tool>,
    rules: CallRules,
}

impl ReportingTool {
    pub(super) fn new(tool: &Arc<dyn Tool>) -> Self {
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
