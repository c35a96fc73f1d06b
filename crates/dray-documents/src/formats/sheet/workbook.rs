//! Reads the properties of the sheets of a workbook, and the number formats of its cells.

use std::rc::Rc;

use crate::formats::office::package::Relations;
use crate::formats::office::xml::{Event, Xml, decode_part};
use crate::limits::{Budget, Failure};

/// The kind of a sheet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Cells,
    /// Only a chart, without cells.
    Chart,
    /// A dialog or a sheet of macros, without cells to show.
    Other,
}

/// One sheet as the workbook part lists it.
#[derive(Debug)]
pub(super) struct Sheet {
    pub(super) name: String,
    pub(super) hidden: bool,
    pub(super) kind: Kind,
    /// The part; empty when the relationship has no part.
    pub(super) part: String,
}

/// The list of sheets, and the date system.
#[derive(Debug, Default)]
pub(super) struct Workbook {
    pub(super) sheets: Vec<Sheet>,
    pub(super) epoch_1904: bool,
}

impl Workbook {
    /// Reads `workbook.xml`; the ids of parts are looked up in its relations.
    pub(super) fn read(
        bytes: &[u8],
        relations: &Relations,
        budget: &Rc<Budget>,
    ) -> Result<Self, Failure> {
        let text = decode_part(bytes);
        let mut xml = Xml::new(&text, budget);
        let mut book = Self::default();
        loop {
            match xml.next()? {
                Event::Open(element) if element.name() == "workbookPr" => {
                    if let Some(set) = element.attr("date1904") {
                        book.epoch_1904 = matches!(set.as_str(), "1" | "true" | "on");
                    }
                }
                Event::Open(element) if element.name() == "sheet" => {
                    let relation = xml
                        .relation(&element, "id")
                        .and_then(|id| relations.get(&id));
                    let kind = match relation.map(|relation| relation.kind.as_str()) {
                        Some("chartsheet") => Kind::Chart,
                        Some("dialogsheet" | "xlMacrosheet" | "xlIntlMacrosheet") => Kind::Other,
                        _ => Kind::Cells,
                    };
                    book.sheets.push(Sheet {
                        name: element.attr("name").unwrap_or_default(),
                        hidden: element
                            .attr("state")
                            // `hidden`, and `veryHidden`, which no menu of the program can show again.
                            .is_some_and(|state| state.to_ascii_lowercase().contains("hidden")),
                        kind,
                        part: relation
                            .map(|relation| relation.target.clone())
                            .unwrap_or_default(),
                    });
                }
                Event::End => return Ok(book),
                _ => {}
            }
        }
    }
}
