//! ODS: the tables of `content.xml`. Repeated cells and rows are written within the size of a sheet.

use std::rc::Rc;

use super::code::{MAX_LOSS, rounded};
use super::comments::CellComment;
use super::drawing::SheetDrawing;
use super::format::Format;
use super::ods_shapes::read_shape;
use super::ods_styles::{CellValue, OdsStyles, conditional_areas};
use super::style::CellText;
use super::used::{MergedArea, SheetReader, cell_name};
use super::value;
use super::xlsx::write_heading;
use crate::container::Input;
use crate::formats::ConversionHint;
use crate::formats::office::odf::{self, Source};
use crate::formats::office::xml::{Element, Event, Ns, Xml, decode_part};
use crate::limits::Failure;
use crate::markdown::{Markdown, Unit};

/// Most columns that a sheet may have.
const MAX_COLUMNS: u32 = 16_384;
/// Most rows that a sheet may have.
const MAX_ROWS: u64 = 1_048_576;

/// Reads packed and flat files; a limit inside a sheet keeps the rows before it.
pub(super) fn convert(
    input: &mut dyn Input,
    _hint: &ConversionHint,
    out: &mut Markdown,
) -> Result<(), Failure> {
    let budget = Rc::clone(out.budget());
    let mut source = Source::open(input, &budget)?;
    let mut styles = OdsStyles::default();
    if let Some(bytes) = source.styles()? {
        styles.read(&decode_part(&bytes), &budget)?;
    }
    let bytes = source.content()?;
    let text = decode_part(&bytes);
    // Automatic styles are in the content itself and replace common styles of the same name.
    styles.read(&text, &budget)?;
    // The areas are read first, because the conditions follow the cells that they colour.
    let mut coloured = conditional_areas(&text, &budget)?;
    let mut xml = Xml::new(&text, &budget);
    let mut number = 0;
    loop {
        match xml.next()? {
            Event::Open(element) if element.ns == Ns::OdfTable && element.name() == "table" => {
                number += 1;
                let name = element.attr("name").unwrap_or_default();
                // A sheet that was not requested is skipped without reading its cells.
                if !out.part(Unit::Sheet, number, Some(&name))? {
                    xml.skip()?;
                    continue;
                }
                let is_hidden = element
                    .attr("style-name")
                    .is_some_and(|style| styles.hides_table(&style));
                write_heading(&name, is_hidden, out)?;
                let mut sheet = Sheet {
                    used: SheetReader::new(out),
                    drawing: SheetDrawing::default(),
                    styles: &styles,
                    coloured: coloured.remove(&name).unwrap_or_default(),
                    row: 0,
                    column: 0,
                    hidden: false,
                    column_styles: Vec::new(),
                    row_style: None,
                };
                match sheet.read(&mut xml, out) {
                    Ok(()) => sheet.finish(out)?,
                    Err(failure) => {
                        // A limit within a sheet must not lose the rows before it.
                        sheet.used.finish_so_far(out)?;
                        return Err(failure);
                    }
                }
            }
            Event::Open(element)
                if matches!(
                    element.name(),
                    "tracked-changes" | "automatic-styles" | "styles"
                ) =>
            {
                xml.skip()?;
            }
            Event::End => return Ok(()),
            _ => {}
        }
    }
}

struct Sheet<'a> {
    used: SheetReader,
    drawing: SheetDrawing,
    styles: &'a OdsStyles,
    /// Areas in which conditional formats may change colours.
    coloured: Vec<MergedArea>,
    row: u64,
    /// Index of the next column to be declared.
    column: u32,
    /// Whether the current row is hidden.
    hidden: bool,
    /// Styles for cells without their own style: first and last column, and the name of the style.
    column_styles: Vec<(u32, u32, String)>,
    /// Style of the current row, for cells without a style of their own or of their column.
    row_style: Option<String>,
}

