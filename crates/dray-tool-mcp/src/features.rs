//! Resources and prompts of a server as tools: lists, the content of a resource, the messages of a prompt. They are
//! offered if the manifest requests them and the server has them.

use std::sync::Arc;

use async_trait::async_trait;
use dray_agent::caller::Caller;
use dray_tool::{
    CallRules, HandledFailure, Tool, ToolCall, ToolDeclaration, ToolFailure, ToolOutput, Turn,
    naming,
};
use dray_types::Clock;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, ResourceContents};
use serde_json::{Value, json};

use crate::error::SessionError;
use crate::result::{FileNames, result_output};
use crate::server::ServerTarget;

/// One of the tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerFeature {
    ListResources,
    ReadResource,
    ListPrompts,
    GetPrompt,
}

/// The tools for resources of a server.
pub(crate) const RESOURCE_FEATURES: [ServerFeature; 2] =
    [ServerFeature::ListResources, ServerFeature::ReadResource];
/// The tools for prompts of a server.
pub(crate) const PROMPT_FEATURES: [ServerFeature; 2] =
    [ServerFeature::ListPrompts, ServerFeature::GetPrompt];

impl ServerFeature {
    const fn name(self) -> &'static str {
        match self {
            Self::ListResources => "list_resources",
            Self::ReadResource => "read_resource",
            Self::ListPrompts => "list_prompts",
            Self::GetPrompt => "get_prompt",
        }
    }

    const fn description(self) -> &'static str {
        match self {
            Self::ListResources => {
                "Lists resources of this server with their URIs, and templates of URIs. A long list comes in pages."
            }
            Self::ReadResource => {
                "Reads a resource of this server. Text is shown, other content becomes a file."
            }
            Self::ListPrompts => {
                "Lists prompts of this server with their arguments. A long list comes in pages."
            }
            Self::GetPrompt => {
                "Returns the messages of a prompt of this server, filled in with the arguments."
            }
        }
    }

    fn parameters(self) -> Value {
        let text = |description: &str| json!({"type": "string", "description": description});
        let (properties, required) = match self {
            Self::ListResources | Self::ListPrompts => {
                let cursor = text("`next_cursor` of the previous page");
                (json!({"cursor": cursor}), json!([]))
            }
            Self::ReadResource => (json!({"uri": text("URI of the resource")}), json!(["uri"])),
            Self::GetPrompt => {
                let values = json!({"type": "object", "additionalProperties": {"type": "string"}});
                let properties = json!({"name": text("Name of the prompt"), "arguments": values});
                (properties, json!(["name"]))
            }
        };
        json!({"type": "object", "properties": properties, "required": required})
    }
}

/// A feature of a server.
#[derive(Debug)]
pub(crate) struct FeatureTool {
    declaration: ToolDeclaration,
    rules: CallRules,
    server: Arc<ServerTarget>,
    feature: ServerFeature,
    clock: Clock,
}

impl FeatureTool {
    pub(crate) fn new(
        label: &str,
        feature: ServerFeature,
        rules: CallRules,
        server: Arc<ServerTarget>,
        clock: Clock,
    ) -> Self {
        Self {
            declaration: ToolDeclaration {
                name: naming::qualified_name(label, feature.name()),
                description: Some(feature.description().to_owned()),
                parameters: feature.parameters(),
            },
            rules,
            server,
            feature,
            clock,
        }
    }

    async fn run(
        &self,
        arguments: &JsonObject,
        caller: &Caller,
    ) -> Result<CallToolResult, SessionError> {
        let text = |name: &str| {
            arguments
                .get(name)
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let blocks = match self.feature {
            ServerFeature::ListResources => {
                let page = self.server.resources(text("cursor"), caller).await?;
                vec![ContentBlock::text(page.to_string())]
            }
            ServerFeature::ListPrompts => {
                let page = self.server.prompts(text("cursor"), caller).await?;
                vec![ContentBlock::text(page.to_string())]
            }
            ServerFeature::ReadResource => {
                let uri = text("uri").unwrap_or_default();
                let contents = self.server.read(&uri, Some(caller)).await?;
                contents.into_iter().map(shown_contents).collect()
            }
            ServerFeature::GetPrompt => {
                let name = text("name").unwrap_or_default();
                let values = arguments.get("arguments").and_then(Value::as_object);
                let values = values.cloned().unwrap_or_default();
                self.server.prompt(&name, values, caller).await?
            }
        };
        Ok(CallToolResult::success(blocks))
    }
}

/// Text of a resource is for the model; everything else is a file.
fn shown_contents(contents: ResourceContents) -> ContentBlock {
    match contents {
        ResourceContents::TextResourceContents { text, .. } => ContentBlock::text(text),
        other => ContentBlock::resource(other),
    }
}

#[async_trait]
impl Tool for FeatureTool {
    fn declaration(&self) -> &ToolDeclaration {
        &self.declaration
    }

    fn rules(&self) -> &CallRules {
        &self.rules
    }

    async fn call(&self, call: ToolCall, turn: &Turn) -> Result<ToolOutput, ToolFailure> {
        let running = Box::pin(self.run(&call.arguments, &turn.caller));
        let result = running.await.map_err(|error| {
            if error.is_timeout() {
                return ToolFailure::TimedOut;
            }
            let name = self.feature.name();
            HandledFailure::new(format!("Error calling MCP tool '{name}': {error}"))
                .because(error)
                .into()
        })?;
        let names = FileNames {
            tool: self.feature.name().to_owned(),
            now_ms: self.clock.now_ms(),
            count: 0,
        };
        let rules = &self.rules.attachments;
        result_output(result, names, rules, turn.storage.as_ref(), &self.server).await
    }
}
