//! PDF (read-attachment 7.9).
//!
//! An [`engine::Engine`] reads the file page by page; it returns blocks in reading order, which are joined into
//! paragraphs here and written. The present engine is `pdfboss`, which only [`boss`] uses.

mod annotations;
mod blocks;
mod boss;
mod characters;
mod code;
mod columns;
mod emphasis;
mod engine;
mod fields;
mod join;
mod layout;
mod marks;
mod markup;
mod metered;
mod scan;
mod sizes;
mod spans;
#[cfg(test)]
mod tests;
mod vertical;
mod visibility;
mod watermark;

use std::io::Read;

use self::engine::{Block, Engine, Line, Page, PageError, Run};
use self::markup::PageComment;
use super::office::write_plain_comments;
use super::{ConversionHint, Converter};
use crate::attachment::write_attachments;
use crate::container::Input;
use crate::limits::{Damage, Failure, Limit};
use crate::markdown::{Cell, Inline, ListMarker, Markdown, Selection, Unit};

/// One media type for each converter, with its extension.
pub(super) const SAMPLES: &[(&str, &str)] = &[("application/pdf", "pdf")];

/// The converter of this family for a media type.
pub(super) fn converter(hint: &ConversionHint) -> Option<Converter> {
    matches!(hint.mime.as_str(), "application/pdf" | "application/x-pdf").then_some(Converter {
        name: "pdf",
        convert,
    })
}

/// Reads the complete file, as the engine requires, and writes it page by page.
fn convert(
    input: &mut dyn Input,
    _hint: &ConversionHint,
    out: &mut Markdown,
) -> Result<(), Failure> {
    let data = read_whole(input, out)?;
    let budget = std::rc::Rc::clone(out.budget());
    let mut engine = boss::PdfBoss::open(data, &budget)?.with_hidden_text(out.shows_hidden());
    write_pages(&mut engine, out)
}

/// The bytes of the file. The caller has already limited its size; here only the memory budget is checked.
fn read_whole(input: &mut dyn Input, out: &Markdown) -> Result<Vec<u8>, Failure> {
    let max_bytes = out.budget().limits().max_inflated_bytes;
    let mut data = Vec::new();
    input
        .take(max_bytes.saturating_add(1))
        .read_to_end(&mut data)
        .map_err(|_| Failure::Corrupt(Damage::Truncated))?;
    if data.len() as u64 > max_bytes {
        return Err(Failure::Stopped(Limit::Size));
    }
    Ok(data)
}

/// The errors of the pages so far.
#[derive(Default)]
struct PageTally {
    /// The first limit that a page ran into, otherwise the first damage.
    error: Option<PageError>,
}

impl PageTally {
    fn add(&mut self, error: PageError) {
        if !matches!(self.error, Some(PageError::Limit(_))) {
            self.error = Some(error);
        }
    }
}

/// Writes the selected pages, then the form.
fn write_pages(engine: &mut dyn Engine, out: &mut Markdown) -> Result<(), Failure> {
    let pages = engine.pages();
    if pages == 0 {
        return Err(Failure::Corrupt(Damage::MissingPart));
    }
    let mut tally = PageTally::default();
    let mut comments = Vec::new();
    for number in 1..=pages {
        out.budget().clock()?;
        out.budget().inflated(0)?;
        if out.part(Unit::Page, number, None)? {
            let found = write_page(engine, number, &mut tally, out)?;
            comments.extend(found.into_iter().map(|comment| labelled(comment, number)));
        }
    }
    // Fields without a place on a page belong to no selection of pages.
    if matches!(out.selection(), Selection::All) {
        write_form(engine, out)?;
    }
    write_plain_comments(&comments, out)?;
    // Without any text, the result depends on whether the document has none or none could be read.
    match tally.error {
        Some(PageError::Limit(limit)) => Err(Failure::Stopped(limit)),
        _ if !out.is_empty() => {
            // They belong to no page.
            if matches!(out.selection(), Selection::All) {
                write_attachments(&engine.attachments(), out)?;
            }
            Ok(())
        }
        None => Err(Failure::NoText),
        Some(PageError::Damaged) => Err(Failure::Corrupt(engine.damage())),
    }
}

/// The person with the page, and the comment.
fn labelled(comment: PageComment, page: u32) -> (String, String) {
    let author = match comment.author.as_str() {
        "" => format!("page {page}"),
        name => format!("{name}, page {page}"),
    };
    (author, comment.text)
}

/// Writes one page and returns its comments. A page that fails is skipped with a warning, unless a limit of the
/// complete conversion is reached.
fn write_page(
    engine: &mut dyn Engine,
    number: u32,
    tally: &mut PageTally,
    out: &mut Markdown,
) -> Result<Vec<PageComment>, Failure> {
    match engine.page(number) {
        Ok(mut page) => {
            if page.incomplete {
                out.warn(format!("a part of page {number} could not be read"));
                tally.add(PageError::Damaged);
            }
            if let Some(limit) = page.cut {
                out.warn(format!("page {number} is too large and was cut off"));
                tally.add(PageError::Limit(limit));
            }
            out.count_hidden("character", page.hidden_characters);
            if page.unreadable {
                out.warn(format!(
                    "page {number} has text in a font that does not say what its characters are"
                ));
            }
            let is_picture = page.is_picture;
            let comments = std::mem::take(&mut page.comments);
            write_body(page, out)?;
            if is_picture && out.wants_pictures() {
                write_picture(engine, number, out)?;
            }
            Ok(comments)
        }
        Err(PageError::Limit(limit)) => {
            out.warn(format!("page {number} is too large to be read"));
            // A limit of the complete conversion is checked before the next page.
            tally.add(PageError::Limit(limit));
            Ok(Vec::new())
        }
        Err(PageError::Damaged) => {
            out.warn(format!("page {number} could not be read"));
            tally.add(PageError::Damaged);
            Ok(Vec::new())
        }
    }
}

