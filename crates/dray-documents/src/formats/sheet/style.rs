//! The style of cells: number format, and whether the text has the colour of its background.

use std::collections::HashMap;
use std::rc::Rc;

use super::code::{FormatCode, ShownNumber};
use super::color::{Colors, Rgb};
use super::format::Format;
use super::value;
use crate::formats::office::xml::{Event, Xml, decode_part};
use crate::limits::{Budget, Failure};

/// The number format of a cell, and whether its text is visible.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Style {
    pub(super) format: Format,
    /// The code of a number that is not a date.
    pub(super) code: Option<Rc<FormatCode>>,
    /// Whether text has the colour of its background.
    pub(super) is_invisible: bool,
}

/// Which content of a cell is visible.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CellText {
    pub(super) text: String,
    /// Whether the text is hidden from a person.
    pub(super) is_hidden: bool,
}

impl Style {
    /// The style of a number format, by its code.
    pub(super) fn of_code(code: &str) -> Self {
        Self {
            format: Format::of_code(code),
            code: FormatCode::parse(code).map(Rc::new),
            is_invisible: false,
        }
    }

    /// The style of a built-in number format, by its id.
    pub(super) fn built_in(id: u32) -> Self {
        Self {
            format: Format::built_in(id),
            code: FormatCode::built_in(id).map(Rc::new),
            is_invisible: false,
        }
    }

    /// A number as a person sees it.
    pub(super) fn number(&self, value: f64, epoch_1904: bool) -> CellText {
        let plain = || value::formatted_text(value, self.format, epoch_1904);
        let display_text = match (&self.code, self.format) {
            // Dates are written in the order of ISO 8601, so their code decides only that they are dates.
            (Some(code), Format::General | Format::Percent) => code.apply(value),
            _ => None,
        };
        match display_text {
            Some(ShownNumber::Text(text)) => CellText {
                text,
                is_hidden: self.is_invisible,
            },
            Some(ShownNumber::Nothing) => CellText {
                text: value::number_text(value),
                is_hidden: true,
            },
            None => CellText {
                text: plain(),
                is_hidden: self.is_invisible,
            },
        }
    }

    /// Text in a cell of this style.
    pub(super) fn text(&self, text: String) -> CellText {
        let hides = self.code.as_ref().is_some_and(|code| code.hides_text());
        CellText {
            text,
            is_hidden: self.is_invisible || hides,
        }
    }
}

/// The style of each number in `s="…"`, from `styles.xml`.
pub(super) fn read_styles(
    bytes: &[u8],
    mut colors: Colors,
    budget: &Rc<Budget>,
) -> Result<Vec<Style>, Failure> {
    let text = decode_part(bytes);
    // The palette comes after the records that refer to it, so it is read first.
    let mut xml = Xml::new(&text, budget);
    loop {
        match xml.next()? {
            Event::Open(element) if element.name() == "rgbColor" => {
                if let Some(color) = element.attr("rgb").and_then(|hex| Rgb::of_hex(&hex)) {
                    colors.add_to_palette(color);
                }
            }
            Event::End => break,
            _ => {}
        }
    }
    let mut xml = Xml::new(&text, budget);
    let mut codes: HashMap<u32, Style> = HashMap::new();
    let (mut fonts, mut fills) = (Vec::new(), Vec::new());
    let mut styles = Vec::new();
    let mut in_cells = None;
    loop {
        match xml.next()? {
            Event::Open(element) => match element.name() {
                "numFmt" => {
                    if let (Some(id), Some(code)) =
                        (element.number("numFmtId"), element.attr("formatCode"))
                    {
                        codes.insert(id, Style::of_code(&code));
                    }
                }
                "font" => fonts.push(read_font(&mut xml, &colors)?),
                "fill" => fills.push(read_fill(&mut xml, &colors)?),
                "cellXfs" => in_cells = Some(xml.depth()),
                "xf" if in_cells.is_some() => {
                    let id = element.number("numFmtId").unwrap_or(0);
                    let mut style = codes
                        .get(&id)
                        .cloned()
                        .unwrap_or_else(|| Style::built_in(id));
                    let ink = element
                        .number::<usize>("fontId")
                        .and_then(|id| fonts.get(id));
                    let paper = element
                        .number::<usize>("fillId")
                        .and_then(|id| fills.get(id));
                    let ink = ink.copied().flatten().unwrap_or(Rgb::BLACK);
                    let paper = paper.copied().unwrap_or(Some(Rgb::WHITE));
                    style.is_invisible = paper.is_some_and(|paper| paper.looks_like(ink));
                    styles.push(style);
                }
                // These elements contain other fonts, fills and formats, which would shift the indices that cells
                // refer to.
                "dxfs" | "cellStyleXfs" | "borders" => xml.skip()?,
                _ => {}
            },
            Event::Close if in_cells.is_some_and(|depth| xml.depth() < depth) => in_cells = None,
            Event::End => return Ok(styles),
            _ => {}
        }
    }
}

/// The colour of a font; `None` if it is automatic.
fn read_font(xml: &mut Xml<'_>, colors: &Colors) -> Result<Option<Rgb>, Failure> {
    let depth = xml.depth();
    let mut color = None;
    loop {
        match xml.next()? {
            Event::Open(element) if element.name() == "color" => color = colors.read(&element),
            Event::Close if xml.depth() < depth => return Ok(color),
            Event::End => return Ok(color),
            _ => {}
        }
    }
}

/// The colour of a fill, white for none; `None` for a pattern or a system colour.
fn read_fill(xml: &mut Xml<'_>, colors: &Colors) -> Result<Option<Rgb>, Failure> {
    let depth = xml.depth();
    let mut color = Some(Rgb::WHITE);
    let mut solid = false;
    loop {
        match xml.next()? {
            Event::Open(element) => match element.name() {
                "patternFill" => match element.attr("patternType").as_deref() {
                    Some("solid") => {
                        solid = true;
                        color = None;
                    }
                    Some("none") | None => {}
                    Some(_) => color = None,
                },
                "gradientFill" => color = None,
                "fgColor" if solid => color = colors.read(&element),
                _ => {}
            },
            Event::Close if xml.depth() < depth => return Ok(color),
            Event::End => return Ok(color),
            _ => {}
        }
    }
}
