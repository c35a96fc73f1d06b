//! Which cells of an ODS are visible: whether their number format shows anything, and whether their text has another
//! colour than its background (`OpenDocument` 1.3-3, 16.2 and 16.29).

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::cells::parse_area;
use super::color::Rgb;
use super::used::MergedArea;
use crate::formats::office::xml::{Element, Event, Ns, Xml};
use crate::limits::{Budget, Failure};

/// Most styles in one chain of parents; a longer chain, or a cycle, is cut.
const MAX_STYLE_CHAIN: usize = 32;
/// Most areas under conditional formats of one workbook; further ones are ignored.
const MAX_CONDITIONAL_AREAS: usize = 10_000;

/// Height of a row and width of a column in points below which no text is seen.
const MIN_SIZE_POINTS: f64 = 0.5;

/// The styles of a workbook, by name.
#[derive(Debug, Default)]
pub(super) struct OdsStyles {
    cells: HashMap<String, CellStyle>,
    formats: HashMap<String, DataFormat>,
    hidden_tables: HashSet<String>,
    /// Styles of rows and columns without a size.
    sizeless: HashSet<String>,
}

/// A cell style. `None` means that the parent style decides.
#[derive(Debug, Default)]
struct CellStyle {
    parent: Option<String>,
    format: Option<String>,
    /// Colour of the text. An automatic colour can be read on any fill.
    text_color: Option<Color>,
    /// Colour of the fill. A cell without a fill is white.
    fill_color: Option<Color>,
    /// Whether conditions may select other styles, so the colours are unknown.
    is_conditional: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Color {
    Rgb(Rgb),
    /// A transparent fill, or an automatic colour of text.
    None,
    Unknown,
}

/// A data style: a number format, or a section of one.
#[derive(Debug, Default)]
struct DataFormat {
    is_text: bool,
    shows_something: bool,
    /// Conditions on the value for which another format is used.
    maps: Vec<(ValueCondition, String)>,
}

/// A condition such as `value()>0`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ValueCondition {
    operator: Operator,
    limit: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Less,
    LessOrEqual,
    Equal,
    NotEqual,
    GreaterOrEqual,
    Greater,
}

/// The type of a cell's value, as far as its format depends on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum CellValue {
    Number(f64),
    Text,
}

impl OdsStyles {
    /// Reads the styles of a part, up to its body. Styles of the content are read after the common ones, and override
    /// them.
    pub(super) fn read(&mut self, text: &str, budget: &Rc<Budget>) -> Result<(), Failure> {
        let mut xml = Xml::new(text, budget);
        loop {
            match xml.next()? {
                Event::Open(element) if element.ns == Ns::OdfStyle && element.name() == "style" => {
                    self.read_style(&element, &mut xml)?;
                }
                Event::Open(element) if is_data_style(element.name()) => {
                    let name = element.attr("name").unwrap_or_default();
                    let format = read_format(element.name() == "text-style", &mut xml)?;
                    self.formats.insert(name, format);
                }
                // Styles are before the body, which is not read twice.
                Event::Open(element) if element.ns == Ns::OdfOffice && element.name() == "body" => {
                    return Ok(());
                }
                Event::End => return Ok(()),
                _ => {}
            }
        }
    }

    fn read_style(&mut self, element: &Element<'_>, xml: &mut Xml<'_>) -> Result<(), Failure> {
        let name = element.attr("name").unwrap_or_default();
        match element.attr("family").as_deref() {
            Some("table-cell") => {
                let mut style = CellStyle {
                    parent: element.attr("parent-style-name"),
                    format: element.attr("data-style-name"),
                    ..CellStyle::default()
                };
                style.read(xml)?;
                self.cells.insert(name, style);
            }
            Some("table") => {
                if is_table_hidden(xml)? {
                    self.hidden_tables.insert(name);
                }
            }
            Some("table-row" | "table-column") => {
                if is_sizeless(xml)? {
                    self.sizeless.insert(name);
                }
            }
            _ => xml.skip()?,
        }
        Ok(())
    }

    /// Whether the tables of a style are not displayed.
    pub(super) fn hides_table(&self, style: &str) -> bool {
        self.hidden_tables.contains(style)
    }

    /// Whether a style of rows or columns leaves them no height or width.
    pub(super) fn is_sizeless(&self, style: &str) -> bool {
        self.sizeless.contains(style)
    }

    /// Whether a cell's format hides its value.
    pub(super) fn hides_value(&self, style: &str, value: CellValue) -> bool {
        let format = self.chain(style).find_map(|style| style.format.as_ref());
        let format = format.and_then(|name| self.formats.get(name));
        format.is_some_and(|format| match value {
            // Formats of numbers do not apply to text; it is shown as it is.
            CellValue::Text => format.is_text && !format.shows_something,
            CellValue::Number(number) => !self.shows_number(format, number),
        })
    }

