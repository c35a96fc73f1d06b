//! Skills: texts that the model reads when it needs them (quickapps 35).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::layer::{EntryKind, LayerSet};
use crate::message::Message;
use crate::pair::{self, CallPair, PairFrequency, PairPlace};
use crate::text::escape_quoted as escape;

mod front;
mod learn;
mod parse;

#[cfg(test)]
mod tests;

pub use learn::{FetchedSkill, LoadedSkills, learn_skills};
pub use parse::{ParsedSkill, parse_lenient, parse_strict};

/// Name of the tool that reads a skill.
pub const READ_SKILL_TOOL: &str = "internal_skills_read_skill";

/// Argument of that tool: the name of the skill.
pub const NAME_ARGUMENT: &str = "skill_name";

/// The skill that teaches how files go into arguments.
pub const FILE_PARAMETERS: &str = "tool-call-file-parameter-formatting";

/// A skill: what the list says of it, and its document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skill {
    /// Name by which the model reads it.
    pub name: String,
    /// For the model: when to read it.
    pub description: String,
    /// License, as its author names it.
    pub license: Option<String>,
    /// Requirements of the skill, as free text.
    pub compatibility: Option<String>,
    /// Tools that it uses.
    pub allowed_tools: Option<String>,
    /// All else that its author says, by name.
    pub metadata: BTreeMap<String, String>,
    /// The whole document, front matter and all.
    pub markdown: String,
}

impl Skill {
    /// A skill with a name and a description alone.
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            ..Self::default()
        }
    }
}

/// The list of skills for the system prompt; `None` when there are none.
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

/// The skills of the layers in order of their names, and what is wrong with those that are left out.
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

/// Puts the skill of files in arguments after the first user message as if the model had read it, unless it has. Does
/// nothing without such a skill (quickapps 35.4).
pub fn inject_skill(messages: &mut Vec<Message>, skills: &[Skill]) {
    let Some(skill) = skills.iter().find(|skill| skill.name == FILE_PARAMETERS) else {
        return;
    };
    // By an earlier pair or by the model itself.
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
        PairPlace::AfterFirstUser,
        PairFrequency::Once,
    );
}

/// Whether the skill of files was read before, also under the former name of the tool.
fn was_read(messages: &[Message]) -> bool {
    let mut calls = messages.iter().flat_map(Message::calls);
    calls.any(|call| {
        let arguments: Value =
            serde_json::from_str(&call.function.arguments).unwrap_or(Value::Null);
        // The second name is in histories of early releases (quickapps 19.1).
        (call.function.name == READ_SKILL_TOOL || call.function.name == "read_skill")
            && arguments
                .get(NAME_ARGUMENT)
                .is_some_and(|name| name == FILE_PARAMETERS)
    })
}
