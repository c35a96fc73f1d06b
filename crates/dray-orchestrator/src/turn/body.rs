//! The body of a call of the model (quickapps 17).

use std::sync::Arc;

use dray_agent::manifest::orchestrator::Deployment;
use dray_agent::message::Message;
use dray_tool::Tool;
use serde_json::{Map, Value, json};

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
        response_format: Option<Value>,
        tool_choice: Option<Value>,
        counts: bool,
    ) -> Self {
        let mut fixed = match serde_json::to_value(&deployment.parameters) {
            Ok(Value::Object(parameters)) => parameters,
            _ => Map::new(),
        };
        fixed.insert("stream".to_owned(), json!(true));
        fixed.insert("model".to_owned(), json!(deployment.deployment_id));
        let declared = tools.iter().map(|tool| tool.declaration().body());
        let all: Vec<_> = declared.chain(statics.iter().cloned()).collect();
        // Services refuse a choice without tools. Only `auto` and `none` get here without any.
        let tool_choice = tool_choice.filter(|_| !all.is_empty());
        if !all.is_empty() {
            fixed.insert("tools".to_owned(), Value::Array(all));
        }
        if let Some(format) = response_format {
            fixed.insert("response_format".to_owned(), format);
        }
        if counts {
            fixed.insert(
                "stream_options".to_owned(),
                json!({ "include_usage": true }),
            );
        }
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
        // A choice that forces a call in each round would never let the loop end.
        if let Some(choice) = self.tool_choice.as_ref().filter(|_| round == 1) {
            body.insert("tool_choice".to_owned(), choice.clone());
        }
        Ok(Value::Object(body))
    }
}
