//! The cells of one worksheet part, one after the other.

use super::format::Format;
use super::strings::{Strings, rich_text, unescaped};
use super::used::{Area, Used, place};
use super::value;
use crate::formats::office::xml::{Element, Event, Xml};
use crate::limits::Failure;
use crate::markdown::Markdown;

/// What cells refer to.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) strings: &'a Strings,
    pub(super) formats: &'a [Format],
    pub(super) epoch_1904: bool,
}

/// A cell while it is read.
#[derive(Debug, Default)]
struct Open {
    row: u64,
    column: u32,
    kind: Option<String>,
    format: Format,
    value: Option<String>,
    formula: Option<String>,
    inline: Option<String>,
}

/// Cells that lead somewhere, each with the id of the relation that tells where.
pub(super) type Links = Vec<((u64, u32), String)>;

/// Links that are read of one worksheet.
const LINKS: usize = 10_000;

/// Reads the cells and merged areas of a worksheet; answers its links.
pub(super) fn read(
    xml: &mut Xml<'_>,
    context: &Context<'_>,
    used: &mut Used,
    out: &Markdown,
) -> Result<Links, Failure> {
    let mut row = 0;
    let mut links = Links::new();
    loop {
        match xml.next()? {
            Event::Open(e) => match e.name() {
                "row" => {
                    if let Some(number) = e.number::<u64>("r").and_then(|r| r.checked_sub(1)) {
                        row = number;
                    }
                    if e.attr("hidden").is_some() && e.on("hidden") {
                        used.hide_row(row);
                    }
                    read_row(xml, context, used, out, &mut row)?;
                    row += 1;
                }
                "col" if e.attr("hidden").is_some() && e.on("hidden") => {
                    if let (Some(first), Some(last)) =
                        (e.number::<u32>("min"), e.number::<u32>("max"))
                        && first > 0
                    {
                        used.hide_columns(first - 1, last.saturating_sub(1));
                    }
                }
                "mergeCell" => {
                    if let Some(area) = e.attr("ref").and_then(|r| area(&r)) {
                        used.merge(area);
                    }
                }
                "hyperlink" if links.len() < LINKS => {
                    let cell = e.attr("ref").unwrap_or_default();
                    let first = cell.split(':').next().and_then(place);
                    if let (Some(first), Some(id)) = (first, xml.relation(&e, "id")) {
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
    used: &mut Used,
    out: &Markdown,
    row: &mut u64,
) -> Result<(), Failure> {
    let depth = xml.depth();
    let mut column = 0;
    loop {
        match xml.next()? {
            Event::Open(e) if e.name() == "c" => {
                if let Some((at, named)) = e.attr("r").and_then(|r| place(&r)) {
                    (*row, column) = (at, named);
                }
                let open = read_cell(&e, xml, context, (*row, column))?;
                column = column.saturating_add(1);
                let (row, column) = (open.row, open.column);
                if let Some(url) = open.formula.as_deref().and_then(url_of_formula) {
                    used.link((row, column), url);
                }
                let text = open.text(context);
                used.cell(row, column, text, out)?;
            }
            Event::Close if xml.depth() < depth => return Ok(()),
            Event::End => return Ok(()),
            _ => {}
        }
    }
}

fn read_cell(
    e: &Element<'_>,
    xml: &mut Xml<'_>,
    context: &Context<'_>,
    (row, column): (u64, u32),
) -> Result<Open, Failure> {
    let style = e.number::<usize>("s");
    let mut open = Open {
        row,
        column,
        kind: e.attr("t"),
        format: style
            .and_then(|s| context.formats.get(s))
            .copied()
            .unwrap_or_default(),
        ..Open::default()
    };
    let depth = xml.depth();
    loop {
        match xml.next()? {
            Event::Open(e) => match e.name() {
                "v" => open.value = Some(xml.text()?),
                "f" => open.formula = Some(xml.text()?),
                "is" => open.inline = Some(rich_text(xml)?),
                _ => xml.skip()?,
            },
            Event::Close if xml.depth() < depth => return Ok(open),
            Event::End => return Ok(open),
            _ => {}
        }
    }
}

impl Open {
    /// What a person sees.
    fn text(self, context: &Context<'_>) -> String {
        let Some(value) = self.value.as_deref() else {
            let formula = self.unvalued();
            return self.inline.or(formula).unwrap_or_default();
        };
        match self.kind.as_deref() {
            Some("s") => value
                .trim()
                .parse()
                .ok()
                .and_then(|index| context.strings.get(index))
                .unwrap_or_default()
                .to_owned(),
            Some("str") => unescaped(value).into_owned(),
            Some("inlineStr") => self.inline.unwrap_or_else(|| value.to_owned()),
            Some("b") => boolean(value).to_owned(),
            Some("e") => value.trim().to_owned(),
            Some("d") => value::iso(value, self.format),
            _ => {
                let trimmed = value.trim();
                if trimmed.is_empty() {
                    return self.unvalued().unwrap_or_default();
                }
                match trimmed.parse::<f64>() {
                    Ok(number) => value::shown(number, self.format, context.epoch_1904),
                    Err(_) => value.to_owned(),
                }
            }
        }
    }

    /// The formula, of a cell without a cached value.
    fn unvalued(&self) -> Option<String> {
        let formula = self.formula.as_deref()?.trim();
        (!formula.is_empty()).then(|| format!("={}", formula.trim_start_matches('=')))
    }
}

/// Where `HYPERLINK("url", …)` leads to, when that is written out.
fn url_of_formula(formula: &str) -> Option<&str> {
    let (name, rest) = formula.trim().split_once('(')?;
    let name = name.trim().trim_start_matches('=');
    let url = rest.trim_start().strip_prefix('"')?.split('"').next()?;
    (name.eq_ignore_ascii_case("HYPERLINK") && !url.starts_with('#')).then_some(url)
}

fn boolean(value: &str) -> &'static str {
    match value.trim() {
        "" => "",
        "0" | "false" => "FALSE",
        _ => "TRUE",
    }
}

/// `A1:B2`.
fn area(reference: &str) -> Option<Area> {
    let (first, last) = reference.split_once(':')?;
    let (first, last) = (place(first)?, place(last)?);
    Some(Area {
        first: (first.0.min(last.0), first.1.min(last.1)),
        last: (first.0.max(last.0), first.1.max(last.1)),
    })
}
