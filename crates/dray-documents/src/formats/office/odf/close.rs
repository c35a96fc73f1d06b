//! The handling of closing elements.

use super::state::{Para, Tag, Walker};
use super::styles::{Level, NumberFormat};
use crate::formats::collapse_white_space;
use crate::formats::office::blocks::{self, Block, GridCell};
use crate::formats::office::deck::Shape;
use crate::formats::office::figure;
use crate::formats::office::label::list_item;
use crate::limits::Failure;
use crate::markdown::{Inline, ListMarker, Markdown, visible_characters};
use crate::symbol_font::UNKNOWN_SYMBOLS_WARNING;

impl Walker {
    /// Handles the end of the innermost element.
    pub(super) fn close(&mut self, out: &mut Markdown) -> Result<(), Failure> {
        match self.tags.pop() {
            Some(Tag::Para) => self.end_para(out)?,
            Some(Tag::Span(look, hide, symbols)) => {
                (self.look, self.hide, self.symbols) = (look, hide, symbols);
            }
            Some(Tag::Section(outer_hidden)) => self.hidden_section = outer_hidden,
            Some(Tag::Link) => {
                if let Some(para) = self.paras.last_mut() {
                    para.text.end_link();
                }
            }
            Some(Tag::List) => {
                self.lists.pop();
            }
            Some(Tag::Note(is_endnote)) => {
                let blocks = self.end_aside();
                out.budget().element()?;
                if is_endnote {
                    self.notes.endnotes.push(blocks);
                } else {
                    self.notes.footnotes.push(blocks);
                }
            }
            Some(Tag::Annotation) => self.end_annotation(out)?,
            Some(Tag::Row(times)) => self.end_row(times, out)?,
            Some(Tag::Cell(times)) => self.end_cell(times),
            Some(Tag::Table) => {
                if let Some(table) = self.tables.pop() {
                    self.lists = table.lists;
                    // Without its text, a hidden table would be a grid of empty cells.
                    if !self.omits_text() {
                        self.put_after(vec![Block::Table(table.grid)], out)?;
                    }
                }
            }
            Some(Tag::TextBox) => {
                let blocks = self.end_aside();
                self.put_after(blocks, out)?;
            }
            Some(Tag::Frame) => self.end_frame(out)?,
            Some(Tag::Speaker) => {
                let blocks = self.end_aside();
                if let Some(slide) = &mut self.slide {
                    slide.notes = blocks;
                }
            }
            Some(Tag::Page) => {
                if let Some(slide) = self.slide.take() {
                    slide.write(out)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Puts blocks that are anchored in a paragraph after that paragraph.
    fn put_after(&mut self, blocks: Vec<Block>, out: &mut Markdown) -> Result<(), Failure> {
        if let Some(para) = self.paras.last_mut() {
            para.after.extend(blocks);
            return Ok(());
        }
        for block in blocks {
            self.sink.put(block, out)?;
        }
        Ok(())
    }

    fn end_para(&mut self, out: &mut Markdown) -> Result<(), Failure> {
        let Some(mut para) = self.paras.pop() else {
            return Ok(());
        };
        // The characters are counted here and not at the end of the document, so that the count is right when a limit
        // ends the conversion.
        self.hide = para.outer_hide;
        self.symbols = para.outer_symbols;
        if std::mem::take(&mut self.unknown_symbols) > 0 {
            out.warn(UNKNOWN_SYMBOLS_WARNING);
        }
        if para.hidden {
            self.hidden_characters += visible_characters(&para.text.to_plain());
        }
        out.count_hidden("character", std::mem::take(&mut self.hidden_characters));
        para.text.end_link();
        let after = std::mem::take(&mut para.after);
        if para.hidden && !self.show_hidden {
            para.text = Inline::new();
        }
        let block = self.block_of(para);
        self.sink.put(block, out)?;
        for block in after {
            self.sink.put(block, out)?;
        }
        Ok(())
    }

    fn block_of(&mut self, para: Para) -> Block {
        let style = para.style.as_deref().unwrap_or_default();
        let marker = self.marker(style);
        if let Some(level) = para.level.or_else(|| self.styles.title(style)) {
            return Block::Heading(level, para.text);
        }
        match marker {
            Some((depth, marker, label)) => list_item(depth, marker, &label, para.text),
            None => Block::Paragraph(para.text),
        }
    }

    /// Depth, marker and label of the next paragraph, if it is the first paragraph of a list item.
    fn marker(&mut self, style: &str) -> Option<(usize, ListMarker, String)> {
        let depth = self.lists.len().checked_sub(1)?;
        let list = self.lists.last_mut()?;
        // Further paragraphs of an item have no marker.
        if list.header || std::mem::replace(&mut list.marked, true) {
            return None;
        }
        let name = list
            .style
            .clone()
            .or_else(|| self.styles.list_of(style).map(str::to_owned))
            .unwrap_or_default();
        match self.styles.level(&name, depth) {
            Level::None => None,
            Level::Bullet => Some((depth, ListMarker::Bullet, String::new())),
            Level::Number(format) => {
                let next = list
                    .last
                    .map_or(format.first, |last| last.saturating_add(1));
                let number = list.start.take().unwrap_or(next);
                list.last = Some(number);
                let label = self.number_label(&format, &name);
                self.counts.insert((name, depth), number);
                Some((depth, ListMarker::Number(number), label))
            }
        }
    }

    /// The number of the innermost item, after those of the items around it if the format shows them.
    fn number_label(&self, format: &NumberFormat, style: &str) -> String {
        let hidden_levels = self.lists.len().saturating_sub(format.shown_levels.max(1));
        let levels = self.lists.iter().enumerate().skip(hidden_levels);
        let numbers: Vec<String> = levels
            .filter_map(|(depth, list)| match self.styles.level(style, depth) {
                Level::Number(format) => Some(format.spelling.spell(list.last?)),
                Level::Bullet | Level::None => None,
            })
            .collect();
        let label = format!("{}{}{}", format.prefix, numbers.join("."), format.suffix);
        label.trim().to_owned()
    }

    fn end_annotation(&mut self, out: &Markdown) -> Result<(), Failure> {
        out.budget().element()?;
        let text = blocks::one_line(self.end_aside()).to_plain();
        let comment = (std::mem::take(&mut self.author), text);
        match &mut self.slide {
            Some(slide) => slide.comments.push(comment),
            None => self.comments.push(comment),
        }
        Ok(())
    }

    fn end_cell(&mut self, times: usize) {
        let lines = blocks::lines_of_blocks(self.sink.end());
        let Some(table) = self.tables.last_mut() else {
            return;
        };
        for _ in 0..times {
            table.cells.push(GridCell {
                lines: lines.clone(),
                columns: 1,
                rows: 1,
            });
        }
    }

    fn end_row(&mut self, times: u64, out: &Markdown) -> Result<(), Failure> {
        let Some(table) = self.tables.last_mut() else {
            return Ok(());
        };
        let cells = std::mem::take(&mut table.cells);
        if cells.is_empty() {
            return Ok(());
        }
        let blank = cells.iter().all(|cell| cell.lines.is_empty());
        // Writers often repeat an empty row to the end of a page or sheet; one copy is enough.
        let extra_rows = if blank { 0 } else { times - 1 };
        for _ in 0..extra_rows {
            let copy = cells.iter().map(|cell| GridCell {
                lines: cell.lines.clone(),
                columns: cell.columns,
                rows: cell.rows,
            });
            table.grid.row(copy.collect(), out)?;
        }
        table.grid.row(cells, out)?;
        Ok(())
    }

    fn end_frame(&mut self, out: &mut Markdown) -> Result<(), Failure> {
        let Some(frame) = self.frames.pop() else {
            return Ok(());
        };
        let mut blocks = if frame.shape {
            self.end_aside()
        } else {
            Vec::new()
        };
        let alt = collapse_white_space(&frame.alt);
        if self.is_hidden() {
            self.hidden_characters += visible_characters(&alt);
        }
        if self.omits_text() {
            // The object or image is left out; text in the frame was left out before.
        } else if let Some(object) = &frame.object {
            let name = figure::part_name(object.trim_end_matches('/'));
            let name = if name.is_empty() { alt.as_str() } else { name };
            blocks.push(Block::Paragraph(figure::embedded_note(name)));
        } else if let Some(image) = &frame.image {
            let name = figure::part_name(image);
            let mut text = Inline::new();
            text.image(&alt, name);
            match self.paras.last_mut() {
                Some(para) if !frame.shape => {
                    para.text.append(text);
                    para.blank = false;
                }
                _ => blocks.push(Block::Paragraph(text)),
            }
        }
        self.hidden_section = frame.outer_hidden;
        match &mut self.slide {
            Some(slide) if frame.shape => {
                slide.shapes.push(Shape {
                    title: frame.title,
                    position: frame.position,
                    blocks,
                });
                Ok(())
            }
            _ => self.put_after(blocks, out),
        }
    }
}
