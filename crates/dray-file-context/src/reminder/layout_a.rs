//! Layout A: English headings in every language, the question last and inside the wrapper (8.1).

use super::{ReminderLine, ReminderSections, block, field_element};
use crate::escape::{WRAPPER_TAG, disarm_wrapper_tags};

pub(super) fn write_layout_a(sections: &ReminderSections<'_>, question: &str) -> String {
    let texts = sections.language.words();
    let mut parts = Vec::new();
    let files = block::join_blocks(sections.files.iter().map(file_line));
    if let Some(files) = block::with_left_out(sections, files) {
        parts.push(format!("# Input Files\n{}\n\n{files}", texts.files_of_a));
    }
    if !sections.datasets.is_empty() {
        let datasets = block::dataset_blocks(sections.datasets);
        parts.push(format!(
            "# Input datasets\n{}\n\n{datasets}",
            texts.datasets_use
        ));
    }
    if let Some(time) = sections.time {
        parts.push(format!("# Current time\n{time}"));
    }
    if parts.is_empty() {
        // The question is not trimmed either (section 22, item 5).
        return question.to_owned();
    }
    if !question.is_empty() {
        parts.push(disarm_wrapper_tags(question));
    }
    let whole = format!("<{WRAPPER_TAG}>\n{}\n</{WRAPPER_TAG}>", parts.join("\n\n"));
    whole.trim().to_owned()
}

fn file_line(line: &ReminderLine) -> String {
    let kind = if line.file_type.is_document() {
        "document"
    } else {
        // This includes audio and video: the layout has only two words for types (8.1).
        "image"
    };
    let mut lines = vec![
        field_element("id", &line.id),
        field_element("name", &line.name),
        field_element("type", kind),
    ];
    lines.extend(block::status_line(line));
    block::tagged_block("file", &lines)
}
