//! Books: EPUB (read-attachment 7.10).

mod epub;
#[cfg(test)]
mod tests;

use super::{Converter, Hint};

/// The converter of this family for a media type.
pub(super) fn converter(hint: &Hint) -> Option<Converter> {
    (hint.mime == "application/epub+zip").then_some(Converter {
        name: "epub",
        convert: epub::convert,
    })
}
