//! The tool that reads a skill (quickapps 35.2).

use async_trait::async_trait;
use dray_agent::skill::{self, Skill};
use dray_tool::{Call, Declaration, Failure, Output, Rules, Tool, Turn};
use serde_json::{Value, json};

/// What is said of a call that names no skill.
const MISSING: &str = "Missing required parameter: skill_name";

/// The texts of all skills.
#[derive(Debug)]
pub(super) struct Read {
    declaration: Declaration,
    rules: Rules,
    skills: Vec<Skill>,
}

impl Read {
    pub(super) fn new(skills: &[Skill]) -> Self {
        Self {
            declaration: super::declaration(
                skill::READ,
                "Reads the whole text of one of the available skills. Read a skill before doing what it is about.",
                json!({
                    "type": "object",
                    "properties": {skill::NAME: {
                        "type": "string",
                        "description": "Name of the skill, as in <available_skills>.",
                    }},
                    "required": [skill::NAME],
                }),
            ),
            rules: super::rules("Read skill", false),
            skills: skills.to_vec(),
        }
    }
}

#[async_trait]
impl Tool for Read {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn rules(&self) -> &Rules {
        &self.rules
    }

    async fn call(&self, call: Call, _: &Turn) -> Result<Output, Failure> {
        let name = call.arguments.get(skill::NAME).and_then(Value::as_str);
        let name = name.map(str::trim).filter(|name| !name.is_empty());
        let Some(name) = name else {
            return Ok(Output::text(MISSING, "text/plain"));
        };
        Ok(match self.skills.iter().find(|skill| skill.name == name) {
            Some(skill) => Output::text(skill.markdown.clone(), "text/markdown"),
            None => Output::text(format!("Error: Skill not found: {name}"), "text/plain"),
        })
    }
}
