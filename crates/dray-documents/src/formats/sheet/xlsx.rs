//! XLSX and XLSM: workbook, shared strings and number formats, then the sheets, each streamed.
//!
//! `calamine` is not used for these: it allocates memory for as many shared strings and formulas as the file claims,
//! and fails on a workbook with one unknown attribute.

use std::rc::Rc;

use super::cells::{self, Context};
use super::color::Colors;
use super::comments::{ThreadAuthors, read_comments};
use super::drawing::read_drawing;
use super::strings::Strings;
use super::style;
use super::used::{MergedArea, SheetReader};
use super::workbook::{Kind, Sheet, Workbook};
use crate::container::Input;
use crate::formats::ConversionHint;
use crate::formats::office::package::{Package, Relations, default_if_damaged};
use crate::formats::office::xml::{Xml, decode_part};
use crate::limits::{Damage, Failure};
use crate::markdown::{Inline, Markdown, Unit};

/// Most areas of one sheet in which conditional formats or tables may change colours.
const MAX_COLOURED_AREAS: usize = 256;

/// A damaged sheet is named in a warning; the workbook is damaged only when no sheet could be read.
pub(super) fn convert(
    input: &mut dyn Input,
    _hint: &ConversionHint,
    out: &mut Markdown,
) -> Result<(), Failure> {
    let budget = Rc::clone(out.budget());
    let mut package = Package::open(input, &budget)?;
    let main = package.main(&["xl/workbook.xml"])?;
    let relations = package.relations(&main)?;
    let bytes = package
        .part(&main)?
        .ok_or(Failure::Corrupt(Damage::MissingPart))?;
    let book = Workbook::read(&bytes, &relations, &budget)?;
    let strings = part_of(&mut package, &relations, "sharedStrings").and_then(|part| {
        part.map_or_else(
            || Ok(Strings::default()),
            |bytes| Strings::read(&bytes, &budget),
        )
    });
    // Without the shared strings, cells with numbers are still readable.
    let strings = default_if_damaged(strings, out, "shared strings are")?;
    let colors = part_of(&mut package, &relations, "theme").and_then(|part| {
        part.map_or_else(
            || Ok(Colors::default()),
            |bytes| Colors::of_theme(&bytes, &budget),
        )
    });
    let colors = default_if_damaged(colors, out, "colours are")?;
    let styles = part_of(&mut package, &relations, "styles").and_then(|part| {
        part.map_or_else(
            || Ok(Vec::new()),
            |bytes| style::read_styles(&bytes, colors, &budget),
        )
    });
    let styles = default_if_damaged(styles, out, "number formats are")?;
    let people = ThreadAuthors::of_workbook(&relations, &mut package);
    let people = default_if_damaged(people, out, "names of people are")?;
    let context = Context {
        strings: &strings,
        styles: &styles,
        people: &people,
        coloured: &[],
        epoch_1904: book.epoch_1904,
    };
    let mut damaged = None;
    let mut has_sheet = false;
    for (number, sheet) in (1..).zip(&book.sheets) {
        if !out.part(Unit::Sheet, number, Some(&sheet.name))? {
            continue;
        }
        match write_sheet(sheet, &context, &mut package, out) {
            Err(failure @ Failure::Corrupt(_)) => {
                out.warn(format!("sheet {number} is damaged"));
                damaged = Some(failure);
            }
            other => {
                other?;
                has_sheet = true;
            }
        }
    }
    match damaged {
        Some(failure) if !has_sheet => Err(failure),
        _ => Ok(()),
    }
}

fn part_of(
    package: &mut Package<'_>,
    relations: &Relations,
    kind: &str,
) -> Result<Option<Vec<u8>>, Failure> {
    match relations.part(kind).map(str::to_owned) {
        Some(name) => package.part(&name),
        None => Ok(None),
    }
}

/// Writes the heading of a sheet: `## {name}` or `## {name} (hidden)`.
pub(super) fn write_heading(name: &str, hidden: bool, out: &mut Markdown) -> Result<(), Failure> {
    let mut title = name.replace(['\r', '\n'], " ").trim().to_owned();
    if hidden {
        title.push_str(" (hidden)");
    }
    out.heading(2, &Inline::plain(&title))?;
    Ok(())
}

