//! RTF (read-attachment 7.10), parsed by this crate: groups, code pages, tables, lists, links.

mod blocks;
mod codepage;
mod fonts;
mod form_field;
mod html;
mod reader;
#[cfg(test)]
mod tests;
mod token;
mod words;

pub(crate) use codepage::CodePage;
pub(crate) use html::wrapped_html;

use super::text::source;
use super::{ConversionHint, Converter};
use crate::container::Input;
use crate::limits::{Damage, Failure};
use crate::markdown::Markdown;

/// One media type for each converter, with its extension.
pub(super) const SAMPLES: &[(&str, &str)] = &[("application/rtf", "rtf")];

/// The converter of this family for a media type.
pub(super) fn converter(hint: &ConversionHint) -> Option<Converter> {
    matches!(
        hint.mime.as_str(),
        "application/rtf" | "text/rtf" | "text/richtext"
    )
    .then_some(Converter {
        name: "rtf",
        convert,
    })
}

/// Fails with [`Failure::NoText`] for a file without text, such as one with pictures only.
fn convert(
    input: &mut dyn Input,
    _hint: &ConversionHint,
    out: &mut Markdown,
) -> Result<(), Failure> {
    let bytes = source::read_bytes(input, out.budget())?;
    write_rtf(&bytes, out)?;
    if out.is_empty() && !bytes.trim_ascii().is_empty() {
        return Err(Failure::NoText);
    }
    Ok(())
}

/// Writes an RTF text, such as a file or the body of a mail.
///
/// # Errors
///
/// Damage if it is not RTF; the limit that was reached, with earlier content kept.
pub(crate) fn write_rtf(bytes: &[u8], out: &mut Markdown) -> Result<(), Failure> {
    let bytes = bytes
        .strip_prefix(b"\xEF\xBB\xBF")
        .unwrap_or(bytes)
        .trim_ascii_start();
    if bytes.is_empty() {
        return Ok(());
    }
    if !bytes.starts_with(b"{\\rtf") {
        return Err(Failure::Corrupt(Damage::Malformed));
    }
    reader::Reader::new(out).read(bytes)
}
