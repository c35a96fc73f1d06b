//! The guarantees of every converter for any bytes.

use std::io::Cursor;

use dray_documents::formats::{ConversionHint, OcrHint, convert};
use dray_documents::limits::Limits;
use dray_documents::markdown::{Selection, Span};

/// Most bytes of text of a conversion; small, so that inputs reach the limit.
const MAX_TEXT_BYTES: u64 = 20_000;

/// Converts, and checks its outcome. The first byte chooses the limits and the selection.
pub(crate) fn check(mime: &str, extension: &str, bytes: &[u8]) {
    let [choice, document @ ..] = bytes else {
        return;
    };
    let hint = ConversionHint {
        mime: mime.to_owned(),
        extension: extension.to_owned(),
        // Pictures have no converter unless their text is wanted.
        ocr: mime.starts_with("image/").then(|| OcrHint {
            max_pictures: 2,
            languages: "eng".to_owned(),
        }),
        ..ConversionHint::default()
    };
    let limits = Limits {
        max_text_bytes: if choice % 2 == 0 { MAX_TEXT_BYTES } else { 100 },
        max_elements: if choice % 3 == 0 { 20 } else { 50_000 },
        max_depth: if choice % 5 == 0 { 4 } else { 256 },
        ..Limits::default()
    };
    let selection = if choice % 7 == 0 {
        Selection::Rows {
            span: Span { first: 2, last: 3 },
        }
    } else {
        Selection::All
    };
    let max_output_bytes = usize::try_from(limits.max_text_bytes).expect("fits") * 2 + 4096;
    let converted = convert(&mut Cursor::new(document), &hint, limits, selection);
    let text = &converted.markdown;
    // The only file of a compressed file may be of any type.
    assert!(!converted.converter.is_empty() || converted.member.is_some());
    assert!(text.len() <= max_output_bytes, "{} bytes", text.len());
    assert!(text.is_empty() || text.ends_with('\n') && !text.ends_with("\n\n"));
    assert!(!text.contains('\r'));
    assert!(converted.failure.is_none() || converted.stopped.is_none());
}
