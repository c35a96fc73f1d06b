//! XLS, through `calamine`: checked first, because the library allocates memory for complete rectangles.

use std::io::{Cursor, Read as _, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};

use calamine::{Data, Reader as _, SheetType, SheetVisible, Xls};

use super::biff::{self, RecordFormats};
use super::format::Format;
use super::style::{CellText, Style};
use super::used::{MergedArea, SheetReader};
use super::value;
use super::xlsx::write_heading;
use crate::container::{Container, Input};
use crate::formats::ConversionHint;
use crate::limits::{Damage, Failure, Limit};
use crate::markdown::{Markdown, Unit};

/// The converter. A workbook that is XML in a ZIP, under any name, is read as such.
pub(super) fn convert(
    input: &mut dyn Input,
    hint: &ConversionHint,
    out: &mut Markdown,
) -> Result<(), Failure> {
    let corrupt = |_| Failure::Corrupt(Damage::Structure);
    input.rewind().map_err(corrupt)?;
    let mut head = [0; 4];
    if input.read_exact(&mut head).is_ok() && head == *b"PK\x03\x04" {
        return super::xlsx::convert(input, hint, out);
    }
    input.rewind().map_err(corrupt)?;
    let max = out.budget().limits().max_part_bytes;
    let mut bytes = Vec::new();
    (&mut *input)
        .take(max + 1)
        .read_to_end(&mut bytes)
        .map_err(corrupt)?;
    if bytes.len() as u64 > max {
        return Err(Failure::Stopped(Limit::Size));
    }
    let formats = scan_workbook(&mut bytes, out)?;
    formats.disable_claims(&mut bytes)?;
    // The library uses unchecked numbers of the file as indices, so a panic in it means damage.
    let book = catch_unwind(AssertUnwindSafe(|| Xls::new(Cursor::new(bytes))))
        .map_err(|_| Failure::Corrupt(Damage::Structure))?;
    let mut book = match book {
        Ok(book) => book,
        Err(calamine::XlsError::Password) => return Err(Failure::Encrypted),
        Err(_) => return Err(Failure::Corrupt(Damage::Structure)),
    };
    let sheets = book.sheets_metadata().to_vec();
    for (index, sheet) in sheets.iter().enumerate() {
        let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
        if !out.part(Unit::Sheet, number, Some(&sheet.name))? {
            continue;
        }
        write_heading(&sheet.name, sheet.visible != SheetVisible::Visible, out)?;
        if sheet.typ == SheetType::ChartSheet {
            out.note("chart sheet")?;
            continue;
        }
        write_sheet(&mut book, index, &sheet.name, &formats, out)?;
    }
    Ok(())
}

/// Scans the stream of the workbook, and writes the stream back if cells were moved.
fn scan_workbook(bytes: &mut Vec<u8>, out: &Markdown) -> Result<RecordFormats, Failure> {
    let length = bytes.len() as u64;
    let mut file = cfb::CompoundFile::open(Cursor::new(bytes))
        .map_err(|_| Failure::Corrupt(Damage::Structure))?;
    if file.exists("/EncryptedPackage") {
        return Err(Failure::Encrypted);
    }
    let name = ["/Workbook", "/Book"]
        .into_iter()
        .find(|name| file.is_stream(name))
        .ok_or(Failure::Corrupt(Damage::MissingPart))?;
    let mut stream = Vec::new();
    file.open_stream(name)
        // A stream is never longer than its file, unless its chain of sectors has a loop.
        .and_then(|opened| opened.take(length).read_to_end(&mut stream))
        .map_err(|_| Failure::Corrupt(Damage::Truncated))?;
    out.budget().clock()?;
    let before = stream.clone();
    let formats = biff::scan_stream(&mut stream)?;
    // Only the copy in memory is changed: the library then reads the sheets as they were moved.
    if stream != before {
        file.open_stream(name)
            .and_then(|mut opened| opened.write_all(&stream))
            .and_then(|()| file.flush())
            .map_err(|_| Failure::Corrupt(Damage::Structure))?;
    }
    Ok(formats)
}