impl Sheet<'_> {
    /// Writes the table and the comments, and what is drawn on the sheet.
    fn finish(mut self, out: &mut Markdown) -> Result<(), Failure> {
        if !self.drawing.is_blank(out) {
            self.used.mark_drawn();
        }
        self.used.finish(out)?;
        self.drawing.write(out)
    }

    /// Whether a row or column is collapsed or filtered away, or has no size.
    fn is_hidden(&self, element: &Element<'_>) -> bool {
        let visibility = element.attr("visibility").unwrap_or_default();
        matches!(visibility.as_str(), "collapse" | "filter")
            || element
                .attr("style-name")
                .is_some_and(|style| self.styles.is_sizeless(&style))
    }

    fn read(&mut self, xml: &mut Xml<'_>, out: &Markdown) -> Result<(), Failure> {
        let depth = xml.depth();
        loop {
            match xml.next()? {
                Event::Open(element) if element.ns == Ns::OdfTable => match element.name() {
                    "table-row" => {
                        // Repeat counts come from the file and are unverified, so they are limited to the size of a
                        // sheet.
                        let repeat = element.number("number-rows-repeated").unwrap_or(1);
                        let repeat = repeat.clamp(1, MAX_ROWS);
                        if self.is_hidden(&element) {
                            self.used.hide_row(self.row);
                            self.hidden = true;
                        }
                        self.row_style = element.attr("default-cell-style-name");
                        self.read_row(repeat, xml, out)?;
                        self.hidden = false;
                    }
                    "table-column" => {
                        let times = element
                            .number::<u32>("number-columns-repeated")
                            .unwrap_or(1)
                            .max(1);
                        let first = self.column;
                        // Repeat counts come from the file and may overflow.
                        self.column = first.saturating_add(times);
                        if let Some(style) = element.attr("default-cell-style-name") {
                            self.column_styles.push((first, self.column - 1, style));
                        }
                        if self.is_hidden(&element) {
                            self.used.hide_columns(first, self.column - 1);
                        }
                    }
                    // A table inside a cell is skipped completely: its rows would count as rows of the sheet.
                    "table" | "table-source" | "named-expressions" => xml.skip()?,
                    _ => {}
                },
                Event::Open(element) if element.ns == Ns::OdfOffice => xml.skip()?,
                Event::Open(element) if element.ns == Ns::OdfDraw => {
                    read_shape(&element, xml, &mut self.drawing)?;
                }
                Event::Close if xml.depth() < depth => return Ok(()),
                Event::End => return Ok(()),
                _ => {}
            }
        }
    }

    fn read_row(&mut self, repeat: u64, xml: &mut Xml<'_>, out: &Markdown) -> Result<(), Failure> {
        let depth = xml.depth();
        let row = self.row;
        let mut column = 0_u32;
        let mut filled = false;
        loop {
            match xml.next()? {
                Event::Open(element)
                    if element.ns == Ns::OdfTable
                        && matches!(element.name(), "table-cell" | "covered-table-cell") =>
                {
                    let times = element
                        .number::<u32>("number-columns-repeated")
                        .unwrap_or(1)
                        .max(1);
                    let covered = element.name() == "covered-table-cell";
                    self.merge(&element, (row, column));
                    let style = self.style_of(&element, column);
                    let mut cell = Cell::read(&element, xml)?;
                    self.keep_attached(&mut cell, (row, column), out);
                    // Links within the workbook lead nowhere in Markdown.
                    if let Some(url) = cell.link.as_deref().filter(|url| !url.starts_with('#')) {
                        self.used.link((row, column), url);
                    }
                    // Covered cells keep their text from before the merge, which is invisible.
                    if !cell.text.trim().is_empty() && !covered {
                        let is_hidden = style
                            .is_some_and(|style| self.is_cell_hidden(&style, &cell, (row, column)));
                        // A row with hidden cells only counts as empty, so it is not repeated.
                        filled |= !is_hidden || out.shows_hidden();
                        // A cell may be repeated to the end of the sheet; such a cell only formats the rest of the row.
                        let end = column.saturating_add(times).min(MAX_COLUMNS);
                        for repeated in column..end {
                            let text = cell.text.clone();
                            self.used.shown_cell(
                                (row, repeated),
                                CellText { text, is_hidden },
                                out,
                            )?;
                        }
                    }
                    column = column.saturating_add(times);
                }
                Event::Close if xml.depth() < depth => break,
                Event::End => break,
                _ => {}
            }
        }
        let is_left_out = self.hidden && !out.shows_hidden();
        // The last row of many sheets is repeated a million times, so only a row with visible content is repeated.
        if filled && repeat > 1 && !is_left_out {
            let times = (repeat - 1).min(MAX_ROWS.saturating_sub(row + 1));
            self.used.repeat(times, out)?;
        }
        self.row = row.saturating_add(repeat);
        Ok(())
    }

    /// Keeps the comment on a cell, and what is drawn there.
    fn keep_attached(&mut self, cell: &mut Cell, cell_ref: (u64, u32), out: &Markdown) {
        if let Some(annotation) = cell.annotation.take() {
            self.used.comment(CellComment {
                cell: cell_name(cell_ref),
                author: annotation.author,
                text: annotation.text,
            });
        }
        let window = out.selection().rows();
        if window.is_none_or(|window| window.holds(cell_ref.0.saturating_add(1))) {
            self.drawing.append(std::mem::take(&mut cell.drawing));
        }
    }

    /// The style of a cell: its own, otherwise the style of its row, otherwise of its column.
    fn style_of(&self, element: &Element<'_>, column: u32) -> Option<String> {
        let of_column = || {
            let found = self
                .column_styles
                .iter()
                .find(|(first, last, _)| (*first..=*last).contains(&column));
            found.map(|(_, _, style)| style.clone())
        };
        element
            .attr("style-name")
            .or_else(|| self.row_style.clone())
            .or_else(of_column)
    }

    fn is_cell_hidden(&self, style: &str, cell: &Cell, cell_ref: (u64, u32)) -> bool {
        self.styles.hides_value(style, cell.value)
            // Text with its own style may have another colour than the cell.
            || (!cell.is_styled
                && self.styles.hides_by_color(style)
                // A conditional format may change the background, so the contrast is unknown.
                && !self.coloured.iter().any(|area| area.holds(cell_ref)))
    }

    fn merge(&mut self, element: &Element<'_>, (row, column): (u64, u32)) {
        let columns = element.number::<u32>("number-columns-spanned").unwrap_or(1);
        let rows = element.number::<u64>("number-rows-spanned").unwrap_or(1);
        if columns > 1 || rows > 1 {
            self.used.merge(MergedArea {
                first: (row, column),
                last: (
                    row.saturating_add(rows.saturating_sub(1)),
                    column.saturating_add(columns.saturating_sub(1)),
                ),
            });
        }
    }
}

