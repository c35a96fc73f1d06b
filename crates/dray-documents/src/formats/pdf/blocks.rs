//! The engine's layout as blocks of this module.

use std::rc::Rc;

use pdfboss_output as boss;

use super::characters;
use super::emphasis::Emphasis;
use super::engine::{Block, Cell, Item, Line, Run};
use super::join;
use super::marks;
use crate::markdown::Style;

/// The data that is needed to read the engine's lines.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    /// The styles that are unusual in the document.
    pub(super) emphasis: Emphasis,
    /// Targets of the links of the page.
    pub(super) targets: &'a [Rc<str>],
}

/// Converts the layout of a page; blank blocks are left out.
pub(super) fn convert_layout(layout: boss::PageLayout, reader: Reader<'_>) -> Vec<Block> {
    let blocks = layout.blocks.into_iter();
    blocks.flat_map(|block| reader.block(block)).collect()
}

impl Reader<'_> {
    /// Converts one block. No result for a blank one; several if the engine's list contains more than a list.
    fn block(self, block: boss::Block) -> Vec<Block> {
        match block {
            boss::Block::Heading { level, lines, .. } => self
                .visible_lines(&lines)
                .map(|lines| to_heading(level, lines))
                .into_iter()
                .collect(),
            boss::Block::Paragraph { lines, role, .. } => self
                .visible_lines(&lines)
                .map(|lines| Block::Paragraph {
                    lines,
                    quote: role == boss::Role::Quote,
                })
                .into_iter()
                .collect(),
            boss::Block::List { items, .. } => self.list(&items),
            boss::Block::Table { rows, .. } => self.table(&rows).into_iter().collect(),
        }
    }

    /// The lines that are not blank; `None` without any.
    fn visible_lines(self, lines: &[boss::Line]) -> Option<Vec<Line>> {
        let lines: Vec<Line> = lines
            .iter()
            .map(|line| self.line(line, 0))
            .filter(|line| line.runs.iter().any(|run| !run.text.trim().is_empty()))
            .collect();
        (!lines.is_empty()).then_some(lines)
    }

    /// A line without its first `skip` characters.
    fn line(self, line: &boss::Line, skip: usize) -> Line {
        let mut runs: Vec<Run> = Vec::new();
        let mut skip = skip;
        for inline in &line.inlines {
            let length = inline.text.chars().count();
            let text: String = inline.text.chars().skip(skip).collect();
            skip = skip.saturating_sub(length);
            let style = self.style(inline, &text);
            // The marks of links are removed here, before other code uses the text.
            for (text, link) in marks::parts(&text, self.targets) {
                let text = characters::clean_text(&text);
                match runs.last_mut() {
                    Some(last) if last.style == style && last.link == link => {
                        last.text.push_str(&text);
                    }
                    _ => runs.push(Run {
                        text: text.into_owned(),
                        style,
                        link,
                    }),
                }
            }
        }
        marks::join_links(&mut runs);
        Line {
            runs,
            x: line.x,
            end: line.end_x,
            y: line.y,
            size: line.size,
            is_entry: line
                .inlines
                .iter()
                .any(|inline| inline.text.contains(marks::ENTRY_END)),
        }
    }

    /// The formats of a text that are an emphasis in this document. Signs and single letters have none.
    fn style(self, inline: &boss::Inline, text: &str) -> Style {
        let letters = text
            .chars()
            .filter(|character| character.is_alphabetic())
            .take(2)
            .count();
        let shows = !inline.code && letters > 1;
        Style {
            bold: inline.bold && shows && self.emphasis.shows_bold(),
            italic: inline.italic && shows && self.emphasis.shows_italic(),
            code: inline.code,
            ..Style::default()
        }
    }

    /// A list, nested by the indentation of its items. Text far below an item does not belong to it: the list ends
    /// before that text.
    fn list(self, items: &[boss::ListItem]) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut levels: Vec<f32> = Vec::new();
        let mut open_items = Vec::new();
        for item in items {
            let Some(first) = item.lines.first() else {
                continue;
            };
            // Items of one level rarely begin at exactly the same place.
            let tolerance = first.size.max(1.0) * 0.6;
            while levels.len() > 1
                && levels
                    .last()
                    .is_some_and(|level| *level > first.x + tolerance)
            {
                levels.pop();
            }
            if levels
                .last()
                .is_none_or(|level| first.x > level + tolerance)
            {
                levels.push(first.x);
            }
            let number = match item.marker {
                boss::Marker::Bullet => None,
                boss::Marker::Number(number) => Some(u64::from(number)),
            };
            // The engine assigns the remainder of a page to the last item of a list.
            let far = item.lines.windows(2).position(
                |pair| matches!(pair, [a, b] if a.y - b.y > a.size.max(b.size) * join::MAX_LINE_STEP),
            );
            let (own, beyond) = item
                .lines
                .split_at(far.map_or(item.lines.len(), |index| index + 1));
            let lines = own.iter().enumerate().map(|(index, line)| {
                let marker = if index == 0 { item.marker_len } else { 0 };
                self.line(line, marker)
            });
            open_items.push(Item {
                number,
                depth: levels.len() - 1,
                lines: lines.collect(),
            });
            if let Some(lines) = self.visible_lines(beyond) {
                blocks.push(Block::List {
                    items: std::mem::take(&mut open_items),
                });
                blocks.push(Block::Paragraph {
                    lines,
                    quote: false,
                });
            }
        }
        if !open_items.is_empty() {
            blocks.push(Block::List { items: open_items });
        }
        blocks
    }

    /// A table; `None` if all of its cells are empty.
    fn table(self, rows: &[Vec<boss::Cell>]) -> Option<Block> {
        let rows: Vec<Vec<Cell>> = rows
            .iter()
            .map(|row| row.iter().map(|cell| self.cell(cell)).collect())
            .collect();
        let filled = rows.iter().flatten().any(|cell| !cell.runs.is_empty());
        filled.then_some(Block::Table { rows })
    }

    /// A cell. The engine does not return covered cells. A cell with one uniform format is plain.
    fn cell(self, cell: &boss::Cell) -> Cell {
        let line = cell.line.as_ref().map(|line| self.line(line, 0));
        let mut runs = join::join_lines(line.as_slice());
        // Headers of tables are completely bold, which is the style of tables and not an emphasis.
        if let Some(first) = runs.first().map(|run| run.style)
            && runs.iter().all(|run| run.style == first)
        {
            for run in &mut runs {
                run.style = Style::default();
            }
        }
        Cell {
            runs,
            columns: usize::from(cell.colspan),
            rows: usize::from(cell.rowspan),
        }
    }
}

/// Makes a heading. A label with a figure, such as a total in bold, becomes a paragraph instead.
fn to_heading(level: u8, lines: Vec<Line>) -> Block {
    let text = join::one_line(&lines);
    let labelled = text.split_once(": ").is_some_and(|(label, value)| {
        let value = value.trim();
        !label.contains(|character: char| character.is_ascii_digit())
            && value.starts_with(|character: char| {
                character.is_ascii_digit() || "$€£¥+-".contains(character)
            })
    });
    if labelled {
        return Block::Paragraph {
            lines,
            quote: false,
        };
    }
    Block::Heading { level, lines }
}
