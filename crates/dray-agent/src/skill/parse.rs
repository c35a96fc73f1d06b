//! Parses a document into a skill: strictly for skills that are part of a service, leniently for those that people
//! write.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Skill, front};

const MISSING_FIELDS: &str = "Missing required fields (name/description)";
const INVALID_TOOLS: &str = "Invalid allowed-tools format";

/// Most characters of a name.
const NAME_LIMIT: usize = 64;
/// Most characters of a description.
const DESCRIPTION_LIMIT: usize = 1024;
/// Most characters of a skill's `compatibility`.
const COMPATIBILITY_LIMIT: usize = 500;

/// Most characters of a name in a message.
const MAX_SHOWN_CHARACTERS: usize = 200;

/// The form of names, for messages.
const NAME_FORMAT: &str = "lowercase letters, digits and single hyphens, none at the ends";

/// A skill that was read leniently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedSkill {
    /// The skill, with its name as its author wrote it.
    pub skill: Skill,
    /// Faults that its author should correct.
    pub warnings: Vec<String>,
}

/// Reads a skill of a layer (quickapps 35.1). Its `compatibility` is cut to 500 characters.
///
/// # Errors
///
/// The reason why the skill cannot be used, in one sentence.
pub fn parse_strict(directory: &str, markdown: &str) -> Result<Skill, String> {
    let (mut skill, _) = read_skill(markdown, false)?;
    if skill.name != directory {
        return Err(format!("its name '{}' is not '{directory}'", skill.name));
    }
    if is_longer_than(&skill.name, NAME_LIMIT) {
        return Err(format!("its name exceeds {NAME_LIMIT} characters"));
    }
    if !is_name(&skill.name) {
        return Err(format!("its name is not of the form: {NAME_FORMAT}"));
    }
    if is_longer_than(&skill.description, DESCRIPTION_LIMIT) {
        return Err(format!(
            "its description exceeds {DESCRIPTION_LIMIT} characters"
        ));
    }
    // The text is shortened and not refused, in contrast to the other limits (quickapps 35.1).
    if let Some(needs) = &mut skill.compatibility
        && let Some((end, _)) = needs.char_indices().nth(COMPATIBILITY_LIMIT)
    {
        needs.truncate(end);
    }
    Ok(skill)
}

/// Reads a skill that a person wrote (quickapps 36).
///
/// # Errors
///
/// The reason why the front matter cannot be used, as text for builders.
pub fn parse_lenient(markdown: &str) -> Result<ParsedSkill, String> {
    let (skill, repaired) = read_skill(markdown, true)?;
    let name = &skill.name;
    let needs = skill.compatibility.as_deref().unwrap_or_default();
    let warnings = [
        repaired.then(|| "YAML repaired by quoting value(s) with unescaped colons".to_owned()),
        is_longer_than(name, NAME_LIMIT)
            .then(|| format!("Skill name exceeds 64 characters: {}", shown_name(name))),
        (!is_name(name)).then(|| {
            format!(
                "Skill name does not match recommended format: {} ({NAME_FORMAT})",
                shown_name(name)
            )
        }),
        is_longer_than(&skill.description, DESCRIPTION_LIMIT)
            .then(|| "Description exceeds 1024 characters".to_owned()),
        is_longer_than(needs, COMPATIBILITY_LIMIT)
            .then(|| "Compatibility exceeds 500 characters".to_owned()),
    ];
    let warnings = warnings.into_iter().flatten().collect();
    Ok(ParsedSkill { skill, warnings })
}

/// The skill, and whether its front matter had to be repaired.
fn read_skill(markdown: &str, repairs: bool) -> Result<(Skill, bool), String> {
    let front::FrontMatter { fields, repaired } = front::read_front_matter(markdown, repairs)?;
    let field = |name: &str| fields.get(name).and_then(scalar_text);
    let (Some(name), Some(description)) = (field("name"), field("description")) else {
        return Err(MISSING_FIELDS.to_owned());
    };
    let skill = Skill {
        name,
        description,
        license: field("license"),
        compatibility: field("compatibility"),
        allowed_tools: tool_names(fields.get("allowed-tools"))?,
        metadata: metadata_map(fields.get("metadata")),
        // The front matter is included: the tool returns the complete document (quickapps 35.2).
        markdown: markdown.to_owned(),
    };
    Ok((skill, repaired))
}

/// Text, or a number or truth value as text; `None` for blank text and other values.
fn scalar_text(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        // YAML reads a version such as `1.0` as a number, although the author means text.
        Value::Number(_) | Value::Bool(_) => value.to_string(),
        Value::Null | Value::Array(_) | Value::Object(_) => return None,
    };
    (!text.is_empty()).then_some(text)
}

/// Names of tools: text with spaces between, or a list.
fn tool_names(value: Option<&Value>) -> Result<Option<String>, String> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => {
            Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty()))
        }
        Some(Value::Array(names)) => {
            let names: Option<Vec<_>> = names.iter().map(Value::as_str).collect();
            let names = names.ok_or_else(|| INVALID_TOOLS.to_owned())?;
            Ok(Some(names.join(" ")).filter(|text| !text.is_empty()))
        }
        Some(_) => Err(INVALID_TOOLS.to_owned()),
    }
}

fn metadata_map(value: Option<&Value>) -> BTreeMap<String, String> {
    let entries = value.and_then(Value::as_object);
    entries
        .into_iter()
        .flatten()
        .map(|(key, value)| {
            (
                key.clone(),
                scalar_text(value).unwrap_or_else(|| nested_json(value)),
            )
        })
        .collect()
}

/// Non-scalar values as JSON; empty for an empty value.
fn nested_json(value: &Value) -> String {
    match value {
        Value::Array(_) | Value::Object(_) => value.to_string(),
        _ => String::new(),
    }
}

/// A name as messages show it, cut to `MAX_SHOWN_CHARACTERS`.
pub(super) fn shown_name(name: &str) -> String {
    let end = name
        .char_indices()
        .nth(MAX_SHOWN_CHARACTERS)
        .map(|(end, _)| end);
    match end.and_then(|end| name.get(..end)) {
        Some(start) => format!("{start}…"),
        None => name.to_owned(),
    }
}

/// Whether a text has more characters than `limit`.
fn is_longer_than(text: &str, limit: usize) -> bool {
    text.chars().nth(limit).is_some()
}

/// Whether a name is `[a-z0-9]([a-z0-9-]*[a-z0-9])?` without two hyphens in a row.
fn is_name(name: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.split('-')
        // An empty part means a hyphen at an end or after another one.
        .all(|part| !part.is_empty() && part.bytes().all(is_word))
}