fn write_sheet(
    sheet: &Sheet,
    context: &Context<'_>,
    package: &mut Package<'_>,
    out: &mut Markdown,
) -> Result<(), Failure> {
    write_heading(&sheet.name, sheet.hidden, out)?;
    match sheet.kind {
        Kind::Chart => {
            out.note("chart sheet")?;
            return read_drawing(&sheet.part, package, out)?.write(out);
        }
        Kind::Other => {
            out.note("sheet without cells")?;
            return Ok(());
        }
        Kind::Cells => {}
    }
    let bytes = package
        .part(&sheet.part)?
        .ok_or(Failure::Corrupt(Damage::MissingPart))?;
    let budget = Rc::clone(package.budget());
    let mut used = SheetReader::new(out);
    let text = decode_part(&bytes);
    let coloured = coloured_areas(&text, &sheet.part, package);
    // The styles belong to the workbook; the conditional formats are of this sheet.
    let context = &Context {
        coloured: &coloured,
        ..*context
    };
    let mut xml = Xml::new(&text, &budget);
    let read = cells::read_cells(&mut xml, context, &mut used, out);
    out.count_hidden("character", xml.take_hidden_characters());
    match read {
        Ok(links) => {
            // The table is complete at this point, so a damaged part of links or comments only loses these.
            let links_and_comments = package.relations(&sheet.part).and_then(|relations| {
                for (cell_ref, id) in links {
                    // Links to places of the workbook lead nowhere in Markdown.
                    if let Some(relation) = relations.get(&id).filter(|relation| relation.external)
                    {
                        used.link(cell_ref, &relation.target);
                    }
                }
                for comment in read_comments(&relations, context.people, package)? {
                    used.comment(comment);
                }
                Ok(())
            });
            default_if_damaged(links_and_comments, out, "comments are")?;
            finish_sheet(used, &sheet.part, package, out)
        }
        Err(failure) => {
            used.finish_so_far(out)?;
            Err(failure)
        }
    }
}

/// Writes the table and the comments of a sheet, and what is drawn on it.
fn finish_sheet(
    mut used: SheetReader,
    part: &str,
    package: &mut Package<'_>,
    out: &mut Markdown,
) -> Result<(), Failure> {
    match read_drawing(part, package, out) {
        Ok(drawing) => {
            if !drawing.is_blank(out) {
                used.mark_drawn();
            }
            used.finish(out)?;
            drawing.write(out)
        }
        Err(failure) => {
            used.finish_so_far(out)?;
            Err(failure)
        }
    }
}

/// Areas in which conditional formats and tables change colours. The file has them after the cells.
fn coloured_areas(text: &str, part: &str, package: &mut Package<'_>) -> Vec<MergedArea> {
    let mut areas = Vec::new();
    // Searches the text, because a second walk through the markup would cost as much as reading the cells.
    for (start, _) in text
        .match_indices("<conditionalFormatting")
        .take(MAX_COLOURED_AREAS)
    {
        let tag = text.get(start..).unwrap_or_default().split('>').next();
        let range = tag.and_then(|tag| tag.split("sqref=\"").nth(1)?.split('"').next());
        areas.extend(
            range
                .unwrap_or_default()
                .split(' ')
                .filter_map(cells::parse_area),
        );
    }
    let tables = match package.relations(part) {
        Ok(relations) => relations
            .of_kind("table")
            .map(|table| table.target.clone())
            .collect(),
        Err(_) => Vec::new(),
    };
    for table in tables.iter().take(MAX_COLOURED_AREAS) {
        let Ok(Some(bytes)) = package.part(table) else {
            continue;
        };
        let text = decode_part(&bytes);
        let range = text
            .split(" ref=\"")
            .nth(1)
            .and_then(|rest| rest.split('"').next());
        areas.extend(range.and_then(cells::parse_area));
    }
    // Each cell is compared with each area, so their number bounds the time.
    areas.truncate(MAX_COLOURED_AREAS);
    areas
}