/// Adds the picture of a page that consists of a picture.
fn write_picture(engine: &mut dyn Engine, number: u32, out: &mut Markdown) -> Result<(), Limit> {
    if !out.accepts_images() {
        // The page is noted without its images; the note then suggests a range of pages.
        return out.picture(Some(number), Vec::new());
    }
    let images = engine.images(number);
    if images.is_empty() {
        out.warn(format!(
            "page {number} is a picture of a kind whose text cannot be recognised"
        ));
        return Ok(());
    }
    out.picture(Some(number), images)
}

/// The blocks of a page.
fn write_body(page: Page, out: &mut Markdown) -> Result<(), Limit> {
    // The edges are computed from all blocks together, because one block does not show how wide its column is.
    let edges = join::ColumnEdges::of(&page.blocks, page.width);
    let mut flow = join::Flow::default();
    let mut code: Vec<Line> = Vec::new();
    for (index, block) in page.blocks.into_iter().enumerate() {
        if let Some(lines) = code::lines_of(&block) {
            end_flow(&mut flow, out)?;
            code.extend_from_slice(lines);
            continue;
        }
        end_code(&mut code, out)?;
        if let Block::Paragraph {
            lines,
            quote: false,
        } = &block
        {
            for paragraph in flow.take(lines, edges.at(index)) {
                out.paragraph(&to_inline(&paragraph))?;
            }
            continue;
        }
        end_flow(&mut flow, out)?;
        write_block(block, edges.at(index), out)?;
    }
    end_flow(&mut flow, out)?;
    end_code(&mut code, out)?;
    write_watermarks(&page.watermarks, out)
}

/// Writes the paragraph that is still open.
fn end_flow(flow: &mut join::Flow, out: &mut Markdown) -> Result<(), Limit> {
    match flow.end() {
        Some(paragraph) => out.paragraph(&to_inline(&paragraph)),
        None => Ok(()),
    }
}

/// Writes the lines of code that were collected: one as a paragraph, several as a block.
fn end_code(code: &mut Vec<Line>, out: &mut Markdown) -> Result<(), Limit> {
    let lines = std::mem::take(code);
    match lines.len() {
        0 => Ok(()),
        1 => out.paragraph(&to_inline(&join::join_lines(&lines))),
        _ => out.code("", &code::text(&lines)),
    }
}

/// Writes each watermark as a note at the end of the page.
fn write_watermarks(texts: &[String], out: &mut Markdown) -> Result<(), Limit> {
    texts.iter().try_for_each(|text| {
        let mut note = Inline::new();
        note.raw("_(watermark: ");
        note.append(Inline::plain(text));
        note.raw(")_");
        out.paragraph(&note)
    })
}

/// Writes a block that no later block continues.
fn write_block(block: Block, column: join::Column, out: &mut Markdown) -> Result<(), Limit> {
    match block {
        Block::Heading { level, lines } => {
            out.heading(level, &to_inline(&join::join_lines(&lines)))
        }
        Block::Paragraph { lines, .. } => {
            out.open_quote();
            let written = join::join_paragraphs(&lines, column)
                .iter()
                .try_for_each(|paragraph| out.paragraph(&to_inline(paragraph)));
            // The quote is closed even after a limit, otherwise the quote would include the following blocks.
            out.close();
            written
        }
        Block::List { items } => items.iter().try_for_each(|item| {
            let marker = item.number.map_or(ListMarker::Bullet, ListMarker::Number);
            out.item(
                item.depth,
                marker,
                &to_inline(&join::join_lines(&item.lines)),
            )
        }),
        Block::Table { rows } => write_table(rows, out),
    }
}

/// Joined runs as inline text. A link whose text equals its target becomes plain text.
fn to_inline(runs: &[Run]) -> Inline {
    let mut inline = Inline::new();
    for linked in runs.chunk_by(|left, right| left.link == right.link) {
        let text: String = linked.iter().map(|run| run.text.as_str()).collect();
        let link = linked.first().and_then(|run| run.link.as_deref());
        let link = link.filter(|url| !text.trim().is_empty() && !is_address(&text, url));
        if let Some(url) = link {
            inline.begin_link(url);
        }
        for run in linked {
            inline.text(&run.text, run.style);
        }
        if link.is_some() {
            inline.end_link();
        }
    }
    inline
}

/// Whether a text is the address of its own link.
fn is_address(text: &str, url: &str) -> bool {
    let bare = |text: &str| {
        let text = text.trim().trim_end_matches('/');
        let text = text.strip_prefix("mailto:").unwrap_or(text);
        text.to_ascii_lowercase()
    };
    bare(text) == bare(url)
}

/// A table; rows beyond the first thousand are counted.
fn write_table(rows: Vec<Vec<engine::Cell>>, out: &mut Markdown) -> Result<(), Limit> {
    let mut table = out.new_table();
    for (index, row) in rows.into_iter().enumerate() {
        out.budget().element()?;
        let number = index as u64 + 1;
        if table.wants(number) {
            let cell = |cell: &engine::Cell| {
                Cell::new(&to_inline(&cell.runs))
                    .columns(cell.columns)
                    .rows(cell.rows)
            };
            table.row(number, row.iter().map(cell).collect());
        } else {
            table.skip(number);
        }
    }
    out.table(table)
}

/// The filled fields of the form: `{label}: {value}` for each field.
fn write_form(engine: &mut dyn Engine, out: &mut Markdown) -> Result<(), Limit> {
    for field in engine.fields() {
        out.paragraph(&Inline::plain(&format!("{}: {}", field.label, field.value)))?;
    }
    Ok(())
}
