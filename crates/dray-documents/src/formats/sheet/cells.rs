//! The cells of one worksheet part, one after the other.

use super::comments::ThreadAuthors;
use super::strings::{Strings, rich_text, unescape_text};
use super::style::{CellText, Style};
use super::used::{MergedArea, SheetReader, parse_reference, row_index};
use super::value;
use crate::formats::office::xml::{Element, Event, Xml};
use crate::limits::Failure;
use crate::markdown::Markdown;

/// The data to which cells refer.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) strings: &'a Strings,
    pub(super) styles: &'a [Style],
    pub(super) people: &'a ThreadAuthors,
    /// Areas in which conditional formats or tables may change colours.
    pub(super) coloured: &'a [MergedArea],
    pub(super) epoch_1904: bool,
}

impl Context<'_> {
    /// The style of a cell. Conditional formats may change its colours, so its text then counts as visible.
    fn style(&self, number: Option<usize>, cell_ref: (u64, u32)) -> Style {
        let style = number.and_then(|number| self.styles.get(number));
        let mut style = style.cloned().unwrap_or_default();
        if style.is_invisible && self.coloured.iter().any(|area| area.holds(cell_ref)) {
            style.is_invisible = false;
        }
        style
    }
}

/// A cell while it is read.
#[derive(Debug, Default)]
struct OpenCell {
    row: u64,
    column: u32,
    kind: Option<String>,
    style: Style,
    value: Option<String>,
    formula: Option<String>,
    inline: Option<String>,
}

/// Cells with links, each with the id of the relationship that has the target.
pub(super) type Links = Vec<((u64, u32), String)>;

/// Most links that are read of one worksheet.
const MAX_LINKS: usize = 10_000;

/// Height of a row in points below which no text is seen in it.
const MIN_ROW_POINTS: f64 = 0.5;
/// Width of a column, in digits of the standard font, below which no text is seen in it.
const MIN_COLUMN_WIDTH: f64 = 0.1;

/// Whether a row or column is hidden, or has no size.
fn is_hidden(element: &Element<'_>, size: &str, min: f64) -> bool {
    let is_declared = element.attr("hidden").is_some() && element.on("hidden");
    is_declared || element.number::<f64>(size).is_some_and(|size| size < min)
}

/// Reads the cells and merged areas of a worksheet; returns its links.
pub(super) fn read_cells(
    xml: &mut Xml<'_>,
    context: &Context<'_>,
    used: &mut SheetReader,
    out: &Markdown,
) -> Result<Links, Failure> {
    let mut row = 0;
    let mut links = Links::new();
    loop {
        match xml.next()? {
            Event::Open(element) => match element.name() {
                "row" => {
                    // The number is optional; without it a row follows the row before (ECMA-376-1, 18.3.1.73).
                    if let Some(number) = element.number::<u64>("r").and_then(row_index) {
                        row = number;
                    }
                    if is_hidden(&element, "ht", MIN_ROW_POINTS) {
                        used.hide_row(row);
                    }
                    read_row(xml, context, used, out, &mut row)?;
                    row += 1;
                }
                "col" if is_hidden(&element, "width", MIN_COLUMN_WIDTH) => {
                    if let (Some(first), Some(last)) =
                        (element.number::<u32>("min"), element.number::<u32>("max"))
                        && first > 0
                    {
                        used.hide_columns(first - 1, last.saturating_sub(1));
                    }
                }
                "mergeCell" => {
                    if let Some(area) = element
                        .attr("ref")
                        .and_then(|reference| parse_area(&reference))
                    {
                        used.merge(area);
                    }
                }
                "hyperlink" if links.len() < MAX_LINKS => {
                    let cell = element.attr("ref").unwrap_or_default();
                    let first = cell.split(':').next().and_then(parse_reference);
                    if let (Some(first), Some(id)) = (first, xml.relation(&element, "id")) {
                        links.push((first, id));
                    }
                }
                "extLst"
                | "conditionalFormatting"
                | "dataValidations"
                | "sheetViews"
                | "oddHeader"
                | "oddFooter" => xml.skip()?,
                _ => {}
            },
            Event::End => return Ok(links),
            _ => {}
        }
    }
}