/// The visible content of a cell.
struct Cell {
    text: String,
    value: CellValue,
    annotation: Option<odf::Annotation>,
    /// What is drawn at the cell.
    drawing: SheetDrawing,
    link: Option<String>,
    /// Whether part of its text has its own style.
    is_styled: bool,
}

impl Cell {
    fn read(element: &Element<'_>, xml: &mut Xml<'_>) -> Result<Self, Failure> {
        let typed = TypedValue::of(element);
        let formula = element.attr("formula");
        let depth = xml.depth();
        let mut lines: Vec<String> = Vec::new();
        let value = cell_value(element);
        let mut annotation = None;
        let mut drawing = SheetDrawing::default();
        let mut parts = odf::TextParts::default();
        loop {
            match xml.next()? {
                Event::Open(element)
                    if element.ns == Ns::OdfOffice && element.name() == "annotation" =>
                {
                    annotation = Some(odf::read_annotation(xml)?);
                }
                Event::Open(element)
                    if element.ns == Ns::OdfText && matches!(element.name(), "p" | "h") =>
                {
                    lines.push(odf::parts_of_text(xml, &mut parts)?);
                }
                // Drawings and tables inside a cell have text that is not the value of the cell.
                Event::Open(element) if element.ns == Ns::OdfDraw => {
                    read_shape(&element, xml, &mut drawing)?;
                }
                Event::Open(element) if element.name() == "table" => xml.skip()?,
                Event::Close if xml.depth() < depth => break,
                Event::End => break,
                _ => {}
            }
        }
        let displayed = lines.join("\n");
        let text = match typed {
            Some(typed) => typed.with_decimals_of(&displayed),
            None => displayed,
        };
        let text = match formula {
            // A file that was never calculated has formulas without values.
            Some(formula) if text.trim().is_empty() => {
                let formula = formula.split_once('=').map_or("", |(_, formula)| formula);
                format!("={}", formula.trim_start_matches('='))
            }
            _ => text,
        };
        Ok(Self {
            text,
            value,
            annotation,
            drawing,
            link: parts.link,
            is_styled: parts.is_styled,
        })
    }
}

