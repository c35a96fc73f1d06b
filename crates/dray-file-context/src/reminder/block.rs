//! Blocks that several layouts share.

use super::{ReminderLine, ReminderSections, field_element};
use crate::built::ExclusionReason;
use crate::dataset::Dataset;
use crate::escape::escape_xml;

/// Blocks of one kind, a newline between.
pub(super) fn join_blocks(blocks: impl IntoIterator<Item = String>) -> String {
    let blocks: Vec<_> = blocks.into_iter().collect();
    blocks.join("\n")
}

/// `<tag>`, one line each, `</tag>`.
pub(super) fn tagged_block(tag: &str, lines: &[String]) -> String {
    format!("<{tag}>\n{}\n</{tag}>", lines.join("\n"))
}

/// `<dataset>` blocks; with a description if there is one.
pub(super) fn dataset_blocks(datasets: &[Dataset]) -> String {
    join_blocks(datasets.iter().map(|dataset| {
        let mut lines = vec![
            field_element("id", &dataset.id),
            field_element("name", &dataset.name),
        ];
        if !dataset.description.is_empty() {
            lines.push(field_element("description", &dataset.description));
        }
        tagged_block("dataset", &lines)
    }))
}

/// The line that replaces a URL that cannot be opened.
pub(super) fn status_line(line: &ReminderLine) -> Option<String> {
    line.unavailable
        .then(|| field_element("status", "unavailable"))
}

/// Names of files above the limit that are shown.
const SHOWN_NAMES: usize = 5;
/// Characters of a shown name.
const NAME_CHARS: usize = 100;

/// The files with an id, then one line per reason why others have none. `None` without any of these.
pub(super) fn with_left_out(sections: &ReminderSections<'_>, files: String) -> Option<String> {
    if sections.left_out.is_empty() {
        return Some(files).filter(|files| !files.is_empty());
    }
    let texts = sections.language.words();
    let mut lines = vec![texts.left_out.to_owned()];
    let (over_limit, refused): (Vec<_>, Vec<_>) = sections
        .left_out
        .iter()
        .partition(|file| file.reason == ExclusionReason::Limit);
    for file in refused {
        lines.push(format!(
            "- {}: {}",
            shown_name(&file.name),
            texts.reason(file.reason)
        ));
    }
    if !over_limit.is_empty() {
        let shown = over_limit.iter().take(SHOWN_NAMES);
        let mut names: Vec<_> = shown.map(|file| shown_name(&file.name)).collect();
        if over_limit.len() > SHOWN_NAMES {
            names.push("…".to_owned());
        }
        let reach = sections
            .reach
            .map_or_else(|| texts.reach.to_owned(), escape_xml);
        lines.push(format!(
            "- {}",
            texts.over_limit(over_limit.len(), &names, &reach)
        ));
    }
    let lines = lines.join("\n");
    Some(if files.is_empty() {
        lines
    } else {
        format!("{files}\n\n{lines}")
    })
}

/// A name on one line, cut and escaped.
fn shown_name(name: &str) -> String {
    // A line break in a name would begin another line of the list.
    let mut characters = name.chars().filter(|character| !character.is_control());
    let mut shown: String = characters.by_ref().take(NAME_CHARS).collect();
    if characters.next().is_some() {
        shown.push('…');
    }
    escape_xml(&shown)
}
