//! The characters of a document, from piece to piece, and the meaning of special ones (MS-DOC 2.4, 2.8.25).

use std::collections::HashMap;
use std::ops::Range;

use super::file::{File, TextPiece};
use super::fonts::Fonts;
use super::lists::read_lists;
use super::runs::{self, CharacterFormat, ParagraphFormat, Runs, ToggleValue};
use super::styles::Styles;
use crate::compound::{u8_at, u16_at};
use crate::formats::office::blocks::{self, Block, Grid, GridCell, Sink};
use crate::formats::office::docx::field::{self, Field};
use crate::formats::office::docx::numbering::{NumberedLabel, Numbering};
use crate::formats::office::label::{labelled, list_item};
use crate::limits::{Budget, Failure, Limit};
use crate::markdown::{Inline, Markdown, Style};
use crate::symbol_font::{UNKNOWN_SYMBOLS_WARNING, symbol_of_field};

/// Characters between two checks of the time limit.
const CHARACTERS_PER_CHECK: usize = 4096;
/// Most fields within each other.
const MAX_FIELDS: usize = 64;
/// Most cells of one row.
const MAX_CELLS: usize = 1024;

/// The walk over the text.
pub(super) struct Walker<'f> {
    file: &'f File,
    pieces: Vec<TextPiece>,
    characters: Runs<CharacterFormat>,
    paragraphs: Runs<ParagraphFormat>,
    styles: Styles,
    lists: Numbering,
    fonts: Fonts,
    /// The text of references to notes, by the position of the character.
    pub(super) references: HashMap<usize, String>,
    /// The characters of windows-1252, by byte.
    narrow: Vec<char>,
    sink: Sink,
    line: Inline,
    /// Text of the open run.
    run: String,
    /// Format of the open run.
    style: Style,
    fields: Vec<Field>,
    table: Option<Grid>,
    row: Vec<GridCell>,
    cell: Vec<Inline>,
    pending: u64,
    hidden: u64,
}

impl<'f> Walker<'f> {
    pub(super) fn new(
        file: &'f File,
        pieces: Vec<TextPiece>,
        budget: &Budget,
    ) -> Result<Self, Failure> {
        let all_bytes: Vec<u8> = (0..=u8::MAX).collect();
        Ok(Self {
            file,
            pieces,
            characters: runs::character_runs(file, budget)?,
            paragraphs: runs::paragraph_runs(file, budget)?,
            styles: Styles::read(file),
            lists: read_lists(file),
            fonts: Fonts::read(file),
            references: HashMap::new(),
            narrow: encoding_rs::WINDOWS_1252
                .decode_without_bom_handling(&all_bytes)
                .0
                .chars()
                .collect(),
            sink: Sink::default(),
            line: Inline::new(),
            run: String::new(),
            style: Style::default(),
            fields: Vec::new(),
            table: None,
            row: Vec::new(),
            cell: Vec::new(),
            pending: 0,
            hidden: 0,
        })
    }

    /// Writes the text between two characters.
    pub(super) fn write(&mut self, range: Range<usize>, out: &mut Markdown) -> Result<(), Failure> {
        let walked = self.walk(range, out);
        let ended = self.end_story(out);
        if walked.is_err()
            && let Some(table) = self.table.take()
        {
            table.write_so_far(out)?;
        }
        walked?;
        ended
    }

    /// The text between two characters as one line.
    pub(super) fn line(
        &mut self,
        range: Range<usize>,
        out: &mut Markdown,
    ) -> Result<Inline, Failure> {
        self.sink.begin();
        let walked = self.write(range, out);
        let blocks = self.sink.end();
        walked?;
        Ok(blocks::one_line(blocks))
    }

    fn walk(&mut self, range: Range<usize>, out: &mut Markdown) -> Result<(), Failure> {
        let first = self
            .pieces
            .partition_point(|piece| piece.end <= range.start);
        let pieces: Vec<TextPiece> = self
            .pieces
            .iter()
            .skip(first)
            .take_while(|piece| piece.first < range.end)
            .copied()
            .collect();
        for piece in pieces {
            self.walk_piece(piece, &range, out)?;
        }
        Ok(())
    }

    fn walk_piece(
        &mut self,
        piece: TextPiece,
        range: &Range<usize>,
        out: &mut Markdown,
    ) -> Result<(), Failure> {
        let width = if piece.narrow { 1 } else { 2 };
        let mut high_surrogate = None;
        for position in piece.first.max(range.start)..piece.end.min(range.end) {
            if position.is_multiple_of(CHARACTERS_PER_CHECK) {
                out.budget().clock()?;
            }
            let Some(offset) = (position - piece.first)
                .checked_mul(width)
                .and_then(|skipped| skipped.checked_add(piece.offset))
            else {
                return Ok(());
            };
            let character = if piece.narrow {
                u8_at(&self.file.main, offset)
                    .and_then(|byte| self.narrow.get(usize::from(byte)).copied())
            } else {
                u16_at(&self.file.main, offset).map(|unit| utf_16(unit, &mut high_surrogate))
            };
            // Beyond the end of the file, a piece has no text.
            let Some(character) = character else {
                return Ok(());
            };
            if character != '\0' {
                self.handle_character(character, position, offset, out)?;
            }
        }
        Ok(())
    }

