//! Helpers for the tests of converters.

use std::io::Cursor;

use crate::formats::{ConversionHint, Converted, convert};
use crate::limits::{Limit, Limits};
use crate::markdown::Selection;

/// A hint of a media type and an extension.
pub(crate) fn test_hint(mime: &str, extension: &str) -> ConversionHint {
    ConversionHint {
        mime: mime.to_owned(),
        extension: extension.to_owned(),
        ..ConversionHint::default()
    }
}

/// Converts bytes and returns everything that a conversion reports.
pub(crate) fn convert_bytes(hint: &ConversionHint, bytes: &[u8], limits: Limits) -> Converted {
    convert(&mut Cursor::new(bytes), hint, limits, Selection::All)
}

/// The Markdown of a document that must convert to its end.
pub(crate) fn convert_to_markdown(mime: &str, extension: &str, bytes: &[u8]) -> String {
    let conversion = convert_bytes(&test_hint(mime, extension), bytes, Limits::default());
    assert_eq!(
        (conversion.stopped, conversion.failure),
        (None, None),
        "{}",
        conversion.markdown
    );
    conversion.markdown
}

/// The Markdown of a document that runs into a default limit, and which.
pub(crate) fn convert_until_limit(mime: &str, extension: &str, bytes: &[u8]) -> (String, Limit) {
    let conversion = convert_bytes(&test_hint(mime, extension), bytes, Limits::default());
    (conversion.markdown, conversion.stopped.unwrap())
}
