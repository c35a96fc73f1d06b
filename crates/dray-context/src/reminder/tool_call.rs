//! The tool-call node's own layout, with contents (18.2). Unlike the original it escapes what it quotes.

use super::{ReminderLine, ReminderSections, block, field};
use crate::escape::WRAPPER_TAG;

const OPENING_TEXT: &str = "As you answer the user's questions, you can use the following context:";

pub(super) fn write(sections: &ReminderSections<'_>, question: &str) -> String {
    let mut parts = Vec::new();
    let files = block::join(sections.files.iter().map(file));
    if let Some(files) = block::with_left_out(sections, files) {
        let intro = sections.language.words().files_of_tool_call;
        parts.push(format!("# Input Files\n{intro}\n\n{files}"));
    }
    if let Some(time) = sections.time {
        parts.push(format!("# Current time\n{time}"));
    }
    if parts.is_empty() {
        return question.to_owned();
    }
    let inside = parts.join("\n");
    let whole =
        format!("<{WRAPPER_TAG}>\n{OPENING_TEXT}\n\n{inside}\n</{WRAPPER_TAG}>\n\n{question}");
    whole.trim().to_owned()
}

fn file(line: &ReminderLine) -> String {
    let optional = |name: &str, value: &Option<String>| {
        value
            .as_deref()
            .map_or_else(String::new, |value| field(name, value))
    };
    let lines = [
        field("id", &line.id),
        field("name", &line.name),
        optional("sandboxPath", &line.sandbox_path),
        optional("content", &line.content),
    ];
    block::block("file", &lines)
}
