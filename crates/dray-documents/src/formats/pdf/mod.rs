//! PDF (read-attachment 7.9).
//!
//! An [`engine::Engine`] reads the file page by page; what it gives are blocks in reading order, which are joined into
//! paragraphs here and written. The engine in use is `pdfboss`, behind [`boss`] alone.

mod blocks;
mod boss;
mod characters;
mod engine;
mod fields;
mod join;
mod metered;
mod sizes;
#[cfg(test)]
mod tests;

use std::io::Read;

use self::engine::{Block, Engine, Page, Trouble};
use super::{Converter, Hint};
use crate::container::Input;
use crate::limits::{Damage, Failure, Limit};
use crate::markdown::{Cell, Inline, Markdown, Marker, Selection, Style, Unit};

/// The converter of this family for a media type.
pub(super) fn converter(hint: &Hint) -> Option<Converter> {
    matches!(hint.mime.as_str(), "application/pdf" | "application/x-pdf").then_some(Converter {
        name: "pdf",
        convert,
    })
}

/// Reads the file whole, which the engine needs, and writes it page by page.
fn convert(input: &mut dyn Input, _hint: &Hint, out: &mut Markdown) -> Result<(), Failure> {
    let data = whole(input, out)?;
    let budget = std::rc::Rc::clone(out.budget());
    let mut engine = boss::Boss::open(data, &budget)?;
    write(&mut engine, out)
}

/// The bytes of the file. Its size is limited before, by what a caller may hand over; here only memory is minded.
fn whole(input: &mut dyn Input, out: &Markdown) -> Result<Vec<u8>, Failure> {
    let most = out.budget().limits().max_inflated_bytes;
    let mut data = Vec::new();
    input
        .take(most.saturating_add(1))
        .read_to_end(&mut data)
        .map_err(|_| Failure::Corrupt(Damage::Truncated))?;
    if data.len() as u64 > most {
        return Err(Failure::Stopped(Limit::Size));
    }
    Ok(data)
}

/// What became of the pages.
#[derive(Default)]
struct Tally {
    /// The first thing that went wrong with a page.
    trouble: Option<Trouble>,
}

/// Writes all wanted pages and the form.
fn write(engine: &mut dyn Engine, out: &mut Markdown) -> Result<(), Failure> {
    let pages = engine.pages();
    if pages == 0 {
        return Err(Failure::Corrupt(Damage::MissingPart));
    }
    let mut tally = Tally::default();
    for number in 1..=pages {
        out.budget().clock()?;
        out.budget().inflated(0)?;
        if out.part(Unit::Page, number, None)? {
            one(engine, number, &mut tally, out)?;
        }
    }
    if matches!(out.selection(), Selection::All) {
        form(engine, out)?;
    }
    if !out.is_empty() {
        return Ok(());
    }
    // Without a word of text it matters whether there was none or none could be read.
    match tally.trouble {
        None => Err(Failure::NoText),
        Some(Trouble::Limit(limit)) => Err(Failure::Stopped(limit)),
        Some(Trouble::Damaged) => Err(Failure::Corrupt(Damage::Malformed)),
    }
}

/// Writes one page. One that fails is passed over with a warning, unless a limit of the whole conversion is reached.
fn one(
    engine: &mut dyn Engine,
    number: u32,
    tally: &mut Tally,
    out: &mut Markdown,
) -> Result<(), Failure> {
    match engine.page(number) {
        Ok(page) => {
            if page.incomplete {
                out.warn(format!("a part of page {number} could not be read"));
                tally.trouble.get_or_insert(Trouble::Damaged);
            }
            if page.unreadable {
                out.warn(format!(
                    "page {number} has text in a font that does not say what its characters are"
                ));
            }
            body(page, out)?;
            Ok(())
        }
        Err(Trouble::Limit(limit)) => {
            out.warn(format!("page {number} is too large to be read"));
            tally.trouble.get_or_insert(Trouble::Limit(limit));
            // Whether a limit of the whole conversion is reached is asked before the next page.
            Ok(())
        }
        Err(Trouble::Damaged) => {
            out.warn(format!("page {number} could not be read"));
            tally.trouble.get_or_insert(Trouble::Damaged);
            Ok(())
        }
    }
}

/// The blocks of a page.
fn body(page: Page, out: &mut Markdown) -> Result<(), Limit> {
    let edges = join::Edges::of(&page.blocks);
    for (at, block) in page.blocks.into_iter().enumerate() {
        match block {
            Block::Heading { level, lines } => {
                out.heading(level, &Inline::plain(&join::one_line(&lines)))?;
            }
            Block::Paragraph { lines, quote } => {
                if quote {
                    out.open_quote();
                }
                let written = paragraphs(&lines, edges.at(at), out);
                if quote {
                    out.close();
                }
                written?;
            }
            Block::List { items } => {
                for item in items {
                    let marker = item.number.map_or(Marker::Bullet, Marker::Number);
                    let text = inline(&join::flow(&item.lines));
                    out.item(item.depth, marker, &text)?;
                }
            }
            Block::Table { rows } => table(rows, out)?,
        }
    }
    Ok(())
}

/// The paragraphs that a run of lines holds.
fn paragraphs(lines: &[engine::Line], edges: (f32, f32), out: &mut Markdown) -> Result<(), Limit> {
    for paragraph in join::paragraphs(lines, edges) {
        out.paragraph(&inline(&paragraph))?;
    }
    Ok(())
}

/// Joined runs as inline text.
fn inline(runs: &[engine::Run]) -> Inline {
    let mut inline = Inline::new();
    for run in runs {
        let style = Style {
            code: run.code,
            ..Style::default()
        };
        inline.text(&run.text, style);
    }
    inline
}

/// A table.
fn table(rows: Vec<Vec<String>>, out: &mut Markdown) -> Result<(), Limit> {
    let mut table = out.new_table();
    for (index, row) in rows.into_iter().enumerate() {
        out.budget().element()?;
        let number = index as u64 + 1;
        if table.wants(number) {
            table.row(number, row.iter().map(|cell| Cell::plain(cell)).collect());
        } else {
            table.skip(number);
        }
    }
    out.table(table)
}

/// What was filled into the form: `{label}: {value}` for each field.
fn form(engine: &mut dyn Engine, out: &mut Markdown) -> Result<(), Limit> {
    for field in engine.fields() {
        out.paragraph(&Inline::plain(&format!("{}: {}", field.label, field.value)))?;
    }
    Ok(())
}
