//! Skills: texts that the model reads when it needs them (quickapps 35).

use std::collections::BTreeMap;

use crate::text::escape_quoted as escape;

/// Name of the tool that reads a skill.
pub const READ: &str = "internal_skills_read_skill";

/// The skill that teaches how files go into arguments.
pub const FILE_PARAMETERS: &str = "tool-call-file-parameter-formatting";

/// One skill.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skill {
    /// By which it is read.
    pub name: String,
    /// When to read it.
    pub description: String,
    /// Its terms.
    pub license: Option<String>,
    /// What it needs.
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
pub fn listing(skills: &[Skill]) -> Option<String> {
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
            lines.extend(value.map(|value| format!("    <{name}>{}</{name}>", escape(value))));
        }
        if !skill.metadata.is_empty() {
            lines.push("    <metadata>".to_owned());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_escaped_indented_and_sorted() {
        let mut skill = Skill::new("a<b", "\"x\" & 'y'");
        skill.license = Some("MIT".to_owned());
        let pairs = [("z", "1"), ("a", "2")];
        skill.metadata = pairs
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        assert_eq!(
            listing(&[skill]).unwrap(),
            "<available_skills>\n  <skill>\n    <name>a&lt;b</name>\n    \
             <description>&quot;x&quot; &amp; &#x27;y&#x27;</description>\n    <license>MIT</license>\n    \
             <metadata>\n      <entry key=\"a\">2</entry>\n      <entry key=\"z\">1</entry>\n    </metadata>\n  \
             </skill>\n</available_skills>"
        );
        assert_eq!(listing(&[]), None);
    }
}
