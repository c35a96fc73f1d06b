//! List items for formats that number the levels of a list instead of nesting its items.

use super::{Inline, InlinePosition, LastWritten, Markdown, escape};
use crate::limits::Limit;

/// Deepest level that is indented further. Beyond it the indentation would cost more than the text.
const MAX_DEPTH: usize = 16;
/// Spaces before an item whose parent is missing. More than three would make it code.
const ORPHAN_INDENT: usize = 2;

/// A list item's marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListMarker {
    /// `-`, of an unordered list.
    Bullet,
    /// The number that is shown, followed by a dot.
    Number(u64),
    /// `:`, the description of a term.
    Definition,
}

impl ListMarker {
    pub(super) fn text(self) -> String {
        match self {
            Self::Bullet => "- ".to_owned(),
            Self::Number(number) => format!("{number}. "),
            Self::Definition => ": ".to_owned(),
        }
    }
}

/// The items that a next item can be a child of, from the outermost.
#[derive(Debug, Default)]
pub(super) struct OpenItems(Vec<OpenItem>);

#[derive(Debug)]
struct OpenItem {
    depth: usize,
    /// Column in which its text begins, and so the markers of its children.
    content: usize,
}

impl OpenItems {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds an item and returns its indentation: the width of the indentation and the marker of its parent, because
    /// only then it is a child in `CommonMark`.
    fn add(&mut self, depth: usize, marker: &str) -> usize {
        while self.0.last().is_some_and(|item| item.depth >= depth) {
            self.0.pop();
        }
        let parent = self.0.last();
        let has_parent = parent.map_or(depth == 0, |parent| parent.depth + 1 == depth);
        let orphan = if has_parent { 0 } else { ORPHAN_INDENT };
        let indent = parent.map_or(0, |parent| parent.content) + orphan;
        let content = indent + marker.len();
        self.0.push(OpenItem { depth, content });
        indent
    }
}

impl Markdown {
    /// A list item at a depth from 0, below the items before it.
    pub fn item(&mut self, depth: usize, marker: ListMarker, text: &Inline) -> Result<(), Limit> {
        let text = text.render(InlinePosition::Block);
        if text.is_empty() {
            return Ok(());
        }
        if self.last != LastWritten::Item {
            self.open_items.clear();
        }
        let marker = marker.text();
        let indent = self.open_items.add(depth.min(MAX_DEPTH), &marker);
        let indent = " ".repeat(indent);
        let mut block = String::new();
        for (index, line) in text.split('\n').enumerate() {
            if index > 0 {
                block.push('\n');
                block.push_str(&" ".repeat(marker.len()));
            } else {
                block.push_str(&marker);
            }
            block.push_str(&escape::line_start(line));
        }
        let block: Vec<String> = block
            .split('\n')
            .map(|line| format!("{indent}{line}"))
            .collect();
        self.block(&block.join("\n"), LastWritten::Item)
    }
}
