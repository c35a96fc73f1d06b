//! The oldest layout: a list of numbered files before the question (8.4).

use super::wording::LayoutTexts;
use super::{ReminderLine, ReminderSections, block};
use crate::escape::escape_xml;

pub(super) fn write_legacy(sections: &ReminderSections<'_>, question: &str) -> String {
    let texts = sections.language.words();
    let lines: Vec<_> = sections
        .files
        .iter()
        .map(|line| file_line(texts, line))
        .collect();
    let Some(files) = block::with_left_out(sections, lines.join("\n")) else {
        return question.to_owned();
    };
    let (opening, advice) = (texts.files_of_legacy, texts.advice_of_legacy);
    format!(
        "## File input\n<available_files>\n{opening}\n\n{files}\n{advice}\n</available_files>\n\n## Query\n{question}"
    )
}

fn file_line(words: &LayoutTexts, line: &ReminderLine) -> String {
    let kind = if line.file_type.is_document() {
        "document"
    } else {
        // G0 writes two kinds only (8.4).
        "image"
    };
    let (number, name) = (escape_xml(&line.id), escape_xml(&line.name));
    format!("- {}{number}: {name}({kind})", words.file_of_legacy)
}
