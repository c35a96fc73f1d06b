//! ZIP archives: what they hold, never what is in it (read-attachment 13.9).

#[cfg(test)]
mod tests;

use super::{Converter, Hint};
use crate::classify::mime;
use crate::container::{Container, Input};
use crate::limits::Failure;
use crate::markdown::{Cell, Markdown};

/// Entries that are listed.
const ENTRIES: usize = 2000;

/// The converter of this family for a media type.
pub(super) fn converter(hint: &Hint) -> Option<Converter> {
    (hint.mime == mime::ZIP).then_some(Converter {
        name: "zip",
        convert: list,
    })
}

/// A table of names and sizes. Sizes are what the directory claims; nothing is unpacked.
fn list(input: &mut dyn Input, _: &Hint, out: &mut Markdown) -> Result<(), Failure> {
    let budget = std::rc::Rc::clone(out.budget());
    let mut container = Container::open(input, &budget)?;
    let count = container.names().len();
    if count == 0 {
        out.note("The archive is empty")?;
        return Ok(());
    }
    let mut table = out.new_table().limit(ENTRIES);
    let header = ["name", "bytes", "note"];
    table.row(0, header.map(Cell::plain).to_vec());
    for index in 0..count {
        budget.element()?;
        let number = u64::try_from(index).unwrap_or(u64::MAX).saturating_add(1);
        if !table.wants(number) {
            table.skip(number);
        } else if let Some(entry) = container.entry(index) {
            let bytes = if entry.folder {
                String::new()
            } else {
                entry.bytes.to_string()
            };
            let note = match (entry.encrypted, entry.folder) {
                (true, _) => "encrypted",
                (false, true) => "folder",
                (false, false) => "",
            };
            table.row(
                number,
                [entry.name.as_str(), &bytes, note]
                    .map(Cell::plain)
                    .to_vec(),
            );
        }
    }
    Ok(out.table(table)?)
}
