//! The body of a call of the model (quickapps 17).

use std::sync::Arc;

use dray_agent::failure::RequestFailure;
use dray_agent::manifest::orchestrator::Deployment;
use dray_agent::message::Message;
use dray_tool::Tool;
use serde_json::{Map, Value, json};

use super::client_tools::{ClientTools, merge_parameters};

/// What a client asks of the model.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientWishes {
    /// Which tool the model shall call first.
    pub(super) tool_choice: Option<Value>,
    /// Form of the answer.
    pub(super) response_format: Option<Value>,
    /// Sampling and the like, as far as the manifest lets clients set it.
    pub(super) parameters: Map<String, Value>,
    /// Tools that the client calls itself.
    pub(super) tools: ClientTools,
}

impl ClientWishes {
    /// Checks the client's tools and its choice against the tools of the agent.
    ///
    /// # Errors
    ///
    /// 400 for a name that is taken, and for the choice of a tool that does not exist.
    pub(super) fn check_tools(
        &self,
        own: &[Arc<dyn Tool>],
        statics: &[Value],
    ) -> Result<(), RequestFailure> {
        self.tools.check_names(own, statics)?;
        self.tools.check_choice(self.tool_choice.as_ref(), own)
    }
}

/// The parts of a request body that all calls of one turn share.
#[derive(Debug)]
pub(super) struct BodyTemplate {
    /// Parameters, model, tools and form of the answer.
    fixed: Map<String, Value>,
    /// The client's `tool_choice`, for the first call only.
    tool_choice: Option<Value>,
}

impl BodyTemplate {
    /// A template. `statics` are the tools that the model's own deployment runs, unchanged.
    pub(super) fn new(
        deployment: &Deployment,
        tools: &[Arc<dyn Tool>],
        statics: &[Value],
        wishes: ClientWishes,
    ) -> Self {
        let ClientWishes {
            tool_choice,
            response_format,
            parameters,
            tools: client_tools,
        } = wishes;
        let mut fixed = match serde_json::to_value(&deployment.parameters) {
            Ok(Value::Object(parameters)) => parameters,
            _ => Map::new(),
        };
        merge_parameters(&mut fixed, parameters);
        fixed.insert("stream".to_owned(), json!(true));
        fixed.insert("model".to_owned(), json!(deployment.deployment_id));
        let declared = tools.iter().map(|tool| tool.declaration().body());
        let all: Vec<_> = declared
            .chain(statics.iter().cloned())
            // Last, so that the agent's own part of the prompt is the same for all clients.
            .chain(client_tools.declarations().iter().cloned())
            .collect();
        // Services refuse a choice without tools. Only `auto` and `none` get here without any.
        let tool_choice = tool_choice.filter(|_| !all.is_empty());
        if all.is_empty() {
            // Services refuse it without tools, for which it has no meaning.
            fixed.shift_remove("parallel_tool_calls");
        } else {
            fixed.insert("tools".to_owned(), Value::Array(all));
        }
        if let Some(format) = response_format {
            fixed.insert("response_format".to_owned(), format);
        }
        // Budgets and metrics need the token counts even if the client does not.
        fixed.insert(
            "stream_options".to_owned(),
            json!({ "include_usage": true }),
        );
        Self { fixed, tool_choice }
    }

    /// The body of one call. `round` counts from 1.
    pub(super) fn body(
        &self,
        messages: &[Message],
        round: u32,
    ) -> Result<Value, serde_json::Error> {
        let mut body = self.fixed.clone();
        body.insert("messages".to_owned(), serde_json::to_value(messages)?);
        // A choice that requires a call would otherwise do so in every round, and the loop would never end.
        if let Some(choice) = self.tool_choice.as_ref().filter(|_| round == 1) {
            body.insert("tool_choice".to_owned(), choice.clone());
        }
        Ok(Value::Object(body))
    }
}
