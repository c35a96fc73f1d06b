//! The handling of closing elements.

use super::state::{Note, Para, Tag, Walker};
use crate::formats::office::blocks::{self, Block, GridCell};
use crate::formats::office::label;
use crate::limits::Failure;
use crate::markdown::Markdown;
use crate::symbol_font::UNKNOWN_SYMBOLS_WARNING;

impl Walker {
    /// Handles the end of the innermost element.
    pub(super) fn close(&mut self, out: &mut Markdown) -> Result<(), Failure> {
        match self.tags.pop() {
            Some(Tag::Para) => self.end_para(out)?,
            Some(Tag::Run(outer_run)) => self.run = outer_run,
            Some(Tag::Drawing(outer_hidden)) => self.hidden_drawing = outer_hidden,
            Some(Tag::Link(true)) => {
                if let Some(para) = self.paras.last_mut() {
                    para.text.end_link();
                }
            }
            Some(Tag::Math(group)) => self.end_math(&group),
            Some(Tag::Cell) => self.end_cell(),
            Some(Tag::Row) => self.end_row(out)?,
            Some(Tag::Table) => {
                if let Some(table) = self.tables.pop() {
                    self.sink.put(Block::Table(table.grid), out)?;
                }
            }
            Some(Tag::Box(fields)) => {
                self.fields = fields;
                let blocks = self.sink.end();
                self.anchor(blocks, out)?;
            }
            Some(Tag::Note { id, author }) => {
                out.budget().element()?;
                let text = blocks::one_line(self.sink.end());
                self.collected.push(Note { id, author, text });
            }
            _ => {}
        }
        Ok(())
    }

    fn end_para(&mut self, out: &mut Markdown) -> Result<(), Failure> {
        let Some(mut para) = self.paras.pop() else {
            return Ok(());
        };
        out.count_hidden("character", std::mem::take(&mut self.hidden_characters));
        if std::mem::take(&mut self.unknown_symbols) {
            out.warn(UNKNOWN_SYMBOLS_WARNING);
        }
        // A link that is still open continues in the next paragraph, which begins it again.
        para.text.end_link();
        let after = std::mem::take(&mut para.after);
        if para.merges {
            self.carried = Some(para.text);
        } else {
            let block = self.block_of(para);
            self.sink.put(block, out)?;
        }
        for block in after {
            self.sink.put(block, out)?;
        }
        Ok(())
    }

    /// The role of a paragraph: heading, item or plain.
    fn block_of(&mut self, para: Para) -> Block {
        let style = para.style.as_deref();
        let heading = match para.outline {
            Some(level @ 0..=8) => Some(level + 1),
            // Level 9 is body text, and overrides the level of the style.
            Some(_) => None,
            None => style.and_then(|id| self.styles.heading(id)),
        };
        let mut listed = para.listed.clone();
        if listed.definition.is_none()
            && let Some(id) = style
        {
            let of_style = self.styles.listed(id);
            listed.definition = of_style.definition;
            listed.level = listed.level.or(of_style.level);
        }
        let numbered = self.numbering.next(&listed, style);
        match (heading, numbered) {
            (Some(level), Some(numbered))
                if !numbered.label.is_empty() && !para.text.is_blank() =>
            {
                Block::Heading(level, label::labelled(&numbered.label, para.text))
            }
            (Some(level), _) => Block::Heading(level, para.text),
            (None, Some(numbered)) => {
                label::list_item(numbered.depth, numbered.marker, &numbered.label, para.text)
            }
            (None, None) => Block::Paragraph(para.text),
        }
    }

    fn end_cell(&mut self) {
        let lines = blocks::lines_of_blocks(self.sink.end());
        let Some(table) = self.tables.last_mut() else {
            return;
        };
        table.cells.push(GridCell {
            // The text of merged cells is in the first one.
            lines: if table.continues { Vec::new() } else { lines },
            columns: table.span,
            rows: 1,
        });
    }

    fn end_row(&mut self, out: &mut Markdown) -> Result<(), Failure> {
        let Some(table) = self.tables.last_mut() else {
            return Ok(());
        };
        let mut cells = std::mem::take(&mut table.cells);
        if table.row_deleted || cells.is_empty() {
            return Ok(());
        }
        if table.after_row > 0 {
            cells.push(GridCell {
                columns: table.after_row,
                ..GridCell::default()
            });
        }
        table.grid.row(cells, out)?;
        Ok(())
    }
}