fn write_sheet(
    book: &mut Xls<Cursor<Vec<u8>>>,
    index: usize,
    name: &str,
    formats: &RecordFormats,
    out: &mut Markdown,
) -> Result<(), Failure> {
    let mut used = SheetReader::new(out);
    if let Some(notes) = formats.notes.get(&index) {
        notes.comments().for_each(|comment| used.comment(comment));
        if notes.has_other_text {
            used.mark_drawn();
            out.warn("text boxes of XLS are not shown");
        }
    }
    let (Ok(values), formulas) = (book.worksheet_range(name), book.worksheet_formula(name)) else {
        return used.finish(out);
    };
    for area in book.merge_cells_by_sheet_id(index).unwrap_or_default() {
        used.merge(MergedArea {
            first: (u64::from(area.start.0), area.start.1),
            last: (u64::from(area.end.0), area.end.1),
        });
    }
    for (first, last) in formats.hidden_columns(index) {
        used.hide_columns(first, last);
    }
    let (top, left) = values.start().unwrap_or_default();
    for (row, column, data) in values.used_cells() {
        let row = top.saturating_add(u32::try_from(row).unwrap_or(u32::MAX));
        let column = left.saturating_add(u32::try_from(column).unwrap_or(u32::MAX));
        let formula = formulas.as_ref().ok();
        let formula = formula.and_then(|formulas| formulas.get_value((row, column)));
        let (row, column) = formats.moved.place(index, row, column);
        if formats.is_hidden_row(index, row) {
            used.hide_row(u64::from(row));
        }
        let mut display_text = value_text(data, &formats.style(index, row, column));
        if display_text.text.is_empty()
            && let Some(formula) = formula.filter(|formula| !formula.is_empty())
        {
            display_text.text = format!("={formula}");
        }
        if let Err(limit) = used.shown_cell((u64::from(row), column), display_text, out) {
            used.finish_so_far(out)?;
            return Err(limit.into());
        }
    }
    used.finish(out)
}

/// The displayed form of a value that the library read.
pub(super) fn value_text(data: &Data, style: &Style) -> CellText {
    let text = match data {
        Data::Empty => String::new(),
        Data::String(text) => text.clone(),
        Data::Bool(value) => if *value { "TRUE" } else { "FALSE" }.to_owned(),
        Data::Error(error) => error.to_string(),
        Data::Int(value) => {
            #[expect(clippy::cast_precision_loss, reason = "cells hold no larger ones")]
            let value = *value as f64;
            // Dates arrive as `DateTime`, so the date system does not matter here.
            return style.number(value, false);
        }
        Data::Float(value) => return style.number(*value, false),
        Data::DateTime(moment) => self::moment_text(moment),
        Data::DateTimeIso(text) => value::iso_text(text, Format::General),
        Data::DurationIso(text) => value::iso_duration(text).unwrap_or_else(|| text.clone()),
    };
    style.text(text)
}

/// The text of a moment. The library does not distinguish dates and times, so a whole number of days is a date and a
/// value below 1 is a time.
fn moment_text(moment: &calamine::ExcelDateTime) -> String {
    let value = moment.as_f64();
    if moment.is_duration() {
        return value::formatted_text(value, Format::Duration, false);
    }
    // The library applies the date system of the workbook, so the year that it computes shows which one.
    let (year, ..) = moment.to_ymd_hms_milli();
    let since_1900 =
        calamine::ExcelDateTime::new(value, calamine::ExcelDateTimeType::DateTime, false);
    let epoch_1904 = since_1900.to_ymd_hms_milli().0 != year;
    let format = if value.fract() == 0.0 {
        Format::Date
    } else if value < 1.0 {
        Format::Time { fraction: false }
    } else {
        Format::DateTime { fraction: false }
    };
    value::formatted_text(value, format, epoch_1904)
}

/// Reads every part of a package once within the limits, so that a library without limits can read it again.
pub(super) fn within_limits(input: &mut dyn Input, out: &Markdown) -> Result<(), Failure> {
    let mut container = Container::open(input, out.budget())?;
    let names: Vec<String> = container
        .names()
        .iter()
        .filter(|name| {
            std::path::Path::new(name)
                .extension()
                .is_some_and(|extension| {
                    extension.eq_ignore_ascii_case("bin") || extension.eq_ignore_ascii_case("rels")
                })
        })
        .cloned()
        .collect();
    for name in names {
        container.part(&name)?;
    }
    Ok(())
}
