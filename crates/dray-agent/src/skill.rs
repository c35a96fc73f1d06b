//! Skills: documents that the model reads when it needs them (quickapps 35).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::layer::{EntryKind, LayerSet};
use crate::message::Message;
use crate::pair::{self, CallPair, PairFrequency, PairPosition};
use crate::text::escape_quoted as escape;

mod front;
mod learn;
mod parse;

#[cfg(test)]
mod tests;

pub use learn::{FetchedSkill, LoadedSkills, merge_skills};
pub use parse::{ParsedSkill, parse_lenient, parse_strict};

/// Name of the tool that reads a skill.
pub const READ_SKILL_TOOL: &str = "internal_skills_read_skill";

/// Argument of [`READ_SKILL_TOOL`]: the name of the skill.
pub const NAME_ARGUMENT: &str = "skill_name";

/// Name of the skill that explains how to pass files in arguments of tools.
pub const FILE_PARAMETERS: &str = "tool-call-file-parameter-formatting";

/// A skill: its entry in the list, and its document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skill {
    /// Name that the model passes to [`READ_SKILL_TOOL`].
    pub name: String,
    /// Describes to the model when to read the skill.
    pub description: String,
    /// License, as the author names it.
    pub license: Option<String>,
    /// Requirements of the skill, as free text.
    pub compatibility: Option<String>,
    /// Tools that the skill uses.
    pub allowed_tools: Option<String>,
    /// All other fields of the front matter, by name.
    pub metadata: BTreeMap<String, String>,
    /// The complete document, including its front matter.
    pub markdown: String,
}

impl Skill {
    /// Makes a skill with only a name and a description.
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            ..Self::default()
        }
    }
}

/// The list of skills for the system prompt; `None` without skills.
pub fn skills_listing(skills: &[Skill]) -> Option<String> {
    if skills.is_empty() {
        return None;
    }
    let mut lines = vec!["<available_skills>".to_owned()];
    for skill in skills {
        lines.push("  <skill>".to_owned());
        let fields = [
            ("name", Some(&skill.name)),
            ("description", Some(&skill.description)),
            ("license", skill.license.as_ref()),
            ("compatibility", skill.compatibility.as_ref()),
            ("allowed_tools", skill.allowed_tools.as_ref()),
        ];
        for (name, value) in fields {
            // Absent fields have no element (quickapps 35.3).
            lines.extend(value.map(|value| format!("    <{name}>{}</{name}>", escape(value))));
        }
        if !skill.metadata.is_empty() {
            lines.push("    <metadata>".to_owned());
            // A `BTreeMap`, so the keys are sorted (quickapps 35.3).
            for (key, value) in &skill.metadata {
                let (key, value) = (escape(key), escape(value));
                lines.push(format!("      <entry key=\"{key}\">{value}</entry>"));
            }
            lines.push("    </metadata>".to_owned());
        }
        lines.push("  </skill>".to_owned());
    }
    lines.push("</available_skills>".to_owned());
    Some(lines.join("\n"))
}

/// Returns the skills of the layers in the order of their names, and the reasons for the skills that are left out.
pub fn of_layers(layers: &LayerSet) -> (Vec<Skill>, Vec<String>) {
    let mut skills = Vec::new();
    let mut left_out = Vec::new();
    for name in layers.names(EntryKind::Skill) {
        match parse_strict(
            name,
            layers.text(EntryKind::Skill, name).unwrap_or_default(),
        ) {
            Ok(skill) => skills.push(skill),
            Err(reason) => left_out.push(format!("skill '{name}' is left out: {reason}")),
        }
    }
    (skills, left_out)
}

/// Inserts the call and result of reading [`FILE_PARAMETERS`] after the first user message, unless the model has
/// already read the skill. Does nothing without this skill (quickapps 35.4).
pub fn inject_skill(messages: &mut Vec<Message>, skills: &[Skill]) {
    let Some(skill) = skills.iter().find(|skill| skill.name == FILE_PARAMETERS) else {
        return;
    };
    // An inserted call or a call of the model has read the skill.
    if was_read(messages) {
        return;
    }
    let pair = CallPair {
        tool: READ_SKILL_TOOL.to_owned(),
        arguments: json!({ NAME_ARGUMENT: FILE_PARAMETERS }),
        content: skill.markdown.clone(),
    };
    pair::insert_pair(
        messages,
        &pair,
        PairPosition::AfterFirstUser,
        PairFrequency::Once,
    );
}

/// Whether [`FILE_PARAMETERS`] was read before, even with the former name of the tool.
fn was_read(messages: &[Message]) -> bool {
    let mut calls = messages.iter().flat_map(Message::calls);
    calls.any(|call| {
        let arguments: Value =
            serde_json::from_str(&call.function.arguments).unwrap_or(Value::Null);
        // Early releases used the second name (quickapps 19.1).
        (call.function.name == READ_SKILL_TOOL || call.function.name == "read_skill")
            && arguments
                .get(NAME_ARGUMENT)
                .is_some_and(|name| name == FILE_PARAMETERS)
    })
}
