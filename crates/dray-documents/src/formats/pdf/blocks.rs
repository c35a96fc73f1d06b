//! The engine's layout as blocks of this module.

use pdfboss_output as boss;

use super::characters;
use super::engine::{Block, Cell, Item, Line, Run};

/// The blocks of a page, blank ones left out.
pub(super) fn taken_over(layout: boss::PageLayout) -> Vec<Block> {
    layout.blocks.into_iter().filter_map(block).collect()
}

/// One block; nothing when it is blank.
fn block(block: boss::Block) -> Option<Block> {
    let block = match block {
        boss::Block::Heading { level, lines, .. } => Block::Heading {
            level,
            lines: all(&lines)?,
        },
        boss::Block::Paragraph { lines, role, .. } => Block::Paragraph {
            lines: all(&lines)?,
            quote: role == boss::Role::Quote,
        },
        boss::Block::List { items, .. } => list(&items)?,
        boss::Block::Table { rows, .. } => table(&rows)?,
    };
    Some(block)
}

/// Lines with something on them; nothing when there are none.
fn all(lines: &[boss::Line]) -> Option<Vec<Line>> {
    let lines: Vec<Line> = lines
        .iter()
        .map(|its| line(its, 0))
        .filter(|line| line.runs.iter().any(|run| !run.text.trim().is_empty()))
        .collect();
    (!lines.is_empty()).then_some(lines)
}

/// A line without its first `skip` characters.
fn line(line: &boss::Line, skip: usize) -> Line {
    let mut runs: Vec<Run> = Vec::new();
    let mut skip = skip;
    for inline in &line.inlines {
        let length = inline.text.chars().count();
        let text: String = inline.text.chars().skip(skip).collect();
        skip = skip.saturating_sub(length);
        let text = characters::clean(&text);
        match runs.last_mut() {
            Some(last) if last.code == inline.code => last.text.push_str(&text),
            _ => runs.push(Run {
                text: text.into_owned(),
                code: inline.code,
            }),
        }
    }
    Line {
        runs,
        x: line.x,
        end: line.end_x,
        y: line.y,
        size: line.size,
    }
}

/// A list, nested by how far in its items begin.
fn list(items: &[boss::ListItem]) -> Option<Block> {
    let mut levels: Vec<f32> = Vec::new();
    let mut taken = Vec::new();
    for item in items {
        let (Some(first), rest) = (item.lines.first(), item.lines.get(1..).unwrap_or(&[])) else {
            continue;
        };
        let near = first.size.max(1.0) * 0.6;
        while levels.len() > 1 && levels.last().is_some_and(|level| *level > first.x + near) {
            levels.pop();
        }
        if levels.last().is_none_or(|level| first.x > level + near) {
            levels.push(first.x);
        }
        let number = match item.marker {
            boss::Marker::Bullet => None,
            boss::Marker::Number(number) => Some(u64::from(number)),
        };
        let mut lines = vec![line(first, item.marker_len)];
        lines.extend(rest.iter().map(|its| line(its, 0)));
        taken.push(Item {
            number,
            depth: levels.len() - 1,
            lines,
        });
    }
    (!taken.is_empty()).then_some(Block::List { items: taken })
}

/// A table; nothing when all its cells are empty.
fn table(rows: &[Vec<boss::Cell>]) -> Option<Block> {
    let rows: Vec<Vec<Cell>> = rows
        .iter()
        .map(|row| row.iter().map(cell).collect())
        .collect();
    let filled = rows.iter().flatten().any(|cell| !cell.text.is_empty());
    filled.then_some(Block::Table { rows })
}

/// A cell. Those that another one covers are not among the engine's.
fn cell(cell: &boss::Cell) -> Cell {
    let text = cell.line.as_ref().map(|its| {
        let text: String = line(its, 0).runs.into_iter().map(|run| run.text).collect();
        text.trim().to_owned()
    });
    Cell {
        text: text.unwrap_or_default(),
        columns: usize::from(cell.colspan),
        rows: usize::from(cell.rowspan),
    }
}
