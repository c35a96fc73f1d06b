//! The conditions of offering the tool, and its declaration for models (12.1, 12.2).

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::arguments::READ_TOOL;
use crate::generation::ContractGeneration;

/// The facts that decide whether the tool is offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolExposure {
    /// Whether the app allows users to select files.
    pub selection_allowed: bool,
    /// Whether the map of documents is not empty.
    pub has_documents: bool,
    /// Whether the conversation has a file of any type.
    pub has_files: bool,
}

/// The place where the tool is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToolVariant {
    /// An agent node of a workflow.
    #[default]
    Agent,
    /// A tool-call node, which offers it for files of every type.
    ToolCall,
    /// The editor in which people write skills.
    SkillEditor,
}

/// Whether a model is offered the tool.
pub fn is_offered(
    generation: ContractGeneration,
    variant: ToolVariant,
    exposure: ToolExposure,
) -> bool {
    // This holds for every generation: this node reads files of any type (12.1).
    if variant == ToolVariant::ToolCall {
        return exposure.has_files;
    }
    match generation {
        ContractGeneration::G0
        | ContractGeneration::G1
        | ContractGeneration::G2
        | ContractGeneration::G3 => exposure.selection_allowed,
        ContractGeneration::G4
        | ContractGeneration::G5
        | ContractGeneration::G6
        | ContractGeneration::Stable => exposure.has_documents,
    }
}

/// Extensions that the caller's reader can really read, without dots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReadableFormats(pub Vec<String>);

impl ReadableFormats {
    /// Makes the list from extensions with or without their dots.
    pub fn of(extensions: &[&str]) -> Self {
        let dotless = |extension: &&str| extension.trim_start_matches('.').to_ascii_lowercase();
        Self(extensions.iter().map(dotless).collect())
    }

    /// The list for people: `.txt, .md, …`.
    pub fn list(&self) -> String {
        let dotted: Vec<_> = self
            .0
            .iter()
            .map(|extension| format!(".{extension}"))
            .collect();
        dotted.join(", ")
    }

    /// Whether an extension is in the list, ignoring case; `markdown` and `htm` count as `md` and `html`.
    pub fn contains(&self, extension: &str) -> bool {
        let lower = extension.to_ascii_lowercase();
        let plain = match lower.as_str() {
            "markdown" => "md",
            "htm" => "html",
            other => other,
        };
        // Both spellings count, since a caller may have listed `htm` or `markdown` by itself.
        self.0.iter().any(|known| known == plain || *known == lower)
    }
}

/// The description of the tool for a model.
pub fn tool_schema(
    generation: ContractGeneration,
    variant: ToolVariant,
    formats: &ReadableFormats,
    max_files: usize,
) -> Value {
    let (description, parameters) = match (generation, variant) {
        (ContractGeneration::G6, _) => (
            "Read the content of specified files.".to_owned(),
            json!({"type": "object", "properties": {"urls": {
                "type": "array", "items": {"type": "string"},
                // The limit is only advertised; calls with more are not refused for it (12.2).
                "maxItems": crate::limits::max_files(max_files),
                "description": "Absolute HTTP(S) file URLs"}}, "required": ["urls"]}),
        ),
        (_, ToolVariant::ToolCall) => (
            "解析文件内容，获取文本。".to_owned(),
            json!({"type": "object", "properties": {"ids": {"type": "array", "items": {"type": "string"}}},
                "required": ["ids"]}),
        ),
        (_, ToolVariant::SkillEditor) => (
            "读取 Skill Detail 对话上传的文档内容；文件不在虚拟机中，必须传入对话文件列表里的 id"
                .to_owned(),
            ids_alone(),
        ),
        (ContractGeneration::Stable, ToolVariant::Agent) => {
            (stable_description(formats), with_pages())
        }
        (_, ToolVariant::Agent) => ("读取指定文件的内容".to_owned(), ids_alone()),
    };
    json!({"type": "function", "function": {"name": READ_TOOL, "description": description, "parameters": parameters}})
}

fn ids_alone() -> Value {
    json!({"type": "object", "properties": {"ids": ids_schema()}, "required": ["ids"]})
}

fn ids_schema() -> Value {
    json!({"type": "array", "items": {"type": "string"}, "description": "文件 ID"})
}

fn with_pages() -> Value {
    json!({"type": "object", "properties": {
        "ids": ids_schema(),
        "offset": {"type": "integer", "minimum": 0, "description": "从第几个字符开始读取，默认 0；续读时传入上次结果的 nextOffset"},
        "limit": {"type": "integer", "minimum": 1, "description": "每个文件最多返回的字符数"},
        "range": {"type": "string", "description": "只读取文档的一部分，例如 pages 3-5"}
    }, "required": ["ids"]})
}

fn stable_description(formats: &ReadableFormats) -> String {
    format!(
        "读取文档并返回文档内容，支持: {}。图片、音频和视频已附在消息中，不能读取为文本。",
        formats.list()
    )
}

/// The entry of the catalogue that builders of apps see.
pub fn catalogue_entry(formats: Option<&ReadableFormats>) -> Value {
    let description = formats.map_or_else(
        || "读取文件内容，并返回文件内容。".to_owned(),
        |formats| format!("读取文档并返回文档内容，支持: {}", formats.list()),
    );
    json!({"id": READ_TOOL, "name": {"zh-CN": "文件解析", "zh-Hant": "文件解析", "en": "FileParsing"},
        "icon": "core/workflow/template/readFiles", "description": description})
}
