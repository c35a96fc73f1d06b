//! XLSB, through `calamine`, one cell after the other.

use std::panic::{AssertUnwindSafe, catch_unwind};

use calamine::{Data, Reader as _, SheetType, SheetVisible, Xlsb};

use super::used::SheetReader;
use super::xls::{value_text, within_limits};
use super::xlsb_formats::WorkbookFormats;
use super::xlsx::write_heading;
use crate::container::Input;
use crate::formats::ConversionHint;
use crate::formats::office::package::default_if_damaged;
use crate::limits::{Damage, Failure};
use crate::markdown::{Markdown, Unit};

/// The converter. The library checks little of what it reads, so a panic in it means a damaged file.
pub(super) fn convert(
    input: &mut dyn Input,
    _hint: &ConversionHint,
    out: &mut Markdown,
) -> Result<(), Failure> {
    within_limits(input, out)?;
    let damaged = Failure::Corrupt(Damage::Structure);
    input.rewind().map_err(|_| damaged)?;
    let formats = WorkbookFormats::read(input, out);
    let mut formats = default_if_damaged(formats, out, "number formats are")?;
    input.rewind().map_err(|_| damaged)?;
    let mut book = catch_unwind(AssertUnwindSafe(|| Xlsb::new(input)))
        .map_err(|_| damaged)?
        .map_err(|_| damaged)?;
    let sheets = book.sheets_metadata().to_vec();
    for (index, sheet) in sheets.iter().enumerate() {
        let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
        if !out.part(Unit::Sheet, number, Some(&sheet.name))? {
            continue;
        }
        write_heading(&sheet.name, sheet.visible != SheetVisible::Visible, out)?;
        let drawing = formats.sheets.get_mut(index);
        let drawing = drawing.map(|sheet| std::mem::take(&mut sheet.drawing));
        let drawing = drawing.unwrap_or_default();
        if sheet.typ != SheetType::WorkSheet {
            out.note("chart sheet")?;
            drawing.write(out)?;
            continue;
        }
        let mut used = SheetReader::new(out);
        let read = catch_unwind(AssertUnwindSafe(|| {
            read_sheet(&mut book, (index, &sheet.name), &formats, &mut used, out)
        }))
        .unwrap_or(Err(damaged));
        match read {
            Ok(()) => {
                add_comments_and_links(&mut formats, index, &mut used);
                if !drawing.is_blank(out) {
                    used.mark_drawn();
                }
                used.finish(out)?;
                drawing.write(out)?;
            }
            Err(Failure::Corrupt(_)) => {
                used.finish_so_far(out)?;
                out.warn(format!("sheet {number} is damaged"));
            }
            Err(failure) => {
                used.finish_so_far(out)?;
                return Err(failure);
            }
        }
    }
    Ok(())
}

fn add_comments_and_links(formats: &mut WorkbookFormats, index: usize, used: &mut SheetReader) {
    let Some(sheet) = formats.sheets.get_mut(index) else {
        return;
    };
    for (cell, target) in &sheet.links {
        used.link(*cell, target);
    }
    for comment in std::mem::take(&mut sheet.comments) {
        used.comment(comment);
    }
}

fn read_sheet(
    book: &mut Xlsb<&mut dyn Input>,
    (index, name): (usize, &str),
    formats: &WorkbookFormats,
    used: &mut SheetReader,
    out: &Markdown,
) -> Result<(), Failure> {
    let damaged = Failure::Corrupt(Damage::Malformed);
    if let Some(sheet) = formats.sheets.get(index) {
        for row in &sheet.hidden_rows {
            used.hide_row(u64::from(*row));
        }
        for (first, last) in &sheet.hidden_columns {
            used.hide_columns(*first, *last);
        }
    }
    let mut cells = book.worksheet_cells_reader(name).map_err(|_| damaged)?;
    let mut cell_count = 0_u32;
    while let Some(cell) = cells.next_cell().map_err(|_| damaged)? {
        cell_count = cell_count.wrapping_add(1);
        if cell_count.is_multiple_of(1024) {
            out.budget().clock()?;
        }
        let (row, column) = cell.get_position();
        let display_text = value_text(
            &Data::from(cell.get_value().clone()),
            &formats.style(index, row, column),
        );
        used.shown_cell((u64::from(row), column), display_text, out)?;
    }
    Ok(())
}