    /// Handles one character at its positions in the text and in the file. Marks close the open paragraph or cell.
    fn handle_character(
        &mut self,
        character: char,
        position: usize,
        offset: usize,
        out: &mut Markdown,
    ) -> Result<(), Failure> {
        match character {
            '\r' | '\u{c}' | '\u{7}' => return self.end_paragraph(character, offset, out),
            '\u{13}' if self.fields.len() < MAX_FIELDS => {
                self.end_run();
                self.fields.push(Field::Instruction(String::new()));
                return Ok(());
            }
            '\u{14}' => {
                self.separate_field();
                return Ok(());
            }
            '\u{15}' => {
                self.end_field(out);
                return Ok(());
            }
            _ => {}
        }
        self.handle_text(character, position, offset, out)
    }

    /// One character that is not a mark of a paragraph, cell or field.
    fn handle_text(
        &mut self,
        character: char,
        position: usize,
        offset: usize,
        out: &mut Markdown,
    ) -> Result<(), Failure> {
        if let Some(field @ Field::Instruction(_)) = self.fields.last_mut() {
            field.append_instruction(character.encode_utf8(&mut [0; 4]));
            return Ok(());
        }
        // A field inside the instruction of another one computes part of that instruction, and its result is not shown.
        if self
            .fields
            .iter()
            .any(|field| matches!(field, Field::Instruction(_)))
        {
            return Ok(());
        }
        // A tracked deletion counts as accepted, so its text is not shown.
        let format = self.characters.at(offset);
        if format.deleted {
            return Ok(());
        }
        if self.is_hidden(format, offset) {
            self.hidden += u64::from(!character.is_whitespace());
            if !out.shows_hidden() {
                return Ok(());
            }
        }
        if format.style != self.style {
            self.end_run();
            self.style = format.style;
        }
        let character = self.shown_character(character, format, out);
        match character {
            '\u{2}' => {
                self.end_run();
                if let Some(mark) = self.references.get(&position) {
                    self.line.raw(mark);
                }
            }
            '\u{b}' => {
                self.end_run();
                self.line.line_break();
            }
            '\u{1e}' => self.run.push('-'),
            '\t' | '\u{e}' => self.run.push(' '),
            control if control.is_control() || control == '\u{1f}' => {}
            // Spaces before the text of a note or a paragraph are not shown.
            ' ' if self.run.is_empty() && self.line.is_blank() => {}
            visible => self.run.push(visible),
        }
        // The character is counted before the block is written, so that one endless paragraph cannot take all memory.
        self.pending += character.len_utf8() as u64;
        if self.pending > out.budget().text_left() {
            return Err(Limit::Size.into());
        }
        Ok(())
    }

    /// Whether a character is hidden, by its own format or by the styles of its run and its paragraph.
    fn is_hidden(&mut self, format: CharacterFormat, offset: usize) -> bool {
        let by_styles = self.styles.any_hides && {
            let by_paragraph = self.styles.hides(self.paragraphs.at(offset).style);
            let style = format.character_style;
            // Two styles that both hide text show it (MS-DOC 2.4.6.2, toggle properties).
            by_paragraph != style.is_some_and(|style| self.styles.hides(style))
        };
        match format.hidden {
            None | Some(ToggleValue::Same) => by_styles,
            Some(ToggleValue::Opposite) => !by_styles,
            Some(value) => value == ToggleValue::On,
        }
    }

    /// The character that a person sees for one of the text: of a symbol, or of the font of its text.
    fn shown_character(
        &self,
        character: char,
        format: CharacterFormat,
        out: &mut Markdown,
    ) -> char {
        let font = format.font.and_then(|font| self.fonts.symbols(font));
        let shown = match (format.symbol, font) {
            (Some(symbol), _) => self.fonts.symbol(symbol),
            (None, Some(font)) => font.translate(character),
            (None, None) => return character,
        };
        if shown == char::REPLACEMENT_CHARACTER {
            out.warn(UNKNOWN_SYMBOLS_WARNING);
        }
        shown
    }

    /// A field ends. One without a result shows its symbol, if it names one.
    fn end_field(&mut self, out: &mut Markdown) {
        self.end_run();
        match self.fields.pop() {
            Some(Field::Result(Some(_))) => self.line.end_link(),
            Some(Field::Instruction(instruction)) => {
                let is_shown = self.fields.is_empty();
                if let Some(symbol) = symbol_of_field(&instruction).filter(|_| is_shown) {
                    if symbol == char::REPLACEMENT_CHARACTER {
                        out.warn(UNKNOWN_SYMBOLS_WARNING);
                    }
                    self.run.push(symbol);
                }
            }
            _ => {}
        }
    }

