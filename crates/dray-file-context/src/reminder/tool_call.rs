//! The layout of the tool-call node, with contents (18.2). Unlike the original, it escapes quoted text.

use super::{ReminderLine, ReminderSections, block, field_element};
use crate::escape::WRAPPER_TAG;

const OPENING_TEXT: &str = "As you answer the user's questions, you can use the following context:";

pub(super) fn write_tool_call(sections: &ReminderSections<'_>, question: &str) -> String {
    let mut parts = Vec::new();
    let files = block::join_blocks(sections.files.iter().map(file_line));
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
    // One line feed: the time is directly below the files (18.2).
    let inside = parts.join("\n");
    let whole =
        format!("<{WRAPPER_TAG}>\n{OPENING_TEXT}\n\n{inside}\n</{WRAPPER_TAG}>\n\n{question}");
    whole.trim().to_owned()
}

fn file_line(line: &ReminderLine) -> String {
    let optional = |name: &str, value: &Option<String>| {
        value
            .as_deref()
            .map_or_else(String::new, |value| field_element(name, value))
    };
    let lines = [
        field_element("id", &line.id),
        field_element("name", &line.name),
        // An absent optional leaves an empty line (18.2).
        optional("sandboxPath", &line.sandbox_path),
        optional("content", &line.content),
    ];
    block::tagged_block("file", &lines)
}
