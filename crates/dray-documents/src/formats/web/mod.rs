//! HTML and XML (read-attachment 7.4, 7.5).

mod charset;
mod html;

pub(crate) use html::html;

use super::text::source;
use super::{Converter, Hint};
use crate::container::Input;
use crate::limits::Failure;
use crate::markdown::Markdown;

/// The converter of this family for a media type.
pub(super) fn converter(hint: &Hint) -> Option<Converter> {
    match hint.mime.as_str() {
        "text/html" | "application/xhtml+xml" => Some(Converter {
            name: "html",
            convert: page,
        }),
        _ => None,
    }
}

/// A page.
fn page(input: &mut dyn Input, hint: &Hint, out: &mut Markdown) -> Result<(), Failure> {
    let bytes = source::bytes(input, out.budget())?;
    let text = charset::decode(&bytes, hint.encoding.as_deref());
    out.budget().clock()?;
    html(&text, out)
}
