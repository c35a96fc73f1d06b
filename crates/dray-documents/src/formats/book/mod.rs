//! Books: EPUB (read-attachment 7.10).

mod epub;
#[cfg(test)]
mod tests;

use super::{ConversionHint, Converter};

/// The converter of this family for a media type.
pub(super) fn converter(hint: &ConversionHint) -> Option<Converter> {
    (hint.mime == "application/epub+zip").then_some(Converter {
        name: "epub",
        convert: epub::convert,
    })
}