    fn shows_number(&self, format: &DataFormat, number: f64) -> bool {
        let chosen = format.maps.iter().find(|(when, _)| when.holds(number));
        // A section has no nested sections.
        let section = chosen.and_then(|(_, name)| self.formats.get(name));
        section.unwrap_or(format).shows_something
    }

    /// Whether a cell's text has the colour of its fill.
    pub(super) fn hides_by_color(&self, style: &str) -> bool {
        let first = |pick: fn(&CellStyle) -> Option<Color>| self.chain(style).find_map(pick);
        let text_color = first(|style| style.text_color).unwrap_or(Color::None);
        let fill_color = match first(|style| style.fill_color).unwrap_or(Color::None) {
            Color::None => Color::Rgb(Rgb::WHITE),
            known => known,
        };
        match (text_color, fill_color) {
            (Color::Rgb(text_color), Color::Rgb(fill_color)) => {
                text_color.looks_like(fill_color)
                    && !self.chain(style).any(|style| style.is_conditional)
            }
            _ => false,
        }
    }

    fn chain<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a CellStyle> {
        let mut next = self.cells.get(name);
        std::iter::from_fn(move || {
            let style = next?;
            next = style
                .parent
                .as_ref()
                .and_then(|parent| self.cells.get(parent));
            Some(style)
        })
        .take(MAX_STYLE_CHAIN)
    }
}

impl CellStyle {
    fn read(&mut self, xml: &mut Xml<'_>) -> Result<(), Failure> {
        let depth = xml.depth();
        loop {
            match xml.next()? {
                Event::Open(element) => match element.name() {
                    "table-cell-properties" => {
                        self.fill_color = element
                            .attr("background-color")
                            .map(|color| color_of(&color));
                    }
                    "text-properties" => {
                        self.text_color = element.attr("color").map(|color| color_of(&color));
                        if element.attr("use-window-font-color").as_deref() == Some("true") {
                            self.text_color = Some(Color::None);
                        }
                    }
                    "map" => self.is_conditional = true,
                    _ => {}
                },
                Event::Close if xml.depth() < depth => return Ok(()),
                Event::End => return Ok(()),
                _ => {}
            }
        }
    }
}

impl ValueCondition {
    fn parse(text: &str) -> Option<Self> {
        let rest = text.trim().strip_prefix("value()")?.trim_start();
        let operators = [
            ("<=", Operator::LessOrEqual),
            (">=", Operator::GreaterOrEqual),
            ("!=", Operator::NotEqual),
            ("<", Operator::Less),
            (">", Operator::Greater),
            ("=", Operator::Equal),
        ];
        let (operator, limit) = operators
            .into_iter()
            .find_map(|(sign, operator)| Some((operator, rest.strip_prefix(sign)?)))?;
        Some(Self {
            operator,
            limit: limit.trim().parse().ok()?,
        })
    }

    fn holds(self, value: f64) -> bool {
        let order = value.partial_cmp(&self.limit);
        match self.operator {
            Operator::Less => order.is_some_and(std::cmp::Ordering::is_lt),
            Operator::LessOrEqual => order.is_some_and(std::cmp::Ordering::is_le),
            Operator::Equal => order.is_some_and(std::cmp::Ordering::is_eq),
            Operator::NotEqual => order.is_some_and(std::cmp::Ordering::is_ne),
            Operator::GreaterOrEqual => order.is_some_and(std::cmp::Ordering::is_ge),
            Operator::Greater => order.is_some_and(std::cmp::Ordering::is_gt),
        }
    }
}

fn color_of(text: &str) -> Color {
    match text.trim() {
        "transparent" => Color::None,
        hex => Rgb::of_hex(hex).map_or(Color::Unknown, Color::Rgb),
    }
}

fn is_data_style(name: &str) -> bool {
    matches!(
        name,
        "number-style"
            | "currency-style"
            | "percentage-style"
            | "date-style"
            | "time-style"
            | "boolean-style"
            | "text-style"
    )
}

fn read_format(is_text: bool, xml: &mut Xml<'_>) -> Result<DataFormat, Failure> {
    let depth = xml.depth();
    let mut format = DataFormat {
        is_text,
        ..DataFormat::default()
    };
    loop {
        match xml.next()? {
            Event::Open(element) => match element.name() {
                "map" => {
                    let condition = element.attr("condition");
                    let condition = condition.and_then(|text| ValueCondition::parse(&text));
                    format
                        .maps
                        .extend(condition.zip(element.attr("apply-style-name")));
                }
                "text" => format.shows_something |= !xml.text()?.trim().is_empty(),
                "text-properties" | "embedded-text" => {}
                // Elements that show a number, a part of a date, or the text of the cell.
                _ => format.shows_something = true,
            },
            Event::Close if xml.depth() < depth => return Ok(format),
            Event::End => return Ok(format),
            Event::Close | Event::Text(_) => {}
        }
    }
}

