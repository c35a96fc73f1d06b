//! Text: valid UTF-8 without NUL in its first 8 KiB; the name determines the type of text.

use crate::names;
use crate::table::text_type;

use super::markup::{self, MarkupRoot};
use super::sniff::SniffResult;
use super::types::{ContentKind, DocumentKind, ExecutableKind};

/// Bytes in which a NUL or invalid UTF-8 means that the content is not text (platform-delivery 4).
const SNIFF_BYTES: usize = 8 * 1024;

/// Detects text; `None` if it is not text. `whole` is whether `head` is the complete file.
pub(super) fn sniff(head: &[u8], extension: &str, whole: bool) -> Option<SniffResult> {
    let text = as_text(head, whole)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match (markup::markup_root(text), extension) {
        // The root has priority over the name: a browser runs the scripts of SVG and HTML under any extension.
        (Some(MarkupRoot::Svg), _) | (_, "svg") => {
            return Some(SniffResult::of(ContentKind::Document(DocumentKind::Svg)));
        }
        (Some(MarkupRoot::Html), _) | (_, "html" | "htm" | "xhtml" | "shtml") => {
            return Some(SniffResult::of(ContentKind::Document(DocumentKind::Html)));
        }
        // With a generic XML root, the extension of a known type, such as GPX, decides.
        (Some(MarkupRoot::Xml), _) if text_type(extension).is_none() => {
            return Some(SniffResult::typed(ContentKind::Text, names::XML));
        }
        _ => {}
    }
    let interpreter = text
        .strip_prefix("#!")
        .map(|rest| rest.trim_start_matches([' ', '\t']));
    // `#![…]` of Rust begins the same way; a script names its interpreter by an absolute path.
    if interpreter.is_some_and(|path| path.starts_with('/')) {
        return Some(SniffResult::of(ContentKind::Executable(
            ExecutableKind::Script,
        )));
    }
    Some(match text_type(extension) {
        Some(media_type) => SniffResult::typed(ContentKind::Text, media_type),
        None => SniffResult::of(ContentKind::Text),
    })
}

/// The start of a text. The last character may be incomplete at the end of the sample, but not at the end of the file.
fn as_text(head: &[u8], whole: bool) -> Option<&str> {
    let sample = head.get(..SNIFF_BYTES.min(head.len()))?;
    if sample.is_empty() || sample.contains(&0) {
        return None;
    }
    match str::from_utf8(sample) {
        Ok(text) => Some(text),
        // An error without a length is a character that the sample cuts off; at the end of the file it is invalid.
        Err(error) if error.error_len().is_none() && !(whole && sample.len() == head.len()) => {
            str::from_utf8(sample.get(..error.valid_up_to())?)
                .ok()
                .filter(|text| !text.is_empty())
        }
        Err(_) => None,
    }
}
