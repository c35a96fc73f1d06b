//! Reads what the library for XLSB workbooks does not report: hidden rows and columns, styles of cells, comments, links
//! and drawings (MS-XLSB 2.4).

use std::collections::HashMap;

use super::biff::{MIN_COLUMN_WIDTH, MIN_ROW_TWIPS};
use super::color::{Colors, Rgb};
use super::comments::{CellComment, ThreadAuthors, read_comments};
use super::drawing::{SheetDrawing, read_drawing};
use super::style::Style;
use crate::compound::{u16_at, u32_at};
use crate::container::Input;
use crate::formats::office::package::{Package, default_if_damaged};
use crate::limits::{Damage, Failure};
use crate::markdown::{Markdown, Unit};

// Record types (MS-XLSB 2.3).
const ROW_RECORD: u16 = 0;
const LAST_CELL_RECORD: u16 = 11;
const FONT_RECORD: u16 = 43;
const FORMAT_RECORD: u16 = 44;
const FILL_RECORD: u16 = 45;
const XF_RECORD: u16 = 47;
const COLUMNS_RECORD: u16 = 60;
const SHEET_RECORD: u16 = 156;
const PALETTE_RECORD: u16 = 475;
const LINK_RECORD: u16 = 494;
const CELL_STYLES_BEGIN: u16 = 617;
const CELL_STYLES_END: u16 = 618;

/// Most cells of a workbook whose style is stored; further cells get the default style.
const MAX_STYLED_CELLS: usize = 1 << 20;
/// Most hidden rows of a sheet; further hidden rows count as visible.
const MAX_HIDDEN_ROWS: usize = 1 << 20;
/// Most links of a sheet that are stored.
const MAX_LINKS: usize = 10_000;
/// Records between two checks of the time limit.
const RECORDS_PER_CHECK: usize = 4096;

/// The hidden parts, cell styles, comments, links and drawings of a workbook.
#[derive(Debug, Default)]
pub(super) struct WorkbookFormats {
    /// The sheets in the order of the workbook.
    pub(super) sheets: Vec<SheetFormats>,
    styles: Vec<Style>,
}

/// The hidden parts, cell styles, comments, links and drawing of a sheet. Rows and columns count from zero.
#[derive(Debug, Default)]
pub(super) struct SheetFormats {
    pub(super) hidden_rows: Vec<u32>,
    /// Hidden columns: first and last, inclusive.
    pub(super) hidden_columns: Vec<(u32, u32)>,
    pub(super) comments: Vec<CellComment>,
    /// Cells, and the targets of their links.
    pub(super) links: Vec<((u64, u32), String)>,
    pub(super) drawing: SheetDrawing,
    /// Style numbers by row and column, for cells whose style is not the default.
    cells: HashMap<(u32, u32), u32>,
}

impl WorkbookFormats {
    /// Reads the parts of a workbook.
    pub(super) fn read(input: &mut dyn Input, out: &mut Markdown) -> Result<Self, Failure> {
        let budget = std::rc::Rc::clone(out.budget());
        let mut package = Package::open(input, &budget)?;
        let main = package.main(&["xl/workbook.bin"])?;
        let relations = package.relations(&main)?;
        let mut formats = Self::default();
        let mut colors = Colors::default();
        if let Some(theme) = relations.part("theme").map(str::to_owned)
            && let Some(bytes) = package.part(&theme)?
        {
            // Without a theme its colours are unknown, and text of unknown colour counts as visible.
            colors = Colors::of_theme(&bytes, &budget).unwrap_or_default();
        }
        if let Some(styles) = relations.part("styles").map(str::to_owned)
            && let Some(bytes) = package.part(&styles)?
        {
            formats.styles = styles_of(&bytes, colors);
        }
        let people = ThreadAuthors::of_workbook(&relations, &mut package);
        let people = default_if_damaged(people, out, "names of people are")?;
        let missing = Failure::Corrupt(Damage::MissingPart);
        let book = package.part(&main)?.ok_or(missing)?;
        let mut cells_left = MAX_STYLED_CELLS;
        let sheets = Records(&book).filter(|(kind, _)| *kind == SHEET_RECORD);
        for (number, (_, data)) in (1..).zip(sheets) {
            let mut sheet = SheetFormats::default();
            let id = wide_string(data, 8);
            let name = id.as_ref().and_then(|(_, end)| wide_string(data, *end));
            let name = name.as_ref().map(|(name, _)| name.as_str());
            // Drawings and damage of other sheets count against no limit, and give no warning.
            let is_selected = out.selection().wants(Unit::Sheet, number, name);
            let part = id
                .and_then(|(id, _)| relations.get(&id))
                .map(|relation| relation.target.clone())
                .filter(|_| is_selected);
            if let Some(part) = part
                && let Some(bytes) = package.part(&part)?
            {
                sheet.read(&bytes, &formats.styles, &mut cells_left, out)?;
                let related = sheet.read_related_parts(&part, &people, &mut package);
                default_if_damaged(related, out, "comments are")?;
                sheet.drawing = read_drawing(&part, &mut package, out)?;
            }
            formats.sheets.push(sheet);
        }
        Ok(formats)
    }