/// The value to which the number format of a cell applies. Dates and times count as positive numbers.
fn cell_value(element: &Element<'_>) -> CellValue {
    match element.attr("value-type").as_deref() {
        None | Some("string" | "void") => CellValue::Text,
        Some("boolean") => CellValue::Number(f64::from(u8::from(
            element.attr("boolean-value").as_deref() == Some("true"),
        ))),
        // Dates and times have no `value`; any number that is not zero selects the same part of a format code.
        Some(_) => CellValue::Number(element.number::<f64>("value").unwrap_or(1.0)),
    }
}

/// A value that is not a string.
enum TypedValue {
    Text(String),
    /// A number, the text after it, and the factor with which it is displayed.
    Number(f64, String, f64),
}

impl TypedValue {
    fn of(element: &Element<'_>) -> Option<Self> {
        let kind = element.attr("value-type")?;
        let value = || element.number::<f64>("value");
        let text = match kind.as_str() {
            "float" => return Some(Self::Number(value()?, String::new(), 1.0)),
            "currency" => {
                let currency = element.attr("currency").unwrap_or_default();
                let currency = format!(" {currency}").trim_end().to_owned();
                return Some(Self::Number(value()?, currency, 1.0));
            }
            "percentage" => return Some(Self::Number(value()?, "%".to_owned(), 100.0)),
            "date" => element.attr("date-value").map(|date| {
                if date.contains('T') {
                    value::iso_text(&date, Format::DateTime { fraction: false })
                } else {
                    date
                }
            }),
            "time" => element
                .attr("time-value")
                .and_then(|duration| value::iso_duration(&duration)),
            "boolean" => element
                .attr("boolean-value")
                .map(|value| if value == "true" { "TRUE" } else { "FALSE" }.to_owned()),
            _ => None,
        };
        text.map(Self::Text)
    }

    /// The value with as many decimals as its cell displays, in any language; with all of them where the display has
    /// other digits.
    fn with_decimals_of(self, displayed: &str) -> String {
        let (value, unit, factor) = match self {
            Self::Text(text) => return text,
            Self::Number(value, unit, factor) => (value, unit, factor),
        };
        let exact = value::number_text(value * factor);
        let Some(rounded) = as_displayed(&exact, displayed) else {
            return format!("{exact}{unit}");
        };
        let number = rounded.parse::<f64>().unwrap_or(0.0);
        // The display may have lost precision that a reader needs, so both are shown.
        if (number - value * factor).abs() > (value * factor).abs() * MAX_LOSS {
            return format!("{rounded}{unit} ({exact}{unit})");
        }
        format!("{rounded}{unit}")
    }
}

/// A number with as many decimals as another text of it; `None` if that text has other digits.
fn as_displayed(exact: &str, displayed: &str) -> Option<String> {
    let digits_of = |text: &str| -> String { text.chars().filter(char::is_ascii_digit).collect() };
    let (sign, number) = match exact.strip_prefix('-') {
        Some(number) => ("-", number),
        None => ("", exact),
    };
    let digits = digits_of(displayed);
    let after_separator = displayed
        .rfind([',', '.'])
        .map_or("", |at| displayed.get(at + 1..).unwrap_or(""));
    // The last separator may be of decimals or of thousands, so both readings are tried.
    let decimals = [digits_of(after_separator).len(), 0];
    let mut readings = decimals.iter().map(|decimals| rounded(number, *decimals));
    let reading = readings.find(|reading| !digits.is_empty() && digits_of(reading) == digits)?;
    Some(format!("{sign}{reading}"))
}
