//! The tool that reads a skill (quickapps 35.2).

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use dray_agent::skill::{self, Skill};
use dray_tool::{CallRules, Tool, ToolCall, ToolDeclaration, ToolFailure, ToolOutput, Turn};
use serde_json::{Value, json};

/// Result of a call that names no skill (quickapps 35.2).
const MISSING_NAME_MESSAGE: &str = "Missing required parameter: skill_name";

/// The declaration, which is the same in all turns.
static READ_SKILL_DECLARATION: LazyLock<ToolDeclaration> = LazyLock::new(|| {
    super::tool_declaration(
        skill::READ_SKILL_TOOL,
        "Reads the whole text of one of the available skills. Read a skill before doing what it is about.",
        json!({
            "type": "object",
            "properties": {skill::NAME_ARGUMENT: {
                "type": "string",
                "description": "Name of the skill, as in <available_skills>.",
            }},
            "required": [skill::NAME_ARGUMENT],
        }),
    )
});
/// The rules of its calls.
static READ_SKILL_RULES: LazyLock<CallRules> =
    LazyLock::new(|| super::call_rules("Read skill", false));

/// The texts of all skills.
#[derive(Debug)]
pub(super) struct ReadSkill {
    skills: Arc<[Skill]>,
}

impl ReadSkill {
    pub(super) fn new(skills: &Arc<[Skill]>) -> Self {
        Self {
            skills: Arc::clone(skills),
        }
    }
}

#[async_trait]
impl Tool for ReadSkill {
    fn declaration(&self) -> &ToolDeclaration {
        &READ_SKILL_DECLARATION
    }

    fn rules(&self) -> &CallRules {
        &READ_SKILL_RULES
    }

    async fn call(&self, call: ToolCall, _: &Turn) -> Result<ToolOutput, ToolFailure> {
        let name = call
            .arguments
            .get(skill::NAME_ARGUMENT)
            .and_then(Value::as_str);
        let name = name.map(str::trim).filter(|name| !name.is_empty());
        let Some(name) = name else {
            // This is a result and not a failure: the model can correct the call, and no fallback strategy applies.
            return Ok(ToolOutput::text(MISSING_NAME_MESSAGE, "text/plain"));
        };
        Ok(match self.skills.iter().find(|skill| skill.name == name) {
            Some(skill) => ToolOutput::text(skill.markdown.clone(), "text/markdown"),
            None => ToolOutput::text(format!("Error: Skill not found: {name}"), "text/plain"),
        })
    }
}