fn is_table_hidden(xml: &mut Xml<'_>) -> Result<bool, Failure> {
    let depth = xml.depth();
    let mut is_hidden = false;
    loop {
        match xml.next()? {
            Event::Open(element) if element.name() == "table-properties" => {
                is_hidden = element.attr("display").as_deref() == Some("false");
            }
            Event::Close if xml.depth() < depth => return Ok(is_hidden),
            Event::End => return Ok(is_hidden),
            _ => {}
        }
    }
}

/// Whether a style of rows or columns sets a height or a width in which no text is seen.
fn is_sizeless(xml: &mut Xml<'_>) -> Result<bool, Failure> {
    let depth = xml.depth();
    let mut is_sizeless = false;
    loop {
        match xml.next()? {
            Event::Open(element) => {
                let size = match element.name() {
                    "table-row-properties" => element.attr("row-height"),
                    "table-column-properties" => element.attr("column-width"),
                    _ => None,
                };
                if let Some(points) = size.as_deref().and_then(length_in_points) {
                    is_sizeless = points < MIN_SIZE_POINTS;
                }
            }
            Event::Close if xml.depth() < depth => return Ok(is_sizeless),
            Event::End => return Ok(is_sizeless),
            _ => {}
        }
    }
}

/// A length such as `0.5cm` in points; `None` if it is not absolute.
fn length_in_points(length: &str) -> Option<f64> {
    let length = length.trim();
    let number = length.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let factor = match length.get(number.len()..)? {
        "cm" => 72.0 / 2.54,
        "mm" => 72.0 / 25.4,
        "in" => 72.0,
        "pc" => 12.0,
        "px" => 0.75,
        "pt" => 1.0,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * factor)
}

/// The areas under conditional formats, by table. The file has them after the cells to which they apply.
pub(super) fn conditional_areas(
    text: &str,
    budget: &Rc<Budget>,
) -> Result<HashMap<String, Vec<MergedArea>>, Failure> {
    let mut areas: HashMap<String, Vec<MergedArea>> = HashMap::new();
    // Most workbooks have none; then the cells need not be read twice.
    if !text.contains("conditional-format") {
        return Ok(areas);
    }
    let mut xml = Xml::new(text, budget);
    let mut table: Option<(usize, String)> = None;
    let mut count = 0;
    loop {
        match xml.next()? {
            Event::Open(element)
                if element.ns == Ns::OdfTable && element.name() == "table" && table.is_none() =>
            {
                table = Some((xml.depth(), element.attr("name").unwrap_or_default()));
            }
            Event::Open(element) if element.name() == "conditional-format" => {
                let Some((_, name)) = &table else { continue };
                let ranges = element.attr("target-range-address").unwrap_or_default();
                for area in ranges.split_whitespace().filter_map(parse_range) {
                    count += 1;
                    if count <= MAX_CONDITIONAL_AREAS {
                        areas.entry(name.clone()).or_default().push(area);
                    }
                }
            }
            Event::Close
                if table
                    .as_ref()
                    .is_some_and(|(depth, _)| xml.depth() < *depth) =>
            {
                table = None;
            }
            Event::End => return Ok(areas),
            _ => {}
        }
    }
}

/// `Sheet1.A1:Sheet1.B2`, or one cell. Quoted names of sheets may contain points, cells cannot.
fn parse_range(range: &str) -> Option<MergedArea> {
    let cell = |reference: &str| {
        let cell = reference.rsplit('.').next().unwrap_or_default();
        cell.replace('$', "")
    };
    let cells: Vec<String> = range.split(':').map(cell).collect();
    parse_area(&cells.join(":"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_of_formats_are_compared_as_written() {
        for (text, holding, failing) in [
            ("value()>0", 1.0, 0.0),
            ("value()>=0", 0.0, -1.0),
            ("value()<0", -1.0, 0.0),
            ("value()<=-2.5", -2.5, 0.0),
            ("value()=0", 0.0, 1.0),
            ("value()!=0", 1.0, 0.0),
        ] {
            let condition = ValueCondition::parse(text).unwrap();
            assert!(
                condition.holds(holding) && !condition.holds(failing),
                "{text}"
            );
        }
        assert_eq!(ValueCondition::parse("content()>0"), None);
    }

    #[test]
    fn ranges_name_their_sheet_in_front_of_each_cell() {
        let area = parse_range("$'A.B'.$B$2:$'A.B'.C4").unwrap();
        assert_eq!((area.first, area.last), ((1, 1), (3, 2)));
        let one = parse_range("Sheet1.A1").unwrap();
        assert_eq!((one.first, one.last), ((0, 0), (0, 0)));
    }
}