fn read_row(
    xml: &mut Xml<'_>,
    context: &Context<'_>,
    used: &mut SheetReader,
    out: &Markdown,
    row: &mut u64,
) -> Result<(), Failure> {
    let depth = xml.depth();
    let mut column = 0;
    loop {
        match xml.next()? {
            Event::Open(element) if element.name() == "c" => {
                // The reference of a cell is optional as well, and may name another row than the one around it.
                if let Some((named_row, named_column)) = element
                    .attr("r")
                    .and_then(|reference| parse_reference(&reference))
                {
                    (*row, column) = (named_row, named_column);
                }
                let open = read_cell(&element, xml, context, (*row, column))?;
                column = column.saturating_add(1);
                let (row, column) = (open.row, open.column);
                if let Some(url) = open.formula.as_deref().and_then(url_of_formula) {
                    used.link((row, column), url);
                }
                let display_text = open.display(context);
                used.shown_cell((row, column), display_text, out)?;
            }
            Event::Close if xml.depth() < depth => return Ok(()),
            Event::End => return Ok(()),
            _ => {}
        }
    }
}

fn read_cell(
    element: &Element<'_>,
    xml: &mut Xml<'_>,
    context: &Context<'_>,
    (row, column): (u64, u32),
) -> Result<OpenCell, Failure> {
    let mut open = OpenCell {
        row,
        column,
        kind: element.attr("t"),
        style: context.style(element.number("s"), (row, column)),
        ..OpenCell::default()
    };
    let depth = xml.depth();
    loop {
        match xml.next()? {
            Event::Open(element) => match element.name() {
                "v" => open.value = Some(xml.text()?),
                "f" => open.formula = Some(xml.text()?),
                "is" => {
                    let (text, is_coloured) = rich_text(xml)?;
                    open.inline = Some(text);
                    open.style.is_invisible &= !is_coloured;
                }
                _ => xml.skip()?,
            },
            Event::Close if xml.depth() < depth => return Ok(open),
            Event::End => return Ok(open),
            _ => {}
        }
    }
}

impl OpenCell {
    /// The text that a person sees: the cached value in its format, or the formula without one.
    fn display(mut self, context: &Context<'_>) -> CellText {
        let Some(value) = self.value.as_deref() else {
            let formula = self.formula_text();
            return self.style.text(self.inline.or(formula).unwrap_or_default());
        };
        let text = match self.kind.as_deref() {
            Some("s") => {
                // An index that is not a number finds no string, and the cell stays empty.
                let index = value.trim().parse().unwrap_or(usize::MAX);
                self.style.is_invisible &= !context.strings.is_coloured(index);
                context.strings.get(index).unwrap_or_default().to_owned()
            }
            Some("str") => unescape_text(value).into_owned(),
            Some("inlineStr") => self.inline.unwrap_or_else(|| value.to_owned()),
            Some("b") => boolean_text(value).to_owned(),
            Some("e") => value.trim().to_owned(),
            Some("d") => value::iso_text(value, self.style.format),
            _ => {
                let trimmed = value.trim();
                if trimmed.is_empty() {
                    let formula = self.formula_text().unwrap_or_default();
                    return self.style.text(formula);
                }
                if let Ok(number) = trimmed.parse::<f64>() {
                    return self.style.number(number, context.epoch_1904);
                }
                value.to_owned()
            }
        };
        self.style.text(text)
    }

    /// The formula with `=`, for a cell without a cached value.
    fn formula_text(&self) -> Option<String> {
        let formula = self.formula.as_deref()?.trim();
        (!formula.is_empty()).then(|| format!("={}", formula.trim_start_matches('=')))
    }
}

/// The address in `HYPERLINK("url", …)`, when it is a literal.
fn url_of_formula(formula: &str) -> Option<&str> {
    let (name, rest) = formula.trim().split_once('(')?;
    let name = name.trim().trim_start_matches('=');
    let url = rest.trim_start().strip_prefix('"')?.split('"').next()?;
    (name.eq_ignore_ascii_case("HYPERLINK") && !url.starts_with('#')).then_some(url)
}

fn boolean_text(value: &str) -> &'static str {
    match value.trim() {
        "" => "",
        "0" | "false" => "FALSE",
        _ => "TRUE",
    }
}

/// `A1:B2`, or one cell.
pub(super) fn parse_area(reference: &str) -> Option<MergedArea> {
    let (first, last) = reference.split_once(':').unwrap_or((reference, reference));
    let (first, last) = (parse_reference(first)?, parse_reference(last)?);
    Some(MergedArea {
        first: (first.0.min(last.0), first.1.min(last.1)),
        last: (first.0.max(last.0), first.1.max(last.1)),
    })
}
