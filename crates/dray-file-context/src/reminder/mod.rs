//! Reminders, which a model reads before the question (agent-file-context 8). Pure text: sections in, one string out.

use crate::built::ExcludedFile;
use crate::dataset::Dataset;
use crate::escape::{WRAPPER_TAG, escape_xml};
use crate::generation::ReminderLayout;
use crate::model::FileType;

mod block;
mod layout_a;
mod layout_b;
mod layout_c;
mod legacy;
#[cfg(test)]
mod tests;
mod tool_call;
mod wording;

use serde::{Deserialize, Serialize};

pub use wording::ReminderLanguage;

/// A file in a reminder. Its texts are not escaped yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReminderLine {
    /// Id, as in the maps.
    pub(crate) id: String,
    /// Name of the file for the model.
    pub(crate) name: String,
    /// Type; the layout determines the word for it.
    pub(crate) file_type: FileType,
    /// The URL to show; may be empty.
    pub(crate) url: String,
    /// Path in the sandbox, if the file is there.
    pub(crate) sandbox_path: Option<String>,
    /// The file's text, in the tool-call layout.
    pub(crate) content: Option<String>,
    /// Whether the file can no longer be fetched.
    pub(crate) unavailable: bool,
}

/// A skill whose directory was written into the sandbox, so that the model can read its files there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxSkill {
    /// Name of the skill for the model.
    pub name: String,
    /// Purpose of the skill, by which a model chooses it.
    #[serde(default)]
    pub description: String,
    /// Directory to which its relative paths are relative.
    #[serde(default)]
    pub directory: String,
    /// The file of the skill to read first.
    #[serde(default)]
    pub path: String,
}

/// The content of a reminder. A reminder of history has only files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReminderSections<'a> {
    /// The language of the text around the data.
    pub(crate) language: ReminderLanguage,
    /// Files of this message that have an id.
    pub(crate) files: &'a [ReminderLine],
    /// Files of this message that have no id.
    pub(crate) left_out: &'a [ExcludedFile],
    /// The sentence that says how files above the limit are reached; by default, by sending them in another message.
    pub(crate) reach: Option<&'a str>,
    /// Whether images, audio and video of this message are attached to it. If not, the reminder does not mention them.
    pub(crate) media_attached: bool,
    /// Whether the files are shown without their URLs.
    pub(crate) hides_urls: bool,
    /// Datasets of the node; history never names them.
    pub(crate) datasets: &'a [Dataset],
    /// Skills in the sandbox; history never names them.
    pub(crate) skills: &'a [SandboxSkill],
    /// The current time as text.
    pub(crate) time: Option<&'a str>,
    /// The sandbox's working directory.
    pub(crate) working_directory: Option<&'a str>,
    /// Directory in which skills may be written; shown in layout C only.
    pub(crate) write_boundary: Option<&'a str>,
}

impl<'a> ReminderSections<'a> {
    /// Sections with files only, as messages of history have them.
    pub(crate) fn of_history(files: &'a [ReminderLine]) -> Self {
        Self {
            files,
            ..Self::default()
        }
    }
}

/// The reminder and the question. Without any section the question is returned unchanged.
pub(crate) fn write_reminder(
    layout: ReminderLayout,
    sections: &ReminderSections<'_>,
    question: &str,
) -> String {
    match layout {
        ReminderLayout::A => layout_a::write_layout_a(sections, question),
        ReminderLayout::BDocuments | ReminderLayout::B | ReminderLayout::BMedia => {
            layout_b::write_layout_b(layout, sections, question)
        }
        ReminderLayout::C => layout_c::write_layout_c(sections, question),
        ReminderLayout::Legacy => legacy::write_legacy(sections, question),
        ReminderLayout::ToolCall => tool_call::write_tool_call(sections, question),
    }
}

/// The wrapped content, followed by the question; trimmed as a whole.
fn wrap_with_question(inside: &str, question: &str) -> String {
    let whole = format!("<{WRAPPER_TAG}>\n{inside}\n</{WRAPPER_TAG}>\n{question}");
    whole.trim().to_owned()
}

/// `<name>value</name>`, the value escaped.
fn field_element(name: &str, value: &str) -> String {
    format!("<{name}>{}</{name}>", escape_xml(value))
}