    /// The style of a cell; the default style when none is known.
    pub(super) fn style(&self, sheet: usize, row: u32, column: u32) -> Style {
        let number = self
            .sheets
            .get(sheet)
            .and_then(|sheet| sheet.cells.get(&(row, column)));
        let number = number.and_then(|number| usize::try_from(*number).ok());
        let style = number.and_then(|number| self.styles.get(number));
        style.cloned().unwrap_or_default()
    }
}

impl SheetFormats {
    fn read(
        &mut self,
        bytes: &[u8],
        styles: &[Style],
        cells_left: &mut usize,
        out: &Markdown,
    ) -> Result<(), Failure> {
        let mut row = 0;
        for (count, (kind, data)) in Records(bytes).enumerate() {
            if count.is_multiple_of(RECORDS_PER_CHECK) {
                out.budget().clock()?;
            }
            match kind {
                ROW_RECORD => {
                    row = u32_at(data, 0).unwrap_or(row);
                    let flags = data.get(11).copied().unwrap_or(0);
                    // The height counts only if it does not follow from the text of the row.
                    let is_flat = flags & 0x20 != 0
                        && u16_at(data, 8).is_some_and(|twips| twips < MIN_ROW_TWIPS);
                    if (flags & 0x10 != 0 || is_flat) && self.hidden_rows.len() < MAX_HIDDEN_ROWS {
                        self.hidden_rows.push(row);
                    }
                }
                1..=LAST_CELL_RECORD => {
                    let (Some(column), Some(style)) = (u32_at(data, 0), u32_at(data, 4)) else {
                        continue;
                    };
                    // The upper byte of the word has flags (MS-XLSB 2.5.9).
                    let number = style & 0xFF_FFFF;
                    let index = usize::try_from(number).unwrap_or(usize::MAX);
                    let has_format = |style: &Style| style.code.is_some() || style.is_invisible;
                    if *cells_left > 0 && styles.get(index).is_some_and(has_format) {
                        *cells_left -= 1;
                        self.cells.insert((row, column), number);
                    }
                }
                LINK_RECORD if self.links.len() < MAX_LINKS => {
                    // The area has the first row, the last row, the first column and the last column.
                    let cell = u32_at(data, 0).map(u64::from).zip(u32_at(data, 8));
                    if let Some((cell, (id, _))) = cell.zip(wide_string(data, 16)) {
                        self.links.push((cell, id));
                    }
                }
                COLUMNS_RECORD => {
                    let flags = u16_at(data, 16).unwrap_or(0);
                    let is_narrow = flags & 2 != 0
                        && u32_at(data, 8).is_some_and(|width| width < u32::from(MIN_COLUMN_WIDTH));
                    if flags & 1 != 0 || is_narrow {
                        let range = u32_at(data, 0).zip(u32_at(data, 4));
                        self.hidden_columns.extend(range);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl SheetFormats {
    /// Reads the comments, and replaces the ids of the links by their targets.
    fn read_related_parts(
        &mut self,
        part: &str,
        people: &ThreadAuthors,
        package: &mut Package<'_>,
    ) -> Result<(), Failure> {
        // Until their targets are known, the links have ids.
        let links = std::mem::take(&mut self.links);
        let relations = package.relations(part)?;
        // Links to places of the workbook lead nowhere in Markdown.
        self.links = links
            .into_iter()
            .filter_map(|(cell, id)| {
                let relation = relations.get(&id).filter(|relation| relation.external)?;
                Some((cell, relation.target.clone()))
            })
            .collect();
        self.comments = read_comments(&relations, people, package)?;
        Ok(())
    }
}

/// Reads the cell styles; the index is the style number.
fn styles_of(bytes: &[u8], mut colors: Colors) -> Vec<Style> {
    // The palette comes after the records that refer to it, so it is read first.
    for (_, data) in Records(bytes).filter(|(kind, _)| *kind == PALETTE_RECORD) {
        if let [red, green, blue, _] = *data {
            colors.add_to_palette(Rgb::of_number(u32::from_be_bytes([0, red, green, blue])));
        }
    }
    let colors = &colors;
    let mut codes: HashMap<u16, Style> = HashMap::new();
    let (mut fonts, mut fills, mut styles) = (Vec::new(), Vec::new(), Vec::new());
    let mut in_cells = false;
    for (kind, data) in Records(bytes) {
        match kind {
            FORMAT_RECORD => {
                if let (Some(id), Some((code, _))) = (u16_at(data, 0), wide_string(data, 2)) {
                    codes.insert(id, Style::of_code(&code));
                }
            }
            FONT_RECORD => fonts.push(color(data, 12, colors, Some(Rgb::BLACK))),
            FILL_RECORD => fills.push(match u32_at(data, 0) {
                Some(0) => Some(Rgb::WHITE),
                Some(1) => color(data, 4, colors, None),
                _ => None,
            }),
            CELL_STYLES_BEGIN => in_cells = true,
            CELL_STYLES_END => in_cells = false,
            XF_RECORD if in_cells => {
                let id = u16_at(data, 2).unwrap_or(0);
                let known = codes.get(&id).cloned();
                let mut style = known.unwrap_or_else(|| Style::built_in(u32::from(id)));
                let text_color = u16_at(data, 4).and_then(|id| *fonts.get(usize::from(id))?);
                let fill_color = u16_at(data, 6).and_then(|id| *fills.get(usize::from(id))?);
                style.is_invisible = text_color
                    .zip(fill_color)
                    .is_some_and(|(text, fill)| text.looks_like(fill));
                styles.push(style);
            }
            _ => {}
        }
    }
    styles
}

/// Reads a colour (MS-XLSB 2.5.19). An automatic colour gives `automatic`, an unknown kind of colour gives `None`.
fn color(data: &[u8], offset: usize, colors: &Colors, automatic: Option<Rgb>) -> Option<Rgb> {
    let Some([kind, index, low, high, red, green, blue, _]) = data.get(offset..offset + 8) else {
        return automatic;
    };
    let tint = f64::from(i16::from_le_bytes([*low, *high])) / f64::from(i16::MAX);
    let color = match kind >> 1 {
        0 => return automatic,
        1 => colors.of_index(u32::from(*index)),
        2 => Some(Rgb::of_number(u32::from_be_bytes([0, *red, *green, *blue]))),
        3 => colors.of_theme_number(usize::from(*index)),
        _ => None,
    };
    color.map(|color| color.tinted(tint))
}

/// Reads a text, which is a count and UTF-16 characters. Returns the text and the offset of its end.
pub(super) fn wide_string(data: &[u8], offset: usize) -> Option<(String, usize)> {
    let count = usize::try_from(u32_at(data, offset)?).ok()?;
    let end = offset.checked_add(4)?.checked_add(count.checked_mul(2)?)?;
    let (pairs, _) = data.get(offset + 4..end)?.as_chunks::<2>();
    let units: Vec<u16> = pairs.iter().map(|pair| u16::from_le_bytes(*pair)).collect();
    Some((String::from_utf16_lossy(&units), end))
}

/// The records of a part: type and data.
pub(super) struct Records<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Records<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (first, mut rest) = self.0.split_first()?;
        let mut kind = u16::from(first & 0x7F);
        // Types have up to two bytes and lengths up to four, seven bits in each (MS-XLSB 2.1.4).
        if first & 0x80 != 0 {
            let (second, after) = rest.split_first()?;
            kind |= u16::from(second & 0x7F) << 7;
            rest = after;
        }
        let mut length = 0_usize;
        for shift in [0, 7, 14, 21] {
            let (group, after) = rest.split_first()?;
            rest = after;
            length |= usize::from(group & 0x7F) << shift;
            if group & 0x80 == 0 {
                break;
            }
        }
        let (data, after) = rest.split_at_checked(length)?;
        self.0 = after;
        Some((kind, data))
    }
}
