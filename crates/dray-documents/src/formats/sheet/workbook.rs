//! What a workbook says about its sheets, and the number formats of its cells.

use std::collections::HashMap;
use std::rc::Rc;

use super::format::Format;
use crate::formats::office::package::Relations;
use crate::formats::office::xml::{Event, Xml, decoded};
use crate::limits::{Budget, Failure};

/// What a sheet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Cells,
    /// Only a chart.
    Chart,
    /// A dialog or a sheet of macros, without cells to show.
    Other,
}

/// One sheet.
#[derive(Debug)]
pub(super) struct Sheet {
    pub(super) name: String,
    pub(super) hidden: bool,
    pub(super) kind: Kind,
    /// The part; empty when the relationship leads nowhere.
    pub(super) part: String,
}

/// The workbook part.
#[derive(Debug, Default)]
pub(super) struct Workbook {
    pub(super) sheets: Vec<Sheet>,
    pub(super) epoch_1904: bool,
}

impl Workbook {
    /// Reads `workbook.xml`.
    pub(super) fn read(
        bytes: &[u8],
        relations: &Relations,
        budget: &Rc<Budget>,
    ) -> Result<Self, Failure> {
        let text = decoded(bytes);
        let mut xml = Xml::new(&text, budget);
        let mut book = Self::default();
        loop {
            match xml.next()? {
                Event::Open(e) if e.name() == "workbookPr" => {
                    if let Some(set) = e.attr("date1904") {
                        book.epoch_1904 = matches!(set.as_str(), "1" | "true" | "on");
                    }
                }
                Event::Open(e) if e.name() == "sheet" => {
                    let relation = xml.relation(&e, "id").and_then(|id| relations.get(&id));
                    let kind = match relation.map(|r| r.kind.as_str()) {
                        Some("chartsheet") => Kind::Chart,
                        Some("dialogsheet" | "xlMacrosheet" | "xlIntlMacrosheet") => Kind::Other,
                        _ => Kind::Cells,
                    };
                    book.sheets.push(Sheet {
                        name: e.attr("name").unwrap_or_default(),
                        hidden: e
                            .attr("state")
                            .is_some_and(|state| state.to_ascii_lowercase().contains("hidden")),
                        kind,
                        part: relation.map(|r| r.target.clone()).unwrap_or_default(),
                    });
                }
                Event::End => return Ok(book),
                _ => {}
            }
        }
    }
}

/// The format of each style of cells, from `styles.xml`.
pub(super) fn formats(bytes: &[u8], budget: &Rc<Budget>) -> Result<Vec<Format>, Failure> {
    let text = decoded(bytes);
    let mut xml = Xml::new(&text, budget);
    let mut codes: HashMap<u32, Format> = HashMap::new();
    let mut formats = Vec::new();
    let mut in_cells = None;
    loop {
        match xml.next()? {
            Event::Open(e) => match e.name() {
                "numFmt" => {
                    if let (Some(id), Some(code)) = (e.number("numFmtId"), e.attr("formatCode")) {
                        codes.insert(id, Format::of_code(&code));
                    }
                }
                "cellXfs" => in_cells = Some(xml.depth()),
                "xf" if in_cells.is_some() => {
                    let id = e.number("numFmtId").unwrap_or(0);
                    formats.push(
                        codes
                            .get(&id)
                            .copied()
                            .unwrap_or_else(|| Format::built_in(id)),
                    );
                }
                "dxfs" | "cellStyleXfs" | "fonts" | "fills" | "borders" => xml.skip()?,
                _ => {}
            },
            Event::Close if in_cells.is_some_and(|depth| xml.depth() < depth) => in_cells = None,
            Event::End => return Ok(formats),
            _ => {}
        }
    }
}
