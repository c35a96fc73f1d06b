//! Books: EPUB (read-attachment 7.10).

mod epub;
#[cfg(test)]
mod tests;

use super::{ConversionHint, Converter};

/// One media type for each converter, with its extension.
pub(super) const SAMPLES: &[(&str, &str)] = &[("application/epub+zip", "epub")];

/// The converter of this family for a media type.
pub(super) fn converter(hint: &ConversionHint) -> Option<Converter> {
    (hint.mime == "application/epub+zip").then_some(Converter {
        name: "epub",
        convert: epub::convert,
    })
}
