//! Named templates of the service: prompts, tools, tool sets and skills, in layers (quickapps 8.1).
//!
//! Layers are directories. The caller reads their files and gives each to [`LayerSet::add`], layer after layer. An
//! entry of a later layer replaces the one of the same name.

use std::collections::BTreeMap;

use serde_json::Value;
use thiserror::Error;

mod built_in;
mod patch;
mod resolve;

pub use built_in::built_in;
pub use patch::{RefusedPatch, apply_patch};
pub use resolve::{ResolvedToolsets, TemplateFailure, TemplateFailureCause};

/// Kind of an entry of a layer, by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntryKind {
    /// Text of a system prompt: `prompt/*.md`.
    Prompt,
    /// Body of a tool: `tool/*.json`.
    Tool,
    /// Body of a tool set: `toolset/*.json`.
    ToolSet,
    /// A skill: `skills/{name}/SKILL.md`, in early layers `skills/*.md`.
    Skill,
}

impl EntryKind {
    /// The name in messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Prompt => "prompt",
            Self::Tool => "tool",
            Self::ToolSet => "toolset",
            Self::Skill => "skill",
        }
    }
}

/// A file of a layer that cannot be used; it stops the start of the service.
#[derive(Debug, Error)]
#[error("{path} is not JSON")]
pub struct LayerFileError {
    /// The path inside the layer.
    pub path: String,
    /// The error of the JSON parser.
    #[source]
    pub source: serde_json::Error,
}

/// All entries of all layers, in memory.
#[derive(Clone, Debug, Default)]
pub struct LayerSet {
    texts: BTreeMap<(EntryKind, String), String>,
    bodies: BTreeMap<(EntryKind, String), Value>,
}

impl LayerSet {
    /// Takes one file, named by its path inside the layer with `/` between the parts. Returns whether it is an entry;
    /// other files are allowed in a layer.
    ///
    /// # Errors
    ///
    /// [`LayerFileError`] for a tool or tool set that is not JSON.
    pub fn add(&mut self, path: &str, content: &str) -> Result<bool, LayerFileError> {
        let Some((kind, name)) = classify_entry(path) else {
            return Ok(false);
        };
        let key = (kind, name.to_owned());
        match kind {
            EntryKind::Prompt | EntryKind::Skill => {
                self.texts.insert(key, content.to_owned());
            }
            EntryKind::Tool | EntryKind::ToolSet => {
                let body = serde_json::from_str(content).map_err(|source| LayerFileError {
                    path: path.to_owned(),
                    source,
                })?;
                self.bodies.insert(key, body);
            }
        }
        Ok(true)
    }

    /// Names of all entries of a kind, sorted.
    pub fn names(&self, kind: EntryKind) -> impl Iterator<Item = &str> {
        let texts = self.texts.keys();
        texts
            // The map contains all entries of a kind in order, so the names stay sorted.
            .chain(self.bodies.keys())
            .filter(move |(of, _)| *of == kind)
            .map(|(_, name)| name.as_str())
    }

    /// The text of a prompt or skill.
    pub fn text(&self, kind: EntryKind, name: &str) -> Option<&str> {
        // Keys are pairs of owned values, which cannot be looked up by a borrowed name.
        self.texts.get(&(kind, name.to_owned())).map(String::as_str)
    }

    /// The body of a tool or tool set as it is in its file.
    pub fn body(&self, kind: EntryKind, name: &str) -> Option<&Value> {
        self.bodies.get(&(kind, name.to_owned()))
    }
}

/// Kind and name of the entry in a file; `None` for a file that is not an entry.
fn classify_entry(path: &str) -> Option<(EntryKind, &str)> {
    let (directory, file) = path.split_once('/')?;
    let (kind, name) = match directory {
        "prompt" => (EntryKind::Prompt, file.strip_suffix(".md")?),
        "tool" => (EntryKind::Tool, file.strip_suffix(".json")?),
        "toolset" => (EntryKind::ToolSet, file.strip_suffix(".json")?),
        "skills" => {
            let name = file
                .strip_suffix("/SKILL.md")
                .or_else(|| file.strip_suffix(".md"));
            (EntryKind::Skill, name?)
        }
        _ => return None,
    };
    // Files in deeper directories belong to their entry, such as scripts of a skill.
    (!name.is_empty() && !name.contains('/')).then_some((kind, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_and_extension_of_a_file_decide_its_kind_of_entry() {
        for (path, expected) in [
            (
                "prompt/gpt_prompt.md",
                Some((EntryKind::Prompt, "gpt_prompt")),
            ),
            ("tool/dial_rag.json", Some((EntryKind::Tool, "dial_rag"))),
            (
                "toolset/weather.json",
                Some((EntryKind::ToolSet, "weather")),
            ),
            ("skills/a-b/SKILL.md", Some((EntryKind::Skill, "a-b"))),
            ("skills/old.md", Some((EntryKind::Skill, "old"))),
            ("skills/a/notes.md", None),
            ("prompt/.md", None),
            ("prompt/a.txt", None),
            ("tool/deep/a.json", None),
            ("other/a.json", None),
            ("README.md", None),
        ] {
            assert_eq!(classify_entry(path), expected, "{path}");
        }
    }

    #[test]
    fn later_layers_replace_entries_of_the_same_kind_and_name() {
        let mut layers = LayerSet::default();
        for (path, content) in [
            ("prompt/x.md", "built in"),
            ("prompt/y.md", "stays"),
            ("tool/x.json", "{\"layer\":1}"),
            ("prompt/x.md", "own"),
            ("toolset/x.json", "{\"layer\":2}"),
        ] {
            assert!(layers.add(path, content).unwrap());
        }
        assert_eq!(layers.text(EntryKind::Prompt, "x"), Some("own"));
        assert_eq!(layers.text(EntryKind::Prompt, "y"), Some("stays"));
        assert_eq!(layers.body(EntryKind::Tool, "x").unwrap()["layer"], 1);
        assert_eq!(layers.body(EntryKind::ToolSet, "x").unwrap()["layer"], 2);
        assert_eq!(
            layers.names(EntryKind::Prompt).collect::<Vec<_>>(),
            ["x", "y"]
        );
    }

    #[test]
    fn other_files_are_ignored_and_invalid_json_is_reported() {
        let mut layers = LayerSet::default();
        assert!(!layers.add("README.md", "{").unwrap());
        let error = layers.add("tool/x.json", "{").unwrap_err();
        assert_eq!(error.to_string(), "tool/x.json is not JSON");
        assert_eq!(layers.names(EntryKind::Tool).count(), 0);
    }
}
