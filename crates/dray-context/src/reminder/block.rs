//! Blocks that several layouts share.

use super::{Line, field};
use crate::dataset::Dataset;

/// Blocks of one kind, a newline between.
pub(super) fn join(blocks: impl IntoIterator<Item = String>) -> String {
    let blocks: Vec<_> = blocks.into_iter().collect();
    blocks.join("\n")
}

/// `<tag>`, one line each, `</tag>`.
pub(super) fn block(tag: &str, lines: &[String]) -> String {
    format!("<{tag}>\n{}\n</{tag}>", lines.join("\n"))
}

/// `<dataset>` blocks; a description only when there is one.
pub(super) fn datasets(datasets: &[Dataset]) -> String {
    join(datasets.iter().map(|dataset| {
        let mut lines = vec![field("id", &dataset.id), field("name", &dataset.name)];
        if !dataset.description.is_empty() {
            lines.push(field("description", &dataset.description));
        }
        block("dataset", &lines)
    }))
}

/// The line that takes the place of a URL that nothing can open.
pub(super) fn status(line: &Line) -> Option<String> {
    line.unavailable.then(|| field("status", "unavailable"))
}