    /// A field's instruction ends and its result begins.
    fn separate_field(&mut self) {
        if let Some(Field::Instruction(instruction)) = self.fields.pop() {
            let target = field::hyperlink_target(&instruction);
            if let Some(target) = &target {
                self.line.begin_link(target);
            }
            self.fields.push(Field::Result(target));
        }
    }

    fn end_run(&mut self) {
        let run = std::mem::take(&mut self.run);
        if !run.is_empty() {
            self.line.text(&run, self.style);
        }
    }

    /// A paragraph, a cell or a row ends.
    fn end_paragraph(
        &mut self,
        mark: char,
        offset: usize,
        out: &mut Markdown,
    ) -> Result<(), Failure> {
        let format = self.paragraphs.at(offset);
        self.end_run();
        self.pending = 0;
        out.count_hidden("character", std::mem::take(&mut self.hidden));
        let line = std::mem::take(&mut self.line);
        if mark == '\u{7}' {
            if format.ends_row {
                return self.end_row(out);
            }
            let numbered = self.number(format);
            self.cell.push(numbered_line(numbered, line));
            self.end_cell();
            return Ok(());
        }
        let numbered = self.number(format);
        if format.in_table {
            if !line.is_blank() {
                self.cell.push(numbered_line(numbered, line));
            }
            return Ok(());
        }
        self.end_table(out)?;
        let outline = format
            .outline
            .filter(|level| *level < 9)
            .map(|level| level + 1);
        let block = match (outline.or(self.styles.heading(format.style)), numbered) {
            (Some(level), numbered) => Block::Heading(level, numbered_line(numbered, line)),
            (None, Some(item)) => list_item(item.depth, item.marker, &item.label, line),
            (None, None) => Block::Paragraph(line),
        };
        Ok(self.sink.put(block, out)?)
    }

    /// The marker and the number of a paragraph, if it is an item of a list. Counts the item.
    fn number(&mut self, format: ParagraphFormat) -> Option<NumberedLabel> {
        let (list, level) = self.styles.list(format.style);
        // Values from 0xF801 on remove the paragraph from its list (MS-DOC 2.6.2, sprmPIlfo).
        let list = format
            .list
            .or(list)
            .filter(|list| (1..0xF801).contains(list))?;
        let level = format.list_level.or(level).unwrap_or(0);
        let level = usize::from(level.min(8));
        self.lists.next_of(&list.to_string(), Some(level), None)
    }

    fn end_cell(&mut self) {
        let lines = std::mem::take(&mut self.cell);
        if self.row.len() < MAX_CELLS {
            self.row.push(GridCell {
                lines,
                columns: 1,
                rows: 1,
            });
        }
    }

    fn end_row(&mut self, out: &mut Markdown) -> Result<(), Failure> {
        let cells = std::mem::take(&mut self.row);
        self.cell.clear();
        if !cells.is_empty() {
            let table = self.table.get_or_insert_with(|| Grid::new(out, false));
            table.row(cells, out)?;
        }
        Ok(())
    }

    /// Writes the table that is open.
    fn end_table(&mut self, out: &mut Markdown) -> Result<(), Failure> {
        if !self.cell.is_empty() {
            self.end_cell();
        }
        self.end_row(out)?;
        if let Some(table) = self.table.take() {
            self.sink.put(Block::Table(table), out)?;
        }
        Ok(())
    }

    /// Writes the text after the last paragraph mark.
    fn end_story(&mut self, out: &mut Markdown) -> Result<(), Failure> {
        self.end_run();
        self.fields.clear();
        self.line.end_link();
        out.count_hidden("character", std::mem::take(&mut self.hidden));
        self.pending = 0;
        self.end_table(out)?;
        let line = std::mem::take(&mut self.line);
        Ok(self.sink.put(Block::Paragraph(line), out)?)
    }
}

/// A line after its number.
fn numbered_line(numbered: Option<NumberedLabel>, line: Inline) -> Inline {
    match numbered {
        Some(numbered) if !numbered.label.is_empty() && !line.is_blank() => {
            labelled(&numbered.label, line)
        }
        _ => line,
    }
}

/// A code unit of UTF-16 as a character; NUL for the first half of a surrogate pair.
fn utf_16(unit: u16, high_surrogate: &mut Option<u16>) -> char {
    let first = high_surrogate.take();
    let units = match first {
        Some(first) => char::decode_utf16([first, unit]).next(),
        None if (0xD800..0xDC00).contains(&unit) => {
            *high_surrogate = Some(unit);
            return '\0';
        }
        // The second unit only fills the array: a low half alone becomes U+FFFD.
        None => char::decode_utf16([unit, 0]).next(),
    };
    units
        .and_then(Result::ok)
        .unwrap_or(char::REPLACEMENT_CHARACTER)
}
