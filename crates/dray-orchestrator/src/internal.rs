//! Tools of the orchestrator itself (quickapps 13, 15, 16, 35.2): they need only the conversation, the clock and
//! the storage of the turn.

mod content;
mod context;
mod read_skill;
mod time;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use dray_agent::manifest::Manifest;
use dray_agent::message::Message;
use dray_agent::notify;
use dray_agent::skill::Skill;
use dray_tool::{CallRules, Tool, ToolDeclaration};
use dray_types::Clock;
use serde_json::Value;

/// The inputs that decide which tools are offered.
#[derive(Debug)]
pub(crate) struct ToolOffer<'a> {
    /// The manifest of the agent; its contexts and features decide which tools are offered.
    pub(crate) manifest: &'a Manifest,
    /// The conversation, including the tool rounds of earlier turns.
    pub(crate) messages: &'a [Message],
    /// The skills that the model can read.
    pub(crate) skills: &'a Arc<[Skill]>,
    /// Media types that the model accepts. `None` if the model does not request files itself.
    pub(crate) lazy: Option<&'a [String]>,
    /// The clock of the service.
    pub(crate) clock: &'a Clock,
}

/// The tools of a turn, in an order that does not change.
pub(crate) fn offered_tools(offer: &ToolOffer<'_>) -> Vec<Arc<dyn Tool>> {
    let contexts = &offer.manifest.contexts;
    let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
    if notify::is_active(contexts, offer.messages) {
        tools.push(Arc::new(context::ListFiles::new(contexts)));
    }
    // The tools are offered only to models that request files themselves (quickapps 16).
    if let Some(types) = offer.lazy
        && content::is_useful(contexts, offer.messages, types)
    {
        tools.push(Arc::new(content::GetContent::new(contexts, types)));
    }
    if offer.manifest.features.timestamp.is_some() {
        tools.push(Arc::new(time::CurrentTime::new(offer.clock)));
    }
    if !offer.skills.is_empty() {
        tools.push(Arc::new(read_skill::ReadSkill::new(offer.skills)));
    }
    tools
}

fn tool_declaration(name: &str, description: &str, parameters: Value) -> ToolDeclaration {
    ToolDeclaration {
        name: name.to_owned(),
        description: Some(description.to_owned()),
        parameters,
    }
}

fn call_rules(label: &str, debug_only: bool) -> CallRules {
    CallRules {
        label: label.to_owned(),
        debug_only,
        ..CallRules::default()
    }
}
