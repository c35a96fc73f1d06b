//! A deployment as a tool (quickapps 24).

use std::sync::Arc;

use async_trait::async_trait;
use dray_agent::manifest::orchestrator::Deployment as Target;
use dray_agent::message::{Message, Role};
use dray_dial::DialPort;
use dray_tool::{CallRules, Tool, ToolCall, ToolDeclaration, ToolFailure, ToolOutput, Turn};
use serde_json::Value;

use crate::failure::deployment_failure;
use crate::{DeploymentFacts, attachment, history, request, response};

/// A deployment that the model can call.
#[derive(Debug)]
pub(crate) struct DialDeploymentTool {
    pub(crate) dial: Arc<dyn DialPort>,
    pub(crate) declaration: ToolDeclaration,
    pub(crate) rules: CallRules,
    pub(crate) target: Target,
    pub(crate) system_prompt: Option<String>,
    pub(crate) propagate_history: bool,
    pub(crate) propagate_headers: Option<Vec<String>>,
    pub(crate) facts: DeploymentFacts,
}

#[async_trait]
impl Tool for DialDeploymentTool {
    fn declaration(&self) -> &ToolDeclaration {
        &self.declaration
    }

    fn rules(&self) -> &CallRules {
        &self.rules
    }

    async fn call(&self, call: ToolCall, turn: &Turn) -> Result<ToolOutput, ToolFailure> {
        let (body, has_files) = self.body(&call, turn).await?;
        let id = &self.target.deployment_id;
        let headers = self.propagate_headers.as_deref();
        let response = self.dial.chat(&turn.caller, id, headers, &body).await;
        let outcome = match response {
            Ok(chunks) => response::read_answer(chunks, id, &call.stage).await,
            Err(refused) => Err(deployment_failure(refused)),
        };
        if let Err(ToolFailure::Failed(failed)) = &outcome {
            let has_settings = body.get("custom_fields").is_some();
            if contradicts_cache(failed.status, has_files || has_settings) {
                self.dial.forget(&turn.caller, id);
            }
        }
        outcome
    }
}

impl DialDeploymentTool {
    /// The complete body, and whether it contains files.
    async fn body(&self, call: &ToolCall, turn: &Turn) -> Result<(Value, bool), ToolFailure> {
        let configuration = self.facts.configuration.as_ref();
        let mut body =
            request::request_body(&self.target.parameters, configuration, &call.arguments)?;
        let urls = attachment::attachment_urls(&call.arguments)?;
        let direct = self.facts.url_attachments;
        let files = attachment::promote_all(&*turn.storage, &urls, direct).await?;
        let has_files = !files.is_empty();
        let query = request::query_text(&call.arguments);
        // An empty query is allowed, because the files may contain the task (quickapps 24.1).
        if query.is_empty() {
            tracing::warn!(
                tool = self.declaration.name,
                "a deployment is called without a query"
            );
        }
        let mut messages = Vec::new();
        if let Some(prompt) = &self.system_prompt {
            messages.push(Message::new(Role::System, prompt.as_str()));
        }
        if self.propagate_history {
            messages.extend(history::history_pairs(turn, &self.declaration.name, direct).await);
        }
        messages.push(request::user_message(&query, files));
        let messages: Vec<_> = messages
            .iter()
            .map(|message| serde_json::json!(message))
            .collect();
        // The messages follow the arguments, which cannot contain `messages`: `request_body` refuses reserved names.
        body.insert("messages".to_owned(), messages.into());
        Ok((Value::Object(body), has_files))
    }
}

/// Whether a response contradicts the cached metadata of the deployment (R14).
const fn contradicts_cache(status: Option<u16>, uses_metadata: bool) -> bool {
    match status {
        Some(404 | 405) => true,
        // Files or settings were sent as the metadata allow it; a refusal may mean that they have changed.
        Some(400 | 415 | 422) => uses_metadata,
        _ => false,
    }
}
